//! The stack of a run that another one begins from. A run's structure says what its weights are, so it has the last word where the recipe in
//! the same folder describes another stack, as after heads were pruned.

use firelight_storage::ModelFolder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Table;

use crate::{Fields, fields_of};

/// The path in `config.json` of the stack whose keys stand flat in `[model]`.
///
/// ```
/// use firelight_training::StackPath;
///
/// #[derive(serde::Deserialize)]
/// struct Stack {
///     width: usize,
/// }
///
/// const PATH: StackPath = StackPath::of::<Stack>(&["encoder", "stack"]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StackPath {
    path: &'static [&'static str],
    keys: fn() -> Option<Fields>,
}

impl StackPath {
    /// A stack that is read as an `S`, at this path of keys from the top of `config.json`.
    pub const fn of<S: DeserializeOwned>(path: &'static [&'static str]) -> Self {
        Self { path, keys: fields_of::<S> }
    }

    /// The keys of the stack of a run; none where its structure has no stack at this path.
    fn read(&self, run: &ModelFolder) -> Option<Table> {
        let config: Value = run.read_config(&run.task()?).ok()?;
        let mut stack = self.path.iter().try_fold(&config, |part, key| part.get(key))?.clone();
        drop_nulls(&mut stack);
        table(&stack).filter(|stack| !stack.is_empty())
    }

    /// The `[model]` section of a run, where its structure has another stack than `whole`, which is what the section `said` means with its
    /// defaults. Keys that `may_differ` are not compared. None where both agree.
    pub(super) fn corrected(
        &self,
        run: &ModelFolder,
        (said, whole): (&Table, &Table),
        may_differ: &[&str],
    ) -> Option<Table> {
        let (stack, keys) = (self.read(run)?, (self.keys)().unwrap_or_default());
        let differs = |key: &&str| !may_differ.contains(key) && whole.get(*key) != stack.get(*key);
        let differing: Vec<&str> = keys.iter().copied().filter(differs).collect();
        if differing.is_empty() {
            return None;
        }
        log::info!(
            "the structure of the run `{}` is that of its config.json, which differs from its recipe in {}",
            run.path().display(),
            differing.join(", ")
        );
        let mut model = said.clone();
        model.retain(|key, _| !keys.contains(&key));
        for (key, value) in stack {
            model.insert(key, value);
        }
        Some(model)
    }
}

/// A value as a recipe has it; none of one that is no table.
pub(super) fn table<S: Serialize>(value: &S) -> Option<Table> {
    Table::try_from(value).ok()
}

/// Leaves out what is null: TOML has no word for it, and a key that is left out means the same.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use firelight_storage::Existing;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Stack {
        #[serde(rename = "heads")]
        _heads: usize,
        #[serde(default, rename = "layers")]
        _layers: Vec<usize>,
        #[serde(default, rename = "bias")]
        _bias: Option<bool>,
    }

    const PATH: StackPath = StackPath::of::<Stack>(&["encoder", "stack"]);

    fn section(text: &str) -> Table {
        text.parse().unwrap()
    }

    fn run(config: &Value) -> (tempfile::TempDir, ModelFolder) {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        folder.write_config("toy", config).unwrap();
        (home, folder)
    }

    #[test]
    fn the_structure_has_the_last_word_where_the_recipe_says_otherwise() {
        let (_home, run) = run(&json!({"encoder": {"stack": {"heads": 2, "layers": [2, 1], "bias": null}}}));
        let said = section("heads = 2\npooling = 'mean'\n");
        let found = PATH.corrected(&run, (&said, &said), &[]).unwrap();
        assert_eq!(found, section("heads = 2\nlayers = [2, 1]\npooling = 'mean'\n"));
        assert!(PATH.corrected(&run, (&found, &found), &[]).is_none(), "they agree");
        assert!(PATH.corrected(&run, (&said, &said), &["layers"]).is_none(), "a key that may differ");
        let flat = section("heads = 2\nlayers = [2, 1]\nbias = true\n");
        let found = PATH.corrected(&run, (&flat, &flat), &[]).unwrap();
        assert_eq!(found, section("heads = 2\nlayers = [2, 1]\n"), "what the structure leaves out goes");
    }

    #[test]
    fn without_a_stack_at_its_path_the_recipe_decides() {
        let said = section("heads = 2\n");
        for config in
            [json!({"stack": {"heads": 3}}), json!({"encoder": {"stack": 3}}), json!({"encoder": {"stack": {}}})]
        {
            let (_home, run) = run(&config);
            assert!(PATH.corrected(&run, (&said, &said), &[]).is_none(), "{config}");
        }
    }
}
