//! Whether a token stands in a text by chance of another model: a dense layer with an activation, then one number for
//! every token.
//!
//! Source: Clark et al. 2020, ELECTRA, §2 (<https://arxiv.org/abs/2003.10555>), and the discriminator of its published code, whose
//! linear layer `w` has a dense layer in front of it.

use burn::module::Module;
use burn::tensor::Tensor;
use firelight_core::{Init, Linear, LinearConfig, ParamBuilder};

use super::HeadActivation;

/// One logit for every token.
#[derive(Module, Debug)]
pub struct ReplacedTokenHead {
    /// `[D, D]`.
    pub dense: Linear,
    /// `[D, 1]`.
    pub output: Linear,
    #[module(skip)]
    activation: HeadActivation,
}

impl ReplacedTokenHead {
    pub(crate) fn init_with(d_model: usize, activation: HeadActivation, init: Init, params: &ParamBuilder) -> Self {
        let layer =
            |name: &str, d_out| LinearConfig::new(d_model, d_out).with_init(init).init_with(&params.scope(name));
        Self { dense: layer("dense", d_model), output: layer("output", 1), activation }
    }

    /// # Shapes
    /// - `hidden`: `[B, T, D]`; output: `[B, T]`, above 0 where a token is taken for a replaced one
    pub fn forward(&self, hidden: Tensor<3>) -> Tensor<2> {
        let x = self.activation.forward(self.dense.forward(hidden));
        self.output.forward(x).squeeze_dim(2)
    }
}
