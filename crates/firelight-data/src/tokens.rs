//! A run of token ids, wherever they lie: in memory or in a mapped file. Cheap to clone and to cut, so that the training
//! and the validation split, and every dataset over them, share one copy.

use std::ops::Range;
use std::sync::Arc;

use firelight_storage::InputError;

use crate::{DataError, TokenFile};

/// A shared, read-only run of token ids.
#[derive(Clone, Debug)]
pub struct Tokens {
    source: Source,
    range: Range<usize>,
}

/// Where the ids lie.
#[derive(Clone, Debug)]
enum Source {
    Memory(Arc<[u32]>),
    File(Arc<TokenFile>),
}

impl From<Vec<u32>> for Tokens {
    fn from(ids: Vec<u32>) -> Self {
        Self { range: 0..ids.len(), source: Source::Memory(ids.into()) }
    }
}

impl From<TokenFile> for Tokens {
    fn from(file: TokenFile) -> Self {
        Self { range: 0..file.len(), source: Source::File(Arc::new(file)) }
    }
}

impl Tokens {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Copies the ids of a range out.
    ///
    /// # Panics
    /// Panics if the range ends behind the last token, as slices do.
    pub fn get(&self, range: Range<usize>) -> Vec<u32> {
        let range = self.absolute(range);
        match &self.source {
            Source::Memory(ids) => ids[range].to_vec(),
            Source::File(file) => file.get(range),
        }
    }

    /// The tokens of a range, without copying.
    ///
    /// # Panics
    /// Panics if the range ends behind the last token, as slices do.
    pub fn slice(&self, range: Range<usize>) -> Self {
        Self { source: self.source.clone(), range: self.absolute(range) }
    }

    /// Splits into the training split, which comes first, and the validation split.
    ///
    /// The training split has the first `floor((1 - validation_fraction) * len)` tokens, as in nanoGPT.
    ///
    /// # Errors
    /// Fails if the fraction is not in `[0, 1)`.
    pub fn split(&self, validation_fraction: f64) -> Result<(Self, Self), DataError> {
        if !(0.0..1.0).contains(&validation_fraction) {
            let expected = "expected a number of at least 0 and less than 1, such as 0.1";
            let problem = format!("validation_fraction is {validation_fraction}: {expected}");
            return Err(InputError::new(problem).into());
        }
        let training = ((1.0 - validation_fraction) * self.len() as f64) as usize;
        Ok((self.slice(0..training), self.slice(training..self.len())))
    }

    /// Translates a range of this run into one of its source.
    fn absolute(&self, range: Range<usize>) -> Range<usize> {
        assert!(range.end <= self.len(), "range {range:?} ends behind the last of {} tokens", self.len());
        self.range.start + range.start..self.range.start + range.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_from_parts() {
        let tokens = Tokens::from((10..20).collect::<Vec<u32>>());
        let part = tokens.slice(2..8).slice(1..5);
        assert_eq!(part.get(0..4), [13, 14, 15, 16]);
        assert_eq!(part.get(3..4), [16]);
        assert!(tokens.slice(4..4).is_empty());
    }

    #[test]
    fn a_file_gives_the_same_tokens_as_memory() {
        let home = tempfile::tempdir().unwrap();
        let file = TokenFile::create(home.path().join("a.tokens"), 100, 10..20).unwrap();
        let tokens = Tokens::from(file);
        assert_eq!(tokens.len(), 10);
        assert_eq!(tokens.slice(2..8).get(1..4), [13, 14, 15]);
    }

    #[test]
    fn the_training_part_comes_first_and_is_rounded_down() {
        let tokens = Tokens::from((0..19).collect::<Vec<u32>>());
        let (training, validation) = tokens.split(0.1).unwrap();
        assert_eq!((training.len(), validation.len()), (17, 2)); // 0.9 * 19 = 17.1
        assert_eq!(validation.get(0..2), [17, 18]);
        assert_eq!(tokens.split(0.0).unwrap().1.len(), 0);
        // The published split of tinyshakespeare: 1,003,854 and 111,540 tokens.
        let shakespeare = Tokens::from(vec![0; 1_115_394]).split(0.1).unwrap();
        assert_eq!((shakespeare.0.len(), shakespeare.1.len()), (1_003_854, 111_540));
    }

    #[test]
    fn a_fraction_outside_the_text_is_refused() {
        let tokens = Tokens::from(vec![1, 2, 3]);
        for fraction in [-0.1, 1.0, f64::NAN] {
            let error = tokens.split(fraction).unwrap_err().to_string();
            assert!(error.starts_with("validation_fraction is "), "{error}");
        }
    }

    #[test]
    #[should_panic(expected = "range 0..4 ends behind the last of 3 tokens")]
    fn a_range_outside_the_part_panics() {
        Tokens::from(vec![0; 9]).slice(0..3).get(0..4);
    }
}
