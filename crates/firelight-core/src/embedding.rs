//! Token ids become vectors; with a tied head the same matrix turns vectors into logits.

mod projection;
mod scale;

pub use projection::{EmbeddingProjectionConfig, ProjectionPlacement};
pub use scale::EmbeddingScale;

use crate::cost::Cost;
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::{Init, ParamBuilder};
use crate::weight::Weight;
use burn::module::Module;
use burn::tensor::{Device, FloatDType, Int, Tensor};
use firelight_kernels::cast;
use serde::{Deserialize, Serialize};

/// Configuration of a [`TokenEmbedding`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEmbeddingConfig {
    /// Number of tokens `V`.
    pub vocab_size: usize,
    /// Width `D` of a vector.
    pub d_model: usize,
    /// What the vectors are multiplied by. Default: nothing, as GPT.
    #[serde(default)]
    pub scale: EmbeddingScale,
    /// Distribution of the matrix. Default: `N(0, 0.02)`.
    #[serde(default)]
    pub init: Init,
}

impl TokenEmbeddingConfig {
    /// An unscaled embedding.
    pub fn new(vocab_size: usize, d_model: usize) -> Self {
        Self { vocab_size, d_model, scale: EmbeddingScale::None, init: Init::default() }
    }

    /// Sets what the vectors are multiplied by: `true` for `sqrt(D)`, or a number.
    pub fn with_scale(mut self, scale: impl Into<EmbeddingScale>) -> Self {
        self.scale = scale.into();
        self
    }

    /// Sets the distribution of the matrix.
    pub fn with_init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let sizes = Checks::default().size("vocab_size", self.vocab_size).size("d_model", self.d_model);
        sizes.include(self.init.validate()).include(self.scale.validate()).finish()
    }

    /// Builds the embedding; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> TokenEmbedding {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the embedding at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> TokenEmbedding {
        expect_valid(self.validate());
        let factor = self.scale.factor(self.d_model);
        let weight = Weight::of_table(params.param("weight", [self.vocab_size, self.d_model], self.init));
        TokenEmbedding { weight, factor, dtype: None }
    }
}

/// One trained vector per token.
#[derive(Module, Debug)]
pub struct TokenEmbedding {
    /// `[V, D]`.
    pub weight: Weight,
    factor: f64,
    /// The type of vectors from blocks.
    #[module(skip)]
    dtype: Option<FloatDType>,
}

impl TokenEmbedding {
    /// What it costs: nothing but its table.
    pub fn cost(&self) -> Cost {
        Cost::of(self).without_flops()
    }

    /// Sets the type of the vectors of a table in blocks. Default: single precision. Those of a table of floats are of its type.
    pub fn with_dtype(mut self, dtype: FloatDType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Looks the tokens up.
    ///
    /// # Shapes
    /// - `tokens`: `[B, T]`, each below `V`; output: `[B, T, D]`
    ///
    /// # Panics
    /// On a CPU if a token is not below `V`.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let x = self.weight.look_up(tokens);
        let x = match self.dtype.filter(|_| self.weight.format().is_some()) {
            Some(dtype) => cast(x, dtype),
            None => x,
        };
        if self.factor == 1.0 { x } else { x * self.factor }
    }
}
