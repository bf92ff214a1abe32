//! The text encoder: tokens and segments become vectors, in which every token has seen every other. Nothing here knows a head,
//! a loss or a tokenizer.
//!
//! Sources: BERT, Devlin et al. 2019, §3 (<https://arxiv.org/abs/1810.04805>): token, segment and position embeddings, summed
//! and normalised, then post-norm blocks; DistilBERT, Sanh et al. 2019, §3 (<https://arxiv.org/abs/1910.01108>): the same
//! without segments, half as deep; the modern form as Warner et al. 2024, ModernBERT, §2.1 (<https://arxiv.org/abs/2412.13663>):
//! pre-norm, rotary positions, gated units, no biases.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor};
use firelight_core::{
    Activation, AdapterConfig, ConfigError, Cost, Init, NormConfig, NormPlacement, ParamBuilder, Pass, PositionConfig,
    SequenceInput, TokenEmbedding, TokenEmbeddingConfig, Transformer, TransformerConfig, WeightInit, merge_adapters,
};
use serde::{Deserialize, Serialize};

/// Added to the variance by every norm of BERT.
const BERT_EPSILON: f64 = 1e-12;

/// What an encoder reads: rows of tokens, padded on the right.
#[derive(Debug, Clone)]
pub struct TextInput {
    /// `[B, T]`.
    pub tokens: Tensor<2, Int>,
    /// `[B, T]`, the segment of each token; without them all tokens are of segment 0.
    pub segments: Option<Tensor<2, Int>>,
    /// `[B, T]`, true where a text has ended.
    pub padding: Option<Tensor<2, Bool>>,
}

impl TextInput {
    /// Texts of one segment and of equal length.
    pub fn new(tokens: Tensor<2, Int>) -> Self {
        Self { tokens, segments: None, padding: None }
    }

    /// Sets the segment of each token, `[B, T]`.
    pub fn with_segments(mut self, segments: Tensor<2, Int>) -> Self {
        self.segments = Some(segments);
        self
    }

    /// Sets which tokens are padding, `[B, T]`.
    pub fn with_padding(mut self, padding: Tensor<2, Bool>) -> Self {
        self.padding = Some(padding);
        self
    }
}

/// Configuration of a [`TextEncoder`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextEncoderConfig {
    /// Number of tokens `V`.
    pub vocab_size: usize,
    /// Number of segments that tokens may belong to, such as 2 for pairs of texts; 0, the default, has no embedding for them.
    #[serde(default)]
    pub n_segments: usize,
    /// The id of padding, of a published model whose family gives that token no position, whether a mask hides it or not. Here every token
    /// that no mask hides has a position; nothing is computed with this id. Default: none, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncounted_padding: Option<usize>,
    /// Low-rank adapters of layers of the stack. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterConfig>,
    /// The stack.
    pub transformer: TransformerConfig,
}

impl Config for TextEncoderConfig {}

impl TextEncoderConfig {
    /// A pre-norm encoder with learned positions, without segments.
    pub fn new(vocab_size: usize, d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        let transformer = TransformerConfig::encoder(d_model, n_heads, n_layers);
        Self { vocab_size, n_segments: 0, uncounted_padding: None, adapters: None, transformer }
    }

    /// A pre-norm encoder with rotary positions, gated units, root mean square norms and no biases.
    pub fn modern(vocab_size: usize, d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        Self::new(vocab_size, d_model, n_heads, n_layers).with_stack(|stack| {
            let stack = stack.with_position(PositionConfig::rotary()).with_norm(NormConfig::rms());
            stack.with_activation(Activation::GeGlu).with_bias(false)
        })
    }

    /// BERT of any size: two segments, embedding norm, post-norm, exact GELU, dropout 0.1, 512 positions.
    pub fn bert(vocab_size: usize, d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        let init = WeightInit { weight: Init::TruncatedNormal { std: 0.02 }, scale_residual: false };
        let config = Self::new(vocab_size, d_model, n_heads, n_layers).with_stack(|stack| {
            let stack = stack.with_norm_placement(NormPlacement::Post).with_embedding_norm(true);
            let stack = stack.with_norm(NormConfig::Layer { epsilon: BERT_EPSILON, bias: true });
            let stack = stack.with_activation(Activation::Gelu).with_max_seq_len(512);
            stack.with_dropout(0.1).with_init(init)
        });
        config.with_n_segments(2)
    }

