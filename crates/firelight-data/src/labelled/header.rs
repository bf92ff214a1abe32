//! Whether the first line of a table of labelled texts is a header where its columns are counted and not named.

use super::{Columns, LabelKind};
use crate::DataError;
use crate::records::Record;

/// What columns of labels are usually called. Such a first line is a header even where labels are no numbers.
const USUAL_NAMES: [&str; 9] =
    ["label", "labels", "class", "class index", "category", "target", "sentiment", "score", "intent"];

/// Whether the first record is no example; the documentation of [`Columns`] has the rule.
pub(super) fn is_header(records: &[Record], columns: &Columns, kind: &LabelKind) -> Result<bool, DataError> {
    if columns.all().any(|column| column.parse::<usize>().is_err()) {
        return Ok(false); // It was read as one.
    }
    let labels = records.iter().map(|record| record.text(&columns.label)).collect::<Result<Vec<_>, _>>()?;
    let Some((first, below)) = labels.split_first() else { return Ok(false) };
    let is_number = |label: &str| kind.parts(label).iter().all(|part| part.parse::<f64>().is_ok());
    let above_numbers = !below.is_empty() && below.iter().all(|label| is_number(label)) && !is_number(first);
    Ok(!below.contains(first) && (above_numbers || USUAL_NAMES.contains(&first.to_lowercase().as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labelled::read;
    use std::fs;

    fn texts(content: &str, text: &str, label: &str) -> Vec<String> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.csv");
        fs::write(&path, content).unwrap();
        let columns = Columns { text: vec![text.into()], pair: None, label: label.into() };
        read(&path, &columns).unwrap().into_iter().map(|found| found.text).collect()
    }

    #[test]
    fn a_first_line_is_a_header_where_its_label_is_none() {
        assert_eq!(texts("a,1\nb,0\n", "0", "1"), ["a", "b"]);
        assert_eq!(texts("sentence,gold\na,1\nb,0.5\n", "0", "1"), ["a", "b"], "no number above numbers");
        assert_eq!(texts("sentence,Label\na,yes\nb,no\n", "0", "1"), ["a", "b"], "a usual name");
        assert_eq!(texts("a,good\nb,bad\n", "0", "1"), ["a", "b"], "an unusual name");
        assert_eq!(texts("a,target\nb,other\nc,target\n", "0", "1"), ["a", "b", "c"], "a usual name that occurs again");
        assert_eq!(texts("x,y\na,1\nb,0\n", "x", "y"), ["a", "b"], "columns by name");
        assert_eq!(texts("x,y\na,1\nb,0\n", "0", "y"), ["a", "b"], "one column by name");
    }
}
