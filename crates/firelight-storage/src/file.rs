//! What stands at a path, before it is read or replaced. A named pipe or a device has no end that is known beforehand,
//! cannot be read twice as a resumed run does, and is not to be replaced by a file: both directions refuse it. Symbolic
//! links are followed both ways, as a shell's redirection does: the file that a link leads to is read or replaced, and the
//! link stays.

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use serde::de::DeserializeOwned;

use crate::{InputError, StorageError, shortened_reason};

/// Opens a regular file to be read.
///
/// # Errors
/// Returns an error naming `path` if it cannot be read, or is a folder, a pipe or a device.
pub fn open_file(path: impl AsRef<Path>) -> Result<File, StorageError> {
    let path = path.as_ref();
    // Looked at before it is opened: opening a pipe waits for its writer.
    let found = fs::metadata(path).map_err(StorageError::io("read", path))?;
    check(path, found.file_type())?;
    File::open(path).map_err(StorageError::io("read", path))
}

/// Maps a regular file, whose pages are read when they are needed and are not the program's memory.
///
/// # Errors
/// As [`open_file`].
pub fn map_file(path: impl AsRef<Path>) -> Result<Arc<Mmap>, StorageError> {
    let path = path.as_ref();
    let file = open_file(path)?;
    // SAFETY: the file is only read. As with every mapped file, a program that cuts it short meanwhile ends this one; what is written
    // into it meanwhile changes numbers and nothing else, for headers are copied.
    let map = unsafe { Mmap::map(&file) }.map_err(StorageError::io("read", path))?;
    Ok(Arc::new(map))
}

/// Reads a whole regular file of at most `limit` bytes.
///
/// # Errors
/// As [`open_file`], and if the file is larger; no memory is taken then.
pub fn read_file(path: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>, StorageError> {
    let path = path.as_ref();
    let file = open_file(path)?;
    let size = file.metadata().map_err(StorageError::io("read", path))?.len();
    let mut bytes = Vec::new();
    if size <= limit {
        let reserved = bytes.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX));
        reserved.map_err(|error| StorageError::io("read", path)(error.into()))?;
        // The system tells no size of some files, and others grow.
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(StorageError::io("read", path))?;
    }
    match size.max(bytes.len() as u64) > limit {
        true => {
            let problem = format!("is larger than {limit} bytes, the most that is read of such a file");
            Err(InputError::in_file(path, problem).into())
        }
        false => Ok(bytes),
    }
}

/// Reads a whole text file of at most `limit` bytes.
///
/// # Errors
/// As [`read_file`], and if the file is not UTF-8.
pub fn read_text_file(path: impl AsRef<Path>, limit: u64) -> Result<String, StorageError> {
    let path = path.as_ref();
    let text = String::from_utf8(read_file(path, limit)?);
    text.map_err(|error| StorageError::io("read", path)(io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// Reads a JSON file of a run, of at most `limit` bytes.
///
/// # Errors
/// As [`read_text_file`], and if it holds something else than a `T`.
pub fn read_json<T: DeserializeOwned>(path: impl AsRef<Path>, limit: u64) -> Result<T, StorageError> {
    let path = path.as_ref();
    let text = read_text_file(path, limit)?;
    Ok(serde_json::from_str(&text).map_err(|error| unfit_file(path, &shortened_reason(&error.to_string())))?)
}

/// The error of a file that does not belong to the others of its run.
pub fn unfit_file(path: &Path, reason: &str) -> InputError {
    let problem = format!("does not fit the run: {reason}");
    InputError::in_file(path, problem).advise("restore the file that belongs to it")
}

/// Where the file lies that a write to `path` replaces or makes: behind a symbolic link the file that it leads to.
pub(crate) fn target_of(path: &Path) -> Result<PathBuf, StorageError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.into()),
        found => found.map_err(StorageError::io("write", path))?,
    };
    if !found.is_symlink() {
        return check(path, found.file_type()).map(|()| path.into());
    }
    let target = fs::canonicalize(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => not_a_file(path, "a symbolic link to nothing"),
        _ => StorageError::io("write", path)(error),
    })?;
    let found = fs::metadata(&target).map_err(StorageError::io("write", path))?;
    check(path, found.file_type()).map(|()| target)
}

