//! Windows of a text become batches of tokens and targets.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_data::Window;

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
}

/// Stacks windows, the shorter ones padded on the right.
#[derive(Debug, Clone, Copy, Default)]
pub struct LmBatcher;

impl Batcher<Window, LmBatch> for LmBatcher {
    fn batch(&self, windows: Vec<Window>, device: &Device) -> LmBatch {
        let seq_len = windows.iter().map(|window| window.inputs.len()).max().unwrap_or(0);
        let shape = [windows.len(), seq_len];
        let ended = |window: &Window| (0..seq_len).map(|t| t >= window.inputs.len()).collect::<Vec<_>>();
        let padding = windows.iter().any(|window| window.inputs.len() < seq_len).then(|| {
            let flags: Vec<bool> = windows.iter().flat_map(ended).collect();
            Tensor::from_bool(TensorData::new(flags, shape), device)
        });
        let rows = |ids: fn(&Window) -> &[u32]| {
            let ids = windows.iter().flat_map(|window| padded(ids(window), seq_len)).collect();
            tokens(ids, shape, device)
        };
        LmBatch { inputs: rows(|window| &window.inputs), targets: rows(|window| &window.targets), padding }
    }
}

fn padded(ids: &[u32], seq_len: usize) -> impl Iterator<Item = u32> {
    ids.iter().copied().chain(std::iter::repeat(0)).take(seq_len)
}

/// Ids as a tensor of the device's own integer type, which is 32 bits wide on most backends.
pub(crate) fn tokens(ids: Vec<u32>, shape: [usize; 2], device: &Device) -> Tensor<2, Int> {
    let ids: Vec<i32> = ids.into_iter().map(|id| id as i32).collect();
    Tensor::from_data(TensorData::new(ids, shape), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_window_is_padded_and_marked() {
        let window = |ids: &[u32]| Window { inputs: ids[..ids.len() - 1].to_vec(), targets: ids[1..].to_vec() };
        let batch = LmBatcher.batch(vec![window(&[1, 2, 3]), window(&[4, 5])], &Device::default());
        assert_eq!(batch.inputs.try_to_vec_as::<i64>().unwrap(), [1, 2, 4, 0]);
        assert_eq!(batch.targets.try_to_vec_as::<i64>().unwrap(), [2, 3, 5, 0]);
        let flags: Vec<bool> = batch.padding.unwrap().into_data().iter().collect();
        assert_eq!(flags, [false, false, false, true]);
        assert!(LmBatcher.batch(vec![window(&[1, 2])], &Device::default()).padding.is_none());
    }
}
