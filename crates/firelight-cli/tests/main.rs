//! The command as a user meets it: what each command prints where, and one clear line with the right exit code for every
//! mistake there is.

mod bench;
mod browser;
mod classification;
mod crash;
mod support;
mod translation;
mod vision;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use support::{Model, command, contents, finish, firelight, in_a_terminal, model, train};

const USER: i32 = 2;
const MACHINE: i32 = 1;

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn generate(dir: &Path, more: &[&str]) -> Vec<String> {
    let common = ["generate", &text(dir), "--prompt", "The fox", "--max-new-tokens", "30"].map(str::to_string);
    common.into_iter().chain(more.iter().map(|arg| arg.to_string())).collect()
}

fn evaluate(dir: &Path, data: &Path) -> Vec<String> {
    ["evaluate", &text(dir), "--data", &text(data), "--json"].map(str::to_string).to_vec()
}

/// Trains with one more argument into a fresh folder.
fn train_with(more: &[&str]) -> support::Finished {
    let scratch = Model::scratch();
    let args = train(model(), &scratch.path().join("run"));
    firelight(args.into_iter().chain(more.iter().map(|arg| arg.to_string())))
}

/// Trains on these bytes as the data file.
fn train_on(bytes: &[u8]) -> support::Finished {
    let scratch = Model::scratch();
    let data = scratch.path().join("data.txt");
    fs::write(&data, bytes).unwrap();
    firelight(["train", &text(&model().recipe), "--data", &text(&data), "--out", &text(&scratch.path().join("run"))])
}

/// Trains by this recipe, made from the good one.
fn train_by(change: impl FnOnce(String) -> String) -> support::Finished {
    let scratch = Model::scratch();
    let recipe = scratch.path().join("changed.toml");
    fs::write(&recipe, change(fs::read_to_string(&model().recipe).unwrap())).unwrap();
    let out = scratch.path().join("run");
    firelight(["train", &text(&recipe), "--data", &text(&model().text), "--out", &text(&out)])
}

// What the commands do.

#[test]
fn generate_continues_the_prompt_on_stdout() {
    let finished = firelight(generate(&model().dir, &["--seed", "3"])).succeeds();
    assert!(finished.stdout.starts_with("The fox"), "{}", finished.stdout);
    assert!(finished.stdout.ends_with('\n'));
    assert_eq!(finished.stdout.chars().count(), "The fox".len() + 30 + 1);
    assert!(finished.stderr.contains("checkpoint: last"), "{}", finished.stderr);
}

#[test]
fn one_seed_is_one_text() {
    let seeded = |seed| firelight(generate(&model().dir, &["--temperature", "1.5", "--seed", seed])).succeeds().stdout;
    assert_eq!(seeded("1"), seeded("1"));
    assert_ne!(seeded("1"), seeded("2"));
}

#[test]
fn the_cache_changes_no_greedy_text() {
    let cached = firelight(generate(&model().dir, &["--greedy"])).succeeds().stdout;
    assert_eq!(firelight(generate(&model().dir, &["--greedy", "--no-cache"])).succeeds().stdout, cached);
}

#[test]
fn generate_speaks_json_with_the_text_of_the_terminal() {
    let plain = firelight(generate(&model().dir, &["--seed", "3"])).succeeds().stdout;
    let json = firelight(generate(&model().dir, &["--seed", "3", "--json"])).succeeds().stdout;
    assert_eq!(json.lines().count(), 1);
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["prompt"], "The fox");
    assert_eq!(value["tokens"], 30);
    assert_eq!(value["stopped"], "max_new_tokens");
    assert_eq!(format!("The fox{}\n", value["text"].as_str().unwrap()), plain);
}

#[test]
fn evaluate_prints_one_line_of_json() {
    let finished = firelight(evaluate(&model().dir, &model().text)).succeeds();
    assert_eq!(finished.stdout.lines().count(), 1);
    let value: Value = serde_json::from_str(&finished.stdout).unwrap();
    let [loss, perplexity, bits] = ["loss", "perplexity", "bits_per_character"].map(|key| value[key].as_f64().unwrap());
    assert!((perplexity - loss.exp()).abs() < 1e-6);
    assert!((bits - loss / 2f64.ln()).abs() < 1e-6); // one token is one character
    assert!(value["tokens"].as_u64().unwrap() > 0);
}

