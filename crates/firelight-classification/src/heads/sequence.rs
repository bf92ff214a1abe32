//! One answer for a whole text: a vector of the text, dropout, a linear layer. Whether its outputs are the logits of one label,
//! of many, or numbers, the loss says ([`SequenceLossConfig`](crate::SequenceLossConfig)).
//!
//! Source: Devlin et al. 2019, §4.1 (<https://arxiv.org/abs/1810.04805>).

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Bool, Tensor};
use firelight_core::{Init, Linear, LinearConfig, ParamBuilder, dropout};
use serde::{Deserialize, Serialize};

use super::transform::{HeadTransform, HeadTransformConfig};
use crate::pooling::{Pooler, PoolerConfig};

/// Configuration of a [`SequenceHead`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceHeadConfig {
    /// Where the vector of the text comes from.
    pub pooler: PoolerConfig,
    /// Dropout of that vector. Default: 0.
    #[serde(default)]
    pub dropout: f64,
    /// Layers between the vector and the answer. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<HeadTransformConfig>,
}

impl SequenceHeadConfig {
    /// A head without dropout.
    pub fn new(pooler: PoolerConfig) -> Self {
        Self { pooler, dropout: 0.0, transform: None }
    }

    /// Sets the dropout of the text's vector.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// Puts layers between the vector and the answer.
    pub fn with_transform(mut self, transform: Option<HeadTransformConfig>) -> Self {
        self.transform = transform;
        self
    }

    /// Builds the head at the builder's path.
    pub fn init_with(&self, [d_model, outputs]: [usize; 2], init: Init, params: &ParamBuilder) -> SequenceHead {
        let transform = |config: HeadTransformConfig| config.init_with(d_model, init, &params.scope("transform"));
        SequenceHead {
            pooler: self.pooler.init_with(d_model, init, &params.scope("pooler")),
            transform: self.transform.map(transform),
            output: LinearConfig::new(d_model, outputs).with_init(init).init_with(&params.scope("output")),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }
}

/// One answer for a whole text.
#[derive(Module, Debug)]
pub struct SequenceHead {
    /// The vector of the text.
    pub pooler: Pooler,
    /// Layers between the vector and the answer.
    pub transform: Option<HeadTransform>,
    /// `[D, C]`.
    pub output: Linear,
    dropout: Dropout,
}

impl SequenceHead {
    /// # Shapes
    /// - `hidden`: `[B, T, D]`, `padding`: `[B, T]`, true where a text has ended; output: `[B, C]`
    pub fn forward(&self, hidden: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> Tensor<2> {
        let pooled = self.pooler.forward(hidden, padding);
        let pooled = self.transform.iter().fold(pooled, |pooled, transform| transform.forward(pooled));
        self.output.forward(dropout(&self.dropout, pooled))
    }
}
