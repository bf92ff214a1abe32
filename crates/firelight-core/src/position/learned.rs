//! Learned positions: a trained vector per position, added to the embeddings.
//!
//! Source: Gehring et al. 2017, §3.1 (<https://arxiv.org/abs/1705.03122>), as used by GPT and BERT.

use super::{PositionScheme, Positions};
use crate::init::{Init, ParamBuilder};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// A table of `max_seq_len` trained vectors.
#[derive(Module, Debug)]
pub struct LearnedPosition {
    /// `[max_seq_len, D]`.
    pub weight: Param<Tensor<2>>,
}

impl LearnedPosition {
    /// Builds the table at the builder's path.
    pub fn new(max_seq_len: usize, d_model: usize, init: Init, params: &ParamBuilder) -> Self {
        Self { weight: params.param("weight", [max_seq_len, d_model], init) }
    }
}

impl PositionScheme for LearnedPosition {
    /// # Panics
    /// If a position is beyond the table.
    fn embed(&self, x: Tensor<3>, positions: &Positions) -> Tensor<3> {
        let [length, _] = self.weight.dims();
        assert!(
            positions.bound() <= length,
            "{} tokens are more than the {length} learned positions (max_seq_len)",
            positions.bound()
        );
        x + positions.rows_of(self.weight.val())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn a_later_token_gets_its_own_row() {
        let device = Device::default();
        let table = LearnedPosition { weight: Param::from_data([[1.0], [2.0], [3.0]], &device) };
        let x = table.embed(Tensor::zeros([1, 2, 1], &device), &Positions::contiguous(1, 2));
        x.into_data().assert_eq(&TensorData::from([[[2.0f32], [3.0]]]), false);
    }

    #[test]
    #[should_panic(expected = "4 tokens are more than the 3 learned positions (max_seq_len)")]
    fn a_position_beyond_the_table_panics() {
        let device = Device::default();
        let table = LearnedPosition { weight: Param::from_data([[1.0], [2.0], [3.0]], &device) };
        table.embed(Tensor::zeros([1, 1, 1], &device), &Positions::contiguous(3, 1));
    }
}