#[test]
fn checkpoints_are_chosen_by_name() {
    let last = firelight(evaluate(&model().dir, &model().text)).succeeds().stdout;
    for checkpoint in ["best", "10"] {
        let chosen = firelight(
            evaluate(&model().dir, &model().text).into_iter().chain(["--checkpoint".into(), checkpoint.into()]),
        );
        let chosen = chosen.succeeds();
        assert!(chosen.stderr.contains(&format!("checkpoint: {checkpoint}")), "{}", chosen.stderr);
        if checkpoint == "10" {
            assert_ne!(chosen.stdout, last);
        }
    }
    let missing = firelight(generate(&model().dir, &["--checkpoint", "777"]));
    missing.fails(USER, &["no checkpoint", "777", "last"]);
}

#[test]
fn one_seed_trains_the_same_bytes() {
    let scratch = Model::scratch();
    firelight(train(model(), scratch.path())).succeeds();
    let weights = |dir: &Path| fs::read(dir.join("model.safetensors")).unwrap();
    assert!(weights(scratch.path()) == weights(&model().dir));
}

#[test]
fn overrides_reach_the_recipe_of_the_run() {
    let scratch = Model::scratch();
    let more = ["--steps", "3", "--seed", "9", "--set", "model.d_ff=24"].map(str::to_string);
    firelight(train(model(), scratch.path()).into_iter().chain(more)).succeeds();
    let recipe = fs::read_to_string(scratch.path().join("recipe.toml")).unwrap();
    for line in ["steps = 3", "seed = 9", "d_ff = 24"] {
        assert!(recipe.lines().any(|found| found == line), "{line}: {recipe}");
    }
    let steps = fs::read_to_string(scratch.path().join("metrics.jsonl")).unwrap();
    assert_eq!(steps.lines().filter(|line| line.contains("\"gradient_norm\"")).count(), 3);
}

#[test]
fn a_resumed_run_ends_with_the_bytes_of_an_uninterrupted_one() {
    let scratch = Model::scratch();
    let run = |more: &[&str]| {
        let args = train(model(), scratch.path());
        firelight(args.into_iter().chain(more.iter().map(|arg| arg.to_string()))).succeeds()
    };
    run(&["--steps", "10"]);
    let resumed = run(&["--resume", "--steps", "20"]);
    assert!(resumed.stderr.contains("from step 10 to 20"), "{}", resumed.stderr);
    let weights = |dir: &Path| fs::read(dir.join("model.safetensors")).unwrap();
    assert!(weights(scratch.path()) == weights(&model().dir));
}

/// The training losses of a run.
fn losses(out: &Path) -> Vec<f64> {
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    metrics.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64()).collect()
}

#[test]
fn a_precision_of_the_recipe_is_what_the_model_computes_in() {
    let single = losses(&model().dir);
    for precision in ["bf16", "f16"] {
        let scratch = Model::scratch();
        let change = ["--set".to_string(), format!("training.precision={precision}")];
        let run = firelight(train(model(), scratch.path()).into_iter().chain(change));
        if std::env::var("BURN_DEVICE").is_ok_and(|device| device == "ndarray") {
            run.fails(USER, &["cannot compute in", precision]);
            continue;
        }
        run.succeeds();
        let half = losses(scratch.path());
        assert_eq!(half.len(), 20);
        assert_ne!(half[0], single[0], "{precision} was not computed in");
        let error = half.iter().zip(&single).map(|(half, single)| (half - single).abs()).fold(0.0, f64::max);
        assert!(error < 0.1, "{precision}: {half:?} and {single:?}");
    }
}

