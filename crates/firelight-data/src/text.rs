//! Reads a text file, as a whole or piece by piece, with an error for everything that is not text. Called by the task crates before
//! anything else of a run happens.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use firelight_storage::{InputError, StorageError, open_file, read_file};

use crate::DataError;

/// U+FEFF, which some programs put in front of a text to tell its encoding.
pub(crate) const BYTE_ORDER_MARK: &str = "\u{feff}";

/// No text is larger, in bytes: it is held in memory as a whole.
const LIMIT: u64 = 16 << 30;

/// Bytes of a piece.
const PIECE: u64 = 1 << 20;

/// Reads a whole text file, without a byte order mark.
///
/// # Errors
/// Fails if the file is missing, unreadable, no regular file, empty, larger than 16 GiB, or not UTF-8 (with the offset of the
/// first wrong byte). Pipes and devices are refused because a run reads its text again when it is resumed.
pub fn read_text(path: impl AsRef<Path>) -> Result<String, DataError> {
    let path = path.as_ref();
    let text = text_of(read_bytes(path)?, path)?;
    if text.is_empty() { Err(empty(path).into()) } else { Ok(text) }
}

/// What was read from `path` as text, without a byte order mark.
///
/// # Errors
/// If it is not UTF-8, with the offset of the first wrong byte.
pub fn text_of(bytes: Vec<u8>, path: &Path) -> Result<String, InputError> {
    let text = String::from_utf8(bytes);
    let text = text.map_err(|error| not_utf8(path, 0, error.as_bytes(), error.utf8_error().valid_up_to()));
    text.map(without_mark)
}

/// A line of a file that is not UTF-8, with so many bytes before it: names the first wrong byte.
pub fn line_not_utf8(path: &Path, line: usize, before: usize, error: &FromUtf8Error) -> InputError {
    let within = error.utf8_error().valid_up_to();
    let (offset, byte) = (before + within, error.as_bytes()[within]);
    let problem = format!("is not UTF-8 text: the byte at offset {offset} of the file is {byte:#04x}");
    InputError::at_line(path, line, problem).advise("convert the file to UTF-8")
}

/// A file of which nothing can be read.
pub(crate) fn empty(path: &Path) -> InputError {
    InputError::new(format!("the file `{}` is empty: give a file with text", path.display()))
}

/// A file with a byte that is no text, with so many bytes before those that were read.
fn not_utf8(path: &Path, before: usize, bytes: &[u8], within: usize) -> InputError {
    let (path, offset, byte) = (path.display(), before + within, bytes[within]);
    InputError::new(format!("the file `{path}` is not UTF-8 text: the byte at offset {offset} is {byte:#04x}"))
        .advise("convert the file to UTF-8")
}

/// A text file piece by piece, so that it may be larger than memory: texts of whole characters, which one after the other are the
/// text, without a byte order mark. After an error there is no piece more.
#[derive(Debug)]
pub struct TextPieces {
    path: PathBuf,
    /// None at the end.
    file: Option<File>,
    /// The bytes of a character of which the rest was not read yet.
    rest: Vec<u8>,
    /// Bytes before them.
    offset: usize,
}

impl TextPieces {
    /// Opens a file.
    ///
    /// # Errors
    /// Fails if it is missing, unreadable or no regular file. That it is empty or not UTF-8 is an error of its pieces.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        Ok(Self { file: Some(open_text(path)?), path: path.into(), rest: Vec::new(), offset: 0 })
    }

    fn read(&mut self, mut file: File) -> Result<String, DataError> {
        let mut bytes = std::mem::take(&mut self.rest);
        let read = file.by_ref().take(PIECE).read_to_end(&mut bytes).map_err(StorageError::io("read", &self.path))?;
        let is_last = (read as u64) < PIECE;
        let whole = match std::str::from_utf8(&bytes) {
            Ok(_) => bytes.len(),
            Err(error) if error.error_len().is_none() && !is_last => error.valid_up_to(),
            Err(error) => return Err(not_utf8(&self.path, self.offset, &bytes, error.valid_up_to()).into()),
        };
        self.rest = bytes.split_off(whole);
        self.file = (!is_last).then_some(file);
        let text = String::from_utf8(bytes).unwrap_or_else(|error| unreachable!("it is valid so far: {error}"));
        let text = if self.offset == 0 { without_mark(text) } else { text };
        match text.is_empty() && self.offset == 0 {
            true => Err(empty(&self.path).into()),
            false => {
                self.offset += whole;
                Ok(text)
            }
        }
    }
}

