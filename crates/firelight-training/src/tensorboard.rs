//! The numbers of a run as TensorBoard event files, for those who watch many runs side by side. An [`Observer`] beside the
//! metrics file, for whoever asks for it.
//!
//! Source: TensorFlow's `event.proto` and `summary.proto`, of which only the fields of scalars are named here, and the framing of
//! `record_writer.cc`: length, its checksum, the message, its checksum.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use firelight_storage::StorageError;
use prost::Message;

use crate::{EvaluationReport, Observer, StepReport, TrainingError};

/// The first event of a file tells its format.
const VERSION: &str = "brain.Event:2";

/// Writes an event file into a folder; a resumed run adds another one, as TensorBoard expects.
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: File,
}

impl TensorBoard {
    /// Begins an event file in `folder`, which is made if it is missing.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self, TrainingError> {
        let folder = folder.as_ref();
        fs::create_dir_all(folder).map_err(StorageError::io("create the folder", folder))?;
        let name = format!("events.out.tfevents.{:010}.firelight.{}", now() as u64, std::process::id());
        let path = folder.join(name);
        let file = File::create(&path).map_err(StorageError::io("create", &path))?;
        let mut board = Self { path, file };
        board.append(&Event { wall_time: now(), file_version: Some(VERSION.into()), ..Event::default() })?;
        Ok(board)
    }

    /// Writes numbers of one step, each with its name.
    fn write(&mut self, step: usize, values: &[(&str, f64)]) -> Result<(), TrainingError> {
        let value = values.iter().map(|(tag, value)| Value { tag: tag.to_string(), simple_value: Some(*value as f32) });
        let summary = Some(Summary { value: value.collect() });
        self.append(&Event { wall_time: now(), step: step as i64, summary, ..Event::default() })
    }

    fn append(&mut self, event: &Event) -> Result<(), TrainingError> {
        Ok(write_record(&mut self.file, &event.encode_to_vec()).map_err(StorageError::io("write", &self.path))?)
    }
}

impl Observer for TensorBoard {
    fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
        let StepReport { step, loss, training_loss, learning_rate, gradient_norm, tokens_per_second } = *report;
        let values = [
            ("training/loss", Some(loss)),
            ("training/training_loss", training_loss),
            ("training/learning_rate", Some(learning_rate)),
            ("training/gradient_norm", Some(gradient_norm)),
            ("training/tokens_per_second", Some(tokens_per_second)),
        ];
        let values: Vec<(&str, f64)> = values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.write(step, &values)
    }

    fn evaluation(&mut self, report: &EvaluationReport) -> Result<(), TrainingError> {
        let named = |name: &str| format!("validation/{name}");
        let loss = (named("loss"), report.validation_loss);
        let all: Vec<_> =
            [loss].into_iter().chain(report.metrics.iter().map(|(name, value)| (named(name), *value))).collect();
        self.write(report.step, &all.iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>())
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
    fn what_is_written_is_read_back() {
        let home = tempfile::tempdir().unwrap();
        let mut board = TensorBoard::create(home.path().join("tensorboard")).unwrap();
        let report = StepReport {
            step: 7,
            loss: 2.5,
            training_loss: Some(2.75),
            learning_rate: 0.5,
            gradient_norm: 1.5,
            tokens_per_second: 9.0,
        };
        board.step(&report).unwrap();
        board.evaluation(&EvaluationReport { step: 7, validation_loss: 2.25, ..Default::default() }).unwrap();

        let events = events(&fs::read(&board.path).unwrap());
        assert_eq!(events[0].file_version.as_deref(), Some(VERSION));
        let scalars = events[1..].iter().flat_map(|event| {
            assert_eq!(event.step, 7);
            event.summary.clone().unwrap().value.into_iter().map(|value| (value.tag, value.simple_value.unwrap()))
        });
        let expected = [
            ("training/loss", 2.5),
            ("training/training_loss", 2.75),
            ("training/learning_rate", 0.5),
            ("training/gradient_norm", 1.5),
            ("training/tokens_per_second", 9.0),
            ("validation/loss", 2.25),
        ];
        assert_eq!(scalars.collect::<Vec<_>>(), expected.map(|(name, value)| (name.to_string(), value)));
    }

    /// Reads a file as TensorBoard does, checksums included.
    fn events(mut bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_at(8);
            let (of_length, rest) = rest.split_at(4);
            assert_eq!(of_length, checksum(length));
            let (message, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
            let (of_message, rest) = rest.split_at(4);
            assert_eq!(of_message, checksum(message));
            events.push(Event::decode(message).unwrap());
            bytes = rest;
        }
        events
    }
}