#[test]
fn tensorboard_finds_one_file_with_all_numbers() {
    let scratch = Model::scratch();
    firelight(train(model(), scratch.path()).into_iter().chain(["--tensorboard".to_string()])).succeeds();
    let files: Vec<_> =
        fs::read_dir(scratch.path().join("tensorboard")).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(files[0].file_name().unwrap().to_string_lossy().starts_with("events.out.tfevents."), "{files:?}");
    let bytes = fs::read(&files[0]).unwrap();
    let count = |tag: &str| bytes.windows(tag.len()).filter(|window| *window == tag.as_bytes()).count();
    assert_eq!(["training/loss", "training/gradient_norm", "validation/loss"].map(count), [20, 20, 2]);
    assert!(!model().dir.join("tensorboard").exists(), "it was not asked for");
}

#[test]
fn the_dashboard_takes_the_whole_screen_of_a_terminal_and_gives_it_back() {
    let scratch = Model::scratch();
    // Long enough for the dashboard, which draws itself ten times a second.
    let more = ["--tui", "--steps", "500"].map(str::to_string);
    let Some(screen) = in_a_terminal([train(model(), scratch.path()), more.into()].concat()) else {
        eprintln!("skipped: there is no `script` to play the terminal");
        return;
    };
    let [taken, given_back] = ["\u{1b}[?1049h", "\u{1b}[?1049l"].map(|code| screen.find(code).expect("the screen"));
    let shown = &screen[taken..given_back];
    assert!(shown.contains("Metrics") && shown.contains("Perplexity"), "{shown}");
    assert!(screen[given_back..].contains("done after 500 steps"), "{screen}");
}

#[test]
fn a_dry_run_says_what_it_would_cost_and_leaves_nothing() {
    let scratch = Model::scratch();
    let out = scratch.path().join("run");
    let finished = firelight(train(model(), &out).into_iter().chain(["--dry-run".to_string()])).succeeds();
    assert!(
        ["parameters, ", "MFLOP per token", "FLOP in 20 steps", "MiB"]
            .iter()
            .all(|text| finished.stdout.contains(text)),
        "{}",
        finished.stdout
    );
    let trained = firelight(train(model(), &scratch.path().join("trained"))).succeeds();
    assert!(trained.stderr.contains(&format!("estimate: {}", finished.stdout)), "{}", trained.stderr);
    assert!(!out.exists());
    train_with(&["--dry-run", "--set", "model.n_heads=3"]).fails(USER, &["n_heads"]);
}

#[test]
fn a_self_check_tells_what_holds_and_changes_nothing() {
    let scratch = Model::scratch();
    let checked = firelight(train(model(), scratch.path()).into_iter().chain(["--self-check".to_string()])).succeeds();
    assert_eq!(checked.stderr.matches("self-check: ").count(), 4, "{}", checked.stderr);
    let weights = |dir: &Path| fs::read(dir.join("model.safetensors")).unwrap();
    assert!(weights(scratch.path()) == weights(&model().dir));
    let wild = train_with(&["--self-check", "--set", "model.init={weight={kind=\"normal\",std=3.0}}"]);
    assert!(wild.stderr.contains("the first loss is ln V FAILS"), "{}", wild.stderr);
    assert_ne!(wild.code, 0);
}

#[test]
fn checkpoints_are_averaged_and_used() {
    let copy = model().copy();
    let averaged = firelight(["average", &text(copy.path()), "--newest", "2"]).succeeds();
    assert!(averaged.stderr.contains("steps 10, 20"), "{}", averaged.stderr);
    let average =
        firelight(evaluate(copy.path(), &model().text).into_iter().chain(["--checkpoint".into(), "average".into()]));
    assert!(average.succeeds().stderr.contains("checkpoint: average"));
    firelight(["average", &text(copy.path()), "--steps", "10,777"]).fails(USER, &["no checkpoint `777`"]);
    firelight(["average", &text(copy.path()), "--newest", "3"]).fails(USER, &["2 checkpoints", "3 are wanted"]);
}

/// Interrupts a training as Ctrl-C does after a few steps, and returns how many it had done when it ended, and what it said.
#[cfg(unix)]
fn interrupted(out: &Path, more: &[&str]) -> (usize, String) {
    let args = train(model(), out).into_iter().chain(more.iter().map(|arg| arg.to_string()));
    let mut child = command(args).stderr(Stdio::piped()).spawn().unwrap();
    let metrics = out.join("metrics.jsonl");
    while !fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() > 5) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{stderr}");
    let text = fs::read_to_string(&metrics).unwrap();
    (text.lines().filter(|line| line.contains("gradient_norm")).count(), stderr)
}

