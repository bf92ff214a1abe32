//! What a command says of lines: at once where it is alone; and of several ranks the first one says it for all.

use std::fmt::Display;

use anyhow::Result;

use crate::output;

/// Where answers are written.
#[derive(Default)]
pub(super) struct Sheet {
    /// What is kept for later, where answers are not written at once.
    kept: Option<Kept>,
    failed: usize,
}

/// What a rank has to say of some lines: the results, the remarks, how many lines there are and how many of them failed.
pub(super) type Said = (String, Vec<String>, usize, usize);

#[derive(Default)]
struct Kept {
    results: String,
    remarks: Vec<String>,
}

/// How many lines were answered, and how many of them could not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) lines: usize,
    pub(super) failed: usize,
}

impl Sheet {
    /// One that keeps what is written.
    pub(super) fn keeping() -> Self {
        Self { kept: Some(Kept::default()), failed: 0 }
    }

    /// Writes a result.
    ///
    /// # Errors
    /// The pipe is closed or the disk is full.
    pub(super) fn print(&mut self, result: &str) -> Result<()> {
        match &mut self.kept {
            Some(kept) => kept.results.push_str(result),
            None => output::print(result)?,
        }
        Ok(())
    }

    /// Writes what is wrong with a line, which counts as one that failed.
    pub(super) fn fail(&mut self, error: &impl Display) {
        self.failed += 1;
        match &mut self.kept {
            Some(kept) => kept.remarks.push(format!("error: {error}")),
            None => output::note(format_args!("error: {error}")),
        }
    }

    /// What was written of so many lines.
    pub(super) fn said(self, lines: usize) -> Said {
        let Kept { results, remarks } = self.kept.unwrap_or_default();
        (results, remarks, lines, self.failed)
    }

    /// How many lines were answered.
    pub(super) fn tally(&self, lines: usize) -> Tally {
        Tally { lines, failed: self.failed }
    }
}

impl Tally {
    /// Writes what a rank has to say.
    ///
    /// # Errors
    /// The pipe is closed or the disk is full.
    pub(super) fn show(&mut self, (results, remarks, lines, failed): Said) -> Result<()> {
        remarks.iter().for_each(|remark| output::note(format_args!("{remark}")));
        self.lines += lines;
        self.failed += failed;
        Ok(output::print(&results)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_said_later() {
        let mut sheet = Sheet::keeping();
        sheet.print("a\n").unwrap();
        sheet.fail(&"line 2: no");
        sheet.print("\n").unwrap();
        assert_eq!(sheet.tally(2), Tally { lines: 2, failed: 1 });
        let said = sheet.said(2);
        assert_eq!(said, ("a\n\n".into(), vec!["error: line 2: no".into()], 2, 1));
    }

    #[test]
    fn what_ranks_say_is_counted_together() {
        let mut tally = Tally::default();
        for (lines, failed) in [(3, 1), (2, 0)] {
            tally.show((String::new(), Vec::new(), lines, failed)).unwrap();
        }
        assert_eq!(tally, Tally { lines: 5, failed: 1 });
    }
}
