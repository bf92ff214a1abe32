//! The lock of a run folder: one process writes in it at a time. It is the kernel's own, so it ends with its process,
//! however that ends. [`ModelFolder`](crate::ModelFolder) takes it for every run and holds it as long as it lives.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::StorageError;
use crate::file::target_of;

/// The empty file that is locked. It stays when the lock is gone: removing it would let two processes hold two of them. It goes with a folder that
/// was made for what then failed; who waits for it there finds no folder.
pub(crate) const LOCK: &str = ".lock";

/// How long to wait for the owner: a process that was killed lets go only when its last write is on the disk, and a command
/// that is repeated until it succeeds may come sooner.
const PATIENCE: Duration = Duration::from_secs(1);

/// A folder that belongs to this process until the value is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of `folder`, which must be there.
    ///
    /// # Errors
    /// Fails if another process has it and keeps it for a second, or if the file cannot be made.
    pub(crate) fn take(folder: &Path) -> Result<Self, StorageError> {
        let path = target_of(&folder.join(LOCK))?;
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(StorageError::io("write", &path))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => return Ok(Self { _file: file }),
                // Its owner failed, and removed the folder that it had made.
                Ok(()) => return Err(StorageError::FolderInUse { path: folder.into() }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(Duration::from_millis(20)),
                Err(TryLockError::WouldBlock) => return Err(StorageError::FolderInUse { path: folder.into() }),
                Err(TryLockError::Error(cause)) => return Err(StorageError::io("lock", &path)(cause)),
            }
        }
    }
}

/// Whether an open file is still the one that lies at `path`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |data: fs::Metadata| (data.dev(), data.ino());
    let (open, there) = (file.metadata().map(place), fs::metadata(path).map(place));
    open.is_ok_and(|open| there.is_ok_and(|there| there == open))
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    fs::exists(path).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn nobody_owns_a_folder_that_its_owner_removed() {
        let home = tempfile::tempdir().unwrap();
        let lock = Lock::take(home.path()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(PATIENCE / 10);
                fs::remove_file(home.path().join(LOCK)).unwrap();
                drop(lock);
            });
            assert!(matches!(Lock::take(home.path()), Err(StorageError::FolderInUse { .. })));
        });
    }

    #[test]
    fn a_folder_has_one_owner_until_it_lets_go() {
        let home = tempfile::tempdir().unwrap();
        let lock = Lock::take(home.path()).unwrap();
        let error = Lock::take(home.path()).unwrap_err();
        assert!(matches!(error, StorageError::FolderInUse { .. }) && error.is_user_error());
        assert!(error.to_string().contains("in use by another process"), "{error}");
        drop(lock);
        Lock::take(home.path()).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn no_file_is_made_where_a_link_in_the_place_of_the_lock_leads_to() {
        let home = tempfile::tempdir().unwrap();
        let elsewhere = home.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, home.path().join(LOCK)).unwrap();
        let error = Lock::take(home.path()).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("a symbolic link to nothing"), "{error}");
        assert!(!elsewhere.exists());
    }

    #[test]
    fn an_owner_that_is_about_to_end_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let lock = Lock::take(home.path()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(PATIENCE / 10);
                drop(lock);
            });
            Lock::take(home.path()).unwrap();
        });
    }
}
