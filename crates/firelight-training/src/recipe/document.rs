//! The text of a recipe between TOML and the settings: it takes the overrides, checks the keys, and knows where each one
//! stands, so that every error can name its place.

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use firelight_storage::{InputError, shortened, shortened_reason};

use super::fields::Fields;
use super::reading;
use crate::Problem;

/// A key at the top of a recipe and, if it is a section whose keys are known, those.
pub(super) type Known = (&'static str, Option<Fields>);

/// Keys that had another name in 0.1.
const RENAMED: [(&str, &str); 12] = [
    ("training.accumulate", "training.gradient_accumulation_steps"),
    ("training.best_by", "training.monitor"),
    ("training.smoothing", "training.ema_decay"),
    ("data.batching.budget", "data.batching.max_tokens"),
    ("data.outcome", "data.problem_type"),
    ("data.training", "data.split.train"),
    ("data.validation", "data.split.validation"),
    ("data.validation_fraction", "data.split.validation"),
    ("data.split_seed", "data.split.seed"),
    ("model.from", "init.from"),
    ("model.new_head", "init.exclude = [\"head\"]"),
    ("model.new_embedding", "init.exclude = [\"encoder.embedding\"]"),
];

/// Ends of the keys of dropout rates, one of which stands for others that are left out.
const DROPOUT: &str = "dropout";

/// The least likeness, from 0 to 1, at which a known key is suggested for an unknown one.
const LIKENESS: f64 = 0.8;

/// How much a key of another section must be more alike to be suggested.
const ELSEWHERE: f64 = 0.1;

/// A recipe as a table.
pub(super) struct Document<'a> {
    text: &'a str,
    source: &'a str,
    table: Table,
    overridden: Vec<String>,
}

impl<'a> Document<'a> {
    /// Reads `text` as TOML.
    pub(super) fn parse(text: &'a str, source: &'a str) -> Result<Self, InputError> {
        let table = text.parse::<Table>().map_err(|error| {
            let span = error.span().unwrap_or_default();
            let (line, column) = position(text, span.start);
            let integer = text.get(span).and_then(out_of_range);
            let cause = integer.unwrap_or_else(|| one_line(error.message()));
            InputError::new(format!("`{source}`, line {line}, column {column}: not valid TOML: {cause}"))
        })?;
        Ok(Self { text, source, table, overridden: Vec::new() })
    }

