//! The Transformer on embeddings: positions, blocks, final norm. Start reading here.
//!
//! Encoder, decoder and decoder with cross-attention are one type: the pattern and the memory make the difference.
//! Source: Vaswani et al. 2017 (<https://arxiv.org/abs/1706.03762>).

mod config;

pub use config::TransformerConfig;

use crate::attention::{AttentionContext, AttentionPattern, Memory};
use crate::block::{BlockContext, TransformerBlock};
use crate::mask::AttentionMask;
use crate::norm::Norm;
use crate::pass::Pass;
use crate::position::{Position, PositionScheme, Positions};
use burn::module::Module;
use burn::nn::Dropout;
use burn::tensor::{Bool, Device, Int, Tensor};
use std::ops::Range;

/// What stands beside the embeddings of a pass.
#[derive(Debug, Clone, Default)]
pub struct SequenceInput {
    /// `[B, T]`, true where a token of this pass is padding.
    pub padding: Option<Tensor<2, Bool>>,
    /// `[B, T]`, the document of each token, where a row holds several: they do not see each other, and each begins at
    /// position 0.
    pub documents: Option<Tensor<2, Int>>,
    /// The encoder's output, for decoders with cross-attention.
    pub memory: Option<Memory>,
}

impl SequenceInput {
    /// Sets which tokens are padding, `[B, T]`.
    pub fn with_padding(mut self, padding: Tensor<2, Bool>) -> Self {
        self.padding = Some(padding);
        self
    }

    /// Sets the document of each token, `[B, T]`.
    pub fn with_documents(mut self, documents: Tensor<2, Int>) -> Self {
        self.documents = Some(documents);
        self
    }

    /// Sets the encoder's output.
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.memory = Some(memory);
        self
    }
}

/// A stack of blocks.
#[derive(Module, Debug)]
pub struct Transformer {
    /// The position scheme.
    pub position: Position,
    /// The layers.
    pub blocks: Vec<TransformerBlock>,
    /// The final norm, in all but post-norm stacks.
    pub norm: Option<Norm>,
    dropout: Dropout,
    #[module(skip)]
    patterns: Vec<AttentionPattern>,
}

impl Transformer {
    /// Runs the stack: all at once in training, in any number of parts with a cache, with the same result.
    ///
    /// Positions continue where the cache ends, do not count padding, and begin anew with each document.
    ///
    /// # Shapes
    /// - `x`: `[B, T, D]`; output: the same
    ///
    /// # Panics
    /// If the sequence is longer than the position scheme or the cache, or a decoder is given no memory.
    pub fn forward(&self, x: Tensor<3>, input: &SequenceInput, pass: &mut Pass) -> Tensor<3> {
        let [batch, seq_len, _] = x.dims();
        let start = pass.start();
        let padding = pass.padding(input.padding.clone(), [batch, seq_len]);
        let documents = pass.documents(input.documents.clone(), [batch, seq_len]);
        let key_len = start + seq_len;
        let [positions, keys] = [seq_len, key_len].map(|len| match (&documents, &padding) {
            (Some(documents), padding) => Positions::from_documents(documents, padding.as_ref(), len),
            (None, Some(padding)) => Positions::from_padding(padding, len),
            (None, None) => Positions::Contiguous { start: key_len - len, len },
        });
        let mut mask = padding.map_or(AttentionMask::none(), AttentionMask::padding);
        if let Some(documents) = documents {
            mask = mask.and(AttentionMask::documents(documents, seq_len));
        }
        let contexts = self.contexts([&positions, &keys], mask, input, start..key_len, &x.device());
        let mut x = self.dropout.forward(self.position.embed(x, &positions));
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(x, &contexts[i % contexts.len()], &mut pass.layer(i));
        }
        match &self.norm {
            Some(norm) => norm.forward(x),
            None => x,
        }
    }

    /// One context per pattern, for the tokens at the indices `tokens`: what its layers share is computed once.
    fn contexts(
        &self,
        [positions, keys]: [&Positions; 2],
        mask: AttentionMask,
        input: &SequenceInput,
        tokens: Range<usize>,
        device: &Device,
    ) -> Vec<BlockContext> {
        let rotation = self.position.rotation(positions, device);
        let bias = self.position.bias(positions, keys, device);
        let context = |pattern: &AttentionPattern| BlockContext {
            attention: AttentionContext {
                mask: pattern.mask(tokens.clone(), 0..tokens.end, device).and(mask.clone()),
                bias: bias.clone(),
                rotation: rotation.clone(),
            },
            memory: input.memory.clone(),
            padding: input.padding.clone(),
        };
        self.patterns.iter().map(context).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::NormPlacement;
    use crate::feed_forward::Activation;
    use crate::position::PositionConfig;

    #[test]
    fn the_base_stacks_are_counted_exactly() {
        // 6 + 6 layers of 512 / 2048, biases, without final norms as the original post-norm model.
        let device = Device::default();
        let count = |config: TransformerConfig| {
            let config = config.with_activation(Activation::Relu).with_position(PositionConfig::Sinusoidal);
            config.with_norm_placement(NormPlacement::Post).init(&device).num_params()
        };
        let encoder = count(TransformerConfig::encoder(512, 8, 6));
        let decoder = count(TransformerConfig::decoder(512, 8, 6));
        assert_eq!(encoder + decoder, 44_138_496);
    }
}
