//! Writes a GGUF file: version 3, little endian.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use firelight_storage::{StorageError, replace_file};

use super::Format;
use super::header::{ALIGNMENT, MAGIC};
use super::metadata::{Kind, List, Metadata, Value};

const VERSION: u32 = 3;

/// A tensor that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) name: String,
    /// The outermost axis first.
    pub(crate) shape: Vec<usize>,
    pub(crate) format: Format,
}

impl Planned {
    /// Its bytes in the file.
    pub(crate) fn size(&self) -> usize {
        let width = self.shape.last().copied().unwrap_or(1);
        let rows: usize = self.shape.iter().rev().skip(1).product();
        rows * self.format.row_bytes(width).unwrap_or(0)
    }
}

/// Writes a file whole or not at all; `bytes` makes a tensor's bytes when it is its turn.
///
/// # Errors
/// If the file cannot be written, or as `bytes`.
pub(crate) fn write_file(
    path: &Path,
    metadata: &Metadata,
    tensors: &[Planned],
    mut bytes: impl FnMut(&Planned) -> Result<Vec<u8>, StorageError>,
) -> Result<(), StorageError> {
    let failed = || StorageError::io("write", path);
    replace_file(path, |temporary| {
        let mut writer = BufWriter::new(File::create_new(temporary).map_err(failed())?);
        writer.write_all(&header(metadata, tensors)).map_err(failed())?;
        for tensor in tensors {
            let mut found = bytes(tensor)?;
            pad(&mut found);
            writer.write_all(&found).map_err(failed())?;
        }
        writer.flush().map_err(failed())
    })
}

/// All that stands before the bytes of the first tensor.
fn header(metadata: &Metadata, tensors: &[Planned]) -> Vec<u8> {
    let mut to = MAGIC.to_vec();
    to.extend(VERSION.to_le_bytes());
    to.extend((tensors.len() as u64).to_le_bytes());
    to.extend((metadata.iter().count() as u64).to_le_bytes());
    for (key, value) in metadata.iter() {
        text(&mut to, key);
        put(&mut to, value);
    }
    let mut offset = 0;
    for tensor in tensors {
        text(&mut to, &tensor.name);
        to.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|len| to.extend((*len as u64).to_le_bytes()));
        to.extend(tensor.format.code().to_le_bytes());
        to.extend((offset as u64).to_le_bytes());
        offset += tensor.size().next_multiple_of(ALIGNMENT);
    }
    pad(&mut to);
    to
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

fn text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

fn kind(to: &mut Vec<u8>, kind: Kind) {
    to.extend(kind.code().to_le_bytes());
}

/// A value with its type: whole numbers of 32 bits without a sign where they fit, floats of 32 bits.
fn put(to: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Integer(number) => match u32::try_from(*number) {
            Ok(number) => {
                kind(to, Kind::U32);
                to.extend(number.to_le_bytes());
            }
            Err(_) => {
                kind(to, Kind::I64);
                to.extend(i64::try_from(*number).unwrap_or(i64::MAX).to_le_bytes());
            }
        },
        Value::Float(number) => {
            kind(to, Kind::F32);
            to.extend((*number as f32).to_le_bytes());
        }
        Value::Flag(flag) => {
            kind(to, Kind::Flag);
            to.push(u8::from(*flag));
        }
        Value::Text(found) => {
            kind(to, Kind::Text);
            text(to, found);
        }
        Value::List(list) => {
            kind(to, Kind::List);
            put_list(to, list);
        }
    }
}

fn put_list(to: &mut Vec<u8>, list: &List) {
    let begin = |to: &mut Vec<u8>, of: Kind, count: usize| {
        kind(to, of);
        to.extend((count as u64).to_le_bytes());
    };
    match list {
        List::Bytes(bytes) => {
            begin(to, Kind::U8, bytes.len());
            to.extend(bytes);
        }
        List::Flags(flags) => {
            begin(to, Kind::Flag, flags.len());
            to.extend(flags.iter().map(|flag| u8::from(*flag)));
        }
        List::Integers(numbers) => {
            begin(to, Kind::I32, numbers.len());
            let narrow = |number: &i64| i32::try_from(*number).unwrap_or(i32::MAX);
            to.extend(numbers.iter().flat_map(|number| narrow(number).to_le_bytes()));
        }
        List::Floats(numbers) => {
            begin(to, Kind::F32, numbers.len());
            to.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        List::Texts(texts) => {
            begin(to, Kind::Text, texts.len());
            texts.iter().for_each(|found| text(to, found));
        }
        // None is ever made here.
        List::Lists(_) => begin(to, Kind::U8, 0),
    }
}
