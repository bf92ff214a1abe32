//! ELECTRA as it is pre-trained: a generator, a small masked language model, says what could stand behind masks; the encoder, as
//! the discriminator, says of every token whether it is the text's own.
//!
//! Source: Clark et al. 2020, §2 and §3.2 (<https://arxiv.org/abs/2003.10555>): a generator of a fraction of the width, which
//! shares the embeddings with the discriminator and reads them through a linear layer; a second one, in its head, leads back to
//! their width. Differences: learned positions and the norm of the embeddings belong to each stack, behind that layer, so that
//! those of tokens and segments alone are shared; a generator of the same width shares no more.

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use firelight_core::{
    ConfigError, Linear, LinearConfig, ParamBuilder, Pass, SequenceInput, Transformer, TransformerConfig,
};
use serde::{Deserialize, Serialize};

use super::PretrainingConfig;
use crate::encoder::{TextEncoder, TextInput};
use crate::heads::{MaskedLanguageHead, ReplacedTokenHead};
use crate::model::ENCODER;

/// Settings of replaced-token detection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplacedTokens {
    /// Width of the generator, its heads and feed-forward networks, as a share of the discriminator's, above 0 and at most 1; it has
    /// as many layers. The paper takes 1/4 to 1/2. Default: 0.25.
    pub generator_size: f64,
    /// Weight of the discriminator's loss beside the generator's, above 0. Default: 50, as the paper.
    pub lambda: f64,
}

impl Default for ReplacedTokens {
    fn default() -> Self {
        Self { generator_size: 0.25, lambda: 50.0 }
    }
}

impl ReplacedTokens {
    /// What is wrong with them for a discriminator of this stack.
    pub(super) fn problems(&self, stack: &TransformerConfig) -> Vec<String> {
        let Self { generator_size: size, lambda } = *self;
        let weight = (!(lambda > 0.0 && lambda.is_finite()))
            .then(|| format!("data.objective.lambda = {lambda} must be above 0; the paper takes 50"));
        let key = format!("data.objective.generator_size = {size}");
        let generator = match size > 0.0 && size <= 1.0 {
            false => vec![format!("{key} must be above 0 and at most 1")],
            true if stack.validate().is_err() => Vec::new(),
            true => {
                let unbuilt = |problem| format!("{key} makes a generator that cannot be built: {problem}");
                ConfigError::list(self.generator(stack).validate()).into_iter().map(unbuilt).collect()
            }
        };
        weight.into_iter().chain(generator).collect()
    }

    /// The stack of the generator beside a discriminator of this one, whose embeddings it reads through a layer of its own.
    pub(super) fn generator(&self, stack: &TransformerConfig) -> TransformerConfig {
        let share = |size: usize| ((size as f64 * self.generator_size).round() as usize).max(1);
        let generator = stack.clone().with_d_model(share(stack.d_model)).with_embedding_projection(None);
        generator.each_layer(|layer| {
            let (attention, feed_forward) = (&mut layer.block.attention, &mut layer.block.feed_forward);
            attention.n_heads = share(attention.n_heads);
            attention.n_kv_heads = attention.n_kv_heads.map(share);
            feed_forward.d_ff = feed_forward.d_ff.map(share);
        })
    }
}

/// Says what could stand behind masks, from the embeddings of the discriminator.
#[derive(Module, Debug)]
pub struct Generator {
    /// `[E, G]`, from the width of the embeddings to that of the generator.
    pub projection: Linear,
    /// The stack of width `G`.
    pub transformer: Transformer,
    /// Vectors become the logits of tokens.
    pub head: MaskedLanguageHead,
}

/// Says which tokens a generator has replaced, beside that generator.
#[derive(Module, Debug)]
pub struct ReplacedTokenModel {
    /// Tokens become vectors.
    pub encoder: TextEncoder,
    /// Vectors become one logit for every token.
    pub head: ReplacedTokenHead,
    /// What replaces tokens.
    pub generator: Generator,
    lambda: f64,
}

