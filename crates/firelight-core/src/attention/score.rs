//! How the dot product of a query and a key becomes a score.
//!
//! Sources: `1 / sqrt(E)` Vaswani et al. 2017, §3.2.1 (<https://arxiv.org/abs/1706.03762>).

use serde::{Deserialize, Serialize};

/// Factor of the scores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScoreScale {
    /// `1 / sqrt(E)`: the scores of random queries and keys have variance 1 whatever the width of a head.
    #[default]
    InverseSqrt,
    /// A number of one's own, as Gemma 2's `1 / sqrt(D / H)` beside a different `E`.
    Constant(f64),
    /// 1: the plain dot product, as in Luong et al. 2015 (<https://arxiv.org/abs/1508.04025>), §3.1.
    None,
}

impl ScoreScale {
    /// The factor in the kernel's terms, where `None` is `1 / sqrt(E)`.
    pub(super) fn factor(self) -> Option<f64> {
        match self {
            Self::InverseSqrt => None,
            Self::Constant(factor) => Some(factor),
            Self::None => Some(1.0),
        }
    }

    /// Whether the scores are finite and depend on the queries.
    pub(super) fn is_usable(self) -> bool {
        self.factor().is_none_or(|factor| factor.is_finite() && factor != 0.0)
    }
}