impl Iterator for TextPieces {
    type Item = Result<String, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let file = self.file.take()?;
        Some(self.read(file)).filter(|piece| !piece.as_ref().is_ok_and(String::is_empty))
    }
}

/// A text that was read from a file, without a byte order mark.
pub(crate) fn without_mark(mut text: String) -> String {
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    text
}

/// Opens a file to be read piece by piece.
pub(crate) fn open_text(path: &Path) -> Result<File, DataError> {
    open_file(path).map_err(missing(path))
}

/// The bytes of a file, of which there must be some.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, DataError> {
    let bytes = read_file(path, LIMIT).map_err(missing(path))?;
    if bytes.is_empty() { Err(empty(path).into()) } else { Ok(bytes) }
}

/// A file that is not there is told as such.
fn missing(path: &Path) -> impl FnOnce(StorageError) -> DataError {
    move |error| match error.is_not_found() {
        true => InputError::new(format!("there is no file `{}`: give the path of a text file", path.display())).into(),
        false => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_text_is_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.txt");
        let refused = || read_text(&path).unwrap_err().to_string();
        let name = path.display();
        assert_eq!(refused(), format!("there is no file `{name}`: give the path of a text file"));
        fs::write(&path, "").unwrap();
        assert_eq!(refused(), format!("the file `{name}` is empty: give a file with text"));
        fs::write(&path, b"ab\xc3\xa9\xff!").unwrap();
        let problem = "is not UTF-8 text: the byte at offset 4 is 0xff; convert the file to UTF-8";
        assert_eq!(refused(), format!("the file `{name}` {problem}"));
        fs::write(&path, "ab\u{e9}").unwrap();
        assert_eq!(read_text(&path).unwrap(), "ab\u{e9}");
        fs::write(&path, "\u{feff}ab").unwrap();
        assert_eq!(read_text(&path).unwrap(), "ab");
    }

    #[test]
    fn pieces_are_the_text_and_whole_characters() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.txt");
        let read = || TextPieces::open(&path).unwrap().collect::<Result<Vec<String>, _>>();
        for size in [1, PIECE as usize - 1, PIECE as usize, 2 * PIECE as usize + 1] {
            let text = format!("\u{feff}{}b\u{e9}", "\u{e9}".repeat(size / 2));
            fs::write(&path, &text).unwrap();
            let pieces = read().unwrap();
            assert_eq!(pieces.concat(), text[3..]);
            assert!(pieces.iter().all(|piece| piece.len() as u64 <= PIECE + 1), "{size}");
        }
        fs::write(&path, [&[b'a'; 1 << 20][..], b"bc\xff"].concat()).unwrap();
        let error = || read().unwrap_err().to_string();
        assert!(error().contains("is not UTF-8 text: the byte at offset 1048578 is 0xff"), "{}", error());
        fs::write(&path, "ab\u{e9}".as_bytes().split_last().unwrap().1).unwrap();
        assert!(error().contains("the byte at offset 2 is 0xc3"), "half a character at the end: {}", error());
        fs::write(&path, "\u{feff}").unwrap();
        assert!(error().contains("` is empty: give a file with text"), "{}", error());
        assert!(TextPieces::open(home.path().join("b")).unwrap_err().is_user_error());
    }

    #[test]
    fn folders_and_devices_are_no_texts() {
        let home = tempfile::tempdir().unwrap();
        let error = read_text(home.path()).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("` is a folder, but a regular file"), "{error}");
        #[cfg(unix)]
        {
            let error = read_text("/dev/zero").unwrap_err();
            assert!(error.is_user_error() && error.to_string().starts_with("`/dev/zero` is a device"), "{error}");
        }
    }
}
