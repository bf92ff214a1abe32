//! Texts with pairs of a mention and what it refers to, in columns.

use std::ops::Range;
use std::path::Path;

use firelight_data::read_lines;
use firelight_storage::{InputError, TaskError, shortened};

use super::{AnnotatedText, Link};
use crate::embeddings::places_of;

/// What the links of a mention are called.
const RELATION: &str = "coreference";

/// The texts of a file with what their mentions refer to. A line has columns with tabs between them: the text, then two for each pair, the mention
/// and what it refers to. Either is written as in the text, if it stands there once as a whole word, or as its characters `FROM:TO`, counted
/// from 0, without the last one. Empty lines are left out.
///
/// # Errors
/// If the file cannot be read, holds no pair, a line has another number of columns, or a column is no single stretch of the text.
///
/// ```
/// use firelight_inspect::read_pairs;
///
/// let file = tempfile::NamedTempFile::new()?;
/// std::fs::write(file.path(), "The hen ran, for she saw a hen.\tshe\t0:7\n")?;
/// let found = &read_pairs(file.path())?[0];
/// assert_eq!(found.words.iter().map(|word| &found.text[word.clone()]).collect::<Vec<_>>(), ["she", "The hen"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_pairs(path: &Path) -> Result<Vec<AnnotatedText>, TaskError> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(read_lines(path)?).filter(|(_, text)| !text.trim().is_empty()) {
        let (words, links) = linked(&text).map_err(|problem| InputError::at_line(path, line, problem))?;
        let text = text.split('\t').next().unwrap_or_default().to_string();
        found.push(AnnotatedText { path: path.into(), line, text, words, links });
    }
    match found.is_empty() {
        true => {
            Err(InputError::in_file(path, "holds no pair: expected a text, a mention and what it refers to").into())
        }
        false => Ok(found),
    }
}

/// The stretches of a line and the links between them; an error is what is wrong with it.
fn linked(line: &str) -> Result<(Vec<Range<usize>>, Vec<Link>), String> {
    let columns: Vec<&str> = line.split('\t').collect();
    let (text, cells) = (columns[0], &columns[1..]);
    if cells.is_empty() || cells.len() % 2 == 1 {
        let count = columns.len();
        return Err(format!(
            "has {count} columns separated by tabs: expected the text and two for each pair, the mention and what it refers to"
        ));
    }
    let words: Vec<Range<usize>> = cells.iter().map(|cell| stretch(text, cell)).collect::<Result<_, _>>()?;
    let link = |pair: usize| Link { relation: RELATION.into(), from: 2 * pair, to: 2 * pair + 1 };
    match words.chunks(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("has \"{}\" as a mention of itself", shortened(&text[pair[0].clone()]))),
        None => Ok((words.clone(), (0..words.len() / 2).map(link).collect())),
    }
}

/// The bytes of a text that a column means.
fn stretch(text: &str, cell: &str) -> Result<Range<usize>, String> {
    if let Some([from, to]) = characters(cell) {
        let count = text.chars().count();
        let expected = || format!("has the characters {from}:{to}: expected a part of the {count} of the text");
        return (from < to && to <= count).then(|| byte(text, from)..byte(text, to)).ok_or_else(expected);
    }
    let name = shortened(cell);
    match places_of(cell, text).as_slice() {
        [place] => Ok(place.clone()),
        [] => Err(format!("has the mention \"{name}\", which is no whole word of the text: write it as the text does")),
        several => {
            let count = |byte: usize| text[..byte].chars().count();
            let places = several.iter().map(|place| format!("{}:{}", count(place.start), count(place.end)));
            let places = places.collect::<Vec<_>>().join(" or ");
            Err(format!("has the mention \"{name}\", which stands {} times in the text: give {places}", several.len()))
        }
    }
}

/// Two numbers: `4:7`.
fn characters(cell: &str) -> Option<[usize; 2]> {
    let (from, to) = cell.split_once(':')?;
    Some([from.trim().parse().ok()?, to.trim().parse().ok()?])
}

/// Where a character begins, or the text ends.
fn byte(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(byte, _)| byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentions_are_words_or_characters() {
        let (words, links) = linked("Zoë ran, she did\tshe\tZoë\t13:16\t0:3").unwrap();
        assert_eq!(words, [10..13, 0..4, 14..17, 0..4]);
        assert_eq!((links.len(), links[1].from, links[1].to, links[1].relation.as_str()), (2, 2, 3, "coreference"));
    }

    #[test]
    fn a_line_that_does_not_fit_says_what_was_expected() {
        let told = |line: &str, expected: &str| {
            let problem = linked(line).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        };
        told("a text", "has 1 columns separated by tabs: expected the text and two for each pair");
        told("a text\ta", "has 2 columns");
        told("a text\ttex\ta", "\"tex\", which is no whole word of the text");
        told("a b a\ta\tb", "\"a\", which stands 2 times in the text: give 0:1 or 4:5");
        told("a text\t2:9\ta", "has the characters 2:9: expected a part of the 6 of the text");
        told("a text\t3:3\ta", "has the characters 3:3");
        told("a text\ttext\t2:6", "has \"text\" as a mention of itself");
    }

    #[test]
    fn files_name_the_line() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("pairs.tsv");
        let problem = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_pairs(&path).unwrap_err().to_string()
        };
        assert!(problem("a b\ta\tb\n\nb\n").starts_with("line 3 of `"));
        assert!(problem("\n").contains("holds no pair"));
    }
}
