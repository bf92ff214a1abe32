//! What a position scheme adds to the scores of a pass.

use super::shaw;
use burn::tensor::{Int, Tensor};
use firelight_kernels::AttentionOptions;

/// The biases of one pass, made once for all layers. Only what depends on a layer's queries is left to the layer.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "there is one per pass")]
pub enum ScoreBias {
    /// `[1 | B, 1 | H, Q, K]`, the same in every layer.
    Fixed(Tensor<4>),
    /// `[H, Q + K - 1]`, the same in every layer and for every two tokens of one distance: column `Q - 1 + j - i` is added
    /// to the score of query `i` and key `j`. It takes no memory for the pairs.
    ByDistance(Tensor<2>),
    /// The product of the query with a vector that its distance to the key picks.
    OfQuery {
        /// `[N, E]`.
        weight: Tensor<2>,
        /// `[1 | B, Q, K]`, each below `N`.
        index: Tensor<3, Int>,
    },
}

impl ScoreBias {
    /// Adds to the scores of `query`: its products with the keys times `scale`, which what depends on the query is
    /// multiplied with as well.
    ///
    /// # Shapes
    /// - `query`: `[B, H, Q, E]`
    pub fn apply(&self, options: AttentionOptions, query: &Tensor<4>, scale: f64) -> AttentionOptions {
        match self {
            Self::Fixed(bias) => options.with_bias(Some(bias.clone())),
            Self::ByDistance(bias) => options.with_bias_by_distance(Some(bias.clone())),
            Self::OfQuery { weight, index } => {
                options.with_bias(Some(shaw::products(query.clone() * scale, weight.clone(), index.clone())))
            }
        }
    }
}
