//! Where commands read texts from: the command line, or the lines of a file or of the standard input, as they come. What has
//! arrived is answered before more is waited for, so that a terminal, or a program at the other end of a pipe, has its answer
//! line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow, bail, ensure};
use firelight::data::{line_not_utf8, read_text, text_of};
use firelight::storage::TaskError;
use firelight::training::{Communicator, deal_partial};

use super::sheet::{Said, Sheet, Tally};
use crate::failure::{Mistake, is_user_error, problems};
use crate::{output, ranks};

/// Lines that are answered together, at most: enough that texts of similar length stand together.
const LINES: usize = 1024;

/// The same on several ranks, where lines are answered one by one.
const FEW_LINES: usize = 16;

/// Bytes that are read ahead; what lies in them is answered together.
const AHEAD: usize = 1 << 20;

/// The longest line in bytes, so that a file that never ends fills no memory.
const LONGEST: u64 = 1 << 24;

/// What some programs put in front of a UTF-8 file; no part of its text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// What the standard input is called in messages.
pub(super) const STDIN: &str = "the standard input";

/// Texts that are read as they are needed.
pub(super) enum Texts {
    /// Those of the command line.
    Given(Option<Vec<String>>),
    /// The lines of a file or of the standard input.
    Lines(Lines),
}

/// A reader of lines, and how far it is.
pub(super) struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    source: PathBuf,
    /// Whether somebody types the lines at a terminal.
    is_typed: bool,
    /// How many are answered together, at most.
    together: usize,
    lines: usize,
    bytes: usize,
    /// What was wrong with the line behind those that were returned last.
    failure: Option<Error>,
}

impl Texts {
    /// The text, or the lines of the file, or those of the standard input.
    pub(super) fn new(text: Option<&str>, file: Option<&Path>) -> Result<Self> {
        Ok(match (text, file) {
            (Some(text), _) => Self::Given(Some(vec![text.to_string()])),
            (None, Some(path)) => Self::Lines(Lines::of_file(path)?),
            (None, None) => {
                ranks::refuse_unshared("the standard input is read by one process (--file is shared)")?;
                Self::Lines(Lines::of_standard_input())
            }
        })
    }

    /// Whether somebody types the texts at a terminal, where nothing else may stand meanwhile.
    pub(super) fn are_typed(&self) -> bool {
        matches!(self, Self::Lines(lines) if lines.is_typed)
    }

    /// Prints what `answer` says of the texts, while they are read; it gets some of them, and how many others stand before these.
    pub(super) fn answer(&mut self, answer: impl Fn(usize, &[String]) -> Result<String>) -> Result<()> {
        self.answer_on(|before, some, sheet| sheet.print(&answer(before, some)?))?;
        Ok(())
    }

    /// As [`answer`](Self::answer), which writes on a sheet. Several ranks share the work, and the first one has the tally of all.
    pub(super) fn answer_on(
        &mut self,
        mut answer: impl FnMut(usize, &[String], &mut Sheet) -> Result<()>,
    ) -> Result<Tally> {
        if let Some(member) = ranks::several() {
            return ranks::part(self.share(&*member.communicator(), answer));
        }
        let (mut sheet, mut lines) = (Sheet::default(), 0);
        while let Some((before, some)) = self.next_lines()? {
            answer(before, &some, &mut sheet)?;
            lines += some.len();
        }
        Ok(sheet.tally(lines))
    }

    /// Answers the blocks of lines that are this rank's, and shows those of all on the first one: of a block that failed, what was written before.
    fn share(
        &mut self,
        ranks: &dyn Communicator,
        mut answer: impl FnMut(usize, &[String], &mut Sheet) -> Result<()>,
    ) -> Result<Tally> {
        let mut tally = Tally::default();
        let next = || self.next_lines().map_err(to_task_error);
        let answer = |before: usize, some: &[String]| {
            let mut sheet = Sheet::keeping();
            let done = answer(before, some, &mut sheet).map_err(to_task_error);
            (Some(sheet.said(some.len())), done)
        };
        deal_partial(ranks, next, answer, |said: Said| tally.show(said))?;
        Ok(tally)
    }

