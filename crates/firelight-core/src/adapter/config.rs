//! Which layers have adapters, and of what size.

use crate::error::{Checks, ConfigError};
use serde::{Deserialize, Serialize};

fn targets() -> Vec<String> {
    ["query", "value"].map(str::to_owned).into()
}

/// The scale of an adapter of rank `r`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AdapterScaling {
    /// `alpha / r`, as the paper of LoRA.
    #[default]
    Standard,
    /// `alpha / sqrt(r)`, which keeps the size of the change where the rank is large: Kalajdzievski 2023, rsLoRA, section 3, theorem
    /// 3.2 (<https://arxiv.org/abs/2312.03732>).
    RankStabilized,
}

impl AdapterScaling {
    fn is_standard(&self) -> bool {
        *self == Self::Standard
    }
}

/// Which layers have adapters, and of what size.
#[doc(alias = "LoRA")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterConfig {
    /// Width of the product, `r`. From 1; 4 to 64 is usual.
    pub rank: usize,
    /// The change is scaled by `alpha / rank`, or as `scaling` says. Above 0. Default: the rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// The scaling of the adapter: `"standard"` or `"rank_stabilized"`. Default: standard.
    #[serde(default, skip_serializing_if = "AdapterScaling::is_standard")]
    pub scaling: AdapterScaling,
    /// Dropout of what the adapter reads, from 0 to below 1. Default: 0.
    #[serde(default)]
    pub dropout: f64,
    /// Changes the direction of the weight's columns alone and learns their lengths apart (DoRA). Default: false.
    #[doc(alias = "DoRA")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub decomposed: bool,
    /// The linear layers, by the ends of their paths or by whole paths: `query`, `feed_forward.up`, `*.blocks.0.*`. `*` stands for
    /// any text, dots included, and `?` for one character. Default: those of the paper, queries and values; where they share
    /// one matrix it is `qkv`.
    #[serde(default = "targets")]
    pub targets: Vec<String>,
}

impl AdapterConfig {
    /// Adapters of queries and values.
    pub fn new(rank: usize) -> Self {
        Self {
            rank,
            alpha: None,
            scaling: AdapterScaling::Standard,
            dropout: 0.0,
            decomposed: false,
            targets: targets(),
        }
    }

    /// Sets `alpha`; the adapter is scaled by `alpha / rank`, or as `scaling` says.
    pub fn with_alpha(mut self, alpha: f64) -> Self {
        self.alpha = Some(alpha);
        self
    }

    /// Sets the scaling of the adapter.
    pub fn with_scaling(mut self, scaling: AdapterScaling) -> Self {
        self.scaling = scaling;
        self
    }

    /// Sets the dropout of what the adapters read.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// Sets whether directions and lengths are learnt apart (DoRA).
    pub fn with_decomposed(mut self, decomposed: bool) -> Self {
        self.decomposed = decomposed;
        self
    }

    /// Sets the layers.
    pub fn with_targets<S: Into<String>>(mut self, targets: impl IntoIterator<Item = S>) -> Self {
        self.targets = targets.into_iter().map(Into::into).collect();
        self
    }

    /// What the change is scaled by.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        let divisor = match self.scaling {
            AdapterScaling::Standard => rank,
            AdapterScaling::RankStabilized => rank.sqrt(),
        };
        self.alpha.unwrap_or(rank) / divisor
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let alpha = self.alpha.unwrap_or(1.0);
        Checks::default()
            .size("adapters.rank", self.rank)
            .require(alpha > 0.0 && alpha.is_finite(), || format!("adapters.alpha = {alpha} must be above 0"))
            .rate("adapters.dropout", self.dropout)
            .require(!self.targets.is_empty(), || "adapters.targets = [] must name a layer, such as \"query\"".into())
            .finish()
    }
}
