//! What a decoder remembers between steps: the state of every layer, and which tokens are padding or of which document.

use crate::context::CrossKeyValues;
use crate::documents::{self, DocumentRows};
use crate::position::Positions;
use crate::state::{Compression, State, differing_sizes};
use burn::tensor::{Bool, Device, Int, Tensor};
use std::ops::Range;

/// The KV cache of a stack: the states of all layers, and for each token whether it is padding and which document it belongs to.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::TransformerConfig;
///
/// let cache = TransformerConfig::new(16, 4, 2).init(&Device::flex()).cache(16); // for 16 tokens
/// assert_eq!((cache.len(), cache.capacity()), (0, 16));
/// ```
#[doc(alias = "KV cache")]
#[derive(Debug, Clone)]
pub struct Cache {
    layers: Vec<LayerCache>,
    padding: Option<Tensor<2, Bool>>,
    documents: Option<Tensor<2, Int>>,
    /// `[B, K, A]`, where the tokens stand on several axes, if they do.
    coordinates: Option<Tensor<3>>,
    capacity: usize,
    /// How the layers that can compress what is old of the text.
    compression: Option<Compression>,
    /// Rows of the batch and their device, once something was read.
    batch: Option<(usize, Device)>,
    /// The shortest and the longest text that its keys were turned in.
    lengths: Option<[usize; 2]>,
}

/// The cache of one layer: the state of its token mixer, and the keys and values of an encoder's output.
#[derive(Debug, Clone)]
pub struct LayerCache {
    pub(crate) state: Box<dyn State>,
    cross: Option<CrossKeyValues>,
}

impl LayerCache {
    /// Keys and values of the encoder's output, computed at the first call only.
    pub(crate) fn cross(&mut self, compute: impl FnOnce() -> CrossKeyValues) -> CrossKeyValues {
        self.cross.get_or_insert_with(compute).clone()
    }

    fn select_cross(&mut self, rows: &Tensor<1, Int>) {
        self.cross = self.cross.take().map(|cross| cross.select_rows(rows));
    }

    fn join(&mut self, other: Self) {
        self.state.join(other.state);
        self.cross = match (self.cross.take(), other.cross) {
            (Some(cross), Some(more)) => Some(cross.join(more)),
            (cross, more) => cross.or(more),
        };
    }

    fn bytes(&self) -> usize {
        self.state.bytes() + self.cross.as_ref().map_or(0, CrossKeyValues::bytes)
    }
}

impl Cache {
    /// A cache of these states, one for each layer, for up to `capacity` tokens; [`Transformer::cache`](crate::Transformer::cache)
    /// makes those of a stack. Of the flags of padding and documents it keeps all: a byte or a number a token.
    pub fn new(states: impl IntoIterator<Item = Box<dyn State>>, capacity: usize) -> Self {
        let layers = states.into_iter().map(|state| LayerCache { state, cross: None }).collect();
        let (padding, documents, coordinates) = (None, None, None);
        Self { layers, padding, documents, coordinates, capacity, compression: None, batch: None, lengths: None }
    }

    /// Notes how the past is compressed in the states that do so.
    pub(crate) fn compressed_by(self, compression: Compression) -> Self {
        Self { compression: Some(compression), ..self }
    }

