//! What of a recipe may change between a run and its continuation, so that the continuation is still that run.

use std::collections::BTreeMap;

use firelight_storage::InputError;
use serde::Serialize;
use toml::{Table, Value};

use super::{Recipe, RecipeError};

/// Keys, and sections with all their keys, that a resumed run may change: how long it goes on, what it keeps, how fast it
/// learns, and what it computes twice. Everything else belongs to the weights and to the order of the data.
const MAY_CHANGE: [&str; 13] = [
    "training.steps",
    "training.epochs",
    "training.evaluate_every",
    "training.checkpoint_every",
    "training.keep_checkpoints",
    "training.patience",
    "training.recompute",
    "optimizer.learning_rate",
    "optimizer.adamw_learning_rate",
    "optimizer.weight_decay",
    "optimizer.clip_norm",
    "schedule",
    "data.workers",
];

impl<D: Serialize, M: Serialize, L: Serialize> Recipe<D, M, L> {
    /// Makes sure that a run that `began` with another recipe can be continued by this one.
    ///
    /// # Errors
    /// Fails if a key differs that may not; the message names all of them, and those that may.
    pub fn continues(&self, began: &Self) -> Result<(), RecipeError> {
        let (old, new) = (began.values()?, self.values()?);
        let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
        let differing = keys.filter(|key| old.get(*key) != new.get(*key) && !may_change(key));
        let shown = |value: Option<&Value>| value.map_or("left out".to_string(), ToString::to_string);
        let changes: Vec<String> =
            differing.map(|key| format!("{key} was {} and is {}", shown(old.get(key)), shown(new.get(key)))).collect();
        match changes.is_empty() {
            true => Ok(()),
            false => Err(InputError::new(format!(
                "the run began with another recipe: {}; a resumed run may change {}, and nothing else",
                changes.join(", "),
                MAY_CHANGE.join(", ")
            ))
            .into()),
        }
    }

    /// All values by their whole key.
    pub(crate) fn values(&self) -> Result<BTreeMap<String, Value>, RecipeError> {
        let table = Table::try_from(self).map_err(|error| RecipeError::Unwritable { reason: error.to_string() })?;
        let mut values = BTreeMap::new();
        flatten("", table, &mut values);
        Ok(values)
    }
}

fn flatten(prefix: &str, table: Table, values: &mut BTreeMap<String, Value>) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) => flatten(&key, inner, values),
            value => drop(values.insert(key, value)),
        }
    }
}

fn may_change(key: &str) -> bool {
    MAY_CHANGE
        .iter()
        .any(|allowed| key == *allowed || key.strip_prefix(allowed).is_some_and(|rest| rest.starts_with('.')))
}
