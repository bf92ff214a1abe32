//! Whether the crates of the tasks repeat themselves or one another: what two tasks do alike belongs into a crate that both stand on.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::workspace_root;

/// The crates of the tasks.
const CRATES: [&str; 4] = ["firelight-language", "firelight-seq2seq", "firelight-classification", "firelight-vision"];

/// The most lines of code in a row that two places may have in common.
const MOST: usize = 20;

/// The pairs of places from which on more lines are the same, whatever their indentation.
fn repeated(files: &[(String, String)]) -> Vec<String> {
    let (mut seen, mut found) = (HashMap::new(), Vec::new());
    for (name, text) in files {
        for block in code_of(text).windows(MOST + 1) {
            let lines: Vec<&str> = block.iter().map(|(_, line)| *line).collect();
            let place = format!("{name}:{}", block[0].0);
            if let Some(first) = seen.insert(lines, place.clone()) {
                found.push(format!("{first} and {place}"));
            }
        }
    }
    found
}

/// The lines that are neither empty nor comments, with their numbers.
fn code_of(text: &str) -> Vec<(usize, &str)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with("//")).collect()
}

/// The Rust files below a folder with their texts.
fn files_below(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    let texts = |path: PathBuf| match path.is_dir() {
        true => files_below(&path),
        false if path.extension().is_none_or(|ending| ending != "rs") => Vec::new(),
        false => vec![(path.display().to_string(), fs::read_to_string(&path).expect("a text"))],
    };
    entries.flat_map(|entry| texts(entry.expect("an entry").path())).collect()
}

#[test]
fn no_task_repeats_another_one() {
    let sources = |name: &str| files_below(&workspace_root().join("crates").join(name).join("src"));
    let found = repeated(&CRATES.map(sources).concat());
    assert!(found.is_empty(), "more than {MOST} lines of code are the same: {found:#?}");
}

#[test]
fn a_block_is_found_wherever_it_stands_and_however_it_is_indented() {
    let block = |lines: usize, indentation: &str| -> String {
        (0..lines).map(|i| format!("{indentation}call_{i}();\n\n// {indentation}\n")).collect()
    };
    let files = |lines: usize| {
        let other = format!("fn b() {{\n{}}}\n", block(lines, "    "));
        [("a.rs".to_string(), block(lines, "")), ("b.rs".to_string(), other)]
    };
    assert_eq!(repeated(&files(MOST)), [] as [&str; 0]);
    assert_eq!(repeated(&files(MOST + 1)), ["a.rs:1 and b.rs:2"]);
}
