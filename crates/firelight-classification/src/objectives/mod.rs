//! What encoders are pre-trained by, and the whole models that are trained then: the encoder with the heads of its objective.
//! Nothing here knows a tokenizer or a loss.
//!
//! Sources: masked language models alone and with next-sentence prediction Devlin et al. 2019, BERT, §3.1
//! (<https://arxiv.org/abs/1810.04805>); replaced-token detection Clark et al. 2020, ELECTRA, §2
//! (<https://arxiv.org/abs/2003.10555>).

mod next_sentence;
mod replaced_token;

use std::fmt;

use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor};
use burn::tensor::{Device, Int, Tensor};
use firelight_core::{ConfigError, Cost, ParamBuilder, ParameterReport, Pass, TransformerConfig, kind};
use serde::{Deserialize, Serialize};

pub use next_sentence::{NextSentenceLogits, NextSentenceModel};
pub use replaced_token::{Generator, ReplacedTokenModel, ReplacedTokens};

use crate::encoder::{TextEncoder, TextEncoderConfig, TextInput};
use crate::heads::{MaskedLanguageHead, MaskedLanguageHeadConfig};
use crate::model::{MaskedLanguageModel, MaskedLanguageModelConfig};
use crate::pooling::Pooler;

/// What an encoder is pre-trained by: `"masked"`, `"masked_and_next_sentence"` or `"replaced"`, which has settings:
/// `{ kind = "replaced", generator_size = 0.25, lambda = 50 }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum PretrainingObjective {
    /// Which tokens stood where masks stand.
    #[default]
    Masked,
    /// The same in pairs of sentences, and whether the second follows the first: BERT's.
    MaskedAndNextSentence,
    /// Which tokens a generator has replaced: ELECTRA's.
    Replaced(ReplacedTokens),
}

impl PretrainingObjective {
    /// Whether masked tokens are all that is asked about; files leave the objective out then.
    pub(crate) fn is_masked(&self) -> bool {
        *self == Self::Masked
    }

    /// Whether sentences and their order count, and not texts alone.
    #[cfg(feature = "train")]
    pub(crate) fn reads_documents(&self) -> bool {
        *self == Self::MaskedAndNextSentence
    }
}

/// Configuration of a [`PretrainingModel`], as it stands in `config.json`.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_classification::{PretrainingConfig, PretrainingModel, PretrainingObjective, TextEncoderConfig};
///
/// let encoder = TextEncoderConfig::bert(100, 32, 4, 2);
/// let model = PretrainingConfig::new(encoder, PretrainingObjective::MaskedAndNextSentence).init(&Device::flex());
/// assert!(model.pooler().is_some() && matches!(model, PretrainingModel::NextSentence(_)));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainingConfig {
    /// What the encoder is pre-trained by. Default: masked tokens.
    #[serde(default, deserialize_with = "kind::deserialize", skip_serializing_if = "PretrainingObjective::is_masked")]
    pub objective: PretrainingObjective,
    /// The encoder.
    pub encoder: TextEncoderConfig,
    /// The head of the masked tokens. Default: as BERT.
    #[serde(default)]
    pub head: MaskedLanguageHeadConfig,
}

impl PretrainingConfig {
    /// An encoder with the heads of an objective, that of masked tokens as BERT's.
    pub fn new(encoder: TextEncoderConfig, objective: PretrainingObjective) -> Self {
        Self { objective, encoder, head: MaskedLanguageHeadConfig::default() }
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let own = match self.objective {
            PretrainingObjective::Masked => Vec::new(),
            PretrainingObjective::MaskedAndNextSentence => next_sentence::problem(&self.encoder).into_iter().collect(),
            PretrainingObjective::Replaced(replaced) => replaced.problems(&self.encoder.transformer),
        };
        ConfigError::collect([self.encoder.validate()], own.into_iter().map(Some))
    }

