//! The state of attention, commonly called the KV cache: keys and values in buffers that are filled in place, doubled when full,
//! and rolled on where a layer reads the last tokens alone. What is old may be compressed, or all be stored in fewer bits.

#[cfg(test)]
mod tests;

use super::stored::Stored;
use crate::pass::LayerPass;
use crate::state::{CacheType, Compression, FLOAT, State};
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
    max_lookback: Option<usize>,
    /// How old tokens are compressed, if they are; only where queries look back to all of them.
    compression: Option<Compression>,
    /// How keys and values are stored.
    cache_type: CacheType,
    /// Of the heads, the keys and the values, with their names.
    sizes: Option<[(&'static str, usize); 3]>,
    /// Heads of values, where they are not as many as those of keys.
    value_heads: Option<usize>,
    capacity: usize,
}

impl KeyValues {
    /// Tokens that can be taken back where only the last ones are kept. As many more are taken in before the buffers roll.
    pub const SPARE: usize = 64;

    /// Nothing yet, for up to `capacity` tokens. Where queries look `max_lookback` tokens back and no further, it keeps those and
    /// some to work with: memory that has a bound however long the text becomes.
    pub fn new(max_lookback: Option<usize>, capacity: usize) -> Self {
        Self {
            buffers: None,
            first: 0,
            len: 0,
            max_lookback,
            compression: None,
            cache_type: CacheType::Computed,
            sizes: None,
            value_heads: None,
            capacity,
        }
    }

    /// Names the number of key heads `G` and the widths `E` of a key and `W` of a value, by which a stack tells a cache that was made
    /// for another before it reads it, and its memory is counted before there is any.
    pub fn with_sizes(mut self, sizes: [(&'static str, usize); 3]) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// Sets the number of value heads, where it is not that of the key heads.
    pub(super) fn with_value_heads(mut self, heads: usize) -> Self {
        self.value_heads = Some(heads);
        self
    }

    /// How many tokens back queries may look; all of them if there is none.
    pub fn max_lookback(&self) -> Option<usize> {
        self.max_lookback
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

    /// Appends keys and values to the state of the layer, where the pass has a cache, and returns those that the queries of these
    /// tokens can see, for attention of your own. Without a cache it returns them as they are.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use firelight_core::{Cache, KeyValues, Pass, State};
    ///
    /// let mut cache = Cache::new([KeyValues::new(None, 5).boxed()], 5);
    /// let tokens = |length| Tensor::<4>::ones([1, 2, length, 4], &Device::flex());
    /// for (length, seen) in [(3, 3), (2, 5)] {
    ///     let mut pass = Pass::cached(&mut cache);
    ///     let (key, value) = KeyValues::append_to(&mut pass.layer(0), tokens(length), tokens(length));
    ///     assert_eq!([key.dims(), value.dims()], [[1, 2, seen, 4]; 2]);
    /// }
    /// let (key, _) = KeyValues::append_to(&mut Pass::default().layer(0), tokens(2), tokens(2));
    /// assert_eq!(key.dims(), [1, 2, 2, 4]);
    /// ```
    ///
    /// # Panics
    /// As [`append`](Self::append); if the state of the layer is of another kind.
    pub fn append_to(pass: &mut LayerPass, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        match pass.state() {
            Some(state) => state.expect_mut::<Self>().append(key, value),
            None => (key, value),
        }
    }

    /// The position of the first key that queries see behind `len` tokens.
    fn start(&self, len: usize) -> usize {
        match (self.max_lookback, self.compression) {
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
    fn room(&self) -> usize {
        match self.max_lookback {
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

    fn full_bytes(&self) -> Option<usize> {
        let [(_, heads), (_, d_key), (_, d_value)] = self.sizes?;
        let values = self.value_heads.unwrap_or(heads).saturating_mul(d_value);
        let numbers = heads.saturating_mul(d_key).saturating_add(values);
        Some(self.room().saturating_mul(numbers).saturating_mul(FLOAT))
    }

    fn fits(&self, needs: &dyn State) -> bool {
        needs.downcast_ref::<Self>().is_some_and(|needs| needs.max_lookback == self.max_lookback)
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
        let can = self.max_lookback.is_none() && self.cache_type == CacheType::Computed;
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
        let kept = match (self.max_lookback, self.compression) {
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