#[cfg(unix)]
#[test]
fn epochs_are_counted_over_an_interruption() {
    let scratch = Model::scratch();
    let epochs = ["--set", "training.epochs=5"];
    let dry = train_with(&[&epochs[..], &["--dry-run"]].concat()).succeeds().stdout;
    let steps: usize = dry.split("FLOP in ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(steps > 100, "{dry}");
    let (done, _) = interrupted(scratch.path(), &epochs);
    let resumed = firelight(["train", "--resume", "--out", &text(scratch.path())]).succeeds();
    assert!(resumed.stderr.contains(&format!("from step {done} to {steps}")), "{}", resumed.stderr);
    assert!(resumed.stderr.contains(&format!("done after {steps} steps")), "{}", resumed.stderr);
    let metrics = fs::read_to_string(scratch.path().join("metrics.jsonl")).unwrap();
    assert_eq!(metrics.lines().filter(|line| line.contains("gradient_norm")).count(), steps);
}

#[cfg(unix)]
#[test]
fn ctrl_c_finishes_the_step_saves_and_says_how_to_go_on() {
    let scratch = Model::scratch();
    let (lines, stderr) = interrupted(scratch.path(), &["--steps", "100000", "--set", "schedule.steps=20"]);
    assert!(
        stderr.contains("interrupted after") && stderr.contains("resume with: firelight train --resume"),
        "{stderr}"
    );
    let resumed = firelight(["train", "--resume", "--out", &text(scratch.path()), "--steps", &(lines + 5).to_string()]);
    assert!(resumed.succeeds().stderr.contains(&format!("from step {lines} to {}", lines + 5)));
}

#[test]
fn visualize_draws_the_schedules_that_are_asked_for() {
    let scratch = Model::scratch();
    let out = text(&scratch.path().join("rates.svg"));
    let recipe = text(&model().recipe);
    let finished = firelight(["visualize", "schedule", &recipe, "--out", &out]).succeeds();
    assert_eq!((finished.stdout.as_str(), finished.stderr.trim()), ("", format!("wrote {out}").as_str()));
    let own = fs::read_to_string(&out).unwrap();
    assert!(own.starts_with("<svg") && own.contains("cosine") && !own.contains("wsd"));

    let kinds = ["--kinds", "cosine,wsd,inverse_sqrt", "--set", "schedule.warmup_steps=3"];
    firelight(["visualize", "schedule", "--out", &out].into_iter().chain(kinds)).succeeds();
    let several = fs::read_to_string(&out).unwrap();
    assert!(
        ["cosine", "wsd", "inverse_sqrt", "learning rate of the next step"].iter().all(|name| several.contains(name))
    );
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nothing else is left behind");
}

#[test]
fn devices_names_the_default() {
    let finished = firelight(["devices"]).succeeds();
    assert!(finished.stdout.lines().any(|line| line.starts_with("flex")), "{}", finished.stdout);
    assert!(finished.stdout.contains("\ndefault: "), "{}", finished.stdout);
    assert!(finished.stderr.is_empty(), "{}", finished.stderr);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let args = generate(&model().dir, &[]).into_iter().map(|arg| if arg == "30" { "100000".into() } else { arg });
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 8];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap(); // and hangs up
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!stderr.contains("error"), "{stderr}");
}

// Bad data.

#[test]
fn a_missing_data_file_is_named() {
    firelight(["train", &text(&model().recipe), "--data", "nowhere.txt"]).fails(USER, &["nowhere.txt"]);
    firelight(evaluate(&model().dir, Path::new("nowhere.txt"))).fails(USER, &["nowhere.txt"]);
    firelight(["train", &text(&model().recipe)]).fails(USER, &["tiny.toml", "--data FILE"]);
}

#[test]
fn an_empty_data_file_is_refused() {
    train_on(b"").fails(USER, &["data.txt", "empty"]);
}

