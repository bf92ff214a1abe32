//! The shapes that `firelight bench` measures by name.

use anyhow::{Result, bail};
use clap::ValueEnum;
use firelight::language::LanguageModelConfig;
use firelight::nn::{Activation, NormConfig, PositionConfig};

use super::workload::{IMAGES, PAIRS, TEXTS};
use crate::failure::Mistake;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Shape {
    /// 4 layers, 4 heads, width 128, 12 windows of 64 characters
    Baby,
    /// 6 layers, 6 heads, width 384, 8 windows of 256 characters
    Char6,
    /// The same with 12 layers
    Char12,
    /// GPT-2 124M: 12 layers, 12 heads, width 768, 8 windows of 1,024 tokens
    Gpt2,
    /// LLaMA's parts, 110M: 12 layers, 12 heads, width 768, 32,000 tokens, 8 windows of 1,024
    Llama110m,
    /// The same, 1.0B: 22 layers, 32 heads, 4 for keys, width 2,048, one window of 2,048 tokens
    Llama1b,
    /// An encoder-decoder: 3 layers each, 8 heads, width 256, 128 pairs of 16 tokens a side
    Seq2seq,
    /// A text encoder with a class token: 4 layers, 4 heads, width 256, 32 texts of 64 tokens, 2 classes
    Bert,
    /// A vision transformer: 6 layers, 4 heads, width 128, 128 images of 28 x 28 pixels in patches of 4
    Vit,
}

impl Shape {
    /// # Errors
    /// If it is that of another model.
    pub(super) fn config(self) -> Result<LanguageModelConfig> {
        Ok(match self {
            Self::Baby => LanguageModelConfig::new(65, 128, 4, 4).with_max_seq_len(64),
            Self::Char6 => LanguageModelConfig::new(65, 384, 6, 6).with_max_seq_len(256),
            Self::Char12 => LanguageModelConfig::new(65, 384, 6, 12).with_max_seq_len(256),
            Self::Gpt2 => LanguageModelConfig::new(50_257, 768, 12, 12).with_max_seq_len(1024),
            Self::Llama110m => llama(LanguageModelConfig::new(32_000, 768, 12, 12), 12, 2048).with_max_seq_len(1024),
            Self::Llama1b => llama(LanguageModelConfig::new(32_000, 2048, 32, 22), 4, 5632).with_max_seq_len(2048),
            Self::Seq2seq | Self::Bert | Self::Vit => {
                bail!(Mistake("the shapes seq2seq, bert and vit are those of `bench train`".into()))
            }
        })
    }

    /// Rows of a batch of `train`.
    pub(super) fn batch_size(self) -> usize {
        match self {
            Self::Baby => 12,
            Self::Char6 | Self::Char12 | Self::Gpt2 | Self::Llama110m => 8,
            Self::Llama1b => 1,
            Self::Seq2seq => PAIRS[0],
            Self::Bert => TEXTS[0],
            Self::Vit => IMAGES,
        }
    }
}

/// The parts of LLaMA (Touvron et al. 2023, §2.2): rotary positions, RMSNorm, SwiGLU, no biases. Differs in that the head is tied.
pub(super) fn llama(config: LanguageModelConfig, n_kv_heads: usize, d_ff: usize) -> LanguageModelConfig {
    config.with_transformer(|stack| {
        let stack = stack.with_position(PositionConfig::rotary()).with_norm(NormConfig::rms()).with_bias(false);
        stack.with_activation(Activation::SwiGlu).with_d_ff(d_ff).with_n_kv_heads(n_kv_heads)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    /// Nothing is drawn: 1.0B numbers would take 4 GB.
    #[test]
    fn shapes_have_the_parameters_of_their_names() {
        let count = |shape: Shape| shape.config().unwrap().init(&Device::flex()).report().total();
        assert_eq!(count(Shape::Gpt2), 124_439_808); // As published.
        // A layer has four matrices of attention, three of the feed-forward network and two norms; then the table and the last norm.
        let layer = 4 * 768 * 768 + 3 * 768 * 2048 + 2 * 768;
        assert_eq!(count(Shape::Llama110m), 12 * layer + 32_000 * 768 + 768);
        assert_eq!(count(Shape::Llama110m), 109_529_856);
        let layer = 2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 5632 + 2 * 2048;
        assert_eq!(count(Shape::Llama1b), 22 * layer + 32_000 * 2048 + 2048);
        assert_eq!(count(Shape::Llama1b), 1_034_512_384);
    }
}
