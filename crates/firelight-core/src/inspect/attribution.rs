//! Direct logit attribution: the residual stream is a sum, and so is every difference of logits.
//!
//! Source: Elhage et al. 2021, "Logits and direct paths" (<https://transformer-circuits.pub/2021/framework/index.html>); the final norm keeps
//! the scale that it has for the whole stream, as Wang et al. 2022, §3 (<https://arxiv.org/abs/2211.00593>).

use crate::block::TransformerBlock;
use crate::hooks::{Activations, HookError, Hooks};
use crate::layer::{FeedForwardNetwork, TokenMixer};
use crate::pass::Pass;
use crate::transformer::Transformer;
use burn::tensor::Tensor;

/// Direct logit attribution: the contribution of each part of a stack to a number read off its output, at every token, `[B, T]` each.
#[derive(Debug, Clone)]
pub struct Attribution {
    /// The embeddings.
    pub embedding: Tensor<2>,
    /// The token mixer of each layer.
    pub attention: Vec<Tensor<2>>,
    /// Its heads, `[B, H, T]`, where it has any. They sum to it, but for the bias of its output projection and the
    /// offset of its output norm.
    pub heads: Vec<Option<Tensor<3>>>,
    /// The cross-attention of each layer, where it has one.
    pub cross_attention: Vec<Option<Tensor<2>>>,
    /// The feed-forward network of each layer.
    pub feed_forward: Vec<Tensor<2>>,
    /// What the offset of the final norm and the bias of the head add.
    pub offset: Tensor<2>,
    /// The number itself. Where the score is affine, the parts and the offset sum to it.
    pub total: Tensor<2>,
}

impl Attribution {
    /// The sum of all parts and the offset, `[B, T]`; the heads are in their layer's attention.
    pub fn sum(&self) -> Tensor<2> {
        let crossed = self.cross_attention.iter().flatten();
        let parts = self.attention.iter().chain(crossed).chain(&self.feed_forward);
        parts.fold(self.embedding.clone() + self.offset.clone(), |sum, part| sum + part.clone())
    }
}

/// The contribution of each part to `score`, a number that is an affine function of the output of the stack: a logit, or the difference of
/// two. A soft cap of the logits is not.
///
/// # Shapes
/// - what `forward` returns, the output of the stack, and the input of `score`: `[B, T, D]`
/// - what `score` returns: `[B, T]`
///
/// # Errors
/// If a block has its norms behind the sum, [`NormPlacement::Post`](crate::NormPlacement::Post), so that its stream is none, or `forward` does
/// not hand its pass to `stack`.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::inspect::logit_attribution;
/// use firelight_core::{HookError, Pass, SequenceInput, TransformerConfig};
///
/// let stack = TransformerConfig::new(16, 4, 2).init(&Device::flex());
/// let x = Tensor::<3>::ones([1, 5, 16], &Device::flex());
/// let score = |x: Tensor<3>| (x.clone().narrow(2, 3, 1) - x.narrow(2, 7, 1)).squeeze_dim::<2>(2); // Channels stand in for logits.
/// let parts = logit_attribution(&stack, |pass: &mut Pass| stack.forward(x, &SequenceInput::default(), pass), score)?;
/// let difference = (parts.sum() - parts.total).abs().max().into_scalar::<f32>();
/// assert!(difference < 1e-4);
/// # Ok::<(), HookError>(())
/// ```
#[doc(alias = "direct logit attribution")]
pub fn logit_attribution<M: TokenMixer + 'static, F: FeedForwardNetwork + 'static>(
    stack: &Transformer<TransformerBlock<M, F>>,
    forward: impl FnOnce(&mut Pass) -> Tensor<3>,
    score: impl Fn(Tensor<3>) -> Tensor<2>,
) -> Result<Attribution, HookError> {
    if let Some(layer) = stack.layers().position(|block| !block.is_sum()) {
        let problem = "norm_placement = post norms the residual stream itself, so that it is no sum of parts";
        return Err(HookError::new(format!("blocks.{layer}.output"), problem));
    }
    let (output, found) = asked(stack).run(forward)?;
    let layers = stack.layers().count();
    let whole = found.get::<3>(&last(layers))?;
    let zero = score(whole.zeros_like());
    let share = |part: Tensor<3>| match &stack.norm {
        Some(norm) => score(norm.share(&whole, part)) - zero.clone(),
        None => score(part) - zero.clone(),
    };
    let of = |path: &str| found.get::<3>(path).map(&share);
    let each =
        |name: &str| (0..layers).map(|layer| of(&format!("blocks.{layer}.{name}"))).collect::<Result<Vec<_>, _>>();
    let offset = stack.norm.as_ref().and_then(|norm| norm.offset());
    let blocks = || stack.layers().enumerate();
    let crossed = |layer: usize| of(&format!("blocks.{layer}.cross_attention.output"));
    Ok(Attribution {
        embedding: of("embedding")?,
        attention: each("attention.output")?,
        heads: blocks().map(|(layer, block)| of_heads(block, layer, &found, share)).collect::<Result<_, _>>()?,
        cross_attention: blocks()
            .map(|(layer, block)| block.cross_attention.as_ref().map(|_| crossed(layer)).transpose())
            .collect::<Result<_, _>>()?,
        feed_forward: each("feed_forward.output")?,
        offset: match offset {
            Some(offset) => score(offset.unsqueeze::<3>().expand(whole.dims())),
            None => zero.clone(),
        },
        total: score(output),
    })
}

/// Records all that is added to the stream, and the heads where a layer has them.
fn asked<M: TokenMixer + 'static, F: FeedForwardNetwork + 'static>(
    stack: &Transformer<TransformerBlock<M, F>>,
) -> Hooks {
    let mut hooks = Hooks::new().record("embedding").record(last(stack.layers().count()));
    for (layer, block) in stack.layers().enumerate() {
        let heads = block.attention.head_output().map(|_| "attention.heads");
        let crossed = block.cross_attention.as_ref().map(|_| "cross_attention.output");
        let names = [Some("attention.output"), heads, crossed, Some("feed_forward.output")];
        hooks = names.into_iter().flatten().fold(hooks, |hooks, name| hooks.record(format!("blocks.{layer}.{name}")));
    }
    hooks
}

/// Where the whole stream is, before the final norm.
fn last(layers: usize) -> String {
    layers.checked_sub(1).map_or("embedding".into(), |layer| format!("blocks.{layer}.output"))
}

/// What each head of a layer adds, `[B, H, T]`.
fn of_heads<M: TokenMixer + 'static, F: FeedForwardNetwork + 'static>(
    block: &TransformerBlock<M, F>,
    layer: usize,
    found: &Activations,
    share: impl Fn(Tensor<3>) -> Tensor<2>,
) -> Result<Option<Tensor<3>>, HookError> {
    if block.attention.head_output().is_none() {
        return Ok(None);
    }
    let heads = found.get::<4>(&format!("blocks.{layer}.attention.heads"))?;
    let Some(each) = block.head_outputs(heads) else { return Ok(None) };
    let of_head = |head: usize| share(each.clone().narrow(1, head, 1).squeeze_dim::<3>(1));
    let shares: Vec<Tensor<2>> = (0..each.dims()[1]).map(of_head).collect();
    Ok(Some(Tensor::stack::<3>(shares, 1)))
}
