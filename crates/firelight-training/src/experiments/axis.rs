//! What an experiment varies: a key of the recipe and its values, as the command line writes them.

use firelight_storage::{InputError, shortened};
use serde::{Deserialize, Serialize};
use toml::Table;

/// No axis has more values than this.
const MOST: usize = 10_000;

/// Digits that a value of a range keeps.
const DIGITS: usize = 4;

/// A key of a recipe and the values that it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// The whole key: `model.n_heads`.
    pub key: String,
    /// The values as text, in TOML or a bare word, as overrides of a recipe have them.
    pub values: Vec<String>,
}

impl Axis {
    /// Reads `KEY=V1,V2,...`, where `A..B:N` stands for `N` values from `A` to `B` with equal ratios, and `A..B:N:linear` for values with
    /// equal differences. Values of a range have four digits; between whole numbers they are whole. Commas within brackets and quotes
    /// belong to their value.
    ///
    /// # Errors
    /// If the text has another form, a range cannot be counted, or a value stands there twice.
    ///
    /// # Example
    ///
    /// ```
    /// use firelight_training::experiments::Axis;
    ///
    /// let axis = Axis::parse("optimizer.learning_rate=1e-4..1e-2:3").unwrap();
    /// assert_eq!(axis.values, ["0.0001", "0.001", "0.01"]);
    /// ```
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let form = || InputError::new("expected KEY=V1,V2,... or KEY=FROM..TO:COUNT, such as model.n_heads=1,4,8");
        let (key, list) = text.split_once('=').ok_or_else(form)?;
        let (key, parts) = (key.trim(), split(list));
        if key.is_empty() || parts.iter().any(String::is_empty) {
            return Err(form());
        }
        let mut values = Vec::new();
        for part in &parts {
            values.extend(range(part)?.unwrap_or_else(|| vec![part.clone()]));
        }
        let twice = values.iter().enumerate().find(|(index, value)| values[..*index].contains(value));
        match twice {
            Some((_, value)) => Err(InputError::new(format!("`{key}` has the value `{}` twice", shortened(value)))),
            None => Ok(Self { key: key.into(), values }),
        }
    }

    /// The same with its whole key, where it has the last part of one key of a recipe alone: `heads` and `n_heads` stand for `model.n_heads`.
    ///
    /// # Errors
    /// If it may stand for several keys of `recipe`, in TOML.
    pub fn of_recipe(self, recipe: &str) -> Result<Self, InputError> {
        let table: Table = recipe.parse().unwrap_or_default();
        if self.key.contains('.') || table.contains_key(&self.key) {
            return Ok(self);
        }
        let is_meant = |name: &str| name == self.key || name.strip_prefix("n_") == Some(&self.key);
        let sections = table.iter().filter_map(|(section, keys)| Some((section, keys.as_table()?)));
        let keys = sections.flat_map(|(section, keys)| keys.keys().map(move |name| (section, name)));
        let meant: Vec<String> =
            keys.filter(|(_, name)| is_meant(name)).map(|(section, name)| format!("{section}.{name}")).collect();
        match <[String; 1]>::try_from(meant) {
            Ok([key]) => Ok(Self { key, ..self }),
            Err(none) if none.is_empty() => Ok(self), // The recipe tells what is near.
            Err(several) => {
                let problem = format!("`{}` may be {}", shortened(&self.key), several.join(" or "));
                Err(InputError::new(problem).advise("write the whole key"))
            }
        }
    }

    /// The last part of the key: `n_heads`.
    pub fn short(&self) -> &str {
        self.key.rsplit('.').next().unwrap_or(&self.key)
    }

    /// The values as numbers, where all of them are numbers and there is more than one.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        let numbers: Option<Vec<f64>> = self.values.iter().map(|value| value.replace('_', "").parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() > 1 && numbers.iter().all(|number| number.is_finite()))
    }
}

/// The parts between the commas that stand outside of brackets and quotes.
fn split(list: &str) -> Vec<String> {
    let (mut parts, mut depth, mut quote) = (vec![String::new()], 0_usize, None);
    for character in list.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(character);
        }
    }
    parts.iter().map(|part| part.trim().to_string()).collect()
}

