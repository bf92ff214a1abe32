//! Which keys are hidden from which queries: a rule of positions, padded keys, and single pairs where somebody gives them. The
//! only file that knows that true means hidden, and the only one that combines masks.
//!
//! Source: Vaswani et al. 2017, §3.2.3 (<https://arxiv.org/abs/1706.03762>): illegal connections have a score of -∞, and so a
//! weight of 0. Different here: a row in which all is hidden has weights of 0 in the place of NaN.

use crate::rule::PairRule;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use std::sync::{Arc, Mutex, PoisonError};

/// An attention mask: the pairs hidden by a rule, by padding, or by a tensor of flags. The default hides none.
///
/// The last query stands at the last key, so that cached steps see their whole past.
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use firelight_kernels::{AttentionMask, PairRule};
///
/// let tokens = Tensor::<2, Int>::from_ints([[5, 6, 0]], &Device::flex()); // 0 pads
/// let mask = AttentionMask::rule(PairRule::window(1, 1)).and(AttentionMask::from_ids(tokens, 0));
/// assert!(!mask.is_causal());
/// ```
#[doc(alias = "attn_mask")]
#[derive(Debug, Clone, Default)]
pub struct AttentionMask {
    pub(crate) rule: PairRule,
    /// Position of the first key.
    pub(crate) start: usize,
    /// `[B, K]`.
    pub(crate) padding: Option<Tensor<2, Bool>>,
    /// `[B | 1, H | 1, Q | 1, K]`.
    pub(crate) hidden: Option<Tensor<4, Bool>>,
    /// What the rule hides, for those who form all pairs. Clones share it, and so the layers of a pass do.
    pairs: RulePairs,
}

impl AttentionMask {
    /// Hides nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Hides the future.
    pub fn causal() -> Self {
        Self::rule(PairRule::Causal)
    }

    /// Hides what a rule hides, by the positions of tokens. The first key stands at position 0, if
    /// [`starting_at`](Self::starting_at) says nothing else.
    pub fn rule(rule: PairRule) -> Self {
        Self { rule, ..Self::default() }
    }

    /// Sets the position of the first key, where a cache has let go of those before it.
    pub fn starting_at(self, start: usize) -> Self {
        Self { start, pairs: RulePairs::default(), ..self }
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
        let flags: Vec<bool> = lengths.iter().flat_map(|&length| (0..key_len).map(move |key| key >= length)).collect();
        Self::padding(Tensor::from_bool(TensorData::new(flags, [lengths.len(), key_len]), device))
    }

    /// Hides single pairs: `[B | 1, H | 1, Q | 1, K]`, true where a pair is hidden, as in PyTorch's
    /// `MultiheadAttention`.
    pub fn from_hidden(hidden: Tensor<4, Bool>) -> Self {
        Self { hidden: Some(hidden), ..Self::default() }
    }

    /// The opposite convention: `[B | 1, H | 1, Q | 1, K]`, true where the query sees the key, as in PyTorch's
    /// `scaled_dot_product_attention` and the `attention_mask` of Hugging Face.
    pub fn from_visible(visible: Tensor<4, Bool>) -> Self {
        Self::from_hidden(visible.bool_not())
    }

    /// A mask that is made to be added to scores: `[B | 1, H | 1, Q | 1, K]`, 0 where the query sees the key, and -∞, -1e9 or
    /// the lowest number of a type where it does not. Everything down to -1e4 hides; numbers above are a bias, which belongs
    /// into [`AttentionOptions::bias`](crate::AttentionOptions::bias), and are taken for 0.
    pub fn from_additive(mask: Tensor<4>) -> Self {
        Self::from_hidden(mask.lower_equal_scalar(-1e4))
    }

    /// Hides what either mask hides.
    ///
    /// # Panics
    /// If both have rules and their first keys stand at different positions, or their shapes do not fit.
    pub fn and(self, other: Self) -> Self {
        let start = match (&self.rule, &other.rule) {
            (_, PairRule::Full) => self.start,
            (PairRule::Full, _) => other.start,
            _ => {
                let starts = [self.start, other.start];
                assert!(starts[0] == starts[1], "mask: rules whose first keys stand at {starts:?} cannot be joined");
                self.start
            }
        };
        Self {
            rule: self.rule.and(other.rule),
            start,
            padding: either(self.padding, other.padding),
            hidden: either(self.hidden, other.hidden),
            pairs: RulePairs::default(),
        }
    }

