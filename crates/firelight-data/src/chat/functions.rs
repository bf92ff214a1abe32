//! What templates find beside Jinja's own functions.

use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};
use regex::Regex;
use std::sync::LazyLock;
use time::OffsetDateTime;
use time::format_description::parse_strftime_borrowed;

use super::json;

/// Adds them.
pub(super) fn add(jinja: &mut Environment<'static>) {
    jinja.add_function("raise_exception", raise);
    jinja.add_function("strftime_now", now);
    jinja.add_filter("tojson", tojson);
    jinja.add_filter("indent", indent);
}

/// The marks of `transformers` around what an assistant says change no text: as conditions that hold they take white space away and
/// leave it as any other block does.
pub(super) fn without_generation(template: &str) -> String {
    static MARK: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("a pattern"));
    let block = |found: &regex::Captures<'_>| match found.get(2) {
        Some(_) => format!("{{%{} endif {}%}}", &found[1], &found[3]),
        None => format!("{{%{} if true {}%}}", &found[1], &found[3]),
    };
    MARK.replace_all(template, block).into_owned()
}

fn raise(reason: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, reason))
}

/// The date, in UTC, by a pattern of C's `strftime`.
fn now(pattern: &str) -> Result<String, Error> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidOperation, format!("the date cannot be written as {pattern:?}: {error}"))
    };
    let parsed = parse_strftime_borrowed(pattern).map_err(|error| wrong(&error))?;
    OffsetDateTime::now_utc().format(&parsed).map_err(|error| wrong(&error))
}

/// No text is indented more: a template from elsewhere may ask for anything.
const WIDEST: usize = 256;

fn spaces(width: usize) -> Result<String, Error> {
    match width {
        0..=WIDEST => Ok(" ".repeat(width)),
        _ => Err(Error::new(ErrorKind::InvalidOperation, format!("an indentation of {width} is too wide"))),
    }
}

/// As Jinja in Python, which keeps a line feed at the end.
fn indent(text: &str, width: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let of = |name: &str| options.get::<Option<bool>>(name).map(|flag| flag.unwrap_or(false));
    let (first, blank) = (of("first")?, of("blank")?);
    let width = spaces(width.or(options.get("width")?).unwrap_or(4))?;
    options.assert_all_used()?;
    let line = |(number, line): (usize, &str)| match (number > 0 || first) && (blank || !line.is_empty()) {
        true => [&*width, line].concat(),
        false => line.to_string(),
    };
    Ok(text.split('\n').enumerate().map(line).collect::<Vec<_>>().join("\n"))
}

/// As `json.dumps` of Python with `ensure_ascii=False`.
fn tojson(value: &Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let indent = match indent {
        None => options.get::<Option<usize>>("indent")?,
        given => given,
    };
    let indent = indent.map(spaces).transpose()?;
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    json::dumps(value, &json::Layout::new(indent, separators), sort_keys)
}
