//! Embeddings of another width than the residual stream, and the layer that leads from the one to the other.

use crate::error::{Checks, ConfigError};
use crate::init::{Init, ParamBuilder};
use crate::linear::{Linear, LinearConfig};
use serde::{Deserialize, Serialize};

fn yes() -> bool {
    true
}

/// Embeddings of width `E`, and a linear layer `[E, D]` behind them: `V E + E D` parameters instead of `V D`.
///
/// Source: Lan et al. 2020, ALBERT, §3.1, factorized embedding parameterization (<https://arxiv.org/abs/1909.11942>).
///
/// ```
/// use firelight_core::TransformerConfig;
///
/// let albert = r#"{"d_model": 768, "n_heads": 12, "n_layers": 12, "embedding_projection": {"d_embedding": 128}}"#;
/// let stack: TransformerConfig = serde_json::from_str(albert)?;
/// assert_eq!((stack.d_embedding(), stack.d_model), (128, 768));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[doc(alias = "project_in")]
#[doc(alias = "word_embed_proj_dim")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingProjectionConfig {
    /// Width `E` of the embeddings.
    #[doc(alias = "embedding_size")]
    pub d_embedding: usize,
    /// Adds a trained bias. Default: true, as ALBERT; OPT has none.
    #[serde(default = "yes")]
    pub bias: bool,
    /// Where the layer stands. Default: behind the positions and the norm of the embeddings.
    #[serde(default)]
    pub placement: ProjectionPlacement,
}

/// Where the layer from the embeddings to the residual stream stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProjectionPlacement {
    /// Behind positions, norm and dropout of the embeddings, which are of width `E`, as in ALBERT and ELECTRA.
    #[default]
    AfterNorm,
    /// Before them, so that they are of width `D`, as in OPT-350m (Zhang et al. 2022, <https://arxiv.org/abs/2205.01068>).
    BeforePositions,
}

impl EmbeddingProjectionConfig {
    /// From embeddings of this width, with a bias, behind their norm.
    pub fn new(d_embedding: usize) -> Self {
        Self { d_embedding, bias: true, placement: ProjectionPlacement::default() }
    }

    /// Sets whether there is a bias.
    pub fn with_bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Sets where the layer stands.
    pub fn with_placement(mut self, placement: ProjectionPlacement) -> Self {
        self.placement = placement;
        self
    }

    /// # Errors
    /// If there is no width.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Checks::default().size("embedding_projection.d_embedding", self.d_embedding).finish()
    }

    pub(crate) fn init_with(&self, d_model: usize, init: Init, params: &ParamBuilder) -> Linear {
        LinearConfig::new(self.d_embedding, d_model).with_bias(self.bias).with_init(init).init_with(params)
    }
}