    /// Whether the future is hidden, as far as the rule tells.
    pub fn is_causal(&self) -> bool {
        self.rule.is_causal()
    }

    /// The rule of positions.
    pub fn pair_rule(&self) -> &PairRule {
        &self.rule
    }

    /// Which keys are padding, `[B, K]`.
    pub fn padded_keys(&self) -> Option<&Tensor<2, Bool>> {
        self.padding.as_ref()
    }

    /// The pairs that are given one by one, `[B | 1, H | 1, Q | 1, K]`.
    pub fn hidden_pairs(&self) -> Option<&Tensor<4, Bool>> {
        self.hidden.as_ref()
    }

    /// All that is hidden, as pairs: for scores of the shape `[B, H, Q, K]` a tensor that broadcasts to it, or none when every
    /// query sees every key. It is filled on the host, pair by pair, once for a mask and its clones: what any mask means, for those who
    /// form all pairs anyway.
    pub fn all_hidden_pairs(&self, [batch, _, queries, keys]: [usize; 4], device: &Device) -> Option<Tensor<4, Bool>> {
        if batch * queries * keys == 0 {
            return None;
        }
        let padding = self.padding.clone().map(|padding| padding.reshape([batch, 1, 1, keys]));
        let rule = self.pairs_of_rule([batch, queries, keys], device);
        [padding, rule, self.hidden.clone()].into_iter().fold(None, either)
    }

    fn pairs_of_rule(&self, [batch, queries, keys]: [usize; 3], device: &Device) -> Option<Tensor<4, Bool>> {
        if matches!(self.rule, PairRule::Full) {
            return None;
        }
        let rows = if self.rule.varies_by_row() { batch } else { 1 };
        let hidden = self.pairs.get_or_form([rows, queries, keys], |shape| self.form_pairs(shape));
        hidden.map(|hidden| Tensor::from_bool(hidden, device))
    }

    /// `[B | 1, 1, Q, K]`, where any pair is hidden.
    fn form_pairs(&self, [rows, queries, keys]: [usize; 3]) -> Option<TensorData> {
        let first = self.start + keys - queries;
        let pairs = (0..rows).flat_map(|row| (0..queries).map(move |query| (row, first + query)));
        let hidden = |(row, query)| (0..keys).map(move |key| self.rule.hidden(row, query, self.start + key));
        let hidden: Vec<bool> = pairs.flat_map(hidden).collect();
        hidden.contains(&true).then(|| TensorData::new(hidden, [rows, 1, queries, keys]))
    }

    /// Must fit the scores, `[B, H, Q, K]`.
    pub(super) fn check(&self, scores: [usize; 4]) {
        let [batch, _, queries, keys] = scores;
        if let Some(padding) = &self.padding {
            assert!(padding.dims() == [batch, keys], "attention: padding {:?} is not [B, K]", padding.dims());
        }
        if let Some(hidden) = &self.hidden {
            let fits = hidden.dims().iter().zip(scores).all(|(size, whole)| *size == 1 || *size == whole);
            assert!(fits, "attention: hidden {:?} does not fit the scores {scores:?}", hidden.dims());
        }
        let placed = matches!(self.rule, PairRule::Full) || queries <= self.start + keys;
        assert!(
            placed,
            "attention: of {queries} queries the last stands at the last of {keys} keys, and the first before \
             position 0, where a rule knows nothing"
        );
    }
}

/// The pairs that a rule hides, formed by the first layer that asks. They are kept on the host: a block that is computed twice has graphs
/// of its own, which share no tensor.
#[derive(Debug, Clone, Default)]
struct RulePairs(Arc<Mutex<Option<Formed>>>);

/// Pairs of so many rows, queries and keys.
#[derive(Debug)]
struct Formed {
    shape: [usize; 3],
    hidden: Option<TensorData>,
}

