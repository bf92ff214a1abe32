//! What a GGUF file says of a model: values by their keys.
//!
//! Source: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use firelight_storage::{InputError, shortened};

use super::reader::Reader;

/// No list has more entries: vocabularies have a million at most.
const MOST_ENTRIES: usize = 1 << 25;

/// Lists in lists, at most.
const DEEPEST: usize = 4;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Of any width, with a sign or without.
    Integer(i128),
    /// Of either width.
    Float(f64),
    Flag(bool),
    Text(String),
    List(List),
}

/// Several values of one type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum List {
    Bytes(Vec<u8>),
    Integers(Vec<i64>),
    Floats(Vec<f32>),
    Flags(Vec<bool>),
    Texts(Vec<String>),
    /// Lists of lists, which no key that is read here has.
    Lists(usize),
}

/// The types of values by their numbers in the file.
const KINDS: [Kind; 13] = [
    Kind::U8,
    Kind::I8,
    Kind::U16,
    Kind::I16,
    Kind::U32,
    Kind::I32,
    Kind::F32,
    Kind::Flag,
    Kind::Text,
    Kind::List,
    Kind::U64,
    Kind::I64,
    Kind::F64,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Flag,
    Text,
    List,
    U64,
    I64,
    F64,
}

impl Kind {
    /// Its number in the file.
    pub(super) fn code(self) -> u32 {
        self as u32
    }

    /// Bytes that a value takes at least.
    fn least(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Flag => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Text => 8,
            Self::List => 12,
        }
    }
}

impl Value {
    /// What it is, in a message.
    fn shown(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) => format!("\"{}\"", shortened(text)),
            Self::List(_) => "a list".into(),
        }
    }
}

/// The values of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metadata {
    file: PathBuf,
    values: BTreeMap<String, Value>,
}

impl Metadata {
    /// Without values, of a file that is yet to be written.
    pub(crate) fn of(file: &Path) -> Self {
        Self { file: file.into(), values: BTreeMap::new() }
    }

    /// Reads `count` keys and their values.
    pub(super) fn read(reader: &mut Reader<'_>, count: usize) -> Result<Self, InputError> {
        let mut found = Self::of(reader.file());
        for _ in 0..count {
            let key = reader.text("a key of the metadata")?.to_string();
            let value = value(reader, &format!("the value of `{}`", shortened(&key)))?;
            if found.values.insert(key.clone(), value).is_some() {
                return Err(reader.damaged(&format!("has the key `{}` twice", shortened(&key))));
            }
        }
        Ok(found)
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Adds a value that is to be written; floats get the 32 bits that a file has for them.
    pub(crate) fn insert(&mut self, key: impl Into<String>, value: Value) {
        let value = match value {
            Value::Float(number) => Value::Float(shortest(number as f32)),
            other => other,
        };
        self.values.insert(key.into(), value);
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.values.iter()
    }

    /// The error of a key whose value is not what it should be.
    pub(crate) fn unfit(&self, key: &str, expected: &str) -> InputError {
        let found = self.get(key).map_or("nothing".into(), Value::shown);
        InputError::in_file(&self.file, format!("has {key} = {found}: expected {expected}"))
    }

    /// A number that is not negative; of a list the one that all its entries are.
    pub(crate) fn number(&self, key: &str) -> Result<Option<usize>, InputError> {
        let number = match self.get(key) {
            None => return Ok(None),
            Some(Value::Integer(number)) => *number,
            Some(Value::List(List::Integers(all))) if all.windows(2).all(|pair| pair[0] == pair[1]) => {
                all.first().map_or(-1, |number| i128::from(*number))
            }
            Some(Value::List(List::Integers(_))) => {
                return Err(self.unfit(key, "one number for all layers: what differs from layer to layer is not read"));
            }
            Some(_) => return Err(self.unfit(key, "a number that is not negative")),
        };
        usize::try_from(number).map(Some).map_err(|_| self.unfit(key, "a number that is not negative"))
    }

    /// A number that has to be there.
    pub(crate) fn need(&self, key: &str) -> Result<usize, InputError> {
        self.number(key)?.ok_or_else(|| self.lacking(key))
    }

    fn lacking(&self, key: &str) -> InputError {
        InputError::in_file(&self.file, format!("lacks the key `{key}`")).advise("convert the model again")
    }

    pub(crate) fn float(&self, key: &str) -> Result<Option<f64>, InputError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(number)) if number.is_finite() => Ok(Some(*number)),
            Some(_) => Err(self.unfit(key, "a number with a fraction")),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, InputError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.unfit(key, "true or false")),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, InputError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.unfit(key, "a text")),
        }
    }

    /// A text that has to be there.
    pub(crate) fn need_text(&self, key: &str) -> Result<&str, InputError> {
        self.text(key)?.ok_or_else(|| self.lacking(key))
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Option<&[String]>, InputError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::List(List::Texts(texts))) => Ok(Some(texts)),
            Some(_) => Err(self.unfit(key, "a list of texts")),
        }
    }

    /// A list of texts that has to be there.
    pub(crate) fn need_texts(&self, key: &str) -> Result<&[String], InputError> {
        self.texts(key)?.ok_or_else(|| self.lacking(key))
    }

    pub(crate) fn integers(&self, key: &str) -> Result<Option<&[i64]>, InputError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::List(List::Integers(numbers))) => Ok(Some(numbers)),
            Some(_) => Err(self.unfit(key, "a list of whole numbers")),
        }
    }

    pub(crate) fn floats(&self, key: &str) -> Result<Option<&[f32]>, InputError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::List(List::Floats(numbers))) => Ok(Some(numbers)),
            Some(_) => Err(self.unfit(key, "a list of 32-bit floats")),
        }
    }

    pub(crate) fn flags(&self, key: &str) -> Option<&[bool]> {
        match self.get(key) {
            Some(Value::List(List::Flags(flags))) => Some(flags),
            _ => None,
        }
    }
}

