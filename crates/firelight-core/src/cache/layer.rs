//! What one layer remembers: buffers that are filled in place, doubled when full, and rolled on where the layer keeps the
//! last tokens alone. A layer that keeps sums has no buffers.

use super::Retention;
use crate::attention::Sums;
use burn::tensor::{Int, Tensor};
use std::ops::Range;

/// Tokens that a buffer grows by at least. Beams copy whole buffers, so that the first one is for a sentence.
const GROWTH: usize = 16;

/// Tokens that a layer which keeps the last ones can go back by, and that it takes in before it rolls.
const CHUNK: usize = 64;

/// Keys and values of one layer.
#[derive(Debug, Clone)]
pub struct LayerCache {
    buffers: Option<(Tensor<4>, Tensor<4>)>,
    memory: Option<(Tensor<4>, Tensor<4>)>,
    sums: Option<Sums>,
    /// The token at the begin of the buffers; above 0 once the layer has let go of the first ones.
    first: usize,
    pub(super) len: usize,
    retention: Retention,
    capacity: usize,
}

impl LayerCache {
    pub(super) fn new(retention: Retention, capacity: usize) -> Self {
        Self { buffers: None, memory: None, sums: None, first: 0, len: 0, retention, capacity }
    }

    /// Appends keys and values, `[B, G, T, E]` and `[B, G, T, W]`, and returns those that the queries of these tokens can
    /// see: all that are remembered, or the last ones, `[B, G, K, E]` and `[B, G, K, W]`. Where sums stand for the past
    /// these are the new ones themselves, which the attention adds to the sums.
    ///
    /// # Panics
    /// If they do not fit into the capacity.
    pub fn extend(&mut self, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let length = key.dims()[2];
        let end = self.len + length;
        assert!(end <= self.capacity, "a cache of {} tokens cannot hold {end}", self.capacity);
        if self.retention == Retention::Sums {
            self.len = end;
            return (key, value);
        }
        let seen = self.keys(length);
        let from = seen.start - self.first;
        let (keys, values) =
            if end - self.first <= self.room() { self.append(key, value) } else { self.roll(key, value) };
        self.len = end;
        (keys.narrow(2, from, seen.len()), values.narrow(2, from, seen.len()))
    }

    /// Keys `[B, G, S, E]` and values `[B, G, S, W]` of the encoder's output, computed at the first call only.
    pub fn memory(&mut self, compute: impl FnOnce() -> (Tensor<4>, Tensor<4>)) -> (Tensor<4>, Tensor<4>) {
        self.memory.get_or_insert_with(compute).clone()
    }

    /// The tokens that the queries of the coming `length` tokens can see, by their place in the row.
    pub(super) fn keys(&self, length: usize) -> Range<usize> {
        let start = match self.retention {
            Retention::All => 0,
            Retention::Last(span) => self.len.saturating_sub(span),
            Retention::Sums => self.len,
        };
        start..self.len + length
    }

    /// Where the sums are that stand for the past, if they do.
    pub(crate) fn sums(&mut self) -> Option<&mut Option<Sums>> {
        (self.retention == Retention::Sums).then_some(&mut self.sums)
    }

    pub(super) fn retention(&self) -> Retention {
        self.retention
    }

    pub(super) fn num_elements(&self) -> usize {
        let count = |(key, value): &(Tensor<4>, Tensor<4>)| key.shape().num_elements() + value.shape().num_elements();
        let sums = self.sums.as_ref().map_or(0, |sums| sums.shape().num_elements());
        self.buffers.iter().chain(&self.memory).map(count).sum::<usize>() + sums
    }

    pub(super) fn clear(&mut self) {
        (self.first, self.len, self.memory, self.sums) = (0, 0, None, None);
    }

    pub(super) fn can_truncate(&self, len: usize) -> bool {
        let possible = match self.retention {
            Retention::All => true,
            Retention::Last(span) => self.first <= len.saturating_sub(span),
            Retention::Sums => false,
        };
        possible || len == 0 || len >= self.len
    }

