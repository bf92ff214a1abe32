//! Texts are scored by a language model and targets by a translator, and what is no text, no pair or no option is refused.

use std::fs;
use std::path::Path;

use firelight::kernels::assert_close;
use serde_json::Value;

use crate::support::{Finished, Model, command, finish, firelight, model, text};
use crate::{USER, classification, translation};

fn score(run: &Path, more: &[&str]) -> Finished {
    firelight(["score".to_string(), text(run)].into_iter().chain(more.iter().map(ToString::to_string)))
}

/// The lines of JSON of a command that succeeds.
fn scored(run: &Path, more: &[&str]) -> Vec<Value> {
    let found = score(run, &[more, &["--json"]].concat()).succeeds().stdout;
    found.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap()
}

fn tokens(line: &Value) -> &[Value] {
    line["tokens"].as_array().unwrap()
}

/// The log-probabilities of the tokens that have one.
fn log_probabilities(line: &Value) -> Vec<f64> {
    tokens(line).iter().filter_map(|token| token["log_probability"].as_f64()).collect()
}

#[test]
fn a_text_is_scored_token_by_token() {
    let line = scored(&model().dir, &["--text", "The fox met a hen."]).remove(0);
    let pieces: String = tokens(&line).iter().map(|token| token["text"].as_str().unwrap()).collect();
    assert_eq!((pieces.as_str(), &line["text"]), ("The fox met a hen.", &"The fox met a hen.".into()));
    assert!(tokens(&line)[0]["log_probability"].is_null() && tokens(&line)[1]["rank"].is_null(), "{line}");
    let sum: f64 = log_probabilities(&line).iter().sum();
    assert_eq!((log_probabilities(&line).len(), line["scored"].as_u64()), (17, Some(17)));
    assert_close(&[number(&line, "log_probability"), number(&line, "mean")], &[sum, sum / 17.0], 1e-9);
    assert_close(&[number(&line, "perplexity").ln()], &[-sum / 17.0], 1e-9);
    assert_close(&[number(&line, "bits_per_byte")], &[-sum / 17.0 / std::f64::consts::LN_2], 1e-9); // a token is a byte
    assert!(line["context"] == 8 && line["stride"] == 4, "{line}");
}

#[test]
fn the_summary_is_one_line_and_a_table_is_asked_for() {
    let plain = score(&model().dir, &["--text", "The fox"]).succeeds().stdout;
    assert_eq!(plain.lines().count(), 1, "{plain}");
    let line = scored(&model().dir, &["--text", "The fox"]).remove(0);
    let sum = number(&line, "log_probability");
    assert!(plain.starts_with(&format!("tokens 6, log-probability {sum:.4}, mean {:.4}, ", sum / 6.0)), "{plain}");
    assert!(plain.ends_with(" (context 8, stride 4)\n"), "{plain}");

    let table = score(&model().dir, &["--text", "The fox", "--tokens"]).succeeds().stdout;
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!((rows.len(), rows[8]), (9, plain.trim_end()), "a heading, seven tokens and the summary: {table}");
    assert_eq!(rows[0].split_whitespace().collect::<Vec<_>>(), ["token", "log", "p", "p"]);
    assert_eq!(rows[1].split_whitespace().collect::<Vec<_>>(), ["\"T\"", "-", "-"]);
    let first = tokens(&line)[1]["log_probability"].as_f64().unwrap();
    let row: Vec<&str> = rows[2].split_whitespace().collect();
    assert_eq!(row, ["\"h\"", &format!("{first:.4}"), &format!("{:.2}", 100.0 * first.exp()), "%"]);

    let ranked = score(&model().dir, &["--text", "The fox", "--top", "2"]).succeeds().stdout;
    let row = ranked.lines().nth(2).unwrap();
    assert!(
        ranked.lines().next().unwrap().ends_with("rank  most probable") && row.matches(" %").count() == 3,
        "{ranked}"
    );
}

#[test]
fn the_most_probable_tokens_are_in_order_and_ranks_are_their_places() {
    let line = scored(&model().dir, &["--text", "The fox met", "--top", "4"]).remove(0);
    for token in &tokens(&line)[1..] {
        let top = token["top"].as_array().unwrap();
        let falling = top.iter().map(|token| number(token, "log_probability")).collect::<Vec<_>>();
        assert!(top.len() == 4 && falling.is_sorted_by(|a, b| a >= b), "{token}");
        let place = top.iter().position(|other| other["id"] == token["id"]);
        let is_ranked = place.map_or(token["rank"].as_u64() > Some(4), |place| token["rank"] == place + 1);
        assert!(is_ranked, "{token}");
    }
}

#[test]
fn a_file_is_one_text_as_the_standard_input_is_or_a_text_per_line() {
    let scratch = Model::scratch();
    let file = scratch.path().join("a.txt");
    fs::write(&file, "The fox\nA hen ran.\n").unwrap();
    let path = text(&file);
    let whole = scored(&model().dir, &["--file", &path]);
    assert_eq!((whole.len(), &whole[0]["text"]), (1, &"The fox\nA hen ran.".into()));
    let mut piped = command(["score", &text(&model().dir), "--json"]);
    piped.stdin(fs::File::open(&file).unwrap());
    assert_eq!(serde_json::from_str::<Value>(&finish(piped).succeeds().stdout).unwrap(), whole[0]);

    let lines = scored(&model().dir, &["--file", &path, "--per-line"]);
    let alone = ["The fox", "A hen ran."].map(|line| scored(&model().dir, &["--text", line]).remove(0));
    assert_eq!(lines, alone);
    assert_eq!(score(&model().dir, &["--file", &path, "--per-line"]).succeeds().stdout.lines().count(), 2);
}

