//! Pictures of several things with a caption each, composed of images with labels: `a seven at the top left and an eight at the
//! bottom right`. Data for models that describe images, in which every word has a place to look at.

mod digits;

use super::{Image, ImageSet, ImageShape};
use crate::dice::Dice;

pub use digits::drawn_digits;

/// Where the parts of a picture stand, in reading order.
const PLACES: [&str; 4] = ["top left", "top right", "bottom left", "bottom right"];

/// The digits in words.
const DIGITS: [&str; 10] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

/// A part is moved by up to this share of its own size.
const SLACK: usize = 7;

/// The stream of chance of the scenes.
const STREAM: u64 = 0x5c_e9_e5;

/// Images with a caption each.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptionedImages {
    /// The images, all of one class.
    pub images: ImageSet,
    /// What each shows.
    pub captions: Vec<String>,
}

impl CaptionedImages {
    /// `count` pictures of one to `max_parts` images of `parts` each, in two rows of two places. The picture is a little larger
    /// than two images on each side, and every image lies somewhere in its quarter. Equal arguments give equal pictures, and more
    /// pictures of a seed begin with the fewer.
    ///
    /// A class that is a digit is written as a word, any other as it is named.
    ///
    /// # Panics
    /// Panics if there is no image, or `max_parts` is not from 1 to 4.
    pub fn composed(parts: &ImageSet, max_parts: usize, seed: u64, count: usize) -> Self {
        assert!(!parts.is_empty() && (1..=PLACES.len()).contains(&max_parts), "one to four of some images");
        let mut dice = Dice::of(&[seed, STREAM]);
        let (mut pixels, mut captions) = (Vec::new(), Vec::with_capacity(count));
        for _ in 0..count {
            let (image, caption) = scene(parts, max_parts, &mut dice);
            pixels.extend_from_slice(image.pixels());
            captions.push(caption);
        }
        Self { images: ImageSet::unlabelled(canvas(parts.shape()), pixels), captions }
    }

    /// The images before the last `validation`, and these.
    ///
    /// # Errors
    /// As [`ImageSet::split`].
    pub fn split(self, validation: usize) -> Result<(Self, Self), super::ImageError> {
        let (first, last) = self.images.split(validation)?;
        let mut captions = self.captions;
        let of_last = captions.split_off(first.len());
        Ok((Self { images: first, captions }, Self { images: last, captions: of_last }))
    }
}

/// The shape of a picture of parts of this shape.
fn canvas(part: ImageShape) -> ImageShape {
    ImageShape::new(part.channels, part.size().map(|side| 2 * (side + side / SLACK)))
}

fn scene(parts: &ImageSet, max_parts: usize, dice: &mut Dice) -> (Image, String) {
    let mut places = [0, 1, 2, 3];
    dice.shuffle(&mut places);
    let shown = &mut places[..1 + dice.below(max_parts)];
    shown.sort_unstable();
    let shape = canvas(parts.shape());
    let mut pixels = vec![0; shape.volume()];
    let mut named = Vec::new();
    for &mut place in shown {
        let part = dice.below(parts.len());
        let image = parts.image(part);
        let [top, left] = [0, 1].map(|axis| {
            let [side, of_part] = [shape, image.shape()].map(|shape| shape.size()[axis]);
            let quarter = [place / 2, place % 2][axis] * side / 2;
            quarter + dice.below(side / 2 - of_part + 1)
        });
        paint(&mut pixels, shape, &image, [top, left]);
        let class = &parts.classes()[parts.labels()[part] as usize];
        named.push(format!("{} at the {}", with_article(class), PLACES[place]));
    }
    (Image::new(shape, pixels), listed(&named))
}

/// Lays an image onto a picture; the brighter pixel stays.
fn paint(pixels: &mut [u8], shape: ImageShape, image: &Image, [top, left]: [usize; 2]) {
    let ImageShape { channels, height, width } = image.shape();
    for (channel, row) in (0..channels).flat_map(|channel| (0..height).map(move |row| (channel, row))) {
        let start = (channel * shape.height + top + row) * shape.width + left;
        for (column, pixel) in pixels[start..start + width].iter_mut().enumerate() {
            *pixel = (*pixel).max(image.at(channel, row, column));
        }
    }
}

fn with_article(class: &str) -> String {
    let digit = class.parse::<usize>().ok().and_then(|digit| DIGITS.get(digit));
    let word = digit.copied().unwrap_or(class);
    let is_spoken_as_consonant = ["one", "uni"].iter().any(|start| word.starts_with(start));
    let article = if word.starts_with(['a', 'e', 'i', 'o', 'u']) && !is_spoken_as_consonant { "an" } else { "a" };
    format!("{article} {word}")
}

/// `x`, `x and y`, `x, y and z`.
fn listed(names: &[String]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        names => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A white and a grey image.
    fn parts() -> ImageSet {
        let classes = ["8", "cat"].map(str::to_string).to_vec();
        ImageSet::new(ImageShape::new(1, [7, 14]), classes, [[255; 98], [9; 98]].concat(), vec![0, 1])
    }

    #[test]
    fn a_caption_says_what_stands_where() {
        let found = CaptionedImages::composed(&parts(), 4, 3, 200);
        assert_eq!((found.images.shape(), found.captions.len()), (ImageShape::new(1, [16, 32]), 200));
        for (index, caption) in found.captions.iter().enumerate() {
            let image = found.images.image(index);
            for (place, name) in PLACES.iter().enumerate() {
                let [top, left] = [place / 2 * 8, place % 2 * 16];
                let quarter = (top..top + 8).flat_map(|row| (left..left + 16).map(move |column| (row, column)));
                let lit: Vec<u8> = quarter.map(|(row, column)| image.at(0, row, column)).filter(|p| *p > 0).collect();
                let expected = match lit.first() {
                    Some(255) => Some(format!("an eight at the {name}")),
                    Some(_) => Some(format!("a cat at the {name}")),
                    None => None,
                };
                match expected {
                    Some(phrase) => assert!(lit.len() == 98 && caption.contains(&phrase), "{caption}: {phrase}"),
                    None => assert!(!caption.contains(name), "{caption}"),
                }
            }
        }
        let parts = found.captions.iter().map(|caption| caption.matches(" at the ").count());
        assert_eq!(parts.collect::<std::collections::BTreeSet<_>>(), (1..=4).collect());
    }

    #[test]
    fn a_seed_means_its_pictures() {
        let composed = |seed, count| CaptionedImages::composed(&parts(), 2, seed, count);
        assert_eq!(composed(1, 20), composed(1, 20));
        assert_eq!(composed(1, 20).captions[..10], composed(1, 10).captions);
        assert_ne!(composed(1, 20).captions, composed(2, 20).captions);
        let (first, last) = composed(1, 20).split(4).unwrap();
        assert_eq!([&first.captions[..], &last.captions[..]].concat(), composed(1, 20).captions);
        assert_eq!((first.images.len(), last.images.len()), (16, 4));
    }

    #[test]
    fn a_list_reads_as_people_write_it() {
        let listed = |names: &[&str]| listed(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        assert_eq!([listed(&["a"]), listed(&["a", "b"]), listed(&["a", "b", "c"])], ["a", "a and b", "a, b and c"]);
        assert_eq!(["8", "1", "owl"].map(with_article), ["an eight", "a one", "an owl"]);
    }
}
