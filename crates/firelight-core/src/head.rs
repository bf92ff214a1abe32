//! The language-model head: vectors become logits, by a matrix of its own or by the embedding's.

use crate::cost::Cost;
use crate::embedding::{TokenEmbedding, TokenEmbeddingConfig};
use crate::error::{ConfigError, expect_valid};
use crate::init::{Init, ParamBuilder};
use crate::linear::{Linear, LinearConfig};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use firelight_kernels::linear;
use serde::{Deserialize, Serialize};

fn yes() -> bool {
    true
}

/// Configuration of an [`LmHead`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LmHeadConfig {
    /// Width `D` of a vector.
    pub d_model: usize,
    /// Number of tokens `V`.
    pub vocab_size: usize,
    /// Shares the embedding's matrix (Press and Wolf 2017). Default: true.
    #[serde(default = "yes")]
    pub tied: bool,
    /// Distribution of a matrix of its own. Default: `N(0, 0.02)`.
    #[serde(default)]
    pub init: Init,
}

impl LmHeadConfig {
    /// A tied head.
    pub fn new(d_model: usize, vocab_size: usize) -> Self {
        Self { d_model, vocab_size, tied: true, init: Init::default() }
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

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        TokenEmbeddingConfig::new(self.vocab_size, self.d_model).with_init(self.init).validate()
    }

    /// Builds the head with seed 0.
    pub fn init(&self, device: &Device) -> LmHead {
        self.init_with(&ParamBuilder::new(device, 0))
    }

    /// Builds the head at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> LmHead {
        expect_valid(self.validate());
        if self.tied {
            return LmHead::Tied(TiedHead {});
        }
        let own = LinearConfig::new(self.d_model, self.vocab_size).with_bias(false).with_init(self.init);
        // Its matrix is read as a whole, without what an adapter would add.
        LmHead::Own(own.init_with(&params.without_adapters()))
    }
}

/// Turns vectors into logits.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per model, and Burn's modules cannot be boxed")]
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
    /// The matrix that turns vectors into logits, `[D, V]`: for [`LossConfig::forward_head`](crate::LossConfig::forward_head),
    /// which never holds all logits.
    pub fn weight(&self, embedding: &TokenEmbedding) -> Tensor<2> {
        match self {
            Self::Tied(_) => embedding.weight.val().transpose(),
            Self::Own(own) => own.weight.val(),
        }
    }

    /// What it costs a token. A tied head has no parameters of its own.
    pub fn cost(&self, embedding: &TokenEmbedding) -> Cost {
        match self {
            Self::Tied(tied) => Cost::of(tied).with_flops(Cost::of(embedding).flops_per_token),
            Self::Own(own) => Cost::of(own),
        }
    }

    /// # Shapes
    /// - `hidden`: `[B, T, D]`; output: `[B, T, V]`
    pub fn forward(&self, hidden: Tensor<3>, embedding: &TokenEmbedding) -> Tensor<3> {
        linear(hidden, self.weight(embedding), None)
    }
}
