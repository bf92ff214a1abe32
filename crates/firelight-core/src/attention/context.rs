//! What all layers of one pattern share in a pass: built once, read by every layer.

use crate::position::{Rotation, ScoreBias};
use firelight_kernels::AttentionMask;

/// Mask, score bias and rotation of one pass. The default is plain attention to everything.
#[derive(Debug, Clone, Default)]
pub struct AttentionContext {
    /// The pairs that are left out.
    pub mask: AttentionMask,
    /// Added to the scores.
    pub bias: Option<ScoreBias>,
    /// Turns queries and keys by their positions.
    pub rotation: Option<Rotation>,
}

impl AttentionContext {
    /// A context with a mask alone.
    pub fn masked(mask: AttentionMask) -> Self {
        Self { mask, ..Self::default() }
    }
}