    /// Sets `key`, such as `training.steps`, to a value in TOML, or to the text itself if it is no TOML.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), InputError> {
        let refuse =
            |cause: String| InputError::new(format!("`--set {}`: {}", shortened(key), shortened_reason(&cause)));
        let mut names: Vec<&str> = key.split('.').collect();
        let Some(last) = names.pop().filter(|last| !last.is_empty()) else {
            return Err(refuse("expected a key such as `training.steps`".into()));
        };
        let mut table = &mut self.table;
        for name in names {
            let inner = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
            table = inner.as_table_mut().ok_or_else(|| refuse(format!("`{name}` is a value and holds no keys")))?;
        }
        table.insert(last.into(), parse_value(value).map_err(refuse)?);
        if (key, table.contains_key("epochs")) == ("training.steps", true) {
            table.insert("epochs".into(), Value::Integer(0)); // the last word on how long the training is
        }
        self.overridden.push(key.into());
        Ok(())
    }

    /// Adds the `known` keys of a section that the recipe leaves out. Dropout is taken as a whole or not at all.
    pub(super) fn fill(&mut self, section: &str, values: &Table, known: Fields) {
        if values.is_empty() {
            return;
        }
        let own = self.table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        let Some(own) = own.as_table_mut() else { return };
        let names_dropout = own.keys().any(|key| key.ends_with(DROPOUT));
        for (key, value) in values.iter().filter(|(key, _)| known.contains(&key.as_str())) {
            let is_rate = names_dropout && key.ends_with(DROPOUT);
            if !own.contains_key(key) && !is_rate {
                own.insert(key.clone(), value.clone());
            }
        }
    }

    /// Takes out the keys that are not among the `known` ones, names at the top, each with the keys of its section: what is wrong
    /// with each, and the key that was probably meant.
    pub(super) fn take_unknown_keys(&mut self, known: &[Known]) -> Vec<(InputError, Option<String>)> {
        let renamed = self.rename_within_values();
        let mut found = Vec::new();
        for (name, value) in &self.table {
            let Some((_, fields)) = known.iter().find(|(section, _)| section == name) else {
                found.push(("", name.clone()));
                continue;
            };
            let (Some(fields), Some(section)) = (fields, value.as_table()) else { continue };
            let foreign = section.keys().filter(|key| !fields.contains(&key.as_str()));
            found.extend(foreign.map(|key| (name.as_str(), key.clone())));
        }
        let found: Vec<_> = found.into_iter().map(|(section, key)| (section.to_string(), key)).collect();
        let unknown = found.into_iter().map(|(section, key)| self.take_unknown(&section, &key, known));
        renamed.into_iter().map(|error| (error, None)).chain(unknown).collect()
    }

    /// The value of a key at the top that must be there.
    pub(super) fn required<T: DeserializeOwned>(&self, key: &str) -> Result<T, InputError> {
        self.optional(key)?.ok_or_else(|| self.value_error(key, "missing"))
    }

    /// The value of a key at the top, if it is there.
    pub(super) fn optional<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, InputError> {
        self.table.get(key).map(|value| self.read(key, value.clone())).transpose()
    }

    /// What stands under a key at the top, if it is there.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.table.get(key)
    }

    fn read<T: DeserializeOwned>(&self, key: &str, value: Value) -> Result<T, InputError> {
        reading::read(value).map_err(|misfit| self.value_error(&join(key, &misfit.key), &misfit.cause))
    }

    /// The error of a value that does not fit, in plain words.
    pub(super) fn value_error(&self, key: &str, cause: &str) -> InputError {
        let cause = in_plain_words(cause, key);
        InputError::new(format!("{}: `{}`: {cause}", self.place(key), shortened(key)))
    }

    /// What is wrong with values that are readable, each with its place.
    pub(super) fn range_errors(&self, problems: &[Problem]) -> Vec<InputError> {
        let placed = |problem: &Problem| format!("{}: {}", self.place(&problem.key), problem.text);
        problems.iter().map(placed).map(InputError::new).collect()
    }

    /// Gives renamed keys inside of a section's values their new names, so that the rest of each value can be judged, and says so.
    /// The other keys in there are known to the type of the value alone.
    fn rename_within_values(&mut self) -> Vec<InputError> {
        let is_deep = |(old, _): &&(&str, &str)| old.matches('.').count() > 1;
        RENAMED.iter().filter(is_deep).filter_map(|(old, new)| self.rename(old, new)).collect()
    }

    /// The error of a key that has its old name; none if it is not there.
    fn rename(&mut self, old: &str, new: &str) -> Option<InputError> {
        let ((home, key), (_, new_key)) = (old.rsplit_once('.')?, new.rsplit_once('.')?);
        let table = home.split('.').try_fold(&mut self.table, |table, name| table.get_mut(name)?.as_table_mut())?;
        let value = table.remove(key)?;
        table.entry(new_key).or_insert(value);
        Some(InputError::new(format!("{}: unknown key `{old}`; renamed to `{new}`", self.place(old))))
    }

    fn take_unknown(&mut self, section: &str, key: &str, known: &[Known]) -> (InputError, Option<String>) {
        let path = join(section, key);
        let renamed = RENAMED.iter().find(|(old, _)| *old == path).map(|(_, new)| (*new).to_string());
        let hint = renamed.as_ref().map(|new| format!("renamed to `{new}`"));
        let near = renamed.or_else(|| nearest(section, key, known));
        let meant = || near.as_ref().map_or_else(|| listed(section, known), |near| format!("did you mean `{near}`?"));
        let hint = hint.unwrap_or_else(meant);
        let error = InputError::new(format!("{}: unknown key `{}`; {hint}", self.place(&path), shortened(&path)));
        match self.table.get_mut(section).and_then(Value::as_table_mut) {
            Some(section) => section.remove(key),
            None => self.table.remove(key),
        };
        (error, near.filter(|near| !self.holds(near)))
    }

    fn holds(&self, key: &str) -> bool {
        let (section, key) = key.split_once('.').unwrap_or((key, ""));
        self.table.get(section).is_some_and(|value| key.is_empty() || value.get(key).is_some())
    }

    /// Where `key` was set: by an override, on a line, or somewhere in the recipe.
    fn place(&self, key: &str) -> String {
        let plain = key.split('.').map(|name| indexed(name).0).collect::<Vec<_>>().join(".");
        let covers = |set: &&String| plain == **set || plain.starts_with(&format!("{set}."));
        let is_within = |set: &&String| set.starts_with(&format!("{plain}."));
        let line = self.line_of(key);
        let set = self.overridden.iter().rfind(covers);
        match (set.or(self.overridden.iter().rfind(is_within).filter(|_| line.is_none())), line) {
            (Some(set), _) => format!("`--set {}`", shortened(set)),
            (_, Some(line)) => format!("`{}`, line {line}", self.source),
            _ => format!("`{}`", self.source),
        }
    }

    /// The line on which `key` stands in the text, counted from 1.
    fn line_of(&self, key: &str) -> Option<usize> {
        let root = DeTable::parse(self.text).ok()?;
        let mut table = root.get_ref();
        let mut line = None;
        for (name, index) in key.split('.').map(indexed) {
            let (found, value) = table.iter().find(|(found, _)| found.get_ref() == name)?;
            line = Some(position(self.text, found.span().start).0);
            let element = index.and_then(|index| value.get_ref().as_array()?.get(index));
            if let Some(element) = element {
                line = Some(position(self.text, element.span().start).0);
            }
            match element.unwrap_or(value).get_ref() {
                DeValue::Table(inner) => table = inner,
                _ => break,
            }
        }
        line
    }
}