/// The values of a range; none if the text is a value by itself.
fn range(text: &str) -> Result<Option<Vec<String>>, InputError> {
    let Some((from, rest)) = text.split_once("..") else { return Ok(None) };
    let Ok(from_number) = from.trim().parse::<f64>() else { return Ok(None) };
    let refuse = |expected: &str| InputError::new(format!("the range `{}`: expected {expected}", shortened(text)));
    let mut parts = rest.split(':').map(str::trim);
    let to = parts.next().unwrap_or_default();
    let to_number = to.parse::<f64>().map_err(|_| refuse("FROM..TO:COUNT, such as 1e-4..1e-2:5"))?;
    let count = parts.next().and_then(|count| count.parse::<usize>().ok());
    let count = count.filter(|count| (2..=MOST).contains(count));
    let count = count.ok_or_else(|| refuse(&format!("a count from 2 to {MOST} behind a colon")))?;
    let is_linear = match (parts.next(), parts.next()) {
        (None, None) => false,
        (Some("linear"), None) => true,
        _ => return Err(refuse("nothing or `:linear` behind the count")),
    };
    if !from_number.is_finite() || !to_number.is_finite() || from_number == to_number {
        return Err(refuse("two different numbers"));
    }
    if !is_linear && (from_number <= 0.0 || to_number <= 0.0) {
        return Err(refuse("numbers above 0, because ratios are equal, or `:linear` at the end for equal differences"));
    }
    let numbers = spaced(from_number, to_number, count, is_linear);
    let is_whole = [from, to].iter().all(|end| end.trim().parse::<i64>().is_ok());
    let mut values: Vec<String> = numbers.map(|number| written(number, is_whole)).collect();
    values.dedup(); // whole numbers that lie close together
    Ok(Some(values))
}

/// `count` numbers, the ends among them: with equal differences, or with equal ratios.
fn spaced(from: f64, to: f64, count: usize, is_linear: bool) -> impl Iterator<Item = f64> {
    let share = move |index: usize| index as f64 / (count - 1) as f64;
    (0..count).map(move |index| match is_linear {
        true => from + (to - from) * share(index),
        false => from * (to / from).powf(share(index)),
    })
}

/// A number of few digits, as TOML has it.
fn written(number: f64, is_whole: bool) -> String {
    if is_whole {
        return format!("{number:.0}");
    }
    let rounded: f64 = format!("{number:.*e}", DIGITS - 1).parse().unwrap_or(number);
    format!("{rounded:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        Axis::parse(text).unwrap().values
    }

    #[test]
    fn a_key_may_be_its_last_part_where_that_is_of_one_key() {
        let recipe = "seed = 1\n[model]\nn_heads = 4\nposition = { kind = 'none' }\nkind = 1\n[data]\nkind = 2";
        let key = |text: &str| Axis::parse(text).unwrap().of_recipe(recipe).map(|axis| axis.key);
        for (given, whole) in [
            ("heads=1", "model.n_heads"),
            ("n_heads=1", "model.n_heads"),
            ("position=none", "model.position"),
            ("seed=1,2", "seed"),
            ("model.nheads=1", "model.nheads"),
            ("nothing=1", "nothing"),
        ] {
            assert_eq!(key(given).unwrap(), whole);
        }
        let error = key("kind=1").unwrap_err().to_string();
        assert_eq!(error, "`kind` may be data.kind or model.kind; write the whole key");
    }

    #[test]
    fn values_are_separated_by_commas_outside_of_brackets_and_quotes() {
        let axis = Axis::parse("model.position = sinusoidal, none").unwrap();
        assert_eq!((axis.key.as_str(), axis.short()), ("model.position", "position"));
        assert_eq!(axis.values, ["sinusoidal", "none"]);
        assert_eq!(values("training.freeze=['a', 'b'],[]"), ["['a', 'b']", "[]"]);
        assert_eq!(values("init.from=\"a,b\",'c'"), ["\"a,b\"", "'c'"]);
        assert_eq!(values("data.name=a..b"), ["a..b"], "no range of numbers");
        assert_eq!(values("model.pattern=x=1,y"), ["x=1", "y"]);
    }

    #[test]
    fn a_range_has_equal_ratios_or_equal_differences() {
        assert_eq!(values("a=1e-4..1e-2:5"), ["0.0001", "0.0003162", "0.001", "0.003162", "0.01"]);
        assert_eq!(values("a=0..0.3:4:linear"), ["0.0", "0.1", "0.2", "0.3"]);
        assert_eq!(values("a=32..256:4"), ["32", "64", "128", "256"]);
        assert_eq!(values("a=1..4:6"), ["1", "2", "3", "4"], "whole numbers stand there once");
        assert_eq!(values("a=8..2:3,none"), ["8", "4", "2", "none"]);
    }

    #[test]
    fn what_is_no_axis_is_refused_with_the_way_out() {
        for (text, expected) in [
            ("model.n_heads", "KEY=V1,V2"),
            ("=1", "KEY=V1,V2"),
            ("a=1,,2", "KEY=V1,V2"),
            ("a=1,2,1", "`a` has the value `1` twice"),
            ("a=1..2", "a count from 2 to 10000"),
            ("a=1..2:1", "a count from 2 to 10000"),
            ("a=1..x:3", "FROM..TO:COUNT"),
            ("a=0..1:3", "`:linear` at the end"),
            ("a=1..1:3", "two different numbers"),
            ("a=1..2:3:log", "nothing or `:linear`"),
        ] {
            let error = Axis::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_are_those_of_an_axis_of_numbers_alone() {
        assert_eq!(Axis::parse("a=1_000,2e3").unwrap().numbers(), Some(vec![1000.0, 2000.0]));
        assert_eq!(Axis::parse("a=1,none").unwrap().numbers(), None);
        assert_eq!(Axis::parse("a=1").unwrap().numbers(), None);
    }
}
