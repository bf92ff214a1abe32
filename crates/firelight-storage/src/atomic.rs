//! Replaces a file in one move, so that a crash or a full disk leaves either the old file or the new one, never half of
//! one. Everything Firelight writes goes through here. The recipe is POSIX's: write a temporary file beside the target,
//! flush it to the disk, rename it over the target, flush the folder. A folder, a pipe or a device is never replaced; of a
//! symbolic link the file that it leads to is replaced, and the link stays.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::StorageError;
use crate::file::target_of;

/// Writes `bytes` to `path`, replacing a file that is there.
///
/// # Errors
/// Returns an error naming `path` if it cannot be written, or is a folder, a pipe or a device; the old file is then
/// untouched.
pub fn write_atomic(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<(), StorageError> {
    write_atomic_with(path, |writer| writer.write_all(bytes.as_ref()))
}

/// Writes what `write` writes to `path`, replacing a file that is there. Writes are buffered.
///
/// # Errors
/// As [`write_atomic`], also if `write` fails.
pub fn write_atomic_with(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), StorageError> {
    let path = path.as_ref();
    let fill = |temporary: &Path| {
        let mut writer = BufWriter::new(File::create_new(temporary)?);
        write(&mut writer)?;
        writer.flush()
    };
    replace_file(path, |temporary| fill(temporary).map_err(StorageError::io("write", path)))
}

/// Writes a value to `path` as JSON on one line, replacing a file that is there.
///
/// # Errors
/// As [`write_atomic`], also if the value cannot be expressed in JSON.
pub fn write_json<T: Serialize>(path: impl AsRef<Path>, value: &T) -> Result<(), StorageError> {
    write_atomic_with(path, |writer| Ok(serde_json::to_writer(writer, value)?))
}

/// Writes `items` to `path` as JSON, one a line, replacing a file that is there.
///
/// # Errors
/// As [`write_atomic`], also if an item cannot be expressed in JSON.
pub fn write_json_lines<T: Serialize>(
    path: impl AsRef<Path>,
    items: impl IntoIterator<Item = T>,
) -> Result<(), StorageError> {
    write_atomic_with(path, |writer| {
        items.into_iter().try_for_each(|item| {
            serde_json::to_writer(&mut *writer, &item)?;
            writer.write_all(b"\n")
        })
    })
}

/// Lets `fill` create a file under a temporary name beside `path` and moves it to `path` once it is on the disk.
///
/// # Errors
/// As [`write_atomic`], also the error of `fill`.
pub fn replace_file(path: &Path, fill: impl FnOnce(&Path) -> Result<(), StorageError>) -> Result<(), StorageError> {
    let target = target_of(path)?;
    let temporary = temporary_name(&target);
    let filled = permissions_beside(&temporary).map_err(StorageError::io("write", path)).and_then(|permissions| {
        fill(&temporary)?;
        fs::set_permissions(&temporary, permissions).map_err(StorageError::io("write", path))
    });
    let moved = filled.and_then(|()| commit(&temporary, &target).map_err(StorageError::io("write", path)));
    if moved.is_err() {
        // The first error is the one worth telling; a temporary file that cannot be removed does no harm.
        let _ = fs::remove_file(&temporary);
    }
    moved
}

/// The permissions that other files get at `path`; libraries write some for their owner alone.
fn permissions_beside(path: &Path) -> io::Result<Permissions> {
    let permissions = File::create_new(path)?.metadata()?.permissions();
    fs::remove_file(path)?;
    Ok(permissions)
}

/// A name beside `path` that no other writer of this machine uses at this time.
fn temporary_name(path: &Path) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

/// Whether a file of this name was being written when its writer was killed, if no writer is left.
pub(crate) fn is_temporary(name: &str) -> bool {
    let stem = name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp"));
    let numbers = stem.and_then(|stem| stem.rsplit_once('.')).and_then(|(_, numbers)| numbers.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, count)| is_number(process) && is_number(count))
}

/// Flushes the temporary file to the disk and gives it its name.
fn commit(temporary: &Path, path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(temporary)?.sync_all()?;
    fs::rename(temporary, path)?;
    sync_folder(path)
}

/// Flushes the entry of `path` in its folder, without which a rename itself could be lost in a power cut.
#[cfg(unix)]
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Other systems offer no handle on a folder to flush.
#[cfg(not(unix))]
pub(crate) fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_the_file_and_leaves_nothing_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.txt");
        write_atomic(&path, "old").unwrap();
        write_atomic(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_keeps_the_old_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.txt");
        write_atomic(&path, "old").unwrap();
        let error = write_atomic_with(&path, |writer| {
            writer.write_all(b"half of the ne")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot write `{}`: ", path.display())), "{error}");
        assert!(!error.is_user_error());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_is_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let error = write_atomic(home.path(), "x").unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("` is a folder, but a regular file"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn special_files_are_not_replaced() {
        use std::os::unix::fs::FileTypeExt;
        use std::os::unix::net::UnixListener;
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("a.png");
        let _listener = UnixListener::bind(&socket).unwrap();
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        for path in [&socket, &link] {
            let error = write_atomic(path, "x").unwrap_err();
            assert!(error.is_user_error());
            let expected = format!("`{}` is a socket, but a regular file is expected: ", path.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "no temporary file is left");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_its_file_is_replaced() {
        use std::os::unix::fs::symlink;
        let home = tempfile::tempdir().unwrap();
        let [file, link] = ["folder/a.txt", "link"].map(|name| home.path().join(name));
        fs::create_dir(home.path().join("folder")).unwrap();
        write_atomic(&file, "old").unwrap();
        symlink("folder/a.txt", &link).unwrap();
        write_atomic(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");

        fs::remove_file(&file).unwrap();
        let error = write_atomic(&link, "x").unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("a symbolic link to nothing"), "{error}");
        let round = home.path().join("round");
        symlink(&round, &round).unwrap();
        assert!(write_atomic(&round, "x").is_err());
    }

    #[test]
    fn a_temporary_name_is_distinguished_from_others() {
        let temporary = temporary_name(Path::new("runs/a.txt"));
        assert!(is_temporary(temporary.file_name().unwrap().to_str().unwrap()));
        for other in ["a.txt", ".a.txt.tmp", ".a.1-.tmp", ".a.one-1.tmp", "a.txt.1-1.tmp", ".lock", ".tmp"] {
            assert!(!is_temporary(other), "{other}");
        }
    }

    #[test]
    fn a_missing_folder_is_the_users_mistake() {
        let home = tempfile::tempdir().unwrap();
        assert!(write_atomic(home.path().join("no/a.txt"), "x").unwrap_err().is_user_error());
    }

    #[test]
    fn items_stand_a_line_each() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.jsonl");
        write_json_lines(&path, ["a\nb", "c"]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "\"a\\nb\"\n\"c\"\n");
        let maps = [std::collections::BTreeMap::from([(vec![1], 2)])]; // no JSON: its key is no text
        assert!(write_json_lines(&path, maps).unwrap_err().to_string().contains("a.jsonl"));
        assert_eq!(fs::read_to_string(&path).unwrap().len(), 11);
    }
}
