//! The Transformer on embeddings: positions, blocks, final norm. Start reading here.
//!
//! Encoder, decoder and decoder with cross-attention are one type: the pattern and the memory make the difference.
//! Source: Vaswani et al. 2017 (<https://arxiv.org/abs/1706.03762>).

mod compressed;
mod config;
mod contexts;
mod cost;
mod typed;
mod visible;

pub use config::{LayerConfig, TransformerConfig};

use crate::attention::AttentionPattern;
use crate::block::TransformerBlock;
use crate::cache::Cache;
use crate::context::EncoderOutput;
use crate::dropout;
use crate::embedding::ProjectionPlacement;
use crate::layer::Layer;
use crate::linear::Linear;
use crate::norm::Norm;
use crate::pass::Pass;
use crate::position::{Position, PositionScheme, Positions};
use crate::precision::cast_parameters;
use crate::recompute::forward_recomputed;
use crate::residual::ResidualStream;
use crate::state::{State, differing_sizes};
use burn::module::Module;
use burn::nn::Dropout;
use burn::tensor::{Bool, FloatDType, Int, Tensor};
use firelight_kernels::PairRule;
use std::collections::BTreeMap;
use std::iter::once;
use visible::VisibleTokens;

/// What stands beside the embeddings of a pass.
#[derive(Debug, Clone, Default)]
pub struct SequenceInput {
    /// `[B, T]`, true where a token of this pass is padding.
    pub padding: Option<Tensor<2, Bool>>,
    /// `[B, T]`, the document of each token, where a row holds several: they do not see each other, and each begins at
    /// position 0.
    pub documents: Option<Tensor<2, Int>>,
    /// `[1 | B, T, A]`, where each token stands on each of several axes, for rotary positions with axes, or on one, for every scheme;
    /// none: one position a token, counted from 0.
    pub coordinates: Option<Tensor<3>>,
    /// The encoder's output, for decoders with cross-attention.
    pub encoder_output: Option<EncoderOutput>,
    /// What is hidden in every layer, beside what its own pattern hides.
    pub rule: PairRule,
}

impl SequenceInput {
    /// Sets which tokens are padding, `[B, T]`.
    pub fn with_padding(mut self, padding: Tensor<2, Bool>) -> Self {
        self.padding = Some(padding);
        self
    }

    /// Sets the document of each token, `[B, T]`.
    #[doc(alias = "sequence packing")]
    #[doc(alias = "document mask")]
    pub fn with_documents(mut self, documents: Tensor<2, Int>) -> Self {
        self.documents = Some(documents);
        self
    }

    /// Sets where each token stands on each of several axes, `[1 | B, T, A]`, for rotary positions with
    /// [`axes`](crate::RotaryAxes): row and column of a patch, or time, row and column of a token. Text has the same number on
    /// every axis; behind a part with coordinates it may go without: its tokens count on from the largest of their document, as
    /// in Qwen2-VL.
    ///
    /// One axis, `[1 | B, T, 1]`, gives every token a position of one's own choice in any scheme, whole numbers below the length of a
    /// learned table.
    pub fn with_coordinates(mut self, coordinates: Tensor<3>) -> Self {
        self.coordinates = Some(coordinates);
        self
    }

    /// Hides pairs in every layer, beside what its own pattern hides: a rule of one's own, or a prefix that sees itself whole in
    /// a stack of [`AttentionPattern::Full`].
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use firelight_core::{PairRule, Pass, SequenceInput, TransformerConfig};
    ///
    /// let device = Device::flex();
    /// let model = TransformerConfig::encoder(16, 4, 2).init(&device);
    /// let input = SequenceInput::default().with_rule(PairRule::prefix_lm(&[2, 3])); // The prefixes of two rows.
    /// let y = model.forward(Tensor::ones([2, 5, 16], &device), &input, &mut Pass::default());
    /// assert_eq!(y.dims(), [2, 5, 16]);
    /// ```
    pub fn with_rule(mut self, rule: PairRule) -> Self {
        self.rule = rule;
        self
    }

    /// Sets the encoder's output.
    pub fn with_encoder_output(mut self, encoder_output: EncoderOutput) -> Self {
        self.encoder_output = Some(encoder_output);
        self
    }

    /// Everything must fit the embeddings `x`, `[B, T, D]`.
    fn check(&self, x: [usize; 3]) {
        let [batch, seq_len, _] = x;
        let flags = [
            ("padding", self.padding.as_ref().map(Tensor::dims)),
            ("documents", self.documents.as_ref().map(Tensor::dims)),
        ];
        for (name, shape) in flags {
            let shape = shape.unwrap_or([batch, seq_len]);
            assert!(shape == [batch, seq_len], "{name} {shape:?} is not [B, T] of the embeddings {x:?}");
        }
        let Some(shape) = self.coordinates.as_ref().map(Tensor::dims) else { return };
        let fits = [1, batch].contains(&shape[0]) && shape[1] == seq_len;
        assert!(fits, "coordinates {shape:?} are not [1 or B, T, A] of the embeddings {x:?}");
    }
}

