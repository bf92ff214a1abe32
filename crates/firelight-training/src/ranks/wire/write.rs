//! Values to bytes.

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
    SerializeTupleVariant, Serializer,
};

use super::{WireError, tag};

type Written = Result<(), WireError>;

/// The bytes so far.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn put(&mut self, tag: u8, bytes: &[u8]) -> Written {
        self.0.push(tag);
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn put_long(&mut self, tag: u8, bytes: &[u8]) -> Written {
        self.put(tag, &(bytes.len() as u64).to_le_bytes())?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// Begins a value with parts.
    fn open(&mut self, tag: u8) -> Parts<'_> {
        self.0.push(tag);
        Parts { writer: self, ends: 1 }
    }

    /// Begins a variant with parts: a map from its name to them.
    fn open_variant(&mut self, name: &str, tag: u8) -> Result<Parts<'_>, WireError> {
        self.0.push(tag::MAP);
        self.put_long(tag::TEXT, name.as_bytes())?;
        self.0.push(tag);
        Ok(Parts { writer: self, ends: 2 })
    }
}

impl<'a> Serializer for &'a mut Writer {
    type Ok = ();
    type Error = WireError;
    type SerializeSeq = Parts<'a>;
    type SerializeTuple = Parts<'a>;
    type SerializeTupleStruct = Parts<'a>;
    type SerializeTupleVariant = Parts<'a>;
    type SerializeMap = Parts<'a>;
    type SerializeStruct = Parts<'a>;
    type SerializeStructVariant = Parts<'a>;

    fn serialize_bool(self, value: bool) -> Written {
        self.put(if value { tag::TRUE } else { tag::FALSE }, &[])
    }

    fn serialize_i8(self, value: i8) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Written {
        self.put(tag::SIGNED, &value.to_le_bytes())
    }

    fn serialize_u8(self, value: u8) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Written {
        self.put(tag::UNSIGNED, &value.to_le_bytes())
    }

    fn serialize_f32(self, value: f32) -> Written {
        self.put(tag::SINGLE, &value.to_le_bytes())
    }

    fn serialize_f64(self, value: f64) -> Written {
        self.put(tag::DOUBLE, &value.to_le_bytes())
    }

    fn serialize_char(self, value: char) -> Written {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Written {
        self.put_long(tag::TEXT, value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Written {
        self.put_long(tag::BYTES, value)
    }

    fn serialize_none(self) -> Written {
        self.put(tag::NONE, &[])
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        self.put(tag::SOME, &[])?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        self.put(tag::UNIT, &[])
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Written {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Written {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        let mut parts = self.open(tag::MAP);
        parts.entry(variant, value)?;
        parts.close()
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<Parts<'a>, WireError> {
        Ok(self.open(tag::SEQUENCE))
    }

    fn serialize_tuple(self, _len: usize) -> Result<Parts<'a>, WireError> {
        Ok(self.open(tag::SEQUENCE))
    }

    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<Parts<'a>, WireError> {
        Ok(self.open(tag::SEQUENCE))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Parts<'a>, WireError> {
        self.open_variant(variant, tag::SEQUENCE)
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Parts<'a>, WireError> {
        Ok(self.open(tag::MAP))
    }

    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Parts<'a>, WireError> {
        Ok(self.open(tag::MAP))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Parts<'a>, WireError> {
        self.open_variant(variant, tag::MAP)
    }
}

/// A value whose parts are being written.
pub(super) struct Parts<'a> {
    writer: &'a mut Writer,
    ends: usize,
}

impl Parts<'_> {
    fn part<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        value.serialize(&mut *self.writer)
    }

    fn entry<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Written {
        self.part(key)?;
        self.part(value)
    }

    fn close(self) -> Written {
        self.writer.0.extend((0..self.ends).map(|_| tag::END));
        Ok(())
    }
}

impl SerializeSeq for Parts<'_> {
    type Ok = ();
    type Error = WireError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.part(value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl SerializeTuple for Parts<'_> {
    type Ok = ();
    type Error = WireError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.part(value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl SerializeTupleStruct for Parts<'_> {
    type Ok = ();
    type Error = WireError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.part(value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl SerializeTupleVariant for Parts<'_> {
    type Ok = ();
    type Error = WireError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.part(value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = WireError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Written {
        self.part(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.part(value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl SerializeStruct for Parts<'_> {
    type Ok = ();
    type Error = WireError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Written {
        self.entry(key, value)
    }

    fn end(self) -> Written {
        self.close()
    }
}

impl SerializeStructVariant for Parts<'_> {
    type Ok = ();
    type Error = WireError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Written {
        self.entry(key, value)
    }

    fn end(self) -> Written {
        self.close()
    }
}
