//! How much a loss depends on each head, by its gradient.
//!
//! Source: Michel et al. 2019, "Are sixteen heads really better than one?", §4.1, eq. 2 (<https://arxiv.org/abs/1905.10650>): every head is
//! multiplied by a gate of 1, and its importance is the mean size of the gate's gradient over the examples. Their normalisation within a
//! layer is left to the caller.

use super::grid::Grid;
use crate::hooks::{HookError, Hooks};
use crate::pass::Pass;
use burn::tensor::Tensor;

/// The size of the gradient of a loss by a gate of each head, the mean over the rows of the batch. `pattern` names activations
/// `[B, H, T, W]`, `blocks.*.attention.heads`; `forward` gives the sum of the rows' losses, `[1]`, on a device with autodiff. It is run
/// twice, the first time for the shapes. Dropout acts as in training: leave it out of the model for the numbers of the paper.
///
/// # Errors
/// If `pattern` names no activation, or one that is not `[B, H, T, W]`.
///
/// # Panics
/// If the device has no autodiff.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::inspect::head_sensitivity;
/// use firelight_core::{HookError, Pass, SequenceInput, TransformerConfig};
///
/// let device = Device::flex().autodiff();
/// let stack = TransformerConfig::new(16, 4, 2).init(&device);
/// let x = Tensor::<3>::ones([2, 3, 16], &device);
/// let loss = |pass: &mut Pass| stack.forward(x.clone(), &SequenceInput::default(), pass).square().narrow(2, 0, 1).sum();
/// let grid = head_sensitivity("blocks.*.attention.heads", loss)?;
/// assert_eq!(grid.values.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
/// # Ok::<(), HookError>(())
/// ```
pub fn head_sensitivity(pattern: &str, mut forward: impl FnMut(&mut Pass) -> Tensor<1>) -> Result<Grid, HookError> {
    let (_, found) = Hooks::new().record(pattern).run(&mut forward)?;
    let paths: Vec<String> = found.paths().map(String::from).collect();
    let gate = |path: &String| -> Result<Tensor<4>, HookError> {
        let heads = found.get::<4>(path)?;
        let [batch, n_heads, _, _] = heads.dims();
        Ok(Tensor::<4>::ones([batch, n_heads, 1, 1], (&heads.device(), heads.dtype())).require_grad())
    };
    let gates: Vec<Tensor<4>> = paths.iter().map(gate).collect::<Result<_, _>>()?;
    drop(found); // Else the graph of the first pass is held through the second.
    let gated = |hooks: Hooks, (path, gate): (&String, &Tensor<4>)| {
        let gate = gate.clone();
        hooks.edit(path.clone(), move |heads: Tensor<4>| heads * gate.clone())
    };
    let (loss, _) = paths.iter().zip(&gates).fold(Hooks::new(), gated).run(&mut forward)?;
    let gradients = loss.backward();
    let of_gate = |gate: &Tensor<4>| -> Vec<f64> {
        // A layer that the loss does not see has no gradient.
        let gradient = gate.grad(&gradients).unwrap_or_else(|| gate.zeros_like());
        gradient.abs().mean_dim(0).into_data().iter::<f64>().collect()
    };
    let values = gates.iter().map(of_gate).collect();
    Ok(Grid { paths, values })
}
