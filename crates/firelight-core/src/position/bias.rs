//! What a position scheme adds to the scores of a pass.

use super::shaw;
use burn::tensor::{Int, Tensor};

/// The biases of one pass, made once for all layers. Only what depends on a layer's queries is left to the layer.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "there is one per pass")]
pub enum ScoreBias {
    /// `[1 | B, 1 | H, Q, K]`, the same in every layer.
    Fixed(Tensor<4>),
    /// The product of the query with a vector that its distance to the key picks.
    OfQuery {
        /// `[N, E]`.
        weight: Tensor<2>,
        /// `[1 | B, Q, K]`, each below `N`.
        index: Tensor<3, Int>,
    },
}

impl ScoreBias {
    /// What is added to the scores of `query`: its products with the keys times `scale`, which what depends on the query
    /// is multiplied with as well.
    ///
    /// # Shapes
    /// - `query`: `[B, H, Q, E]`; output: `[1 | B, 1 | H, Q, K]`
    pub fn of(&self, query: &Tensor<4>, scale: f64) -> Tensor<4> {
        match self {
            Self::Fixed(bias) => bias.clone(),
            Self::OfQuery { weight, index } => shaw::products(query.clone() * scale, weight.clone(), index.clone()),
        }
    }
}
