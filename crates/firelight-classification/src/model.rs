//! Whole models: an encoder with one head each. Nothing here knows a tokenizer; labels are only carried along.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use firelight_core::{ConfigError, Cost, ParamBuilder, ParameterReport, Pass};
use serde::{Deserialize, Serialize};

use crate::encoder::{TextEncoder, TextEncoderConfig, TextInput};
use crate::heads::{
    MaskedLanguageHead, MaskedLanguageHeadConfig, SequenceHead, SequenceHeadConfig, SpanHead, SpanHeadConfig,
    SpanLogits, TokenHead, TokenHeadConfig,
};
use crate::loss::ProblemType;
use crate::pooling::PoolerConfig;

/// The encoder in the paths of a model's parameters.
pub(crate) const ENCODER: &str = "encoder";

/// Configuration of a [`TextClassifier`], as it stands in `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextClassifierConfig {
    /// What the outputs are called, in their order: the classes, or the numbers.
    pub labels: Vec<String>,
    /// What a label is. Default: one of several classes.
    #[serde(default)]
    pub problem_type: ProblemType,
    /// The encoder.
    pub encoder: TextEncoderConfig,
    /// The head.
    pub head: SequenceHeadConfig,
}

impl Config for TextClassifierConfig {}

impl TextClassifierConfig {
    /// One of these classes, from the class token through a dense layer and tanh, as BERT.
    pub fn new<S: Into<String>>(encoder: TextEncoderConfig, labels: impl IntoIterator<Item = S>) -> Self {
        let labels = labels.into_iter().map(Into::into).collect();
        let head = SequenceHeadConfig::new(PoolerConfig::bert());
        Self { labels, problem_type: ProblemType::default(), encoder, head }
    }

    /// Sets the head.
    pub fn with_head(mut self, head: SequenceHeadConfig) -> Self {
        self.head = head;
        self
    }

    /// Sets what a label is.
    pub fn with_problem_type(mut self, problem_type: ProblemType) -> Self {
        self.problem_type = problem_type;
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let least = if self.problem_type == ProblemType::SingleLabel { 2 } else { 1 };
        let found = self.labels.len();
        let own = [
            (found < least).then(|| format!("labels: {found} are too few, at least {least} are needed")),
            rate("head.dropout", self.head.dropout),
        ];
        ConfigError::collect([self.encoder.validate()], own)
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> TextClassifier {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> TextClassifier {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        let sizes = [self.encoder.transformer.d_model, self.labels.len()];
        TextClassifier {
            encoder: self.encoder.init_with(&params.scope(ENCODER)),
            head: self.head.init_with(sizes, self.encoder.transformer.init.weight, &params.scope("head")),
        }
    }
}

/// One answer for a whole text.
#[derive(Module, Debug)]
pub struct TextClassifier {
    /// Tokens become vectors.
    pub encoder: TextEncoder,
    /// Vectors become an answer.
    pub head: SequenceHead,
}

impl TextClassifier {
    /// The outputs of every text: logits of classes, or numbers.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`; output: `[B, C]`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn forward(&self, input: &TextInput, pass: &mut Pass) -> Tensor<2> {
        self.head.forward(self.encoder.forward(input, pass), input.padding.as_ref())
    }

    /// Number of outputs `C`.
    pub fn num_outputs(&self) -> usize {
        self.head.output.weight.shape()[1]
    }

    /// What a token of a text of `length` tokens costs.
    pub fn cost(&self, length: usize) -> Cost {
        Cost::sum([
            self.encoder.cost(length).named("encoder"),
            Cost::of(&self.head).amortised_over(length).named("head"),
        ])
    }

    /// The parameters by part.
    pub fn report(&self) -> ParameterReport {
        ParameterReport::of(self)
    }
}

/// Configuration of a [`MaskedLanguageModel`], as it stands in `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskedLanguageModelConfig {
    /// The encoder.
    pub encoder: TextEncoderConfig,
    /// The head. Default: as BERT.
    #[serde(default)]
    pub head: MaskedLanguageHeadConfig,
}

impl Config for MaskedLanguageModelConfig {}

