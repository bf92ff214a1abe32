//! Everything that is wrong with a recipe. A section is read again and again, each time without what did not fit before, so
//! that the user hears of all mistakes at once; what rests on a value that could not be read is not judged.

use firelight_storage::InputError;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::RecipeError;
use super::document::Document;
use super::reading::{self, Misfit};
use crate::Problem;

/// What is read for a required key that is missing or does not fit, so that the rest of its section can be judged.
const STAND_IN: Value = Value::Integer(1);

/// What was found so far.
#[derive(Default)]
pub(super) struct Findings {
    errors: Vec<InputError>,
    /// Keys, and sections, whose values were not read.
    lost: Vec<String>,
}

impl Findings {
    /// Notes an error, if it is one.
    pub(super) fn note<T>(&mut self, result: Result<T, InputError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    /// Notes a key that nothing reads, and the one that was probably meant.
    pub(super) fn note_unknown(&mut self, error: InputError, meant: Option<String>) {
        self.errors.push(error);
        self.lost.extend(meant);
    }

    /// Notes what is wrong with values that were read.
    pub(super) fn judge(&mut self, document: &Document, problems: &[Problem]) {
        let section = |problem: &Problem| problem.key.split('.').next().unwrap_or_default().to_string();
        let stands = |problem: &&Problem| !self.rests_on_lost(&section(problem), &problem.text);
        let reported: Vec<_> = problems.iter().filter(stands).cloned().collect();
        self.errors.extend(document.range_errors(&reported));
    }

    /// One error out of all that was found, if anything was.
    pub(super) fn into_result(self) -> Result<(), RecipeError> {
        RecipeError::of(self.errors)
    }

    /// The settings of a section, with defaults for values that do not fit. A section that is left out is an empty one.
    pub(super) fn section<T: DeserializeOwned>(&mut self, document: &Document, name: &str) -> Option<T> {
        let mut section = self.table::<T>(document, name);
        let mut stand_ins = Vec::new();
        loop {
            let Misfit { key, cause } = match read::<T>(&section) {
                Ok(settings) => return Some(settings),
                Err(misfit) => misfit,
            };
            let top = key.split('.').next().unwrap_or_default().to_string();
            if stand_ins.contains(&top) {
                return None;
            }
            if key.is_empty() {
                self.tell(document, name, "", &cause);
                let missing = missing_in(&cause).filter(|missing| !stand_ins.contains(missing))?;
                section.insert(missing.clone(), STAND_IN);
                self.lost.push(format!("{name}.{missing}"));
                stand_ins.push(missing);
                continue;
            }
            match elements::<T>(&section, &top) {
                Some(faults) => faults.iter().for_each(|fault| self.tell(document, name, &fault.key, &fault.cause)),
                None => self.tell(document, name, &key, &cause),
            }
            section.remove(&top)?;
            self.lost.push(format!("{name}.{top}"));
        }
    }

    /// The table of a section; an empty one in the place of what is no table.
    fn table<T: DeserializeOwned>(&mut self, document: &Document, name: &str) -> Table {
        match document.value(name) {
            None => Table::new(),
            Some(Value::Table(section)) => section.clone(),
            Some(other) => {
                let misfit = reading::read::<T>(other.clone()).err();
                self.tell(document, name, "", &misfit.map_or(String::new(), |misfit| misfit.cause));
                self.lost.push(name.into());
                Table::new()
            }
        }
    }

    /// Notes that a value does not fit, unless that follows from another one.
    fn tell(&mut self, document: &Document, section: &str, key: &str, cause: &str) {
        if !self.rests_on_lost(section, cause) {
            let key = if key.is_empty() { section.to_string() } else { format!("{section}.{key}") };
            self.errors.push(document.value_error(&key, cause));
        }
    }

    /// Whether a sentence about `section` is about a value that was not read, too.
    fn rests_on_lost(&self, section: &str, text: &str) -> bool {
        let is_named = |key: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == key);
        self.lost.iter().any(|lost| match lost.split_once('.') {
            None => lost == section,
            Some((home, key)) => text.contains(lost) || (home == section && is_named(key)),
        })
    }
}

