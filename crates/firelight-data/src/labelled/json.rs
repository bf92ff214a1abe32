//! JSON lines of labelled texts. A label may be a number or a truth value, and stands for its spelling; several may be a list.

use std::path::Path;

use super::{Columns, LabelKind, LabelledText};
use crate::DataError;
use crate::parallel::{JsonLine, read_lines};

/// Reads the labelled texts of a file.
pub(super) fn read(path: &Path, columns: &Columns, kind: &LabelKind) -> Result<Vec<LabelledText>, DataError> {
    let lines = read_lines(path)?;
    let filled = lines.iter().enumerate().filter(|(_, text)| !text.trim().is_empty());
    filled.map(|(index, text)| labelled(&JsonLine::parse(path, index + 1, text)?, columns, kind)).collect()
}

fn labelled(line: &JsonLine, columns: &Columns, kind: &LabelKind) -> Result<LabelledText, DataError> {
    let texts = columns.text.iter().map(|key| line.text(key)).collect::<Result<Vec<_>, _>>()?;
    Ok(LabelledText {
        text: texts.join(" "),
        pair: columns.pair.as_ref().map(|key| line.text(key)).transpose()?,
        label: match kind.separator() {
            Some(separator) => line.spellings(&columns.label, separator)?,
            None => line.spelling(&columns.label)?,
        },
        line: line.number(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(content: &str) -> Result<Vec<LabelledText>, DataError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.jsonl");
        fs::write(&path, content).unwrap();
        let columns = Columns { text: vec!["text".into()], pair: None, label: "/meta/label".into() };
        super::read(&path, &columns, &LabelKind::SingleLabel)
    }

    #[test]
    fn labels_are_texts_numbers_or_truth_values() {
        let line = |label: &str| format!("{{\"text\": \"a\", \"meta\": {{\"label\": {label}}}}}\n");
        let found = read(&["\"x\"", "3", "-0.5", "true"].map(line).concat()).unwrap();
        let labels: Vec<_> = found.iter().map(|text| text.label.as_str()).collect();
        assert_eq!(labels, ["x", "3", "-0.5", "true"]);
        let error = read(&[line("1"), line("[1]")].concat()).unwrap_err().to_string();
        assert!(error.contains("line 2 of `") && error.contains("its `/meta/label` is an array"), "{error}");
    }
}
