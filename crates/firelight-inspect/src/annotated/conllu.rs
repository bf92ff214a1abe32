//! Sentences with their syntax, in the ten columns of CoNLL-U.
//!
//! Source: <https://universaldependencies.org/format.html>. Of its columns ID, FORM, HEAD, DEPREL and of MISC `SpaceAfter=No` are read; comments and
//! empty nodes are left out.

use std::ops::Range;
use std::path::Path;

use firelight_data::read_lines;
use firelight_storage::{InputError, TaskError, shortened};

use super::{AnnotatedText, Link};

/// Columns of a row, and the places of those that are read.
const COLUMNS: usize = 10;
const ID: usize = 0;
const FORM: usize = 1;
const HEAD: usize = 6;
const RELATION: usize = 7;
const MISC: usize = 9;

/// What is no relation between words that a head could be for.
const PUNCTUATION: &str = "punct";

/// The sentences of a file in CoNLL-U, each with a link from every word to its syntactic head. The relation is that of all languages: `nsubj` for
/// `nsubj:pass`. Roots and punctuation have no link. The words of a multiword token such as `3-4` have its place in the text.
///
/// # Errors
/// If the file cannot be read, holds no sentence, or a row has not ten columns, IDs out of their order, or a HEAD that is no other word of the
/// sentence.
///
/// ```
/// use firelight_inspect::read_conllu;
///
/// let file = tempfile::NamedTempFile::new()?;
/// let rows = "1\tBirds\tbird\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tsing\tsing\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No\n";
/// std::fs::write(file.path(), format!("{rows}3\t.\t.\tPUNCT\t_\t_\t2\tpunct\t_\t_\n"))?;
/// let sentence = &read_conllu(file.path())?[0];
/// assert_eq!((sentence.text.as_str(), &sentence.words[1]), ("Birds sing.", &(6..10)));
/// assert_eq!((sentence.links.len(), sentence.links[0].relation.as_str()), (1, "nsubj"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_conllu(path: &Path) -> Result<Vec<AnnotatedText>, TaskError> {
    let (mut found, mut sentence) = (Vec::new(), Sentence::default());
    for (line, text) in (1..).zip(read_lines(path)?) {
        match text.trim() {
            "" => found.extend(std::mem::take(&mut sentence).end(path)?),
            comment if comment.starts_with('#') => {}
            _ => sentence.push(&text, line).map_err(|problem| InputError::at_line(path, line, problem))?,
        }
    }
    found.extend(sentence.end(path)?);
    match found.is_empty() {
        true => Err(InputError::in_file(path, "holds no sentence: expected rows of CoNLL-U").into()),
        false => Ok(found),
    }
}

/// What was read of a sentence.
#[derive(Default)]
struct Sentence {
    /// Where it begins.
    line: usize,
    text: String,
    /// Whether the next word follows without a space.
    is_joined: bool,
    words: Vec<Range<usize>>,
    /// Of each word: its line, its HEAD and its relation.
    heads: Vec<(usize, usize, String)>,
    /// The last word of a multiword token, and where the token stands.
    together: Option<(usize, Range<usize>)>,
}

impl Sentence {
    /// Reads a row; an error is what is wrong with it.
    fn push(&mut self, row: &str, line: usize) -> Result<(), String> {
        let columns: Vec<&str> = row.split('\t').collect();
        if columns.len() != COLUMNS {
            return Err(format!("has {} columns separated by tabs: expected the {COLUMNS} of CoNLL-U", columns.len()));
        }
        if self.text.is_empty() {
            self.line = line;
        }
        let id = columns[ID];
        if columns[FORM].is_empty() {
            return Err("has an empty FORM: expected a word".into());
        }
        match id.split_once('-') {
            Some((first, last)) => self.begin_together(id, [first, last], &columns),
            None if is_empty_node(id) => Ok(()),
            None => self.push_word(line, &columns),
        }
    }

    fn begin_together(&mut self, id: &str, ends: [&str; 2], columns: &[&str]) -> Result<(), String> {
        let (next, [first, last]) = (self.words.len() + 1, ends.map(|end| end.parse::<usize>().ok()));
        match (first, last) {
            (Some(first), Some(last)) if first == next && last > first => {
                self.together = Some((last, self.place(columns)));
                Ok(())
            }
            _ => Err(format!("has the ID `{}`: expected `{next}`, or words from {next} on", shortened(id))),
        }
    }

    fn push_word(&mut self, line: usize, columns: &[&str]) -> Result<(), String> {
        let (id, next) = (columns[ID], self.words.len() + 1);
        if id.parse::<usize>().ok() != Some(next) {
            return Err(format!("has the ID `{}`: expected `{next}`, for words are numbered from 1", shortened(id)));
        }
        let Ok(head) = columns[HEAD].parse::<usize>() else {
            let head = shortened(columns[HEAD]);
            return Err(format!("has the HEAD `{head}`: expected the ID of a word, or 0 for the root"));
        };
        let place = match &self.together {
            Some((last, place)) if next <= *last => place.clone(),
            _ => self.place(columns),
        };
        self.words.push(place);
        let relation = columns[RELATION].split(':').next().unwrap_or_default();
        self.heads.push((line, head, relation.to_string()));
        Ok(())
    }

