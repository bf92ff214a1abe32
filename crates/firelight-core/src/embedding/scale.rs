//! The factor of embeddings.

use crate::error::{Checks, ConfigError};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// What the vectors of tokens are multiplied by. In files `true`, `false` or a number.
///
/// Gemma's published code rounds `sqrt(D)` to the type of the model: 55.5 for a width of 3072 in `bfloat16`. Give that number to
/// compute as its weights were trained.
#[doc(alias = "embedding_multiplier")]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub enum EmbeddingScale {
    /// 1, as GPT; `false` in files.
    #[default]
    None,
    /// `sqrt(D)` (Vaswani et al. 2017, §3.4); `true` in files.
    SqrtWidth,
    /// A number of one's own, as Granite's `embedding_multiplier` of 12.
    Constant(f64),
}

impl EmbeddingScale {
    /// Whether vectors stay as they are.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// The factor of vectors of width `width`.
    pub(super) fn factor(self, width: usize) -> f64 {
        match self {
            Self::None => 1.0,
            Self::SqrtWidth => (width as f64).sqrt(),
            Self::Constant(factor) => factor,
        }
    }

    /// # Errors
    /// If the factor is not a number above 0.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let factor = self.factor(1);
        Checks::default()
            .require(factor > 0.0 && factor.is_finite(), || {
                format!("scale_embedding = {factor} must be above 0, true for the root of the width, or false for none")
            })
            .finish()
    }
}

impl From<bool> for EmbeddingScale {
    fn from(scale: bool) -> Self {
        if scale { Self::SqrtWidth } else { Self::None }
    }
}

impl From<f64> for EmbeddingScale {
    fn from(factor: f64) -> Self {
        Self::Constant(factor)
    }
}

impl Serialize for EmbeddingScale {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_bool(false),
            Self::SqrtWidth => serializer.serialize_bool(true),
            Self::Constant(factor) => serializer.serialize_f64(*factor),
        }
    }
}

impl<'de> Deserialize<'de> for EmbeddingScale {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScaleVisitor)
    }
}

struct ScaleVisitor;

impl Visitor<'_> for ScaleVisitor {
    type Value = EmbeddingScale;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("true, false or a number")
    }

    fn visit_bool<E: Error>(self, scale: bool) -> Result<EmbeddingScale, E> {
        Ok(scale.into())
    }

    fn visit_f64<E: Error>(self, factor: f64) -> Result<EmbeddingScale, E> {
        Ok(factor.into())
    }

    fn visit_i64<E: Error>(self, factor: i64) -> Result<EmbeddingScale, E> {
        Ok((factor as f64).into())
    }

    fn visit_u64<E: Error>(self, factor: u64) -> Result<EmbeddingScale, E> {
        Ok((factor as f64).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParamBuilder, TokenEmbeddingConfig};
    use burn::tensor::{Device, Int, Tensor};
    use firelight_kernels::assert_close;

    #[test]
    fn a_scale_is_a_truth_or_a_number() {
        let read = |text: &str| serde_json::from_str::<EmbeddingScale>(text).map_err(|error| error.to_string());
        for (text, expected) in [
            ("true", EmbeddingScale::SqrtWidth),
            ("false", EmbeddingScale::None),
            ("12.0", EmbeddingScale::Constant(12.0)),
        ] {
            assert_eq!(read(text), Ok(expected));
            assert_eq!(serde_json::to_string(&expected).expect("text"), text);
        }
        assert_eq!(read("12"), Ok(EmbeddingScale::Constant(12.0)));
        let error = read("\"sqrt\"").expect_err("a text");
        assert!(error.contains("expected true, false or a number"), "{error}");
    }

    #[test]
    fn what_is_no_factor_is_refused() {
        for bad in [0.0, -2.0, f64::NAN, f64::INFINITY] {
            let error = TokenEmbeddingConfig::new(5, 4).with_scale(bad).validate().expect_err("no factor");
            let expected =
                format!("scale_embedding = {bad} must be above 0, true for the root of the width, or false for none");
            assert_eq!(error.problems(), [expected]);
        }
    }

    #[test]
    fn vectors_are_multiplied() {
        let device = Device::default();
        let tokens = || Tensor::<2, Int>::from_ints([[3, 0]], &device);
        let vectors = |scale: EmbeddingScale| {
            TokenEmbeddingConfig::new(5, 9)
                .with_scale(scale)
                .init_with(&ParamBuilder::new(&device, 0))
                .forward(tokens())
        };
        let plain = vectors(false.into());
        assert_close(&vectors(true.into()), &(plain.clone() * 3.0), 1e-6);
        assert_close(&vectors(12.5.into()), &(plain * 12.5), 1e-6);
    }
}
