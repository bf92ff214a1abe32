//! Encoder-decoders as a user trains, asks and measures them, and the mistakes that can be made on the way.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use firelight::kernels::assert_close;

use crate::support::{Model, command, firelight, model};

const USER: i32 = 2;

/// What is not there by then is not going to come, however slow the machine is.
const DEADLINE: Duration = Duration::from_secs(60);

/// The longest text of the model below, in tokens.
const MAX_SEQ_LEN: usize = 12;

pub(super) const RECIPE: &str = r#"
task = "seq2seq"

[data]
source = "a"
target = "b"
tokenizer = "char"
translated = 4

[model]
d_model = 16
n_heads = 2
n_layers = 1
d_ff = 32
max_seq_len = 12
position = "learned"

[training]
steps = 6
batch_size = 8
evaluate_every = 3
checkpoint_every = 3
monitor = "bleu"

[optimizer]
learning_rate = 0.01
"#;

/// A folder of parallel files, the recipe beside them, and a run that was trained on them for a moment.
pub(super) struct Pairs {
    pub(super) data: PathBuf,
    recipe: PathBuf,
    pub(super) run: PathBuf,
}

pub(super) fn pairs() -> &'static Pairs {
    static PAIRS: LazyLock<Pairs> = LazyLock::new(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pairs");
        let _ = fs::remove_dir_all(&home); // of an earlier run of the tests
        fs::create_dir_all(&home).unwrap();
        let [data, recipe, run] = ["data", "pairs.toml", "run"].map(|name| home.join(name));
        fs::create_dir_all(&data).unwrap();
        let lines: Vec<String> =
            (0..60_u32).map(|i| format!("ab{}dc", ["", "a", "ba", "dab"][i as usize % 4])).collect();
        for (split, lines) in [("train", &lines[..]), ("val", &lines[..8]), ("test", &lines[4..10])] {
            let backwards = lines.iter().map(|line| line.chars().rev().collect::<String>() + "\n").collect::<String>();
            fs::write(data.join(format!("{split}.a")), lines.join("\n") + "\n").unwrap();
            fs::write(data.join(format!("{split}.b")), backwards).unwrap();
        }
        fs::write(&recipe, RECIPE).unwrap();
        firelight(train(&recipe, &data, &run)).succeeds();
        Pairs { data, recipe, run }
    });
    &PAIRS
}

fn train(recipe: &Path, data: &Path, out: &Path) -> Vec<String> {
    let [recipe, data, out] = [recipe, data, out].map(|path| path.display().to_string());
    ["train", &recipe, "--data", &data, "--out", &out].map(str::to_string).to_vec()
}

fn translate(options: &[&str]) -> Vec<String> {
    let run = pairs().run.display().to_string();
    ["translate", &run].iter().chain(options).map(ToString::to_string).collect()
}