    /// The stack of the generator, where there is one.
    pub fn generator(&self) -> Option<TransformerConfig> {
        match self.objective {
            PretrainingObjective::Replaced(replaced) => Some(replaced.generator(&self.encoder.transformer)),
            _ => None,
        }
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> PretrainingModel {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path. Weights of the same path begin alike, whatever the objective.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> PretrainingModel {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        match self.objective {
            PretrainingObjective::Masked => PretrainingModel::Masked(self.masked().init_with(params)),
            PretrainingObjective::MaskedAndNextSentence => {
                PretrainingModel::NextSentence(NextSentenceModel::new(self.masked().init_with(params), params, self))
            }
            PretrainingObjective::Replaced(replaced) => {
                PretrainingModel::Replaced(ReplacedTokenModel::new(self, replaced, params))
            }
        }
    }

    /// The encoder with the head of the masked tokens.
    fn masked(&self) -> MaskedLanguageModelConfig {
        MaskedLanguageModelConfig { encoder: self.encoder.clone(), head: self.head }
    }
}

/// An encoder with the heads of its objective.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per training, and Burn's modules cannot be boxed")]
pub enum PretrainingModel {
    /// Says which tokens stood where masks stand.
    Masked(MaskedLanguageModel),
    /// Says so in pairs of sentences, and whether the second follows the first.
    NextSentence(NextSentenceModel),
    /// Says which tokens its generator has replaced.
    Replaced(ReplacedTokenModel),
}

/// Does the same with the model of every objective.
macro_rules! with {
    ($of:expr, $model:ident => $done:expr) => {
        match $of {
            Self::Masked($model) => $done,
            Self::NextSentence($model) => $done,
            Self::Replaced($model) => $done,
        }
    };
}

/// Turns the model of every objective into one of the same.
macro_rules! turn {
    ($of:expr, $model:ident => $turned:expr) => {
        match $of {
            Self::Masked($model) => Self::Masked($turned),
            Self::NextSentence($model) => Self::NextSentence($turned),
            Self::Replaced($model) => Self::Replaced($turned),
        }
    };
}

impl PretrainingModel {
    /// What is said of every token: the logits of what stood there, or one, of its being replaced.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`; output: `[B, T, V]` or `[B, T, 1]`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn forward(&self, input: &TextInput, pass: &mut Pass) -> Tensor<3> {
        match self {
            Self::Masked(model) => model.forward(input, pass),
            Self::NextSentence(model) => {
                model.head.forward(model.encoder.forward(input, pass), &model.encoder.embedding)
            }
            Self::Replaced(model) => model.forward(input, pass).unsqueeze_dim(2), // [B, T, 1]
        }
    }

    /// The logits of what stood in some places; of a generator and a discriminator the generator's.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`, `places`: `[M]`, each `b T + t`; output: `[1, M, V]`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn tokens_at(&self, input: &TextInput, places: Tensor<1, Int>, pass: &mut Pass) -> Tensor<3> {
        match self {
            Self::Masked(model) => model.forward_at(input, places, pass),
            Self::NextSentence(model) => {
                let hidden = model.encoder.forward(input, pass);
                model.head.forward_at(hidden, places, &model.encoder.embedding)
            }
            Self::Replaced(model) => model.generate_at(input, places, pass),
        }
    }

    /// The encoder.
    pub fn encoder(&self) -> &TextEncoder {
        with!(self, model => &model.encoder)
    }

    /// What makes one vector of a text, where the objective has learnt it.
    pub fn pooler(&self) -> Option<&Pooler> {
        match self {
            Self::NextSentence(model) => Some(&model.next_sentence.pooler),
            _ => None,
        }
    }

    /// What a token of a text of `length` tokens costs in training, where the logits of a `share` of the tokens are asked for.
    pub fn cost(&self, length: usize, share: f64) -> Cost {
        let embedding = &self.encoder().embedding;
        let encoder = self.encoder().cost(length).named("encoder");
        let tokens = |head: &MaskedLanguageHead| head.cost(embedding).scaled_by(share);
        let heads = match self {
            Self::Masked(model) => vec![tokens(&model.head).named("head")],
            Self::NextSentence(model) => vec![
                tokens(&model.head).named("head"),
                Cost::of(&model.next_sentence).amortised_over(length).named("next_sentence"),
            ],
            Self::Replaced(model) => {
                let Generator { projection, transformer, head } = &model.generator;
                let parts = [
                    Cost::of(projection).named("projection"),
                    transformer.cost(length).named("transformer"),
                    tokens(head).named("head"),
                ];
                vec![Cost::of(&model.head).named("head"), Cost::sum(parts).named("generator")]
            }
        };
        Cost::sum([encoder].into_iter().chain(heads))
    }

    /// The parameters by part.
    pub fn report(&self) -> ParameterReport {
        ParameterReport::of(self)
    }
}

