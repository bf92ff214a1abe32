//! Copying heads: those that raise the logit of what they attend to.
//!
//! Sources: the OV circuit and copying, Elhage et al. 2021, "Copying as a simple property of the OV circuit"
//! (<https://transformer-circuits.pub/2021/framework/index.html>); the score by the highest logits, Wang et al. 2022, §3.3
//! (<https://arxiv.org/abs/2211.00593>). Differs from them: the head reads the stream behind the whole first layer, which each token went
//! through by itself, where Wang et al. take the first feed-forward network alone.

use crate::block::TransformerBlock;
use crate::hooks::{ActivationSlice, HookError, Hooks};
use crate::layer::{FeedForwardNetwork, TokenMixer};
use crate::pass::Pass;
use crate::transformer::Transformer;
use burn::tensor::Tensor;

/// The stream that heads read.
const FIRST: &str = "blocks.0.output";

/// The copying score of each head of a layer, `[H]`: the share of tokens that are among the `top` highest logits of the head's output when
/// it attends to that token alone. The token is read after the first layer, and the head's output through the final norm and the `head` of
/// the model. Equal logits do not count.
///
/// # Shapes
/// - `forward` runs `stack` on rows of one token each, `[N, 1, D]`, whose ids are `ids`
/// - the input of `head`: `[N, 1, D]`; what it returns: `[N, 1, V]`
///
/// # Errors
/// If there is no such layer, it has no heads, or `forward` does not hand its pass to `stack`.
///
/// # Panics
/// If `ids` are not one for each row, or beyond the logits.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::inspect::copying;
/// use firelight_core::{HookError, LinearConfig, Pass, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let (stack, head) = (TransformerConfig::new(16, 4, 2).init(&device), LinearConfig::new(16, 5).init(&device));
/// let x = Tensor::<3>::ones([3, 1, 16], &device); // Three tokens, each by itself.
/// let forward = |pass: &mut Pass| stack.forward(x.clone(), &SequenceInput::default(), pass);
/// let shares = copying(&stack, 1, forward, |x| head.forward(x), (&[0, 3, 4], 5))?;
/// assert_eq!(shares, [1.0; 4]); // Of five tokens each is among the five highest.
/// # Ok::<(), HookError>(())
/// ```
pub fn copying<M: TokenMixer + 'static, F: FeedForwardNetwork + 'static, T>(
    stack: &Transformer<TransformerBlock<M, F>>,
    layer: usize,
    mut forward: impl FnMut(&mut Pass) -> T,
    head: impl Fn(Tensor<3>) -> Tensor<3>,
    (ids, top): (&[u32], usize),
) -> Result<Vec<f64>, HookError> {
    let path = format!("blocks.{layer}.attention.heads");
    let mut hooks = Hooks::new().record(path.clone());
    if layer > 1 {
        // Deep in a stack a lone token says little of itself.
        let (_, first) = Hooks::new().record(FIRST).run(&mut forward)?;
        hooks = hooks.patch(format!("blocks.{}.output", layer - 1), first.get::<3>(FIRST)?, ActivationSlice::all());
    }
    let (_, found) = hooks.run(&mut forward)?;
    let block = stack.layers().nth(layer).expect("a layer of the stack, whose activation was found");
    let written = block.head_outputs(found.get::<4>(&path)?); // [N, H, 1, D]
    let written = written.ok_or_else(|| HookError::new(path, "the mixer names no layer that reads its heads"))?;
    let of_head = |index: usize| {
        let written = written.clone().narrow(1, index, 1).squeeze_dim::<3>(1);
        let normed = match &stack.norm {
            Some(norm) => norm.forward(written),
            None => written,
        };
        among_highest(head(normed), ids, top)
    };
    Ok((0..written.dims()[1]).map(of_head).collect())
}

/// The share of rows whose own logit has fewer than `top` others at or above it.
fn among_highest(logits: Tensor<3>, ids: &[u32], top: usize) -> f64 {
    let [rows, tokens, width] = logits.dims();
    assert!([rows, tokens] == [ids.len(), 1], "{} ids are not one for each of {rows} rows of a token", ids.len());
    let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
    let is_high = |(row, id): &(&[f32], &u32)| {
        let own = row[**id as usize];
        row.iter().filter(|logit| **logit >= own).count() <= top
    };
    logits.chunks(width).zip(ids).filter(is_high).count() as f64 / rows as f64
}