    /// Adds a form to the text, and says where it stands.
    fn place(&mut self, columns: &[&str]) -> Range<usize> {
        if !self.text.is_empty() && !self.is_joined {
            self.text.push(' ');
        }
        self.is_joined = columns[MISC].split('|').any(|said| said == "SpaceAfter=No");
        let start = self.text.len();
        self.text.push_str(columns[FORM]);
        start..self.text.len()
    }

    /// The sentence with its links; nothing between two empty lines.
    fn end(self, path: &Path) -> Result<Option<AnnotatedText>, InputError> {
        let count = self.words.len();
        let mut links = Vec::new();
        for (from, (line, head, relation)) in self.heads.into_iter().enumerate() {
            if head > count || head == from + 1 {
                let problem =
                    format!("has the HEAD {head}: expected 0, or another of the {count} words of the sentence");
                return Err(InputError::at_line(path, line, problem));
            }
            if head > 0 && relation != PUNCTUATION {
                links.push(Link { relation, from, to: head - 1 });
            }
        }
        let Self { line, text, words, .. } = self;
        Ok((count > 0).then(|| AnnotatedText { path: path.into(), line, text, words, links }))
    }
}

/// Whether an ID is that of a word which is not in the text: `5.1`.
fn is_empty_node(id: &str) -> bool {
    let parts = id.split_once('.').map(|(word, number)| [word, number].map(|part| part.parse::<usize>().is_ok()));
    parts == Some([true, true])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of ID, FORM, HEAD, DEPREL and MISC.
    fn rows(rows: &[[&str; 5]]) -> String {
        let row = |[id, form, head, relation, misc]: &[&str; 5]| {
            format!("{id}\t{form}\t_\t_\t_\t_\t{head}\t{relation}\t_\t{misc}\n")
        };
        rows.iter().map(row).collect()
    }

    fn read(text: &str) -> Result<Vec<AnnotatedText>, String> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.conllu");
        std::fs::write(&path, text).unwrap();
        read_conllu(&path).map_err(|error| {
            assert!(error.is_user_error());
            error.to_string()
        })
    }

    #[test]
    fn words_stand_in_the_text_that_their_forms_make() {
        let first = rows(&[
            ["1-2", "Zum", "_", "_", "_"],
            ["1", "Zu", "3", "case", "_"],
            ["2", "dem", "3", "det", "_"],
            ["3", "Haus", "4", "obl:arg", "_"],
            ["3.1", "er", "_", "_", "_"],
            ["4", "geht", "0", "root", "SpaceAfter=No|Lang=de"],
            ["5", "!", "4", "punct", "_"],
        ]);
        let second = rows(&[["1", "Ja", "0", "root", "_"]]);
        let found = read(&format!("# sent_id = 1\n{first}\n\n# a second one\n{second}")).unwrap();
        assert_eq!((found[0].text.as_str(), found[1].text.as_str(), found.len()), ("Zum Haus geht!", "Ja", 2));
        assert_eq!(found[0].words, [0..3, 0..3, 4..8, 9..13, 13..14]);
        assert_eq!((found[0].line, found[1].line), (2, 12));
        let links: Vec<(&str, usize, usize)> =
            found[0].links.iter().map(|link| (link.relation.as_str(), link.from, link.to)).collect();
        assert_eq!(links, [("case", 0, 2), ("det", 1, 2), ("obl", 2, 3)]);
        assert!(found[1].links.is_empty());
    }

    #[test]
    fn a_row_that_does_not_fit_is_named_with_its_line() {
        let told = |row: [&str; 5], expected: &str| {
            let good = rows(&[["1", "a", "0", "root", "_"]]);
            let problem = read(&format!("{good}{}", rows(&[row]))).unwrap_err();
            assert!(problem.starts_with("line 2 of `") && problem.contains(expected), "{problem}");
        };
        told(["3", "b", "1", "x", "_"], "has the ID `3`: expected `2`");
        told(["3-4", "b", "_", "_", "_"], "has the ID `3-4`: expected `2`");
        told(["2-2", "b", "_", "_", "_"], "has the ID `2-2`: expected `2`");
        told(["2.x", "b", "1", "x", "_"], "has the ID `2.x`: expected `2`");
        told(["2", "b", "_", "x", "_"], "has the HEAD `_`: expected the ID of a word, or 0 for the root");
        told(["2", "b", "3", "x", "_"], "has the HEAD 3: expected 0, or another of the 2 words");
        told(["2", "b", "2", "x", "_"], "has the HEAD 2: expected 0, or another of the 2 words");
        let columns = read("1 a b\n").unwrap_err();
        assert!(
            columns.contains("line 1 of `") && columns.contains("has 1 columns separated by tabs: expected the 10")
        );
        assert!(read("# nothing\n\n").unwrap_err().contains("holds no sentence"));
    }
}
