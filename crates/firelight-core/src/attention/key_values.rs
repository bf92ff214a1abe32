//! The state of attention, commonly called the KV cache: keys and values in buffers that are filled in place, doubled when full,
//! and rolled on where a layer reads the last tokens alone. What is old may be compressed, or all be stored in fewer bits.

use super::stored::Stored;
use crate::state::{CacheType, Compression, State};
use burn::tensor::{DType, FloatDType, Int, Tensor};
use firelight_kernels::cast;
use std::ops::Range;

/// Tokens that a buffer grows by at least. Beams copy whole buffers, so that the first one is for a sentence.
const GROWTH: usize = 16;

/// The keys and values of the tokens so far, or of the last ones.
#[doc(alias = "KV cache")]
#[derive(Debug, Clone)]
pub struct KeyValues {
    buffers: Option<(Stored, Stored)>,
    /// The position of the first key in the buffers; above 0 once the first tokens are forgotten or compressed.
    first: usize,
    len: usize,
    /// How many tokens back the queries look; all of them if there is none.
    look_back: Option<usize>,
    /// How old tokens are compressed, if they are; only where queries look back to all of them.
    compression: Option<Compression>,
    /// How keys and values are stored.
    cache_type: CacheType,
    /// Of the heads, the keys and the values, with their names.
    sizes: Option<[(&'static str, usize); 3]>,
    capacity: usize,
}

impl KeyValues {
    /// Tokens that can be taken back where only the last ones are kept. As many more are taken in before the buffers roll.
    pub const SPARE: usize = 64;

    /// Nothing yet, for up to `capacity` tokens. Where queries look `look_back` tokens back and no further, it keeps those and
    /// some to work with: memory that has a bound however long the text becomes.
    pub fn new(look_back: Option<usize>, capacity: usize) -> Self {
        let (compression, cache_type, sizes) = (None, CacheType::Computed, None);
        Self { buffers: None, first: 0, len: 0, look_back, compression, cache_type, sizes, capacity }
    }

    /// Names the number of key heads `G` and the widths `E` of a key and `W` of a value, by which a stack tells a cache that was made
    /// for another before it reads it.
    pub fn with_sizes(mut self, sizes: [(&'static str, usize); 3]) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// How many tokens back queries may look; all of them if there is none.
    pub fn look_back(&self) -> Option<usize> {
        self.look_back
    }

    /// Appends keys and values, `[B, G, T, E]` and `[B, G, T, W]`, and returns those that the queries of these tokens can
    /// see, `[B, G, K, E]` and `[B, G, K, W]`: the tokens of [`keys`](State::keys). They are what is stored of all of them, the new
    /// ones included, as numbers of the type of the new ones.
    ///
    /// # Panics
    /// If they do not fit into the capacity, or have other heads or widths than those before.
    pub fn append(&mut self, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let dtypes = [&key, &value].map(|new| FloatDType::from(new.dtype()));
        let (keys, values) = self.append_narrow(key, value);
        (cast(keys, dtypes[0]), cast(values, dtypes[1]))
    }

    /// The same, but that numbers of half precision stay so beside those of single precision, for attention that reads them where they lie.
    pub(super) fn append_narrow(&mut self, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let (dtypes, length) = ([&key, &value].map(|new| FloatDType::from(new.dtype())), key.dims()[2]);
        self.check_sizes(key.dims(), value.dims());
        let end = self.len + length;
        assert!(end <= self.capacity, "a cache of {} tokens cannot hold {end}", self.capacity);
        self.compress_old(length);
        let seen = self.keys(length);
        let from = seen.start - self.first;
        let [key, value] = [key, value].map(|new| Stored::of(new, self.cache_type));
        let (keys, values) =
            if end - self.first <= self.room() { self.write_behind(key, value) } else { self.roll(key, value) };
        self.len = end;
        let read = |stored: Stored, dtype| beside(stored.narrow(from, seen.len()).floats(), dtype);
        (read(keys, dtypes[0]), read(values, dtypes[1]))
    }

    /// The position of the first key that queries see behind `len` tokens.
    fn start(&self, len: usize) -> usize {
        match (self.look_back, self.compression) {
            (Some(span), _) => len.saturating_sub(span),
            (None, Some(compression)) => compression.first(len),
            (None, None) => 0,
        }
    }

    /// Puts the means of what is old by now in its place, with room for `coming` tokens and for those until the next time.
    fn compress_old(&mut self, coming: usize) {
        let (Some(compression), later) = (self.compression, self.start(self.len)) else { return };
        if later <= self.first {
            return;
        }
        let (held, places) = (self.len - self.first, [self.first, later]);
        let pooled = |buffer: Stored| {
            let keys = compression.pooled(buffer.narrow(0, held).floats(), places);
            let keys = Stored::of(keys, self.cache_type);
            let mut buffer = self.buffer(&keys, keys.length() + coming + compression.rate);
            buffer.write(keys, 0);
            buffer
        };
        let buffers = self.buffers.clone().map(|(keys, values)| (pooled(keys), pooled(values)));
        (self.buffers, self.first) = (buffers, later);
    }

    /// # Panics
    /// If heads or widths are not those that the state was made for, or of what it holds.
    fn check_sizes(&self, key: [usize; 4], value: [usize; 4]) {
        let other = self.sizes().into_iter().zip(sizes_of(key, value)).find(|((_, size), new)| size != new);
        if let Some(((name, size), new)) = other {
            panic!("a state of {name} = {size} was given {name} = {new}: the cache was made for another stack");
        }
    }

    /// # Panics
    /// If texts are compressed and not in the same places: positions of means would be others in each row.
    fn check_compression(&self, other: &Self) {
        let compressed = self.compression.or(other.compression).is_some();
        let alike = (self.compression, self.len) == (other.compression, other.len);
        assert!(
            alike || !compressed,
            "texts of {} and {} tokens cannot join where the past is compressed: join texts of one length that are \
             compressed alike, or take a cache that keeps all tokens",
            self.len,
            other.len
        );
    }

    /// # Panics
    /// If the other stores its keys and values in another way.
    fn check_type(&self, other: &Self) {
        assert!(
            self.cache_type == other.cache_type,
            "a cache of type {} cannot be joined by one of type {}: make both with one type",
            self.cache_type,
            other.cache_type
        );
    }

    /// What is held from token `first` on, with `missing` tokens of zeros before all.
    fn held(&self, first: usize, missing: usize) -> Option<(Stored, Stored)> {
        let part = |buffer: &Stored| {
            let skipped = (first.saturating_sub(missing)).saturating_sub(self.first);
            let held = buffer.clone().narrow(skipped, self.len - self.first - skipped);
            match self.len + missing - first - held.length() {
                0 => held,
                padding => held.zeros(padding).followed_by(held, 2),
            }
        };
        self.buffers.as_ref().map(|(keys, values)| (part(keys), part(values)))
    }

    /// Writes the new tokens behind the old ones and returns the buffers, which are longer than what they hold.
    fn write_behind(&mut self, key: Stored, value: Stored) -> (Stored, Stored) {
        let held = self.len - self.first;
        let end = held + key.length();
        let (mut keys, mut values) = match self.buffers.take() {
            Some((keys, values)) if self.len > 0 || keys.fits(&key) => {
                (self.grow(keys, held, end), self.grow(values, held, end))
            }
            _ => (self.buffer(&key, end), self.buffer(&value, end)),
        };
        keys.write(key, held);
        values.write(value, held);
        self.buffers.insert((keys, values)).clone()
    }

    /// Lets go of the first tokens and begins new buffers with the last ones. Returns what was held, with the new tokens.
    fn roll(&mut self, key: Stored, value: Stored) -> (Stored, Stored) {
        let held = self.len - self.first;
        let whole = match self.buffers.take().filter(|_| held > 0) {
            Some((keys, values)) => {
                let join = |old: Stored, new| old.narrow(0, held).followed_by(new, 2);
                (join(keys, key), join(values, value))
            }
            None => (key, value),
        };
        let end = whole.0.length();
        let kept = end.min(self.room() - Self::SPARE);
        let last = |whole: &Stored| {
            let mut buffer = self.buffer(whole, self.room());
            buffer.write(whole.clone().narrow(end - kept, kept), 0);
            buffer
        };
        self.buffers = Some((last(&whole.0), last(&whole.1)));
        self.first += end - kept;
        whole
    }

    /// Tokens that a buffer can have at most: beside those in sight some to go back by, and some to fill before it rolls.
    pub(super) fn room(&self) -> usize {
        match self.look_back {
            None => self.capacity,
            Some(span) => span.saturating_add(2 * Self::SPARE).min(self.capacity),
        }
    }

    /// A buffer for `end` tokens at least.
    fn buffer(&self, like: &Stored, end: usize) -> Stored {
        like.zeros(end.next_multiple_of(GROWTH).min(self.room()))
    }

    /// The buffer itself when `end` tokens fit, else one of twice the size with the same tokens.
    fn grow(&self, buffer: Stored, held: usize, end: usize) -> Stored {
        let room = buffer.length();
        if end <= room {
            return buffer;
        }
        let mut larger = self.buffer(&buffer, end.max(2 * room));
        if held > 0 {
            larger.write(buffer.narrow(0, held), 0);
        }
        larger
    }
}

impl State for KeyValues {
    fn len(&self) -> usize {
        self.len
    }

    fn keys(&self, length: usize) -> Range<usize> {
        self.start(self.len)..self.len + length
    }

    /// Where all tokens are kept, always. Where the last ones are, 64 more are kept than queries see, so that of the most that
    /// it ever held the last 64 can be forgotten. Where old ones are compressed, to the beginning of the last pass, and before it as long
    /// as no more would be compressed there than is.
    fn can_truncate(&self, len: usize) -> bool {
        len == 0 || len >= self.len || self.first <= self.start(len)
    }

    fn truncate(&mut self, len: usize) {
        self.len = len;
        if len == 0 {
            self.first = 0;
        }
    }

    fn select_rows(&mut self, rows: &Tensor<1, Int>) {
        self.buffers = self.buffers.take().map(|(keys, values)| (keys.select(rows), values.select(rows)));
    }

    fn join(&mut self, other: Box<dyn State>) {
        let mut other: Self = other.expect();
        self.check_type(&other);
        // One that has read nothing has no rows, whatever its buffers once held.
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        self.check_compression(&other);
        self.compress_old(0);
        other.compress_old(0);
        let len = self.len.max(other.len);
        let missing = [&*self, &other].map(|state| len - state.len);
        // A row that has forgotten nothing may have any padding before it.
        let begin = |state: &Self, missing| if state.first == 0 { 0 } else { state.first + missing };
        let first = begin(self, missing[0]).max(begin(&other, missing[1]));
        let held = (self.held(first, missing[0]), other.held(first, missing[1]));
        if let (Some((keys, values)), Some((more_keys, more_values))) = held {
            self.buffers = Some((keys.followed_by(more_keys, 0), values.followed_by(more_values, 0)));
        }
        (self.first, self.len, self.capacity) = (first, len, self.capacity.max(other.capacity));
    }

    fn bytes(&self) -> usize {
        self.buffers.iter().map(|(keys, values)| keys.bytes() + values.bytes()).sum()
    }

    fn fits(&self, needs: &dyn State) -> bool {
        needs.downcast_ref::<Self>().is_some_and(|needs| needs.look_back == self.look_back)
    }

    /// Those that it was made for, or else those of what it holds.
    fn sizes(&self) -> Vec<(&'static str, usize)> {
        if let Some(sizes) = self.sizes {
            return sizes.to_vec();
        }
        let held = self.buffers.as_ref().filter(|_| self.len > 0);
        let held = held.map(|(keys, values)| sizes_of(keys.dims(), values.dims()));
        held.map_or_else(Vec::new, |held| ["n_kv_heads", "d_head", "d_value"].into_iter().zip(held).collect())
    }

    /// Where queries look back to all tokens; where they do not, memory has a bound as it is. What is stored in a type of its own stays
    /// as it is, for means would be rounded again and again.
    ///
    /// # Panics
    /// If a number of the compression is 0.
    fn compress(&mut self, compression: Compression) -> bool {
        assert!(compression.validate().is_ok(), "{compression:?} has a 0");
        let can = self.look_back.is_none() && self.cache_type == CacheType::Computed;
        self.compression = Some(compression).filter(|_| can);
        self.compression.is_some()
    }

    /// # Panics
    /// If it has read something.
    fn store_as(&mut self, cache_type: CacheType) -> bool {
        assert!(self.is_empty(), "{} tokens are stored as {}: take an empty cache", self.len, self.cache_type);
        let can = self.compression.is_none();
        if can {
            (self.cache_type, self.buffers) = (cache_type, None);
        }
        can
    }

    fn keeps(&self) -> String {
        let kept = match (self.look_back, self.compression) {
            (Some(span), _) => format!("the last {span} tokens"),
            (None, Some(Compression { recent, rate })) => {
                format!("the last {recent} tokens and the mean of every {rate} before them")
            }
            (None, None) => "all tokens".into(),
        };
        match self.cache_type {
            CacheType::Computed => kept,
            cache_type => format!("{kept} in {cache_type}"),
        }
    }

    fn boxed(&self) -> Box<dyn State> {
        Box::new(self.clone())
    }
}

/// What is stored in half precision stays so beside numbers of single precision, and has the type of any others.
fn beside(stored: Tensor<4>, dtype: FloatDType) -> Tensor<4> {
    let is_half = matches!(stored.dtype(), DType::F16 | DType::BF16);
    if is_half && dtype == FloatDType::F32 { stored } else { cast(stored, dtype) }
}

/// Number of key heads, and the widths of a key and a value.
fn sizes_of([_, heads, _, d_key]: [usize; 4], [_, _, _, d_value]: [usize; 4]) -> [usize; 3] {
    [heads, d_key, d_value]
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    fn row(values: &[f32], device: &Device) -> Tensor<4> {
        Tensor::<1>::from_floats(values, device).reshape([1, 1, values.len(), 1])
    }

    fn extend(layer: &mut KeyValues, values: &[f32]) -> Vec<f32> {
        let device = Device::default();
        let (key, value) = layer.append(row(values, &device), row(values, &device));
        key.clone().into_data().assert_eq(&value.into_data(), true);
        key.try_to_vec_as::<f32>().expect("a host copy")
    }

    fn room(layer: &KeyValues) -> usize {
        layer.buffers.as_ref().expect("filled").0.length()
    }

    #[test]
    fn steps_append_and_an_emptied_state_serves_another_batch() {
        let device = Device::default();
        let mut layer = KeyValues::new(None, 4);
        layer.append(row(&[1.0, 2.0], &device), row(&[1.0, 2.0], &device));
        let (key, _) = layer.append(row(&[3.0], &device), row(&[3.0], &device));
        key.into_data().assert_eq(&TensorData::from([[[[1.0f32], [2.0], [3.0]]]]), false);
        assert_eq!(layer.len, 3);
        layer.truncate(0);
        assert_eq!(layer.len, 0);
        // Emptied, it serves another batch size.
        let two = Tensor::<4>::ones([2, 1, 1, 1], &device);
        assert_eq!(layer.append(two.clone(), two).0.dims(), [2, 1, 1, 1]);
    }

    #[test]
    fn buffers_grow_and_keep_what_they_hold() {
        let mut layer = KeyValues::new(None, 150);
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
            let mut layer = KeyValues::new(Some(20), usize::MAX);
            let mut start: usize = 0;
            for part in values.chunks(part) {
                let end = start + part.len();
                assert_eq!(extend(&mut layer, part), values[start.saturating_sub(20)..end]);
                assert!(room(&layer) <= 20 + 2 * KeyValues::SPARE, "{}", room(&layer));
                start = end;
            }
            assert_eq!(layer.bytes(), 4 * 2 * (20 + 2 * KeyValues::SPARE));
        }
    }

    #[test]
    fn the_last_64_tokens_of_a_rolling_buffer_can_be_forgotten_at_any_time() {
        for part in [1, 7, 64, 100, 400] {
            let mut layer = KeyValues::new(Some(20), usize::MAX);
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
        let mut layer = KeyValues::new(Some(usize::MAX), 100);
        let values: Vec<f32> = (0..100).map(|i| i as f32).collect();
        extend(&mut layer, &values[..90]);
        assert_eq!(extend(&mut layer, &values[90..]), values);
        assert!(layer.can_truncate(1) && room(&layer) == 100);
    }

    #[test]
    fn rows_are_reordered_and_repeated() {
        let device = Device::default();
        let mut layer = KeyValues::new(None, 1);
        let batch = Tensor::<1>::from_floats([1.0, 2.0], &device).reshape([2, 1, 1, 1]);
        layer.append(batch.clone(), batch);
        layer.select_rows(&Tensor::from_ints([1, 1, 0], &device));
        let (keys, _) = layer.buffers.expect("filled");
        assert_eq!(keys.floats().try_to_vec_as::<f32>().expect("a host copy"), [2.0, 2.0, 1.0]);
    }

    #[test]
    #[should_panic(expected = "a cache of 1 tokens cannot hold 2")]
    fn a_full_cache_panics() {
        extend(&mut KeyValues::new(None, 1), &[1.0, 2.0]);
    }

    #[test]
    #[should_panic(expected = "a state of d_head = 1 was given d_head = 2: the cache was made for another stack")]
    fn a_state_of_other_widths_panics() {
        let mut state = KeyValues::new(None, 4);
        extend(&mut state, &[1.0]);
        let wide = Tensor::zeros([1, 1, 1, 2], &Device::default());
        state.append(wide.clone(), wide);
    }

    #[test]
    fn joined_rows_end_together_and_go_on_as_they_would_alone() {
        // All of a text, and the last 20 tokens of one: before and after they begin to forget.
        for (look_back, lengths) in [(None, [3, 7]), (None, [7, 3]), (Some(20), [5, 400]), (Some(20), [400, 290])] {
            let states = lengths.map(|length| {
                let mut state = KeyValues::new(look_back, 1000);
                (0..length).for_each(|i| drop(extend(&mut state, &[i as f32])));
                state
            });
            let [mut joined, other] = states.clone();
            joined.join(other.boxed());
            let longest = lengths[0].max(lengths[1]);
            assert_eq!(joined.len(), longest);
            let two = Tensor::<4>::from_floats([[[[-1.0]]], [[[-2.0]]]], &Device::default());
            let (keys, _) = joined.append(two.clone(), two);
            for (row, (mut alone, new)) in states.into_iter().zip([-1.0, -2.0]).enumerate() {
                let expected = extend(&mut alone, &[new]);
                let found = keys.clone().narrow(0, row, 1).try_to_vec_as::<f32>().expect("a host copy");
                assert!(found.ends_with(&expected), "{found:?} ends with {expected:?}");
            }
        }
    }

    #[test]
    fn a_state_that_has_read_nothing_adds_no_rows() {
        let mut emptied = KeyValues::new(None, 4);
        extend(&mut emptied, &[7.0, 8.0]);
        emptied.truncate(0);
        let mut full = KeyValues::new(None, 4);
        extend(&mut full, &[1.0]);
        for (mut one, other) in [(emptied.clone(), full.clone()), (full, emptied)] {
            one.join(other.boxed());
            assert_eq!(extend(&mut one, &[2.0]), [1.0, 2.0]);
        }
    }

    #[test]
    #[should_panic(
        expected = "a state that keeps all tokens is no RecurrentState<4>: the cache was made for another stack"
    )]
    fn a_state_of_another_kind_is_refused() {
        let mut state = KeyValues::new(None, 1).boxed();
        state.expect_mut::<crate::state::RecurrentState<4>>();
    }
}