    /// How the past is compressed, if it is: by [`Transformer::compressed_cache`](crate::Transformer::compressed_cache). [`states`](Self::states) tells
    /// what each layer keeps.
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// Number of tokens remembered.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.state.len())
    }

    /// Whether nothing is remembered yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of tokens that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Memory that the states of all layers take, with the keys and values of an encoder's output.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(LayerCache::bytes).sum()
    }

    /// Forgets everything and keeps the buffers.
    pub fn clear(&mut self) {
        (self.padding, self.documents, self.batch, self.lengths) = (None, None, None, None);
        self.coordinates = None;
        for layer in &mut self.layers {
            layer.state.truncate(0);
            layer.cross = None;
        }
    }

    /// Whether [`truncate`](Self::truncate) can go back to `len` tokens: always where every layer keeps all, and always to
    /// 0. A layer that keeps the last tokens can forget the last 64 of the most that it ever held, one that compresses its past
    /// the tokens of the last pass at least, one that keeps sums all or nothing.
    pub fn can_truncate(&self, len: usize) -> bool {
        self.layers.iter().all(|layer| layer.state.can_truncate(len))
    }

    /// Forgets the tokens from `len` on, as after a guess that was refused. Nothing changes when there are fewer.
    ///
    /// # Panics
    /// If a layer has let go of what the token after `len` sees: [`can_truncate`](Self::can_truncate) tells.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        if let Some((index, layer)) = self.layers.iter().enumerate().find(|(_, layer)| !layer.state.can_truncate(len)) {
            let (held, keeps) = (self.len(), layer.state.keeps());
            panic!(
                "a cache of {held} tokens cannot go back to {len}: layer {index} keeps {keeps}, not what the next one sees"
            );
        }
        self.padding = self.padding.take().filter(|_| len > 0).map(|padding| padding.narrow(1, 0, len));
        self.documents = self.documents.take().filter(|_| len > 0).map(|documents| documents.narrow(1, 0, len));
        self.coordinates = self.coordinates.take().filter(|_| len > 0).map(|places| places.narrow(1, 0, len));
        self.batch = self.batch.take().filter(|_| len > 0);
        self.lengths = self.lengths.filter(|_| len > 0);
        for layer in &mut self.layers {
            layer.state.truncate(len);
        }
    }

    /// Keeps the batch rows `rows`, in their order and as often as they are named: `[B']`.
    pub fn select_rows(&mut self, rows: &Tensor<1, Int>) {
        self.select_tokens(rows);
        for layer in &mut self.layers {
            layer.select_cross(rows);
        }
    }

    /// As [`select_rows`](Self::select_rows), where every row takes the place of one that reads the same encoder's output,
    /// whose keys and values stay as they are: `rows` is `[B]`. Beams of one source do so at nearly every step.
    pub fn select_tokens(&mut self, rows: &Tensor<1, Int>) {
        self.batch = self.batch.take().map(|(_, device)| (rows.dims()[0], device));
        // Through integers: on flex a selected boolean tensor has another element type, and cannot be concatenated.
        self.padding = self.padding.take().map(|padding| padding.int().select(0, rows.clone()).bool());
        self.documents = self.documents.take().map(|documents| documents.select(0, rows.clone()));
        self.coordinates = self.coordinates.take().map(|places| places.select(0, rows.clone()));
        for layer in &mut self.layers {
            layer.state.select_rows(rows);
        }
    }

    /// Puts the rows of `other` below its own, so that both go on in one batch. The shorter rows are padded on the left and keep
    /// the positions of their tokens; so a pattern that counts padding, as chunks and global tokens do, sees other keys after
    /// it than before. The padding belongs to a document that no token has, and a text without documents is one. The shorter of
    /// two encoders' outputs is padded on the right, as [`EncoderOutput::join`](crate::EncoderOutput::join) pads it.
    ///
    /// # Panics
    /// If the caches are of different stacks, or both have coordinates, of different axes, or their pasts are compressed and not of
    /// one length.
    pub fn join(&mut self, other: Self) {
        self.check_layers(&other);
        // States that have read nothing take over those of the other cache.
        if self.is_empty() && !other.is_empty() {
            self.compression = other.compression;
        }
        let coordinates = joined_coordinates([&*self, &other]);
        (self.padding, self.documents) = (joined_padding([&*self, &other]), joined_documents([&*self, &other]));
        self.coordinates = coordinates;
        self.batch = match (self.batch.take(), other.batch) {
            (Some((rows, device)), Some((more, _))) => Some((rows + more, device)),
            (batch, more) => batch.or(more),
        };
        self.lengths = match (self.lengths, other.lengths) {
            (Some([short, long]), Some([shorter, longer])) => Some([short.min(shorter), long.max(longer)]),
            (lengths, more) => lengths.or(more),
        };
        self.capacity = self.capacity.max(other.capacity);
        self.layers.iter_mut().zip(other.layers).for_each(|(layer, other)| layer.join(other));
    }

    /// # Panics
    /// If the states of `other` are not of the same layers.
    fn check_layers(&self, other: &Self) {
        let [layers, others] = [self.layers.len(), other.layers.len()];
        assert!(
            layers == others,
            "caches of {layers} and {others} layers cannot be joined: they are of different stacks"
        );
        for (index, (layer, other)) in self.states().zip(other.states()).enumerate() {
            let differing = match layer.fits(other) {
                true => differing_sizes(layer, other),
                false => Some([layer.keeps(), other.keeps()]),
            };
            if let Some([here, there]) = differing {
                panic!("layer {index} has {here} in one cache and {there} in the other: they cannot be joined");
            }
        }
    }

    /// Notes the rows of a pass, and the tokens that they have with its own.
    ///
    /// # Panics
    /// If the cache has other rows.
    pub(crate) fn begin(&mut self, [rows, len]: [usize; 2], device: &Device) {
        let held = self.batch.as_ref().map_or(rows, |(held, _)| *held);
        assert!(
            held == rows,
            "a cache of {held} rows cannot be continued by {rows}: `select_rows` repeats and reorders them"
        );
        (self.batch, self.lengths) = (Some((rows, device.clone())), Some([len; 2]));
    }

    /// The shortest and the longest text that its keys were turned in.
    pub(crate) fn lengths(&self) -> Option<[usize; 2]> {
        self.lengths
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
            (Some(old), new) => documents::extended(old, new, [batch, length]),
        };
        self.documents = Some(whole.clone());
        Some(whole)
    }

    /// Adds where the coming tokens stand, `[1 | B, T, A]`, and returns that of everything remembered with them, `[B, K, A]`.
    /// Tokens without coordinates count on from the largest of the document that their row ended with, alike on every axis;
    /// padding is not counted.
    ///
    /// # Panics
    /// If tokens without coordinates came before, or the axes are not theirs.
    pub(crate) fn extend_coordinates(
        &mut self,
        coordinates: Option<Tensor<3>>,
        [batch, length]: [usize; 2],
    ) -> Option<Tensor<3>> {
        let past = self.len();
        let new = coordinates.map(|new| {
            let [_, _, axes] = new.dims();
            new.expand([batch, length, axes])
        });
        let whole = match (self.coordinates.take(), new) {
            (None, None) => return None,
            (None, Some(new)) => {
                assert!(past == 0, "coordinates must be given from the first token on: the cache has {past} without");
                new
            }
            (Some(old), Some(new)) => {
                let axes = [old.dims()[2], new.dims()[2]];
                assert!(axes[0] == axes[1], "{} coordinates a token do not go on from {}", axes[1], axes[0]);
                Tensor::cat(vec![old, new], 1)
            }
            (Some(old), None) => {
                let [_, _, axes] = old.dims();
                let new = self.largest_coordinate(old.clone()) + self.steps(length, &old.device());
                Tensor::cat(vec![old, new.expand([batch, length, axes])], 1)
            }
        };
        self.coordinates = Some(whole.clone());
        Some(whole)
    }

    /// The largest of the coordinates `[B, P, A]` of what was read before, in the document that each row ended with: `[B, 1, 1]`.
    fn largest_coordinate(&self, coordinates: Tensor<3>) -> Tensor<3> {
        let [batch, past, _] = coordinates.dims();
        let documents = self.documents.clone().map(|documents| documents.narrow(1, 0, past));
        let others = documents.map(|documents| {
            let last = documents.clone().narrow(1, past - 1, 1).expand([batch, past]);
            documents.not_equal(last)
        });
        let padding = self.padding.clone().map(|padding| padding.narrow(1, 0, past));
        let hidden = others.into_iter().chain(padding).reduce(Tensor::bool_or);
        let largest = coordinates.max_dim(2); // [B, P, 1]
        let largest = match hidden {
            Some(hidden) => largest.mask_fill(hidden.unsqueeze_dim(2), -1.0), // A row of padding has no token at 0.
            None => largest,
        };
        largest.max_dim(1)
    }

    /// How many tokens behind what was read before each of `length` new ones stands, padding not counted: `[1 | B, T, 1]`.
    fn steps(&self, length: usize, device: &Device) -> Tensor<3> {
        let steps = match &self.padding {
            Some(padding) => padding.clone().narrow(1, self.len(), length).bool_not().int().cumsum(1).clamp_min(1),
            None => Tensor::<1, Int>::arange(1..1 + length as i64, device).unsqueeze(),
        };
        steps.float().unsqueeze_dim(2)
    }

    /// Where its tokens stand on each of `axes`, `[B, P, A]`: where they have no coordinates, at their place in the text on all.
    fn places(&self, [rows, axes]: [usize; 2], device: &Device) -> Tensor<3> {
        if let Some(coordinates) = &self.coordinates {
            return coordinates.clone();
        }
        let len = self.len();
        let positions = Positions::of(self.documents.as_ref(), self.padding.as_ref(), 0..len);
        positions.index(device).float().unsqueeze_dim::<3>(2).expand([rows, len, axes])
    }

    /// The tokens that layer `index` reads with `length` new ones, by their position in the row.
    pub(crate) fn keys(&self, index: usize, length: usize) -> Range<usize> {
        self.layers[index].state.keys(length)
    }

    pub(crate) fn layer(&mut self, index: usize) -> &mut LayerCache {
        &mut self.layers[index]
    }

    /// The states of the layers.
    pub fn states(&self) -> impl Iterator<Item = &dyn State> {
        self.layers.iter().map(|layer| &*layer.state)
    }
}