impl MaskedLanguageModelConfig {
    /// The head of BERT on an encoder.
    pub fn new(encoder: TextEncoderConfig) -> Self {
        Self { encoder, head: MaskedLanguageHeadConfig::default() }
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.encoder.validate()
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> MaskedLanguageModel {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> MaskedLanguageModel {
        let stack = &self.encoder.transformer;
        let sizes = [stack.d_model, stack.d_embedding(), self.encoder.vocab_size];
        MaskedLanguageModel {
            encoder: self.encoder.init_with(&params.scope(ENCODER)),
            head: self.head.init_with(sizes, stack.norm, stack.init.weight, &params.scope("head")),
        }
    }
}

/// Says which tokens stood where masks stand.
#[derive(Module, Debug)]
pub struct MaskedLanguageModel {
    /// Tokens become vectors.
    pub encoder: TextEncoder,
    /// Vectors become the logits of tokens.
    pub head: MaskedLanguageHead,
}

impl MaskedLanguageModel {
    /// The logits of every token.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`; output: `[B, T, V]`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn forward(&self, input: &TextInput, pass: &mut Pass) -> Tensor<3> {
        self.head.forward(self.encoder.forward(input, pass), &self.encoder.embedding)
    }

    /// The logits of some tokens alone, as [`MaskedLanguageHead::forward_at`].
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`, `places`: `[M]`, each `b T + t`; output: `[1, M, V]`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn forward_at(&self, input: &TextInput, places: Tensor<1, Int>, pass: &mut Pass) -> Tensor<3> {
        self.head.forward_at(self.encoder.forward(input, pass), places, &self.encoder.embedding)
    }

    /// What a token of a text of `length` tokens costs.
    pub fn cost(&self, length: usize) -> Cost {
        Cost::sum([self.encoder.cost(length).named("encoder"), self.head.cost(&self.encoder.embedding).named("head")])
    }

    /// The parameters by part.
    pub fn report(&self) -> ParameterReport {
        ParameterReport::of(self)
    }
}

/// Configuration of a [`TokenClassifier`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenClassifierConfig {
    /// What the classes are called, in their order.
    pub labels: Vec<String>,
    /// The encoder.
    pub encoder: TextEncoderConfig,
    /// The head. Default: without dropout.
    #[serde(default)]
    pub head: TokenHeadConfig,
}

impl Config for TokenClassifierConfig {}

impl TokenClassifierConfig {
    /// One of these classes for every token.
    pub fn new<S: Into<String>>(encoder: TextEncoderConfig, labels: impl IntoIterator<Item = S>) -> Self {
        let labels = labels.into_iter().map(Into::into).collect();
        Self { labels, encoder, head: TokenHeadConfig::default() }
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let found = self.labels.len();
        let own = [
            (found < 2).then(|| format!("labels: {found} are too few, at least 2 are needed")),
            rate("head.dropout", self.head.dropout),
        ];
        ConfigError::collect([self.encoder.validate()], own)
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> TokenClassifier {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> TokenClassifier {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        let stack = &self.encoder.transformer;
        TokenClassifier {
            encoder: self.encoder.init_with(&params.scope(ENCODER)),
            head: self.head.init_with([stack.d_model, self.labels.len()], stack.init.weight, &params.scope("head")),
        }
    }
}

/// One answer for every token, such as the part of an entity that it is.
#[derive(Module, Debug)]
pub struct TokenClassifier {
    /// Tokens become vectors.
    pub encoder: TextEncoder,
    /// Vectors become answers.
    pub head: TokenHead,
}

impl TokenClassifier {
    /// The logits of every token.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`; output: `[B, T, C]`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn forward(&self, input: &TextInput, pass: &mut Pass) -> Tensor<3> {
        self.head.forward(self.encoder.forward(input, pass))
    }

    /// Number of classes `C`.
    pub fn num_classes(&self) -> usize {
        self.head.output.weight.shape()[1]
    }

    /// What a token of a text of `length` tokens costs.
    pub fn cost(&self, length: usize) -> Cost {
        Cost::sum([self.encoder.cost(length).named("encoder"), Cost::of(&self.head).named("head")])
    }

    /// The parameters by part.
    pub fn report(&self) -> ParameterReport {
        ParameterReport::of(self)
    }
}

/// Configuration of a [`SpanReader`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpanReaderConfig {
    /// The encoder.
    pub encoder: TextEncoderConfig,
    /// The head.
    #[serde(default)]
    pub head: SpanHeadConfig,
    /// How texts are read.
    #[serde(default)]
    pub reading: ReadingConfig,
}

/// How a reader reads texts, which no weight depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadingConfig {
    /// Tokens from the beginning of one window on a long text to that of the next. Default: none; a long text is an error.
    pub stride: Option<usize>,
    /// The most tokens of an answer. Default: 30, as in BERT's published code.
    pub max_answer_len: usize,
    /// Whether a text need not tell the answer: whether some questions of the training had none. Default: false.
    pub unanswerable: bool,
}

impl Default for ReadingConfig {
    fn default() -> Self {
        Self { stride: None, max_answer_len: 30, unanswerable: false }
    }
}

impl Config for SpanReaderConfig {}

impl SpanReaderConfig {
    /// A reader of answers on an encoder.
    pub fn new(encoder: TextEncoderConfig) -> Self {
        Self { encoder, head: SpanHeadConfig::default(), reading: ReadingConfig::default() }
    }