impl RulePairs {
    fn get_or_form(
        &self,
        shape: [usize; 3],
        form: impl FnOnce([usize; 3]) -> Option<TensorData>,
    ) -> Option<TensorData> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(formed) = known.as_ref().filter(|formed| formed.shape == shape) {
            return formed.hidden.clone();
        }
        let hidden = form(shape);
        *known = Some(Formed { shape, hidden: hidden.clone() });
        hidden
    }
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
    use crate::rule::MaskRule;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
    fn documents_and_chunks_are_hidden_from_each_other() {
        let device = Device::default();
        let pairs = |mask: AttentionMask| flags(mask.all_hidden_pairs([1, 1, 2, 3], &device));
        let documents =
            |names: [i64; 3]| AttentionMask::rule(PairRule::documents(&Tensor::from_ints([names], &device)));
        assert_eq!(pairs(documents([3, 3, 1])), [false, false, true, true, true, false]);
        assert_eq!(pairs(documents([3, 3, 1]).and(documents([5, 6, 6]))), [true, false, true, true, true, false]);
        // Keys at positions 1, 2 and 3, chunks of two: the first is in one, the others in another.
        let chunks = AttentionMask::rule(PairRule::Chunks { size: 2 }).starting_at(1);
        assert_eq!(pairs(AttentionMask::none().and(chunks)), [true, false, false, true, false, false]);
    }

    /// Hides odd keys, and counts how often it is asked.
    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);

    impl MaskRule for Counted {
        fn hidden(&self, _row: usize, _query: usize, key: usize) -> bool {
            self.0.fetch_add(1, Relaxed);
            key % 2 == 1
        }

        fn varies_by_row(&self) -> bool {
            false
        }
    }

    #[test]
    fn the_layers_of_a_pass_form_the_pairs_of_a_rule_once() {
        let (device, asked) = (Device::default(), Arc::new(AtomicUsize::new(0)));
        let pairs = |mask: &AttentionMask, keys| flags(mask.all_hidden_pairs([2, 3, 2, keys], &device));
        let mask = AttentionMask::rule(PairRule::custom(Counted(asked.clone())));
        for layer in [mask.clone(), mask.clone(), mask.clone()] {
            assert_eq!(pairs(&layer, 2), [false, true, false, true]);
        }
        assert_eq!(asked.load(Relaxed), 4);
        // Another number of keys, another first key and another rule have pairs of their own.
        assert_eq!(pairs(&mask, 3), [false, true, false, false, true, false]);
        assert_eq!(pairs(&mask.clone().starting_at(1), 2), [true, false, true, false]);
        let itself = AttentionMask::rule(PairRule::window(0, 0));
        assert_eq!(pairs(&mask.clone().and(itself), 2), [false, true, true, true]);
        assert_eq!(pairs(&mask, 2), [false, true, false, true]);
    }

    #[test]
    #[should_panic(expected = "rules whose first keys stand at [0, 1] cannot be joined")]
    fn rules_at_different_positions_cannot_be_joined() {
        let _ = AttentionMask::causal().and(AttentionMask::causal().starting_at(1));
    }

    #[test]
    fn every_convention_means_the_same() {
        let device = Device::default();
        let hidden = Tensor::<4, Bool>::from_bool([[[[true, false, true]]]], &device);
        let low = [f32::NEG_INFINITY, 0.0, -1e9];
        let masks = [
            AttentionMask::from_hidden(hidden.clone()),
            AttentionMask::from_visible(hidden.bool_not()),
            AttentionMask::from_additive(Tensor::from_floats([[[low]]], &device)),
        ];
        for mask in masks {
            assert_eq!(flags(mask.hidden), [true, false, true]);
        }
    }

    #[test]
    fn and_hides_what_either_hides() {
        let device = Device::default();
        let hidden = Tensor::<4, Bool>::from_bool([[[[true, false]]]], &device);
        let visible = Tensor::<4, Bool>::from_bool([[[[true, false], [true, true]]]], &device);
        let both = AttentionMask::from_hidden(hidden).and(AttentionMask::from_visible(visible));
        assert_eq!(flags(both.hidden), [true, true, true, false]);
        assert!(AttentionMask::none().and(AttentionMask::causal()).is_causal());
    }
}
