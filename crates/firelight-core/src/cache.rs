//! What a decoder remembers between steps: the keys and values of every layer, all of them or those that a query can
//! still see, and which tokens are padding or of which document.

mod layer;

pub use layer::LayerCache;

use burn::tensor::{Bool, Int, Tensor};
use std::ops::Range;

/// What a layer keeps of its past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retention {
    /// The keys and values of every token.
    All,
    /// Those that a query can see which looks back this many tokens and no further: memory that has a bound however long
    /// the text becomes.
    Last(usize),
    /// Sums of keys and values whose size does not depend on the length, as linear attention reads them.
    Sums,
}

/// Keys and values of all layers, which of them are padding, and of which document they are.
///
/// ```
/// use firelight_core::Cache;
///
/// let cache = Cache::new(2, 16); // 2 layers, 16 tokens
/// assert_eq!((cache.len(), cache.capacity()), (0, 16));
/// ```
#[derive(Debug, Clone)]
pub struct Cache {
    layers: Vec<LayerCache>,
    padding: Option<Tensor<2, Bool>>,
    documents: Option<Tensor<2, Int>>,
    capacity: usize,
}

impl Cache {
    /// An empty cache for `n_layers` layers and up to `capacity` tokens. The buffers are made at the first pass, when
    /// their shape and type are known, and grow with the text.
    pub fn new(n_layers: usize, capacity: usize) -> Self {
        Self::with_retention(vec![Retention::All; n_layers], capacity)
    }

    /// An empty cache with a layer for each of `retentions`, as [`Transformer::cache`](crate::Transformer::cache) makes it
    /// for the patterns of a stack. Of the flags of padding and documents every layer keeps all: a byte or a number a
    /// token.
    pub fn with_retention(retentions: impl IntoIterator<Item = Retention>, capacity: usize) -> Self {
        let layers = retentions.into_iter().map(|retention| LayerCache::new(retention, capacity)).collect();
        Self { layers, padding: None, documents: None, capacity }
    }

