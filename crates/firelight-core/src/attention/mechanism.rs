//! How a query weighs the keys: the choice, and the one place that tells its kinds apart.

use super::linear::LinearAttention;
use burn::module::Module;
use serde::{Deserialize, Serialize};

/// How a query weighs the keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttentionMechanism {
    /// The softmax of the dot products of query and keys, times [`ScoreScale`](crate::ScoreScale).
    #[default]
    DotProduct,
    /// The dot products of positive features of query and keys, over their sum: time and memory grow with the length, not
    /// with its square, and a causal decoder remembers sums of a constant size. See [`LinearAttention`].
    Linear,
}

impl AttentionMechanism {
    pub(super) fn init(self) -> Mechanism {
        match self {
            Self::DotProduct => Mechanism::DotProduct(DotProduct {}),
            Self::Linear => Mechanism::Linear(LinearAttention {}),
        }
    }
}

/// The mechanism of a layer, with its parameters where it has any.
#[derive(Module, Debug)]
pub enum Mechanism {
    /// Softmax over dot products.
    DotProduct(DotProduct),
    /// Linear attention.
    Linear(LinearAttention),
}

/// Softmax over dot products, which has no parameters.
#[derive(Module, Debug)]
pub struct DotProduct {}
