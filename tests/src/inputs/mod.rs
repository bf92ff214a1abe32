//! Every reader of what a user, a file or the network can hand over, and a generator of damaged inputs for each.
//!
//! A reader must answer whatever bytes it gets with a value or with an error that names its file in a few short lines: no
//! panic, no endless loop, no memory or work out of proportion. The [`Harness`] judges the answer. `tests/inputs/main.rs` tries
//! inputs that are mutated from valid ones under fixed seeds, and those that were once found to break a reader, with a limit of
//! memory, of all that is asked of the allocator, and of a minute; `fuzz` looks for new ones, with limits of its own.
//!
//! ```
//! use firelight_tests::inputs::{Harness, readers};
//!
//! let tsv = readers().into_iter().find(|reader| reader.name == "labelled-tsv").expect("a reader of TSV");
//! let home = tempfile::tempdir().unwrap();
//! let harness = Harness::new(tsv, home.path()).unwrap();
//! assert_eq!(harness.check(b"a text\tgood\nanother\tbad\n"), Ok(true));
//! assert_eq!(harness.check(b"no label\n"), Ok(false)); // an error that names the file
//! ```

mod files;
mod images;
mod mutation;
mod published;
mod recipes;
mod run;

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

pub use mutation::mutated;

/// The longest problem of an error, in bytes: one lists all keys of `[model]`.
const LONGEST_LINE: usize = 900;

/// The most lines of an error: a recipe lists every mistake.
const MOST_LINES: usize = 60;

/// Words that no user should have to know.
const RUST: &str = "untagged enum";

/// One reader: what it is given, and how it is called.
#[derive(Debug, Clone)]
pub struct Reader {
    /// The name of its target under `fuzz` and of its folder of findings.
    pub name: &'static str,
    /// The file that is damaged, within the folder that `valid` fills.
    file: &'static str,
    /// Fills a folder with valid files and returns valid contents of `file`, the first of which lies there; none is what lies
    /// there alone.
    valid: fn(&Path) -> Vec<Vec<u8>>,
    /// Reads the folder; an error is the text that a user sees.
    read: fn(&Path) -> Result<(), String>,
    /// What an error must name, the file above all.
    names: Names,
}

/// What an error must name.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Names {
    /// The file that is damaged.
    File,
    /// Whatever does not fit: a file may be read without an error, and not belong to those beside it.
    Anything,
}

/// All readers, by kind.
pub fn readers() -> Vec<Reader> {
    [files::readers(), images::readers(), published::readers(), recipes::readers(), run::readers()].concat()
}

/// A folder in which a reader is tried.
#[derive(Debug)]
pub struct Harness {
    reader: Reader,
    home: PathBuf,
    /// Valid contents of the reader's file.
    pub valid: Vec<Vec<u8>>,
}

impl Harness {
    /// Fills `home` with the valid files of the reader.
    ///
    /// # Errors
    /// What the reader does wrong with a valid input: it refuses one.
    ///
    /// # Panics
    /// Panics if the folder cannot be written.
    pub fn new(reader: Reader, home: &Path) -> Result<Self, String> {
        let mut valid = (reader.valid)(home);
        if valid.is_empty() {
            valid.push(fs::read(home.join(reader.file)).expect("the valid file"));
        }
        let harness = Self { reader, home: home.into(), valid };
        for (number, bytes) in harness.valid.iter().enumerate() {
            let answer = harness.answer(bytes);
            if answer != Ok(Ok(())) {
                return Err(format!("valid input {number} is refused: {answer:?}"));
            }
        }
        Ok(harness)
    }

