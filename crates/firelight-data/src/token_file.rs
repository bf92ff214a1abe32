//! Token ids on disk, read through the page cache, so that a corpus may be larger than memory. Written once by whoever
//! tokenizes a corpus, read by [`Tokens`](crate::Tokens).
//!
//! A corpus that is encoded goes through a [`TokenWriter`] first, into a file without a name.
//!
//! The format is little-endian: 8 bytes magic, version (u32), bytes per token (u32, 2 or 4), size of the vocabulary (u64),
//! the tokens, and their count (u64). The count comes last so that a file can be written from a stream, and so that a
//! file cut short gives itself away.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use firelight_storage::{InputError, StorageError, open_file, write_atomic_with};
use memmap2::Mmap;

use crate::DataError;

const MAGIC: &[u8; 8] = b"FIRETOKS";
const VERSION: u32 = 2;
const HEADER: usize = 24;
const TRAILER: usize = 8;

/// Tokens that are checked together.
const CHECKED: usize = 1 << 16;

/// A memory-mapped file of token ids.
#[derive(Debug)]
pub struct TokenFile {
    map: Mmap,
    layout: Layout,
}

/// What the header and the last bytes say.
#[derive(Debug)]
struct Layout {
    /// Bytes per token.
    width: usize,
    vocab_size: usize,
    /// Number of tokens.
    len: usize,
}

impl TokenFile {
    /// Writes token ids below `vocab_size` to `path`, replacing a file that is there, and opens it.
    ///
    /// A token takes 2 bytes if `vocab_size` is at most 65,536, otherwise 4.
    ///
    /// # Errors
    /// Fails if an id is not below `vocab_size` or the file cannot be written; an older file is then untouched.
    pub fn create(
        path: impl AsRef<Path>,
        vocab_size: usize,
        ids: impl IntoIterator<Item = u32>,
    ) -> Result<Self, DataError> {
        let path = path.as_ref();
        write_atomic_with(path, |writer| {
            let mut ids_out = Ids::begin(writer, vocab_size)?;
            ids.into_iter().try_for_each(|id| ids_out.push(id))?;
            ids_out.end().map(drop)
        })?;
        Self::open(path)
    }

    /// Opens a token file, after a look at every id. The file must not change while it is open.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is of another kind or version, is cut short, or holds an id outside of its
    /// vocabulary, for which no model has a row.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        Self::of(&open_file(&path)?, path.as_ref())
    }

    fn of(file: &File, path: &Path) -> Result<Self, DataError> {
        // SAFETY: the map is only read. Another program that cuts the file short meanwhile could end this one; the
        // documentation asks callers not to, `create` never changes a file in place, and nobody else knows a file without a name.
        let map = unsafe { Mmap::map(file) }.map_err(StorageError::io("read", path))?;
        let file = Self { layout: layout(&map).map_err(|reason| broken(path, &reason))?, map };
        match file.unknown() {
            Some((place, id)) => {
                let reason = format!("token {place} is {id}, outside of its vocabulary of {}", file.vocab_size());
                Err(broken(path, &reason).into())
            }
            None => Ok(file),
        }
    }

    /// The first id outside of the vocabulary, with its place.
    fn unknown(&self) -> Option<(usize, u32)> {
        let unknown = |start: usize| {
            let ids = self.get(start..self.len().min(start + CHECKED));
            let place = ids.iter().position(|&id| id as usize >= self.vocab_size())?;
            Some((start + place, ids[place]))
        };
        (0..self.len()).step_by(CHECKED).find_map(unknown)
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.layout.len
    }

    /// Size of the vocabulary that the ids are taken from: each is below it. A file belongs to one tokenizer only.
    pub fn vocab_size(&self) -> usize {
        self.layout.vocab_size
    }

    /// Whether the file holds no token.
    pub fn is_empty(&self) -> bool {
        self.layout.len == 0
    }

    /// Copies the ids of a range out.
    ///
    /// # Panics
    /// Panics if the range ends behind the last token, as slices do.
    pub fn get(&self, range: Range<usize>) -> Vec<u32> {
        let Layout { width, len, .. } = self.layout;
        assert!(range.end <= len, "range {range:?} ends behind the last of {len} tokens");
        let bytes = &self.map[HEADER + range.start * width..HEADER + range.end * width];
        match width {
            2 => bytes.as_chunks().0.iter().map(|&pair| u16::from_le_bytes(pair).into()).collect(),
            _ => bytes.as_chunks().0.iter().map(|&four| u32::from_le_bytes(four)).collect(),
        }
    }
}

