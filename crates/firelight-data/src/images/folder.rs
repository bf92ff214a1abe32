//! A folder with a subfolder for each class, of PNG and JPEG files. Names that begin with a dot are passed over.

use std::fs;
use std::path::{Path, PathBuf};

use firelight_storage::{InputError, StorageError};
use rayon::prelude::*;

use super::files::{ReadImages, ReadOptions};
use super::set::{ImageSet, other_shape};
use super::{Image, ImageError};

/// A file and the number of its class.
struct Entry {
    path: PathBuf,
    class: usize,
}

/// Reads all images. Classes are in the order of their names; their images come in turn, each class as often as its share, so
/// that the last images are of all classes as well.
pub(super) fn read(folder: &Path, options: &ReadOptions) -> Result<ReadImages, ImageError> {
    let classes = listed(folder, Path::is_dir)?;
    let files = classes.iter().map(|class| listed(class, Path::is_file)).collect::<Result<Vec<_>, _>>()?;
    let entries = in_turn(files);
    let images: Vec<Result<Image, ImageError>> =
        entries.par_iter().map(|entry| Ok(options.fit(Image::open(&entry.path)?))).collect();
    let (mut kept, mut skipped) = (Vec::new(), Vec::new());
    for (entry, image) in entries.into_iter().zip(images) {
        match image {
            Ok(image) => kept.push((entry, image)),
            Err(ImageError::Unreadable(_)) if options.skip_unreadable => skipped.push(entry.path),
            Err(error) => return Err(error),
        }
    }
    if let Some(empty) = (0..classes.len()).find(|class| kept.iter().all(|(entry, _)| entry.class != *class)) {
        let problem = format!("the class folder `{}` holds no image", classes[empty].display());
        let advice = "add PNG or JPEG files, or remove the folder";
        return Err(InputError::new(format!("{problem}: {advice}")).into());
    }
    let names = classes.iter().map(|class| name(class)).collect();
    Ok(ReadImages { set: collect(folder, names, kept)?, skipped })
}

/// The subfolders of a folder, which may be classes or splits.
pub(super) fn subfolders(folder: &Path) -> Result<Vec<PathBuf>, ImageError> {
    listed(folder, Path::is_dir)
}

pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What lies in a folder, of one kind, by name.
fn listed(folder: &Path, kind: fn(&Path) -> bool) -> Result<Vec<PathBuf>, ImageError> {
    let entries = fs::read_dir(folder).map_err(StorageError::io("read", folder))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>().map_err(StorageError::io("read", folder))?;
    paths.retain(|path| !name(path).starts_with('.') && kind(path));
    paths.sort();
    Ok(paths)
}

/// The file `i` of `n` of its class stands at the share `(i + 1/2) / n` of the whole.
fn in_turn(files: Vec<Vec<PathBuf>>) -> Vec<Entry> {
    let mut placed: Vec<(f64, Entry)> = Vec::new();
    for (class, paths) in files.into_iter().enumerate() {
        let count = paths.len() as f64;
        let place = |(i, path)| ((i as f64 + 0.5) / count, Entry { path, class });
        placed.extend(paths.into_iter().enumerate().map(place));
    }
    placed.sort_by(|(a, _), (b, _)| a.total_cmp(b)); // stable: classes in their order
    placed.into_iter().map(|(_, entry)| entry).collect()
}

