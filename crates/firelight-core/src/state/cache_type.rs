//! The numbers that a cache stores keys and values as.

use burn::tensor::FloatDType;
use std::fmt;

/// How a KV cache stores keys and values, those of the tokens of a pass included: see
/// [`Transformer::cache_in`](crate::Transformer::cache_in).
///
/// | type | bytes a number | a number is |
/// |---|---|---|
/// | `Computed` | those of the keys and values | what the model has computed |
/// | `F32` | 4 | rounded to single precision, exact for what is computed in it |
/// | `Bf16` | 2 | rounded to 8 significant bits |
/// | `Q8_0` | 1.125 | `d q`, with `q` from -127 to 127 and a scale `d` for every 32 numbers of a head |
///
/// Heads whose width is no multiple of 32 have one scale in `Q8_0`.
///
/// ```
/// use firelight_core::CacheType;
///
/// assert_eq!(CacheType::from_name("q8_0"), Some(CacheType::Q8_0));
/// assert_eq!(CacheType::Bf16.to_string(), "bf16");
/// ```
#[doc(alias = "KV cache quantization")]
#[doc(alias = "kv_cache_dtype")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheType {
    /// As they are computed.
    #[default]
    Computed,
    /// In single precision.
    F32,
    /// In brain floating point.
    Bf16,
    /// In eight bits, with a scale for every 32 numbers.
    Q8_0,
}

impl CacheType {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::Computed, Self::F32, Self::Bf16, Self::Q8_0];

    /// The name in the field: `computed`, `f32`, `bf16` or `q8_0`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Computed => "computed",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
        }
    }

    /// The type of a name, in upper or lower case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cache_type| cache_type.name().eq_ignore_ascii_case(name))
    }

    /// The type of the floating point numbers that are stored, if it is always the same one.
    pub(crate) fn float(self) -> Option<FloatDType> {
        match self {
            Self::F32 => Some(FloatDType::F32),
            Self::Bf16 => Some(FloatDType::BF16),
            Self::Computed | Self::Q8_0 => None,
        }
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
