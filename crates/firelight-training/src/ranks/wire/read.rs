//! Bytes to values.

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::{WireError, tag};

/// The bytes that are left.
pub(super) struct Reader<'de>(&'de [u8]);

impl<'de> Reader<'de> {
    pub(super) fn new(bytes: &'de [u8]) -> Self {
        Self(bytes)
    }

    /// Makes sure that nothing is left.
    pub(super) fn finish(self) -> Result<(), WireError> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(WireError(format!("{left} bytes follow the value"))),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'de [u8], WireError> {
        let (taken, left) = self.0.split_at_checked(count).ok_or_else(cut)?;
        self.0 = left;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, left) = self.0.split_first_chunk().ok_or_else(cut)?;
        self.0 = left;
        Ok(*taken)
    }

    /// Bytes behind their length.
    fn long(&mut self) -> Result<&'de [u8], WireError> {
        let length = u64::from_le_bytes(self.number()?);
        self.take(usize::try_from(length).map_err(|_| cut())?)
    }

    fn text(&mut self) -> Result<&'de str, WireError> {
        std::str::from_utf8(self.long()?).map_err(|error| WireError(error.to_string()))
    }

    /// Passes over the tag, if it is the next one.
    fn passes(&mut self, tag: u8) -> bool {
        match self.0.split_first() {
            Some((first, left)) if *first == tag => {
                self.0 = left;
                true
            }
            _ => false,
        }
    }

    fn parts<T>(&mut self, visit: impl FnOnce(&mut Parts<'_, 'de>) -> Result<T, WireError>) -> Result<T, WireError> {
        let mut parts = Parts { reader: self, is_over: false };
        let value = visit(&mut parts)?;
        match parts.have_ended() {
            true => Ok(value),
            false => Err(WireError("there are more parts than expected".into())),
        }
    }
}

fn cut() -> WireError {
    WireError("the bytes end within a value".into())
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = WireError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        let first = self.number::<1>()?[0];
        match first {
            tag::UNIT => visitor.visit_unit(),
            tag::NONE => visitor.visit_none(),
            tag::SOME => self.deserialize_any(visitor),
            tag::FALSE => visitor.visit_bool(false),
            tag::TRUE => visitor.visit_bool(true),
            tag::SIGNED => visitor.visit_i64(i64::from_le_bytes(self.number()?)),
            tag::UNSIGNED => visitor.visit_u64(u64::from_le_bytes(self.number()?)),
            tag::SINGLE => visitor.visit_f32(f32::from_le_bytes(self.number()?)),
            tag::DOUBLE => visitor.visit_f64(f64::from_le_bytes(self.number()?)),
            tag::TEXT => visitor.visit_borrowed_str(self.text()?),
            tag::BYTES => visitor.visit_borrowed_bytes(self.long()?),
            tag::SEQUENCE => self.parts(|parts| visitor.visit_seq(parts)),
            tag::MAP => self.parts(|parts| visitor.visit_map(parts)),
            other => Err(WireError(format!("no value begins with the byte {other}"))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        if self.passes(tag::NONE) {
            return visitor.visit_none();
        }
        self.passes(tag::SOME);
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, WireError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        if self.passes(tag::MAP) {
            return self.parts(|parts| visitor.visit_enum(parts));
        }
        if self.passes(tag::TEXT) {
            return visitor.visit_enum(self.text()?.into_deserializer());
        }
        Err(WireError("no variant of an enum begins here".into()))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The parts of a value, up to its end.
struct Parts<'a, 'de> {
    reader: &'a mut Reader<'de>,
    is_over: bool,
}

impl<'de> Parts<'_, 'de> {
    fn have_ended(&mut self) -> bool {
        self.is_over = self.is_over || self.reader.passes(tag::END);
        self.is_over
    }

    fn following<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, WireError> {
        match self.have_ended() {
            true => Ok(None),
            false => seed.deserialize(&mut *self.reader).map(Some),
        }
    }
}

impl<'de> SeqAccess<'de> for &mut Parts<'_, 'de> {
    type Error = WireError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, WireError> {
        self.following(seed)
    }
}

impl<'de> MapAccess<'de> for &mut Parts<'_, 'de> {
    type Error = WireError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, WireError> {
        self.following(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, WireError> {
        seed.deserialize(&mut *self.reader)
    }
}

/// The name of a variant, and what it holds.
impl<'de> EnumAccess<'de> for &mut Parts<'_, 'de> {
    type Error = WireError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), WireError> {
        let name = seed.deserialize(&mut *self.reader)?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Parts<'_, 'de> {
    type Error = WireError;

    fn unit_variant(self) -> Result<(), WireError> {
        Deserialize::deserialize(&mut *self.reader)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, WireError> {
        seed.deserialize(&mut *self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, WireError> {
        Deserializer::deserialize_any(&mut *self.reader, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        Deserializer::deserialize_any(&mut *self.reader, visitor)
    }
}
