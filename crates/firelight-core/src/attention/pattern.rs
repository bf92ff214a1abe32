//! Which (query, key) pairs an attention layer leaves out, as a function of their positions.

use crate::mask::AttentionMask;
use serde::{Deserialize, Serialize};

/// The shape of a layer's attention, before padding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttentionPattern {
    /// Every query sees every key, as in an encoder.
    Full,
    /// A query sees itself and its past, as in a decoder.
    #[default]
    Causal,
}

impl AttentionPattern {
    /// Whether the key at position `key` is hidden from the query at position `query`: the definition of the pattern.
    pub fn hidden(self, query: usize, key: usize) -> bool {
        match self {
            Self::Full => false,
            Self::Causal => key > query,
        }
    }

    /// The pattern as a mask, symbolic where the kernel understands it.
    pub fn mask(self) -> AttentionMask {
        match self {
            Self::Full => AttentionMask::none(),
            Self::Causal => AttentionMask::causal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Bool, Device, Distribution, Tensor, TensorData, Tolerance};
    use firelight_kernels::attention;

    #[test]
    fn the_mask_of_a_pattern_is_its_definition() {
        let device = Device::default();
        let x = Tensor::<4>::random([1, 1, 5, 4], Distribution::Default, &device);
        for pattern in [AttentionPattern::Full, AttentionPattern::Causal] {
            let pairs: Vec<bool> = (0..25).map(|pair| pattern.hidden(pair / 5, pair % 5)).collect();
            let hidden = Tensor::<4, Bool>::from_bool(TensorData::new(pairs, [1, 1, 5, 5]), &device);
            let attend = |mask: AttentionMask| attention(x.clone(), x.clone(), x.clone(), &mask.options()).into_data();
            let expected = attend(AttentionMask::from_hidden(hidden));
            attend(pattern.mask()).assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        }
    }
}