    /// Number of tokens remembered.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.len)
    }

    /// Whether nothing is remembered yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of tokens that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Numbers that there is memory for, in all layers: keys and values or their sums, and those of an encoder's output.
    pub fn num_elements(&self) -> usize {
        self.layers.iter().map(LayerCache::num_elements).sum()
    }

    /// Forgets everything and keeps the buffers.
    pub fn clear(&mut self) {
        (self.padding, self.documents) = (None, None);
        self.layers.iter_mut().for_each(LayerCache::clear);
    }

    /// Whether [`truncate`](Self::truncate) can go back to `len` tokens: always where every layer keeps all, and always to
    /// 0. A layer that keeps the last tokens has 64 more than its queries see, so that of the most that it ever held the
    /// last 64 can be forgotten. A layer that keeps sums can forget all or nothing.
    pub fn can_truncate(&self, len: usize) -> bool {
        self.layers.iter().all(|layer| layer.can_truncate(len))
    }

    /// Forgets the tokens from `len` on, as after a guess that was refused. Nothing changes when there are fewer.
    ///
    /// # Panics
    /// If a layer has let go of what the token after `len` sees: [`can_truncate`](Self::can_truncate) tells.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        assert!(
            self.can_truncate(len),
            "a cache of {} tokens cannot go back to {len}: a layer has let go of tokens that the next one sees",
            self.len()
        );
        self.padding = self.padding.take().filter(|_| len > 0).map(|padding| padding.narrow(1, 0, len));
        self.documents = self.documents.take().filter(|_| len > 0).map(|documents| documents.narrow(1, 0, len));
        for layer in &mut self.layers {
            layer.truncate(len);
        }
    }

    /// Keeps the batch rows `rows`, in their order and as often as they are named: `[B']`.
    pub fn select_rows(&mut self, rows: &Tensor<1, Int>) {
        self.select_tokens(rows);
        for layer in &mut self.layers {
            layer.select_memory(rows);
        }
    }

    /// As [`select_rows`](Self::select_rows), where every row takes the place of one that reads the same encoder's output,
    /// whose keys and values stay as they are: `rows` is `[B]`. Beams of one source do so at nearly every step.
    pub fn select_tokens(&mut self, rows: &Tensor<1, Int>) {
        // Through integers: on flex a selected boolean tensor has another element type, and cannot be concatenated.
        self.padding = self.padding.take().map(|padding| padding.int().select(0, rows.clone()).bool());
        self.documents = self.documents.take().map(|documents| documents.select(0, rows.clone()));
        for layer in &mut self.layers {
            layer.select_tokens(rows);
        }
    }

    /// Adds the padding of the coming tokens, `[B, T]`, and returns that of everything remembered with them, `[B, K]`.
    /// None while no token was padding.
    pub(crate) fn extend_padding(
        &mut self,
        padding: Option<Tensor<2, Bool>>,
        [batch, length]: [usize; 2],
    ) -> Option<Tensor<2, Bool>> {
        let device = padding.as_ref().or(self.padding.as_ref())?.device();
        let visible = |length: usize| Tensor::<2, Int>::zeros([batch, length], &device).bool();
        let past = self.len();
        let new = padding.unwrap_or_else(|| visible(length));
        let whole = match self.padding.take() {
            Some(old) => Tensor::cat(vec![old, new], 1),
            None if past == 0 => new,
            None => Tensor::cat(vec![visible(past), new], 1),
        };
        self.padding = Some(whole.clone());
        Some(whole)
    }

    /// Adds the documents of the coming tokens, `[B, T]`, and returns those of everything remembered with them, `[B, K]`.
    /// Tokens that name none belong to the last document of their row.
    ///
    /// # Panics
    /// If tokens without a document came before.
    pub(crate) fn extend_documents(
        &mut self,
        documents: Option<Tensor<2, Int>>,
        [batch, length]: [usize; 2],
    ) -> Option<Tensor<2, Int>> {
        let past = self.len();
        let whole = match (self.documents.take(), documents) {
            (None, None) => return None,
            (None, Some(new)) => {
                assert!(past == 0, "documents must be named from the first token on: the cache has {past} without");
                new
            }
            (Some(old), new) => {
                let last = old.clone().narrow(1, past - 1, 1);
                Tensor::cat(vec![old, new.unwrap_or_else(|| last.expand([batch, length]))], 1)
            }
        };
        self.documents = Some(whole.clone());
        Some(whole)
    }

    /// The tokens that layer `index` reads with `length` new ones, by their place in the row.
    pub(crate) fn keys(&self, index: usize, length: usize) -> Range<usize> {
        self.layers[index].keys(length)
    }

    pub(crate) fn layer(&mut self, index: usize) -> &mut LayerCache {
        &mut self.layers[index]
    }

    /// What every layer keeps.
    pub(crate) fn retentions(&self) -> impl Iterator<Item = Retention> {
        self.layers.iter().map(LayerCache::retention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn row(values: &[f32], device: &Device) -> Tensor<4> {
        Tensor::<1>::from_floats(values, device).reshape([1, 1, values.len(), 1])
    }

    #[test]
    fn a_truncated_cache_goes_on_as_if_the_rest_had_never_been() {
        let device = Device::default();
        let mut cache = Cache::new(1, 4);
        cache.extend_padding(Some(Tensor::from_bool([[true, false, false]], &device)), [1, 3]);
        cache.layer(0).extend(row(&[1.0, 2.0, 3.0], &device), row(&[1.0, 2.0, 3.0], &device));
        cache.truncate(9);
        assert_eq!(cache.len(), 3);
        cache.truncate(1);
        let padding = cache.extend_padding(None, [1, 1]).expect("a padded token");
        assert_eq!(padding.into_data().iter::<bool>().collect::<Vec<_>>(), [true, false]);
        let (key, _) = cache.layer(0).extend(row(&[7.0], &device), row(&[7.0], &device));
        assert_eq!(key.try_to_vec_as::<f32>().expect("a host copy"), [1.0, 7.0]);
        cache.truncate(0);
        assert!(cache.is_empty());
    }

    #[test]
    fn padding_is_known_of_every_token_from_the_first_padded_one_on() {
        let device = Device::default();
        let mut cache = Cache::new(1, 4);
        assert!(cache.extend_padding(None, [1, 2]).is_none());
        cache.layer(0).extend(row(&[1.0, 2.0], &device), row(&[1.0, 2.0], &device));
        let padding = Tensor::<2, Bool>::from_bool([[true]], &device);
        let whole = cache.extend_padding(Some(padding), [1, 1]).expect("a padded token");
        assert_eq!(whole.into_data().iter::<bool>().collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn a_token_without_a_document_belongs_to_the_last_one() {
        let device = Device::default();
        let mut cache = Cache::new(1, 4);
        let documents = Tensor::<2, Int>::from_ints([[4, 7]], &device);
        cache.extend_documents(Some(documents), [1, 2]);
        cache.layer(0).extend(row(&[1.0, 2.0], &device), row(&[1.0, 2.0], &device));
        let whole = cache.extend_documents(None, [1, 1]).expect("documents");
        assert_eq!(whole.try_to_vec_as::<i64>().expect("a host copy"), [4, 7, 7]);
    }

    #[test]
    fn selected_tokens_take_other_rows_and_leave_the_memory_where_it_is() {
        let device = Device::default();
        let two = |a: f32, b: f32| Tensor::<1>::from_floats([a, b], &device).reshape([2, 1, 1, 1]);
        let rows = Tensor::<1, Int>::from_ints([1, 1], &device);
        let selected = |select: fn(&mut Cache, &Tensor<1, Int>)| {
            let mut cache = Cache::new(1, 4);
            cache.extend_padding(Some(Tensor::from_bool([[false], [true]], &device)), [2, 1]);
            cache.layer(0).extend(two(1.0, 2.0), two(3.0, 4.0));
            cache.layer(0).memory(|| (two(5.0, 6.0), two(7.0, 8.0)));
            select(&mut cache, &rows);
            let padding = cache.extend_padding(None, [2, 1]).expect("a padded token").into_data();
            let (key, _) = cache.layer(0).extend(two(9.0, 9.0), two(9.0, 9.0));
            let (memory, _) = cache.layer(0).memory(|| unreachable!("it is remembered"));
            let numbers = |x: Tensor<4>| x.try_to_vec_as::<f32>().expect("a host copy");
            (padding.iter::<bool>().collect::<Vec<_>>(), numbers(key), numbers(memory))
        };
        let padding = vec![true, false, true, false];
        let tokens = vec![2.0, 9.0, 2.0, 9.0];
        assert_eq!(selected(Cache::select_tokens), (padding.clone(), tokens.clone(), vec![5.0, 6.0]));
        assert_eq!(selected(Cache::select_rows), (padding, tokens, vec![6.0, 6.0]));
    }

    #[test]
    fn a_mixed_cache_goes_back_as_far_as_its_shortest_layer() {
        let device = Device::default();
        let mut cache = Cache::with_retention([Retention::All, Retention::Last(2)], 1000);
        let steps = |cache: &mut Cache, count| {
            for _ in 0..count {
                for layer in 0..2 {
                    cache.layer(layer).extend(row(&[1.0], &device), row(&[1.0], &device));
                }
            }
        };
        steps(&mut cache, 300);
        assert_eq!((cache.keys(0, 3), cache.keys(1, 3)), (0..303, 298..303));
        assert!(cache.can_truncate(300 - 64) && !cache.can_truncate(100) && cache.can_truncate(0));
        cache.truncate(300 - 64);
        assert_eq!((cache.len(), cache.keys(1, 1)), (236, 234..237));
        cache.truncate(0);
        assert!(cache.is_empty());
    }

    #[test]
    #[should_panic(expected = "a cache of 300 tokens cannot go back to 100")]
    fn what_was_let_go_does_not_come_back() {
        let device = Device::default();
        let mut cache = Cache::with_retention([Retention::Last(2)], 1000);
        cache.layer(0).extend(row(&[1.0; 300], &device), row(&[1.0; 300], &device));
        cache.truncate(100);
    }
}