/// Collects token ids in a file without a name, which is gone with the last who reads it: so what is encoded may be larger than
/// memory. It lies in the system's folder for temporary files.
#[derive(Debug)]
pub struct TokenWriter {
    ids: Ids<BufWriter<File>>,
    folder: PathBuf,
}

impl TokenWriter {
    /// Begins a file of ids below `vocab_size`.
    ///
    /// # Errors
    /// Fails if there can be no such file.
    pub fn new(vocab_size: usize) -> Result<Self, DataError> {
        let folder = std::env::temp_dir();
        let begin = || Ids::begin(BufWriter::new(tempfile::tempfile_in(&folder)?), vocab_size);
        let ids = begin().map_err(StorageError::io("make a temporary file in", &folder))?;
        Ok(Self { ids, folder })
    }

    /// Adds ids.
    ///
    /// # Errors
    /// Fails if an id is outside of the vocabulary or the disk is full.
    pub fn push(&mut self, ids: &[u32]) -> Result<(), DataError> {
        let pushed = ids.iter().try_for_each(|&id| self.ids.push(id));
        Ok(pushed.map_err(StorageError::io("write a temporary file in", &self.folder))?)
    }

    /// How many there are so far.
    pub fn len(&self) -> usize {
        self.ids.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads what was written.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn finish(self) -> Result<TokenFile, DataError> {
        let file = self.ids.end().and_then(|writer| Ok(writer.into_inner()?));
        TokenFile::of(&file.map_err(StorageError::io("write a temporary file in", &self.folder))?, &self.folder)
    }
}

/// Ids on their way into a file.
#[derive(Debug)]
struct Ids<W> {
    writer: W,
    vocab_size: usize,
    width: usize,
    count: usize,
}

impl<W: Write> Ids<W> {
    /// Writes the header.
    fn begin(mut writer: W, vocab_size: usize) -> io::Result<Self> {
        let width = if vocab_size <= 1 << 16 { 2 } else { 4 };
        writer.write_all(MAGIC)?;
        writer.write_all(&VERSION.to_le_bytes())?;
        writer.write_all(&(width as u32).to_le_bytes())?;
        writer.write_all(&(vocab_size as u64).to_le_bytes())?;
        Ok(Self { writer, vocab_size, width, count: 0 })
    }