/// What is wrong with each element of the array `key`; none if it is no array, or no element by itself is at fault.
fn elements<T: DeserializeOwned>(section: &Table, key: &str) -> Option<Vec<Misfit>> {
    let with = |elements: Vec<Value>| {
        let mut section = section.clone();
        section.insert(key.into(), Value::Array(elements));
        read::<T>(&section).err().filter(|misfit| misfit.key.split('.').next() == Some(key))
    };
    let elements = section.get(key)?.as_array().filter(|_| with(Vec::new()).is_none())?;
    let mut faults = Vec::new();
    for (index, element) in elements.iter().enumerate() {
        let (mut element, mut removed) = (element.clone(), Vec::new());
        while let Some(misfit) = with(vec![element.clone()]) {
            let named = || named_in(&misfit.cause, element.as_table()?);
            let inner = misfit.key.split('.').nth(1).map(str::to_string).or_else(named).unwrap_or_default();
            let cause = misfit.cause;
            if missing_in(&cause).is_some_and(|missing| removed.contains(&missing)) {
                break;
            }
            let dot = if inner.is_empty() { "" } else { "." };
            faults.push(Misfit { key: format!("{key}[{index}]{dot}{inner}"), cause });
            match element.as_table_mut().and_then(|table| table.remove(&inner)) {
                Some(_) => removed.push(inner),
                None => break,
            }
        }
    }
    (!faults.is_empty()).then_some(faults)
}

/// Reads a section.
fn read<T: DeserializeOwned>(section: &Table) -> Result<T, Misfit> {
    reading::read(Value::Table(section.clone())).map_err(|misfit| named(misfit, section))
}

/// What an error is about: what its own key says, or else the first key of `table` that its text names.
fn named(Misfit { key, cause }: Misfit, table: &Table) -> Misfit {
    let key = Some(key).filter(|key| !key.is_empty()).or_else(|| named_in(&cause, table)).unwrap_or_default();
    let cause = cause.strip_prefix(&format!("`{key}`: ")).map_or(cause.clone(), str::to_string);
    Misfit { key, cause }
}

/// The first key of `table` between backticks.
fn named_in(text: &str, table: &Table) -> Option<String> {
    text.split('`').skip(1).step_by(2).find(|word| table.contains_key(*word)).map(str::to_string)
}

/// The field that serde misses.
fn missing_in(cause: &str) -> Option<String> {
    Some(cause.strip_prefix("missing field `")?.strip_suffix('`')?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Apart;
    use serde::Deserialize;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Own {
        tied: bool,
        pooling: String,
        n_segments: usize,
        widths: Vec<usize>,
        pair: [usize; 2],
        few: Few,
    }

    /// Two numbers at most.
    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(try_from = "Vec<usize>")]
    struct Few;

    impl TryFrom<Vec<usize>> for Few {
        type Error = &'static str;

        fn try_from(numbers: Vec<usize>) -> Result<Self, &'static str> {
            if numbers.len() > 2 { Err("more than two numbers") } else { Ok(Self) }
        }
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Stack {
        width: usize,
        depths: Vec<usize>,
    }

    /// A section that a task shares with its stack.
    #[derive(Debug, Deserialize)]
    #[serde(from = "Apart<Own, Stack>")]
    struct Model;

    impl From<Apart<Own, Stack>> for Model {
        fn from(_: Apart<Own, Stack>) -> Self {
            Self
        }
    }

    fn outcome(line: &str) -> String {
        let text = format!("[model]\n{line}\n");
        let (document, mut findings) = (Document::parse(&text, "small.toml").unwrap(), Findings::default());
        let read = findings.section::<Model>(&document, "model");
        let error = findings.into_result().map_or_else(|error| error.to_string(), |()| format!("{read:?}"));
        error.strip_prefix("`small.toml`, line 2: ").unwrap_or(&error).to_string()
    }

    #[test]
    fn an_array_in_the_place_of_another_value_is_reported_whoever_owns_the_key() {
        for (line, key, expected) in [
            ("tied = [false]", "tied", "a boolean"),
            ("tied = []", "tied", "a boolean"),
            ("pooling = [\"max\"]", "pooling", "a string"),
            ("n_segments = [2]", "n_segments", "a whole number of at least 0"),
            ("width = [2]", "width", "a whole number of at least 0"),
        ] {
            assert_eq!(outcome(line), format!("`model.{key}`: invalid type: sequence, expected {expected}"), "{line}");
        }
    }

    #[test]
    fn the_elements_of_an_array_are_reported_one_by_one_or_else_the_whole() {
        let wrong = "invalid type: string \"x\", expected a whole number of at least 0";
        for key in ["widths", "depths"] {
            let found = outcome(&format!("{key} = [1, \"x\", 3, true]"));
            assert!(found.starts_with(&format!("`model.{key}[1]`: {wrong}; ")), "{found}");
            assert!(found.contains(&format!("`model.{key}[3]`: invalid type: boolean `true`")), "{found}");
        }
        assert!(outcome("pair = [1, 2, 3]").starts_with("`model.pair`: "), "{}", outcome("pair = [1, 2, 3]"));
        assert_eq!(outcome("few = [1, 2, 3]"), "`model.few`: more than two numbers", "each of them is well alone");
        assert_eq!(outcome("widths = [1, 2]\nfew = [1, 2]"), "Some(Model)");
    }
}
