//! One answer for every token, such as the part of an entity that it is: dropout and a linear layer.
//!
//! Source: Devlin et al. 2019, §5.3 (<https://arxiv.org/abs/1810.04805>). [`LossConfig`](firelight_core::LossConfig)
//! computes the loss of the logits `[B, T, C]`; padding and all tokens that continue a word are ignored.

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::Tensor;
use firelight_core::{Init, Linear, LinearConfig, ParamBuilder, dropout};
use serde::{Deserialize, Serialize};

/// Configuration of a [`TokenHead`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenHeadConfig {
    /// Dropout of the tokens' vectors. Default: 0.
    pub dropout: f64,
}

impl TokenHeadConfig {
    /// Builds the head at the builder's path.
    pub fn init_with(&self, [d_model, outputs]: [usize; 2], init: Init, params: &ParamBuilder) -> TokenHead {
        TokenHead {
            output: LinearConfig::new(d_model, outputs).with_init(init).init_with(&params.scope("output")),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }
}

/// One answer for every token.
#[derive(Module, Debug)]
pub struct TokenHead {
    /// `[D, C]`.
    pub output: Linear,
    dropout: Dropout,
}

impl TokenHead {
    /// # Shapes
    /// - `hidden`: `[B, T, D]`; output: `[B, T, C]`
    pub fn forward(&self, hidden: Tensor<3>) -> Tensor<3> {
        self.output.forward(dropout(&self.dropout, hidden))
    }
}