/// A name and the number in brackets behind it, as in `groups[1]`.
fn indexed(name: &str) -> (&str, Option<usize>) {
    let split = || {
        let (name, number) = name.strip_suffix(']')?.split_once('[')?;
        Some((name, Some(number.parse().ok()?)))
    };
    split().unwrap_or((name, None))
}

/// A value in TOML, or the text itself. An integer that TOML cannot hold is no text but an error.
fn parse_value(text: &str) -> Result<Value, String> {
    let parsed = format!("value = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    match (parsed, out_of_range(text)) {
        (Some(value), _) => Ok(value),
        (None, Some(cause)) => Err(cause),
        (None, None) => Ok(Value::String(text.into())),
    }
}

/// What is wrong with an integer that TOML cannot hold; none for any other text.
fn out_of_range(text: &str) -> Option<String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let error = text.trim().parse::<i64>().err()?;
    let cause = || format!("{text} is out of range: expected an integer from 0 to {}", i64::MAX);
    matches!(error.kind(), NegOverflow | PosOverflow).then(cause)
}

/// The known key that is most alike, if one is alike enough.
fn nearest(section: &str, key: &str, known: &[Known]) -> Option<String> {
    let top = known.iter().map(|(name, _)| ("", *name));
    let inner = known.iter().flat_map(|(name, fields)| fields.unwrap_or_default().iter().map(|field| (*name, *field)));
    let likeness =
        |(home, field): (&str, &str)| strsim::jaro_winkler(key, field) - if home == section { 0.0 } else { ELSEWHERE };
    let scored = top.chain(inner).map(|candidate| (likeness(candidate), candidate));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= LIKENESS).then(|| join(best.1.0, best.1.1))
}

