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
    let overrides = [("training.steps", "5"), ("seed", "2"), ("data.tokenizer", "byte"), ("optimizer.beta_2", "0.95")];
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

/// Batches as the data of tasks has them, whose keys lie one level deeper than those of a section.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Batching {
    Tokens { max_tokens: usize },
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Batched {
    batching: Batching,
}

#[test]
fn an_old_key_inside_of_a_value_says_what_it_is_called_now_and_nothing_else() {
    let parse = |data: &str, overrides: &[(&str, &str)]| {
        let overrides: Vec<_> = overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let text = format!("{TEXT}\n[data]\n{data}\n");
        Recipe::<Batched, Model, Loss>::parse(&text, "small.toml", &overrides).unwrap_err().to_string()
    };
    let renamed = "unknown key `data.batching.budget`; renamed to `data.batching.max_tokens`";
    let inline = "batching = { kind = \"tokens\", budget = 4096 }";
    assert_eq!(parse(inline, &[]), format!("`small.toml`, line 11: {renamed}"));
    let own_section = "[data.batching]\nkind = \"tokens\"\nbudget = 4096";
    assert_eq!(parse(own_section, &[]), format!("`small.toml`, line 13: {renamed}"));
    let set = [("data.batching.budget", "64")];
    let new = inline.replace("budget", "max_tokens");
    assert_eq!(parse(&new, &set), format!("`--set data.batching.budget`: {renamed}"));
}

#[test]
fn keys_that_moved_to_the_section_of_the_start_say_where() {
    let text = TEXT.replace("d_model = 128", "d_model = 128\nfrom = \"runs/a\"\nnew_head = true\nnew_embedding = true");
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
    for written in ["18446744073709551615", "99999999999999999999999999", "999999999999999999999999999999999999999999"]
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
        let text =
            |key: &str, value: usize| Problem { key: format!("model.{key}"), text: format!("{key} = {value} is bad") };
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
    assert!(found.contains("line 10: `optimizer.learning_rate`") && !found.contains("min_learning_rate"), "{found}");
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