#[test]
fn a_smaller_stride_scores_the_same_tokens_with_more_context() {
    let text = "The hen ran, and the fox sat down.";
    let [near, far] = ["7", "1"].map(|stride| scored(&model().dir, &["--text", text, "--stride", stride]).remove(0));
    assert_eq!((near["stride"].as_u64(), far["stride"].as_u64()), (Some(7), Some(1)));
    let [near, far] = [near, far].map(|line| log_probabilities(&line));
    assert_eq!((near.len(), far.len()), (text.len() - 1, text.len() - 1));
    // The first window is the same, whatever the stride.
    assert_close(&near[..7], &far[..7], 1e-5);
    assert!(near[7..] != far[7..]);
}

#[test]
fn a_target_is_scored_after_its_source_with_its_end() {
    let run = &translation::pairs().run;
    let line = scored(run, &["--source", "abcd", "--text", "dcba"]).remove(0);
    assert!(line["source"] == "abcd" && line["target"] == "dcba" && line["context"].is_null(), "{line}");
    assert_eq!((log_probabilities(&line).len(), &tokens(&line)[4]["text"]), (5, &"".into()));
    assert!(number(&line, "log_probability") < 0.0, "{line}");
    let other = scored(run, &["--source", "dcba", "--text", "dcba"]).remove(0);
    assert_ne!(log_probabilities(&line), log_probabilities(&other), "the source matters");
    let table = score(run, &["--source", "abcd", "--text", "dcba", "--top", "1"]).succeeds().stdout;
    assert!(table.contains("</s>") && !table.contains("context"), "{table}");

    let scratch = Model::scratch();
    let file = scratch.path().join("pairs.tsv");
    fs::write(&file, "abcd\tdcba\ndcba\tdcba\n").unwrap();
    assert_eq!(scored(run, &["--file", &text(&file)]), [line, other]);
}

// Mistakes.

/// The command ends as a mistake of the user, and this is all that it says of it.
fn refuses(run: &Path, more: &[&str], expected: &str) {
    let finished = score(run, more);
    let said: Vec<&str> = finished.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(said, [format!("error: {expected}")]);
    finished.fails(USER, &[]);
}

#[test]
fn a_text_without_a_token_to_predict_is_refused() {
    let few = "expected at least 2, because nothing precedes the first; give a longer text";
    refuses(&model().dir, &["--text", ""], &format!("the text has 0 tokens: {few}"));
    refuses(&model().dir, &["--text", "T"], &format!("the text has 1 token: {few}"));
}

#[test]
fn a_stride_out_of_its_range_is_refused() {
    for stride in ["0", "8"] {
        let range = "expected at least 1 and less than 8, the tokens of the model's context";
        let expected = format!("--stride is {stride}, {range}; leave it out for half the context");
        refuses(&model().dir, &["--text", "The fox", "--stride", stride], &expected);
    }
}

#[test]
fn models_of_another_task_and_options_of_another_model_are_refused() {
    let (classifier, translator) = (&classification::texts().run, &translation::pairs().run);
    let name = text(classifier);
    let expected = format!(
        "`{name}` is a model of the task `classification`, which `firelight score` does not support: use `firelight \
         classify {name}`"
    );
    refuses(classifier, &["--text", "a film"], &expected);
    refuses(
        &model().dir,
        &["--text", "a", "--source", "b"],
        "--source is for translators, and this model is none: remove it",
    );
    let stride = ["--source", "a", "--text", "b", "--stride", "2"];
    refuses(translator, &stride, "--stride is for language models, and this model is a translator: remove it");
    let missing = "this model is a translator, which scores --text as a translation: add its source with --source TEXT";
    refuses(translator, &["--text", "b"], missing);
    let empty = "the source is empty: expected the text that the target is a translation of; give a source of one character or more";
    refuses(translator, &["--source", "", "--text", "b"], empty);
    score(&model().dir, &["--per-line", "--text", "b"]).fails(USER, &["'--per-line'", "'--text <TEXT>'"]);
}

#[test]
fn a_line_that_cannot_be_scored_fails_alone_and_the_exit_code_says_so() {
    let scratch = Model::scratch();
    let file = scratch.path().join("lines.txt");
    fs::write(&file, "abcd\tdcba\nabcd dcba\na\tb\tc\nabcd\tdcba\n").unwrap();
    let path = text(&file);
    let found = score(&translation::pairs().run, &["--file", &path]);
    let lines: Vec<&str> = found.stdout.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[1], lines[2]), (4, lines[3], "", ""), "{lines:?}");
    let said: Vec<&str> = found.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    let tabs = |line: usize, tabs: usize| {
        let pair = "expected a source, a tab and its target";
        format!("error: line {line}: {pair}, found {tabs} tabs; put one tab between the two")
    };
    let last = "error: 2 of 4 lines could not be scored, see above".to_string();
    assert_eq!(said, [tabs(2, 0), tabs(3, 2), last]);
    found.fails(USER, &[]);

    fs::write(&file, "The fox\n\nThe hen\n").unwrap();
    let found = score(&model().dir, &["--file", &path, "--per-line", "--json"]);
    let lines: Vec<Value> = found.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() == 3 && lines[2]["scored"] == 6 && lines[1]["text"] == "", "{lines:?}");
    assert!(lines[1]["error"].as_str().unwrap().starts_with("line 2: the text has 0 tokens"), "{lines:?}");
    found.fails(USER, &["1 of 3 lines could not be scored"]);
}