/// A stack of blocks.
///
/// The layers are [`TransformerBlock`]s, or any others: [`TransformerConfig::init_layers`].
#[derive(Module, Debug)]
pub struct Transformer<L: Layer = TransformerBlock> {
    /// The position scheme of the embeddings, and of the layers that have none of their own.
    pub position: Position,
    /// The other schemes of layers.
    pub layer_positions: Vec<Position>,
    /// The norm of the embeddings, positions included, where there is one.
    pub embedding_norm: Option<Norm>,
    /// The layer `[E, D]` from embeddings of another width to the residual stream, where there is one.
    pub embedding_projection: Option<Linear>,
    /// The layers; where they are shared, each once.
    pub blocks: Vec<L>,
    /// The final norm, where there is one.
    pub norm: Option<Norm>,
    #[module(skip)]
    projection_placement: ProjectionPlacement,
    dropout: Dropout,
    d_model: usize,
    n_layers: usize,
    shares_layers: bool,
    #[module(skip)]
    patterns: Vec<AttentionPattern>,
    /// The rules that stand in place of a layer's pattern, by the layer's number.
    #[module(skip)]
    layer_rules: BTreeMap<usize, PairRule>,
    /// Which scheme each layer has, in turn: 0 for `position`, then those of `layer_positions`.
    #[module(skip)]
    scheme_of: Vec<usize>,
}