    /// BERT-base: 12 layers of width 768 with 12 heads.
    pub fn bert_base(vocab_size: usize) -> Self {
        Self::bert(vocab_size, 768, 12, 12)
    }

    /// BERT-large: 24 layers of width 1024 with 16 heads.
    pub fn bert_large(vocab_size: usize) -> Self {
        Self::bert(vocab_size, 1024, 16, 24)
    }

    /// DistilBERT: the half of BERT-base, without segments.
    pub fn distilbert(vocab_size: usize) -> Self {
        Self::bert(vocab_size, 768, 12, 6).with_n_segments(0)
    }

    /// Sets the number of segments.
    pub fn with_n_segments(mut self, n_segments: usize) -> Self {
        self.n_segments = n_segments;
        self
    }

    /// Sets the id of padding that the family of a published model does not count in its positions.
    pub fn with_uncounted_padding(mut self, id: Option<usize>) -> Self {
        self.uncounted_padding = id;
        self
    }

    /// Sets the adapters of layers of the stack.
    pub fn with_adapters(mut self, adapters: Option<AdapterConfig>) -> Self {
        self.adapters = adapters;
        self
    }

    /// Changes the stack.
    pub fn with_stack(mut self, change: impl FnOnce(TransformerConfig) -> TransformerConfig) -> Self {
        self.transformer = change(self.transformer);
        self
    }

    /// The same without dropout and adapters.
    #[cfg(feature = "train")]
    pub(crate) fn quiet(&self) -> Self {
        let bare = self.clone().with_adapters(None);
        bare.with_stack(|stack| stack.with_dropout(0.0).with_stochastic_depth(0.0))
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let stack = &self.transformer;
        let unknown = self.uncounted_padding.filter(|&id| id >= self.vocab_size);
        let own = [
            unknown.map(|id| format!("uncounted_padding = {id} must be less than vocab_size = {}", self.vocab_size)),
            stack
                .patterns()
                .iter()
                .any(|pattern| pattern.is_causal())
                .then(|| "patterns of an encoder must not be causal: every token is to see what follows it".into()),
            stack
                .has_cross_attention()
                .then(|| "cross_attention = true has nothing to read in an encoder: leave it out".into()),
        ];
        let embedding = TokenEmbeddingConfig::new(self.vocab_size, stack.d_embedding()).validate();
        let segments = TokenEmbeddingConfig::new(self.n_segments.max(1), stack.d_embedding()).validate();
        let adapters = self.adapters.as_ref().map_or(Ok(()), AdapterConfig::validate);
        ConfigError::collect([embedding, segments, self.transformer.validate(), adapters], own)
    }

    /// Adds the adapters of a model with this encoder into its weights, so that it computes the same without them; a model that
    /// has none stays as it is.
    pub fn merge<M: Module>(&self, model: M) -> M {
        match &self.adapters {
            Some(adapters) => merge_adapters(model, adapters),
            None => model,
        }
    }

    /// Builds the encoder; the device draws the seed: see [`ParamBuilder::random`].
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> TextEncoder {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the encoder at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> TextEncoder {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        let params = params.adapted(self.adapters.as_ref());
        let TransformerConfig { d_model, init, .. } = self.transformer;
        let embedding = |name: &str, size: usize| {
            TokenEmbeddingConfig::new(size, self.transformer.d_embedding())
                .with_init(init.weight)
                .init_with(&params.scope(name))
        };
        TextEncoder {
            embedding: embedding("embedding", self.vocab_size),
            segment_embedding: (self.n_segments > 0).then(|| embedding("segment_embedding", self.n_segments)),
            transformer: self.transformer.init_with(&params.scope("transformer")),
            max_seq_len: self.transformer.max_seq_len,
            d_model,
        }
    }
}

/// Token and segment embeddings in front of a bidirectional stack.
#[derive(Module, Debug)]
pub struct TextEncoder {
    /// Tokens become vectors.
    pub embedding: TokenEmbedding,
    /// Segments become vectors, where there are some.
    pub segment_embedding: Option<TokenEmbedding>,
    /// The stack.
    pub transformer: Transformer,
    max_seq_len: usize,
    d_model: usize,
}

impl TextEncoder {
    /// A vector for every token. Those of padding mean nothing.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`; output: `[B, T, D]`
    ///
    /// # Panics
    /// If a text is longer than the position scheme, or segments are given to an encoder without.
    pub fn forward(&self, input: &TextInput, pass: &mut Pass) -> Tensor<3> {
        let sequence = SequenceInput { padding: input.padding.clone(), ..SequenceInput::default() };
        self.transformer.forward(self.embed(input), &sequence, pass)
    }

