//! The model: embeddings of source and target, an encoder and a decoder that reads it, a head. Nothing here knows a loss, a
//! search or a tokenizer.
//!
//! Source: Vaswani et al. 2017, §3 (<https://arxiv.org/abs/1706.03762>); the modern form with other positions, norms and
//! activations is the same type.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor};
use firelight_core::{
    Activation, AdapterConfig, Cache, ConfigError, Cost, EmbeddingScale, EncoderDecoder, EncoderDecoderConfig,
    EncoderOutput, HeadOptions, LazyLogits, LmHead, LmHeadConfig, NormPlacement, ParamBuilder, ParameterReport, Pass,
    PositionConfig, SequenceInput, TokenEmbedding, TokenEmbeddingConfig, TransformerConfig, WeightInit,
};
use serde::{Deserialize, Serialize};

/// Which of the three matrices over tokens (embedding of the source, embedding of the target, head) are one and the same: each pair
/// of them, all, or none. A tied head reads the matrix of an embedding, and a tied source that of the target's embedding, which
/// always has one of its own: no ring can be formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tying {
    /// None.
    None,
    /// The embedding of the target and the head (Press and Wolf 2017, §3).
    Target,
    /// The embedding of the source and the head; source and target have one vocabulary.
    Source,
    /// Both embeddings, as T5 1.1; source and target have one vocabulary.
    Embeddings,
    /// All three (Vaswani et al. 2017, §3.4); source and target have one vocabulary.
    #[default]
    All,
}

impl Tying {
    /// The source is read by the embedding of the target.
    pub(crate) fn ties_source(self) -> bool {
        matches!(self, Self::Embeddings | Self::All)
    }

    /// The head reads an embedding.
    fn ties_head(self) -> bool {
        matches!(self, Self::Target | Self::Source | Self::All)
    }

    /// The embedding of the source is tied to something of the target.
    pub(crate) fn needs_one_vocabulary(self) -> bool {
        self.ties_source() || self == Self::Source
    }

    /// The value that leaves the embedding of the source by itself.
    pub(crate) fn without_source(self) -> &'static str {
        if self.ties_head() { "target" } else { "none" }
    }

    /// As files write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Target => "target",
            Self::Source => "source",
            Self::Embeddings => "embeddings",
            Self::All => "all",
        }
    }
}

/// The stacks in the paths of a model's parameters.
pub(crate) const STACKS: &str = "stacks";

/// Configuration of a [`Seq2SeqModel`], as it stands in `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seq2SeqConfig {
    /// Number of tokens of the source.
    pub source_vocab_size: usize,
    /// Number of tokens `V` of the target.
    pub target_vocab_size: usize,
    /// Whether source and target have one vocabulary.
    pub joint: bool,
    /// Which matrices over tokens are shared.
    pub tying: Tying,
    /// What the embeddings are multiplied by.
    pub scale_embedding: EmbeddingScale,
    /// Bias, scale and soft cap of the logits. Default: none of them.
    #[serde(default, skip_serializing_if = "HeadOptions::is_plain")]
    pub head: HeadOptions,
    /// The token that every target begins with.
    pub start_token: u32,
    /// Low-rank adapters of layers of the stacks. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterConfig>,
    /// The stacks.
    pub stacks: EncoderDecoderConfig,
}

impl Config for Seq2SeqConfig {}

impl Seq2SeqConfig {
    /// Two pre-norm stacks of `n_layers` each, one vocabulary, all matrices tied.
    pub fn new(vocab_size: usize, d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        Self {
            source_vocab_size: vocab_size,
            target_vocab_size: vocab_size,
            joint: true,
            tying: Tying::All,
            scale_embedding: EmbeddingScale::None,
            head: HeadOptions::default(),
            start_token: 0,
            adapters: None,
            stacks: EncoderDecoderConfig::new(d_model, n_heads, n_layers),
        }
    }

    /// The base model of Vaswani et al. 2017, table 3: 6 layers, width 512, 8 heads, inner width 2048, dropout 0.1.
    pub fn base(vocab_size: usize) -> Self {
        Self::vaswani(vocab_size, 512, 8, 0.1)
    }

    /// The big model of Vaswani et al. 2017, table 3: 6 layers, width 1024, 16 heads, inner width 4096, dropout 0.3.
    pub fn big(vocab_size: usize) -> Self {
        Self::vaswani(vocab_size, 1024, 16, 0.3)
    }

