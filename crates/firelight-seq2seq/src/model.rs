//! The model: embeddings of source and target, an encoder and a decoder that reads it, a head. Nothing here knows a loss, a
//! search or a tokenizer.
//!
//! Source: Vaswani et al. 2017, §3 (<https://arxiv.org/abs/1706.03762>); the modern form with other positions, norms and
//! activations is the same type.

mod config;
#[cfg(test)]
mod tests;
mod tying;

use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor};
use firelight_core::{
    Cache, Cost, EncoderDecoder, EncoderOutput, LazyLogits, LmHead, ParameterReport, Pass, SequenceInput,
    TokenEmbedding,
};

pub use config::Seq2SeqConfig;
pub use tying::Tying;

/// The stacks in the paths of a model's parameters.
pub(crate) const STACKS: &str = "stacks";

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
        self.encode_with(source, &SequenceInput { padding, ..SequenceInput::default() }, pass)
    }

    /// The same of a source of which more is known than its padding, such as where its tokens stand.
    ///
    /// # Shapes
    /// - `source`: `[B, S]`; `encoder_output`: `[B, S, D]`
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn encode_with(&self, source: Tensor<2, Int>, input: &SequenceInput, pass: &mut Pass) -> EncoderOutput {
        let embedding = self.source_embedding.as_ref().unwrap_or(&self.embedding);
        self.stacks.encode(embedding.forward(source), input, pass)
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
