//! The documents of packed rows, on the host: which tokens belong together, and between which of them others lie.

use super::KeyRanges;
use burn::tensor::{Int, Tensor};
use std::collections::HashMap;
use std::ops::Range;

/// The document of every token of some rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    rows: Vec<RowDocuments>,
}

/// The documents of a row, numbered from 0 on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RowDocuments {
    of_token: Vec<u32>,
    /// From the first to the last token of each.
    spans: Vec<Range<usize>>,
    /// Whether tokens of another lie between those of one.
    is_mixed: bool,
}

impl Documents {
    /// Reads the names of documents, `[B | 1, T]`, from the device. Any number is a name; one row serves all rows of a batch.
    pub fn read(names: &Tensor<2, Int>) -> Self {
        let length = names.dims()[1];
        let names: Vec<i64> = names.to_data().iter().collect();
        Self { rows: names.chunks(length.max(1)).map(RowDocuments::new).collect() }
    }

    /// Whether rows of a batch differ.
    pub(super) fn varies_by_row(&self) -> bool {
        self.rows.len() > 1
    }

    pub(super) fn hidden(&self, row: usize, query: usize, key: usize) -> bool {
        let of_token = &self.row(row).of_token;
        of_token[query] != of_token[key]
    }

    pub(super) fn visible_keys(&self, row: usize, query: usize, keys: Range<usize>) -> KeyRanges {
        let RowDocuments { of_token, spans, is_mixed } = self.row(row);
        let (own, end) = (of_token[query], keys.end.min(of_token.len()));
        let span = &spans[own as usize];
        let near = keys.start.max(span.start)..end.min(span.end);
        match is_mixed {
            false => [near].into_iter().filter(|near| !near.is_empty()).collect(),
            true => near.filter(|&key| of_token[key] == own).map(|key| key..key + 1).collect(),
        }
    }

    fn row(&self, row: usize) -> &RowDocuments {
        &self.rows[if self.varies_by_row() { row } else { 0 }]
    }
}

impl RowDocuments {
    fn new(names: &[i64]) -> Self {
        let (mut known, mut row) = (HashMap::new(), Self { of_token: Vec::new(), spans: Vec::new(), is_mixed: false });
        for (token, name) in names.iter().enumerate() {
            let document = *known.entry(name).or_insert(row.spans.len());
            match row.spans.get_mut(document) {
                Some(span) => {
                    row.is_mixed |= span.end != token;
                    span.end = token + 1;
                }
                None => row.spans.push(token..token + 1),
            }
            row.of_token.push(document as u32);
        }
        row
    }
}
