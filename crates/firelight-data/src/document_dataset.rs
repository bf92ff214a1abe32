//! Documents as items of a batch, each with a row of its own, or several in one row that do not see each other. Evaluation
//! and training read the same items.

use std::ops::Range;
use std::sync::Arc;

use burn::data::dataset::{Dataset, DatasetError};

use firelight_storage::InputError;

use crate::dataset::no_validation_split;
use crate::{DataError, Documents, Split, Tokens, Window, pack};

/// The documents of a split of a text, those that are longer than a row in several pieces.
///
/// The first input of a document is the token before it, the last one of a separator, so that its own first token is
/// predicted too: each token but the first of the split is a target exactly once. A piece begins with the last token of the
/// piece before it in the same way, and sees no more of it.
#[derive(Clone, Debug)]
pub struct DocumentDataset {
    tokens: Tokens,
    /// The targets of each item.
    pieces: Arc<[Range<usize>]>,
}

impl DocumentDataset {
    /// The documents of `split`, in pieces of at most `length` tokens.
    ///
    /// # Errors
    /// Fails if the split holds no token that could be a target.
    ///
    /// # Panics
    /// Panics if `length` is 0.
    pub fn new(documents: &Documents, length: usize, split: Split) -> Result<Self, DataError> {
        assert!(length > 0, "pieces need at least one token");
        let pieces: Arc<[Range<usize>]> = documents.ranges().flat_map(|document| pieces(document, length)).collect();
        match (pieces.is_empty(), documents.is_empty(), split) {
            (true, true, Split::Validation) => Err(no_validation_split().into()),
            (true, ..) => Err(no_document(split).into()),
            _ => Ok(Self { tokens: documents.tokens().clone(), pieces }),
        }
    }

    /// The lengths of the items, in tokens.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().map(|targets| targets.len())
    }
}

/// The targets of a document, `length` at a time. Nothing precedes the first token of all.
fn pieces(document: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    let end = document.end;
    (document.start.max(1)..end).step_by(length).map(move |start| start..(start + length).min(end))
}

impl Dataset<Window> for DocumentDataset {
    fn get(&self, index: usize) -> Result<Window, DatasetError> {
        let targets = self.pieces[index].clone();
        let mut inputs = self.tokens.get(targets.start - 1..targets.end);
        let targets = inputs[1..].to_vec();
        inputs.pop();
        Ok(Window { inputs, targets })
    }

    fn len(&self) -> usize {
        self.pieces.len()
    }
}

/// Several items of a [`DocumentDataset`] that share a row and do not see each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRow {
    /// Each at positions of its own, from 0.
    pub windows: Vec<Window>,
}

/// The documents of a split of a text, packed into rows. Nothing is cut beyond what [`DocumentDataset`] cuts. Which
/// documents share a row is decided once, by the seed; in which order the rows are seen, by seed and epoch.
#[derive(Clone, Debug)]
pub struct PackedDataset {
    documents: DocumentDataset,
    rows: Arc<[Vec<usize>]>,
}

impl PackedDataset {
    /// Packs `documents` into rows of at most `length` tokens, by [`pack`](crate::pack()).
    ///
    /// # Panics
    /// Panics if a document is longer than a row.
    pub fn new(documents: DocumentDataset, length: usize, seed: u64) -> Self {
        let lengths: Vec<usize> = documents.lengths().collect();
        Self { rows: pack(&lengths, length, seed).into(), documents }
    }

    /// The lengths of the rows, in tokens.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        let length = |piece: &usize| self.documents.pieces[*piece].len();
        self.rows.iter().map(move |row| row.iter().map(length).sum())
    }
}

impl Dataset<PackedRow> for PackedDataset {
    fn get(&self, index: usize) -> Result<PackedRow, DatasetError> {
        Ok(PackedRow { windows: self.documents.get_many(self.rows[index].clone())? })
    }

    fn len(&self) -> usize {
        self.rows.len()
    }
}

/// A split has no document with a token to predict.
fn no_document(split: Split) -> InputError {
    let problem = format!(
        "the {split} split of the text holds no document with a token to predict: the splits are cut between two documents"
    );
    InputError::new(problem).advise(format!("give more documents or a {} data.split.validation", split.more()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Separator, Tokenizer, TokenizerConfig};
    use proptest::prelude::*;

    fn dataset(text: &str, length: usize) -> Result<DocumentDataset, DataError> {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, text).unwrap();
        let documents = Documents::encode(&tokenizer, &Separator::Line, text).unwrap();
        DocumentDataset::new(&documents, length, Split::Training)
    }

    /// Inputs and targets as text.
    fn shown(window: &Window) -> (String, String) {
        let text = |ids: &[u32]| ids.iter().map(|&id| char::from(id as u8)).collect();
        (text(&window.inputs), text(&window.targets))
    }

    #[test]
    fn a_document_begins_behind_the_separator_and_long_ones_are_cut() {
        let windows = dataset("ab\ncdefg\nh", 3).unwrap();
        let found: Vec<_> = windows.iter().map(|window| shown(&window.unwrap())).collect();
        let expected = [("ab", "b\n"), ("\ncd", "cde"), ("efg", "fg\n"), ("\n", "h")];
        assert_eq!(found, expected.map(|(inputs, targets)| (inputs.to_string(), targets.to_string())));
        assert_eq!(windows.lengths().collect::<Vec<_>>(), [2, 3, 3, 1]);
    }

    #[test]
    fn rows_hold_whole_documents() {
        let packed = PackedDataset::new(dataset("ab\ncdefg\nh", 3).unwrap(), 3, 0);
        let mut rows: Vec<Vec<String>> =
            packed.iter().map(|row| row.unwrap().windows.iter().map(|window| shown(window).1).collect()).collect();
        rows.sort();
        assert_eq!(rows, [vec!["b\n".to_string(), "h".into()], vec!["cde".into()], vec!["fg\n".into()]]);
        assert_eq!(packed.lengths().collect::<Vec<_>>(), [3, 3, 3]);
    }

    #[test]
    fn a_split_without_a_target_is_refused() {
        let error = dataset("a", 3).unwrap_err();
        assert!(error.to_string().starts_with("the training split of the text holds no document"), "{error}");
    }

    proptest! {
        #[test]
        fn each_token_but_the_first_is_a_target_once(text in "[ab\n]{2,80}", length in 1_usize..9, seed: u64) {
            let documents = dataset(&text, length).unwrap();
            let targets: String = documents.iter().map(|window| shown(&window.unwrap()).1).collect();
            prop_assert_eq!(&targets, &text[1..]);

            let packed = PackedDataset::new(documents, length, seed);
            prop_assert!(packed.lengths().all(|tokens| tokens <= length));
            let mut targets: Vec<u32> =
                packed.iter().flat_map(|row| row.unwrap().windows.into_iter().flat_map(|window| window.targets)).collect();
            let mut expected: Vec<u32> = text.bytes().skip(1).map(u32::from).collect();
            targets.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(targets, expected);
        }
    }
}
