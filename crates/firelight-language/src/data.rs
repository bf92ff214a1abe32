//! Windows of a text, or rows of packed documents, become batches of tokens and targets.

use std::iter::repeat;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_data::{PackedRow, Window, right_padded};

/// What one step of a language model reads.
#[derive(Debug, Clone)]
pub struct LmBatch {
    /// `[B, T]`.
    pub inputs: Tensor<2, Int>,
    /// `[B, T]`, each input's successor.
    pub targets: Tensor<2, Int>,
    /// `[B, T]`, true where a row has ended; none while all rows are equally long. Rows are padded on the right, where a
    /// causal model cannot see the padding, so that it matters to the loss alone.
    pub padding: Option<Tensor<2, Bool>>,
    /// `[B, T]`, the document of each token, where a row holds several that do not see each other; none where a row is one.
    pub documents: Option<Tensor<2, Int>>,
}

/// Stacks windows, or rows of packed documents, the shorter ones padded on the right.
#[derive(Debug, Clone, Copy, Default)]
pub struct LmBatcher;

impl Batcher<Window, LmBatch> for LmBatcher {
    fn batch(&self, windows: Vec<Window>, device: &Device) -> LmBatch {
        let rows = |ids: fn(&Window) -> &[u32]| windows.iter().map(ids).collect::<Vec<_>>();
        let (inputs, padding) = right_padded(&rows(|window| &window.inputs), device);
        let (targets, _) = right_padded(&rows(|window| &window.targets), device);
        LmBatch { inputs, targets, padding, documents: None }
    }
}

impl Batcher<PackedRow, LmBatch> for LmBatcher {
    fn batch(&self, rows: Vec<PackedRow>, device: &Device) -> LmBatch {
        let documents: Vec<Vec<u32>> = rows.iter().map(numbers).collect();
        let batch = self.batch(rows.into_iter().map(join).collect::<Vec<Window>>(), device);
        let [batch_size, seq_len] = batch.inputs.dims();
        // What pads a row is a document of its own, which no other token sees.
        let padded = |row: &Vec<u32>| {
            let beyond = row.last().map_or(0, |last| last + 1);
            row.iter().copied().chain(repeat(beyond)).take(seq_len).collect::<Vec<_>>()
        };
        let ids = documents.iter().flat_map(padded);
        LmBatch { documents: Some(tokens(ids.collect(), [batch_size, seq_len], device)), ..batch }
    }
}

/// The number of its document in the row for each token.
fn numbers(row: &PackedRow) -> Vec<u32> {
    let repeated = |(number, window): (u32, &Window)| vec![number; window.inputs.len()];
    (0..).zip(&row.windows).flat_map(repeated).collect()
}

/// The windows of a row, one after the other.
fn join(row: PackedRow) -> Window {
    row.windows.into_iter().fold(Window { inputs: Vec::new(), targets: Vec::new() }, |mut joined, window| {
        joined.inputs.extend(window.inputs);
        joined.targets.extend(window.targets);
        joined
    })
}

/// Ids as a tensor of the device's own integer type, which is 32 bits wide on most backends.
pub(crate) fn tokens(ids: Vec<u32>, shape: [usize; 2], device: &Device) -> Tensor<2, Int> {
    let ids: Vec<i32> = ids.into_iter().map(|id| id as i32).collect();
    Tensor::from_data(TensorData::new(ids, shape), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window of a document.
    fn window(ids: &[u32]) -> Window {
        Window { inputs: ids[..ids.len() - 1].to_vec(), targets: ids[1..].to_vec() }
    }

    fn ids(tensor: &Tensor<2, Int>) -> Vec<i64> {
        tensor.try_to_vec_as().unwrap()
    }

    #[test]
    fn a_short_window_is_padded_and_marked() {
        let batch = LmBatcher.batch(vec![window(&[1, 2, 3]), window(&[4, 5])], &Device::default());
        assert_eq!(ids(&batch.inputs), [1, 2, 4, 0]);
        assert_eq!(ids(&batch.targets), [2, 3, 5, 0]);
        let flags: Vec<bool> = batch.padding.unwrap().into_data().iter().collect();
        assert_eq!(flags, [false, false, false, true]);
        assert!(batch.documents.is_none());
        assert!(LmBatcher.batch(vec![window(&[1, 2])], &Device::default()).padding.is_none());
    }

    #[test]
    fn documents_of_a_row_are_numbered_and_so_is_what_pads_it() {
        let rows = [vec![window(&[1, 2, 3]), window(&[4, 5])], vec![window(&[6, 7])]];
        let rows: Vec<PackedRow> = rows.map(|windows| PackedRow { windows }).into();
        let batch: LmBatch = LmBatcher.batch(rows, &Device::default());
        assert_eq!(ids(&batch.inputs), [1, 2, 4, 6, 0, 0]);
        assert_eq!(ids(&batch.targets), [2, 3, 5, 7, 0, 0]);
        assert_eq!(ids(&batch.documents.unwrap()), [0, 0, 1, 0, 1, 1]);
        let flags: Vec<bool> = batch.padding.unwrap().into_data().iter().collect();
        assert_eq!(flags, [false, false, false, false, true, true]);
    }
}
