//! A short causal depthwise convolution and its input: the tokens of a segment with their history, padding in front.

use super::segment::Segment;
use super::state::GatedDeltaState;
use crate::documents::extended;
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

    /// Number of earlier tokens that each token reads, `K - 1`.
    pub(super) fn history_len(&self) -> usize {
        self.weight.dims()[0] - 1
    }

    /// # Shapes
    /// - output: `[B, T, _]` each, in the order of `tokens`
    fn forward(&self, tokens: &SegmentTokens) -> [Tensor<3>; 3] {
        let others = (0..self.history_len()).map(|tap| tokens.others(tap)).collect::<Option<Vec<_>>>();
        let hidden = others.filter(|others| !others.is_empty()).map(|others| Tensor::stack(others, 2));
        let mut first = 0;
        tokens.parts.clone().map(|ConvolutionInput { history, tokens }| {
            let weight = self.weight.val().narrow(1, first, tokens.dims()[2]);
            first += tokens.dims()[2];
            causal_convolution(tokens, history, weight, hidden.clone())
        })
    }
}

/// The tokens of a segment and their history, the `K - 1` tokens before them. Padding is moved to the front, so that the tokens before
/// a token are those of its text.
pub(super) struct SegmentTokens {
    /// Queries, keys and values, `C` channels in all. They are not joined with each other or with their history: slices of one
    /// tensor would cost several passes over all of it for their gradients.
    parts: [ConvolutionInput; 3],
    /// `[B, K - 1 + T]`, in the order of the tokens.
    documents: Option<Tensor<2, Int>>,
    order: Option<Order>,
}

/// What the convolution reads of queries, keys or values.
#[derive(Clone)]
struct ConvolutionInput {
    /// `[B, K - 1, _]`.
    history: Tensor<3>,
    /// `[B, T, _]`.
    tokens: Tensor<3>,
}

impl SegmentTokens {
    /// The tokens `new`, `[B, T, _]`, of a segment after the history in `state`, which is replaced by the last tokens of these.
    pub(super) fn new(new: [Tensor<3>; 3], history_len: usize, state: &mut GatedDeltaState, segment: &Segment) -> Self {
        let [batch, length, _] = new[0].dims();
        let order = segment.padding.as_ref().map(|padding| Order::new(padding.clone(), history_len));
        let parts = behind(state.window.take(), history_len, new).map(|part| match &order {
            Some(order) => part.sorted(order),
            None => part,
        });
        let documents =
            documents(state.window_documents.take(), segment.documents.clone(), [batch, history_len, length]);
        let documents = documents.map(|documents| match &order {
            Some(order) => order.sorted(documents.unsqueeze_dim::<3>(2)).squeeze_dim(2),
            None => documents,
        });
        state.window = Some(Tensor::cat(parts.each_ref().map(|part| part.last(history_len)).to_vec(), 2));
        state.window_documents = documents.clone().map(|documents| documents.narrow(1, length, history_len));
        Self { parts, documents, order }
    }

    /// The convolution of the queries, keys and values of the segment, `[B, T, _]`.
    pub(super) fn convolved(&self, convolution: &ShortConvolution) -> [Tensor<3>; 3] {
        let restored = |x: Tensor<3>| match &self.order {
            Some(order) => order.restored(x),
            None => x,
        };
        convolution.forward(self).map(restored)
    }

    /// Number of tokens before those of the segment.
    fn history_len(&self) -> usize {
        self.parts[0].history.dims()[1]
    }

    /// `[B, T]`, true where a token begins a document, and may be where it is padding.
    pub(super) fn starts(&self) -> Option<Tensor<2, Bool>> {
        let starts = self.others(self.history_len() - 1)?;
        Some(match &self.order {
            Some(order) => order.restored(starts.int().unsqueeze_dim::<3>(2)).squeeze_dim::<2>(2).equal_scalar(1),
            None => starts,
        })
    }