    /// The vectors of tokens and segments, before the stack: `[B, T, E]`, of the width of the embeddings.
    ///
    /// # Panics
    /// If segments are given to an encoder without.
    pub fn embed(&self, input: &TextInput) -> Tensor<3> {
        self.with_segments(self.embedding.forward(input.tokens.clone()), input.segments.clone())
    }

    fn with_segments(&self, x: Tensor<3>, segments: Option<Tensor<2, Int>>) -> Tensor<3> {
        match (&self.segment_embedding, segments) {
            (Some(embedding), Some(segments)) => x + embedding.forward(segments),
            (Some(embedding), None) => x + embedding.weight.val().narrow(0, 0, 1).unsqueeze::<3>(), // [1, 1, E]
            (None, None) => x,
            (None, Some(_)) => panic!("the encoder has no segments: set n_segments"),
        }
    }

    /// What a token of a text of `length` tokens costs.
    pub fn cost(&self, length: usize) -> Cost {
        let segments = self.segment_embedding.as_ref().map(|embedding| embedding.cost().named("segment_embedding"));
        let embeddings = [self.embedding.cost().named("embedding")].into_iter().chain(segments);
        Cost::sum(embeddings.chain([self.transformer.cost(length).named("transformer")]))
    }

    /// The longest text, in tokens.
    pub fn max_seq_len(&self) -> usize {
        self.max_seq_len
    }

    /// Number of tokens `V`.
    pub fn vocab_size(&self) -> usize {
        self.embedding.weight.shape()[0]
    }

