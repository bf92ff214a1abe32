//! Experiments: grids of trainings that go on where they were stopped, and what is told of them.

use std::fs;
use std::path::Path;

use crate::support::{Finished, Model, contents, firelight, in_a_terminal, model, text};
use crate::{MACHINE, USER};

/// The arguments that train points of two steps by the shared recipe.
fn arguments(command: &str, out: &Path, more: &[&str]) -> Vec<String> {
    let (recipe, data, out) = (text(&model().recipe), text(&model().text), text(out));
    let args = [command, &recipe, "--data", &data, "--out", &out, "--set", "training.steps=2"].map(str::to_string);
    args.into_iter().chain(more.iter().map(ToString::to_string)).collect()
}

fn experiment(command: &str, out: &Path, more: &[&str]) -> Finished {
    firelight(arguments(command, out, more))
}

const TWO_BY_TWO: [&str; 4] = ["--vary", "model.n_heads=1,2", "--vary", "model.norm=layer,rms"];

#[test]
fn a_grid_is_trained_once_and_told_in_a_table_in_records_and_in_a_picture() {
    let scratch = Model::scratch();
    let out = scratch.path().join("grid");
    let first = experiment("ablate", &out, &TWO_BY_TWO).succeeds();
    let lines: Vec<&str> = first.stdout.lines().collect();
    assert_eq!(lines.len(), 6, "{}", first.stdout);
    assert_eq!(lines[0], "| n_heads | norm | validation loss | sd | seeds | parameters |");
    assert!(lines[2].starts_with("| 1 | layer | ") && lines[5].starts_with("| 2 | rms | "), "{}", first.stdout);
    let csv = fs::read_to_string(out.join("results.csv")).unwrap();
    assert_eq!(csv.lines().count(), 5, "{csv}");
    assert!(csv.starts_with("point,model.n_heads,model.norm,seed,status,loss,"), "{csv}");
    assert!(csv.contains("\n\"n_heads=2,norm=rms,seed=1\",2,rms,1,done,"), "{csv}");
    assert!(fs::read_to_string(out.join("results.svg")).unwrap().starts_with("<svg"));
    assert!(out.join("n_heads=1,norm=layer,seed=1/config.json").is_file());

    // One run is gone, and trained again; the files of the others stay as they are.
    let gone = out.join("n_heads=2,norm=layer,seed=1");
    fs::remove_dir_all(&gone).unwrap();
    let kept = contents(&out);
    let written = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let is_of_run = |path: &Path| path.parent() != Some(out.as_path());
    let times: Vec<_> = kept.iter().filter(|(path, _)| is_of_run(path)).map(|(path, _)| written(path)).collect();
    assert!(!times.is_empty());
    let again = experiment("ablate", &out, &["--vary", "heads=1,2", "--vary", "norm=layer,rms"]).succeeds();
    assert_eq!(again.stdout, first.stdout);
    assert!(again.stderr.contains("4 trainings") && again.stderr.contains("1 of them to do"), "{}", again.stderr);
    assert!(gone.join("config.json").is_file());
    let after = kept.iter().filter(|(path, _)| is_of_run(path)).map(|(path, _)| written(path));
    assert!(after.eq(times));
    for (path, bytes) in kept.iter().filter(|(path, _)| is_of_run(path)) {
        assert_eq!(fs::read(path).unwrap(), *bytes, "{}", path.display());
    }

    let other = experiment("ablate", &out, &["--vary", "model.n_heads=1"]);
    other.fails(USER, &["is of another experiment", "--vary model.n_heads was 1,2 and is 1", "model.norm"]);
    let longer = [&TWO_BY_TWO[..], &["--set", "training.steps=3"]].concat();
    experiment("ablate", &out, &longer).fails(USER, &["training.steps was 2 and is 3"]);
}

#[test]
fn a_point_that_fails_is_noted_and_the_others_are_trained() {
    let scratch = Model::scratch();
    let more = ["--vary", "optimizer.learning_rate=1e38,0.01", "--json"];
    let swept = experiment("sweep", scratch.path(), &more);
    assert_eq!(swept.code, MACHINE, "{}", swept.stderr);
    assert!(
        swept.stderr.contains("error: 1 of 2 trainings failed, the first of them `learning_rate=1e38,seed=1`: step ")
    );
    let value: serde_json::Value = serde_json::from_str(&swept.stdout).unwrap();
    assert_eq!((&value["best"], &value["metric"]), (&"learning_rate=0.01".into(), &"loss".into()), "{value}");
    assert_eq!(value["points"][0]["outcome"]["status"], "failed");
    assert_eq!(value["points"][1]["outcome"]["steps"], 2);
    let csv = fs::read_to_string(scratch.path().join("results.csv")).unwrap();
    assert!(
        csv.lines().nth(1).unwrap().contains(",failed,") && csv.lines().nth(2).unwrap().contains(",done,"),
        "{csv}"
    );
}

