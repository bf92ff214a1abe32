//! An encoder without a task of its own: its vectors are compared, or read by something else.
//!
//! Source: Reimers and Gurevych 2019, §3 (<https://arxiv.org/abs/1908.10084>).

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Bool, Device, Tensor};
use firelight_core::{ConfigError, Linear, LinearConfig, ParamBuilder, Pass};
use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;

use crate::encoder::{TextEncoder, TextEncoderConfig, TextInput};
use crate::heads::{HeadActivation, ReplacedTokenHead};
use crate::model::ENCODER;
use crate::pooling::{Pooler, PoolerConfig, Pooling, PoolingConfig};

fn mean() -> Vec<PoolingConfig> {
    vec![PoolingConfig::Mean]
}

fn yes() -> bool {
    true
}

/// A dense layer behind the pooled vector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentenceDenseConfig {
    /// Width of the vectors behind it.
    pub d_out: usize,
    /// Whether something is added.
    pub bias: bool,
    /// What is applied to the sums. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<HeadActivation>,
}

/// Configuration of a [`SentenceEncoder`], as it stands in `config.json`.
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use firelight_classification::{SentenceEncoderConfig, TextEncoderConfig, TextInput};
/// use firelight_core::Pass;
///
/// let device = Device::flex();
/// let model = SentenceEncoderConfig::new(TextEncoderConfig::bert(10, 8, 2, 1)).init(&device);
/// let input = TextInput::new(Tensor::<2, Int>::from_ints([[1, 5, 2], [1, 7, 2]], &device));
/// let vectors = model.forward(&input, &mut Pass::default());
/// let lengths = vectors.clone().square().sum_dim(1);
/// assert_eq!(vectors.dims(), [2, 8]);
/// assert!((lengths.max().into_scalar::<f32>() - 1.0).abs() < 1e-5);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentenceEncoderConfig {
    /// The encoder.
    pub encoder: TextEncoderConfig,
    /// The layer that a pre-training has left behind, the pooler of BERT, which no vector of a text goes through. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooler: Option<PoolerConfig>,
    /// The head of ELECTRA's discriminator, which says of every token whether it was replaced and which no vector of a text goes through, by the
    /// activation of its dense layer. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discriminator: Option<HeadActivation>,
    /// How the vectors of tokens become that of a text; several ways stand one behind the other. Default: their mean.
    #[serde(default = "mean")]
    pub pooling: Vec<PoolingConfig>,
    /// Dense layers behind it. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dense: Vec<SentenceDenseConfig>,
    /// Whether vectors of texts have the length 1. Default: true.
    #[serde(default = "yes")]
    pub normalize: bool,
    /// Tokens beyond which texts are cut, where that is less than the encoder reads. Default: as many as it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_text_len: Option<usize>,
    /// Texts that are put in front of others, by their names: `query` for questions, for instance. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prompts: BTreeMap<String, String>,
    /// The name of the one that is put there where nobody asks for another. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_prompt: Option<String>,
}

impl Config for SentenceEncoderConfig {}

impl SentenceEncoderConfig {
    /// The mean of the vectors of the tokens, of length 1.
    pub fn new(encoder: TextEncoderConfig) -> Self {
        Self {
            encoder,
            pooler: None,
            discriminator: None,
            pooling: mean(),
            dense: Vec::new(),
            normalize: yes(),
            max_text_len: None,
            prompts: BTreeMap::new(),
            default_prompt: None,
        }
    }

    /// Sets the layer that a pre-training has left behind.
    pub fn with_pooler(mut self, pooler: Option<PoolerConfig>) -> Self {
        self.pooler = pooler;
        self
    }

    /// Sets the head that says of every token whether it was replaced, by the activation of its dense layer.
    pub fn with_discriminator(mut self, discriminator: Option<HeadActivation>) -> Self {
        self.discriminator = discriminator;
        self
    }

    /// Sets how the vectors of tokens become that of a text.
    pub fn with_pooling(mut self, pooling: impl IntoIterator<Item = PoolingConfig>) -> Self {
        self.pooling = pooling.into_iter().collect();
        self
    }

    /// Adds a dense layer.
    pub fn with_dense(mut self, dense: SentenceDenseConfig) -> Self {
        self.dense.push(dense);
        self
    }

    /// Adds a text that can be put in front of others.
    pub fn with_prompt(mut self, name: impl Into<String>, prompt: impl Into<String>) -> Self {
        self.prompts.insert(name.into(), prompt.into());
        self
    }

    /// Sets whether vectors of texts have the length 1.
    pub fn with_normalize(mut self, normalize: bool) -> Self {
        self.normalize = normalize;
        self
    }

