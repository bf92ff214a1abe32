//! A run written down: the TOML file that `train` reads, with the overrides of the command line, and the copy that lies
//! beside the weights. What `[data]`, `[model]` and `[loss]` hold is the task's business; the rest is the same for every task.

mod apart;
mod changes;
mod document;
mod error;
mod fields;
mod findings;

use serde::Serialize;
use std::cmp::Ordering;

use serde::de::DeserializeOwned;
use toml::Table;

use crate::config::{Problems, SettingsError, all_of};
use crate::{InitConfig, OptimizerConfig, Problem, ScheduleConfig, TrainingConfig};
pub use apart::Apart;
use document::{Document, Known};
pub use error::RecipeError;
pub use fields::{Fields, fields_of};
use findings::Findings;

/// No recipe is larger, in bytes.
pub(crate) const LIMIT: u64 = 1 << 20;

/// Everything that decides about a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recipe<D, M, L> {
    /// What is trained: `language`, for example.
    pub task: String,
    /// Decides over initial weights, order of the data and dropout. Default 0.
    pub seed: u64,
    /// The data and how it is read.
    pub data: D,
    /// The structure of the model.
    pub model: M,
    /// How the loss is computed.
    pub loss: L,
    /// The weights that the first step begins from.
    #[serde(skip_serializing_if = "InitConfig::is_new")]
    pub init: InitConfig,
    /// How long, and what happens on the way.
    pub training: TrainingConfig,
    /// The optimiser.
    pub optimizer: OptimizerConfig,
    /// The learning rate by step.
    pub schedule: ScheduleConfig,
}

/// A recipe whose task does not matter: what is the same for all of them is read and checked, the rest is kept as it is.
pub type AnyRecipe = Recipe<toml::Table, toml::Table, toml::Table>;

impl<D: DeserializeOwned, M: DeserializeOwned, L: DeserializeOwned> Recipe<D, M, L> {
    /// Reads a recipe from TOML and checks it; `source` is the name of the file in error messages.
    ///
    /// `overrides` are pairs such as `("training.steps", "500")`. Their values are read as TOML, or else taken as text, and
    /// replace what the recipe says. Sections and keys that are left out have their defaults, if there are any.
    ///
    /// # Errors
    /// Fails if the text is no TOML, a key is unknown or missing, or a value has the wrong type or is out of range; the
    /// message lists all bad fields with their lines. `data`, `model` and `loss` are read but not judged: their crates know
    /// what they may hold, and judge with [`parse_with`](Self::parse_with).
    pub fn parse(text: &str, source: &str, overrides: &[(String, String)]) -> Result<Self, RecipeError> {
        Self::parse_with(text, source, overrides, |_| Vec::new())
    }

    /// Reads a recipe as [`parse`](Self::parse) does, and lists what `judge` finds wrong with the sections of the task among
    /// the bad fields.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and if `judge` finds anything.
    pub fn parse_with(
        text: &str,
        source: &str,
        overrides: &[(String, String)],
        judge: impl FnOnce(&Self) -> Vec<Problem>,
    ) -> Result<Self, RecipeError> {
        Self::parse_beside(text, source, overrides, &Table::new(), judge)
    }

    /// Reads a recipe as [`parse_with`](Self::parse_with) does, with the keys of `[model]` that it leaves out taken from `model`.
    pub(crate) fn parse_beside(
        text: &str,
        source: &str,
        overrides: &[(String, String)],
        model: &Table,
        judge: impl FnOnce(&Self) -> Vec<Problem>,
    ) -> Result<Self, RecipeError> {
        let (mut document, mut findings) = (Document::parse(text, source)?, Findings::default());
        for (key, value) in overrides {
            findings.note(document.set(key, value));
        }
        for (error, meant) in document.take_unknown_keys(&known_keys::<D, M, L>()) {
            findings.note_unknown(error, meant);
        }
        document.fill("model", model, fields_of::<M>().unwrap_or_default());
        let recipe = Self::read(&document, &mut findings);
        if let Some(recipe) = &recipe {
            findings.judge(&document, &[recipe.init.problems(), judge(recipe)].concat());
        }
        findings.into_result()?;
        Ok(recipe.unwrap_or_else(|| unreachable!("what cannot be read is an error")))
    }

