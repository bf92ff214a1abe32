//! The language-model head: vectors become logits, by a matrix of its own or by the embedding's.

use crate::embedding::TokenEmbedding;
use crate::init::{Init, ParamBuilder};
use crate::linear::{Linear, LinearConfig};
use burn::module::Module;
use burn::tensor::Tensor;

/// Configuration of an [`LmHead`].
#[derive(Debug, Clone, PartialEq)]
pub struct LmHeadConfig {
    /// Width `D` of a vector.
    pub d_model: usize,
    /// Number of tokens `V`.
    pub vocab_size: usize,
    /// Shares the embedding's matrix (Press and Wolf 2017). Default: true.
    pub tied: bool,
    /// Distribution of a matrix of its own. Default: `N(0, 0.02)`.
    pub init: Init,
}

impl LmHeadConfig {
    /// A tied head.
    pub fn new(d_model: usize, vocab_size: usize) -> Self {
        Self { d_model, vocab_size, tied: true, init: Init::Normal { std: 0.02 } }
    }

    /// Sets whether the head shares the embedding's matrix.
    pub fn with_tied(mut self, tied: bool) -> Self {
        self.tied = tied;
        self
    }

    /// Sets the distribution of a matrix of its own.
    pub fn with_init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }

    /// Builds the head at the builder's seed and path.
    pub fn init_with(&self, params: &ParamBuilder) -> LmHead {
        if self.tied {
            return LmHead::Tied(TiedHead {});
        }
        let own = LinearConfig::new(self.d_model, self.vocab_size).with_bias(false).with_init(self.init);
        LmHead::Own(own.init_with(params))
    }
}

/// Turns vectors into logits.
#[derive(Module, Debug)]
pub enum LmHead {
    /// Reads the embedding's matrix.
    Tied(TiedHead),
    /// Has a matrix of its own, `[D, V]`.
    Own(Linear),
}

/// Holds nothing: the matrix exists once, in the embedding, so it cannot come untied when trained, saved or loaded.
#[derive(Module, Debug)]
pub struct TiedHead {}

impl LmHead {
    /// # Shapes
    /// - `hidden`: `[B, T, D]`; output: `[B, T, V]`
    pub fn forward(&self, hidden: Tensor<3>, embedding: &TokenEmbedding) -> Tensor<3> {
        match self {
            Self::Tied(_) => embedding.project(hidden),
            Self::Own(own) => own.forward(hidden),
        }
    }
}