    /// To `len` tokens, which [`can_truncate`](Self::can_truncate) has agreed to.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = len;
        if len == 0 {
            (self.first, self.sums) = (0, None);
        }
    }

    pub(super) fn select_tokens(&mut self, rows: &Tensor<1, Int>) {
        self.buffers = self.buffers.take().map(|(keys, values)| (select(keys, rows), select(values, rows)));
        self.sums = self.sums.take().map(|sums| sums.select(0, rows.clone()));
    }

    pub(super) fn select_memory(&mut self, rows: &Tensor<1, Int>) {
        self.memory = self.memory.take().map(|(keys, values)| (select(keys, rows), select(values, rows)));
    }

    /// Writes the new tokens behind the old ones and returns the buffers, which are longer than what they hold.
    fn append(&mut self, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let held = self.len - self.first;
        let end = held + key.dims()[2];
        let (mut keys, mut values) = match self.buffers.take() {
            Some((keys, values)) if self.len > 0 || fits(&keys, &key) => {
                (self.grow(keys, held, end), self.grow(values, held, end))
            }
            _ => (self.buffer(&key, end), self.buffer(&value, end)),
        };
        write(&mut keys, key, held);
        write(&mut values, value, held);
        self.buffers.insert((keys, values)).clone()
    }

    /// Lets go of the first tokens and begins new buffers with the last ones. Returns what was held, with the new tokens.
    fn roll(&mut self, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let held = self.len - self.first;
        let whole = match self.buffers.take().filter(|_| held > 0) {
            Some((keys, values)) => {
                let join = |old: Tensor<4>, new| Tensor::cat(vec![old.narrow(2, 0, held), new], 2);
                (join(keys, key), join(values, value))
            }
            None => (key, value),
        };
        let end = whole.0.dims()[2];
        let kept = end.min(self.room() - CHUNK);
        let last = |whole: &Tensor<4>| {
            let mut buffer = self.buffer(whole, self.room());
            write(&mut buffer, whole.clone().narrow(2, end - kept, kept), 0);
            buffer
        };
        self.buffers = Some((last(&whole.0), last(&whole.1)));
        self.first += end - kept;
        whole
    }

    /// Tokens that a buffer can have at most: beside those in sight some to go back by, and some to fill before it rolls.
    fn room(&self) -> usize {
        match self.retention {
            Retention::All | Retention::Sums => self.capacity,
            Retention::Last(span) => span.saturating_add(2 * CHUNK).min(self.capacity),
        }
    }

    /// A buffer for `end` tokens at least.
    fn buffer(&self, like: &Tensor<4>, end: usize) -> Tensor<4> {
        let [batch, groups, _, width] = like.dims();
        let room = end.next_multiple_of(GROWTH).min(self.room());
        Tensor::zeros([batch, groups, room, width], (&like.device(), like.dtype()))
    }

    /// The buffer itself when `end` tokens fit, else one of twice the size with the same tokens.
    fn grow(&self, buffer: Tensor<4>, held: usize, end: usize) -> Tensor<4> {
        let room = buffer.dims()[2];
        if end <= room {
            return buffer;
        }
        let mut larger = self.buffer(&buffer, end.max(2 * room));
        if held > 0 {
            write(&mut larger, buffer.narrow(2, 0, held), 0);
        }
        larger
    }
}

