//! Translations that several ranks share, in the batches of one process.

use firelight_storage::TaskError;
use firelight_training::{Communicator, deal_to_all};

use super::{TranslateOptions, Translator, texts};

impl Translator {
    /// The best translation of every line, on every rank: ranks search the batches in turn that one process searches, so that it finds the same.
    /// Each rank calls it with all lines.
    pub(crate) fn translate_on(
        &self,
        lines: &[String],
        options: &TranslateOptions,
        ranks: &dyn Communicator,
    ) -> Result<Vec<String>, TaskError> {
        let batches = self.batches(lines, options)?;
        let lines_of = |batch: &Vec<usize>| batch.iter().map(|&line| lines[line].clone()).collect::<Vec<String>>();
        let found =
            deal_to_all::<Vec<String>, TaskError>(ranks, batches.iter().map(lines_of).collect(), |_, lines| {
                Ok(texts(self.translate_with(lines, options, |_| ())?))
            })?;
        let mut translations = vec![String::new(); lines.len()]; // An empty line is in no batch.
        for (line, text) in batches.into_iter().flatten().zip(found.into_iter().flatten()) {
            translations[line] = text;
        }
        Ok(translations)
    }

    /// The numbers of the lines that are searched together.
    fn batches(&self, lines: &[String], options: &TranslateOptions) -> Result<Vec<Vec<usize>>, TaskError> {
        self.beams(options)?;
        let read = self.read(0, lines, options).into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(self.together(read.iter().map(|parts| parts.iter().map(Vec::len).sum::<usize>()), options))
    }
}
