//! A commit of a model in the cache of Hugging Face: the contents of its files lie in `blobs`, by their hashes, and links in `snapshots`
//! call them by their names. What comes in goes to `HASH.incomplete` beside the blobs, which the next try goes on with; only a whole file
//! gets a name. The locks are those of `hf download`, too.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use firelight_storage::InputError;
use hf_hub::{Cache, CacheRepo};

use super::server::{Metadata, Server};
use super::{failed, is_plain, megabytes, repo, untrusted};
use crate::locate::HubName;

/// How often another process is waited for, and how long each time.
const WAITS: (usize, Duration) = (50, Duration::from_millis(100));

/// A commit of a model, and the cache that it comes into.
#[derive(Debug)]
pub(super) struct Snapshot<'a> {
    pub(super) name: &'a HubName,
    pub(super) commit: &'a str,
    pub(super) cache: &'a Path,
}

impl Snapshot<'_> {
    /// The folder of its files.
    pub(super) fn folder(&self) -> PathBuf {
        self.kept(self.commit).pointer_path(self.commit)
    }

    /// Keeps that the revision which was asked for is this commit.
    pub(super) fn keep_revision(&self) -> Result<(), InputError> {
        let kept = self.kept(&self.name.revision).create_ref(self.commit);
        kept.map_err(|error| self.unwritten("its revision", &error))
    }

    /// One file; what is there already does not come again.
    pub(super) fn fetch(&self, server: &Server, file: &str, tell: &mut impl FnMut(&str)) -> Result<(), InputError> {
        let of_hub = repo(self.name, self.commit);
        let address = format!("{}/resolve/{}/{file}", of_hub.url(), of_hub.url_revision());
        let metadata = server.metadata(&address).map_err(|failure| failed(self.name, file, &failure))?;
        let Metadata { commit, etag, size } = &metadata;
        if !is_plain(etag) || commit != self.commit {
            return Err(untrusted(self.name, etag));
        }
        let _lock = self.lock(etag).map_err(|error| self.unwritten(file, &error))?;
        let (blob, link) = (self.kept(self.commit).blob_path(etag), self.folder().join(file));
        if is_whole(&link, *size) {
            return Ok(());
        }
        if !is_whole(&blob, *size) {
            tell(&format!("downloading {file} of {}, {}", self.name, megabytes(*size)));
            self.fill(server, &address, (file, *size), &blob)?;
        }
        call(&blob, &link, file).map_err(|error| self.unwritten(file, &error))
    }

    /// Downloads a content, which gets its name when it is whole.
    fn fill(&self, server: &Server, address: &str, (file, size): (&str, u64), blob: &Path) -> Result<(), InputError> {
        let unwritten = |error: io::Error| self.unwritten(file, &error);
        make_folder_of(blob).map_err(unwritten)?;
        let part = blob.with_extension("incomplete");
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(&part);
        let mut content = open.map_err(unwritten)?;
        server.fill(address, size, &mut content).map_err(|failure| failed(self.name, file, &failure))?;
        let found = content.metadata().map_err(unwritten)?.len();
        if found > size {
            // More than the whole is no beginning of it.
            let _ = fs::remove_file(&part);
        }
        if found != size {
            let kind = if found < size { "was cut short" } else { "is too long" };
            let problem = format!("{file} of {} {kind}: {found} of {size} bytes came", self.name);
            return Err(InputError::new(problem).advise("try again"));
        }
        content.sync_all().and_then(|()| fs::rename(&part, blob)).map_err(unwritten)
    }

    fn kept(&self, revision: &str) -> CacheRepo {
        Cache::new(self.cache.into()).repo(repo(self.name, revision))
    }

    /// One process downloads a content at a time; the lock goes with the file that is returned.
    fn lock(&self, etag: &str) -> io::Result<File> {
        let folder = self.cache.join(".locks").join(repo(self.name, self.commit).folder_name());
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{etag}.lock"));
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        for _ in 0..WAITS.0 {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => sleep(WAITS.1),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "another process is downloading it"))
    }

    fn unwritten(&self, file: &str, error: &io::Error) -> InputError {
        let problem = format!("cannot write {file} of {} into `{}`: {error}", self.name, self.cache.display());
        InputError::new(problem).advise("look at the disk and try again, or set HF_HUB_CACHE to another folder")
    }
}

fn make_folder_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn is_whole(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == size)
}

/// Calls a content by the name of a file.
fn call(blob: &Path, link: &Path, file: &str) -> io::Result<()> {
    make_folder_of(link)?;
    // What is not whole, or leads nowhere, gives way.
    let _ = fs::remove_file(link);
    place(blob, link, file)
}

#[cfg(unix)]
fn place(blob: &Path, link: &Path, file: &str) -> io::Result<()> {
    // Relative, so that a cache can be moved: out of `snapshots/COMMIT` and of the folders of the file.
    let up = "../".repeat(2 + file.matches('/').count());
    let name = blob.file_name().unwrap_or_default().to_string_lossy();
    std::os::unix::fs::symlink(format!("{up}blobs/{name}"), link)
}

/// Links need rights that users have nowhere else.
#[cfg(not(unix))]
fn place(blob: &Path, link: &Path, _file: &str) -> io::Result<()> {
    fs::rename(blob, link)
}