    /// Norms after each part, ReLU, sinusoids, scaled embeddings. Dropout is that of residuals and embeddings (§5.4).
    fn vaswani(vocab_size: usize, d_model: usize, n_heads: usize, dropout: f64) -> Self {
        let stack = |stack: TransformerConfig| {
            let stack = stack.with_activation(Activation::Relu).with_position(PositionConfig::Sinusoidal);
            let stack = stack.with_norm_placement(NormPlacement::Post).with_init(WeightInit::xavier());
            stack.with_dropout(dropout).with_embedding_dropout(dropout)
        };
        let stacks = EncoderDecoderConfig::new(d_model, n_heads, 6).with_both(stack);
        Self { stacks, scale_embedding: EmbeddingScale::SqrtWidth, ..Self::new(vocab_size, d_model, n_heads, 6) }
    }

    /// Sets which matrices are shared.
    pub fn with_tying(mut self, tying: Tying) -> Self {
        self.tying = tying;
        self
    }

    /// Sets bias, scale and soft cap of the logits.
    pub fn with_head(mut self, head: HeadOptions) -> Self {
        self.head = head;
        self
    }

    /// Sets the adapters of layers of the stacks.
    pub fn with_adapters(mut self, adapters: Option<AdapterConfig>) -> Self {
        self.adapters = adapters;
        self
    }

    /// Sets the longest source and target, in tokens.
    pub fn with_max_seq_len(self, max_seq_len: usize) -> Self {
        self.with_both(|stack| stack.with_max_seq_len(max_seq_len))
    }