    /// Sets the tokens beyond which texts are cut.
    pub fn with_max_text_len(mut self, max_text_len: Option<usize>) -> Self {
        self.max_text_len = max_text_len;
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let unknown = self.default_prompt.as_ref().filter(|name| !self.prompts.contains_key(*name));
        let own = [
            (self.max_text_len == Some(0)).then(|| "max_text_len = 0 must be at least 1".into()),
            self.pooling.is_empty().then(|| "pooling must name at least one way".into()),
            self.dense.iter().any(|dense| dense.d_out == 0).then(|| "dense.d_out = 0 must be at least 1".into()),
            unknown.map(|name| format!("default_prompt = \"{name}\" is none of the prompts")),
        ];
        ConfigError::collect([self.encoder.validate()], own)
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> SentenceEncoder {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> SentenceEncoder {
        let (width, init) = (self.encoder.transformer.d_model, self.encoder.transformer.init.weight);
        let replaced =
            |activation| ReplacedTokenHead::init_with(width, activation, init, &params.scope("discriminator"));
        SentenceEncoder {
            encoder: self.encoder.init_with(&params.scope(ENCODER)),
            pooler: self.pooler.map(|pooler| pooler.init_with(width, init, &params.scope("pooler"))),
            discriminator: self.discriminator.map(replaced),
            pooling: self.poolings(&params.scope("pooling")),
            dense: self.dense_layers(&params.scope("dense")),
            activations: self.dense.iter().map(|dense| dense.activation).collect(),
            normalize: self.normalize,
            max_text_len: self.max_text_len.unwrap_or(usize::MAX).min(self.encoder.transformer.max_seq_len),
        }
    }

    fn poolings(&self, params: &ParamBuilder) -> Vec<Pooling> {
        let (width, init) = (self.encoder.transformer.d_model, self.encoder.transformer.init.weight);
        let ways = self.pooling.iter().enumerate();
        ways.map(|(i, way)| way.init_with(width, init, &params.scope(i))).collect()
    }

    fn dense_layers(&self, params: &ParamBuilder) -> Vec<Linear> {
        let (mut width, init) =
            (self.encoder.transformer.d_model * self.pooling.len(), self.encoder.transformer.init.weight);
        let layer = |(i, dense): (usize, &SentenceDenseConfig)| {
            let layer = LinearConfig::new(width, dense.d_out).with_bias(dense.bias).with_init(init);
            width = dense.d_out;
            layer.init_with(&params.scope(i))
        };
        self.dense.iter().enumerate().map(layer).collect()
    }
}

/// An encoder whose vectors of texts can be compared.
#[derive(Module, Debug)]
pub struct SentenceEncoder {
    /// Tokens become vectors.
    pub encoder: TextEncoder,
    /// What a pre-training has left behind.
    pub pooler: Option<Pooler>,
    /// Says of every token whether it was replaced: another one that a pre-training has left behind.
    pub discriminator: Option<ReplacedTokenHead>,
    /// The vectors of tokens become that of a text, one part for each.
    pub pooling: Vec<Pooling>,
    /// Dense layers behind it.
    pub dense: Vec<Linear>,
    #[module(skip)]
    activations: Vec<Option<HeadActivation>>,
    normalize: bool,
    max_text_len: usize,
}

impl SentenceEncoder {
    /// An encoder of any model: the mean of the vectors of the tokens, of length 1.
    pub(crate) fn of(encoder: TextEncoder) -> Self {
        let pooling = vec![Pooling::Mean(crate::pooling::MeanPooling {})];
        let max_text_len = encoder.max_seq_len();
        let (dense, activations) = (Vec::new(), Vec::new());
        let (pooler, discriminator) = (None, None);
        Self { encoder, pooler, discriminator, pooling, dense, activations, normalize: true, max_text_len }
    }

    /// The longest text, in tokens.
    pub fn max_text_len(&self) -> usize {
        self.max_text_len
    }

    /// Whether vectors of texts have the length 1.
    pub fn normalizes(&self) -> bool {
        self.normalize
    }

    /// A vector for every text.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`; output: `[B, D]`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn forward(&self, input: &TextInput, pass: &mut Pass) -> Tensor<2> {
        self.pooled(self.encoder.forward(input, pass), input.padding.as_ref())
    }

    /// A vector for every text, from those of its tokens.
    ///
    /// # Shapes
    /// - `hidden`: `[B, T, D]`, `padding`: `[B, T]`, true where a text has ended; output: `[B, D]`
    pub fn pooled(&self, hidden: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> Tensor<2> {
        let parts = self.pooling.iter().map(|way| way.forward(hidden.clone(), padding)).collect();
        let layers = self.dense.iter().zip(&self.activations);
        let vectors = layers.fold(Tensor::cat(parts, 1), |vectors, (dense, activation)| {
            let vectors = dense.forward(vectors);
            activation.map_or_else(|| vectors.clone(), |activation| activation.forward(vectors.clone()))
        });
        if !self.normalize {
            return vectors;
        }
        let lengths = vectors.clone().square().sum_dim(1).sqrt().clamp_min(1e-12); // [B, 1]
        vectors / lengths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Int;
    use firelight_kernels::assert_close;

    #[test]
    fn vectors_are_pooled_and_normalised_as_the_configuration_says() {
        let device = Device::default();
        let config = SentenceEncoderConfig::new(TextEncoderConfig::bert(9, 2, 1, 1));
        let hidden = Tensor::<3>::from_floats([[[3.0, 0.0], [0.0, 4.0], [50.0, 60.0]]], &device);
        let padding = Tensor::<2, Int>::from_ints([[0, 0, 1]], &device).bool();
        let vector = |config: &SentenceEncoderConfig| config.init(&device).pooled(hidden.clone(), Some(&padding));
        assert_close(&vector(&config), &[0.6, 0.8], 1e-6);
        assert_close(&vector(&config.clone().with_normalize(false)), &[1.5, 2.0], 1e-6);
        let both = config.with_pooling([PoolingConfig::Class, PoolingConfig::Mean]).with_normalize(false);
        assert_close(&vector(&both), &[3.0, 0.0, 1.5, 2.0], 1e-6);
    }

    #[test]
    fn dense_layers_stand_behind_the_pooled_vector() {
        let device = Device::default();
        let layer = |d_out, activation| SentenceDenseConfig { d_out, bias: false, activation };
        let config = SentenceEncoderConfig::new(TextEncoderConfig::bert(9, 2, 1, 1)).with_normalize(false);
        let config = config.with_dense(layer(1, Some(HeadActivation::Tanh))).with_dense(layer(3, None));
        let mut model = config.init(&device);
        let weight = |matrix: Tensor<2>| firelight_core::Weight::of_map(burn::module::Param::from_tensor(matrix));
        model.dense[0].weight = weight(Tensor::from_floats([[0.5], [0.25]], &device));
        model.dense[1].weight = weight(Tensor::from_floats([[1.0, -2.0, 3.0]], &device));
        let found = model.pooled(Tensor::from_floats([[[1.0, 2.0], [3.0, 2.0]]], &device), None);
        // The mean is (2, 2), its sum 1.5, whose tangent is 0.905148.
        assert_close(&found, &[0.905_148, -1.810_297, 2.715_445], 1e-5);
    }

    #[test]
    fn a_file_says_what_differs_from_the_default() {
        let config = SentenceEncoderConfig::new(TextEncoderConfig::bert(9, 2, 1, 1));
        let config = config.with_pooler(Some(PoolerConfig::bert())).with_pooling([PoolingConfig::Class]);
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<SentenceEncoderConfig>(&text).unwrap(), config);
        assert!(!text.contains("max_text_len") && !text.contains("discriminator"), "{text}");
    }

    #[test]
    fn a_discriminator_is_read_as_it_was_written() {
        let config = SentenceEncoderConfig::new(TextEncoderConfig::bert(9, 2, 1, 1));
        let config = config.with_discriminator(Some(HeadActivation::Relu));
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<SentenceEncoderConfig>(&text).unwrap(), config);
        let device = Device::default();
        let head = config.init(&device).discriminator.expect("the head");
        assert_eq!(head.forward(Tensor::ones([3, 4, 2], &device)).dims(), [3, 4]);
    }

    #[test]
    fn texts_are_cut_where_the_configuration_says_so() {
        let config = SentenceEncoderConfig::new(TextEncoderConfig::bert(9, 2, 1, 1));
        let longest = |longest| config.clone().with_max_text_len(longest).init(&Device::default()).max_text_len();
        assert_eq!([None, Some(7), Some(9000)].map(longest), [512, 7, 512]);
        assert!(config.clone().with_max_text_len(Some(0)).validate().is_err());
        let lost = SentenceEncoderConfig { default_prompt: Some("query".into()), ..config.clone().with_pooling([]) };
        let found = lost.validate().unwrap_err().to_string();
        assert!(found.contains("pooling must name") && found.contains("default_prompt = \"query\""), "{found}");
    }
}
