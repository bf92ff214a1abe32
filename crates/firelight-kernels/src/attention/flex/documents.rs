//! The documents of a packed row: which keys are those of a query, and between which of them the others lie.

use crate::flex::{Real, integers};
use burn::backend::flex::FlexTensor;
use std::collections::HashMap;
use std::ops::Range;

/// The documents of all rows, numbered from 0 on.
pub(super) struct Documents {
    /// Of every key, `[B | 1, K]`.
    of_keys: Vec<u32>,
    /// From the first to the last key of each.
    spans: Vec<Range<usize>>,
    /// Whether one has keys of another between its own.
    are_mixed: bool,
    keys: usize,
}

impl Documents {
    /// Of a tensor `[B | 1, K]` of names.
    pub(super) fn new(names: &FlexTensor) -> Self {
        let keys = names.layout().shape()[1];
        let mut documents = Self { of_keys: Vec::new(), spans: Vec::new(), are_mixed: false, keys };
        for row in integers(names).chunks(keys) {
            documents.read(row);
        }
        documents
    }

    fn read(&mut self, names: &[i64]) {
        let mut known = HashMap::new();
        for (key, name) in names.iter().enumerate() {
            let document = *known.entry(name).or_insert(self.spans.len());
            match self.spans.get_mut(document) {
                Some(span) => {
                    self.are_mixed |= span.end != key;
                    span.end = key + 1;
                }
                None => self.spans.push(key..key + 1),
            }
            self.of_keys.push(document as u32);
        }
    }

    /// The keys from the first to the last of the document of a key.
    pub(super) fn span(&self, batch: usize, key: usize) -> Range<usize> {
        self.spans[self.row(batch)[key] as usize].clone()
    }

    /// The documents of the keys of a row.
    #[inline(always)]
    fn row(&self, batch: usize) -> &[u32] {
        let row = if self.of_keys.len() == self.keys { 0 } else { batch };
        &self.of_keys[row * self.keys..][..self.keys]
    }

    /// Scores of minus infinity for the keys of other documents than that of key `own`. Those outside of its span may be left.
    #[inline(always)]
    pub(super) fn hide_others<T: Real>(&self, batch: usize, own: usize, keys: &Range<usize>, scores: &mut [T]) {
        if !self.are_mixed {
            return;
        }
        let of_keys = self.row(batch);
        for (score, &document) in scores.iter_mut().zip(&of_keys[keys.clone()]) {
            *score = if document == of_keys[own] { *score } else { T::NEG_INFINITY };
        }
    }
}
