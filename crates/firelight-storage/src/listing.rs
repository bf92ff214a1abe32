//! What lies in a folder, by name.

use std::fs;
use std::io;
use std::path::Path;

use crate::{InputError, StorageError};

/// The sorted names in a folder; none if it is not there.
pub(crate) fn names_in(path: &Path) -> Result<Vec<String>, StorageError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let problem = "is a file, but a folder is expected: give the folder of the run, not a file in it";
            return Err(InputError::in_file(path, problem).into());
        }
        Err(error) => return Err(StorageError::io("read the folder", path)(error)),
    };
    let names: io::Result<Vec<String>> =
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
    let mut names = names.map_err(StorageError::io("read the folder", path))?;
    names.sort_unstable();
    Ok(names)
}
