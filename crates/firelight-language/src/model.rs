//! The language model: token embedding, Transformer, head. Configuration and forward pass; nothing here knows a loss, a
//! sampler or a tokenizer.
//!
//! Source: Radford et al. 2019 (GPT-2), §2.3; the modern form with other positions, norms and activations is the same
//! type.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, FloatDType, Int, Tensor};
use firelight_core::{
    AdapterConfig, Cache, CacheType, Compression, ConfigError, Cost, EmbeddingScale, HeadOptions, LazyLogits, LmHead,
    LmHeadConfig, ParamBuilder, ParameterReport, Pass, SequenceInput, TokenEmbedding, TokenEmbeddingConfig,
    Transformer, TransformerConfig, cast_parameters,
};
use serde::{Deserialize, Serialize};

/// The stack in the paths of a model's parameters.
pub(crate) const STACK: &str = "transformer";

/// Configuration of a [`LanguageModel`], as it stands in `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanguageModelConfig {
    /// Number of tokens `V`.
    pub vocab_size: usize,
    /// The head shares the embedding's matrix.
    pub tied: bool,
    /// What the embeddings are multiplied by. Default: nothing.
    #[serde(default, skip_serializing_if = "EmbeddingScale::is_none")]
    pub scale_embedding: EmbeddingScale,
    /// Bias, scale and soft cap of the logits. Default: none of them.
    #[serde(default, skip_serializing_if = "HeadOptions::is_plain")]
    pub head: HeadOptions,
    /// Low-rank adapters of layers of the stack. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterConfig>,
    /// The stack between embedding and head; its `max_seq_len` is the context in tokens.
    pub transformer: TransformerConfig,
}

impl Config for LanguageModelConfig {}

impl LanguageModelConfig {
    /// A GPT: causal, pre-norm, learned positions, tied head.
    pub fn new(vocab_size: usize, d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        let transformer = TransformerConfig::new(d_model, n_heads, n_layers);
        let (scale_embedding, head) = (EmbeddingScale::None, HeadOptions::default());
        Self { vocab_size, tied: true, scale_embedding, head, adapters: None, transformer }
    }

    /// Sets whether the head shares the embedding's matrix.
    pub fn with_tied(mut self, tied: bool) -> Self {
        self.tied = tied;
        self
    }

    /// Sets what the embeddings are multiplied by: `true` for `sqrt(D)`, or a number.
    pub fn with_scale_embedding(mut self, scale: impl Into<EmbeddingScale>) -> Self {
        self.scale_embedding = scale.into();
        self
    }

    /// Sets bias, scale and soft cap of the logits.
    pub fn with_head(mut self, head: HeadOptions) -> Self {
        self.head = head;
        self
    }

    /// Sets the adapters of layers of the stack.
    pub fn with_adapters(mut self, adapters: Option<AdapterConfig>) -> Self {
        self.adapters = adapters;
        self
    }

    /// Sets the context, in tokens.
    pub fn with_max_seq_len(mut self, max_seq_len: usize) -> Self {
        self.transformer.max_seq_len = max_seq_len;
        self
    }

    /// Replaces the stack by what `change` makes of it.
    pub fn with_transformer(mut self, change: impl FnOnce(TransformerConfig) -> TransformerConfig) -> Self {
        self.transformer = change(self.transformer);
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let stack = &self.transformer;
        let problem = |found: bool, text: &str| found.then(|| text.to_string());
        let own = [
            // The window of a text moves by half a context.
            problem(stack.max_seq_len == 1, "max_seq_len = 1 must be at least 2"),
            problem(stack.has_cross_attention(), "cross_attention = true needs an encoder"),
            problem(
                stack.patterns().iter().any(|pattern| !pattern.is_causal()),
                "patterns must be causal: a language model that sees its next token learns nothing",
            ),
        ];
        let adapters = self.adapters.as_ref().map_or(Ok(()), AdapterConfig::validate);
        let ends = [self.embedding_config().validate(), self.head_config().validate(), adapters];
        ConfigError::collect(ends.into_iter().chain([stack.validate()]), own)
    }

    fn embedding_config(&self) -> TokenEmbeddingConfig {
        let stack = &self.transformer;
        let embedding = TokenEmbeddingConfig::new(self.vocab_size, stack.d_embedding());
        embedding.with_scale(self.scale_embedding).with_init(stack.init.weight)
    }

