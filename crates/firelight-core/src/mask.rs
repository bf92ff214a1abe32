//! Which keys are hidden from which queries. The only file that knows that true means hidden, and the only one that
//! combines masks; everything stays symbolic until the kernel, so plain causal attention never forms a `[T, T]` tensor
//! here.
//!
//! Source: Vaswani et al. 2017, §3.2.3 (<https://arxiv.org/abs/1706.03762>): illegal connections have a score of -∞, and so a
//! weight of 0. Different here: a row in which all is hidden has weights of 0 in the place of NaN.

use burn::tensor::{Bool, Device, Int, Tensor};
use firelight_kernels::{AttentionOptions, Chunks};

/// The pairs that attention leaves out. The default hides nothing.
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use firelight_core::AttentionMask;
///
/// let tokens = Tensor::<2, Int>::from_ints([[5, 6, 0]], &Device::flex()); // 0 pads
/// let mask = AttentionMask::causal().and(AttentionMask::from_ids(tokens, 0));
/// assert!(mask.is_causal());
/// ```
#[derive(Debug, Clone, Default)]
pub struct AttentionMask {
    causal: bool,
    window: Option<usize>,
    chunks: Option<Parts<Chunks>>,
    documents: Option<Parts<Tensor<2, Int>>>,
    padding: Option<Tensor<2, Bool>>,
    hidden: Option<Tensor<4, Bool>>,
}

/// What tells the parts of a row, for so many queries and keys, `[B | 1, Q, K]`.
#[derive(Debug, Clone)]
struct Parts<T> {
    of: T,
    shape: [usize; 3],
    device: Device,
}

impl<T> Parts<T> {
    /// The pairs of different parts, where the kernel reads another kind of them already.
    fn hidden(self, options: impl FnOnce(AttentionOptions, Option<T>) -> AttentionOptions) -> Option<Tensor<4, Bool>> {
        let [batch, queries, keys] = self.shape;
        options(AttentionOptions::default(), Some(self.of)).hidden_pairs([batch, 1, queries, keys], &self.device)
    }
}

impl AttentionMask {
    /// Hides nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Hides the future. The last query is aligned to the last key, so that cached steps see their whole past.
    pub fn causal() -> Self {
        Self { causal: true, ..Self::default() }
    }

    /// Hides what stands more than `window` keys before a query, aligned as [`causal`](Self::causal).
    pub fn window(window: usize) -> Self {
        Self { window: Some(window), ..Self::default() }
    }

    /// Hides the keys of other chunks, for so many queries and keys.
    pub(crate) fn chunks(chunks: Chunks, [queries, keys]: [usize; 2], device: &Device) -> Self {
        let chunks = Parts { of: chunks, shape: [1, queries, keys], device: device.clone() };
        Self { chunks: Some(chunks), ..Self::default() }
    }

    /// Hides keys from every query: `padding` is `[B, K]`, true where a key is padding.
    pub fn padding(padding: Tensor<2, Bool>) -> Self {
        Self { padding: Some(padding), ..Self::default() }
    }

    /// Hides the keys whose token is `pad`: `tokens` is `[B, K]`.
    pub fn from_ids(tokens: Tensor<2, Int>, pad: i64) -> Self {
        Self::padding(tokens.equal_scalar(pad))
    }

    /// Hides the keys from `lengths[b]` on in row `b`, of `key_len` keys.
    ///
    /// # Panics
    /// If a length is above `key_len`.
    pub fn from_lengths(lengths: &[usize], key_len: usize, device: &Device) -> Self {
        assert!(lengths.iter().all(|length| *length <= key_len), "a length of {lengths:?} is above {key_len} keys");
        let ends: Vec<i64> = lengths.iter().map(|length| *length as i64).collect();
        let ends = Tensor::<1, Int>::from_ints(ends.as_slice(), device).unsqueeze_dim::<2>(1);
        let keys = Tensor::<1, Int>::arange(0..key_len as i64, device).unsqueeze_dim::<2>(0);
        let shape = [lengths.len(), key_len];
        Self::padding(keys.expand(shape).greater_equal(ends.expand(shape)))
    }

    /// Hides any pairs: `[B | 1, H | 1, Q | 1, K]`, true where a pair is hidden.
    pub fn from_hidden(hidden: Tensor<4, Bool>) -> Self {
        Self { hidden: Some(hidden), ..Self::default() }
    }

    /// Hides the keys of other documents: `documents` is `[B, K]`, of which the last `len` tokens are the queries. Any
    /// number names a document.
    pub fn documents(documents: Tensor<2, Int>, len: usize) -> Self {
        let [batch, keys] = documents.dims();
        let device = documents.device();
        Self { documents: Some(Parts { of: documents, shape: [batch, len, keys], device }), ..Self::default() }
    }

