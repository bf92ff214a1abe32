//! One answer for every token, such as the part of an entity that it is: dropout and a linear layer.
//!
//! Source: Devlin et al. 2019, §5.3 (<https://arxiv.org/abs/1810.04805>). [`LossConfig`](firelight_core::LossConfig)
//! computes the loss of the logits `[B, T, C]`; padding and all tokens that continue a word are ignored.

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::Tensor;
use firelight_core::{Init, Linear, LinearConfig, ParamBuilder, dropout};
use serde::{Deserialize, Serialize};

use super::transform::{HeadTransform, HeadTransformConfig};

/// Configuration of a [`TokenHead`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenHeadConfig {
    /// Dropout of the tokens' vectors. Default: 0.
    pub dropout: f64,
    /// Layers before it. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transform: Option<HeadTransformConfig>,
}

impl TokenHeadConfig {
    /// Builds the head at the builder's path.
    pub fn init_with(&self, [d_model, outputs]: [usize; 2], init: Init, params: &ParamBuilder) -> TokenHead {
        let transform = |config: HeadTransformConfig| config.init_with(d_model, init, &params.scope("transform"));
        TokenHead {
            transform: self.transform.map(transform),
            output: LinearConfig::new(d_model, outputs).with_init(init).init_with(&params.scope("output")),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }
}

/// One answer for every token.
#[derive(Module, Debug)]
pub struct TokenHead {
    /// Layers before the answer.
    pub transform: Option<HeadTransform>,
    /// `[D, C]`.
    pub output: Linear,
    dropout: Dropout,
}

impl TokenHead {
    /// # Shapes
    /// - `hidden`: `[B, T, D]`; output: `[B, T, C]`
    pub fn forward(&self, hidden: Tensor<3>) -> Tensor<3> {
        let hidden = self.transform.iter().fold(hidden, |hidden, transform| transform.forward(hidden));
        self.output.forward(dropout(&self.dropout, hidden))
    }
}