#[test]
fn a_pipe_gives_a_line_for_a_line_in_order() {
    let mut run = command(translate(&["--beams", "2"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    run.stdin.take().unwrap().write_all(b"abc\n\nd\n").unwrap();
    let output = run.wait_with_output().unwrap();
    let piped = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = piped.lines().collect();
    assert_eq!((lines.len(), lines[1]), (3, ""));
    let alone = firelight(translate(&["--beams", "2", "--text", "d"])).succeeds().stdout;
    assert_eq!(alone.trim_end_matches('\n'), lines[2]);
}

#[test]
fn a_pipe_that_is_not_utf_8_is_refused_as_a_file_is() {
    let home = Model::scratch();
    let file = home.path().join("a.txt");
    fs::write(&file, b"ab\nc\xff\n").unwrap();
    let expected = &["line 2 of `", "the byte at offset 4", "is 0xff"];
    firelight(translate(&["--file", &file.display().to_string()])).fails(USER, expected);
    let stdin = fs::File::open(&file).unwrap();
    let output = command(translate(&[])).stdin(stdin).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(USER) && expected.iter().all(|text| said.contains(text)), "{said}");
}

#[test]
fn the_best_translations_come_as_json_with_falling_scores() {
    let found = firelight(translate(&["--text", "abc", "--beams", "3", "--n-best", "3", "--json"])).succeeds().stdout;
    let line: serde_json::Value = serde_json::from_str(&found).unwrap();
    let scores: Vec<f64> =
        line["translations"].as_array().unwrap().iter().map(|found| found["score"].as_f64().unwrap()).collect();
    assert!(line["source"] == "abc" && scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b), "{line}");
}

#[test]
fn guesses_change_no_translation_and_are_for_one_beam() {
    let file = pairs().data.join("train.a").display().to_string();
    let translated = |more: &[&str]| firelight(translate(&[&["--file", &file, "--beams", "1"], more].concat()));
    let expected = translated(&[]).succeeds().stdout;
    assert_eq!(translated(&["--prompt-lookup"]).succeeds().stdout, expected);
    let alone = firelight(translate(&["--file", &file, "--prompt-lookup"]));
    alone.fails(USER, &["guesses (--prompt-lookup) are for one text", "5 beams", "(--beams 1)"]);
    translated(&["--prompt-lookup", "--n-best", "2"]).fails(USER, &["--n-best is 2"]);
    translated(&["--prompt-lookup", "--early-stopping", "never"])
        .fails(USER, &["but early stopping is `never`; stop early (--early-stopping heuristic)"]);
}

#[test]
fn translations_are_drawn_and_restricted_as_texts_of_a_language_model_are() {
    let file = pairs().data.join("test.a").display().to_string();
    let translated = |more: &[&str]| firelight(translate(&[&["--file", &file], more].concat()));
    let written = |more: &[&str]| translated(more).succeeds().stdout;
    assert_eq!(written(&["--greedy"]), written(&["--beams", "1"]));
    assert_eq!(written(&["--temperature", "2", "--top-k", "1"]), written(&["--greedy"]));
    let drawn = written(&["--temperature", "3", "--seed", "1"]);
    assert_eq!(drawn.lines().count(), 6);
    assert_eq!(written(&["--temperature", "3", "--seed", "1", "--batch", "1"]), drawn);
    assert_ne!(written(&["--temperature", "3", "--seed", "2"]), drawn);
    for how in [&["--temperature", "3", "--min-p", "0.01"][..], &["--beams", "3"], &["--greedy"]] {
        let found = written(&[how, &["--regex", "a(b|c)*"]].concat());
        let is_valid = |line: &str| line.starts_with('a') && line[1..].chars().all(|c| ['b', 'c'].contains(&c));
        assert!(found.lines().count() == 6 && found.lines().all(is_valid), "{found}");
        let found = written(&[how, &["--prefix", "ca", "--ban", "b", "--min-new-tokens", "4"]].concat());
        let keeps = |line: &str| line.starts_with("ca") && !line.contains('b');
        assert!(found.lines().count() == 6 && found.lines().all(keeps), "{found}");
    }
    translated(&["--temperature", "0"]).fails(USER, &["--temperature is 0"]);
    translated(&["--top-p", "0.5", "--beams", "2"]).fails(USER, &["--top-p cannot be used with --beams"]);
    translated(&["--min-p", "0.5", "--prompt-lookup"]).fails(USER, &["and greedy, but tokens are drawn"]);
    translated(&["--sentences", "--regex", "a"]).fails(USER, &["'--sentences'", "--regex"]);
    translated(&["--prefix", &"a".repeat(13)])
        .fails(USER, &["--prefix has 13 tokens, but the text can have at most 12"]);
}

/// A model of the same recipe that knows other characters.
fn trained_on(home: &Path, line: &str) -> PathBuf {
    let data = home.join("data");
    fs::create_dir_all(&data).unwrap();
    for name in ["train.a", "train.b", "val.a", "val.b"] {
        fs::write(data.join(name), format!("{line}\n").repeat(9)).unwrap();
    }
    let out = home.join("run");
    firelight(train(&pairs().recipe, &data, &out)).succeeds();
    out
}

#[test]
fn a_draft_of_the_same_tokens_changes_no_translation_and_is_for_one_beam() {
    let [file, run] = [&pairs().data.join("train.a"), &pairs().run].map(|path| path.display().to_string());
    let translated = |more: &[&str]| firelight(translate(&[&["--file", &file, "--beams", "1"], more].concat()));
    let expected = translated(&[]).succeeds().stdout;
    let drafted = translated(&["--draft", &run]).succeeds();
    assert_eq!(drafted.stdout, expected);
    assert!(drafted.stderr.contains("beside: step "), "{}", drafted.stderr);
    assert_eq!(translated(&["--draft", &run, "--draft-tokens", "3"]).succeeds().stdout, expected);
    let alone = firelight(translate(&["--file", &file, "--draft", &run]));
    alone.fails(USER, &["guesses (--draft) are for one text", "5 beams", "(--beams 1)"]);
    translated(&["--draft", &run, "--prompt-lookup"]).fails(USER, &["'--draft <MODEL>'", "'--prompt-lookup'"]);
    translated(&["--draft", &run, "--batch", "2"]).fails(USER, &["'--draft <MODEL>'", "'--batch <N>'"]);
    translated(&["--draft-tokens", "2"]).fails(USER, &["--draft <MODEL>"]);
    translated(&["--draft", "no/such/model"]).fails(USER, &["no/such/model"]);
    translated(&["--draft", &model().dir.display().to_string()]).fails(USER, &["a model for the task \"language\""]);
    let home = Model::scratch();
    let other = trained_on(home.path(), "Ab. Ba!").display().to_string();
    let advice = "take one with the model's own tokenizer";
    translated(&["--draft", &other]).fails(USER, &["the target of the draft has another vocabulary: it has `", advice]);
}

#[test]
fn sentences_are_translated_one_by_one_and_joined() {
    let home = Model::scratch();
    let run = trained_on(home.path(), "Ab. Ba!").display().to_string();
    let translated = |text: &str, options: &[&str]| {
        let options = [&["translate", &run, "--text", text], options].concat();
        firelight(options).succeeds().stdout.trim_end_matches('\n').to_string()
    };
    let [first, second] = ["Ab.", "Ba!"].map(|sentence| translated(sentence, &[]));
    assert_eq!(translated("Ab.  Ba!", &["--sentences"]), format!("{first} {second}"));
    assert_eq!(translated("Ba!", &["--sentences"]), second);
    let long = "Ab. Ba! Ab. Ba!"; // of 16 tokens with the end, where the model reads 12
    assert_eq!(translated(long, &["--sentences"]), [&first[..], &second, &first, &second].join(" "));
    firelight(["translate", &run, "--text", long]).fails(USER, &["line 1 has 16 tokens"]);
    firelight(["translate", &run, "--text", "Ab.\nAb. Baaaaaaaaaaaa!", "--sentences"])
        .fails(USER, &["line 2, sentence 2 has 15 tokens", "1 of 2 lines"]);
    for other in [&["--alignment"][..], &["--n-best", "2"]] {
        let options = [&["translate", &run, "--text", "Ab.", "--sentences"], other].concat();
        firelight(options).fails(USER, &["'--sentences'", other[0]]);
    }
}

#[test]
fn an_alignment_names_a_source_token_for_each_of_the_translation() {
    let found = firelight(translate(&["--text", "abcd", "--alignment"])).succeeds().stdout;
    let (text, alignment) = found.trim_end_matches('\n').split_once('\t').unwrap();
    let pairs: Vec<(usize, usize)> = alignment
        .split_terminator(' ')
        .map(|pair| pair.split_once('-').map(|(s, t)| (s.parse().unwrap(), t.parse().unwrap())).unwrap())
        .collect();
    assert_eq!(pairs.len(), text.chars().count(), "a token is a character: {found}");
    assert!(pairs.iter().enumerate().all(|(t, pair)| pair.0 < 4 && pair.1 == t), "{found}");
    let json = firelight(translate(&["--text", "abcd", "--alignment", "--json"])).succeeds().stdout;
    let line: serde_json::Value = serde_json::from_str(&json).unwrap();
    let named = line["translations"][0]["alignment"].as_array().unwrap();
    assert_eq!(named.len(), pairs.len(), "{line}");
    for (pair, (source, target)) in named.iter().zip(pairs) {
        assert!(pair["source"] == source && pair["target"] == target, "{pair}");
        assert_eq!(pair["source_token"], "abcd"[source..=source], "{pair}");
        let written = text.chars().nth(target).unwrap().to_string();
        assert_eq!(pair["target_token"], written, "{pair}");
    }
}

#[test]
fn a_line_that_cannot_be_translated_fails_alone_and_the_exit_code_says_so() {
    let lines = ["--text", "abc\nb\u{e9}d\n\nd"];
    let found = firelight(translate(&lines));
    assert_eq!(found.stdout.lines().count(), 4, "{}", found.stdout);
    let alone = firelight(translate(&["--text", "abc\nd"])).succeeds().stdout;
    let (found_lines, alone): (Vec<&str>, Vec<&str>) = (found.stdout.lines().collect(), alone.lines().collect());
    assert_eq!(found_lines, [alone[0], "", "", alone[1]]);
    assert_eq!(found.stderr.lines().filter(|line| line.starts_with("error: ")).count(), 2, "{}", found.stderr);
    found.fails(USER, &["line 2: the character '\u{e9}'", "1 of 4 lines could not be translated"]);
    let json = firelight(translate(&[&lines[..], &["--json"]].concat())).stdout;
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() == 4 && lines[1]["source"] == "b\u{e9}d" && lines[1]["translations"].is_null(), "{json}");
    assert!(lines[1]["error"].as_str().unwrap().contains("'\u{e9}'") && lines[3]["error"].is_null(), "{json}");

    let home = Model::scratch();
    let file = home.path().join("long.a"); // of more lines than are read at once
    fs::write(&file, "\n".repeat(1500) + "b\u{e9}d\n").unwrap();
    let named = ["line 1501: the character '\u{e9}'", "1 of 1501 lines"];
    firelight(translate(&["--file", &file.display().to_string()])).fails(USER, &named);
}