    /// The recipe, with defaults for what is wrong with it; none if a section cannot be read at all.
    fn read(document: &Document, findings: &mut Findings) -> Option<Self> {
        let task = findings.note(document.required("task")).unwrap_or_default();
        let seed = findings.note(document.optional("seed")).flatten().unwrap_or_default();
        let (data, model) = (findings.section(document, "data"), findings.section(document, "model"));
        let (loss, training) = (findings.section(document, "loss"), findings.section(document, "training"));
        let (optimizer, schedule) = (findings.section(document, "optimizer"), findings.section(document, "schedule"));
        let init = findings.section(document, "init");
        let (training, optimizer, schedule) = (training?, optimizer?, schedule?);
        if let Err(error) = check(&training, &optimizer, &schedule) {
            findings.judge(document, error.problems());
        }
        let (data, model, loss, init) = (data?, model?, loss?, init?);
        Some(Self { task, seed, data, model, loss, init, training, optimizer, schedule })
    }
}

impl<D, M, L> Recipe<D, M, L> {
    /// The same recipe for data of which an epoch has so many batches: the steps of the training and the horizon of the schedule
    /// are numbers, whatever decides them.
    #[must_use]
    pub(crate) fn over(self, batches: usize) -> Self {
        let training = self.training.over(batches);
        let schedule = self.schedule.over(training.steps);
        Self { training, schedule, ..self }
    }

    /// Checks the settings that are the same for every task, and that they fit one another.
    ///
    /// # Errors
    /// Returns one error that lists all bad fields.
    pub fn validate(&self) -> Result<(), SettingsError> {
        check(&self.training, &self.optimizer, &self.schedule)
    }
}

fn check(
    training: &TrainingConfig,
    optimizer: &OptimizerConfig,
    schedule: &ScheduleConfig,
) -> Result<(), SettingsError> {
    let mut together = Problems::of("schedule");
    let (floor, peak) = (schedule.min_learning_rate, optimizer.learning_rate);
    let expected = format!("at most optimizer.learning_rate = {peak}");
    together.require(!floor.partial_cmp(&peak).is_some_and(Ordering::is_gt), "min_learning_rate", floor, &expected);
    all_of([training.validate(), optimizer.validate(), schedule.validate(), together.into_result()])
}

impl<D: Serialize, M: Serialize, L: Serialize> Recipe<D, M, L> {
    /// The recipe as TOML, defaults and overrides included: [`Recipe::parse`] reads it back.
    ///
    /// # Errors
    /// Fails if `data`, `model` or `loss` holds what TOML cannot express, such as a map with keys that are no text.
    pub fn to_toml(&self) -> Result<String, RecipeError> {
        toml::to_string(self).map_err(|error| RecipeError::Unwritable { reason: error.to_string() })
    }
}

/// Refuses a recipe for `problems` that only its data or its model show, each with its place.
pub(crate) fn refuse(
    text: &str,
    source: &str,
    overrides: &[(String, String)],
    problems: &[Problem],
) -> Result<(), RecipeError> {
    let mut document = Document::parse(text, source)?;
    overrides.iter().try_for_each(|(key, value)| document.set(key, value))?;
    RecipeError::of(document.range_errors(problems))
}

/// The `[init]` section of a recipe, whatever else it says; one that cannot be read names no weights.
pub(crate) fn init_in(text: &str, source: &str, overrides: &[(String, String)]) -> Result<InitConfig, RecipeError> {
    let mut document = Document::parse(text, source)?;
    let _ = overrides.iter().try_for_each(|(key, value)| document.set(key, value)); // told when the recipe is read
    Ok(document.optional("init").ok().flatten().unwrap_or_default())
}

/// The task that a recipe is for, whatever else it says.
pub(crate) fn task_in(text: &str, source: &str) -> Result<String, RecipeError> {
    Ok(Document::parse(text, source)?.required("task")?)
}

