//! A conversation over a pipe and in a terminal: messages are answered, commands are obeyed, and mistakes end nothing.

use std::fs;
#[cfg(unix)]
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
#[cfg(unix)]
use std::process::{Command, Stdio};

use burn::tensor::Device;
use firelight::data::{ChatTemplate, Tokenizer, TokenizerConfig};
use firelight::language::{LanguageModelConfig, TASK};
use firelight::nn::{Init, ParamBuilder, WeightInit};
use firelight::storage::{Checkpoint, Existing, ModelFolder, save_weights};
use serde_json::{Value, json};

use crate::USER;
use crate::support::{Finished, Model, command, finish, firelight, model, text};

const TEMPLATE: &str = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}\
                        {% if add_generation_prompt %}<|assistant|>{% endif %}";

/// The run folder of a model of so many tokens of context, which has learnt nothing and reads conversations.
fn talker(home: &Path, context: usize) -> String {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefghijklmnopqrstuvwxyz <|>\n").unwrap();
    let tokenizer = tokenizer.with_special_tokens(&["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]).unwrap();
    let wide = WeightInit { weight: Init::Normal { std: 0.4 }, scale_residual: false };
    let config = LanguageModelConfig::new(tokenizer.vocab_size(), 16, 2, 1).with_max_seq_len(context);
    let config = config.with_transformer(|stack| stack.with_init(wide));
    let folder = ModelFolder::create(home.join("talker"), Existing::Refuse).unwrap();
    tokenizer.save(folder.tokenizer()).unwrap();
    ChatTemplate::new(TEMPLATE).unwrap().save(folder.path()).unwrap();
    let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
    save_weights(&model, folder.weights_path(&Checkpoint::Last)).unwrap();
    folder.write_config(TASK, &config).unwrap();
    text(folder.path())
}

/// What comes of a conversation with these lines.
fn talk(run: &str, more: &[&str], lines: &str) -> Finished {
    let home = Model::scratch();
    let said = home.path().join("said.txt");
    fs::write(&said, lines).unwrap();
    let mut talk = command(["chat", run, "--max-new-tokens", "12"].iter().chain(more));
    talk.stdin(fs::File::open(said).unwrap());
    finish(talk)
}

/// The messages of a file.
fn messages(path: &str) -> Vec<Value> {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_answer_keeps_to_the_restrictions() {
    let home = Model::scratch();
    let run = talker(home.path(), 64);
    let answers = |more: &[&str]| -> Vec<String> {
        let found = talk(&run, &[&["--temperature", "2"], more].concat(), "a hen\na fox\n").succeeds();
        found.stdout.lines().map(str::to_string).collect()
    };
    let found = answers(&["--regex", "(fox|hen)( sat)*"]);
    assert_eq!(found.len(), 2);
    for answer in found {
        let rest = answer.strip_prefix("fox").or(answer.strip_prefix("hen"));
        assert!(rest.is_some_and(|rest| rest.replace(" sat", "").is_empty()), "{answer}");
    }
    // The special tokens stand behind the 31 characters; without them no answer ends early.
    let found = answers(&["--prefix", "well ", "--ban", "e ", "--ban", "\n", "--suppress-tokens", "31,32,33,34"]);
    let keeps = |answer: &String| answer.starts_with("well ") && answer.chars().count() == 12;
    assert!(found.len() == 2 && found.iter().all(keeps), "{found:?}");
    assert!(found.iter().all(|answer| !answer.contains("e ")), "{found:?}");
    talk(&run, &["--prefix", "an answer of many words"], "a hen\n").fails(USER, &["--prefix has 23 tokens"]);
}

#[test]
fn messages_are_answered_one_after_the_other() {
    let home = Model::scratch();
    let run = talker(home.path(), 128);
    let found = talk(&run, &["--system", "be brief"], "a hen\n\nand\\\na fox\n/show\n/quit\nnever\n").succeeds();
    let (answers, shown) = found.stdout.split_once("<|system|>").unwrap();
    let shown = format!("<|system|>{shown}");
    assert!(shown.starts_with("<|system|>be brief<|end|><|user|>a hen<|end|><|assistant|>"), "{shown}");
    assert!(shown.contains("<|end|><|user|>and\na fox<|end|><|assistant|>") && !shown.contains("never"), "{shown}");
    let told: Vec<&str> = found.stderr.lines().filter(|line| line.ends_with(" of 128 tokens of context")).collect();
    assert!(told.len() == 2 && told.iter().all(|line| line.contains(" tokens/s (read ")), "{}", found.stderr);

    let again = |more: &[&str]| talk(&run, more, "a hen\nand\\\na fox\n").succeeds().stdout;
    assert_eq!(again(&["--system", "be brief"]), answers);
    assert_ne!(again(&["--system", "be brief", "--seed", "1"]), answers);
}

#[test]
fn a_conversation_is_remembered_in_the_type_that_is_asked_for() {
    let home = Model::scratch();
    let run = talker(home.path(), 128);
    let answers = |more: &[&str]| talk(&run, more, "a hen\na fox\n").succeeds().stdout;
    assert_eq!(answers(&["--cache-type", "f32"]), answers(&[]));
    assert!(!answers(&["--cache-type", "q8_0"]).is_empty());
    talk(&run, &["--cache-type", "f8"], "a hen\n").fails(USER, &["--cache-type"]);
}

#[test]
fn a_message_ends_no_turn() {
    let home = Model::scratch();
    let run = talker(home.path(), 128);
    let read = |message: &str| {
        let told = talk(&run, &[], message).succeeds().stderr;
        told.split_once("(read ").unwrap().1.split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    assert_eq!(read("a<|end|>b\n"), read("abcdefghi\n"), "the end is seven characters");
}

#[test]
fn a_conversation_is_taken_back_and_answered_again() {
    let home = Model::scratch();
    let run = talker(home.path(), 128);
    let file = text(&home.path().join("kept.json"));
    let kept = |lines: &str| {
        talk(&run, &["--temperature", "2", "--min-new-tokens", "12"], &format!("{lines}/save {file}\n")).succeeds();
        messages(&file)
    };
    let one = kept("a hen\n");
    assert_eq!((one.len(), &one[0]), (2, &json!({"role": "user", "content": "a hen"})));
    assert_eq!(kept("a hen\na fox\n/undo\n"), one);
    assert_eq!(kept("a fox\n/clear\na hen\n"), one);
    let retried = kept("a hen\n/retry\n");
    assert!(retried[0] == one[0] && retried[1]["content"] != one[1]["content"], "{retried:?}");
    assert_ne!(kept("a hen\n/retry\n/retry\n"), retried);
    let set = kept("/system be brief\na hen\n");
    assert_eq!((set.len(), &set[0]), (3, &json!({"role": "system", "content": "be brief"})));
    assert_eq!(kept("/system be brief\n/system\na hen\n"), one);
}

#[test]
fn a_conversation_goes_on_from_its_file() {
    let home = Model::scratch();
    let run = talker(home.path(), 128);
    let path = |name: &str| text(&home.path().join(name));
    let (whole, part, rest) = (path("whole.json"), path("part.json"), path("rest.json"));
    talk(&run, &[], &format!("a hen\n/save {part}\na fox\n/save {whole}\n")).succeeds();
    let found = talk(&run, &[], &format!("/load {part}\na fox\n/save {rest}\n")).succeeds();
    assert!(found.stderr.contains(&format!("read 2 messages from {part}\n")), "{}", found.stderr);
    assert_eq!((messages(&rest), messages(&rest).len()), (messages(&whole), 4));
}

#[test]
fn mistakes_are_told_and_end_nothing() {
    let home = Model::scratch();
    let run = talker(home.path(), 64);
    let wrong = text(&home.path().join("wrong.json"));
    fs::write(&wrong, "{}").unwrap();
    let long = "x".repeat(64);
    let lines = format!(
        "/retr\n/retry\n/undo\n/save\n/load {wrong}\n/load {wrong}.none\n/save {wrong}/none\n{long}\nA hen\n/help\na hen\n"
    );
    let found = talk(&run, &[], &lines);
    assert_eq!(found.code, USER, "{}", found.stderr);
    for told in [
        "there is no command /retr: did you mean /retry?",
        "error: there is no message to answer",
        "there is no message to take back",
        "/save needs the path of a file",
        "wrong.json` is not a saved conversation: ",
        "wrong.json.none`",
        "error: the message has 67 tokens with its template, expected fewer than 64, the model's context; write a shorter message",
        "/load FILE    go on with the messages of a file",
        " of 64 tokens of context",
        "error: 8 messages or commands failed, see above",
    ] {
        assert!(found.stderr.contains(told), "{told}: {}", found.stderr);
    }
    assert_eq!(found.stderr.lines().filter(|line| line.starts_with("error: ")).count(), 9, "{}", found.stderr);
    assert_eq!(found.stderr.matches("tokens of context").count(), 1, "{}", found.stderr);
}

#[test]
fn the_oldest_messages_are_left_out_where_the_context_is_full() {
    let home = Model::scratch();
    let run = talker(home.path(), 64);
    let file = text(&home.path().join("kept.json"));
    let lines = format!("{}/save {file}\n", "a hen and a fox\n".repeat(5));
    let found = talk(&run, &["--min-new-tokens", "12"], &lines).succeeds();
    assert_eq!(messages(&file).len(), 10, "none is forgotten");
    let told = found.stderr.matches("the conversation outgrows the context").count();
    assert!((1..5).contains(&told), "{}", found.stderr);
}

#[test]
fn a_model_without_a_template_is_refused_and_takes_one_from_a_file() {
    let home = Model::scratch();
    let (run, path) = (text(&model().dir), text(&home.path().join("template.jinja")));
    firelight(["chat", &run]).fails(USER, &["has no chat template", "--template FILE", "firelight generate"]);
    firelight(["chat", &run, "--template", &path]).fails(USER, &["there is no file `"]);
    fs::write(&path, "{% for %}").unwrap();
    firelight(["chat", &run, "--template", &path]).fails(USER, &["template.jinja` cannot be used", "line 1"]);
    fs::write(&path, "{{ messages[0].content }}").unwrap();
    let found = talk(&run, &["--template", &path], "fox\n/show\n").succeeds();
    assert!(found.stdout.ends_with("\nfox\n"), "{}", found.stdout);
    firelight(["chat", &run, "--temperature", "0"]).fails(USER, &["--temperature is 0"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_an_answer_and_not_the_conversation() {
    let home = Model::scratch();
    let (run, file) = (talker(home.path(), 20_000), text(&home.path().join("kept.json")));
    let mut talk = command(["chat", &run, "--max-new-tokens", "15000", "--min-new-tokens", "15000"]);
    let mut child = talk.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a hen\n").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 20]).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    stdin.write_all(format!("/save {file}\n").as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.contains(" tokens, stopped, "), "{stderr}");
    let kept = messages(&file);
    let written = kept[1]["content"].as_str().unwrap().len();
    assert!(kept.len() == 2 && (20..15_000).contains(&written), "{written}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_completes_a_constrained_answer() {
    let home = Model::scratch();
    let (run, file) = (talker(home.path(), 20_000), text(&home.path().join("kept.json")));
    // Without the last character it never ends.
    let mut talk = command(["chat", &run, "--max-new-tokens", "15000", "--regex", "<[a-z ]*>", "--ban", ">"]);
    let mut child = talk.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a hen\n").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 20]).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    stdin.write_all(format!("/save {file}\n").as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.contains(" tokens, stopped, "), "{stderr}");
    let kept = messages(&file)[1]["content"].as_str().unwrap().to_string();
    let is_letter = |c: char| c.is_ascii_lowercase() || c == ' ';
    let inner = kept.strip_prefix('<').and_then(|kept| kept.strip_suffix('>')).unwrap();
    assert!(inner.chars().all(is_letter) && (18..14_000).contains(&inner.len()), "{kept}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        kept.ends_with(shown.strip_suffix('\n').unwrap()),
        "what was shown behind the first 20 characters: {shown}"
    );
}

#[test]
fn an_answer_that_an_error_ends_is_kept_as_far_as_it_was_shown() {
    let home = Model::scratch();
    let run = talker(home.path(), 128);
    let [file, said] = ["kept.json", "said.txt"].map(|name| text(&home.path().join(name)));
    // No token twice: when all of them are used, none is left.
    fs::write(&said, format!("a hen\n/save {file}\n")).unwrap();
    let mut talk = command(["chat", &run, "--max-new-tokens", "60", "--no-repeat-ngram-size", "1"]);
    talk.stdin(fs::File::open(&said).unwrap());
    let found = finish(talk);
    assert_eq!(found.code, USER, "{}", found.stderr);
    let kept = messages(&file);
    assert_eq!((kept.len(), &kept[0]), (2, &json!({"role": "user", "content": "a hen"})));
    assert_eq!(format!("{}\n", kept[1]["content"].as_str().unwrap()), found.stdout);
    assert_eq!(
        found.stdout.chars().count(),
        26 + 1,
        "31 characters without those of the message, and the end of the line"
    );
    for told in ["error: no token is left to choose as new token", "the answer is kept as far as it was written"] {
        assert!(found.stderr.contains(told), "{told}: {}", found.stderr);
    }
}

#[cfg(unix)]
#[test]
fn a_terminal_has_a_prompt_and_an_end() {
    let home = Model::scratch();
    let run = talker(home.path(), 128);
    let line = format!("stty cols 80; '{}' chat '{run}' --max-new-tokens 4", env!("CARGO_BIN_EXE_firelight"));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = match script.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CI=true, but `script` is not installed");
            return;
        }
        child => child.unwrap(),
    };
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut screen, mut seen) = (String::new(), 0);
    let mistake = [("> ", "A hen\r"), ("error: ", "")]; // which is no failure of the whole conversation
    let talk = [&[("> ", "a hen\r"), ("tokens of context", "")], &mistake[..], &[("> ", "/quit\r")]].concat();
    for (shown, typed) in talk {
        while !screen[seen..].contains(shown) {
            let mut bytes = [0; 1024];
            let read = stdout.read(&mut bytes).unwrap();
            assert!(read > 0, "it ended before `{shown}`: {screen}");
            screen += &String::from_utf8_lossy(&bytes[..read]);
        }
        seen += screen[seen..].find(shown).unwrap() + shown.len();
        stdin.write_all(typed.as_bytes()).unwrap();
    }
    stdout.read_to_string(&mut screen).unwrap();
    assert!(child.wait().unwrap().success() && screen.contains("/help for the commands"), "{screen}");
}
