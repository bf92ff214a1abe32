//! Ranks share the lines of a file, and answer as one process does.

use std::fs;

use serde_json::Value;

use super::job::{on_ranks, train};
use crate::support::{Finished, Model, finish, firelight, model, text};
use crate::{USER, answering, captioning, classification, tagging, translation, vision};

fn mpirun(world: usize, args: &[String]) -> Finished {
    finish(on_ranks(world, args))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// More lines than ranks take at a time, of many lengths.
fn many_lines(words: [&str; 2]) -> String {
    (0..1100).map(|line| format!("{}\n", words[line % 2].repeat(1 + line % 3))).collect()
}

#[test]
fn answers_are_those_of_one_process_in_the_order_of_the_lines() {
    let home = Model::scratch();
    let [texts, sources, pairs] = ["texts.txt", "sources.txt", "pairs.txt"].map(|name| home.path().join(name));
    fs::write(&texts, many_lines(["a fine film ", "a dull film "])).unwrap();
    fs::write(&sources, many_lines(["abdc", "ab"])).unwrap();
    fs::write(&pairs, "abdc\tcdba\nabac\tcaba\n".repeat(20)).unwrap();
    let classifier = text(&classification::texts().run);
    let [texts, sources, pairs] = [texts, sources, pairs].map(|path| text(&path));
    for command in [
        words(&["classify", &classifier, "--file", &texts, "--json"]),
        words(&["embed", &classifier, "--file", &texts]),
        words(&["score", &text(&translation::pairs().run), "--file", &pairs, "--json"]),
        words(&["translate", &text(&translation::pairs().run), "--file", &sources, "--truncate", "--beams", "1"]),
        words(&["evaluate", &text(&model().dir), "--json"]),
    ] {
        let alone = firelight(&command);
        let found = mpirun(3, &command);
        assert_eq!((found.code, &found.stdout), (alone.code, &alone.stdout), "{command:?}: {}", found.stderr);
    }
}

/// What `evaluate --json` says, without the seconds.
fn measured(found: Finished) -> String {
    let mut line: Value = serde_json::from_str(&found.succeeds().stdout).unwrap();
    assert!(line.as_object_mut().unwrap().remove("seconds").is_some(), "{line}");
    line.to_string()
}

/// The language model is among the commands above.
#[test]
fn every_task_is_evaluated_as_by_one_process() {
    let home = Model::scratch();
    let masked = home.path().join("masked");
    firelight(train(&["masked", "--set", "data.stories=3000"], &masked, &["--steps", "2"])).succeeds();
    let runs = [
        &classification::texts().run,
        &tagging::sentences().run,
        &answering::questions().run,
        &masked,
        &translation::pairs().run,
        &vision::images().run,
    ];
    for run in runs.map(|run| run.as_path()).into_iter().chain([captioning::run()]) {
        let command = words(&["evaluate", &text(run), "--json"]);
        assert_eq!(measured(mpirun(2, &command)), measured(firelight(&command)), "{command:?}");
    }
}

#[test]
fn a_line_that_is_wrong_is_told_once() {
    let home = Model::scratch();
    let file = home.path().join("pairs.txt");
    fs::write(&file, "abdc\tcdba\n".repeat(20) + "no tab\n").unwrap();
    let found = mpirun(2, &words(&["score", &text(&translation::pairs().run), "--file", &text(&file)]));
    let errors: Vec<&str> = found.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!((found.code, found.stdout.lines().count(), errors.len()), (USER, 21, 2), "{}", found.stderr);
    assert!(errors[0].contains("line 21: ") && errors[1].contains("1 of 21 lines"), "{errors:?}");

    fs::write(&file, [&b"abdc\tcdba\n".repeat(20)[..], b"\xff\n"].concat()).unwrap();
    let found = mpirun(2, &words(&["score", &text(&translation::pairs().run), "--file", &text(&file)]));
    assert_eq!((found.code, found.stderr.matches("error: ").count()), (USER, 1), "{}", found.stderr);
    assert!(found.stderr.contains("error: line 21 of `"), "{}", found.stderr);
}

#[test]
fn what_cannot_be_shared_is_refused_once() {
    let found = mpirun(2, &words(&["translate", &text(&translation::pairs().run)]));
    assert_eq!((found.code, found.stderr.matches("error: the standard input").count()), (USER, 1), "{}", found.stderr);
}