/// How many known keys an error lists.
const MOST_NAMES: usize = 24;

/// The known keys of a section, the first ones of many.
fn listed(section: &str, known: &[Known]) -> String {
    let fields = known.iter().find(|(name, _)| *name == section).and_then(|(_, fields)| *fields);
    let names: Vec<String> = match fields {
        Some(fields) => fields.iter().map(|field| format!("`{section}.{field}`")).collect(),
        None => known.iter().map(|(name, _)| format!("`{name}`")).collect(),
    };
    let (shown, more) = names.split_at(names.len().min(MOST_NAMES));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("known are {}{more}", shown.join(", "))
}

/// A key within another, either of which may be empty.
fn join(section: &str, key: &str) -> String {
    let dot = if section.is_empty() || key.is_empty() { "" } else { "." };
    format!("{section}{dot}{key}")
}

/// Line and column of a byte, both counted from 1.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Serde's message about the value of `key`, without the names of Rust's types.
fn in_plain_words(message: &str, key: &str) -> String {
    let mut message = shortened_reason(&one_line(message));
    if let Some((before, name)) = message.split_once("expected struct ") {
        let after = name.trim_start_matches(|character: char| !character.is_whitespace());
        message = format!("{before}expected a section `[{key}]`{after}");
    }
    for (rust, plain) in [
        ("expected usize", "expected a whole number of at least 0"),
        ("expected u64", "expected a whole number of at least 0"),
        ("expected f64", "expected a number"),
        ("invalid type: unit variant, expected string only", "expected a name in quotes"),
        ("data did not match any variant of untagged enum", "the value has none of the forms of"),
    ] {
        message = message.replace(rust, plain);
    }
    message
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_or_text() {
        let text = |text: &str| Value::String(text.into());
        for (written, value) in [
            ("3", Value::Integer(3)),
            ("9223372036854775807", Value::Integer(i64::MAX)),
            ("1e-3", Value::Float(1e-3)),
            ("\"3\"", text("3")),
            ("char", text("char")),
            ("007", text("007")),
        ] {
            assert_eq!(parse_value(written).unwrap(), value);
        }
        let bpe = parse_value("{ kind = \"bpe\" }").unwrap();
        assert_eq!(bpe.as_table().unwrap()["kind"], text("bpe"));
        assert!(parse_value("9223372036854775808").is_err());
    }

    #[test]
    fn positions_count_lines_and_characters() {
        assert_eq!(position("a\nü = 1", 0), (1, 1));
        assert_eq!(position("a\nü = 1", 4), (2, 2));
        assert_eq!(position("a\n", 99), (2, 1));
    }

    #[test]
    fn every_key_of_old_is_answered_with_its_new_name() {
        for (old, new) in RENAMED {
            let ((home, key), section) = (old.rsplit_once('.').unwrap(), old.split('.').next().unwrap());
            let text = format!("[{home}]\n{key} = 1\n");
            let known = [(section, Some(["batching"].as_slice()))];
            let found = Document::parse(&text, "old.toml").unwrap().take_unknown_keys(&known);
            let found: Vec<String> = found.into_iter().map(|(error, _)| error.to_string()).collect();
            assert_eq!(found, [format!("`old.toml`, line 2: unknown key `{old}`; renamed to `{new}`")]);
        }
    }

    #[test]
    fn a_key_is_alike_by_its_beginning_or_its_letters() {
        let known = [("schedule", Some(["kind", "warmup_steps"].as_slice()))];
        assert_eq!(nearest("schedule", "warmup", &known).as_deref(), Some("schedule.warmup_steps"));
        assert_eq!(nearest("schedule", "wramup_steps", &known).as_deref(), Some("schedule.warmup_steps"));
        assert_eq!(nearest("schedule", "lr", &known), None);
    }
}
