//! A short causal depthwise convolution, and the rows that it goes over: tokens with those before them, all padding in front.

use super::segment::Segment;
use super::state::GatedDeltaState;
use crate::init::ParamBuilder;
use burn::module::{Module, Param};
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, IndexingUpdateOp, Int, Tensor};
use firelight_kernels::causal_convolution;

/// Mixes every channel of a token with the same channel of the few tokens before it.
///
/// Source: Dao and Gu 2024, §7.1 and figure 6 (<https://arxiv.org/abs/2405.21060>).
#[derive(Module, Debug)]
pub struct ShortConvolution {
    /// `[K, C]`: the factors of `K` tokens, the last those of the token itself.
    pub weight: Param<Tensor<2>>,
}

impl ShortConvolution {
    /// Uniform in `±1 / sqrt(K)`, as PyTorch's convolutions begin.
    pub(super) fn new(width: usize, channels: usize, params: &ParamBuilder) -> Self {
        let bound = (width as f64).sqrt().recip();
        Self { weight: params.mapped("weight", [width, channels], move |unit| bound * (2.0 * unit - 1.0)) }
    }

    /// Number of tokens before each that it reads.
    pub(super) fn reach(&self) -> usize {
        self.weight.dims()[0] - 1
    }

    /// # Shapes
    /// - output: `[B, T, _]` each, in the order of the rows
    fn forward(&self, rows: &Rows) -> [Tensor<3>; 3] {
        let others = (0..self.reach()).map(|tap| rows.others(tap)).collect::<Option<Vec<_>>>();
        let hidden = others.filter(|others| !others.is_empty()).map(|others| Tensor::stack(others, 2));
        let mut first = 0;
        rows.parts.clone().map(|ConvolutionInput { before, tokens }| {
            let weight = self.weight.val().narrow(1, first, tokens.dims()[2]);
            first += tokens.dims()[2];
            causal_convolution(tokens, before, weight, hidden.clone())
        })
    }
}

/// The tokens of a segment and the `K - 1` before them. Where there is padding it stands in front of all, so that the tokens before a
/// token are those that it follows in its text.
pub(super) struct Rows {
    /// Queries, keys and values, `C` channels in all. They stay apart, and apart from what came before them: to cut them from one
    /// tensor would cost their gradients several passes over all of it.
    parts: [ConvolutionInput; 3],
    /// `[B, K - 1 + T]`, in the order of the tokens.
    documents: Option<Tensor<2, Int>>,
    order: Option<Order>,
}

/// What the convolution reads of queries, keys or values.
#[derive(Clone)]
struct ConvolutionInput {
    /// `[B, K - 1, _]`.
    before: Tensor<3>,
    /// `[B, T, _]`.
    tokens: Tensor<3>,
}

impl Rows {
    /// What `new`, `[B, T, _]`, holds of a segment, behind the last ones of `state`, which takes up the last ones of these.
    pub(super) fn new(new: [Tensor<3>; 3], reach: usize, state: &mut GatedDeltaState, segment: &Segment) -> Self {
        let [batch, length, _] = new[0].dims();
        let order = segment.padding.as_ref().map(|padding| Order::new(padding.clone(), reach));
        let parts = behind(state.window.take(), reach, new).map(|part| match &order {
            Some(order) => part.sorted(order),
            None => part,
        });
        let documents = documents(state.documents.take(), segment.documents.clone(), [batch, reach, length]);
        let documents = documents.map(|documents| match &order {
            Some(order) => order.sorted(documents.unsqueeze_dim::<3>(2)).squeeze_dim(2),
            None => documents,
        });
        state.window = Some(Tensor::cat(parts.each_ref().map(|part| part.last(reach)).to_vec(), 2));
        state.documents = documents.clone().map(|documents| documents.narrow(1, length, reach));
        Self { parts, documents, order }
    }

    /// What the convolution makes of the queries, keys and values of the segment, `[B, T, _]`.
    pub(super) fn convolved(&self, convolution: &ShortConvolution) -> [Tensor<3>; 3] {
        let restored = |x: Tensor<3>| match &self.order {
            Some(order) => order.restored(x),
            None => x,
        };
        convolution.forward(self).map(restored)
    }

    /// Tokens before those of the segment.
    fn reach(&self) -> usize {
        self.parts[0].before.dims()[1]
    }

    /// `[B, T]`, true where a token begins a document, and may be where it is padding.
    pub(super) fn starts(&self) -> Option<Tensor<2, Bool>> {
        let starts = self.others(self.reach() - 1)?;
        Some(match &self.order {
            Some(order) => order.restored(starts.int().unsqueeze_dim::<3>(2)).squeeze_dim::<2>(2).equal_scalar(1),
            None => starts,
        })
    }