#[test]
fn bytes_that_are_no_text_are_found() {
    train_on(b"good text\xFFand more").fails(USER, &["data.txt", "UTF-8", "offset 9"]);
}

#[test]
fn a_text_shorter_than_the_context_says_what_is_needed() {
    train_on(b"short").fails(USER, &["too short", "context of 8"]);
}

#[test]
fn a_character_outside_the_vocabulary_is_located() {
    let prompt = firelight(["generate", &text(&model().dir), "--prompt", "The f\u{e6}x"]);
    prompt.fails(USER, &["'\u{e6}'", "position 5", "vocabulary"]);
    let scratch = Model::scratch();
    let data = scratch.path().join("foreign.txt");
    fs::write(&data, "The fox ran.\n".repeat(20) + "The hen sat \u{2014}").unwrap();
    firelight(evaluate(&model().dir, &data)).fails(USER, &["line 21", "column 13", "vocabulary"]);
}

// Bad recipes.

#[test]
fn a_missing_recipe_is_named() {
    firelight(["train", "nowhere.toml"]).fails(USER, &["nowhere.toml"]);
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
    train_by(change).fails(USER, &texts);
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

// Bad folders and files.

#[test]
fn an_existing_run_is_refused_and_left_as_it_was() {
    let copy = model().copy();
    let before = contents(copy.path());
    firelight(train(model(), copy.path())).fails(USER, &["--resume", "--force"]);
    assert!(contents(copy.path()) == before);
}

#[test]
fn force_replaces_a_run_but_no_foreign_folder() {
    let copy = model().copy();
    let force = |dir: &Path| firelight(train(model(), dir).into_iter().chain(["--force".to_string()]));
    force(copy.path()).succeeds();
    let foreign = Model::scratch();
    fs::write(foreign.path().join("thesis.tex"), "years of work").unwrap();
    force(foreign.path()).fails(USER, &["thesis.tex"]);
    assert!(foreign.path().join("thesis.tex").exists());
}

#[test]
fn a_mistake_costs_no_existing_run() {
    let copy = model().copy();
    let before = contents(copy.path());
    let more = ["--force", "--set", "model.n_heads=3"].map(str::to_string);
    firelight(train(model(), copy.path()).into_iter().chain(more)).fails(USER, &["n_heads"]);
    assert!(contents(copy.path()) == before);
}

#[test]
fn a_folder_that_is_no_model_says_what_was_expected() {
    let empty = Model::scratch();
    firelight(generate(empty.path(), &[])).fails(USER, &["config.json"]);
    firelight(generate(Path::new("nowhere"), &[])).fails(USER, &["nowhere"]);
    firelight(evaluate(empty.path(), &model().text)).fails(USER, &["config.json"]);
}

#[test]
fn a_damaged_model_file_is_named() {
    let copy = model().copy();
    let weights = copy.path().join("model.safetensors");
    let whole = fs::read(&weights).unwrap();
    fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    firelight(generate(copy.path(), &[])).fails(USER, &["model.safetensors"]);
    fs::write(&weights, "GIF89a, and nothing that a model could use").unwrap();
    firelight(generate(copy.path(), &[])).fails(USER, &["model.safetensors"]);
}

#[test]
fn a_foreign_configuration_is_named() {
    let copy = model().copy();
    let config = copy.path().join("config.json");
    let newer = fs::read_to_string(&config).unwrap().replace("\"version\": 1", "\"version\": 99");
    fs::write(&config, newer).unwrap();
    firelight(generate(copy.path(), &[])).fails(USER, &["99", "1"]);
    fs::write(&config, "{\"model_type\": \"gpt2\"}").unwrap();
    firelight(generate(copy.path(), &[])).fails(USER, &["config.json", "firelight"]);
}

#[test]
fn a_context_beyond_the_position_table_does_not_load() {
    let copy = model().copy();
    let config = copy.path().join("config.json");
    let wider = fs::read_to_string(&config).unwrap().replace("\"max_seq_len\": 8", "\"max_seq_len\": 16");
    fs::write(&config, wider).unwrap();
    firelight(generate(copy.path(), &[])).fails(USER, &["model.safetensors", "[16, 16]", "[8, 16]"]);
}

#[test]
fn there_must_be_a_run_to_resume_unless_the_command_could_begin_one() {
    let scratch = Model::scratch();
    let out = scratch.path().join("run");
    firelight(["train", "--resume", "--out", &text(&out)]).fails(USER, &["no run to resume"]);
    assert!(!out.exists());
    let resume = || firelight(train(model(), &out).into_iter().chain(["--resume".to_string()])).succeeds();
    assert!(resume().stderr.contains("from step 0 to 20"));
    let before = contents(&out);
    let again = resume();
    assert!(again.stderr.contains("is finished after 20 steps, best ") && again.stdout.is_empty(), "{}", again.stderr);
    assert!(contents(&out) == before);
}

#[test]
fn a_run_that_was_stopped_while_its_folder_was_filled_begins_again() {
    let copy = model().copy();
    for name in ["config.json", "model.safetensors", "metrics.jsonl", "tokenizer.json"] {
        fs::remove_file(copy.path().join(name)).unwrap();
    }
    fs::remove_dir_all(copy.path().join("checkpoints")).unwrap();
    firelight(["train", "--resume", "--out", &text(copy.path())]).fails(USER, &["--data FILE"]);
    let resumed = firelight(train(model(), copy.path()).into_iter().chain(["--resume".to_string()])).succeeds();
    assert!(resumed.stderr.contains("from step 0 to 20"), "{}", resumed.stderr);
    let weights = |dir: &Path| fs::read(dir.join("model.safetensors")).unwrap();
    assert!(weights(copy.path()) == weights(&model().dir));
}

#[test]
fn a_run_without_checkpoints_begins_again_to_the_same_bytes() {
    let copy = model().copy();
    fs::remove_dir_all(copy.path().join("checkpoints")).unwrap();
    let resumed = firelight(["train", "--resume", "--out", &text(copy.path())]).succeeds();
    assert!(resumed.stderr.contains("from step 0 to 20"), "{}", resumed.stderr);
    let weights = |dir: &Path, name: &str| fs::read(dir.join(name)).unwrap();
    for name in ["model.safetensors", "checkpoints/best/model.safetensors", "checkpoints/step-20/model.safetensors"] {
        assert!(weights(copy.path(), name) == weights(&model().dir, name), "{name}");
    }
}

/// Resumes a copy of the run for ten steps more.
fn resume(copy: &Path, more: &[&str]) -> support::Finished {
    let args = ["train", "--resume", "--out", &text(copy), "--steps", "30"].map(str::to_string);
    firelight(args.into_iter().chain(more.iter().map(|arg| arg.to_string())))
}

#[test]
fn a_damaged_newest_checkpoint_is_told_and_the_one_before_it_resumed() {
    let copy = model().copy();
    let optimizer = copy.path().join("checkpoints/step-20/optimizer.bpk");
    let whole = fs::read(&optimizer).unwrap();
    fs::write(&optimizer, &whole[..whole.len() / 2]).unwrap();
    let resumed = resume(copy.path(), &[]).succeeds();
    for text in ["warn: passing over the checkpoint of step 20: ", "optimizer.bpk", "from step 10 to 30"] {
        assert!(resumed.stderr.contains(text), "`{text}` is not in {}", resumed.stderr);
    }
}

#[test]
fn a_checkpoint_of_another_model_or_other_data_is_refused_and_nothing_changed() {
    let (copy, other) = (model().copy(), Model::scratch());
    let wider = ["--steps", "1", "--set", "model.d_ff=24"].map(str::to_string);
    firelight(train(model(), &other.path().join("run")).into_iter().chain(wider)).succeeds();
    let weights = copy.path().join("checkpoints/step-20/model.safetensors");
    fs::copy(other.path().join("run/model.safetensors"), weights).unwrap();
    let before = contents(copy.path());
    resume(copy.path(), &[]).fails(USER, &["step-20/model.safetensors", "[16, 32]", "[16, 24]"]);
    assert!(contents(copy.path()) == before);

    let copy = model().copy();
    let (before, data) = (contents(copy.path()), other.path().join("other.txt"));
    fs::write(&data, fs::read_to_string(&model().text).unwrap().replace("hen", "fox")).unwrap();
    resume(copy.path(), &["--data", &text(&data)]).fails(USER, &["`--data` is not what the run began with"]);
    assert!(contents(copy.path()) == before);
}

#[test]
fn metrics_that_cannot_be_read_stop_a_resumed_run_before_it_changes_anything() {
    let copy = model().copy();
    let metrics = copy.path().join("metrics.jsonl");
    fs::write(&metrics, fs::read_to_string(&metrics).unwrap().replacen("{\"step\":2,", "{\"stop\":2,", 1)).unwrap();
    let before = contents(copy.path());
    let resumed = resume(copy.path(), &[]);
    let error = resumed.stderr.lines().last().unwrap_or_default();
    let expected = "metrics.jsonl` is damaged: line 2 is no JSON object with a `step`";
    assert!(resumed.code == USER && error.starts_with("error: ") && error.contains(expected), "{}", resumed.stderr);
    assert!(contents(copy.path()) == before);
}

#[test]
fn what_a_resumed_run_may_not_change_is_named() {
    let copy = model().copy();
    let before = contents(copy.path());
    let more = ["--resume", "--steps", "30", "--set", "model.d_ff=24", "--seed", "9"].map(str::to_string);
    let finished = firelight(train(model(), copy.path()).into_iter().chain(more));
    finished.fails(USER, &["model.d_ff was 32 and is 24", "seed was 1 and is 9", "may change training.steps"]);
    assert!(contents(copy.path()) == before);
}

#[test]
fn a_folder_in_use_is_left_alone() {
    let copy = model().copy();
    let lock = fs::OpenOptions::new().write(true).create(true).truncate(false).open(copy.path().join(".lock")).unwrap();
    lock.lock().unwrap();
    let resume = ["--resume", "--steps", "30"].map(str::to_string);
    firelight(train(model(), copy.path()).into_iter().chain(resume)).fails(USER, &["in use by another process"]);
    drop(lock);
}

// Bad wishes.

#[test]
fn misspelt_and_missing_arguments_are_one_line_too() {
    firelight(["train", "--stepz", "3"]).fails(USER, &["'--stepz'", "'--steps'", "--help"]);
    firelight(["train", "--resume"]).fails(USER, &["--out <DIR>"]);
    firelight(["train", "--steps", "many"]).fails(USER, &["'many'", "--steps"]);
    firelight(["generate", "run", "--greedy", "--top-k", "5"]).fails(USER, &["'--greedy'", "'--top-k <N>'"]);
}

#[test]
fn a_prompt_longer_than_the_context_is_refused() {
    let finished = firelight(["generate", &text(&model().dir), "--prompt", "The fox sat down"]);
    finished.fails(USER, &["16 tokens", "8"]);
}

#[test]
fn an_empty_prompt_is_refused() {
    firelight(["generate", &text(&model().dir), "--prompt", ""]).fails(USER, &["prompt", "empty"]);
}

#[test]
fn options_out_of_range_are_all_listed() {
    let finished = firelight(generate(&model().dir, &["--temperature", "0", "--top-p", "-1"]));
    finished.fails(USER, &["temperature is 0", "--greedy", "top_p is -1"]);
}

#[test]
fn a_device_that_cannot_be_had_lists_those_that_can() {
    train_with(&["--device", "toaster"]).fails(USER, &["`toaster`", "cuda[:INDEX]", "available: ", "flex"]);
    if !cfg!(feature = "rocm") {
        train_with(&["--device", "rocm"]).fails(USER, &["`rocm`", "--features rocm", "available: ", "flex"]);
    }
    let mut variable = command(["devices"]);
    variable.env("BURN_DEVICE", "toaster");
    finish(variable).fails(USER, &["BURN_DEVICE=toaster", "flex"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_the_machines_fault() {
    let mut full = command(["devices"]);
    full.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    finish(full).fails(MACHINE, &["space"]);
}
