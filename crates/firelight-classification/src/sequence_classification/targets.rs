//! How the labels of files become what a model is trained towards.

use std::path::Path;

use firelight_data::DataError;
use firelight_data::labelled::{LabelKind, LabelledText, Labels, numbers};

use crate::data::Target;
use crate::loss::ProblemType;

/// What the output of a regression is called.
const VALUE: &str = "value";

/// What the labels of a run say, and what its outputs are called.
#[derive(Debug, Clone, PartialEq)]
pub struct Targets {
    kind: LabelKind,
    labels: Labels,
}

impl Targets {
    /// The classes are the labels of the training texts.
    pub(super) fn of(kind: &LabelKind, training: &[LabelledText]) -> Result<Self, DataError> {
        match kind {
            LabelKind::Regression => Self::named(kind, vec![VALUE.into()]),
            _ => Ok(Self { kind: kind.clone(), labels: Labels::of_kind(training, kind)? }),
        }
    }

    /// The outputs have these names.
    pub(super) fn named(kind: &LabelKind, names: Vec<String>) -> Result<Self, DataError> {
        Ok(Self { kind: kind.clone(), labels: Labels::named(names, kind)? })
    }

    /// The classes; of a regression the name of its number.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// What a label is.
    pub fn problem_type(&self) -> ProblemType {
        ProblemType::from(&self.kind)
    }

    /// What is true of the texts of a file.
    pub(super) fn read(&self, file: &Path, texts: &[LabelledText]) -> Result<Vec<Target>, DataError> {
        Ok(match &self.kind {
            LabelKind::SingleLabel => self.labels.ids(file, texts)?.into_iter().map(Target::Class).collect(),
            LabelKind::MultiLabel { .. } => {
                let lists = self.labels.id_lists(file, texts, &self.kind)?;
                lists.iter().map(|ids| Target::Classes(self.flags(ids))).collect()
            }
            LabelKind::Regression => numbers(file, texts)?.into_iter().map(Target::Number).collect(),
        })
    }

    fn flags(&self, ids: &[usize]) -> Vec<bool> {
        (0..self.labels.len()).map(|class| ids.contains(&class)).collect()
    }

    /// What stands beside the texts, in words.
    pub(super) fn in_words(&self) -> String {
        match self.kind {
            LabelKind::SingleLabel => format!("of {} classes", self.labels.len()),
            LabelKind::MultiLabel { .. } => format!("with any of {} labels", self.labels.len()),
            LabelKind::Regression => "with a number each".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(labels: &[&str]) -> Vec<LabelledText> {
        let text = |label: &&str| LabelledText { text: String::new(), pair: None, label: (*label).into(), line: 1 };
        labels.iter().map(text).collect()
    }

    #[test]
    fn a_label_is_a_class_flags_or_a_number() {
        let read = |kind: LabelKind, labels: &[&str]| {
            let targets = Targets::of(&kind, &texts(labels)).unwrap();
            (targets.read(Path::new("a"), &texts(labels)).unwrap(), targets.in_words())
        };
        let (found, words) = read(LabelKind::SingleLabel, &["b", "a"]);
        assert_eq!((found, words.as_str()), (vec![Target::Class(1), Target::Class(0)], "of 2 classes"));
        let (found, words) = read(LabelKind::multi_label(), &["b|a", "", "b"]);
        let flags = [[true, true], [false, false], [false, true]].map(|flags| Target::Classes(flags.into()));
        assert_eq!((found, words.as_str()), (flags.into(), "with any of 2 labels"));
        let (found, words) = read(LabelKind::Regression, &["2.5", "-1"]);
        assert_eq!((found, words.as_str()), (vec![Target::Number(2.5), Target::Number(-1.0)], "with a number each"));
    }
}