/// Transparent: a derived implementation would put the name of the objective before every path, which checkpoints hold.
impl Module for PretrainingModel {
    fn collect_devices(&self, devices: Devices) -> Devices {
        with!(self, model => model.collect_devices(devices))
    }

    fn fork(self, device: &Device) -> Self {
        turn!(self, model => model.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        turn!(self, model => model.to_device(device))
    }

    fn train(self) -> Self {
        turn!(self, model => model.train())
    }

    fn valid(&self) -> Self {
        turn!(self, model => model.valid())
    }

    fn materialize(self) -> Self {
        turn!(self, model => model.materialize())
    }

    fn visit<Visitor: ModuleVisitor>(&self, visitor: &mut Visitor) {
        with!(self, model => model.visit(visitor));
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        turn!(self, model => model.map(mapper))
    }
}

impl fmt::Display for PretrainingModel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        with!(self, model => fmt::Display::fmt(model, f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::EmbeddingProjectionConfig;

    /// The modules on the way to the parameters.
    #[derive(Default)]
    struct Entered(Vec<String>);

    impl ModuleVisitor for Entered {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.push(format!("{container} {name}"));
        }
    }

    #[test]
    fn the_paths_are_those_of_the_model_alone() {
        let entered = |model: &dyn Fn(&mut Entered)| {
            let mut entered = Entered::default();
            model(&mut entered);
            entered.0
        };
        let config = config(PretrainingObjective::Masked);
        let (alone, model) = (
            config.masked().init_with(&ParamBuilder::new(&Device::default(), 0)),
            config.init_with(&ParamBuilder::new(&Device::default(), 0)),
        );
        let expected = entered(&|visitor| alone.visit(visitor));
        assert!(!expected.is_empty());
        assert_eq!(entered(&|visitor| model.visit(visitor)), expected, "checkpoints of masked language models fit");
    }

    fn config(objective: PretrainingObjective) -> PretrainingConfig {
        PretrainingConfig::new(TextEncoderConfig::bert(11, 8, 2, 1), objective)
    }

    #[test]
    fn files_without_an_objective_are_those_of_masked_language_models() {
        let masked = MaskedLanguageModelConfig::new(TextEncoderConfig::bert(11, 8, 2, 1));
        let text = serde_json::to_string(&masked).unwrap();
        let found: PretrainingConfig = serde_json::from_str(&text).unwrap();
        assert_eq!(found, config(PretrainingObjective::Masked));
        assert_eq!(serde_json::to_string(&found).unwrap(), text);
        let replaced = PretrainingObjective::Replaced(ReplacedTokens { lambda: 20.0, ..ReplacedTokens::default() });
        for objective in [PretrainingObjective::MaskedAndNextSentence, replaced] {
            let text = serde_json::to_string(&config(objective)).unwrap();
            assert_eq!(serde_json::from_str::<PretrainingConfig>(&text).unwrap(), config(objective));
        }
    }

    #[test]
    fn the_parts_of_the_costs_are_all_parameters() {
        let device = Device::default();
        let replaced = PretrainingObjective::Replaced(ReplacedTokens { generator_size: 0.5, lambda: 50.0 });
        for objective in [PretrainingObjective::Masked, PretrainingObjective::MaskedAndNextSentence, replaced] {
            let mut config = config(objective);
            let tied = config.init_with(&ParamBuilder::new(&device, 0));
            config.head.tied = false;
            let own = config.init_with(&ParamBuilder::new(&device, 0));
            config.encoder.transformer.embedding_projection = Some(EmbeddingProjectionConfig::new(4));
            let narrow = config.init_with(&ParamBuilder::new(&device, 0));
            for model in [&tied, &own, &narrow] {
                assert_eq!(model.cost(4, 0.5).parameters, model.num_params(), "{objective:?}");
            }
            assert_eq!(own.num_params(), tied.num_params() + 8 * 11, "a matrix of its own");
            assert_eq!(own.cost(4, 0.5).flops_per_token, tied.cost(4, 0.5).flops_per_token, "the same products");
        }
    }

    #[test]
    fn a_pair_needs_two_segments() {
        let config = PretrainingConfig {
            encoder: TextEncoderConfig::new(11, 8, 2, 1),
            ..config(PretrainingObjective::MaskedAndNextSentence)
        };
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains("n_segments = 0 must be 2"), "{error}");
    }
}
