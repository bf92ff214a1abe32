//! A section that two structs share: the keys of a task's model stand beside those of its stack, so that a recipe can ask for
//! whatever the stack can be. (`#[serde(flatten)]` would do the same without knowing the keys, and so without naming a
//! misspelt one.)

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor,
};
use toml::{Table, Value};

use super::fields::{Fields, fields_of};
use super::reading::read;

/// What the format is told that it reads; messages speak of the section.
const NAME: &str = "Section";

/// What was read of a section. A struct reads one by `#[serde(from = "Apart<Own, Rest>")]`.
#[derive(Clone, Debug)]
pub struct Apart<Own, Rest> {
    /// Of the task's own keys.
    pub own: Own,
    /// Of all other keys.
    pub rest: Rest,
    /// The keys that were named, for defaults that depend on it.
    pub named: BTreeSet<String>,
}

impl<'de, Own: DeserializeOwned + 'static, Rest: DeserializeOwned + 'static> Deserialize<'de> for Apart<Own, Rest> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct(NAME, fields_of_both::<Own, Rest>(), ApartVisitor(PhantomData))
    }
}

/// The fields of both structs, in a list that stays: serde asks for one.
fn fields_of_both<Own: DeserializeOwned + 'static, Rest: DeserializeOwned + 'static>() -> Fields {
    static KNOWN: Mutex<BTreeMap<TypeId, Fields>> = Mutex::new(BTreeMap::new());
    let [own, rest] = [fields_of::<Own>(), fields_of::<Rest>()].map(Option::unwrap_or_default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(TypeId::of::<(Own, Rest)>()).or_insert_with(|| [own, rest].concat().leak())
}

struct ApartVisitor<Own, Rest>(PhantomData<(Own, Rest)>);

impl<'de, Own: DeserializeOwned, Rest: DeserializeOwned> Visitor<'de> for ApartVisitor<Own, Rest> {
    type Value = Apart<Own, Rest>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "struct {NAME}")
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
        Apart::deserialize(toml::Deserializer::parse(text)?)
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
        assert_eq!(fields_of::<Apart<Own, Stack>>(), Some(["tied", "width"].as_slice()));
    }
}
