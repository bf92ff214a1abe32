//! Heads of attention: side by side, as linear layers have them, and each by itself.

use burn::tensor::Tensor;

/// Heads that stand side by side, each by itself: `[B, T, H E] -> [B, H, T, E]`.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{merge_heads, split_heads};
///
/// let x = Tensor::<3>::from_floats([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]], &Device::flex());
/// let heads = split_heads(x.clone(), 2);
/// let second = Tensor::<4>::from_floats([[[[3.0, 4.0], [7.0, 8.0]]]], &Device::flex());
/// assert_eq!(heads.clone().narrow(1, 1, 1).into_data(), second.into_data());
/// assert_eq!(merge_heads(heads).into_data(), x.into_data());
/// ```
///
/// # Panics
/// If the width is no multiple of `heads`.
pub fn split_heads(x: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, length, width] = x.dims();
    x.reshape([batch, length, heads, width / heads]).swap_dims(1, 2)
}

/// Heads side by side: `[B, H, T, W] -> [B, T, H W]`. The way back of [`split_heads`].
pub fn merge_heads(x: Tensor<4>) -> Tensor<3> {
    let [batch, heads, length, d_value] = x.dims();
    x.swap_dims(1, 2).reshape([batch, length, heads * d_value])
}

/// The product of each head with the matrix of its group: `[B, H, Q, X], [B, G, X, Y] -> [B, H, Q, Y]`.
pub(crate) fn product(weights: Tensor<4>, value: Tensor<4>) -> Tensor<4> {
    let [batch, heads, queries, keys] = weights.dims();
    let [_, groups, _, width] = value.dims();
    let weights = weights.reshape([batch, groups, heads / groups * queries, keys]);
    weights.matmul(value).reshape([batch, heads, queries, width])
}