    /// Sets how texts are read.
    pub fn with_reading(mut self, reading: ReadingConfig) -> Self {
        self.reading = reading;
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let ReadingConfig { stride, max_answer_len, .. } = self.reading;
        let own = [
            (stride == Some(0)).then(|| "reading.stride = 0 must be at least 1".into()),
            (max_answer_len == 0).then(|| "reading.max_answer_len = 0 must be at least 1".into()),
        ];
        ConfigError::collect([self.encoder.validate()], own)
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> SpanReader {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> SpanReader {
        let stack = &self.encoder.transformer;
        SpanReader {
            encoder: self.encoder.init_with(&params.scope(ENCODER)),
            head: self.head.init_with(stack.d_model, stack.init.weight, &params.scope("head")),
        }
    }
}

/// Finds the answer to a question in a text: question and text are a pair of segments.
#[derive(Module, Debug)]
pub struct SpanReader {
    /// Tokens become vectors.
    pub encoder: TextEncoder,
    /// Vectors become scores of first and last tokens.
    pub head: SpanHead,
}

impl SpanReader {
    /// The scores of every token as first and as last of the answer.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn forward(&self, input: &TextInput, pass: &mut Pass) -> SpanLogits {
        self.head.forward(self.encoder.forward(input, pass), input.padding.as_ref())
    }

    /// What a token of a text of `length` tokens costs.
    pub fn cost(&self, length: usize) -> Cost {
        Cost::sum([self.encoder.cost(length).named("encoder"), Cost::of(&self.head).named("head")])
    }

    /// The parameters by part.
    pub fn report(&self) -> ParameterReport {
        ParameterReport::of(self)
    }
}

/// What is wrong with a dropout rate.
fn rate(field: &str, value: f64) -> Option<String> {
    (!(0.0..1.0).contains(&value)).then(|| format!("{field} = {value} must be in [0, 1)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;
    use firelight_kernels::assert_close;

    const LABELS: [&str; 3] = ["a", "b", "c"];

    #[test]
    fn bert_base_with_its_pooler_is_counted_exactly() {
        let config = TextClassifierConfig::new(TextEncoderConfig::bert_base(30_522), ["no", "yes"]);
        assert_eq!(config.init(&Device::default()).num_params() - 2 * (768 + 1), 109_482_240);
    }

    #[test]
    fn the_parts_of_the_costs_are_all_parameters() {
        let device = Device::default();
        let encoder = || TextEncoderConfig::bert(11, 8, 2, 1);
        let classifier = TextClassifierConfig::new(encoder(), LABELS).init_with(&ParamBuilder::new(&device, 0));
        assert_eq!(classifier.cost(4).parameters, classifier.num_params());
        let masked = MaskedLanguageModelConfig::new(encoder()).init_with(&ParamBuilder::new(&device, 0));
        assert_eq!(masked.cost(4).parameters, masked.num_params());
        let tokens = TokenClassifierConfig::new(encoder(), LABELS).init_with(&ParamBuilder::new(&device, 0));
        assert_eq!(tokens.cost(4).parameters, tokens.num_params());
        let spans = SpanReaderConfig::new(encoder()).init_with(&ParamBuilder::new(&device, 0));
        assert_eq!(spans.cost(4).parameters, spans.num_params());
    }

    #[test]
    fn chosen_places_have_the_logits_that_they_have_among_all() {
        let device = Device::default();
        let model = MaskedLanguageModelConfig::new(TextEncoderConfig::modern(7, 8, 2, 1))
            .init_with(&ParamBuilder::new(&device, 0));
        let input = TextInput::new(Tensor::from_ints([[1, 2, 3], [4, 5, 6]], &device));
        let all = model.forward(&input, &mut Pass::default()).flatten::<2>(0, 1);
        let places = Tensor::<1, Int>::from_data(TensorData::from([4, 2]), &device);
        let found = model.forward_at(&input, places.clone(), &mut Pass::default());
        let expected = all.select(0, places).unsqueeze::<3>();
        assert_close(&found.into_data(), &expected.into_data(), 1e-6);
    }

    #[test]
    fn all_problems_are_listed() {
        let mut config = TextClassifierConfig::new(TextEncoderConfig::new(0, 8, 2, 1), ["alone"]);
        config.head.dropout = 1.0;
        assert_eq!(config.validate().unwrap_err().problems().len(), 3);
        config.validate().unwrap_err();
        let alone = TextClassifierConfig::new(TextEncoderConfig::new(5, 8, 2, 1), ["price"]);
        alone.with_problem_type(ProblemType::Regression).validate().unwrap();
    }
}
