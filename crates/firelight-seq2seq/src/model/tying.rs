//! Which matrices over tokens are shared.

use serde::{Deserialize, Serialize};

/// Which of the three matrices over tokens (embedding of the source, embedding of the target, head) are one and the same: each pair
/// of them, all, or none. A tied head reads the matrix of an embedding, and a tied source that of the target's embedding, which
/// always has one of its own: no ring can be formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tying {
    /// None.
    None,
    /// The embedding of the target and the head (Press and Wolf 2017, §3).
    Target,
    /// The embedding of the source and the head; source and target have one vocabulary.
    Source,
    /// Both embeddings, as T5 1.1; source and target have one vocabulary.
    Embeddings,
    /// All three (Vaswani et al. 2017, §3.4); source and target have one vocabulary.
    #[default]
    All,
}

impl Tying {
    /// The source is read by the embedding of the target.
    pub(crate) fn ties_source(self) -> bool {
        matches!(self, Self::Embeddings | Self::All)
    }

    /// The head reads an embedding.
    pub(super) fn ties_head(self) -> bool {
        matches!(self, Self::Target | Self::Source | Self::All)
    }

    /// The embedding of the source is tied to something of the target.
    pub(crate) fn needs_one_vocabulary(self) -> bool {
        self.ties_source() || self == Self::Source
    }

    /// The value that leaves the embedding of the source by itself.
    pub(crate) fn without_source(self) -> &'static str {
        if self.ties_head() { "target" } else { "none" }
    }

    /// As files write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Target => "target",
            Self::Source => "source",
            Self::Embeddings => "embeddings",
            Self::All => "all",
        }
    }
}
