//! A section that two structs share: the keys of a task's model stand beside those of its stack, so that a recipe can ask for
//! whatever the stack can be. (`#[serde(flatten)]` would do the same without knowing the keys, and so without naming a
//! misspelt one.)

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use toml::{Table, Value};

use super::reading::read;
use super::{Fields, fields_of};

/// What was read of a section.
#[derive(Clone, Debug)]
pub struct Apart<Own, Rest> {
    /// Of the task's own keys.
    pub own: Own,
    /// Of all other keys.
    pub rest: Rest,
    /// The keys that were named, for defaults that depend on it.
    pub named: BTreeSet<String>,
}

impl<Own: DeserializeOwned, Rest: DeserializeOwned> Apart<Own, Rest> {
    /// Reads a section `name` whose keys are `fields`, those of both.
    ///
    /// # Errors
    /// If a key is unknown or a value does not fit.
    pub fn read<'de, D: Deserializer<'de>>(
        deserializer: D,
        name: &'static str,
        fields: Fields,
    ) -> Result<Self, D::Error> {
        deserializer.deserialize_struct(name, fields, ApartVisitor { name, types: PhantomData })
    }
}

struct ApartVisitor<Own, Rest> {
    name: &'static str,
    types: PhantomData<(Own, Rest)>,
}

impl<'de, Own: DeserializeOwned, Rest: DeserializeOwned> Visitor<'de> for ApartVisitor<Own, Rest> {
    type Value = Apart<Own, Rest>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "struct {}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let keys = fields_of::<Own>().unwrap_or_default();
        let mut section = Section { map, keys, own: Table::new(), named: BTreeSet::new() };
        let rest = Rest::deserialize(MapAccessDeserializer::new(&mut section))?;
        // A custom error has no key, so its text names it.
        let own = read(Value::Table(section.own)).map_err(|misfit| Error::custom(misfit.into_text()))?;
        Ok(Apart { own, rest, named: section.named })
    }
}

/// The section as the rest reads it: without the keys that are not its own.
struct Section<A> {
    map: A,
    keys: Fields,
    own: Table,
    named: BTreeSet<String>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for &mut Section<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            self.named.insert(key.clone());
            if !self.keys.contains(&key.as_str()) {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            let value = self.map.next_value()?;
            self.own.insert(key, value);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Own {
        tied: bool,
    }

    impl Default for Own {
        fn default() -> Self {
            Self { tied: true }
        }
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Stack {
        width: usize,
    }

    fn read(text: &str) -> Result<Apart<Own, Stack>, toml::de::Error> {
        Apart::read(toml::Deserializer::parse(text)?, "Model", &["tied", "width"])
    }

    #[test]
    fn every_key_comes_to_its_struct() {
        let both = read("tied = false\nwidth = 3\n").unwrap();
        assert_eq!((both.own, both.rest), (Own { tied: false }, Stack { width: 3 }));
        let left_out = read("width = 3\n").unwrap();
        assert!(left_out.own.tied && !left_out.named.contains("tied") && left_out.named.contains("width"));
    }

    #[test]
    fn a_key_of_neither_and_a_value_that_does_not_fit_are_refused() {
        assert!(read("width = 3\ndepth = 4\n").unwrap_err().message().contains("unknown field `depth`"));
        assert!(read("width = 3\ntied = 4\n").unwrap_err().message().contains("expected a boolean"));
        assert!(read("tied = true\n").unwrap_err().message().contains("missing field `width`"));
    }
}