/// Which tokens of joined rows are padding, `[B, T]`, if any are.
fn joined_padding(caches: [&Cache; 2]) -> Option<Tensor<2, Bool>> {
    let len = caches[0].len().max(caches[1].len());
    let none_is_padded = caches.iter().all(|cache| cache.padding.is_none() && cache.len() == len);
    let of_cache = |cache: &&Cache| {
        let (rows, device) = cache.batch.as_ref()?;
        let flags = |length, padded: bool| Tensor::<2, Int>::full([*rows, length], i64::from(padded), device);
        let own = cache.padding.clone().map_or_else(|| flags(cache.len(), false), |padding| padding.int());
        Some(Tensor::cat(vec![flags(len - cache.len(), true), own], 1))
    };
    (!none_is_padded).then(|| Tensor::cat(caches.iter().filter_map(of_cache).collect(), 0).bool())
}

/// Where the tokens of joined rows stand, `[B, K, A]`, if any have coordinates. Padding stands with the first token of its row.
///
/// # Panics
/// If they have coordinates of different axes.
fn joined_coordinates(caches: [&Cache; 2]) -> Option<Tensor<3>> {
    let mut axes = caches.iter().filter_map(|cache| cache.coordinates.as_ref()).map(|places| places.dims()[2]);
    let (found, other) = (axes.next()?, axes.next());
    let other = other.unwrap_or(found);
    assert!(found == other, "caches of {found} and {other} coordinates a token cannot be joined");
    let len = caches[0].len().max(caches[1].len());
    let of_cache = |cache: &&Cache| {
        let (rows, device) = cache.batch.as_ref()?;
        let (own, missing) = (cache.places([*rows, found], device), len - cache.len());
        let padding = (missing > 0).then(|| own.clone().narrow(1, 0, 1).expand([*rows, missing, found]));
        Some(Tensor::cat(padding.into_iter().chain([own]).collect(), 1))
    };
    Some(Tensor::cat(caches.iter().filter_map(of_cache).collect(), 0))
}

/// Of which document the tokens of joined rows are, `[B, T]`, if any are named. Padding has a smaller name than all tokens.
fn joined_documents(caches: [&Cache; 2]) -> Option<Tensor<2, Int>> {
    let of_cache = |cache: &Cache| {
        let (rows, device) = cache.batch.clone()?;
        Some(DocumentRows { documents: cache.documents.clone(), shape: [rows, cache.len()], device })
    };
    documents::joined(caches.into_iter().filter_map(of_cache).collect())
}

#[cfg(test)]
mod tests;