    /// `[B, T]`, true where tap `tap` of a token belongs to another document.
    fn others(&self, tap: usize) -> Option<Tensor<2, Bool>> {
        let length = self.parts[0].tokens.dims()[1];
        let part = |documents: &Tensor<2, Int>, tap| documents.clone().narrow(1, tap, length);
        self.documents.as_ref().map(|documents| part(documents, tap).not_equal(part(documents, self.history_len())))
    }
}

impl ConvolutionInput {
    /// All tokens in their order, `[B, K - 1 + T, _]`.
    fn joined(self) -> Tensor<3> {
        Tensor::cat(vec![self.history, self.tokens], 1)
    }

    fn sorted(self, order: &Order) -> Self {
        let history_len = self.history.dims()[1];
        let sorted = order.sorted(self.joined());
        let length = sorted.dims()[1] - history_len;
        Self { history: sorted.clone().narrow(1, 0, history_len), tokens: sorted.narrow(1, history_len, length) }
    }

    /// The last `history_len` tokens: the history of the next pass.
    fn last(&self, history_len: usize) -> Tensor<3> {
        let length = self.tokens.dims()[1];
        match length.checked_sub(history_len) {
            Some(first) => self.tokens.clone().narrow(1, first, history_len),
            None => self.clone().joined().narrow(1, length, history_len),
        }
    }
}

/// Queries, keys and values with the last `history_len` tokens before them; zeros at the start of a text.
fn behind(window: Option<Tensor<3>>, history_len: usize, new: [Tensor<3>; 3]) -> [ConvolutionInput; 3] {
    let mut first = 0;
    new.map(|tokens| {
        let [batch, _, width] = tokens.dims();
        first += width;
        let history = match &window {
            Some(window) => window.clone().narrow(2, first - width, width).cast(tokens.dtype()),
            None => Tensor::zeros([batch, history_len, width], (&tokens.device(), tokens.dtype())),
        };
        ConvolutionInput { history, tokens }
    })
}

/// The documents of the tokens of a segment and of the `history_len` before them, which belong to the first where none are known.
fn documents(
    history: Option<Tensor<2, Int>>,
    new: Option<Tensor<2, Int>>,
    [batch, history_len, length]: [usize; 3],
) -> Option<Tensor<2, Int>> {
    let history = match (history, &new) {
        (Some(history), _) => history,
        (None, Some(new)) => new.clone().narrow(1, 0, 1).expand([batch, history_len]),
        (None, None) => return None,
    };
    Some(extended(history, new, [batch, length]))
}

/// Puts the padding of every row in front, and tokens back to where they stood.
struct Order {
    /// `[B (K - 1 + T)]`: which of all tokens comes to each place.
    from: Tensor<1, Int>,
    /// `[B T]`: where among those of the segment each of its tokens has come to.
    to: Tensor<1, Int>,
}

impl Order {
    /// `padding` is `[B, T]`; the `history_len` tokens before those of the segment are none.
    fn new(padding: Tensor<2, Bool>, history_len: usize) -> Self {
        let ([batch, length], device) = (padding.dims(), padding.device());
        let whole = history_len + length;
        let padding = Tensor::cat(vec![Tensor::<2, Int>::zeros([batch, history_len], &device), padding.int()], 1);
        let tokens = (padding.clone() * -1 + 1).cumsum(1) - 1 + padding.clone().sum_dim(1);
        let place = tokens.mask_where(padding.clone().equal_scalar(1), padding.cumsum(1) - 1); // [B, K - 1 + T]
        let first =
            |length: usize| (Tensor::<1, Int>::arange(0..batch as i64, &device) * length as i64).unsqueeze_dim::<2>(1);
        let flat = (place.clone() + first(whole)).reshape([batch * whole]);
        let all = Tensor::<1, Int>::arange(0..(batch * whole) as i64, &device);
        let from = Tensor::zeros([batch * whole], &device).scatter(0, flat, all, IndexingUpdateOp::Add);
        // Padding has come before the tokens of the segment; what is read in its place does not matter.
        let to = (place.narrow(1, history_len, length) - history_len as i64).clamp_min(0) + first(length);
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