    /// Width `D` of a vector.
    pub fn d_model(&self) -> usize {
        self.d_model
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::{AttentionPattern, EmbeddingProjectionConfig, check_adapters};
    use firelight_kernels::assert_close;

    #[test]
    fn the_parts_of_the_costs_are_all_parameters() {
        for config in [
            TextEncoderConfig::new(11, 8, 2, 1),
            TextEncoderConfig::modern(11, 8, 2, 1),
            TextEncoderConfig::bert(11, 8, 2, 1),
            TextEncoderConfig::bert(11, 8, 2, 1)
                .with_stack(|stack| stack.with_embedding_projection(Some(EmbeddingProjectionConfig::new(4)))),
        ] {
            let encoder = config.init_with(&ParamBuilder::new(&Device::default(), 0));
            assert_eq!(encoder.cost(4).parameters, encoder.num_params());
        }
    }

    #[test]
    fn published_encoders_are_counted_exactly() {
        // Without the poolers of 768 * 769 and 1024 * 1025; DistilBERT has none. `BertModel` and `DistilBertModel` count so.
        let count = |config: TextEncoderConfig| config.init(&Device::default()).num_params();
        assert_eq!(count(TextEncoderConfig::bert_base(30_522)), 109_482_240 - 590_592);
        assert_eq!(count(TextEncoderConfig::bert_large(30_522)), 335_141_888 - 1_049_600);
        assert_eq!(count(TextEncoderConfig::distilbert(30_522)), 66_362_880);
        let albert = TextEncoderConfig::bert(30_000, 768, 12, 12).with_stack(|stack| {
            stack.with_share_layers(true).with_embedding_projection(Some(EmbeddingProjectionConfig::new(128)))
        });
        assert_eq!(count(albert), 11_683_584 - 590_592, "ALBERT-base");
    }

    #[test]
    fn no_segments_are_the_first_segment() {
        let device = Device::default();
        let encoder = TextEncoderConfig::bert(9, 8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        let tokens = Tensor::<2, Int>::from_ints([[1, 2, 3]], &device);
        let run = |input: TextInput| encoder.forward(&input, &mut Pass::default()).into_data();
        let plain = run(TextInput::new(tokens.clone()));
        let first = run(TextInput::new(tokens.clone()).with_segments(Tensor::zeros([1, 3], &device)));
        assert_close(&plain, &first, 1e-6);
        let second = run(TextInput::new(tokens).with_segments(Tensor::ones([1, 3], &device)));
        assert_ne!(second, plain);
    }

    #[test]
    fn adapters_are_written_where_there_are_some_and_merged_they_compute_the_same() {
        let device = Device::default();
        let plain = TextEncoderConfig::modern(9, 8, 2, 1);
        assert!(!serde_json::to_string(&plain).unwrap().contains("adapters"), "files without them stay as they are");
        let adapters = AdapterConfig::new(2).with_alpha(8.0).with_targets(["query", "feed_forward.up"]);
        let config = plain.clone().with_adapters(Some(adapters));
        let read: TextEncoderConfig = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
        assert_eq!(read, config);
        let params = ParamBuilder::new(&device, 1);
        check_adapters(config.adapters.as_ref(), |params| config.init_with(params)).unwrap();
        let mut encoder = config.init_with(&params);
        let attention = encoder.transformer.blocks[0].attention.attention().unwrap();
        let adapter = attention.output.adapter.as_ref();
        assert!(adapter.is_none() && encoder.num_params() > plain.init(&device).num_params());
        encoder = encoder.map(&mut Ones);
        let run = |encoder: &TextEncoder| {
            let tokens = Tensor::<2, Int>::from_ints([[1, 2, 3]], &device);
            encoder.forward(&TextInput::new(tokens), &mut Pass::default()).into_data()
        };
        let merged = run(&config.merge(encoder.clone()));
        assert_close(&merged, &run(&encoder), 1e-5);
        assert_ne!(run(&encoder), run(&plain.init_with(&params)), "the adapters count");
    }

    /// Gives adapters that change nothing yet something to change.
    struct Ones;

    impl burn::module::ModuleMapper for Ones {
        fn map_float<const D: usize>(
            &mut self,
            param: burn::module::Param<Tensor<D>>,
        ) -> burn::module::Param<Tensor<D>> {
            param.map(|tensor| if tensor.dims()[0] == 2 { tensor.zeros_like() + 0.3 } else { tensor })
        }
    }

    #[test]
    fn a_causal_encoder_is_refused() {
        let mut config = TextEncoderConfig::new(9, 8, 3, 1);
        config.transformer = config.transformer.with_patterns(vec![AttentionPattern::Causal]);
        config.transformer = config.transformer.with_cross_attention(true);
        assert_eq!(config.validate().expect_err("three problems").problems().len(), 3);
    }

    #[test]
    fn padding_is_one_of_the_tokens() {
        let config = |id| TextEncoderConfig::bert(9, 8, 2, 1).with_uncounted_padding(Some(id));
        assert_eq!(config(8).validate(), Ok(()));
        let error = config(9).validate().expect_err("no such token").to_string();
        assert!(error.contains("uncounted_padding = 9 must be less than vocab_size = 9"), "{error}");
    }

    /// What was written before the id was kept is read, and is written again as it was.
    #[test]
    fn a_file_says_the_padding_only_where_it_is_known() {
        let config = TextEncoderConfig::bert(9, 8, 2, 1);
        let text = serde_json::to_string(&config).unwrap();
        assert!(!text.contains("uncounted_padding"), "{text}");
        assert_eq!(serde_json::from_str::<TextEncoderConfig>(&text).unwrap(), config);
        let known = config.with_uncounted_padding(Some(3));
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(serde_json::from_str::<TextEncoderConfig>(&text).unwrap(), known);
    }
}