    /// Makes the same change in both stacks.
    pub fn with_both(mut self, change: impl Fn(TransformerConfig) -> TransformerConfig) -> Self {
        self.stacks = self.stacks.with_both(change);
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (source, target) = (self.source_vocab_size, self.target_vocab_size);
        let widths = [&self.stacks.encoder, &self.stacks.decoder].map(TransformerConfig::d_embedding);
        let (tying, without) = (self.tying.name(), self.tying.without_source());
        let own = [
            (self.tying.needs_one_vocabulary() && source != target).then(|| {
                format!(
                    "tying = \"{tying}\" needs one vocabulary, but source_vocab_size = {source} and target_vocab_size = {target}; \
                     set it to \"{without}\""
                )
            }),
            (self.tying.ties_source() && widths[0] != widths[1]).then(|| {
                format!(
                    "tying = \"{tying}\" needs one width of embeddings, but that of stacks.encoder is {} and that of \
                     stacks.decoder {}; set it to \"{without}\"",
                    widths[0], widths[1]
                )
            }),
            (self.start_token as usize >= target.max(1)).then(|| {
                format!("start_token = {} must be below target_vocab_size = {target}", self.start_token)
            }),
            self.stacks
                .decoder
                .patterns()
                .iter()
                .any(|pattern| !pattern.is_causal())
                .then(|| "patterns of the decoder must be causal: a decoder that sees its next token learns nothing".into()),
        ];
        let embeddings = [(source, widths[0]), (target, widths[1])]
            .map(|(size, width)| TokenEmbeddingConfig::new(size, width).validate());
        let adapters = self.adapters.as_ref().map_or(Ok(()), AdapterConfig::validate);
        let parts = [self.stacks.validate(), self.head.validate(), self.scale_embedding.validate(), adapters];
        ConfigError::collect(parts.into_iter().chain(embeddings), own)
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> Seq2SeqModel {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> Seq2SeqModel {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        let EncoderDecoderConfig { encoder, decoder } = &self.stacks;
        let init = decoder.init;
        let embedding = |name: &str, size: usize, stack: &TransformerConfig| {
            let config = TokenEmbeddingConfig::new(size, stack.d_embedding()).with_scale(self.scale_embedding);
            config.with_init(init.weight).init_with(&params.scope(name))
        };
        let source = (!self.tying.ties_source()).then_some(self.source_vocab_size);
        let head = LmHeadConfig::new(decoder.d_model, self.target_vocab_size).with_tied(self.tying.ties_head());
        let head_reads_source = self.tying == Tying::Source;
        let head = head.with_d_embedding(if head_reads_source { encoder } else { decoder }.d_embedding());
        Seq2SeqModel {
            source_embedding: source.map(|size| embedding("source_embedding", size, encoder)),
            embedding: embedding("embedding", self.target_vocab_size, decoder),
            stacks: self.stacks.init_with(&params.adapted(self.adapters.as_ref()).scope(STACKS)),
            head: head.with_options(self.head).with_init(init.weight).init_with(&params.scope("head")),
            max_source_len: self.stacks.encoder.max_seq_len,
            max_target_len: self.stacks.decoder.max_seq_len,
            start_token: self.start_token as usize,
            head_reads_source,
        }
    }
}

/// An encoder-decoder over tokens.
#[derive(Module, Debug)]
pub struct Seq2SeqModel {
    /// Source tokens become vectors, where they do not by the embedding of the target.
    pub source_embedding: Option<TokenEmbedding>,
    /// Target tokens become vectors.
    pub embedding: TokenEmbedding,
    /// Encoder and decoder.
    pub stacks: EncoderDecoder,
    /// Vectors become logits.
    pub head: LmHead,
    max_source_len: usize,
    max_target_len: usize,
    start_token: usize,
    /// Whether a head without a matrix reads the embedding of the source.
    head_reads_source: bool,
}

impl Seq2SeqModel {
    /// Logits of every next target token, in plain passes, as in training.
    ///
    /// # Shapes
    /// - `source`: `[B, S]`, `source_padding`: `[B, S]`, true where a source has ended, `target`: `[B, T]`; output: `[B, T, V]`
    ///
    /// # Panics
    /// If a sequence is longer than the position scheme of its stack.
    pub fn forward(
        &self,
        source: Tensor<2, Int>,
        source_padding: Option<Tensor<2, Bool>>,
        target: Tensor<2, Int>,
    ) -> Tensor<3> {
        let encoder_output = self.encode(source, source_padding, &mut Pass::default());
        self.logits(self.decode(target, encoder_output, &SequenceInput::default(), &mut Pass::default()))
    }

    /// What the decoder reads of a source. A pass with a trace keeps the attention weights of the encoder.
    ///
    /// # Shapes
    /// - `source`: `[B, S]`, `padding`: `[B, S]`; `encoder_output`: `[B, S, D]`
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn encode(&self, source: Tensor<2, Int>, padding: Option<Tensor<2, Bool>>, pass: &mut Pass) -> EncoderOutput {
        let embedding = self.source_embedding.as_ref().unwrap_or(&self.embedding);
        let input = SequenceInput { padding, ..SequenceInput::default() };
        self.stacks.encode(embedding.forward(source), &input, pass)
    }

    /// The vectors behind the logits of the target, or of its next tokens where the pass has a cache. A pass with a trace keeps
    /// the weights of the decoder's attention and of its cross-attention.
    ///
    /// # Shapes
    /// - `target`: `[B, T]`; output: `[B, T, D]`
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn decode(
        &self,
        target: Tensor<2, Int>,
        encoder_output: EncoderOutput,
        input: &SequenceInput,
        pass: &mut Pass,
    ) -> Tensor<3> {
        self.stacks.decode(self.embedding.forward(target), encoder_output, input, pass)
    }

    /// The logits of vectors.
    ///
    /// # Shapes
    /// - `hidden`: `[B, T, D]`; output: `[B, T, V]`
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        self.lazy_logits(hidden).form()
    }

    /// The same logits for a loss that never holds all of them, [`TokenCriterion::forward_head`](firelight_core::TokenCriterion::forward_head).
    ///
    /// # Shapes
    /// - `hidden`: `[B, T, D]`
    pub fn lazy_logits(&self, hidden: Tensor<3>) -> LazyLogits {
        self.head.lazy(hidden, self.head_embedding())
    }

    /// The embedding whose matrix a head without one reads.
    pub(crate) fn head_embedding(&self) -> &TokenEmbedding {
        self.source_embedding.as_ref().filter(|_| self.head_reads_source).unwrap_or(&self.embedding)
    }

    /// The longest source, in tokens.
    pub fn max_source_len(&self) -> usize {
        self.max_source_len
    }

    /// The longest target, in tokens, the first one included.
    pub fn max_target_len(&self) -> usize {
        self.max_target_len
    }

    /// The token that every target begins with.
    pub fn start_token(&self) -> u32 {
        self.start_token as u32
    }

    /// Number of tokens of the source.
    pub fn source_vocab_size(&self) -> usize {
        self.source_embedding.as_ref().unwrap_or(&self.embedding).weight.shape()[0]
    }

    /// Number of tokens `V` of the target.
    pub fn vocab_size(&self) -> usize {
        self.embedding.weight.shape()[0]
    }

    /// An empty cache for one target.
    pub fn cache(&self) -> Cache {
        self.stacks.decoder.cache(self.max_target_len)
    }

    /// What a token of the source and one of the target cost together, in sequences of these lengths.
    pub fn cost(&self, lengths: [usize; 2]) -> Cost {
        let source = self.source_embedding.as_ref().map(|embedding| embedding.cost().named("source_embedding"));
        let parts = [
            self.embedding.cost().named("embedding"),
            self.stacks.cost(lengths).named("stacks"),
            self.head.cost(self.head_embedding()).named("head"),
        ];
        Cost::sum(source.into_iter().chain(parts))
    }

    /// The parameters by part.
    pub fn report(&self) -> ParameterReport {
        ParameterReport::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;
    use firelight_core::{EmbeddingProjectionConfig, Init, Trace, Weight};
    use firelight_kernels::{Difference, assert_close};

    #[test]
    fn published_models_are_counted_exactly() {
        // Table 3 says 65 and 213 million, with vocabularies of about 37,000.
        let count = |config: Seq2SeqConfig| config.init(&Device::default()).num_params();
        assert_eq!(count(Seq2SeqConfig::base(37_000)), 44_138_496 + 37_000 * 512);
        assert_eq!(count(Seq2SeqConfig::big(37_000)), 176_357_376 + 37_000 * 1024);
    }

    #[test]
    fn the_parts_of_the_costs_are_all_parameters_however_they_are_tied() {
        let pairs = [Tying::Target, Tying::Source, Tying::Embeddings].map(|tying| (tying, 2));
        for (tying, matrices) in pairs.into_iter().chain([(Tying::None, 3), (Tying::All, 1)]) {
            let config = Seq2SeqConfig::new(11, 8, 2, 1).with_max_seq_len(6).with_tying(tying);
            let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
            assert_eq!(model.num_params() - model.stacks.num_params(), matrices * 11 * 8);
            let tied = (model.source_embedding.is_none(), model.head.weight.is_none());
            assert_eq!(tied, (tying.ties_source(), tying.ties_head()));
            let narrow = Some(EmbeddingProjectionConfig::new(4));
            let narrow = config
                .with_both(|stack| stack.with_embedding_projection(narrow))
                .init_with(&ParamBuilder::new(&Device::default(), 0));
            for model in [model, narrow] {
                assert_eq!(model.cost([6; 2]).parameters, model.num_params());
            }
        }
    }

    const TIES: [Tying; 4] = [Tying::Target, Tying::Source, Tying::Embeddings, Tying::All];

    /// The logits of two sources and targets.
    fn logits(model: &Seq2SeqModel) -> Tensor<3> {
        let tokens = |ids: [[i32; 3]; 2]| Tensor::<2, Int>::from_ints(ids, &model.embedding.weight.device());
        model.forward(tokens([[1, 2, 3], [7, 5, 9]]), None, tokens([[0, 4, 8], [0, 10, 6]]))
    }

    /// A model whose matrices matter. Parameters of one path are equal, however they are tied.
    fn wide(tying: Tying, device: &Device) -> Seq2SeqModel {
        let init = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let config = Seq2SeqConfig::new(11, 8, 2, 1).with_max_seq_len(6).with_both(|stack| stack.with_init(init));
        config.with_tying(tying).init_with(&ParamBuilder::new(device, 0))
    }

    #[test]
    fn tied_matrices_are_those_of_an_untied_model_that_was_given_them() {
        for tying in TIES {
            let [tied, mut untied] = [tying, Tying::None].map(|tying| wide(tying, &Device::default()));
            let apart = Difference::between(&logits(&tied), &logits(&untied)).absolute;
            assert!(apart > 0.1, "{tying:?}: {apart}");
            let matrix = tied.head_embedding().weight.val();
            if tying.ties_source() {
                untied.source_embedding = Some(tied.embedding.clone());
            }
            if tying.ties_head() {
                untied.head.weight = Some(Param::from_tensor(matrix.transpose()).into());
            }
            assert_close(&logits(&tied), &logits(&untied), 1e-5);
        }
    }

    /// The gradients of the embeddings of source and target and of the head, where they have matrices of their own.
    fn gradients(model: &Seq2SeqModel) -> [Option<Tensor<2>>; 3] {
        let gradients = logits(model).square().mean().backward();
        let source = model.source_embedding.as_ref().map(|embedding| &embedding.weight);
        let weights = [source, Some(&model.embedding.weight), model.head.weight.as_ref()];
        weights.map(|weight| weight.map(|weight| weight.val().grad(&gradients).expect("a gradient")))
    }

    #[test]
    fn a_tied_matrix_gets_the_sum_of_the_gradients() {
        let device = Device::default().autodiff();
        let copy = |matrix: Tensor<2>| Param::from_tensor(Tensor::<2>::from_data(matrix.into_data(), &device));
        for tying in TIES {
            let [tied, mut untied] = [tying, Tying::None].map(|tying| wide(tying, &device));
            if tying.ties_source() {
                let source = untied.source_embedding.as_mut().expect("a matrix of its own");
                source.weight = Weight::of_table(copy(tied.embedding.weight.val()));
            }
            if tying.ties_head() {
                let matrix = tied.head_embedding().weight.val().transpose();
                untied.head.weight = Some(Weight::of_map(copy(matrix)));
            }
            let [source, target, head] = gradients(&untied).map(|gradient| gradient.expect("nothing is tied"));
            let of_rows = head.clone().transpose();
            let expected = match tying {
                Tying::None => [Some(source), Some(target), Some(head)],
                Tying::Target => [Some(source), Some(target + of_rows), None],
                Tying::Source => [Some(source + of_rows), Some(target), None],
                Tying::Embeddings => [None, Some(source + target), Some(head)],
                Tying::All => [None, Some(source + target + of_rows), None],
            };
            for pair in gradients(&tied).into_iter().zip(expected) {
                match pair {
                    (Some(found), Some(expected)) => assert_close(&found, &expected, 1e-5),
                    (found, expected) => assert!(found.is_none() && expected.is_none(), "{tying:?}"),
                }
            }
        }
    }

    #[test]
    fn a_head_reads_the_embedding_of_the_source_in_its_width() {
        let mut config = Seq2SeqConfig::new(11, 8, 2, 1).with_max_seq_len(6).with_tying(Tying::Source);
        config.stacks.encoder.embedding_projection = Some(EmbeddingProjectionConfig::new(4));
        let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
        assert_eq!(logits(&model).dims(), [2, 3, 11]);
        assert_eq!(model.head.projection.as_ref().expect("from 8 to 4").weight.dims(), [8, 4]);
        config.source_vocab_size = 9;
        let error = config.validate().expect_err("two vocabularies").to_string();
        assert!(
            error.contains("tying = \"source\" needs one vocabulary") && error.contains("to \"target\""),
            "{error}"
        );
    }

    #[test]
    fn embeddings_of_two_widths_cannot_be_tied() {
        let mut config = Seq2SeqConfig::new(11, 8, 2, 1).with_tying(Tying::Embeddings);
        config.stacks.encoder.embedding_projection = Some(EmbeddingProjectionConfig::new(4));
        config.source_vocab_size = 9;
        let error = config.validate().expect_err("two sizes");
        assert_eq!(
            error.problems(),
            [
                "tying = \"embeddings\" needs one vocabulary, but source_vocab_size = 9 and target_vocab_size = 11; set it to \
                 \"none\"",
                "tying = \"embeddings\" needs one width of embeddings, but that of stacks.encoder is 4 and that of \
                 stacks.decoder 8; set it to \"none\"",
            ]
        );
        config.with_tying(Tying::Target).validate().unwrap();
    }

    #[test]
    fn all_weights_of_attention_are_there_on_request() {
        let model =
            Seq2SeqConfig::new(9, 8, 2, 3).with_max_seq_len(6).init_with(&ParamBuilder::new(&Device::default(), 0));
        let tokens = |length| Tensor::<2, Int>::ones([2, length], &Device::default());
        let [mut encoder, mut decoder] = [Trace::default(), Trace::default()];
        let encoder_output = model.encode(tokens(5), None, &mut Pass::default().with_trace(&mut encoder));
        model.decode(
            tokens(4),
            encoder_output,
            &SequenceInput::default(),
            &mut Pass::default().with_trace(&mut decoder),
        );
        let shape = |weights: &Option<Tensor<4>>| weights.as_ref().map(Tensor::dims);
        for (encoder, decoder) in encoder.layers.iter().zip(&decoder.layers) {
            assert_eq!((shape(&encoder.attention), shape(&encoder.cross_attention)), (Some([2, 2, 5, 5]), None));
            assert_eq!(shape(&decoder.attention), Some([2, 2, 4, 4]));
            assert_eq!(shape(&decoder.cross_attention), Some([2, 2, 4, 5]));
        }
        assert_eq!((encoder.layers.len(), decoder.layers.len()), (3, 3));
    }

    #[test]
    fn all_problems_are_listed() {
        let config = Seq2SeqConfig { source_vocab_size: 5, start_token: 9, ..Seq2SeqConfig::new(9, 10, 3, 1) };
        let error = config.validate().expect_err("problems");
        let text = error.to_string();
        assert!(text.contains("tying = \"all\" needs one vocabulary") && text.contains("start_token = 9"), "{text}");
        assert_eq!(error.problems().len(), 3, "{text}");
    }
}