    fn push(&mut self, id: u32) -> io::Result<()> {
        if id as usize >= self.vocab_size {
            let reason = format!("token {} is {id}, outside the vocabulary of {}", self.count, self.vocab_size);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        self.count += 1;
        self.writer.write_all(&id.to_le_bytes()[..self.width])
    }

    /// Writes the count.
    fn end(mut self) -> io::Result<W> {
        self.writer.write_all(&(self.count as u64).to_le_bytes())?;
        Ok(self.writer)
    }
}

/// Reads header and count, and makes sure that the whole file is there.
fn layout(bytes: &[u8]) -> Result<Layout, String> {
    if bytes.len() < HEADER + TRAILER || &bytes[..8] != MAGIC {
        return Err(format!("expected at least {} bytes that begin with FIRETOKS", HEADER + TRAILER));
    }
    let version = number(&bytes[8..12]);
    if version != u64::from(VERSION) {
        return Err(format!("it has version {version}, but this program reads version {VERSION}"));
    }
    let (width, vocab_size) = (number(&bytes[12..16]), number(&bytes[16..24]));
    if width != 2 && width != 4 {
        return Err(format!("expected 2 or 4 bytes per token, found {width}"));
    }
    let (body, trailer) = bytes[HEADER..].split_at(bytes.len() - HEADER - TRAILER);
    let count = number(trailer);
    if count.checked_mul(width) != Some(body.len() as u64) {
        return Err(format!(
            "its last bytes promise {count} tokens of {width} bytes, but {} bytes are there",
            body.len()
        ));
    }
    Ok(Layout { width: width as usize, vocab_size: vocab_size as usize, len: count as usize })
}

/// The little-endian number of at most 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// A file that is not as it was written.
pub(crate) fn broken(path: &Path, reason: &str) -> InputError {
    let problem = format!("is no whole token file: {reason}");
    InputError::in_file(path, problem).advise("it was cut short or is of another kind, so write it again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn both_widths_round_trip() {
        let home = tempfile::tempdir().unwrap();
        for (vocab_size, ids, size) in [(65_536, vec![0, 65_535, 7], 38), (65_537, vec![65_536, 1, 2], 44)] {
            let path = home.path().join(vocab_size.to_string());
            let file = TokenFile::create(&path, vocab_size, ids.clone()).unwrap();
            assert_eq!((file.len(), file.get(0..3), file.get(1..2)), (3, ids.clone(), vec![ids[1]]));
            assert_eq!(fs::metadata(&path).unwrap().len(), size);
            assert_eq!(TokenFile::open(&path).unwrap().vocab_size(), vocab_size);
        }
        assert!(TokenFile::create(home.path().join("none"), 9, []).unwrap().is_empty());
    }

    #[test]
    fn a_file_without_a_name_holds_what_was_pushed() {
        for vocab_size in [65_536, 65_537] {
            let mut writer = TokenWriter::new(vocab_size).unwrap();
            assert!(writer.is_empty());
            writer.push(&[7, 65_535]).unwrap();
            writer.push(&[]).unwrap();
            writer.push(&[1]).unwrap();
            assert_eq!(writer.len(), 3);
            let file = writer.finish().unwrap();
            assert_eq!((file.vocab_size(), file.get(0..3)), (vocab_size, vec![7, 65_535, 1]));
        }
        let error = TokenWriter::new(10).unwrap().push(&[3, 10]).unwrap_err().to_string();
        assert!(error.ends_with("token 1 is 10, outside the vocabulary of 10"), "{error}");
        assert!(TokenWriter::new(10).unwrap().finish().unwrap().is_empty());
    }

    #[test]
    fn an_id_outside_the_vocabulary_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.tokens");
        let error = TokenFile::create(&path, 10, [3, 10]).unwrap_err();
        assert!(error.to_string().ends_with("token 1 is 10, outside the vocabulary of 10"), "{error}");
        assert!(error.is_user_error() && !path.exists());
    }

    #[test]
    fn truncated_and_foreign_files_are_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.tokens");
        TokenFile::create(&path, 100, 0..50).unwrap();
        let bytes = fs::read(&path).unwrap();
        let mut newer = bytes.clone();
        newer[8] = 9;
        for broken in [&bytes[..0], &bytes[..20], &bytes[..100], &bytes[..bytes.len() - 2], &newer, &[b'x'; 400]] {
            fs::write(&path, broken).unwrap();
            let error = TokenFile::open(&path).unwrap_err();
            assert!(error.to_string().contains("is no whole token file") && error.is_user_error(), "{error}");
            assert!(!error.to_string().contains('\n'));
        }
        assert!(TokenFile::open(home.path().join("none")).unwrap_err().is_user_error());
        assert!(TokenFile::open(home.path()).unwrap_err().to_string().contains("is a folder"));
        let mut changed = bytes.clone();
        changed[HEADER + 2 * 49 + 1] = 1;
        fs::write(&path, changed).unwrap();
        let error = TokenFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("token 49 is 305, outside of its vocabulary of 100"), "{error}");

        let last = CHECKED + 49; // ids are looked at in parts
        TokenFile::create(&path, 100, (0..=last).map(|place| place as u32 % 100)).unwrap();
        let mut changed = fs::read(&path).unwrap();
        changed[HEADER + 2 * last + 1] = 1;
        fs::write(&path, changed).unwrap();
        let error = TokenFile::open(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("token {last} is {}, outside", last % 100 + 256)), "{error}");
    }
}