    /// The same, of which every line is answered by itself: ranks take turns after fewer of them.
    pub(super) fn one_by_one(mut self) -> Self {
        if let (Self::Lines(lines), Some(_)) = (&mut self, ranks::several()) {
            lines.together = FEW_LINES;
        }
        self
    }

    /// The next texts, behind how many others; none at the end.
    pub(super) fn next_lines(&mut self) -> Result<Option<(usize, Vec<String>)>> {
        match self {
            Self::Given(texts) => Ok(texts.take().map(|texts| (0, texts))),
            Self::Lines(lines) => lines.next_lines(),
        }
    }
}

/// A file that fills what is to be read into, also where the system hands over less at a time: where blocks of lines end is the same on every
/// rank.
struct Filling<R>(R);

impl<R: Read> Read for Filling<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl Lines {
    fn new(reader: Box<dyn Read + Send>, source: PathBuf, is_typed: bool) -> Self {
        let reader = BufReader::with_capacity(AHEAD, reader);
        Self { reader, source, is_typed, together: LINES, lines: 0, bytes: 0, failure: None }
    }

    /// Those of the standard input.
    pub(super) fn of_standard_input() -> Self {
        Self::new(Box::new(io::stdin()), STDIN.into(), io::stdin().is_terminal())
    }

    #[cfg(test)]
    pub(super) fn of_text(text: &'static str) -> Self {
        Self::new(Box::new(text.as_bytes()), STDIN.into(), false)
    }

    fn of_file(path: &Path) -> Result<Self> {
        let unreadable = |cause: String| Mistake(format!("cannot read `{}`: {cause}", path.display()));
        ensure!(!path.is_dir(), unreadable("it is a folder; give a file with one text per line".into()));
        if path.exists() && !path.is_file() {
            ranks::refuse_unshared(&format!("`{}` is a pipe or a device, which can be read once", path.display()))?;
        }
        let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let reader: Box<dyn Read + Send> =
            if ranks::several().is_some() { Box::new(Filling(file)) } else { Box::new(file) };
        Ok(Self::new(reader, path.into(), false))
    }

    /// One line, which may be waited for, and those that have arrived with it. Those before a line that cannot be read come first.
    fn next_lines(&mut self) -> Result<Option<(usize, Vec<String>)>> {
        if self.is_typed && self.lines == 0 {
            output::note(format_args!("reading {STDIN}: type one text per line, and Ctrl-D to end"));
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (before, mut found) = (self.lines, Vec::new());
        while found.is_empty() || (found.len() < self.together && self.reader.buffer().contains(&b'\n')) {
            match self.next_line() {
                Ok(Some(line)) => found.push(line),
                Err(error) if found.is_empty() => return Err(error),
                end => {
                    self.failure = end.err();
                    break;
                }
            }
        }
        Ok((!found.is_empty()).then_some((before, found)))
    }

    /// A line without its end, the first without a byte order mark; none behind the last.
    pub(super) fn next_line(&mut self) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(LONGEST + 1).read_until(b'\n', &mut bytes);
        if read.map_err(|error| anyhow!("cannot read `{}`: {error}", self.source.display()))? == 0 {
            return Ok(None);
        }
        let (before, length) = (self.bytes, bytes.len());
        (self.lines, self.bytes) = (self.lines + 1, before + length);
        if length as u64 > LONGEST {
            let (line, path, mebibytes) = (self.lines, self.source.display(), LONGEST >> 20);
            bail!(Mistake(format!(
                "line {line} of `{path}` is longer than {mebibytes} MiB: give a file with one text per line"
            )));
        }
        let line = String::from_utf8(bytes);
        let line = line.map_err(|error| line_not_utf8(&self.source, self.lines, before, &error))?;
        Ok(Some(bare(&line, self.lines == 1).to_string()))
    }
}

/// An error as other ranks are told of it.
fn to_task_error(error: Error) -> TaskError {
    let problems = problems(&error);
    TaskError::new(is_user_error(&error), problems.join("; ")).listing(problems)
}

/// The whole standard input as one text, without the line feed that it ends with. On a terminal a note says that `what`
/// is read.
pub(super) fn standard_input(what: &str) -> Result<String> {
    if io::stdin().is_terminal() {
        output::note(format_args!("reading {what} from {STDIN}: end it with Ctrl-D on a line of its own"));
    }
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| anyhow!("cannot read {STDIN}: {error}"))?;
    let too_long = || Mistake(format!("{STDIN} is longer than {} MiB: give a shorter text", LONGEST >> 20));
    ensure!(bytes.len() as u64 <= LONGEST, too_long());
    Ok(bare(&text_of(bytes, Path::new(STDIN))?, true).to_string())
}

