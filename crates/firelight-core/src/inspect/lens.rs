//! The logit lens: the residual stream between the layers, read by the final norm and the head.
//!
//! Source: nostalgebraist 2020, "interpreting GPT: the logit lens"
//! (<https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens>).

use crate::hooks::{HookError, Hooks};
use crate::layer::Layer;
use crate::pass::Pass;
use crate::transformer::Transformer;
use burn::tensor::Tensor;
use std::iter::once;

/// Logit lens: applies the final norm and `head` to the residual stream before the first layer and after each layer. Returns `layers + 1`
/// results, of which the last is the output of the model itself. Where there is no final norm the stream is read as it is.
///
/// # Shapes
/// - the input of `head`: `[B, T, D]`
///
/// # Errors
/// If `forward` does not hand its pass to `stack`.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::inspect::logit_lens;
/// use firelight_core::{HookError, LinearConfig, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let (stack, head) = (TransformerConfig::new(16, 4, 3).init(&device), LinearConfig::new(16, 11).init(&device));
/// let x = Tensor::<3>::ones([1, 5, 16], &device);
/// let forward = |pass: &mut firelight_core::Pass| stack.forward(x, &SequenceInput::default(), pass);
/// let logits = logit_lens(&stack, forward, |hidden| head.forward(hidden))?;
/// assert_eq!(logits.iter().map(|logits| logits.dims()).collect::<Vec<_>>(), [[1, 5, 11]; 4]);
/// # Ok::<(), HookError>(())
/// ```
pub fn logit_lens<L: Layer + 'static, T, U>(
    stack: &Transformer<L>,
    forward: impl FnOnce(&mut Pass) -> T,
    mut head: impl FnMut(Tensor<3>) -> U,
) -> Result<Vec<U>, HookError> {
    let behind = (0..stack.layers().count()).map(|layer| format!("blocks.{layer}.output"));
    let paths: Vec<String> = once("embedding".to_owned()).chain(behind).collect();
    let mut hooks = paths.iter().fold(Hooks::new(), |hooks, path| hooks.record(path.clone()));
    let (_, found) = hooks.run(forward)?;
    let read = |path: &String| {
        let stream = found.get::<3>(path)?;
        let normed = match &stack.norm {
            Some(norm) => norm.forward(stream),
            None => stream,
        };
        Ok::<U, HookError>(head(normed))
    };
    paths.iter().map(read).collect()
}
