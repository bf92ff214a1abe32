//! What of a checkpoint does not fit the model that its `config.json` describes, told at once.

use std::collections::BTreeSet;
use std::path::Path;

use firelight_core::ParameterEntry;
use firelight_storage::{InputError, TaskError, listed};
use safetensors::Dtype;

/// Names of one kind that are told, at most.
const SHOWN: usize = 20;

/// One parameter that cannot be had.
#[derive(Debug)]
pub(super) enum Found {
    /// No row of the family knows it.
    Unknown(String),
    /// Its tensor is not there.
    Missing(String),
    /// The tensor holds no floats.
    Type(String, Dtype),
    /// The tensor has another shape.
    Shape { tensor: String, found: Vec<usize>, becomes: Option<Vec<usize>>, needed: ParameterEntry },
}

impl Found {
    /// The tensor that is there and does not fit.
    fn tensor(&self) -> Option<&str> {
        match self {
            Self::Type(tensor, _) | Self::Shape { tensor, .. } => Some(tensor),
            Self::Unknown(_) | Self::Missing(_) => None,
        }
    }
}

/// All that does not fit.
#[derive(Debug, Default)]
pub(super) struct Misfit {
    unknown: Vec<String>,
    missing: Vec<String>,
    unused: Vec<String>,
    shapes: Vec<String>,
    types: Vec<String>,
    /// Tensors that are told in `shapes` or `types`.
    told: BTreeSet<String>,
}

impl Misfit {
    pub(super) fn push(&mut self, found: Found) {
        // Several parameters may be parts of one tensor.
        if found.tensor().is_some_and(|tensor| !self.told.insert(tensor.into())) {
            return;
        }
        match found {
            Found::Unknown(path) => self.unknown.push(path),
            Found::Missing(name) if self.missing.contains(&name) => {}
            Found::Missing(name) => self.missing.push(name),
            Found::Type(name, dtype) => self.types.push(format!("{name} ({dtype:?})")),
            Found::Shape { tensor, found, becomes, needed } => {
                let as_ours = becomes.filter(|shape| *shape != found);
                let as_ours = as_ours.map_or(String::new(), |shape| format!(", as a parameter {shape:?}"));
                self.shapes.push(format!("{tensor} (expected {:?}, found {found:?}{as_ours})", needed.shape));
            }
        }
    }

    /// A tensor that no parameter takes. One of another shape or type is known to the model, and is told as that alone.
    pub(super) fn unused(&mut self, name: &str) {
        if !self.told.contains(name) {
            self.unused.push(name.into());
        }
    }

    /// # Errors
    /// If there is anything.
    pub(super) fn check(self, place: &Path, model: &str, advice: &str) -> Result<(), TaskError> {
        let kinds = [
            (self.missing, "missing"),
            (self.unused, "unknown to the model"),
            (self.shapes, "of another shape"),
            (self.types, "of a type that is no float"),
            (self.unknown, "parameters that no tensor is known for"),
        ];
        let kinds: Vec<Kind> = kinds.into_iter().filter(|(names, _)| !names.is_empty()).collect();
        if kinds.is_empty() {
            return Ok(());
        }
        let told = |tell: &dyn Fn(&Kind) -> String| {
            format!("holds weights that do not fit {model}: ") + &kinds.iter().map(tell).collect::<Vec<_>>().join(", ")
        };
        let whole = told(&|(names, what)| format!("{} {what} ({})", names.len(), listed(names)));
        let whole = InputError::in_file(place, whole).advise(advice);
        let counts = told(&|(names, what)| format!("{} {what}", names.len()));
        let first = InputError::in_file(place, counts).advise(advice).to_string();
        let lines = std::iter::once(first).chain(kinds.iter().flat_map(|kind| each(place, kind)));
        Err(TaskError::from(whole).listing(lines.collect()))
    }
}

/// Names, and what is wrong with all of them.
type Kind = (Vec<String>, &'static str);

/// A line for each name, as far as anybody reads them.
fn each(place: &Path, (names, what): &Kind) -> Vec<String> {
    let place = place.display();
    let shown = names.iter().take(SHOWN).map(|name| format!("`{place}`: {what}: {name}"));
    let more = names.len().checked_sub(SHOWN).filter(|more| *more > 0);
    shown.chain(more.map(|more| format!("`{place}`: {what}: {more} more"))).collect()
}