    /// The opposite convention: `[B | 1, H | 1, Q | 1, K]`, true where the query sees the key.
    pub fn from_visible(visible: Tensor<4, Bool>) -> Self {
        Self::from_hidden(visible.bool_not())
    }

    /// Hides what either mask hides.
    pub fn and(self, other: Self) -> Self {
        let (chunks, more_chunks) = first(self.chunks, other.chunks);
        let (documents, more_documents) = first(self.documents, other.documents);
        let more = [
            more_chunks.and_then(|chunks| chunks.hidden(AttentionOptions::with_chunks)),
            more_documents.and_then(|documents| documents.hidden(AttentionOptions::with_documents)),
        ];
        Self {
            causal: self.causal || other.causal,
            window: self.window.into_iter().chain(other.window).min(),
            chunks,
            documents,
            padding: either(self.padding, other.padding),
            hidden: more.into_iter().fold(either(self.hidden, other.hidden), either),
        }
    }

    /// Whether the future is hidden.
    pub fn is_causal(&self) -> bool {
        self.causal
    }

    /// The same statement in the kernel's terms.
    pub(crate) fn options(&self) -> AttentionOptions {
        AttentionOptions::default()
            .with_causal(self.causal)
            .with_window(self.window)
            .with_chunks(self.chunks.as_ref().map(|chunks| chunks.of))
            .with_documents(self.documents.as_ref().map(|documents| documents.of.clone()))
            .with_padding(self.padding.clone())
            .with_hidden(self.hidden.clone())
    }
}

/// One of two, and the other.
fn first<T>(a: Option<T>, b: Option<T>) -> (Option<T>, Option<T>) {
    if a.is_some() { (a, b) } else { (b, None) }
}

fn either<const D: usize>(a: Option<Tensor<D, Bool>>, b: Option<Tensor<D, Bool>>) -> Option<Tensor<D, Bool>> {
    match (a, b) {
        (Some(a), Some(b)) => {
            let (left, right) = (a.dims(), b.dims());
            let fits = (0..D).all(|i| left[i] == right[i] || left[i] == 1 || right[i] == 1);
            assert!(fits, "mask: {left:?} cannot be joined with {right:?}");
            let shape: [usize; D] = std::array::from_fn(|i| left[i].max(right[i]));
            Some(a.expand(shape).bool_or(b.expand(shape)))
        }
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags<const D: usize>(mask: Option<Tensor<D, Bool>>) -> Vec<bool> {
        mask.expect("a mask").into_data().iter::<bool>().collect()
    }

    #[test]
    fn ids_and_lengths_say_the_same() {
        let device = Device::default();
        let tokens = Tensor::<2, Int>::from_ints([[7, 0, 0], [7, 8, 9]], &device);
        let ids = flags(AttentionMask::from_ids(tokens, 0).padding);
        assert_eq!(ids, [false, true, true, false, false, false]);
        assert_eq!(flags(AttentionMask::from_lengths(&[1, 3], 3, &device).padding), ids);
    }

    #[test]
    fn documents_are_hidden_from_each_other() {
        let device = Device::default();
        let documents = AttentionMask::documents(Tensor::from_ints([[3, 3, 1]], &device), 2);
        let pairs = |mask: AttentionMask| flags(mask.options().hidden_pairs([1, 1, 2, 3], &device));
        assert_eq!(pairs(documents.clone()), [false, false, true, true, true, false]);
        let others = AttentionMask::documents(Tensor::from_ints([[5, 6, 6]], &device), 2);
        assert_eq!(pairs(documents.clone().and(others)), [true, false, true, true, true, false]);
        // Chunks of two: the first token is in one, the others in another; and of three, in one.
        let chunks = |size, before| AttentionMask::chunks(Chunks { size, before }, [2, 3], &device);
        assert_eq!(pairs(chunks(2, 1).and(chunks(3, 0))), [true, false, false, true, false, false]);
        assert_eq!(pairs(chunks(3, 0).and(chunks(2, 1)).and(documents)), [true, false, true, true, true, false]);
    }

    #[test]
    fn visible_is_the_opposite_of_hidden_and_and_is_a_union() {
        let device = Device::default();
        let hidden = Tensor::<4, Bool>::from_bool([[[[true, false]]]], &device);
        let visible = Tensor::<4, Bool>::from_bool([[[[true, false], [true, true]]]], &device);
        let both = AttentionMask::from_hidden(hidden).and(AttentionMask::from_visible(visible));
        assert_eq!(flags(both.hidden), [true, true, true, false]);
        assert!(AttentionMask::none().and(AttentionMask::causal()).is_causal());
    }
}