    /// `[B, T]`, true where tap `tap` of a token is of another document.
    fn others(&self, tap: usize) -> Option<Tensor<2, Bool>> {
        let length = self.parts[0].tokens.dims()[1];
        let part = |documents: &Tensor<2, Int>, tap| documents.clone().narrow(1, tap, length);
        self.documents.as_ref().map(|documents| part(documents, tap).not_equal(part(documents, self.reach())))
    }
}

impl ConvolutionInput {
    /// All tokens in their order, `[B, K - 1 + T, _]`.
    fn joined(self) -> Tensor<3> {
        Tensor::cat(vec![self.before, self.tokens], 1)
    }

    fn sorted(self, order: &Order) -> Self {
        let reach = self.before.dims()[1];
        let sorted = order.sorted(self.joined());
        let length = sorted.dims()[1] - reach;
        Self { before: sorted.clone().narrow(1, 0, reach), tokens: sorted.narrow(1, reach, length) }
    }

    /// The last `reach` of all, which the tokens of the next pass follow.
    fn last(&self, reach: usize) -> Tensor<3> {
        let length = self.tokens.dims()[1];
        match length.checked_sub(reach) {
            Some(first) => self.tokens.clone().narrow(1, first, reach),
            None => self.clone().joined().narrow(1, length, reach),
        }
    }
}

/// Queries, keys and values behind the last `reach` of a text, which are zeros at its begin.
fn behind(window: Option<Tensor<3>>, reach: usize, new: [Tensor<3>; 3]) -> [ConvolutionInput; 3] {
    let mut first = 0;
    new.map(|tokens| {
        let [batch, _, width] = tokens.dims();
        first += width;
        let before = match &window {
            Some(window) => window.clone().narrow(2, first - width, width).cast(tokens.dtype()),
            None => Tensor::zeros([batch, reach, width], (&tokens.device(), tokens.dtype())),
        };
        ConvolutionInput { before, tokens }
    })
}

/// The documents of the tokens of a segment and of the `reach` before them; tokens that name none belong to the last one.
fn documents(
    before: Option<Tensor<2, Int>>,
    new: Option<Tensor<2, Int>>,
    [batch, reach, length]: [usize; 3],
) -> Option<Tensor<2, Int>> {
    let new = match (&before, new) {
        (_, Some(new)) => new,
        (Some(before), None) => before.clone().narrow(1, reach - 1, 1).expand([batch, length]),
        (None, None) => return None,
    };
    let before = before.unwrap_or_else(|| new.clone().narrow(1, 0, 1).expand([batch, reach]));
    Some(Tensor::cat(vec![before, new], 1))
}

/// Puts the padding of every row in front, and tokens back to where they stood.
struct Order {
    /// `[B (K - 1 + T)]`: which of all tokens comes to each place.
    from: Tensor<1, Int>,
    /// `[B T]`: where among those of the segment each of its tokens has come to.
    to: Tensor<1, Int>,
}

impl Order {
    /// `padding` is `[B, T]`; the `reach` tokens before those of the segment are none.
    fn new(padding: Tensor<2, Bool>, reach: usize) -> Self {
        let ([batch, length], device) = (padding.dims(), padding.device());
        let whole = reach + length;
        let padding = Tensor::cat(vec![Tensor::<2, Int>::zeros([batch, reach], &device), padding.int()], 1);
        let tokens = (padding.clone() * -1 + 1).cumsum(1) - 1 + padding.clone().sum_dim(1);
        let place = tokens.mask_where(padding.clone().equal_scalar(1), padding.cumsum(1) - 1); // [B, K - 1 + T]
        let first =
            |length: usize| (Tensor::<1, Int>::arange(0..batch as i64, &device) * length as i64).unsqueeze_dim::<2>(1);
        let flat = (place.clone() + first(whole)).reshape([batch * whole]);
        let all = Tensor::<1, Int>::arange(0..(batch * whole) as i64, &device);
        let from = Tensor::zeros([batch * whole], &device).scatter(0, flat, all, IndexingUpdateOp::Add);
        // Padding has come before the tokens of the segment; what is read in its place does not matter.
        let to = (place.narrow(1, reach, length) - reach as i64).clamp_min(0) + first(length);
        Self { from, to: to.reshape([batch * length]) }
    }

    fn sorted<K: Basic>(&self, x: Tensor<3, K>) -> Tensor<3, K> {
        select(x, &self.from)
    }

    fn restored<K: Basic>(&self, x: Tensor<3, K>) -> Tensor<3, K> {
        select(x, &self.to)
    }
}

/// Tokens by their places in all rows: `[B, T, C] -> [B, T, C]`.
fn select<K: Basic>(x: Tensor<3, K>, tokens: &Tensor<1, Int>) -> Tensor<3, K> {
    let [batch, length, channels] = x.dims();
    x.reshape([batch * length, channels]).select(0, tokens.clone()).reshape([batch, length, channels])
}