#[test]
fn what_no_point_can_be_trained_with_is_told_before_anything_is_trained() {
    let scratch = Model::scratch();
    let out = scratch.path().join("new");
    let refused = |more: &[&str], texts: &[&str]| {
        experiment("ablate", &out, more).fails(USER, texts);
        assert!(!out.exists(), "{more:?}");
    };
    refused(&["--vary", "model.n_head=1,2"], &["unknown key `model.n_head`", "`model.n_heads`"]);
    refused(&["--vary", "model.n_heads=1,3"], &["1 of 2 combinations are refused", "`n_heads=3`", "d_model"]);
    refused(&["--vary", "model.n_heads"], &["'--vary <KEY=VALUES>'", "KEY=V1,V2"]);
    refused(&["--vary", "model.n_heads=1,2", "--seeds", "0"], &["'--seeds <N>'"]);
    refused(&["--vary", "seed=1..2000:2000"], &["`seed` is varied by --seeds"]);
    refused(&["--vary", "data.workers=1..2000:2000:linear"], &["2000 trainings", "--yes"]);
    refused(&["--vary", "model.n_heads=1,2", "--metric", "bleu"], &["`training.monitor` is `bleu`", "loss"]);
    let dry = experiment("ablate", &out, &["--vary", "model.n_heads=1,2", "--one-at-a-time", "--dry-run"]).succeeds();
    let lines: Vec<&str> = dry.stdout.lines().map(|line| line.split_once(':').unwrap().0).collect();
    assert_eq!(lines, ["baseline", "n_heads=1", "n_heads=2"]);
    assert!(!out.exists());
}

