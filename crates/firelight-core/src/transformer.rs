//! The Transformer on embeddings: positions, blocks, final norm. Start reading here.
//!
//! Encoder, decoder and decoder with cross-attention are one type: the pattern and the memory make the difference.
//! Source: Vaswani et al. 2017 (<https://arxiv.org/abs/1706.03762>).

mod config;
mod contexts;
mod cost;
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
use crate::precision::cast;
use crate::recompute::forward_recomputed;
use crate::residual::ResidualStream;
use crate::state::{State, differing_sizes};
use burn::module::Module;
use burn::nn::Dropout;
use burn::tensor::{Bool, FloatDType, Int, Tensor};
use firelight_kernels::PairRule;
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
    /// `[1 | B, T, A]`, where each token stands on each of several axes, for rotary positions with axes; none: one position a
    /// token, counted from 0.
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
    /// The final norm, in all but post-norm stacks.
    pub norm: Option<Norm>,
    #[module(skip)]
    projection_placement: ProjectionPlacement,
    dropout: Dropout,
    d_model: usize,
    n_layers: usize,
    shares_layers: bool,
    #[module(skip)]
    patterns: Vec<AttentionPattern>,
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
    /// Also if the cache was read with other rotary frequencies than the longer text has: see [`continues`](Self::continues).
    /// Also if the pass recomputes its blocks and has a cache or a trace, or the device does not support that.
    pub fn forward(&self, x: Tensor<3>, input: &SequenceInput, pass: &mut Pass) -> Tensor<3> {
        input.check(x.dims());
        let [batch, seq_len, _] = x.dims();
        self.check_states(pass);
        let len = pass.start() + seq_len;
        self.check_length(pass, len);
        pass.begin([batch, len], &x.device());
        let visible = VisibleTokens::new(input, pass, [batch, seq_len], x.device());
        let positions = visible.positions(seq_len);
        let (precision, dtype) = (pass.precision(), x.dtype());
        let contexts = self.contexts(&visible, &positions, input, pass).map(|context| precision.context(context));
        let mut stream = ResidualStream::new(precision.tensor(self.embed(x, &positions)));
        for (i, layer) in self.layers().enumerate() {
            let context = contexts.of(i);
            stream = match pass.recomputes() {
                true => {
                    let x = forward_recomputed(layer, stream.into_sum(), context, precision, pass.losses());
                    ResidualStream::new(x)
                }
                false => precision.module(layer).extend(stream, context, &mut pass.layer(i)),
            };
        }
        let x = match &self.norm {
            Some(norm) => stream.normed(&precision.module(norm)).1,
            None => stream.into_sum(),
        };
        x.cast(dtype)
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
        self.blocks = cast(self.blocks, dtype);
        self.norm = self.norm.map(|norm| cast(norm, dtype));
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

    /// Whether what a cache holds of a text of `past` tokens is right in one of `len`. It is in most stacks; where the rotary frequencies
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
    /// assert!(stack.continues(7, 8) && !stack.continues(8, 9));
    /// ```
    pub fn continues(&self, past: usize, len: usize) -> bool {
        once(&self.position).chain(&self.layer_positions).all(|scheme| scheme.continues(past, len))
    }

    /// Whether the patterns of all layers hide the future.
    pub fn is_causal(&self) -> bool {
        self.patterns.iter().take(self.n_layers).all(|pattern| pattern.is_causal())
    }

    /// The layers in the order in which they run, shared ones in every turn.
    pub fn layers(&self) -> impl Iterator<Item = &L> {
        self.blocks.iter().cycle().take(self.n_layers)
    }

    /// What layer `index` remembers of its past.
    fn state(&self, index: usize, capacity: usize) -> Box<dyn State> {
        self.blocks[index % self.blocks.len()].state(&self.rule(index), capacity)
    }

    /// The same, of all tokens where it can.
    fn full_state(&self, index: usize, capacity: usize) -> Box<dyn State> {
        self.blocks[index % self.blocks.len()].full_state(capacity)
    }

    /// Who sees whom in layer `index`.
    fn rule(&self, index: usize) -> PairRule {
        self.patterns[index % self.patterns.len()].rule()
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
        let needs = [self.state(index, 0), self.full_state(index, 0)];
        let Some(fitting) = needs.iter().find(|needs| state.fits(&***needs)) else {
            let [keeps, reads] = [state.keeps(), needs[0].keeps()];
            panic!("layer {index} of the cache keeps {keeps}, but its attention reads {reads}");
        };
        if let Some([found, needed]) = differing_sizes(state, &**fitting) {
            panic!(
                "layer {index} of the cache has {found}, but its attention has {needed}: it was made for another stack"
            );
        }
    }

    /// # Panics
    /// If keys of the cache were turned by other frequencies than a text of `len` tokens has.
    fn check_length(&self, pass: &Pass, len: usize) {
        let turned = pass.lengths().into_iter().flatten().find(|past| !self.continues(*past, len));
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
mod tests {
    use super::*;
    use crate::attention::{AttentionMechanism, DifferentialConfig, LatentConfig};
    use crate::block::NormPlacement;
    use crate::embedding::EmbeddingProjectionConfig;
    use crate::feed_forward::Activation;
    use crate::gated_delta::GatedDeltaConfig;
    use crate::mixer::MixerConfig;
    use crate::position::{PositionConfig, RotaryAxes, RotaryConfig, RotaryScaling};
    use crate::{Init, NormConfig, ParamBuilder, WeightInit};
    use burn::tensor::{Device, TensorData};
    use firelight_kernels::Difference;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    #[should_panic(expected = "padding [2, 4] is not [B, T] of the embeddings [2, 3, 8]")]
    fn padding_of_another_length_panics() {
        let device = Device::default();
        let model = TransformerConfig::encoder(8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        let input = SequenceInput::default().with_padding(Tensor::<2, Int>::zeros([2, 4], &device).bool());
        model.forward(Tensor::zeros([2, 3, 8], &device), &input, &mut Pass::default());
    }

    #[test]
    #[should_panic(expected = "the encoder's output [1, 5, 8] does not fit the embeddings [2, 3, 8] in batch or width")]
    fn a_memory_of_another_batch_panics() {
        let device = Device::default();
        let model = TransformerConfig::decoder(8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        let input = SequenceInput::default().with_encoder_output(EncoderOutput::new(Tensor::zeros([1, 5, 8], &device)));
        model.forward(Tensor::zeros([2, 3, 8], &device), &input, &mut Pass::default());
    }

    /// With which words a stack refuses the cache of another one.
    fn refusal(stack: TransformerConfig, other: TransformerConfig) -> String {
        let params = ParamBuilder::new(&Device::default(), 0);
        let (stack, mut cache) = (stack.init_with(&params), other.init_with(&params).cache(4));
        let x = Tensor::zeros([1, 2, 8], &Device::default());
        let run = || stack.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("another stack's cache");
        *panic.downcast().expect("a text")
    }

    #[test]
    fn the_cache_of_another_stack_is_refused_by_layer_and_size() {
        let stack = |n_layers| TransformerConfig::new(8, 2, n_layers).with_position(PositionConfig::None);
        let linear = || stack(2).with_attention_mechanism(AttentionMechanism::Linear);
        let performer = |features| stack(2).with_attention_mechanism(AttentionMechanism::Performer { features });
        let latent = |d_latent| stack(2).with_mixer(MixerConfig::Latent(LatentConfig::new(d_latent, 2)));
        let delta = |delta: GatedDeltaConfig| stack(2).with_mixer(MixerConfig::GatedDelta(delta));
        let differential = || stack(2).with_mixer(MixerConfig::Differential(DifferentialConfig::default()));
        let plain = GatedDeltaConfig::default;
        let mut second = vec![stack(2).first().clone(); 2];
        second[1].block.attention.n_kv_heads = Some(1);
        for (one, other, layer, found, needed) in [
            (stack(2), stack(2).with_layers(second), 1, "n_kv_heads = 1", "n_kv_heads = 2"),
            (stack(2), stack(2).with_n_heads(4), 0, "n_kv_heads = 4", "n_kv_heads = 2"),
            (stack(2), stack(2).with_d_head(3), 0, "d_head = 3", "d_head = 4"),
            (stack(2), stack(2).with_d_value(5), 0, "d_value = 5", "d_value = 4"),
            (stack(2), differential(), 0, "d_value = 8", "d_value = 4"),
            (latent(4), latent(6), 0, "mixer.d_latent = 6", "mixer.d_latent = 4"),
            (linear(), linear().with_d_value(5), 0, "d_value + 1 = 6", "d_value + 1 = 5"),
            (performer(5), performer(6), 0, "features = 6", "features = 5"),
            (delta(plain()), delta(plain().with_n_key_heads(1)), 0, "mixer.n_key_heads = 1", "mixer.n_key_heads = 2"),
            (
                delta(plain()),
                delta(plain().with_n_value_heads(4)),
                0,
                "mixer.n_value_heads = 4",
                "mixer.n_value_heads = 2",
            ),
            (delta(plain()), delta(plain().with_d_key(3)), 0, "mixer.d_key = 3", "mixer.d_key = 4"),
            (delta(plain()), delta(plain().with_d_value(3)), 0, "mixer.d_value = 3", "mixer.d_value = 4"),
            (delta(plain()), delta(plain().with_convolution(2)), 0, "mixer.convolution = 2", "mixer.convolution = 4"),
        ] {
            let expected = format!("layer {layer} of the cache has {found}, but its attention has {needed}");
            assert_eq!(refusal(one, other), format!("{expected}: it was made for another stack"));
        }
        let expected = "a cache of 3 layers was made for another stack: this one has 2";
        assert_eq!(refusal(stack(2), stack(3)), expected);
    }

    #[test]
    fn embeddings_are_projected_before_or_behind_what_is_added_to_them() {
        let device = Device::default();
        let base = TransformerConfig::new(8, 2, 1).with_max_seq_len(5).with_embedding_norm(true);
        let x = Tensor::<3>::random([2, 5, 6], burn::tensor::Distribution::Default, &device);
        for place in [ProjectionPlacement::AfterNorm, ProjectionPlacement::BeforePositions] {
            let config = EmbeddingProjectionConfig::new(6).with_placement(place);
            let narrow = base.clone().with_embedding_projection(Some(config)).init_with(&ParamBuilder::new(&device, 0));
            let linear = narrow.embedding_projection.clone().expect("a projection");
            let (position, norm) = (narrow.position.clone(), narrow.embedding_norm.clone().expect("a norm"));
            let positions = Positions::contiguous(0, 5);
            let embedded = match place {
                ProjectionPlacement::AfterNorm => linear.forward(norm.forward(position.embed(x.clone(), &positions))),
                _ => norm.forward(position.embed(linear.forward(x.clone()), &positions)),
            };
            // The blocks and the final norm on these embeddings.
            let mut wide = base
                .clone()
                .with_position(PositionConfig::None)
                .with_embedding_norm(false)
                .init_with(&ParamBuilder::new(&device, 0));
            (wide.blocks, wide.norm) = (narrow.blocks.clone(), narrow.norm.clone());
            let run = |stack: &Transformer, x| stack.forward(x, &SequenceInput::default(), &mut Pass::default());
            firelight_kernels::assert_close(&run(&narrow, x.clone()), &run(&wide, embedded), 1e-5);
        }
    }

    /// What a stack makes of the same input, its weights drawn by the same seed.
    fn output(config: &TransformerConfig, device: &Device) -> TensorData {
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let model = config.clone().with_init(wide).init_with(&ParamBuilder::new(device, 3));
        let numbers: Vec<f32> = (0..48).map(|i| (i as f32 * 0.7).sin()).collect();
        let x = Tensor::<1>::from_floats(numbers.as_slice(), device).reshape([1, 6, 8]);
        model.forward(x, &SequenceInput::default(), &mut Pass::default()).into_data()
    }

    /// The largest difference: a device that tunes its kernels need not repeat the last bits.
    fn distance(one: &TensorData, other: &TensorData) -> f64 {
        let distance = Difference::between(one, other).absolute;
        assert!(distance.is_finite(), "one of the outputs is no number");
        distance
    }

    #[test]
    fn every_choice_of_a_stack_reaches_its_layers() {
        let device = Device::default();
        let rotary =
            |theta, scaling| PositionConfig::Rotary(RotaryConfig::default().with_theta(theta).with_scaling(scaling));
        let base = || TransformerConfig::new(8, 2, 2).with_position(rotary(1e4, RotaryScaling::None));
        let plain = output(&base(), &device);
        assert!(distance(&output(&base(), &device), &plain) < 1e-4);
        for (name, config) in [
            ("soft cap", base().with_attention_soft_cap(Some(0.1))),
            ("norm of queries and keys", base().with_query_key_norm(Some(NormConfig::rms()))),
            ("layer scale", base().with_layer_scale(0.5)),
            ("embedding norm", base().with_embedding_norm(true)),
            ("norm of the attention", base().with_attention_norm(NormConfig::None)),
            ("norm behind the parts", base().with_norm_placement(NormPlacement::Output)),
            ("two norms of parallel parts", base().with_norm_placement(NormPlacement::ParallelTwoNorms)),
            ("theta", base().with_position(rotary(100.0, RotaryScaling::None))),
            ("scaling", base().with_position(rotary(1e4, RotaryScaling::Linear { factor: 4.0 }))),
        ] {
            assert!(distance(&output(&config, &device), &plain) > 1e-3, "{name}");
        }
        let biases = |config: TransformerConfig| config.with_bias(false).with_qkv_bias(true).init(&device).num_params();
        assert_eq!(biases(base()) - base().with_bias(false).init(&device).num_params(), 2 * 3 * 8);
    }

    #[test]
    #[should_panic(expected = "coordinates [1, 2, 2] are not [1 or B, T, A] of the embeddings [2, 3, 8]")]
    fn coordinates_of_another_length_panic() {
        let device = Device::default();
        let input = SequenceInput::default().with_coordinates(Tensor::zeros([1, 2, 2], &device));
        let model = TransformerConfig::encoder(8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        model.forward(Tensor::zeros([2, 3, 8], &device), &input, &mut Pass::default());
    }

    #[test]
    #[should_panic(expected = "the position scheme knows one position a token, not 2 coordinates")]
    fn coordinates_need_axes() {
        let device = Device::default();
        let input = SequenceInput::default().with_coordinates(Tensor::zeros([1, 3, 2], &device));
        let model = TransformerConfig::encoder(8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        model.forward(Tensor::zeros([2, 3, 8], &device), &input, &mut Pass::default());
    }

    /// A stack that turns by two coordinates, and two rows of five tokens for it.
    fn of_two_axes(device: &Device) -> (Transformer, Tensor<3>) {
        let axes = RotaryAxes::Sections { sections: vec![1, 1] };
        let position = PositionConfig::Rotary(RotaryConfig::default().with_theta(10.0).with_axes(axes));
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let config = TransformerConfig::new(8, 2, 2).with_position(position).with_init(wide);
        let numbers: Vec<f32> = (0..80).map(|i| (i as f32 * 0.7).sin()).collect();
        let x = Tensor::<1>::from_floats(numbers.as_slice(), device).reshape([2, 5, 8]);
        (config.init_with(&ParamBuilder::new(device, 3)), x)
    }

    #[test]
    fn rows_with_and_without_an_image_go_on_in_one_batch() {
        let device = Device::default();
        let (model, x) = of_two_axes(&device);
        let part = |row, start, len| x.clone().narrow(0, row, 1).narrow(1, start, len);
        let places = Tensor::<2>::from_floats([[0.0, 0.0], [1.0, 1.0], [1.0, 4.0]], &device).unsqueeze();
        let (text, image) = (SequenceInput::default(), SequenceInput::default().with_coordinates(places));
        let read =
            |x: Tensor<3>, input: &SequenceInput, cache: &mut Cache| model.forward(x, input, &mut Pass::cached(cache));
        let [mut cache, mut other] = [model.cache(8), model.cache(8)];
        read(part(0, 0, 3), &image, &mut cache);
        read(part(1, 0, 2), &text, &mut other);
        let alone = [read(part(0, 3, 1), &text, &mut cache.clone()), read(part(1, 2, 1), &text, &mut other.clone())];
        cache.join(other);
        let found = read(Tensor::cat(vec![part(0, 3, 1), part(1, 2, 1)], 0), &text, &mut cache);
        for (row, alone) in alone.into_iter().enumerate() {
            assert!(distance(&found.clone().narrow(0, row, 1).into_data(), &alone.into_data()) < 1e-4, "row {row}");
        }
    }

    #[test]
    fn text_behind_an_image_counts_on_from_its_largest_coordinate() {
        let device = Device::default();
        let (model, x) = of_two_axes(&device);
        // A word, two patches beside each other, two words.
        let places = [[0.0f32, 0.0], [1.0, 1.0], [1.0, 4.0], [5.0, 5.0], [6.0, 6.0]];
        let places = Tensor::<2>::from_floats(places, &device).unsqueeze::<3>();
        let given = SequenceInput::default().with_coordinates(places.clone());
        let expected = model.forward(x.clone(), &given, &mut Pass::default());
        let mut cache = model.cache(8);
        let image = SequenceInput::default().with_coordinates(places.narrow(1, 0, 3));
        model.forward(x.clone().narrow(1, 0, 3), &image, &mut Pass::cached(&mut cache));
        for place in [3, 4] {
            let word = x.clone().narrow(1, place, 1);
            let found = model.forward(word, &SequenceInput::default(), &mut Pass::cached(&mut cache)).into_data();
            assert!(distance(&found, &expected.clone().narrow(1, place, 1).into_data()) < 1e-4, "{place}");
        }
        let plain = model.forward(x, &SequenceInput::default(), &mut Pass::default());
        assert!(distance(&plain.into_data(), &expected.into_data()) > 1e-3);
    }

    /// A stack whose rotary frequencies are others from five tokens on, and `len` tokens for it.
    fn stretched(scaling: RotaryScaling, device: &Device) -> (Transformer, impl Fn(usize) -> Tensor<3> + use<>) {
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let position = PositionConfig::Rotary(RotaryConfig::default().with_theta(10.0).with_scaling(scaling));
        let model = TransformerConfig::new(8, 2, 2).with_position(position).with_init(wide);
        let (model, device) = (model.init_with(&ParamBuilder::new(device, 3)), device.clone());
        let x = move |len: usize| {
            let numbers: Vec<f32> = (0..8 * len).map(|i| (i as f32 * 0.7).sin()).collect();
            Tensor::<1>::from_floats(numbers.as_slice(), &device).reshape([1, len, 8])
        };
        (model, x)
    }

    fn scalings_by_length() -> [RotaryScaling; 2] {
        let (factor, original_max_seq_len, attention_factor) = (4.0, 4, None);
        let (short_factor, long_factor) = (vec![1.0, 1.5], vec![2.0, 9.0]);
        [
            RotaryScaling::Dynamic { factor, original_max_seq_len },
            RotaryScaling::LongRope { factor, original_max_seq_len, short_factor, long_factor, attention_factor },
        ]
    }

    #[test]
    fn parts_are_the_whole_while_the_frequencies_last() {
        let device = Device::default();
        for scaling in scalings_by_length() {
            let lasts = matches!(scaling, RotaryScaling::LongRope { .. }); // Its second list is that of all longer texts.
            let (model, x) = stretched(scaling, &device);
            for parts in [vec![1, 3], vec![5, 1, 2]].into_iter().take(if lasts { 2 } else { 1 }) {
                let whole = parts.iter().sum();
                let expected = model.forward(x(whole), &SequenceInput::default(), &mut Pass::default());
                let (mut cache, mut start) = (model.cache(8), 0);
                for part in parts {
                    let input = x(whole).narrow(1, start, part);
                    let found = model.forward(input, &SequenceInput::default(), &mut Pass::cached(&mut cache));
                    let expected = expected.clone().narrow(1, start, part).into_data();
                    assert!(distance(&found.into_data(), &expected) < 1e-4, "{start}");
                    start += part;
                }
            }
            // Beyond the length other frequencies turn what came before, too.
            let read = |len| model.forward(x(len), &SequenceInput::default(), &mut Pass::default());
            let [short, long] = [read(4), read(5).narrow(1, 0, 4)].map(Tensor::into_data);
            assert!(distance(&short, &long) > 1e-3);
        }
    }

    #[test]
    #[should_panic(expected = "the rotary frequencies of 4 tokens, which are not those of 5: clear the cache")]
    fn a_cache_does_not_outgrow_its_frequencies() {
        let device = Device::default();
        let [dynamic, _] = scalings_by_length();
        let (model, x) = stretched(dynamic, &device);
        let mut cache = model.cache(8);
        model.forward(x(4), &SequenceInput::default(), &mut Pass::cached(&mut cache));
        model.forward(x(1), &SequenceInput::default(), &mut Pass::cached(&mut cache));
    }

    #[test]
    #[should_panic(expected = "the rotary frequencies of 6 tokens, which are not those of 4: clear the cache")]
    fn a_truncated_cache_keeps_the_frequencies_of_the_longer_text() {
        let device = Device::default();
        let [_, longrope] = scalings_by_length();
        let (model, x) = stretched(longrope, &device);
        let mut cache = model.cache(8);
        model.forward(x(6), &SequenceInput::default(), &mut Pass::cached(&mut cache));
        cache.truncate(3);
        model.forward(x(1), &SequenceInput::default(), &mut Pass::cached(&mut cache));
    }

    #[test]
    fn a_cleared_cache_takes_any_frequencies() {
        let device = Device::default();
        for scaling in scalings_by_length() {
            let (model, x) = stretched(scaling, &device);
            let mut cache = model.cache(8);
            for len in [6, 3] {
                model.forward(x(len), &SequenceInput::default(), &mut Pass::cached(&mut cache));
                if len == 6 { cache.truncate(0) } else { cache.clear() }
            }
            assert!(cache.is_empty());
        }
    }

    #[test]
    fn each_dropout_drops_by_itself_and_in_training_alone() {
        let rates = |embedding: f64, residual: f64, attention: f64| {
            let config = TransformerConfig::new(8, 2, 2).with_embedding_dropout(embedding);
            config.with_residual_dropout(residual).with_attention_dropout(attention)
        };
        let inner = rates(0.0, 0.0, 0.0).with_feed_forward_dropout(0.5);
        for config in [rates(0.5, 0.0, 0.0), rates(0.0, 0.5, 0.0), rates(0.0, 0.0, 0.5), inner] {
            let (training, inference) = (Device::default().autodiff(), Device::default());
            let plain = output(&rates(0.0, 0.0, 0.0), &inference);
            assert!(distance(&output(&config, &training), &output(&config, &training)) > 1e-3, "{config:?}");
            assert!(distance(&output(&config, &inference), &plain) < 1e-4, "{config:?}");
        }
    }

    #[test]
    fn the_base_stacks_are_counted_exactly() {
        // 6 + 6 layers of 512 / 2048, biases, without final norms as the original post-norm model.
        let device = Device::default();
        let count = |config: TransformerConfig| {
            let config = config.with_activation(Activation::Relu).with_position(PositionConfig::Sinusoidal);
            config.with_norm_placement(NormPlacement::Post).init(&device).num_params()
        };
        let encoder = count(TransformerConfig::encoder(512, 8, 6));
        let decoder = count(TransformerConfig::decoder(512, 8, 6));
        assert_eq!(encoder + decoder, 44_138_496);
    }
}