    fn head_config(&self) -> LmHeadConfig {
        let stack = &self.transformer;
        let head = LmHeadConfig::new(stack.d_model, self.vocab_size).with_d_embedding(stack.d_embedding());
        head.with_tied(self.tied).with_options(self.head).with_init(stack.init.weight)
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> LanguageModel {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> LanguageModel {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        LanguageModel {
            embedding: self.embedding_config().init_with(&params.scope("embedding")),
            transformer: self.transformer.init_with(&params.adapted(self.adapters.as_ref()).scope(STACK)),
            head: self.head_config().init_with(&params.scope("head")),
            max_seq_len: self.transformer.max_seq_len,
        }
    }
}

/// A decoder over tokens.
#[derive(Module, Debug)]
pub struct LanguageModel {
    /// Tokens become vectors.
    pub embedding: TokenEmbedding,
    /// Vectors learn of one another.
    pub transformer: Transformer,
    /// Vectors become logits.
    pub head: LmHead,
    max_seq_len: usize,
}

impl LanguageModel {
    /// Logits of every next token, in one plain pass.
    ///
    /// # Shapes
    /// - `tokens`: `[B, T]`; output: `[B, T, V]`
    ///
    /// # Panics
    /// If `T` is beyond the context and the position scheme ends there.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        self.logits(self.hidden(tokens, &SequenceInput::default(), &mut Pass::default()))
    }

    /// The vectors behind the logits; padding and cache ride along.
    ///
    /// # Shapes
    /// - `tokens`: `[B, T]`; output: `[B, T, D]`
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn hidden(&self, tokens: Tensor<2, Int>, input: &SequenceInput, pass: &mut Pass) -> Tensor<3> {
        self.transformer.forward(self.embedding.forward(tokens), input, pass)
    }

    /// Whether a text of `past` tokens goes on to `len` with the keys that were read; see
    /// [`Transformer::cache_stays_valid`](firelight_core::Transformer::cache_stays_valid).
    pub(crate) fn cache_stays_valid(&self, past: usize, len: usize) -> bool {
        self.transformer.cache_stays_valid(past, len)
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
        self.head.lazy(hidden, &self.embedding)
    }

    /// The context, in tokens.
    pub fn max_seq_len(&self) -> usize {
        self.max_seq_len
    }

    /// Number of tokens `V`.
    pub fn vocab_size(&self) -> usize {
        self.embedding.weight.shape()[0]
    }

    /// An empty cache for one context. Layers with a short window keep the last tokens alone.
    pub fn cache(&self) -> Cache {
        self.transformer.cache(self.max_seq_len)
    }

    /// The same, which compresses what is old of a text: see
    /// [`Transformer::compressed_cache`](firelight_core::Transformer::compressed_cache).
    ///
    /// # Errors
    /// If a number of the compression is 0, or no layer can compress its past.
    pub fn compressed_cache(&self, compression: Compression) -> Result<Cache, ConfigError> {
        self.transformer.compressed_cache(self.max_seq_len, compression)
    }

    /// The same, which stores keys and values as numbers of a type: see
    /// [`Transformer::cache_in`](firelight_core::Transformer::cache_in).
    ///
    /// # Errors
    /// If no layer keeps keys and values, or the device has no numbers of the type.
    pub fn cache_in(&self, cache_type: CacheType) -> Result<Cache, ConfigError> {
        self.transformer.cache_in(self.max_seq_len, cache_type)
    }

    /// The model with all its parameters in `dtype`, half the memory for inference. Vectors and logits are of that type, too. Matrices in
    /// blocks stay as they are, and are multiplied by vectors of that type.
    ///
    /// ```
    /// use burn::tensor::{DType, Device, FloatDType, Int, Tensor};
    /// use firelight_language::LanguageModelConfig;
    ///
    /// let model = LanguageModelConfig::new(11, 16, 2, 1).init(&Device::flex()).cast(FloatDType::BF16);
    /// let logits = model.forward(Tensor::<2, Int>::from_ints([[3, 1, 4]], &Device::flex()));
    /// assert_eq!((logits.dims(), logits.dtype()), ([1, 3, 11], DType::BF16));
    /// ```
    pub fn cast(self, dtype: FloatDType) -> Self {
        let model = cast_parameters(self, dtype);
        Self { embedding: model.embedding.with_dtype(dtype), ..model }
    }

    /// What a token of a text of `length` tokens costs.
    pub fn cost(&self, length: usize) -> Cost {
        Cost::sum([
            self.embedding.cost().named("embedding"),
            self.transformer.cost(length).named("transformer"),
            self.head.cost(&self.embedding).named("head"),
        ])
    }

    /// The parameters by part.
    pub fn report(&self) -> ParameterReport {
        ParameterReport::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::DType;
    use firelight_core::{EmbeddingProjectionConfig, PositionConfig, ProjectionPlacement};
    use firelight_kernels::{Difference, assert_close};

    #[test]
    fn published_models_are_counted_exactly() {
        // nanoGPT's CPU recipe, with biases and the position table; without the biases it prints 804,096.
        let device = Device::default();
        let baby = LanguageModelConfig::new(65, 128, 4, 4).with_max_seq_len(64);
        assert_eq!(baby.init(&device).num_params(), 809_856);
        // Without biases the norms have none either.
        let plain = baby.with_transformer(|stack| {
            let norm = firelight_core::NormConfig::Layer { epsilon: 1e-5, bias: false };
            stack.with_bias(false).with_norm(norm)
        });
        assert_eq!(plain.init(&device).num_params(), 804_096);
    }

    #[test]
    fn the_head_makes_the_logits() {
        let device = Device::default();
        let tokens = Tensor::<2, Int>::from_ints([[1, 5, 2], [3, 3, 0]], &device);
        let config = LanguageModelConfig::new(11, 16, 2, 1).with_max_seq_len(8);
        let options = HeadOptions::default().with_scale(4.0).with_soft_cap(Some(0.5));
        for tied in [true, false] {
            let model = config.clone().with_tied(tied).with_head(options).init_with(&ParamBuilder::new(&device, 0));
            assert_eq!((model.max_seq_len(), model.vocab_size()), (8, 11));
            let hidden = model.hidden(tokens.clone(), &SequenceInput::default(), &mut Pass::default());
            let weight = if tied {
                model.embedding.weight.val().transpose()
            } else {
                model.lazy_logits(hidden.clone()).map.weight.dense()
            };
            let product = hidden.reshape([6, 16]).matmul(weight).reshape([2, 3, 11]);
            assert_close(&model.forward(tokens.clone()), &((product * 8.0).tanh() * 0.5), 1e-5);
        }
    }

    #[test]
    fn half_precision_is_near_single_precision_with_a_cache_and_without() {
        let device = Device::flex(); // Others may lack these types.
        let tokens = Tensor::<2, Int>::from_ints([[1, 5, 2, 7], [3, 3, 0, 9]], &device);
        let config = LanguageModelConfig::new(11, 16, 2, 2).with_max_seq_len(8);
        for position in [PositionConfig::Learned, PositionConfig::rotary()] {
            let config = config.clone().with_transformer(|stack| stack.with_position(position));
            let model = config.init_with(&ParamBuilder::new(&device, 0));
            for dtype in [FloatDType::BF16, FloatDType::F16] {
                let half = model.clone().cast(dtype);
                let (found, expected) = (half.forward(tokens.clone()), model.forward(tokens.clone()));
                assert_eq!(found.dtype(), DType::from(dtype));
                let near = |found: &Tensor<3>, expected: &Tensor<3>| {
                    let difference =
                        Difference::between(&found.clone().cast(DType::F32), &expected.clone().cast(DType::F32));
                    assert!(difference.relative(0.0) < 2e-2, "{difference:?}");
                };
                near(&found, &expected);
                let mut cache = half.cache();
                let steps = (0..4).map(|at| {
                    let mut pass = Pass::cached(&mut cache);
                    half.logits(half.hidden(tokens.clone().narrow(1, at, 1), &SequenceInput::default(), &mut pass))
                });
                near(&Tensor::cat(steps.collect(), 1), &found);
            }
        }
    }

    #[test]
    fn embeddings_of_another_width_are_projected_in_and_out() {
        let device = Device::default();
        let tokens = Tensor::<2, Int>::from_ints([[1, 5, 2]], &device);
        for place in [ProjectionPlacement::AfterNorm, ProjectionPlacement::BeforePositions] {
            let projection = EmbeddingProjectionConfig::new(6).with_bias(false).with_placement(place);
            let config = LanguageModelConfig::new(11, 16, 2, 1).with_max_seq_len(8);
            let config = config.with_transformer(|stack| stack.with_embedding_projection(Some(projection)));
            for config in [config.clone(), config.with_tied(false)] {
                let model = config.init_with(&ParamBuilder::new(&device, 0));
                assert_eq!(model.cost(8).parameters, model.num_params());
                assert_eq!(model.embedding.weight.dims(), [11, 6]);
                assert_eq!(model.forward(tokens.clone()).dims(), [1, 3, 11]);
            }
        }
    }

    #[test]
    fn a_bias_of_the_head_is_counted() {
        let plain = LanguageModelConfig::new(11, 16, 2, 1);
        let biased = plain
            .clone()
            .with_head(HeadOptions::default().with_bias(true))
            .init_with(&ParamBuilder::new(&Device::default(), 0));
        assert_eq!(biased.num_params(), plain.init(&Device::default()).num_params() + 11);
        assert_eq!(biased.cost(8).parameters, biased.num_params());
    }

    #[test]
    fn a_head_is_judged_and_a_plain_one_is_not_written() {
        let plain = LanguageModelConfig::new(11, 16, 2, 1);
        assert!(!serde_json::to_string(&plain).unwrap().contains("\"head\":"), "files without stay as they are");
        let scaled = plain.with_head(HeadOptions::default().with_scale(0.0)).with_scale_embedding(-1.0);
        let error = scaled.validate().expect_err("two problems");
        assert!(error.problems()[0].starts_with("scale_embedding = -1 must be above 0"), "{error}");
        assert_eq!(error.problems()[1], "head.scale = 0 must be above 0");
    }

    #[test]
    fn an_untied_head_is_one_more_matrix() {
        let device = Device::default();
        let tied = LanguageModelConfig::new(11, 16, 2, 1).with_max_seq_len(8);
        let untied = tied.clone().with_tied(false);
        assert_eq!(untied.init(&device).num_params() - tied.init(&device).num_params(), 11 * 16);
    }

    #[test]
    fn all_problems_are_listed() {
        let error = LanguageModelConfig::new(0, 10, 3, 1).validate().expect_err("two problems");
        assert_eq!(error.problems().len(), 2, "{error}");
    }
}