/// A whole file as one text, without the line feed that it ends with.
pub(super) fn whole_file(path: &Path) -> Result<String> {
    Ok(bare(&read_text(path)?, true).to_string())
}

/// A line without its end, and without the byte order mark that the first one may have.
fn bare(line: &str, is_first: bool) -> &str {
    let line = if is_first { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight::training::{Threads, ThreadsOptions};
    use std::collections::VecDeque;
    use std::thread;

    /// A pipe that hands over a piece at a time.
    struct Pieces(VecDeque<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let piece = self.0.pop_front().unwrap_or_default();
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    fn lines(pieces: &[&'static [u8]]) -> Lines {
        Lines::new(Box::new(Pieces(pieces.iter().copied().collect())), "pipe".into(), false)
    }

    #[test]
    fn what_has_arrived_is_answered_before_more_is_read() {
        let mut lines = lines(&[b"\xef\xbb\xbfa\r\nb\n", b"c", b"d\n", b"\ne"]);
        let mut next = || lines.next_lines().unwrap();
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(next(), Some((0, texts(&["a", "b"]))));
        assert_eq!(next(), Some((2, texts(&["cd"]))));
        assert_eq!(next(), Some((3, texts(&[""]))));
        assert_eq!(next(), Some((4, texts(&["e"]))));
        assert_eq!(next(), None);
    }

    #[test]
    fn blocks_do_not_depend_on_how_a_file_is_handed_over() {
        let pieces = Pieces([&b"a\nb"[..], b"\n", b"c"].into_iter().collect());
        let mut lines = Lines::new(Box::new(Filling(pieces)), "file".into(), false);
        let whole = ["a", "b"].map(str::to_string).to_vec();
        assert_eq!(lines.next_lines().unwrap(), Some((0, whole)));
        assert_eq!(lines.next_lines().unwrap(), Some((2, vec!["c".to_string()])));
        assert_eq!(lines.next_lines().unwrap(), None);
    }

    /// How many lines each of several ranks counts.
    fn shared(world: usize) -> Vec<Tally> {
        let ranks = Threads::ranks(world, ThreadsOptions::default());
        thread::scope(|scope| {
            let share = |rank: Threads| {
                let mut texts = Texts::Lines(lines(&[b"a\nb\nc\n", b"d\ne\n", b"f"]));
                texts.share(&rank, |_, _, _| Ok(()))
            };
            let ranks: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || share(rank).unwrap())).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn the_first_rank_counts_the_lines_of_all() {
        for world in [1, 2, 3] {
            let tallies = shared(world);
            assert_eq!(tallies[0], Tally { lines: 6, failed: 0 });
            assert!(tallies[1..].iter().all(|tally| *tally == Tally::default()));
        }
    }

    #[test]
    fn an_error_keeps_its_problems_and_whose_it_is() {
        let error = to_task_error(Error::new(TaskError::new(true, "both").listing(vec!["one".into(), "two".into()])));
        assert!(error.is_user_error() && error.problems() == ["one", "two"], "{error}");
        assert!(!to_task_error(Error::msg("the disk is full")).is_user_error());
    }

    #[test]
    fn a_byte_that_is_no_text_is_named_with_its_file_and_line() {
        let mut lines = lines(&[b"ab\nc\xff\n"]);
        assert_eq!(lines.next_lines().unwrap(), Some((0, vec!["ab".to_string()])));
        let message = lines.next_lines().unwrap_err().to_string();
        assert!(message.starts_with("line 2 of `pipe` is not UTF-8 text: the byte at offset 4 "), "{message}");
    }

    #[test]
    fn a_line_that_never_ends_is_given_up() {
        let mut lines = Lines::new(Box::new(io::repeat(b'a')), "endless".into(), false);
        let message = lines.next_lines().unwrap_err().to_string();
        assert!(message.starts_with("line 1 of `endless` is longer than 16 MiB"), "{message}");
    }
}
