//! Schedules are drawn without a training.

use std::fs;

use crate::USER;
use crate::support::{Model, firelight, model, text};

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
    firelight(["visualize", "schedule", "--out", &out].into_iter().chain(kinds)).fails(USER, &["exists", "--force"]);
    firelight(["visualize", "schedule", "nowhere", "--out", &out])
        .fails(USER, &["no file `nowhere`", "stories, dates"]);
    firelight(["visualize", "schedule", "dates", "--out", "rates.png"]).fails(USER, &["`rates.png`", "SVG", ".svg"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), own);
    firelight(["visualize", "schedule", "dates", "--force", "--out", &out].into_iter().chain(kinds)).succeeds();
    let several = fs::read_to_string(&out).unwrap();
    assert!(
        ["cosine", "wsd", "inverse_sqrt", "learning rate of the next step"].iter().all(|name| several.contains(name))
    );
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nothing else is left behind");

    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes/sst2.toml");
    let epochs = ["visualize", "schedule", recipe, "--force", "--out", &out];
    firelight(epochs).fails(USER, &["epochs", "schedule.steps=N"]);
    firelight(epochs.iter().chain(&["--set", "schedule.steps=900"])).succeeds();
}

#[cfg(unix)]
#[test]
fn an_output_never_takes_the_place_of_a_special_file() {
    let scratch = Model::scratch();
    let socket = scratch.path().join("schedule.svg");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let drawn = firelight(["visualize", "schedule", "dates", "--force", "--out", &text(&socket)]);
    drawn.fails(USER, &["schedule.svg", "regular file"]);
    assert!(!fs::symlink_metadata(&socket).unwrap().is_file());
}