/// Refuses what is no regular file.
fn check(path: &Path, found: FileType) -> Result<(), StorageError> {
    if found.is_file() { Ok(()) } else { Err(not_a_file(path, name(found))) }
}

fn not_a_file(path: &Path, found: &'static str) -> StorageError {
    let problem = format!("is {found}, but a regular file is expected: give the path of a file");
    InputError::in_file(path, problem).into()
}

/// What is no regular file, in words.
#[cfg(unix)]
fn name(found: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match () {
        () if found.is_dir() => "a folder",
        () if found.is_fifo() => "a named pipe",
        () if found.is_socket() => "a socket",
        () if found.is_char_device() || found.is_block_device() => "a device",
        () => "a special file",
    }
}

/// What is no regular file, in words.
#[cfg(not(unix))]
fn name(found: FileType) -> &'static str {
    if found.is_dir() { "a folder" } else { "a special file" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.txt");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_file(&path, 5).unwrap(), b"12345");
        let error = read_file(&path, 4).unwrap_err();
        assert!(error.is_user_error());
        assert!(error.to_string().ends_with("a.txt` is larger than 4 bytes, the most that is read of such a file"));
        // 1 TiB without a block on the disk: refused by its size.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read_file(&path, 1 << 30).unwrap_err().to_string();
        assert!(error.contains("a.txt` is larger than 1073741824 bytes"), "{error}");
        assert!(read_file(home.path().join("none"), 5).unwrap_err().to_string().starts_with("cannot read `"));
    }

    #[test]
    fn what_a_json_file_holds_instead_is_not_told_at_length() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.json");
        fs::write(&path, format!("\"{}\"", "W".repeat(5000))).unwrap();
        let error = read_json::<Vec<u32>>(&path, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("a.json` does not fit the run: invalid type: string \"WWW"), "{error}");
        assert!(error.len() < 600 && error.contains(" at line 1 column"), "{error}");
    }

    #[test]
    fn a_text_is_utf_8() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.txt");
        fs::write(&path, "\u{e9}").unwrap();
        assert_eq!(read_text_file(&path, 2).unwrap(), "\u{e9}");
        assert!(read_text_file(&path, 1).unwrap_err().to_string().contains("a.txt` is larger than 1 bytes"));
        fs::write(&path, b"a\xff").unwrap();
        let error = read_text_file(&path, 2).unwrap_err();
        assert!(error.is_user_error() && !error.is_not_found());
        assert!(error.to_string().starts_with(&format!("cannot read `{}`: invalid utf-8", path.display())), "{error}");
        assert!(read_text_file(home.path().join("none"), 2).unwrap_err().is_not_found());
    }

    #[test]
    fn what_is_no_regular_file_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let error = open_file(home.path()).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("` is a folder, but a regular file"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn devices_pipes_and_sockets_are_not_read() {
        let home = tempfile::tempdir().unwrap();
        let message = |path: &Path| read_file(path, 1 << 20).unwrap_err().to_string();
        assert!(message(Path::new("/dev/zero")).starts_with("`/dev/zero` is a device, but a regular file is expected"));
        let socket = home.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(message(&socket).contains("is a socket"));
        let pipe = home.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(message(&pipe).contains("is a named pipe"), "and it is not waited for");
    }

    /// `/proc/self/maps` is a regular file that tells no size.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_a_size_has_a_limit_as_well() {
        assert!(!read_file("/proc/self/maps", 1 << 24).unwrap().is_empty());
        let error = read_file("/proc/self/maps", 10).unwrap_err().to_string();
        assert!(error.starts_with("`/proc/self/maps` is larger than 10 bytes"), "{error}");
    }
}