#[test]
fn a_line_is_answered_while_the_next_one_is_not_there_yet() {
    let mut run = command(translate(&["--beams", "1"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut lines, answers) = (run.stdin.take().unwrap(), BufReader::new(run.stdout.take().unwrap()));
    let (told, answered) = mpsc::channel();
    thread::spawn(move || answers.lines().try_for_each(|answer| told.send(answer.unwrap())));
    for line in ["abc", "", "d"] {
        writeln!(lines, "{line}").unwrap();
        let Ok(answer) = answered.recv_timeout(DEADLINE) else {
            run.kill().unwrap(); // it waits for more
            panic!("{line:?} had no answer within {DEADLINE:?}");
        };
        assert!(answer.is_empty() || !line.is_empty(), "{line}: {answer}");
    }
    drop(lines);
    assert!(run.wait().unwrap().success());
}

/// The first translation of a line: its text, its score, and how many tokens the score counts.
fn scored(options: &[&str]) -> (String, f64, usize) {
    let options = [options, &["--text", "abcda", "--alignment", "--json"]].concat();
    let line: serde_json::Value = serde_json::from_str(&firelight(translate(&options)).succeeds().stdout).unwrap();
    let found = &line["translations"][0];
    // One entry for each token: start tokens, which the text does not show, are among them, and the stop token is not.
    let tokens = found["alignment"].as_array().unwrap().len();
    (found["text"].as_str().unwrap().into(), found["score"].as_f64().unwrap(), (tokens + 1).min(MAX_SEQ_LEN))
}

#[test]
fn the_length_penalty_is_the_power_that_scores_are_divided_by() {
    let of = |penalty: &str| scored(&["--beams", "1", "--length-penalty", penalty]);
    let (plain, sum, tokens) = of("0");
    let (text, mean, _) = of("1");
    assert_eq!(text, plain, "one beam is the same whatever is divided");
    let length = tokens as f64;
    assert_close(&[mean * length], &[sum], 1e-4 * sum.abs());
    let (_, product, _) = of("-1");
    assert_close(&[product], &[sum * length], 1e-4 * (sum * length).abs());
    firelight(translate(&["--text", "a", "--length-penalty", "nan"])).fails(USER, &["--length-penalty is NaN"]);
    let run = pairs().run.display().to_string();
    firelight(["evaluate", &run, "--length-penalty", "-1", "--json"]).succeeds();
}

#[test]
fn smaller_batches_change_no_translation() {
    let file = pairs().data.join("train.a").display().to_string();
    let translated = |batch: &[&str]| firelight(translate(&[&["--file", &file], batch].concat())).succeeds().stdout;
    let expected = translated(&[]);
    assert_eq!(expected.lines().count(), 60);
    for batch in ["1", "7"] {
        assert_eq!(translated(&["--batch", batch]), expected);
    }
    firelight(translate(&["--text", "a", "--batch", "0"])).fails(USER, &["'0'", "--batch"]);
}

#[test]
fn a_split_is_measured_from_its_own_files_alone() {
    let home = Model::scratch();
    for side in ["a", "b"] {
        let name = format!("test.{side}");
        fs::copy(pairs().data.join(&name), home.path().join(&name)).unwrap();
    }
    let [run, data] = [&pairs().run, home.path()].map(|path| path.display().to_string());
    let found = firelight(["evaluate", &run, "--data", &data, "--split", "test", "--json"]).succeeds().stdout;
    let line: serde_json::Value = serde_json::from_str(&found).unwrap();
    let text = firelight(["evaluate", &run, "--data", &data, "--split", "test"]).succeeds().stdout;
    let accuracy = 100.0 * line["token_accuracy"].as_f64().unwrap();
    assert!(text.contains(&format!("token accuracy  {accuracy:.2} %")), "{text}");
    let scores = ["bleu", "chrf", "exact_match", "rouge1", "rouge2", "rougeL"];
    for key in ["loss", "perplexity", "token_accuracy", "seconds"].iter().chain(&scores) {
        assert!(line[key].is_number(), "{key} is not in {line}");
    }
    assert!(line["signature"].as_str().unwrap().contains("tok:13a"), "{line}");
    firelight(["evaluate", &run, "--data", &data, "--split", "dev"])
        .fails(USER, &["no split `dev`", "dev.a and dev.b", "there is test"]);
}

#[test]
fn evaluations_report_what_translations_are_worth_and_a_repeated_command_changes_nothing() {
    let metrics = fs::read_to_string(pairs().run.join("metrics.jsonl")).unwrap();
    let evaluations = metrics.lines().filter(|line| line.contains("validation_loss"));
    let scores = ["\"bleu\"", "\"exact_match\"", "\"token_accuracy\""];
    assert_eq!(evaluations.filter(|line| scores.iter().all(|score| line.contains(score))).count(), 2);
    let weights = || fs::read(pairs().run.join("model.safetensors")).unwrap();
    let before = weights();
    let again = train(&pairs().recipe, &pairs().data, &pairs().run).into_iter().chain(["--resume".to_string()]);
    assert!(firelight(again).succeeds().stderr.contains("is finished after 6 steps"));
    assert_eq!(weights(), before);
}

#[test]
fn a_run_stopped_half_way_ends_with_the_bytes_of_one_that_was_not() {
    let home = Model::scratch();
    let out = home.path().join("run");
    let arguments = |more: &[&str]| {
        let all = train(&pairs().recipe, &pairs().data, &out).into_iter().chain(more.iter().map(ToString::to_string));
        all.collect::<Vec<_>>()
    };
    firelight(arguments(&["--steps", "3"])).succeeds();
    firelight(arguments(&["--resume"])).succeeds();
    let [found, expected] = [&out, &pairs().run].map(|run| fs::read(run.join("model.safetensors")).unwrap());
    assert!(found == expected);
}

/// The arguments of the training into a fresh folder, with more.
fn train_into(out: &Path, more: &[&str]) -> Vec<String> {
    train(&pairs().recipe, &pairs().data, out).into_iter().chain(more.iter().map(ToString::to_string)).collect()
}

#[test]
fn what_does_not_fit_together_is_reported_before_a_folder_is_made() {
    let home = Model::scratch();
    let out = home.path().join("run");
    for (change, texts) in [
        ("data.translated=0", &["training.monitor", "bleu"][..]),
        ("data.joint=false", &["tying = \"all\" needs data.joint = true"]),
        ("model.embedding_projection.d_embedding=0", &["embedding_projection.d_embedding = 0 must be at least 1"]),
        ("data.source=fr", &["train.fr and train.b", "there is no such file in it"]),
    ] {
        firelight(train_into(&out, &["--set", change])).fails(USER, texts);
        assert!(!out.exists(), "{change}");
    }
}

#[test]
fn a_resumed_run_names_the_key_that_changed_whatever_else_it_would_change() {
    let changed = train_into(&pairs().run, &["--resume", "--set", "model.max_seq_len=5"]);
    firelight(changed).fails(USER, &["model.max_seq_len was 12 and is 5"]);
}

#[test]
fn steps_are_the_last_word_against_epochs_and_recipes_have_names() {
    let home = Model::scratch();
    let out = home.path().join("run");
    let epochs = ["--dry-run", "--set", "training.epochs=2"];
    let said = firelight(train_into(&out, &epochs)).succeeds().stdout;
    assert!(said.contains("in 16 steps"), "60 pairs in batches of 8, twice: {said}");
    let said = firelight(train_into(&out, &[&epochs[..], &["--steps", "5"]].concat())).succeeds().stdout;
    assert!(said.contains("in 5 steps"), "{said}");
    assert!(firelight(["train", "dates", "--dry-run"]).succeeds().stdout.starts_with("523008 parameters"));
    for name in ["copy", "reverse", "addition"] {
        firelight(["train", name, "--dry-run"]).succeeds();
    }
    firelight(["train", "--source", "a", "--target", "b"]).fails(USER, &["name a recipe of the task seq2seq"]);
}

#[test]
fn files_that_part_are_reported_with_the_place() {
    let home = Model::scratch();
    let [source, target] = ["s.txt", "t.txt"].map(|name| home.path().join(name));
    fs::write(&source, "a\nb\na\n").unwrap();
    fs::write(&target, "a\nb\n").unwrap();
    let recipe = pairs().recipe.display().to_string();
    let [s, t] = [&source, &target].map(|path| path.display().to_string());
    firelight(["train", &recipe, "--source", &s, "--target", &t, "--dry-run"])
        .fails(USER, &["s.txt", "3 lines", "t.txt", "2", "line 3"]);
    fs::write(&target, b"a\nb\xff\na\n").unwrap();
    firelight(["train", &recipe, "--source", &s, "--target", &t, "--dry-run"]).fails(USER, &["t.txt", "line 2"]);
    fs::write(&target, "a\nb\na\n").unwrap();
    firelight(["train", &recipe, "--source", &s, "--target", &t, "--dry-run"]).succeeds();
}

#[test]
fn a_line_that_is_too_long_is_named_and_cut_only_if_asked() {
    firelight(translate(&["--text", "a\nabababababababab"])).fails(USER, &["line 2 has 17 tokens", "reads 12"]);
    firelight(translate(&["--text", "a\nabababababababab", "--truncate"])).succeeds();
}

#[test]
fn models_of_another_task_are_refused_by_name() {
    let language = model().dir.display().to_string();
    firelight(["translate", &language, "--text", "a"]).fails(USER, &["`language`", "firelight generate"]);
    let run = pairs().run.display().to_string();
    firelight(["generate", &run, "--prompt", "a"]).fails(USER, &["`seq2seq`", "firelight translate"]);
    firelight(["embed", &run, "--text", "a"])
        .fails(USER, &["`seq2seq`", "`firelight embed` does not", "firelight translate"]);
}

#[test]
fn a_self_check_of_an_encoder_decoder_holds() {
    let home = Model::scratch();
    let out = home.path().join("run");
    let arguments = train(&pairs().recipe, &pairs().data, &out);
    let said =
        firelight(arguments.into_iter().chain(["--self-check", "--steps", "1"].map(str::to_string))).succeeds().stderr;
    assert_eq!(said.matches(": ok (").count(), 4, "{said}");
}
