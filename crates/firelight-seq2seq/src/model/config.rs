//! The configuration of the model, and the model that it builds.

use burn::config::Config;
use burn::tensor::Device;
use firelight_core::{
    Activation, AdapterConfig, ConfigError, EmbeddingScale, EncoderDecoderConfig, HeadOptions, LmHeadConfig,
    NormPlacement, ParamBuilder, PositionConfig, TokenEmbeddingConfig, TransformerConfig, WeightInit,
};
use serde::{Deserialize, Serialize};

use super::{STACKS, Seq2SeqModel, Tying};

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