/// A row is one piece of memory: over two dimensions flex copies rows on all cores, over four on one.
fn select(buffer: Tensor<4>, rows: &Tensor<1, Int>) -> Tensor<4> {
    let [batch, groups, length, width] = buffer.dims();
    let chosen = buffer.reshape([batch, groups * length * width]).select(0, rows.clone());
    chosen.reshape([rows.dims()[0], groups, length, width])
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

    fn extend(layer: &mut LayerCache, values: &[f32]) -> Vec<f32> {
        let device = Device::default();
        let (key, value) = layer.extend(row(values, &device), row(values, &device));
        key.clone().into_data().assert_eq(&value.into_data(), true);
        key.try_to_vec_as::<f32>().expect("a host copy")
    }

    fn room(layer: &LayerCache) -> usize {
        layer.buffers.as_ref().expect("filled").0.dims()[2]
    }

    #[test]
    fn steps_append_and_clear_forgets() {
        let device = Device::default();
        let mut layer = LayerCache::new(Retention::All, 4);
        layer.extend(row(&[1.0, 2.0], &device), row(&[1.0, 2.0], &device));
        let (key, _) = layer.extend(row(&[3.0], &device), row(&[3.0], &device));
        key.into_data().assert_eq(&TensorData::from([[[[1.0f32], [2.0], [3.0]]]]), false);
        assert_eq!(layer.len, 3);
        layer.clear();
        assert_eq!(layer.len, 0);
        // A cleared cache serves another batch size.
        let two = Tensor::<4>::ones([2, 1, 1, 1], &device);
        assert_eq!(layer.extend(two.clone(), two).0.dims(), [2, 1, 1, 1]);
    }

    #[test]
    fn buffers_grow_and_keep_what_they_hold() {
        let mut layer = LayerCache::new(Retention::All, 150);
        let values: Vec<f32> = (0..150).map(|i| i as f32).collect();
        let mut rooms = Vec::new();
        for (i, part) in values.chunks(30).enumerate() {
            assert_eq!(extend(&mut layer, part), values[..30 * (i + 1)]);
            rooms.push(room(&layer));
        }
        assert_eq!(rooms, [32, 64, 128, 128, 150]);
    }

    #[test]
    fn a_rolling_buffer_has_a_bound_and_all_that_is_in_sight() {
        let values: Vec<f32> = (0..2000).map(|i| i as f32).collect();
        // A window of 20 back; parts below, at and above what a buffer holds.
        for part in [1, 7, 64, 100, 148, 149, 400] {
            let mut layer = LayerCache::new(Retention::Last(20), usize::MAX);
            let mut start: usize = 0;
            for part in values.chunks(part) {
                let end = start + part.len();
                assert_eq!(extend(&mut layer, part), values[start.saturating_sub(20)..end]);
                assert!(room(&layer) <= 20 + 2 * CHUNK, "{}", room(&layer));
                start = end;
            }
            assert_eq!(layer.num_elements(), 2 * (20 + 2 * CHUNK));
        }
    }

    #[test]
    fn the_last_64_tokens_of_a_rolling_buffer_can_be_forgotten_at_any_time() {
        for part in [1, 7, 64, 100, 400] {
            let mut layer = LayerCache::new(Retention::Last(20), usize::MAX);
            let mut length: usize = 0;
            while length < 1200 {
                let new: Vec<f32> = (length..length + part).map(|i| i as f32).collect();
                extend(&mut layer, &new);
                length += part;
                let back = length.saturating_sub(64);
                assert!(layer.can_truncate(back), "{length} tokens in parts of {part}");
                let mut guess = layer.clone();
                guess.truncate(back);
                let mut expected: Vec<f32> = (back.saturating_sub(20)..back).map(|i| i as f32).collect();
                expected.push(-1.0);
                assert_eq!(extend(&mut guess, &[-1.0]), expected);
            }
            assert!(!layer.can_truncate(500) && layer.can_truncate(0));
        }
    }

    #[test]
    fn a_window_longer_than_the_capacity_is_a_full_cache() {
        let mut layer = LayerCache::new(Retention::Last(usize::MAX), 100);
        let values: Vec<f32> = (0..100).map(|i| i as f32).collect();
        extend(&mut layer, &values[..90]);
        assert_eq!(extend(&mut layer, &values[90..]), values);
        assert!(layer.can_truncate(1) && room(&layer) == 100);
    }

    #[test]
    fn rows_are_reordered_and_repeated() {
        let device = Device::default();
        let mut layer = LayerCache::new(Retention::All, 1);
        let batch = Tensor::<1>::from_floats([1.0, 2.0], &device).reshape([2, 1, 1, 1]);
        layer.extend(batch.clone(), batch);
        layer.select_tokens(&Tensor::from_ints([1, 1, 0], &device));
        let (keys, _) = layer.buffers.expect("filled");
        assert_eq!(keys.try_to_vec_as::<f32>().expect("a host copy"), [2.0, 2.0, 1.0]);
    }

    #[test]
    #[should_panic(expected = "a cache of 1 tokens cannot hold 2")]
    fn a_full_cache_panics() {
        extend(&mut LayerCache::new(Retention::All, 1), &[1.0, 2.0]);
    }
}