impl ReplacedTokenModel {
    pub(super) fn new(config: &PretrainingConfig, replaced: ReplacedTokens, params: &ParamBuilder) -> Self {
        let stack = &config.encoder.transformer;
        let (d_model, init) = (stack.d_model, stack.init.weight);
        Self {
            encoder: config.encoder.init_with(&params.scope(ENCODER)),
            head: ReplacedTokenHead::init_with(d_model, config.head.activation, init, &params.scope("head")),
            generator: Generator::new(config, &replaced.generator(stack), &params.scope("generator")),
            lambda: replaced.lambda,
        }
    }

    /// Whether every token is taken for a replaced one: a logit above 0. Those of padding mean nothing.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`; output: `[B, T]`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn forward(&self, input: &TextInput, pass: &mut Pass) -> Tensor<2> {
        self.head.forward(self.encoder.forward(input, pass))
    }

    /// The generator's logits of what stood in some places.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`, `places`: `[M]`, each `b T + t`; output: `[1, M, V]`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn generate_at(&self, input: &TextInput, places: Tensor<1, Int>, pass: &mut Pass) -> Tensor<3> {
        let Generator { projection, transformer, head } = &self.generator;
        let x = projection.forward(self.encoder.embed(input)); // [B, T, G]
        let sequence = SequenceInput { padding: input.padding.clone(), ..SequenceInput::default() };
        head.forward_at(transformer.forward(x, &sequence, pass), places, &self.encoder.embedding)
    }

    /// Weight of the discriminator's loss beside the generator's.
    pub fn lambda(&self) -> f64 {
        self.lambda
    }
}

impl Generator {
    fn new(config: &PretrainingConfig, generator: &TransformerConfig, params: &ParamBuilder) -> Self {
        let stack = &config.encoder.transformer;
        let init = stack.init.weight;
        let sizes = [generator.d_model, stack.d_embedding(), config.encoder.vocab_size];
        let projection = LinearConfig::new(stack.d_embedding(), generator.d_model).with_init(init);
        Self {
            projection: projection.init_with(&params.scope("projection")),
            transformer: generator.init_with(&params.scope("transformer")),
            head: config.head.init_with(sizes, stack.norm, init, &params.scope("head")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextEncoderConfig;

    fn stack() -> TransformerConfig {
        TextEncoderConfig::bert(11, 16, 4, 2).transformer
    }

    #[test]
    fn the_generator_is_a_share_of_the_discriminator() {
        let generator = ReplacedTokens::default().generator(&stack().with_d_ff(60));
        let block = &generator.first().block;
        let found = (generator.d_model, block.attention.n_heads, block.feed_forward.d_ff, generator.n_layers);
        assert_eq!(found, (4, 1, Some(15), 2));
        let base = ReplacedTokens { generator_size: 1.0 / 3.0, ..ReplacedTokens::default() };
        let generator = base.generator(&TextEncoderConfig::bert_base(11).transformer);
        assert_eq!((generator.d_model, generator.first().block.attention.n_heads), (256, 4), "ELECTRA-base");
    }

    #[test]
    fn settings_out_of_range_are_all_listed() {
        let problems = |generator_size, lambda| ReplacedTokens { generator_size, lambda }.problems(&stack());
        assert!(problems(0.25, 50.0).is_empty());
        let found = problems(0.0, -1.0);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("data.objective.lambda = -1 must be above 0"), "{found:?}");
        assert!(found[1].starts_with("data.objective.generator_size = 0 must be above 0 and at most 1"), "{found:?}");
        assert_eq!(problems(f64::NAN, f64::NAN).len(), 2);
        let found = problems(0.7, 50.0); // 11 channels, 3 heads
        assert!(found.len() == 1 && found[0].contains("cannot be built: d_model = 11"), "{found:?}");
    }
}
