//! BERT as it is pre-trained: the tokens behind masks, and whether the second sentence of a pair follows the first,
//! predicted from the pooled class token.
//!
//! Source: Devlin et al. 2019, §3.1, tasks 1 and 2 (<https://arxiv.org/abs/1810.04805>), and its published code: the class token
//! through a dense layer and tanh, then a linear layer; class 0 is the sentence that follows, class 1 any other.

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use firelight_core::{ParamBuilder, Pass};

use super::PretrainingConfig;
use crate::encoder::{TextEncoder, TextEncoderConfig, TextInput};
use crate::heads::{MaskedLanguageHead, SequenceHead, SequenceHeadConfig};
use crate::model::MaskedLanguageModel;
use crate::pooling::PoolerConfig;

/// It follows, or it does not.
const CLASSES: usize = 2;

/// The two sentences of a pair.
const SEGMENTS: usize = 2;

/// What is wrong with an encoder that is to read pairs of sentences.
pub(super) fn problem(encoder: &TextEncoderConfig) -> Option<String> {
    let found = encoder.n_segments;
    let text = "must be 2: the objective \"masked_and_next_sentence\" reads pairs of sentences, each a segment";
    (found != SEGMENTS).then(|| format!("n_segments = {found} {text}"))
}

fn head() -> SequenceHeadConfig {
    SequenceHeadConfig::new(PoolerConfig::bert())
}

/// Says which tokens stood where masks stand, and whether the second sentence follows the first.
#[derive(Module, Debug)]
pub struct NextSentenceModel {
    /// Tokens become vectors.
    pub encoder: TextEncoder,
    /// Vectors become the logits of tokens.
    pub head: MaskedLanguageHead,
    /// The vector of the class token becomes two logits.
    pub next_sentence: SequenceHead,
}

/// What is said of pairs of sentences.
#[derive(Debug, Clone)]
pub struct NextSentenceLogits {
    /// `[1, M, V]`, of the tokens that are asked about.
    pub tokens: Tensor<3>,
    /// `[B, 2]`: that the second sentence follows the first, and that it does not.
    pub order: Tensor<2>,
}

impl NextSentenceModel {
    pub(super) fn new(masked: MaskedLanguageModel, params: &ParamBuilder, config: &PretrainingConfig) -> Self {
        let stack = &config.encoder.transformer;
        let sizes = [stack.d_model, CLASSES];
        let next_sentence = head().init_with(sizes, stack.init.weight, &params.scope("next_sentence"));
        Self { encoder: masked.encoder, head: masked.head, next_sentence }
    }

    /// The logits of some tokens, and of the order of every pair.
    ///
    /// # Shapes
    /// - `input.tokens`: `[B, T]`, `places`: `[M]`, each `b T + t`
    ///
    /// # Panics
    /// As [`TextEncoder::forward`].
    pub fn forward_at(&self, input: &TextInput, places: Tensor<1, Int>, pass: &mut Pass) -> NextSentenceLogits {
        let hidden = self.encoder.forward(input, pass);
        let order = self.next_sentence.forward(hidden.clone(), input.padding.as_ref());
        NextSentenceLogits { tokens: self.head.forward_at(hidden, places, &self.encoder.embedding), order }
    }
}