fn collect(folder: &Path, classes: Vec<String>, images: Vec<(Entry, Image)>) -> Result<ImageSet, ImageError> {
    let Some((_, first)) = images.first() else { return Err(ImageError::NoImages { path: folder.into() }) };
    let expected = first.shape();
    let (mut pixels, mut labels) = (Vec::with_capacity(images.len() * expected.volume()), Vec::new());
    for (entry, image) in &images {
        if image.shape() != expected {
            return Err(other_shape(&entry.path, expected, image.shape()).into());
        }
        pixels.extend_from_slice(image.pixels());
        labels.push(entry.class as u32);
    }
    Ok(ImageSet::new(expected, classes, pixels, labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::ImageShape;
    use crate::images::codec::tests::with_png_size;

    fn write(folder: &Path, name: &str, channels: usize, size: [usize; 2], value: u8) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        Image::from_fn(ImageShape::new(channels, size), |_, _, _| value).write_png(path).unwrap();
    }

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for (name, value) in [("owl/1.png", 1), ("cat/a.png", 2), ("cat/b.png", 3), ("cat/c.png", 4), ("cat/d.png", 5)]
        {
            write(home.path(), name, 1, [2, 2], value);
        }
        fs::write(home.path().join("cat/.hidden"), "no image").unwrap();
        home
    }

    #[test]
    fn classes_come_in_turn_and_by_name() {
        let home = home();
        let set = read(home.path(), &ReadOptions::default()).unwrap().set;
        assert_eq!(set.classes(), ["cat", "owl"]);
        // Shares 1/8, 3/8, 5/8 and 7/8 of the cats, 1/2 of the owl.
        let values: Vec<u8> = set.pixels().iter().step_by(4).copied().collect();
        assert_eq!((values, set.labels()), (vec![2, 3, 1, 4, 5], &[0, 0, 1, 0, 0][..]));
    }

    #[test]
    fn a_file_that_is_no_image_is_named_and_skipped_by_option_alone() {
        let home = home();
        fs::write(home.path().join("owl/notes.txt"), "owls are awake").unwrap();
        let error = read(home.path(), &ReadOptions::default()).unwrap_err();
        assert!(matches!(&error, ImageError::Unreadable(_)), "{error}");
        assert!(error.to_string().contains("owl/notes.txt` is no image: its bytes are of no known format"), "{error}");
        let skipping = ReadOptions { skip_unreadable: true, ..ReadOptions::default() };
        let read_images = read(home.path(), &skipping).unwrap();
        assert_eq!((read_images.set.len(), read_images.skipped), (5, vec![home.path().join("owl/notes.txt")]));
    }

    #[test]
    fn an_image_with_too_many_pixels_is_named_and_skipped_by_option_alone() {
        let home = home();
        let (small, large) = (home.path().join("owl/1.png"), home.path().join("owl/2.png"));
        fs::write(&large, with_png_size(fs::read(small).unwrap(), 100_000, 100_000)).unwrap();
        let error = read(home.path(), &ReadOptions::default()).unwrap_err();
        assert!(matches!(&error, ImageError::Unreadable(_)), "{error}");
        assert!(error.to_string().contains(&format!("`{}` has 100000 x 100000 pixels", large.display())), "{error}");
        let skipping = ReadOptions { skip_unreadable: true, ..ReadOptions::default() };
        let read_images = read(home.path(), &skipping).unwrap();
        assert_eq!((read_images.set.len(), read_images.skipped), (5, vec![large]));
    }

    #[test]
    fn other_sizes_and_channels_are_refused_unless_they_are_asked_to_fit() {
        let home = home();
        write(home.path(), "owl/2.png", 3, [2, 4], 9);
        let error = read(home.path(), &ReadOptions::default()).unwrap_err().to_string();
        assert!(
            error.contains("owl/2.png` has 3 x 2 x 4 (channels, height, width), but 1 x 2 x 2 is expected"),
            "{error}"
        );
        assert!(error.contains("data.image_size = [2, 2]") && error.contains("data.channels = 1"), "{error}");
        let fitting = ReadOptions { size: Some([2, 2]), channels: Some(1), ..ReadOptions::default() };
        let set = read(home.path(), &fitting).unwrap().set;
        assert_eq!((set.len(), set.shape()), (6, ImageShape::new(1, [2, 2])));
    }

    #[test]
    fn a_class_without_images_is_refused() {
        let home = home();
        fs::create_dir(home.path().join("dog")).unwrap();
        let refuse = |options: &ReadOptions| read(home.path(), options).unwrap_err().to_string();
        assert!(refuse(&ReadOptions::default()).contains("dog` holds no image"));
        fs::write(home.path().join("dog/readme"), "later").unwrap();
        assert!(
            refuse(&ReadOptions { skip_unreadable: true, ..ReadOptions::default() }).contains("dog` holds no image")
        );
    }
}
