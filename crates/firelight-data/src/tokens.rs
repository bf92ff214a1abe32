//! A run of token ids, wherever they lie: in memory or in a mapped file. Cheap to clone and to cut, so that the training
//! and the validation split, and every dataset over them, share one copy.

use std::ops::Range;
use std::sync::Arc;

use crate::TokenFile;

/// Ids that are read together.
const READ_AT_ONCE: usize = 1 << 16;

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

    /// All ids, read piece by piece.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).step_by(READ_AT_ONCE).flat_map(|start| self.get(start..self.len().min(start + READ_AT_ONCE)))
    }

    /// Splits into the first `training` tokens and those that are validated on: see
    /// [`SplitConfig::training_len`](crate::SplitConfig::training_len).
    ///
    /// # Panics
    /// Panics if there are fewer.
    pub fn split(&self, training: usize) -> (Self, Self) {
        (self.slice(0..training), self.slice(training..self.len()))
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
    fn the_training_part_comes_first() {
        let tokens = Tokens::from((0..19).collect::<Vec<u32>>());
        let (training, validation) = tokens.split(17);
        assert_eq!((training.len(), validation.get(0..2)), (17, vec![17, 18]));
        assert!(tokens.split(19).1.is_empty());
    }

    #[test]
    fn all_ids_come_in_order() {
        let count = 2 * READ_AT_ONCE as u32 + 3;
        assert!(Tokens::from((0..count).collect::<Vec<_>>()).iter().eq(0..count));
        assert_eq!(Tokens::from(vec![]).iter().count(), 0);
    }

    #[test]
    #[should_panic(expected = "range 0..4 ends behind the last of 3 tokens")]
    fn a_range_outside_the_part_panics() {
        Tokens::from(vec![0; 9]).slice(0..3).get(0..4);
    }
}
