//! The names of the fields that a struct reads, asked of the struct itself: serde's derived code hands them to the format
//! it reads from, so no second list has to be kept in step.

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};

/// The names of all fields of a struct.
pub type Fields = &'static [&'static str];

/// The fields of `T` in a file; none if `T` is not read as a struct.
pub fn fields_of<T: DeserializeOwned>() -> Option<Fields> {
    let mut fields = None;
    // It always fails: there is no value to read, only a question to answer.
    let _ = T::deserialize(Question { fields: &mut fields });
    fields
}

/// A format without values that notes which fields it is asked for.
struct Question<'a> {
    fields: &'a mut Option<Fields>,
}

impl<'de> Deserializer<'de> for Question<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: Fields,
        _visitor: V,
    ) -> Result<V::Value, Error> {
        *self.fields = Some(fields);
        Err(Error::custom("only the fields were wanted"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("not a struct"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Pair {
        #[serde(rename = "left")]
        _first: usize,
        #[serde(default, rename = "right")]
        _second: String,
    }

    #[test]
    fn a_struct_tells_its_fields_and_other_types_none() {
        assert_eq!(fields_of::<Pair>(), Some(["left", "right"].as_slice()));
        assert_eq!(fields_of::<Vec<usize>>(), None);
    }
}
