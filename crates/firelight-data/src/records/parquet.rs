//! Apache Parquet, through the `parquet` crate without Arrow: row by row, of the columns that are asked for alone. Every row is
//! read as the object that a line of JSON would be.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use firelight_storage::{InputError, listed, shortened_reason};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use serde_json::{Map, Value};

use super::record::missing_column;
use super::{Record, Rows};
use crate::DataError;
use crate::text::open_text;

/// The records of a file that has these columns.
pub(super) fn rows(path: &Path, columns: &[&str]) -> Result<Rows, DataError> {
    let file = open_text(path)?;
    let reader = guarded(path, || SerializedFileReader::new(file))?;
    let projection = projection(path, reader.metadata().file_metadata().schema(), columns)?;
    let rows = guarded(path, || RowIter::from_file_into(Box::new(reader)).project(Some(projection)))?;
    Ok(Box::new(ParquetRows { path: path.into(), rows, row: 0 }))
}

/// What the crate makes of a file. Its panics are errors, too: a broken file is the user's to mend, whatever the crate makes of it.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, DataError> {
    let read =
        catch_unwind(AssertUnwindSafe(read)).map_err(|_| no_parquet(path, "the `parquet` crate panics on it"))?;
    Ok(read.map_err(|error| no_parquet(path, &error.to_string()))?)
}

fn no_parquet(path: &Path, reason: &str) -> InputError {
    let problem = format!("cannot be read as Parquet: {}", shortened_reason(reason));
    InputError::in_file(path, problem).advise("is it whole?")
}

/// The schema of the columns that are asked for.
fn projection(path: &Path, schema: &Type, columns: &[&str]) -> Result<Type, DataError> {
    let fields = schema.get_fields();
    let asked: Vec<String> = columns.iter().map(|column| root(column)).collect();
    let names = || fields.iter().map(|field| field.name());
    if let Some(column) = asked.iter().find(|column| !names().any(|name| name == column.as_str())) {
        return Err(missing_column(path, column, &listed(names())).into());
    }
    let kept = fields.iter().filter(|field| asked.iter().any(|column| column == field.name())).map(Arc::clone);
    let group = Type::group_type_builder(schema.name()).with_fields(kept.collect()).build();
    Ok(group.map_err(|error| no_parquet(path, &error.to_string()))?)
}

/// The column in which a JSON Pointer begins; a name is a column itself.
fn root(column: &str) -> String {
    match column.strip_prefix('/') {
        Some(pointer) => pointer.split('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~"),
        None => column.to_owned(),
    }
}

struct ParquetRows {
    path: Arc<Path>,
    rows: RowIter<'static>,
    /// Rows that were read.
    row: usize,
}

impl Iterator for ParquetRows {
    type Item = Result<Record, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = guarded(&self.path, || self.rows.next().transpose()).transpose()?;
        self.row += 1;
        Some(row.map(|row| Record::of_object(&self.path, self.row, object(&row))))
    }
}

fn object(row: &Row) -> Value {
    let value = |(name, field): (&String, &Field)| (name.clone(), value(field));
    Value::Object(row.get_column_iter().map(value).collect::<Map<_, _>>())
}

/// Bytes are a text where they are one: old writers do not mark which columns hold texts.
fn value(field: &Field) -> Value {
    match field {
        Field::Bytes(bytes) => String::from_utf8(bytes.data().to_vec()).map_or(Value::Null, Value::String),
        Field::Group(row) => object(row),
        Field::ListInternal(list) => Value::Array(list.elements().iter().map(value).collect()),
        other => other.to_json_value(),
    }
}