    /// Whether the reader accepts these bytes.
    ///
    /// While it reads, they lie in the folder under the name of its file: what aborts the process can be found there.
    ///
    /// # Errors
    /// What the reader did wrong: it panicked, or its error names no file or is too long.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn check(&self, bytes: &[u8]) -> Result<bool, String> {
        match self.answer(bytes) {
            Ok(Ok(())) => Ok(true),
            Ok(Err(text)) => self.judge(&text, bytes).map(|()| false),
            Err(panic) => Err(format!("panicked: {panic}")),
        }
    }

    /// What the reader says to these bytes, or the text of its panic.
    fn answer(&self, bytes: &[u8]) -> Result<Result<(), String>, String> {
        self.lay(bytes);
        let answer = panic::catch_unwind(AssertUnwindSafe(|| (self.reader.read)(&self.home)));
        self.lay(&self.valid[0]);
        answer.map_err(|payload| panic_text(&*payload))
    }

    /// Puts a new file in the place of the old one: some file systems write to the disk at once where a file is overwritten, which
    /// takes a hundred times as long.
    fn lay(&self, bytes: &[u8]) {
        let path = self.home.join(self.reader.file);
        drop(fs::remove_file(&path)); // there may be none
        fs::write(&path, bytes).expect("a file in a scratch folder");
    }

    fn judge(&self, text: &str, bytes: &[u8]) -> Result<(), String> {
        let name = self.reader.file.rsplit('/').next().unwrap_or_default();
        // A recipe's problems stand in one line, of which the command makes a line for each.
        let longest = text.lines().flat_map(|line| line.split("; `")).map(str::len).max().unwrap_or_default();
        match () {
            () if self.reader.names == Names::File && !text.contains(name) => {
                Err(format!("the error does not name {name}: {text}"))
            }
            () if longest > LONGEST_LINE || text.lines().count() > MOST_LINES => Err(format!(
                "the error has {} lines, the longest problem of {longest} bytes: {text}",
                text.lines().count()
            )),
            // Unless it quotes the input.
            () if text.contains(RUST) && !bytes.windows(RUST.len()).any(|part| part == RUST.as_bytes()) => {
                Err(format!("the error speaks of Rust's types: {text}"))
            }
            () => Ok(()),
        }
    }
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_else(|| "no text".into())
}

/// Writes `contents`, of which the first is the file that lies there, and returns them as bytes.
fn written<T: AsRef<[u8]>>(home: &Path, file: &str, contents: &[T]) -> Vec<Vec<u8>> {
    fs::write(home.join(file), &contents[0]).expect("a file in a scratch folder");
    contents.iter().map(|content| content.as_ref().to_vec()).collect()
}

/// The text of an error, with those below it, as the command prints it.
fn text_of<T, E: std::error::Error>(result: Result<T, E>) -> Result<(), String> {
    result.map(|_| ()).map_err(|error| {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(below) = source {
            let line = below.to_string();
            if !text.contains(&line) {
                text = format!("{text}: {line}");
            }
            source = below.source();
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Accepts `good`, refuses most else as it should be done, and is at fault with the rest.
    fn read(home: &Path) -> Result<(), String> {
        match &*fs::read_to_string(home.join("one.txt")).expect("the file") {
            "good" => Ok(()),
            "panic" => panic!("no way out"),
            "unnamed" => Err("it is wrong".into()),
            "long" => Err(format!("`one.txt` is wrong: {}", "x".repeat(LONGEST_LINE))),
            "lines" => Err("`one.txt` is wrong\n".repeat(MOST_LINES + 1)),
            "types" | RUST => Err("`one.txt`: data did not match any variant of untagged enum Any".into()),
            _ => Err("`one.txt` is wrong".into()),
        }
    }

    fn harness(names: Names, valid: fn(&Path) -> Vec<Vec<u8>>) -> (TempDir, Result<Harness, String>) {
        let home = tempfile::tempdir().expect("a scratch folder");
        let harness = Harness::new(Reader { name: "one", file: "one.txt", valid, read, names }, home.path());
        (home, harness)
    }

    #[test]
    fn whatever_a_reader_does_wrong_is_reported() {
        let (home, harness) = harness(Names::File, |home| written(home, "one.txt", &["good"]));
        let harness = harness.expect("a valid input");
        assert_eq!((harness.check(b"good"), harness.check(b"bad")), (Ok(true), Ok(false)));
        assert_eq!(harness.check(RUST.as_bytes()), Ok(false), "the input itself is quoted");
        for (text, expected) in [
            ("panic", "panicked: no way out"),
            ("unnamed", "does not name one.txt: it is wrong"),
            ("long", "has 1 lines, the longest problem of 920 bytes"),
            ("lines", "has 61 lines"),
            ("types", "speaks of Rust's types"),
        ] {
            let problem = harness.check(text.as_bytes()).expect_err(text);
            assert!(problem.contains(expected), "{problem}");
        }
        assert_eq!(fs::read_to_string(home.path().join("one.txt")).expect("the file"), "good");
    }

    #[test]
    fn an_error_about_the_whole_may_name_no_file() {
        let (_home, harness) = harness(Names::Anything, |home| written(home, "one.txt", &["good"]));
        assert_eq!(harness.expect("a valid input").check(b"unnamed"), Ok(false));
    }

    #[test]
    fn a_valid_input_that_is_refused_is_reported() {
        for wrong in ["bad", "panic"] {
            let valid: fn(&Path) -> Vec<Vec<u8>> = match wrong {
                "bad" => |home| written(home, "one.txt", &["good", "bad"]),
                _ => |home| written(home, "one.txt", &["good", "panic"]),
            };
            let problem = harness(Names::File, valid).1.expect_err("a refused input");
            assert!(problem.starts_with("valid input 1 is refused: "), "{problem}");
        }
    }
}
