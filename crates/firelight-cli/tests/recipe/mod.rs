//! Mistakes in a recipe and its overrides, each named with its key and its line.

use std::fs;

use crate::USER;
use crate::support::{Finished, Model, firelight, model, text, train, train_with};

/// Trains by this recipe, made from the good one.
fn train_by(change: impl FnOnce(String) -> String) -> Finished {
    let scratch = Model::scratch();
    let recipe = scratch.path().join("changed.toml");
    fs::write(&recipe, change(fs::read_to_string(&model().recipe).unwrap())).unwrap();
    let out = scratch.path().join("run");
    firelight(["train", &text(&recipe), "--data", &text(&model().text), "--out", &text(&out)])
}

#[test]
fn a_missing_recipe_is_named() {
    firelight(["train", "nowhere.toml"]).fails(USER, &["no file `nowhere.toml`", "stories, dates"]);
}

#[test]
fn an_unknown_task_is_named_with_its_recipe() {
    let change = |recipe: String| recipe.replace("task = \"language\"", "task = \"lingo\"");
    train_by(change).fails(USER, &["changed.toml`: ", "no task `lingo`", "`language`"]);
}

#[test]
fn a_broken_recipe_is_located() {
    train_by(|recipe| recipe.replace("d_model = 16", "d_model = = 16")).fails(USER, &["changed.toml", "line 10"]);
}

#[test]
fn an_unknown_key_gets_the_nearest_known_one() {
    train_by(|recipe| recipe.replace("d_model", "d_modle")).fails(USER, &["model.d_modle", "d_model"]);
    train_with(&["--set", "optimizer.learning_rat=1"]).fails(USER, &["optimizer.learning_rat", "learning_rate"]);
}

#[test]
fn a_value_of_the_wrong_type_is_named() {
    train_with(&["--set", "model.d_model=wide"]).fails(USER, &["d_model", "wide"]);
}

#[test]
fn mistakes_of_all_sorts_are_one_report_with_their_lines() {
    let change = |recipe: String| {
        let recipe = recipe.replace("tied = true", "tied = 1").replace("steps = 20\nbatch", "steps = \"many\"\nbatch");
        let recipe = recipe.replace("batch_size = 4", "batch_size = 0").replace("norm = ", "nrom = ");
        recipe.replace("evaluate_every = 10", "precision = \"f8\"")
    };
    let texts = [
        "line 17: unknown key `model.nrom`",
        "line 18: `model.tied`: invalid type: integer `1`, expected a boolean",
        "line 21: `training.steps`",
        "line 22: training.batch_size = 0",
        "line 23: `training.precision`",
    ];
    let found = train_by(change);
    assert_eq!(found.stderr.lines().count(), texts.len(), "a line for each: {}", found.stderr);
    found.fails(USER, &texts);
}

#[test]
fn a_group_of_no_parameter_costs_no_run_folder() {
    let scratch = Model::scratch();
    let (out, group) = (scratch.path().join("run"), "optimizer.groups=[{ parameters = \"embedder.*\" }]");
    let args = train(model(), &out).into_iter().chain(["--set", group].map(str::to_string));
    firelight(args)
        .fails(USER, &["`--set optimizer.groups`", "groups[0].parameters = \"embedder.*\"", "`embedding.weight`"]);
    assert!(!out.exists());
}

#[test]
fn a_key_of_another_optimizer_or_schedule_is_refused() {
    train_with(&["--set", "optimizer.momentum=0.9"]).fails(USER, &["`optimizer.momentum`", "kind = \"muon\""]);
    train_with(&["--set", "schedule.decay_steps=9"]).fails(USER, &["schedule.decay_steps = 9", "`wsd`"]);
    let noam = ["visualize", "schedule", "--kinds", "noam", "--set", "schedule.warmup_steps=0"];
    firelight(noam).fails(USER, &["schedule.warmup_steps = 0 must be at least 1"]);
}

#[test]
fn heads_must_divide_the_width() {
    train_with(&["--set", "model.n_heads=3"]).fails(USER, &["d_model", "16", "n_heads", "3"]);
}

#[test]
fn an_override_needs_a_key_and_a_value() {
    train_with(&["--set", "model.d_model"]).fails(USER, &["--set", "expected SECTION.KEY=VALUE"]);
}
