//! What a decoder remembers between steps: the keys and values of every layer, in buffers that are filled in place and
//! doubled when full, up to a capacity.

use burn::tensor::{Bool, Int, Tensor};

/// Tokens that a buffer grows by at least.
const CHUNK: usize = 64;

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
        Self { layers: vec![LayerCache::new(capacity); n_layers], padding: None, documents: None, capacity }
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

    /// Forgets everything and keeps the buffers.
    pub fn clear(&mut self) {
        (self.padding, self.documents) = (None, None);
        for layer in &mut self.layers {
            layer.len = 0;
            layer.memory = None;
        }
    }

    /// Forgets the tokens from `len` on, as after a guess that was refused. Nothing changes when there are fewer.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        self.padding = self.padding.take().filter(|_| len > 0).map(|padding| padding.narrow(1, 0, len));
        self.documents = self.documents.take().filter(|_| len > 0).map(|documents| documents.narrow(1, 0, len));
        for layer in &mut self.layers {
            layer.len = len;
        }
    }

    /// Keeps the batch rows `rows`, in their order and as often as they are named: `[B']`.
    pub fn select_rows(&mut self, rows: &Tensor<1, Int>) {
        self.padding = self.padding.take().map(|padding| padding.select(0, rows.clone()));
        self.documents = self.documents.take().map(|documents| documents.select(0, rows.clone()));
        for layer in &mut self.layers {
            layer.select_rows(rows);
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

    pub(crate) fn layer(&mut self, index: usize) -> &mut LayerCache {
        &mut self.layers[index]
    }
}

/// Keys and values of one layer.
#[derive(Debug, Clone)]
pub struct LayerCache {
    buffers: Option<(Tensor<4>, Tensor<4>)>,
    memory: Option<(Tensor<4>, Tensor<4>)>,
    len: usize,
    capacity: usize,
}

impl LayerCache {
    fn new(capacity: usize) -> Self {
        Self { buffers: None, memory: None, len: 0, capacity }
    }

    /// Appends keys and values, `[B, G, T, E]`, and returns all that are remembered, `[B, G, K, E]`.
    ///
    /// # Panics
    /// If they do not fit into the capacity.
    pub fn extend(&mut self, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let end = self.len + key.dims()[2];
        assert!(end <= self.capacity, "a cache of {} tokens cannot hold {end}", self.capacity);
        let (mut keys, mut values) = match self.buffers.take() {
            Some((keys, values)) if self.len > 0 || fits(&keys, &key) => (self.grow(keys, end), self.grow(values, end)),
            _ => (self.buffer(&key, end), self.buffer(&value, end)),
        };
        let start = self.len;
        write(&mut keys, key, start);
        write(&mut values, value, start);
        self.len = end;
        let seen = (keys.clone().narrow(2, 0, end), values.clone().narrow(2, 0, end));
        self.buffers = Some((keys, values));
        seen
    }

    /// Keys and values of the encoder's output, computed at the first call only.
    pub fn memory(&mut self, compute: impl FnOnce() -> (Tensor<4>, Tensor<4>)) -> (Tensor<4>, Tensor<4>) {
        self.memory.get_or_insert_with(compute).clone()
    }

    /// A buffer for `end` tokens at least, in whole chunks.
    fn buffer(&self, like: &Tensor<4>, end: usize) -> Tensor<4> {
        let [batch, groups, _, d_head] = like.dims();
        let room = end.next_multiple_of(CHUNK).min(self.capacity);
        Tensor::zeros([batch, groups, room, d_head], (&like.device(), like.dtype()))
    }

    /// The buffer itself when `end` tokens fit, else one of twice the size with the same tokens.
    fn grow(&self, buffer: Tensor<4>, end: usize) -> Tensor<4> {
        let room = buffer.dims()[2];
        if end <= room {
            return buffer;
        }
        let mut larger = self.buffer(&buffer, end.max(2 * room));
        if self.len > 0 {
            write(&mut larger, buffer.narrow(2, 0, self.len), 0);
        }
        larger
    }

    fn select_rows(&mut self, rows: &Tensor<1, Int>) {
        let select =
            |(key, value): (Tensor<4>, Tensor<4>)| (key.select(0, rows.clone()), value.select(0, rows.clone()));
        self.buffers = self.buffers.take().map(select);
        self.memory = self.memory.take().map(select);
    }
}

/// Whether a cleared buffer can be used again: a new text may come in another batch size.
fn fits(buffer: &Tensor<4>, new: &Tensor<4>) -> bool {
    let ([batch, groups, _, d_head], [new_batch, new_groups, _, new_d_head]) = (buffer.dims(), new.dims());
    [batch, groups, d_head] == [new_batch, new_groups, new_d_head]
        && (buffer.dtype(), buffer.device()) == (new.dtype(), new.device())
}

/// Writes in place as long as nobody else holds the buffer, which is so once the attention of the last step is done.
fn write(buffer: &mut Tensor<4>, new: Tensor<4>, start: usize) {
    let [batch, groups, length, d_head] = new.dims();
    buffer.inplace(|buffer| buffer.slice_assign([0..batch, 0..groups, start..start + length, 0..d_head], new));
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    fn row(values: &[f32], device: &Device) -> Tensor<4> {
        Tensor::<1>::from_floats(values, device).reshape([1, 1, values.len(), 1])
    }

    #[test]
    fn steps_append_and_clear_forgets() {
        let device = Device::default();
        let mut layer = LayerCache::new(4);
        layer.extend(row(&[1.0, 2.0], &device), row(&[1.0, 2.0], &device));
        let (key, _) = layer.extend(row(&[3.0], &device), row(&[3.0], &device));
        key.into_data().assert_eq(&TensorData::from([[[[1.0f32], [2.0], [3.0]]]]), false);
        let mut cache = Cache { layers: vec![layer], padding: None, documents: None, capacity: 4 };
        assert_eq!(cache.len(), 3);
        cache.clear();
        assert!(cache.is_empty());
        // A cleared cache serves another batch size.
        let two = Tensor::<4>::ones([2, 1, 1, 1], &device);
        assert_eq!(cache.layer(0).extend(two.clone(), two).0.dims(), [2, 1, 1, 1]);
    }

    #[test]
    fn buffers_grow_and_keep_what_they_hold() {
        let device = Device::default();
        let mut layer = LayerCache::new(150);
        let room = |layer: &LayerCache| layer.buffers.as_ref().expect("filled").0.dims()[2];
        let values: Vec<f32> = (0..150).map(|i| i as f32).collect();
        let mut rooms = Vec::new();
        for part in values.chunks(30) {
            let (key, _) = layer.extend(row(part, &device), row(part, &device));
            let expected = &values[..key.dims()[2]];
            assert_eq!(key.try_to_vec_as::<f32>().expect("a host copy"), expected);
            rooms.push(room(&layer));
        }
        assert_eq!(rooms, [64, 64, 128, 128, 150]);
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
    fn rows_are_reordered_and_repeated() {
        let device = Device::default();
        let mut layer = LayerCache::new(1);
        let batch = Tensor::<1>::from_floats([1.0, 2.0], &device).reshape([2, 1, 1, 1]);
        layer.extend(batch.clone(), batch);
        layer.select_rows(&Tensor::from_ints([1, 1, 0], &device));
        let (keys, _) = layer.buffers.expect("filled");
        assert_eq!(keys.try_to_vec_as::<f32>().expect("a host copy"), [2.0, 2.0, 1.0]);
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
    #[should_panic(expected = "a cache of 1 tokens cannot hold 2")]
    fn a_full_cache_panics() {
        let device = Device::default();
        LayerCache::new(1).extend(row(&[1.0, 2.0], &device), row(&[1.0, 2.0], &device));
    }
}
