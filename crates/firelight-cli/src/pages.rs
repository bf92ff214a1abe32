//! The commands of the documentation: every `firelight` line of its `sh` blocks must be one that the program takes.

use std::path::{Path, PathBuf};
use std::{fs, iter, mem};

use clap::{CommandFactory, FromArgMatches};

use crate::{Cli, parser};

/// The words of the commands of a script, as a shell splits them: at spaces, pipes, redirections and ends of lines that are not quoted.
#[derive(Default)]
struct Words {
    commands: Vec<Vec<String>>,
    command: Vec<String>,
    word: Option<String>,
    /// The next word is a file that a redirection names, and none of the command's.
    is_redirected: bool,
}

impl Words {
    fn of(script: &str) -> Vec<Vec<String>> {
        let mut words = Self::default();
        let mut rest = script;
        while let Some(character) = rest.chars().next() {
            rest = words.read(character, &rest[character.len_utf8()..]);
        }
        words.end_command();
        words.commands
    }

    /// Reads a character, or what it begins, and returns what stands behind.
    fn read<'a>(&mut self, character: char, rest: &'a str) -> &'a str {
        match character {
            '\'' | '"' => return self.quoted(character, rest),
            '#' if self.word.is_none() => return &rest[rest.find('\n').unwrap_or(rest.len())..],
            '$' if rest.starts_with('\'') => {}
            '\n' | ';' | '|' | '&' => self.end_command(),
            '<' | '>' => {
                self.end_word();
                self.is_redirected = true;
            }
            space if space.is_whitespace() => self.end_word(),
            other => self.word.get_or_insert_default().push(other),
        }
        rest
    }

    fn quoted<'a>(&mut self, quote: char, rest: &'a str) -> &'a str {
        let (inside, behind) = rest.split_once(quote).unwrap_or_else(|| panic!("{quote} is not closed: {rest}"));
        self.word.get_or_insert_default().push_str(inside);
        behind
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if !mem::take(&mut self.is_redirected) {
            self.command.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.commands.push(mem::take(&mut self.command));
    }
}

/// Lines that go on joined, variables of the script replaced by their values, and what a command in `$(...)` prints by one word.
fn expanded(block: &str) -> String {
    let mut script = block.replace("\\\n", " ");
    for (name, value) in variables(&script) {
        script = script.replace(&format!("${name}"), &value);
    }
    while let Some((before, inside)) = script.split_once("$(") {
        let behind = inside.split_once(')').unwrap_or_else(|| panic!("$( is not closed: {inside}")).1;
        script = format!("{before}printed{behind}");
    }
    script
}

/// What lines such as `name="value"` name, and the first value of loops such as `for name in a b; do`.
fn variables(script: &str) -> Vec<(String, String)> {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let assigned = script.match_indices("=\"").filter_map(|(place, mark)| {
        let name = script[..place].rsplit('\n').next()?;
        let value = script[place + mark.len()..].split('"').next()?;
        is_name(name).then(|| (name.to_string(), value.replace('\n', " ")))
    });
    let looped = script.lines().filter_map(|line| {
        let (name, values) = line.trim().strip_prefix("for ")?.split_once(" in ")?;
        Some((name.to_string(), values.split([' ', ';']).next()?.to_string()))
    });
    assigned.chain(looped).collect()
}

/// The arguments of a command that calls the program: by itself, behind a launcher or a variable of the environment, or by
/// `cargo run`, whose default package it is.
fn arguments(words: &[String]) -> Option<&[String]> {
    let is_program = |word: &String| word == "firelight" || word.ends_with("/firelight");
    if let Some(place) = words.iter().position(is_program) {
        return Some(&words[place + 1..]);
    }
    let is_run = words.len() > 1 && words[0] == "cargo" && words[1] == "run";
    if !is_run || words.iter().any(|word| word == "-p") {
        return None;
    }
    let behind = words.iter().position(|word| word == "--").map(|place| &words[place + 1..]);
    Some(behind.unwrap_or_default())
}

/// The arguments of each call of the program in the `sh` blocks of a page.
fn calls(page: &str) -> Vec<Vec<String>> {
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let commands = blocks.flat_map(|block| Words::of(&expanded(block)));
    commands.filter_map(|words| arguments(&words).map(<[String]>::to_vec)).collect()
}

/// The Markdown files below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { pages(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// What the program answers to arguments that it does not take.
fn refusal(arguments: &[String]) -> Option<String> {
    let words = iter::once("firelight").chain(arguments.iter().map(String::as_str));
    let matches = parser(Cli::command()).try_get_matches_from(words);
    let error = matches.and_then(|matches| Cli::from_arg_matches(&matches)).err()?;
    error.use_stderr().then(|| error.to_string())
}

#[test]
fn every_command_of_the_pages_is_one_that_the_program_takes() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut count, mut refused) = (0, Vec::new());
    for page in iter::once(home.join("README.md")).chain(pages(&home.join("docs"))) {
        let calls = calls(&fs::read_to_string(&page).unwrap());
        count += calls.iter().filter(|arguments| !arguments.is_empty()).count();
        let answers = calls.iter().filter_map(|call| Some(format!("firelight {}: {}", call.join(" "), refusal(call)?)));
        refused.extend(answers.map(|answer| format!("{}: {answer}", page.display())));
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(count >= 200, "{count} commands were found");
}

#[test]
fn every_command_of_the_pictures_is_one_that_the_program_takes() {
    let script = include_str!("../../../docs/pictures/make.sh").replace("\"$firelight\"", "firelight");
    let begin = script.find("\nfirelight ").unwrap();
    let commands = Words::of(&expanded(&script[begin..]));
    let calls: Vec<&[String]> = commands.iter().filter_map(|words| arguments(words)).collect();
    let refused: Vec<String> = calls.iter().filter_map(|call| refusal(call)).collect();
    assert!(refused.is_empty() && calls.len() > 15, "{}: {}", calls.len(), refused.join("\n"));
}

#[test]
fn calls_are_split_as_a_shell_splits_them() {
    let page = "```sh\n\
        size=\"--set a=1\n    --set b=2\"\n\
        for n in 3 4; do firelight train $size --steps $n --out \"x y\"; done   # it's a loop\n\
        cat f | BIG=1 firelight classify r --text $'a\\tb' > out.txt && firelight report r \\\n    --json\n\
        mpirun -n 2 target/release/firelight score r --text \"$(cat \"f g\")\"\n\
        cargo run --release -- devices\ncargo run -p other -- x\n```\n\
        ```text\nfirelight nothing\n```";
    let expected: [&[&str]; 5] = [
        &["train", "--set", "a=1", "--set", "b=2", "--steps", "3", "--out", "x y"],
        &["classify", "r", "--text", "a\\tb"],
        &["report", "r", "--json"],
        &["score", "r", "--text", "printed"],
        &["devices"],
    ];
    assert_eq!(calls(page), expected);
}

#[test]
fn a_command_that_the_program_does_not_take_is_refused() {
    let words = |line: &str| -> Vec<String> { line.split(' ').map(String::from).collect() };
    assert!(refusal(&words("train --sed 3")).is_some_and(|answer| answer.contains("--sed")));
    assert_eq!(refusal(&words("train --seed 3")), None);
    assert_eq!(refusal(&words("train --help")), None);
}
