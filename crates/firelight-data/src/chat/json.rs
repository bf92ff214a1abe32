//! JSON as Python writes it: a space behind commas and colons, and floats by its own rules.

use std::io;

use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::Formatter;

/// What stands between values.
#[derive(Clone)]
pub(super) struct Layout {
    indent: Option<String>,
    comma: String,
    colon: String,
    depth: usize,
    has_values: bool,
}

impl Layout {
    /// The defaults of `json.dumps`: with an indentation a line ends behind its comma.
    pub(super) fn new(indent: Option<String>, separators: Option<Vec<String>>) -> Self {
        let (comma, colon) = match separators.as_deref() {
            Some([comma, colon]) => (comma.clone(), colon.clone()),
            _ => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
        };
        Self { indent, comma, colon, depth: 0, has_values: false }
    }

    fn line<W: ?Sized + io::Write>(&self, to: &mut W) -> io::Result<()> {
        match &self.indent {
            Some(indent) => write!(to, "\n{}", indent.repeat(self.depth)),
            None => Ok(()),
        }
    }

    fn open<W: ?Sized + io::Write>(&mut self, to: &mut W, mark: &[u8]) -> io::Result<()> {
        (self.depth, self.has_values) = (self.depth + 1, false);
        to.write_all(mark)
    }

    fn close<W: ?Sized + io::Write>(&mut self, to: &mut W, mark: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_values {
            self.line(to)?;
        }
        self.has_values = true;
        to.write_all(mark)
    }

    fn next<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if !first {
            to.write_all(self.comma.as_bytes())?;
        }
        self.has_values = true;
        self.line(to)
    }
}

impl Formatter for Layout {
    fn write_f64<W: ?Sized + io::Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        to.write_all(float(value).as_bytes())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.open(to, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.close(to, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.next(to, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.open(to, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.close(to, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.next(to, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(self.colon.as_bytes())
    }
}

/// The JSON of a value.
pub(super) fn dumps(value: &Value, layout: &Layout, sort_keys: bool) -> Result<String, Error> {
    let wrong = |error: &dyn std::fmt::Display| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut bytes = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, layout.clone());
    match sort_keys {
        true => serde_json::to_value(value).and_then(|mut value| {
            value.sort_all_objects();
            value.serialize(&mut writer)
        }),
        false => value.serialize(&mut writer),
    }
    .map_err(|error| wrong(&error))?;
    String::from_utf8(bytes).map_err(|error| wrong(&error))
}

/// The fewest digits that give the number again; powers of ten from 1e16 and below 1e-4.
fn float(value: f64) -> String {
    let digits = format!("{value:e}");
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        power if (-4..16).contains(&power) => format!("{value:?}"),
        power => format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs()),
    }
}