/// Interrupts an experiment as Ctrl-C does, once its first point has done more than so many steps, and returns what it said.
#[cfg(unix)]
fn interrupted(out: &Path, steps: usize) -> String {
    use std::io::Read;
    let more = ["--vary", "model.n_heads=1,2", "--set", "training.steps=100000", "--set", "schedule.steps=20"];
    let mut command = crate::support::command(arguments("ablate", out, &more));
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    while steps_of(out) <= steps {
        assert!(child.try_wait().unwrap().is_none(), "the experiment ended before it was interrupted");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{stderr}");
    stderr
}

/// The steps that the first point has done.
#[cfg(unix)]
fn steps_of(out: &Path) -> usize {
    let metrics = fs::read_to_string(out.join("n_heads=1,seed=1/metrics.jsonl")).unwrap_or_default();
    metrics.lines().filter(|line| line.contains("gradient_norm")).count()
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_experiment_and_the_same_command_goes_on() {
    let scratch = Model::scratch();
    let stderr = interrupted(scratch.path(), 3);
    assert!(stderr.ends_with("interrupted; the same command goes on\n"), "{stderr}");
    let done = steps_of(scratch.path());
    interrupted(scratch.path(), done + 3);
    let metrics = fs::read_to_string(scratch.path().join("n_heads=1,seed=1/metrics.jsonl")).unwrap();
    let steps: Vec<&str> = metrics.lines().filter(|line| line.contains("gradient_norm")).collect();
    assert!(done > 3 && steps.len() > done, "{} steps, {done} before", steps.len());
    for (line, step) in steps.iter().zip(1..) {
        assert!(line.contains(&format!("\"step\":{step},")), "step {step} is missing: {line}");
    }
    assert!(!scratch.path().join("n_heads=2,seed=1").exists());
    let csv = fs::read_to_string(scratch.path().join("results.csv")).unwrap();
    assert_eq!(csv.matches(",waiting,").count(), 2, "{csv}");
}

#[test]
fn a_law_takes_four_sizes_and_the_trainings_are_told_without_it() {
    let scratch = Model::scratch();
    let sizes = ["--vary", "model.d_model=4,8,16", "--set", "model.n_heads=1", "--fit"];
    let scaled = experiment("scale", scratch.path(), &sizes);
    assert_eq!(scaled.code, USER, "{}", scaled.stderr);
    assert!(
        scaled.stderr.contains("4 different numbers of parameters or more, and the runs have 3"),
        "{}",
        scaled.stderr
    );
    let head = "| d_model | validation loss | sd | seeds | parameters | non-embedding | tokens | FLOP |\n";
    assert!(scaled.stdout.starts_with(head), "{}", scaled.stdout);
    for name in ["results.svg", "flops.svg", "results.csv"] {
        assert!(scratch.path().join(name).is_file(), "{name}");
    }
    let accuracy = ["--vary", "model.d_model=4,8", "--metric", "accuracy"];
    experiment("scale", &scratch.path().join("other"), &accuracy).fails(USER, &["the metric is `accuracy`"]);
}

/// Four sizes that learn long enough for the larger ones to be better.
const SIZES: [&str; 11] = [
    "--vary",
    "model.d_model=4,8,16,32",
    "--set",
    "model.n_heads=1",
    "--set",
    "model.dropout=0",
    "--set",
    "training.steps=100",
    "--set",
    "schedule.steps=100",
    "--fit",
];

#[test]
fn four_sizes_have_a_law_with_intervals_and_a_picture_of_it() {
    let scratch = Model::scratch();
    let scaled = experiment("scale", scratch.path(), &SIZES).succeeds();
    let law = scaled.stdout.lines().find(|line| line.starts_with("L = ")).expect(&scaled.stdout);
    assert!(law.contains(" / N^") && !law.contains(" / D^"), "{law}");
    let numbers: Vec<(&str, [f64; 3])> = scaled.stdout.lines().filter_map(estimate).collect();
    let names: Vec<&str> = numbers.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["E", "A", "alpha"], "{}", scaled.stdout);
    assert!(numbers.iter().all(|(_, [_, low, high])| low <= high), "{}", scaled.stdout);
    assert!(
        numbers.iter().all(|(_, [value, ..])| law.contains(&format!("{value:.4}"))),
        "{numbers:?} are not of {law}"
    );
    assert!(scaled.stderr.contains("need several numbers of tokens"), "{}", scaled.stderr);
    let picture = |name: &str| fs::read_to_string(scratch.path().join(name)).unwrap();
    assert!(picture("results.svg").contains("law, "), "the law lies beside the runs");
    let by_flops = picture("flops.svg");
    assert!(by_flops.starts_with("<svg") && by_flops.contains("log10 of FLOP"), "{by_flops}");
    assert_eq!(by_flops.matches(" parameters\n</text>").count(), 4, "a run of each size: {by_flops}");
    assert!(!by_flops.contains("compute-optimal"), "the tokens were not varied");

    // The same command trains nothing again, and the law says the losses that it was fitted to.
    let again = experiment("scale", scratch.path(), &[&SIZES[..], &["--json"]].concat()).succeeds();
    assert!(again.stderr.contains("0 of them to do"), "{}", again.stderr);
    let value: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    let (fit, number) = (&value["fit"], |value: &serde_json::Value| value.as_f64().unwrap());
    let term = &fit["law"]["parameters"];
    for point in value["points"].as_array().unwrap() {
        let outcome = &point["outcome"];
        let said = number(&fit["law"]["irreducible"])
            + number(&term["coefficient"]) * number(&outcome["parameters"]).powf(-number(&term["exponent"]));
        // None of four errors is more than twice the root of their mean square; errors of the loss and of the law differ a little.
        let most = 2.5 * number(&fit["relative_error"]) + 1e-6;
        assert!((number(&outcome["value"]) / said - 1.0).abs() <= most, "{outcome} and {said}: {fit}");
    }
    assert!(value["optima"].as_array().is_some_and(Vec::is_empty), "{value}");
}

/// The name, the value and the interval of a row of the law: `| alpha | 0.3000 | 0.2000 to 0.4000 |`.
fn estimate(line: &str) -> Option<(&str, [f64; 3])> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    let [name, value, interval] = cells[..] else { return None };
    let (low, high) = interval.split_once(" to ")?;
    Some((name, [value.parse().ok()?, low.parse().ok()?, high.parse().ok()?]))
}

/// A row of a table on a screen, without what moves the cursor before it.
fn row(line: &str) -> Option<&str> {
    let line = line.trim_end().rsplit('\r').next()?;
    line.find("| ").map(|begin| &line[begin..]).filter(|row| row.ends_with(" |"))
}

#[test]
fn tables_are_folded_to_the_columns_of_a_terminal() {
    let scratch = Model::scratch();
    let many =
        ["model.n_heads=1,2", "optimizer.learning_rate=0.01", "schedule.warmup_steps=1", "training.batch_size=2"];
    let many: Vec<&str> = many.into_iter().flat_map(|axis| ["--vary", axis]).collect();
    let sizes = ["--vary", "model.d_model=4,8", "--set", "model.n_heads=1"];
    for (command, more, last) in [("scale", &sizes[..], "FLOP |"), ("ablate", &many[..], "parameters |")] {
        let Some(screen) = in_a_terminal(arguments(command, &scratch.path().join(command), more)) else { return };
        let rows: Vec<&str> = screen.lines().filter_map(row).collect();
        assert_eq!(rows.len(), 2 * 4, "two tables of two combinations: {screen}");
        assert!(rows.iter().all(|row| row.chars().count() <= 80), "{screen}");
        assert!(rows[0].starts_with("| # | ") && rows[4].starts_with("| # | ") && rows[4].ends_with(last), "{screen}");
    }
}
