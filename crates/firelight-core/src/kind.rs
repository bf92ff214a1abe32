//! Reads a choice with settings in two spellings: `norm = "rms"` with every setting at its default, and
//! `norm = { kind = "rms", epsilon = 1e-6 }`. Configurations that hold [`NormConfig`](crate::NormConfig) or
//! [`PositionConfig`](crate::PositionConfig) name it in `#[serde(deserialize_with = "firelight_core::kind::deserialize")]`.

use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::{fmt, marker::PhantomData};

/// For `#[serde(deserialize_with)]` on a field whose type is an enum tagged by `kind`.
///
/// # Errors
/// If the kind or one of its settings is unknown, or a setting has the wrong type.
pub fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(KindVisitor(PhantomData))
}

/// For `#[serde(deserialize_with)]` on a list of such choices: `["causal", { kind = "sliding_window", left = 64 }]`.
///
/// # Errors
/// As [`deserialize`], for the first choice that does not fit.
pub fn deserialize_list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Vec::<Kind<T>>::deserialize(deserializer)?;
    Ok(list.into_iter().map(|kind| kind.0).collect())
}

/// As [`deserialize`], for a choice that may be left out.
///
/// # Errors
/// As [`deserialize`].
pub fn deserialize_option<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Kind<T>>::deserialize(deserializer)?.map(|kind| kind.0))
}

/// A choice in either spelling.
struct Kind<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Kind<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}

struct KindVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for KindVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a kind, or a table with `kind` and its settings")
    }

    fn visit_str<E: serde::de::Error>(self, kind: &str) -> Result<T, E> {
        T::deserialize(MapDeserializer::new(std::iter::once(("kind", kind))))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
