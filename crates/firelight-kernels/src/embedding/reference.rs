//! The look-up from Burn primitives.

use burn::tensor::{Int, Tensor};

pub(super) fn embedding(weight: Tensor<2>, tokens: Tensor<2, Int>) -> Tensor<3> {
    burn::tensor::module::embedding(weight, tokens)
}