impl<L: Layer + 'static> Transformer<L> {
    /// Runs the stack: all at once in training, in any number of parts with a cache, with the same result.
    ///
    /// Positions continue where the cache ends, do not count padding, and begin anew with each document.
    ///
    /// # Shapes
    /// - `x`: `[B, T, D]`, or `[B, T, E]` of embeddings of another width; output: `[B, T, D]`
    ///
    /// # Panics
    /// If something in `input` does not fit `x`, the sequence is longer than the position scheme or the cache, a decoder is
    /// given no memory, or a layer of the cache keeps less than its pattern looks at, or has other heads or widths:
    /// [`cache`](Self::cache) makes one that fits.
    /// Also if the cache was read with other rotary frequencies than the longer text has: see [`cache_stays_valid`](Self::cache_stays_valid).
    /// Also if the pass recomputes its blocks and has a cache, a trace or hooks, or the device does not support that.
    /// Also if the past is compressed and `input` says something of single tokens: see [`compressed_cache`](Self::compressed_cache).
    pub fn forward(&self, x: Tensor<3>, input: &SequenceInput, pass: &mut Pass) -> Tensor<3> {
        input.check(x.dims());
        input.check_compressed(pass);
        let [batch, seq_len, _] = x.dims();
        self.check_states(pass);
        let len = pass.start() + seq_len;
        self.check_length(pass, len);
        pass.begin([batch, len], &x.device());
        let visible = VisibleTokens::new(input, pass, [batch, seq_len], x.device());
        let positions = visible.positions(seq_len);
        let (precision, dtype) = (pass.precision(), x.dtype());
        let of_contexts = precision.or_dtype_of(&x);
        let contexts = self.contexts(&visible, &positions, input, pass).map(|context| of_contexts.context(context));
        let stream = ResidualStream::new(precision.tensor(self.embed(x, &positions)));
        let mut stream = pass.hook_stream(|| "embedding".into(), stream);
        pass.trace_embeddings(&stream);
        for (i, layer) in self.layers().enumerate() {
            let context = contexts.of(i);
            stream = match pass.recomputes() {
                true => {
                    let x = forward_recomputed(layer, stream.into_sum(), context, precision, pass.losses());
                    ResidualStream::new(x)
                }
                false => precision.module(layer).extend(stream, context, &mut pass.layer(i)),
            };
            stream = pass.hook_stream(|| format!("blocks.{i}.output"), stream);
            pass.trace_output(i, &stream);
        }
        let x = match &self.norm {
            Some(norm) => stream.normed(&precision.module(norm)).1,
            None => stream.into_sum(),
        };
        pass.hook_output(firelight_kernels::cast(x, dtype.into()))
    }

    /// The stack with the parameters of its blocks and its final norm in `dtype`: half the memory for inference. Give the type
    /// to each pass as well, [`Pass::with_precision`], which then has nothing left to cast; the outputs are the same.
    ///
    /// A training keeps its parameters in single precision, where small updates are not rounded away.
    ///
    /// A pass of another type panics, in the first operation that is given numbers of two types.
    ///
    /// ```
    /// use burn::tensor::{Device, FloatDType, Tensor};
    /// use firelight_core::{Pass, SequenceInput, Transformer, TransformerConfig};
    ///
    /// let stack = TransformerConfig::new(16, 4, 2).init(&Device::flex());
    /// let run = |stack: &Transformer| {
    ///     let mut pass = Pass::default().with_precision(Some(FloatDType::BF16));
    ///     stack.forward(Tensor::ones([1, 3, 16], &Device::flex()), &SequenceInput::default(), &mut pass)
    /// };
    /// let smaller = stack.clone().cast(FloatDType::BF16);
    /// assert_eq!(run(&smaller).into_data(), run(&stack).into_data());
    /// ```
    pub fn cast(mut self, dtype: FloatDType) -> Self {
        self.blocks = cast_parameters(self.blocks, dtype);
        self.norm = self.norm.map(|norm| cast_parameters(norm, dtype));
        self
    }

    /// An empty cache for up to `capacity` tokens, in which a layer whose pattern looks back a short way keeps the last
    /// tokens alone, and one of linear attention sums of them. [`full_cache`](Self::full_cache) gives the same outputs.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use firelight_core::{AttentionPattern, Pass, PositionConfig, SequenceInput, TransformerConfig};
    ///
    /// let window = AttentionPattern::SlidingWindow { left: 4, right: 0 };
    /// let config = TransformerConfig::new(16, 4, 2).with_position(PositionConfig::rotary()).with_patterns(vec![window]);
    /// let model = config.init(&Device::flex());
    /// let mut cache = model.cache(10_000);
    /// for _ in 0..10 {
    ///     let x = Tensor::<3>::zeros([1, 50, 16], &Device::flex());
    ///     model.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
    /// }
    /// // 2 layers, keys and values of 16 channels of 4 bytes: the 4 tokens of the window and 128 to work with.
    /// assert_eq!((cache.len(), cache.bytes()), (500, 4 * 2 * 2 * 16 * (4 + 128)));
    /// ```
    pub fn cache(&self, capacity: usize) -> Cache {
        Cache::new((0..self.n_layers).map(|layer| self.state(layer, capacity)), capacity)
    }

    /// An empty cache in which every layer keeps the keys and values of all tokens: it can always go back, and tells documents
    /// apart in linear attention.
    pub fn full_cache(&self, capacity: usize) -> Cache {
        Cache::new((0..self.n_layers).map(|layer| self.full_state(layer, capacity)), capacity)
    }

    /// Whether a cache of `past` tokens stays valid when the text grows to `len`. It does in most stacks; where the rotary frequencies
    /// depend on the length, [`RotaryScaling::Dynamic`](crate::RotaryScaling::Dynamic) and
    /// [`LongRope`](crate::RotaryScaling::LongRope), a text that outgrows its frequencies must be read anew into an empty cache.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_core::{PositionConfig, RotaryConfig, RotaryScaling, TransformerConfig};
    ///
    /// let scaling = RotaryScaling::Dynamic { factor: 2.0, original_max_seq_len: 8 };
    /// let position = PositionConfig::Rotary(RotaryConfig::default().with_scaling(scaling));
    /// let stack = TransformerConfig::new(16, 4, 2).with_position(position).init(&Device::flex());
    /// assert!(stack.cache_stays_valid(7, 8) && !stack.cache_stays_valid(8, 9));
    /// ```
    pub fn cache_stays_valid(&self, past: usize, len: usize) -> bool {
        once(&self.position).chain(&self.layer_positions).all(|scheme| scheme.cache_stays_valid(past, len))
    }

    /// Whether the rules of all layers hide the future, as far as they tell.
    pub fn is_causal(&self) -> bool {
        (0..self.n_layers).all(|layer| self.rule(layer).is_causal())
    }

    /// The layers in the order in which they run, shared ones in every turn.
    pub fn layers(&self) -> impl Iterator<Item = &L> {
        self.blocks.iter().cycle().take(self.n_layers)
    }

    /// Who sees whom in layer `index`, counted from 0, before padding and documents.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_core::{AttentionPattern, TransformerConfig};
    ///
    /// let patterns = vec![AttentionPattern::Causal, AttentionPattern::SlidingWindow { left: 1, right: 0 }];
    /// let stack = TransformerConfig::new(16, 4, 2).with_patterns(patterns).init(&Device::flex());
    /// assert_eq!(stack.rule(0).grid(0, 3), "#..\n##.\n###\n");
    /// assert_eq!(stack.rule(1).grid(0, 3), "#..\n##.\n.##\n");
    /// ```
    pub fn rule(&self, index: usize) -> PairRule {
        let own = self.layer_rules.get(&index).cloned();
        own.unwrap_or_else(|| self.patterns[index % self.patterns.len()].rule())
    }

    /// Sets who sees whom in layer `index`, counted from 0 in the order in which layers run, in place of the layer's pattern: a
    /// rule of one's own, or any that no pattern names. The other layers keep theirs. Caches and costs follow the rule, but a
    /// cache that was made before does not.
    ///
    /// A configuration names patterns alone, so neither `config.json` nor the weights hold the rule: set it again after loading.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_core::{MaskRule, PairRule, TransformerConfig};
    ///
    /// /// A query sees its past at even distances.
    /// #[derive(Debug)]
    /// struct Even;
    ///
    /// impl MaskRule for Even {
    ///     fn hidden(&self, _row: usize, query: usize, key: usize) -> bool {
    ///         key > query || (query - key) % 2 == 1
    ///     }
    ///
    ///     fn is_causal(&self) -> bool {
    ///         true
    ///     }
    /// }
    ///
    /// let stack = TransformerConfig::new(16, 4, 2).init(&Device::flex()).with_layer_rule(1, PairRule::custom(Even));
    /// assert_eq!(stack.rule(0).grid(0, 3), "#..\n##.\n###\n");
    /// assert_eq!(stack.rule(1).grid(0, 3), "#..\n.#.\n#.#\n");
    /// ```
    ///
    /// # Panics
    /// If the stack has no layer `index`. A mixer that cannot keep the rule, as a gated delta rule keeps causal ones alone, says so in the
    /// first pass.
    pub fn with_layer_rule(mut self, index: usize, rule: PairRule) -> Self {
        let layers = self.n_layers;
        assert!(index < layers, "layer {index} has no place in a stack of {layers} layers, which are counted from 0");
        self.layer_rules.insert(index, rule);
        self
    }

    /// What tells the rule and positions of layer `index` from those of other layers: its turn, and its number where it has a rule
    /// of its own.
    fn kind(&self, index: usize) -> (usize, Option<usize>) {
        (index % self.patterns.len(), self.layer_rules.contains_key(&index).then_some(index))
    }

    /// What layer `index` remembers of its past.
    fn state(&self, index: usize, capacity: usize) -> Box<dyn State> {
        self.blocks[index % self.blocks.len()].state(&self.rule(index), capacity)
    }

    /// The same, of all tokens where it can.
    fn full_state(&self, index: usize, capacity: usize) -> Box<dyn State> {
        self.blocks[index % self.blocks.len()].full_state(capacity)
    }

    /// # Panics
    /// If the cache was made for another stack: of another number of layers, or a layer cannot read its state.
    fn check_states(&self, pass: &Pass) {
        let Some(states) = pass.states() else { return };
        let (found, layers) = (states.len(), self.n_layers);
        assert!(found == layers, "a cache of {found} layers was made for another stack: this one has {layers}");
        states.into_iter().enumerate().for_each(|(layer, state)| self.check_state(layer, state));
    }

    /// # Panics
    /// If the state is none that layer `index` can read: of another kind, or of other sizes.
    fn check_state(&self, index: usize, state: &dyn State) {
        let needs = self.state(index, 0);
        let fitting = if state.fits(&*needs) { needs } else { self.full_state(index, 0) };
        if !state.fits(&*fitting) {
            let [keeps, reads] = [state.keeps(), self.state(index, 0).keeps()];
            panic!("layer {index} of the cache keeps {keeps}, but its attention reads {reads}");
        }
        if let Some([found, needed]) = differing_sizes(state, &*fitting) {
            panic!(
                "layer {index} of the cache has {found}, but its attention has {needed}: it was made for another stack"
            );
        }
    }

    /// # Panics
    /// If keys of the cache were turned by other frequencies than a text of `len` tokens has.
    fn check_length(&self, pass: &Pass, len: usize) {
        let turned = pass.lengths().into_iter().flatten().find(|past| !self.cache_stays_valid(*past, len));
        if let Some(past) = turned {
            panic!(
                "the keys in the cache were turned by the rotary frequencies of {past} tokens, which are not those of {len}: \
                 clear the cache and read all tokens anew, or use a position.scaling that does not depend on the length"
            );
        }
    }

    /// The embeddings with what the position scheme adds to them, normalised where that is asked for, and led to the width of
    /// the residual stream: `[B, T, E] -> [B, T, D]`.
    fn embed(&self, x: Tensor<3>, positions: &Positions) -> Tensor<3> {
        let x = self.position.embed(self.project(x, ProjectionPlacement::BeforePositions), positions);
        let x = match &self.embedding_norm {
            Some(norm) => norm.forward(x),
            None => x,
        };
        self.project(dropout::drop(&self.dropout, x), ProjectionPlacement::AfterNorm)
    }

    /// What the projection of the embeddings makes of them, if this is its place.
    fn project(&self, x: Tensor<3>, place: ProjectionPlacement) -> Tensor<3> {
        match &self.embedding_projection {
            Some(projection) if self.projection_placement == place => projection.forward(x),
            _ => x,
        }
    }
}

#[cfg(test)]
mod tests;
