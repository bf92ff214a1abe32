//! A file of events as TensorBoard reads it.
//!
//! Source: TensorFlow's `event.proto` and `summary.proto`, of which only the fields of scalars are named here, and the framing of
//! `record_writer.cc`: length, its checksum, the message, its checksum.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use firelight_storage::StorageError;
use prost::Message;

/// The first event of a file tells its format.
const VERSION: &str = "brain.Event:2";

/// Files that this process has begun: two of one second need names of their own.
static FILES: AtomicUsize = AtomicUsize::new(0);

/// An event file that is being written. Every event is handed to the system at once, so a crash loses none.
#[derive(Debug)]
pub(super) struct EventFile {
    pub(super) path: PathBuf,
    file: File,
}

impl EventFile {
    /// Begins a file in `folder`, which is made if it is missing.
    pub(super) fn create(folder: &Path) -> Result<Self, StorageError> {
        fs::create_dir_all(folder).map_err(StorageError::io("create the folder", folder))?;
        let (seconds, process, number) = (now() as u64, process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(format!("events.out.tfevents.{seconds:010}.firelight.{process}.{number}"));
        let file = File::create(&path).map_err(StorageError::io("create", &path))?;
        let mut events = Self { path, file };
        events.append(&Event { wall_time: now(), file_version: Some(VERSION.into()), ..Event::default() })?;
        Ok(events)
    }

    /// Writes numbers of one step, each with its tag.
    pub(super) fn write(&mut self, step: usize, values: Vec<(String, f64)>) -> Result<(), StorageError> {
        let value = values.into_iter().map(|(tag, value)| Value { tag, simple_value: Some(value as f32) });
        let summary = Some(Summary { value: value.collect() });
        self.append(&Event { wall_time: now(), step: step as i64, summary, ..Event::default() })
    }

    fn append(&mut self, event: &Event) -> Result<(), StorageError> {
        write_record(&mut self.file, &event.encode_to_vec()).map_err(StorageError::io("write", &self.path))
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// One framed message, handed to the system at once.
fn write_record(file: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = (message.len() as u64).to_le_bytes();
    let record = [&length, &checksum(&length)[..], message, &checksum(message)].concat();
    file.write_all(&record)
}

/// CRC-32C, turned and shifted so that a checksum of data that holds checksums stays a good one.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// Reads a file as TensorBoard does, checksums included: the step of every number with its tag.
#[cfg(test)]
pub(super) fn scalars(path: &Path) -> Vec<(i64, String, f32)> {
    let (bytes, mut events) = (fs::read(path).unwrap(), Vec::new());
    let mut left = bytes.as_slice();
    while !left.is_empty() {
        let (length, rest) = left.split_at(8);
        let (of_length, rest) = rest.split_at(4);
        assert_eq!(of_length, checksum(length));
        let (message, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (of_message, rest) = rest.split_at(4);
        assert_eq!(of_message, checksum(message));
        events.push(Event::decode(message).unwrap());
        left = rest;
    }
    assert_eq!(events[0].file_version.as_deref(), Some(VERSION));
    let of_event = |Event { step, summary, .. }: Event| {
        summary.unwrap().value.into_iter().map(move |value| (step, value.tag, value.simple_value.unwrap()))
    };
    events.split_off(1).into_iter().flat_map(of_event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_the_published_one() {
        // RFC 3720, appendix B.4: 32 bytes of zeros have the CRC-32C 0x8a9136aa; turned by 15 bits and shifted.
        let expected = 0x8a91_36aa_u32.rotate_right(15).wrapping_add(0xa282_ead8);
        assert_eq!(checksum(&[0; 32]), expected.to_le_bytes());
    }

    #[test]
    fn a_record_has_the_bytes_of_tensorflow() {
        // What TensorFlow's own writer makes of the first event of a file with the wall time 0, but for the time's field.
        let event = Event { file_version: Some(VERSION.into()), ..Event::default() };
        assert_eq!(event.encode_to_vec(), [&[0x1a, 13], VERSION.as_bytes()].concat());
        let value = Value { tag: "a".into(), simple_value: Some(1.0) };
        let event = Event { step: 3, summary: Some(Summary { value: vec![value] }), ..Event::default() };
        assert_eq!(event.encode_to_vec(), [0x10, 3, 0x2a, 10, 0x0a, 8, 0x0a, 1, b'a', 0x15, 0, 0, 0x80, 0x3f]);
    }

    #[test]
    fn files_of_one_second_are_two() {
        let home = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| EventFile::create(home.path()).unwrap().path);
        assert_ne!(first, second);
    }
}