/// The keys of a recipe: alone, then by section. A section without a list accepts any key here.
fn known_keys<D: DeserializeOwned, M: DeserializeOwned, L: DeserializeOwned>() -> Vec<Known> {
    vec![
        ("task", None),
        ("seed", None),
        ("data", fields_of::<D>()),
        ("model", fields_of::<M>()),
        ("loss", fields_of::<L>()),
        ("init", fields_of::<InitConfig>()),
        ("training", fields_of::<TrainingConfig>()),
        ("optimizer", fields_of::<OptimizerConfig>()),
        ("schedule", fields_of::<ScheduleConfig>()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdamConfig, UpdateRule};
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Data {
        tokenizer: String,
        validation_fraction: f64,
    }

    impl Default for Data {
        fn default() -> Self {
            Self { tokenizer: "char".into(), validation_fraction: 0.1 }
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Model {
        d_model: usize,
        #[serde(default)]
        dropout: f64,
        #[serde(default)]
        head_dropout: f64,
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Loss {
        label_smoothing: f64,
    }

    const TEXT: &str = "task = \"language\"\nseed = 1337\n\n[model]\nd_model = 128\n\n[training]\nsteps = 20\n";

    fn parse(text: &str, overrides: &[(&str, &str)]) -> Result<Recipe<Data, Model, Loss>, RecipeError> {
        let overrides: Vec<_> = overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Recipe::parse(text, "small.toml", &overrides)
    }

    fn error(text: &str, overrides: &[(&str, &str)]) -> String {
        let error = parse(text, overrides).unwrap_err();
        assert!(error.is_user_error());
        error.to_string()
    }

    #[test]
    fn defaults_fill_what_is_left_out_and_the_text_comes_back() {
        let recipe = parse(TEXT, &[]).unwrap();
        assert_eq!((recipe.task.as_str(), recipe.seed, recipe.model.d_model), ("language", 1337, 128));
        assert_eq!((&recipe.data, &recipe.loss), (&Data::default(), &Loss::default()));
        assert_eq!(recipe.training, TrainingConfig { steps: 20, ..TrainingConfig::default() });
        assert_eq!(parse(&recipe.to_toml().unwrap(), &[]).unwrap(), recipe);
    }

    #[test]
    fn overrides_replace_and_add() {
        let overrides =
            [("training.steps", "5"), ("seed", "2"), ("data.tokenizer", "byte"), ("optimizer.beta_2", "0.95")];
        let recipe = parse(TEXT, &overrides).unwrap();
        let adamw = AdamConfig { beta_2: 0.95, ..AdamConfig::adamw() };
        assert_eq!((recipe.training.steps, recipe.seed), (5, 2));
        assert_eq!(recipe.optimizer.rule, UpdateRule::AdamW(adamw));
        assert_eq!(recipe.data.tokenizer, "byte");
    }

    #[test]
    fn steps_that_are_asked_for_are_the_last_word_against_the_epochs_of_a_recipe() {
        let by_epochs = TEXT.replace("steps = 20", "epochs = 3");
        let lasts = |overrides: &[(&str, &str)]| {
            let training = parse(&by_epochs, overrides).unwrap().training.over(100);
            (training.epochs, training.steps)
        };
        assert_eq!(lasts(&[]), (3, 300));
        assert_eq!(lasts(&[("training.steps", "10")]), (0, 10));
        assert_eq!(lasts(&[("training.epochs", "2"), ("training.steps", "10")]), (0, 10));
        assert_eq!(lasts(&[("training.steps", "10"), ("training.epochs", "2")]), (2, 200), "the last one counts");
    }

    #[test]
    fn broken_toml_is_placed() {
        assert_eq!(
            error("task = \"language\"\nseed 3\n", &[]),
            "`small.toml`, line 2, column 6: not valid TOML: key with no value, expected `=`"
        );
    }

    #[test]
    fn an_unknown_key_is_placed_and_the_nearest_is_named() {
        assert_eq!(
            error(&TEXT.replace("steps", "step"), &[]),
            "`small.toml`, line 8: unknown key `training.step`; did you mean `training.steps`?"
        );
        assert_eq!(
            error(&format!("{TEXT}learning_rate = 1\n"), &[]),
            "`small.toml`, line 9: unknown key `training.learning_rate`; did you mean `optimizer.learning_rate`?"
        );
        assert_eq!(
            error(&TEXT.replace("[training]", "[trainig]"), &[]),
            "`small.toml`, line 7: unknown key `trainig`; did you mean `training`?"
        );
        assert_eq!(
            error(TEXT, &[("data.zzz", "1")]),
            "`--set data.zzz`: unknown key `data.zzz`; known are `data.tokenizer`, `data.validation_fraction`"
        );
    }

    #[test]
    fn a_key_of_an_older_recipe_says_what_it_is_called_now() {
        assert_eq!(
            error(&format!("{TEXT}smoothing = 0.9\n"), &[]),
            "`small.toml`, line 9: unknown key `training.smoothing`; renamed to `training.ema_decay`"
        );
    }

    #[test]
    fn keys_that_moved_to_the_section_of_the_start_say_where() {
        let text =
            TEXT.replace("d_model = 128", "d_model = 128\nfrom = \"runs/a\"\nnew_head = true\nnew_embedding = true");
        let found = error(&text, &[]);
        for new in ["`init.from`", "`init.exclude = [\"head\"]`", "`init.exclude = [\"encoder.embedding\"]`"] {
            assert!(found.contains(&format!("renamed to {new}")), "{found}");
        }
    }

    #[test]
    fn keys_of_the_model_that_are_left_out_are_those_of_another_recipe() {
        let other: Table = "d_model = 64\ndropout = 0.5\nn_layers = 3".parse().unwrap();
        let read = |text: &str| {
            Recipe::<Data, Model, Loss>::parse_beside(text, "small.toml", &[], &other, |_| Vec::new()).unwrap().model
        };
        assert_eq!(read("task = \"language\"\n"), Model { d_model: 64, dropout: 0.5, head_dropout: 0.0 });
        assert_eq!(read(TEXT), Model { d_model: 128, dropout: 0.5, head_dropout: 0.0 });
        assert_eq!(
            read("task = \"language\"\n[model]\nhead_dropout = 0.1").dropout,
            0.0,
            "a rate that is named stands alone"
        );
    }

    #[test]
    fn a_wrong_type_says_what_was_expected_and_found() {
        assert_eq!(
            error(&TEXT.replace("20", "\"many\""), &[]),
            "`small.toml`, line 8: `training.steps`: invalid type: string \"many\", expected a whole number of at least 0"
        );
        assert_eq!(
            error(TEXT, &[("model.d_model", "-3")]),
            "`--set model.d_model`: `model.d_model`: invalid value: integer `-3`, expected a whole number of at least 0"
        );
        assert_eq!(
            error(&format!("training = 3\n{}", TEXT.replace("[training]\nsteps = 20", "")), &[]),
            "`small.toml`, line 1: `training`: invalid type: integer `3`, expected a section `[training]`"
        );
        assert_eq!(
            error(TEXT, &[("schedule.kind", "5")]),
            "`--set schedule.kind`: `schedule.kind`: expected a name in quotes"
        );
        assert_eq!(
            error(TEXT, &[("model", "5")]),
            "`--set model`: `model`: invalid type: integer `5`, expected a section `[model]`"
        );
    }

    #[test]
    fn an_integer_that_toml_cannot_hold_is_out_of_range() {
        assert_eq!(
            error(TEXT, &[("seed", "18446744073709551615")]),
            "`--set seed`: 18446744073709551615 is out of range: expected an integer from 0 to 9223372036854775807"
        );
        for written in
            ["18446744073709551615", "99999999999999999999999999", "999999999999999999999999999999999999999999"]
        {
            assert_eq!(
                error(&TEXT.replace("1337", written), &[]),
                format!(
                    "`small.toml`, line 2, column 8: not valid TOML: {written} is out of range: expected an integer from \
                     0 to 9223372036854775807"
                )
            );
        }
    }

    #[test]
    fn a_missing_key_and_a_bad_range_are_named() {
        assert_eq!(
            error(&TEXT.replace("d_model", "dropout"), &[]),
            "`small.toml`, line 4: `model`: missing field `d_model`"
        );
        assert_eq!(error(&TEXT.replace("task", "#"), &[]), "`small.toml`: `task`: missing");
        assert_eq!(
            error(TEXT, &[("training.gradient_accumulation_steps", "0"), ("schedule.min_learning_rate", "1")]),
            "`--set training.gradient_accumulation_steps`: training.gradient_accumulation_steps = 0 must be at least 1; `--set schedule.min_learning_rate`: \
             schedule.min_learning_rate = 1 must be at most optimizer.learning_rate = 0.001"
        );
    }

    #[test]
    fn every_bad_field_is_listed_with_its_line() {
        let text = TEXT.replace("d_model = 128", "d_modle = 1\nwidth = 2").replace("steps", "stepz");
        assert_eq!(
            error(&text, &[]),
            "`small.toml`, line 5: unknown key `model.d_modle`; did you mean `model.d_model`?; `small.toml`, line 6: \
             unknown key `model.width`; known are `model.d_model`, `model.dropout`, `model.head_dropout`; `small.toml`, line 9: unknown key \
             `training.stepz`; did you mean `training.steps`?"
        );
        let text = TEXT.replace("128", "\"wide\"").replace("20", "-1");
        let both = error(&text, &[]);
        assert!(both.contains("line 5: `model.d_model`") && both.contains("line 8: `training.steps`"), "{both}");

        let text = format!("{TEXT}batch_size = 0\ngradient_accumulation_steps = 0\n");
        let judge = |recipe: &Recipe<Data, Model, Loss>| {
            let text = format!("d_model = {} is too much", recipe.model.d_model);
            vec![Problem { key: "model.d_model".into(), text }]
        };
        assert_eq!(
            Recipe::parse_with(&text, "small.toml", &[], judge).unwrap_err().to_string(),
            "`small.toml`, line 9: training.batch_size = 0 must be at least 1; `small.toml`, line 10: training.gradient_accumulation_steps = 0 \
             must be at least 1; `small.toml`, line 5: d_model = 128 is too much"
        );
    }

    #[test]
    fn mistakes_of_all_sorts_are_one_report() {
        let text = "task = \"language\"\nseed = \"lucky\"\n[model]\nd_model = \"wide\"\n[training]\nsteps = \"many\"\n\
                    batch_sizes = 3\nema_decay = true\ngradient_accumulation_steps = 0\n[optimizer]\nclip_norm = -1\n";
        let judge = |recipe: &Recipe<Data, Model, Loss>| {
            let text = |key: &str, value: usize| Problem {
                key: format!("model.{key}"),
                text: format!("{key} = {value} is bad"),
            };
            vec![text("d_model", recipe.model.d_model), text("dropout", 2)]
        };
        let found = Recipe::parse_with(text, "small.toml", &[("seed.x".into(), "1".into())], judge).unwrap_err();
        assert_eq!(
            found.to_string().split("; ").collect::<Vec<_>>(),
            [
                "`--set seed.x`: `seed` is a value and holds no keys",
                "`small.toml`, line 7: unknown key `training.batch_sizes`",
                "did you mean `training.batch_size`?",
                "`small.toml`, line 2: `seed`: invalid type: string \"lucky\", expected a whole number of at least 0",
                "`small.toml`, line 4: `model.d_model`: invalid type: string \"wide\", expected a whole number of at least 0",
                "`small.toml`, line 8: `training.ema_decay`: invalid type: boolean `true`, expected a number",
                "`small.toml`, line 6: `training.steps`: invalid type: string \"many\", expected a whole number of at least 0",
                "`small.toml`, line 9: training.gradient_accumulation_steps = 0 must be at least 1",
                "`small.toml`, line 11: optimizer.clip_norm = -1 must be at least 0 and finite",
                "`small.toml`: dropout = 2 is bad",
            ]
        );
        let text = "task = \"language\"\n[model]\nd_model = 8\n[training]\nstep = 3\nsteps = \"many\"\nprecision = 16\n\
                    batch_size = 0\n";
        let lines: Vec<String> = error(text, &[]).split("line ").skip(1).map(|rest| rest[..1].to_string()).collect();
        assert_eq!(lines, ["5", "7", "6", "8"], "an unknown key, two wrong types and a range");
    }

    #[test]
    fn what_rests_on_a_value_that_was_not_read_is_not_judged() {
        let text = format!("{TEXT}[optimizer]\nlearning_rate = \"slow\"\n[schedule]\nmin_learning_rate = 0.5\n");
        let found = error(&text, &[]);
        assert!(
            found.contains("line 10: `optimizer.learning_rate`") && !found.contains("min_learning_rate"),
            "{found}"
        );
        let text = format!("{TEXT}[optimizer]\nkind = \"muom\"\nmomentum = 0.9\n");
        let found = error(&text, &[]);
        assert!(found.contains("line 10: `optimizer.kind`") && !found.contains("`momentum`"), "{found}");
    }

    #[test]
    fn every_bad_field_of_every_group_has_its_line() {
        let text = format!(
            "{TEXT}[optimizer]\nmoment = 1\nmomentum = 0.9\nepsilon = \"small\"\n[[optimizer.groups]]\nparameters = 3\n\
             weight_decay = \"much\"\n[[optimizer.groups]]\nweight_decy = 0.1\nparameters = \"*\"\n[[optimizer.groups]]\n"
        );
        assert_eq!(
            error(&text, &[]).split("; ").collect::<Vec<_>>(),
            [
                "`small.toml`, line 10: unknown key `optimizer.moment`",
                "did you mean `optimizer.momentum`?",
                "`small.toml`, line 12: `optimizer.epsilon`: invalid type: string \"small\", expected a number",
                "`small.toml`, line 14: `optimizer.groups[0].parameters`: invalid type: integer `3`, expected a string",
                "`small.toml`, line 15: `optimizer.groups[0].weight_decay`: invalid type: string \"much\", expected a number",
                "`small.toml`, line 17: `optimizer.groups[1].weight_decy`: unknown field `weight_decy`, expected one of \
                 `parameters`, `learning_rate_factor`, `weight_decay`, `muon`",
                "`small.toml`, line 19: `optimizer.groups[2]`: missing field `parameters`",
                "`small.toml`, line 11: `optimizer.momentum`: kind = \"adamw\" does not read the key `momentum`, which belongs \
                 to kind = \"muon\"",
            ]
        );
        let text = format!(
            "{TEXT}[[optimizer.groups]]\nparameters = \"*\"\n[[optimizer.groups]]\nparameters = \"*\"\nweight_decay = -1\n"
        );
        let range = "optimizer.groups[1].weight_decay = -1 must be at least 0 and finite";
        assert_eq!(error(&text, &[]), format!("`small.toml`, line 13: {range}"));
        let groups = "[{ parameters = \"a\" }, { parameters = \"b\", weight_decay = -1.0 }]";
        assert_eq!(error(&text, &[("optimizer.groups", groups)]), format!("`--set optimizer.groups`: {range}"));
    }

    #[test]
    fn a_resumed_run_may_change_some_keys_and_the_others_are_named() {
        let began = parse(TEXT, &[]).unwrap();
        let changed = parse(TEXT, &[("training.steps", "90"), ("schedule.kind", "constant")]).unwrap();
        changed.continues(&began).unwrap();
        let other = parse(TEXT, &[("model.d_model", "64"), ("seed", "1"), ("training.steps", "5")]).unwrap();
        let error = other.continues(&began).unwrap_err();
        assert!(error.is_user_error());
        let expected = "the run began with another recipe: model.d_model was 128 and is 64, seed was 1337 and is 1; a \
                        resumed run may change training.steps, ";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn a_key_that_only_one_of_two_recipes_has_is_a_change_too() {
        let without = parse(TEXT, &[]).unwrap();
        let with = parse(TEXT, &[("optimizer.groups", "[{ parameters = \"*\", weight_decay = 0.5 }]")]).unwrap();
        let [added, left_out] = [with.continues(&without), without.continues(&with)].map(|found| found.unwrap_err());
        assert!(added.to_string().contains("recipe: optimizer.groups was left out and is [{"), "{added}");
        assert!(left_out.to_string().contains("}] and is left out; a resumed run may change"), "{left_out}");
    }

    #[test]
    fn an_override_through_a_value_is_refused() {
        assert_eq!(error(TEXT, &[("seed.x", "1")]), "`--set seed.x`: `seed` is a value and holds no keys");
        assert_eq!(error(TEXT, &[("training.", "1")]), "`--set training.`: expected a key such as `training.steps`");
    }
}
