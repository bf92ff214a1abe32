//! What a gated delta rule carries from pass to pass.

use crate::documents::{self, DocumentRows};
use crate::state::{FLOAT, State, bytes_of, select};
use burn::tensor::{Int, Tensor};

/// A matrix for each head, and the last tokens before the convolution. Its size does not depend on the length of the text.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{
///     AttentionConfig, AttentionContext, AttentionMask, Cache, GatedDeltaConfig, LayerContext, PairRule, ParamBuilder, Pass, State,
///     TokenMixer,
/// };
///
/// let params = ParamBuilder::new(&Device::flex(), 0);
/// let mixer = GatedDeltaConfig::default().init_with(&AttentionConfig::new(8, 2), &params);
/// let mut cache = Cache::new([mixer.state(&PairRule::Causal, 100)], 100); // for 100 tokens
/// let attention = AttentionContext::masked(AttentionMask::causal());
/// let context = LayerContext { attention, ..LayerContext::default() };
/// for tokens in [5, 1] {
///     let x = Tensor::<3>::ones([1, tokens, 8], &Device::flex());
///     mixer.forward(x, &context, &mut Pass::cached(&mut cache).layer(0));
///     assert_eq!(cache.bytes(), 4 * (2 * 4 * 4 + 3 * 24)); // of whatever length
/// }
/// assert_eq!(cache.len(), 6);
/// ```
#[derive(Debug, Clone)]
pub struct GatedDeltaState {
    /// `[B, H, E, W]`, in single precision.
    pub(super) matrices: Option<Tensor<4>>,
    /// `[B, K - 1, C]`, the last tokens that are no padding; zeros before the first.
    pub(super) window: Option<Tensor<3>>,
    /// `[B, K - 1]`, the documents of the tokens in the window, so that the convolution reads none of another document. They are kept
    /// here since a pass names the documents of its own tokens alone, and the window leaves out the padding that the cache counts.
    pub(super) window_documents: Option<Tensor<2, Int>>,
    sizes: Option<[(&'static str, usize); 5]>,
    len: usize,
    capacity: usize,
}

impl GatedDeltaState {
    /// Nothing yet, for up to `capacity` tokens.
    pub fn new(capacity: usize) -> Self {
        Self { matrices: None, window: None, window_documents: None, sizes: None, len: 0, capacity }
    }

    /// Names the sizes of the layer that it is for: key heads, value heads, the widths of both, and the tokens of the convolution.
    pub(super) fn with_sizes(mut self, sizes: [(&'static str, usize); 5]) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// Counts the tokens of a pass.
    ///
    /// # Panics
    /// If they do not fit into the capacity.
    pub(super) fn extend(&mut self, length: usize) {
        let end = self.len + length;
        assert!(end <= self.capacity, "a cache of {} tokens cannot hold {end}", self.capacity);
        self.len = end;
    }
}

impl State for GatedDeltaState {
    fn len(&self) -> usize {
        self.len
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        if len == 0 {
            (self.matrices, self.window, self.window_documents) = (None, None, None);
        }
    }

    fn select_rows(&mut self, rows: &Tensor<1, Int>) {
        self.matrices = self.matrices.take().map(|matrices| select(matrices, rows));
        self.window = self.window.take().map(|window| window.select(0, rows.clone()));
        self.window_documents = self.window_documents.take().map(|documents| documents.select(0, rows.clone()));
    }

    fn join(&mut self, other: Box<dyn State>) {
        let other: Self = other.expect();
        self.window_documents = joined_documents([&*self, &other]);
        self.matrices = joined(self.matrices.take(), other.matrices);
        self.window = joined(self.window.take(), other.window);
        (self.len, self.capacity) = (self.len.max(other.len), self.capacity.max(other.capacity));
    }

    fn bytes(&self) -> usize {
        self.matrices.as_ref().map_or(0, bytes_of) + self.window.as_ref().map_or(0, bytes_of)
    }

    /// The matrices and the window.
    fn full_bytes(&self) -> Option<usize> {
        let [key_heads, value_heads, d_key, d_value, convolution] = self.sizes?.map(|(_, size)| size);
        let (keys, values) = (key_heads.saturating_mul(d_key), value_heads.saturating_mul(d_value));
        let channels = keys.saturating_mul(2).saturating_add(values);
        let window = channels.saturating_mul(convolution.saturating_sub(1));
        Some(values.saturating_mul(d_key).saturating_add(window).saturating_mul(FLOAT))
    }

    fn sizes(&self) -> Vec<(&'static str, usize)> {
        self.sizes.map_or_else(Vec::new, Vec::from)
    }

    fn keeps(&self) -> String {
        "a matrix of all tokens".into()
    }

    fn boxed(&self) -> Box<dyn State> {
        Box::new(self.clone())
    }
}

/// The documents of the windows of both, if any are named.
fn joined_documents(states: [&GatedDeltaState; 2]) -> Option<Tensor<2, Int>> {
    let of_state = |state: &GatedDeltaState| {
        let window = state.window.as_ref()?;
        let [rows, history_len, _] = window.dims();
        let documents = state.window_documents.clone();
        Some(DocumentRows { documents, shape: [rows, history_len], device: window.device() })
    };
    documents::joined(states.into_iter().filter_map(of_state).collect())
}

/// The rows of both, or of the one that has any.
fn joined<const D: usize>(above: Option<Tensor<D>>, below: Option<Tensor<D>>) -> Option<Tensor<D>> {
    match (above, below) {
        (Some(above), Some(below)) => Some(Tensor::cat(vec![above, below], 0)),
        (above, below) => above.or(below),
    }
}