fn kind(reader: &mut Reader<'_>, what: &str) -> Result<Kind, InputError> {
    let code = reader.u32(what)?;
    let found = KINDS.get(code as usize).copied();
    found.ok_or_else(|| reader.damaged(&format!("has {what} of the unknown type {code}: expected 0 to 12")))
}

fn value(reader: &mut Reader<'_>, what: &str) -> Result<Value, InputError> {
    Ok(match kind(reader, what)? {
        Kind::U8 => Value::Integer(reader.array::<1>(what)?[0].into()),
        Kind::I8 => Value::Integer(i8::from_le_bytes(reader.array(what)?).into()),
        Kind::U16 => Value::Integer(u16::from_le_bytes(reader.array(what)?).into()),
        Kind::I16 => Value::Integer(i16::from_le_bytes(reader.array(what)?).into()),
        Kind::U32 => Value::Integer(reader.u32(what)?.into()),
        Kind::I32 => Value::Integer(i32::from_le_bytes(reader.array(what)?).into()),
        Kind::U64 => Value::Integer(reader.u64(what)?.into()),
        Kind::I64 => Value::Integer(i64::from_le_bytes(reader.array(what)?).into()),
        Kind::F32 => Value::Float(shortest(f32::from_le_bytes(reader.array(what)?))),
        Kind::F64 => Value::Float(f64::from_le_bytes(reader.array(what)?)),
        Kind::Flag => Value::Flag(reader.array::<1>(what)? != [0]),
        Kind::Text => Value::Text(reader.text(what)?.into()),
        Kind::List => Value::List(list(reader, what, DEEPEST)?),
    })
}

/// The number that a person wrote: 1e-6 and not what is nearest to it in 32 bits.
pub(crate) fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

fn list(reader: &mut Reader<'_>, what: &str, deepest: usize) -> Result<List, InputError> {
    let kind = kind(reader, what)?;
    let count = reader.count(kind.least(), &format!("entries of {what}"))?;
    if count > MOST_ENTRIES {
        return Err(reader.damaged(&format!("has {count} entries in {what}: expected at most {MOST_ENTRIES}")));
    }
    let bytes = |reader: &mut Reader<'_>| reader.take(count * kind.least(), what).map(<[u8]>::to_vec);
    Ok(match kind {
        Kind::U8 => List::Bytes(bytes(reader)?),
        Kind::Flag => List::Flags(bytes(reader)?.into_iter().map(|byte| byte != 0).collect()),
        Kind::I8 => List::Integers(bytes(reader)?.into_iter().map(|byte| byte.cast_signed().into()).collect()),
        Kind::U16 => List::Integers(numbers(&bytes(reader)?, |bytes| u16::from_le_bytes(bytes).into())),
        Kind::I16 => List::Integers(numbers(&bytes(reader)?, |bytes| i16::from_le_bytes(bytes).into())),
        Kind::U32 => List::Integers(numbers(&bytes(reader)?, |bytes| u32::from_le_bytes(bytes).into())),
        Kind::I32 => List::Integers(numbers(&bytes(reader)?, |bytes| i32::from_le_bytes(bytes).into())),
        Kind::I64 => List::Integers(numbers(&bytes(reader)?, i64::from_le_bytes)),
        // No list that is read here has numbers beyond the others' range.
        Kind::U64 => List::Integers(numbers(&bytes(reader)?, i64::from_le_bytes)),
        Kind::F32 => List::Floats(numbers(&bytes(reader)?, f32::from_le_bytes)),
        Kind::F64 => List::Floats(numbers(&bytes(reader)?, |bytes| f64::from_le_bytes(bytes) as f32)),
        Kind::Text => {
            List::Texts((0..count).map(|_| reader.text(what).map(Into::into)).collect::<Result<_, InputError>>()?)
        }
        Kind::List if deepest == 0 => return Err(reader.damaged(&format!("has {what} of lists in lists in lists"))),
        Kind::List => {
            (0..count).try_for_each(|_| list(reader, what, deepest - 1).map(drop))?;
            List::Lists(count)
        }
    })
}

fn numbers<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|&bytes| number(bytes)).collect()
}
