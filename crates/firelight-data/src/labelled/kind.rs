//! What the column of the labels holds: one class, any number of them, or a number.

use serde::{Deserialize, Serialize};

/// What stands in the column of the labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LabelKind {
    /// One of several classes.
    #[default]
    SingleLabel,
    /// Any number of classes with a separator between them; nothing, where none holds. JSON may have a list instead.
    MultiLabel {
        /// What stands between two labels. Default: `"|"`.
        #[serde(default = "usual_separator")]
        separator: String,
    },
    /// A number.
    Regression,
}

fn usual_separator() -> String {
    "|".into()
}

impl LabelKind {
    /// Any number of classes with the usual separator `|`.
    pub fn multi_label() -> Self {
        Self::MultiLabel { separator: usual_separator() }
    }

    /// Whether it is one of several classes, as in most files.
    pub fn is_single_label(&self) -> bool {
        *self == Self::SingleLabel
    }

    /// What stands between two labels, where there may be several.
    pub(super) fn separator(&self) -> Option<&str> {
        match self {
            Self::MultiLabel { separator } => Some(separator),
            _ => None,
        }
    }

    /// The labels that a column names. Among several, spaces around them and separators without a label between them count
    /// for nothing.
    pub(super) fn parts<'a>(&self, label: &'a str) -> Vec<&'a str> {
        match self.separator() {
            Some(separator) => label.split(separator).map(str::trim).filter(|part| !part.is_empty()).collect(),
            None => vec![label],
        }
    }

    /// The fewest outputs with which there is something to decide: a single tag holds or not, a class needs another one.
    pub(super) fn fewest(&self) -> usize {
        if self.is_single_label() { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_labels_stand_between_separators() {
        let several = LabelKind::multi_label();
        assert_eq!(several.parts("a b| c|"), ["a b", "c"]);
        assert_eq!(several.parts(" "), [""; 0]);
        assert_eq!(LabelKind::MultiLabel { separator: ", ".into() }.parts("a|b, c"), ["a|b", "c"]);
        assert_eq!(LabelKind::SingleLabel.parts(" a|b"), [" a|b"]);
        let all = [LabelKind::default(), several, LabelKind::Regression];
        assert_eq!(all.map(|kind| kind.is_single_label()), [true, false, false]);
    }
}
