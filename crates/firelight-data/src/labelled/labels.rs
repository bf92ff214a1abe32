//! The classes of a classifier, by name and by number.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use firelight_storage::{InputError, listed, shortened};
use serde::{Deserialize, Serialize};

use super::{LabelKind, LabelledText};
use crate::DataError;

/// Names of classes. The number of a class is its place among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Labels {
    names: Vec<String>,
    /// The place of each name: a file with the wrong column has as many labels as lines.
    numbers: HashMap<String, usize>,
}

impl Labels {
    /// The labels of the examples that a model is trained on, sorted: by value if all are whole numbers, by spelling
    /// otherwise.
    ///
    /// # Errors
    /// Fails if there are fewer than two different ones.
    pub fn of(texts: &[LabelledText]) -> Result<Self, DataError> {
        Self::of_kind(texts, &LabelKind::SingleLabel)
    }

    /// As [`of`](Self::of), of examples with labels of this kind.
    ///
    /// # Errors
    /// Fails if there are fewer different ones than [`named`](Self::named) takes.
    pub fn of_kind(texts: &[LabelledText], kind: &LabelKind) -> Result<Self, DataError> {
        let distinct: BTreeSet<&str> = texts.iter().flat_map(|text| kind.parts(&text.label)).collect();
        let mut names: Vec<String> = distinct.into_iter().map(str::to_owned).collect();
        let values: Option<Vec<i64>> = names.iter().map(|name| name.parse().ok()).collect();
        if values.is_some() {
            names.sort_by_key(|name| name.parse::<i64>().ok());
        }
        Self::named(names, kind)
    }

    /// Classes of these names, in this order.
    ///
    /// # Errors
    /// Fails if there are fewer than two, or if a name is empty or occurs twice.
    pub fn new(names: Vec<String>) -> Result<Self, DataError> {
        Self::named(names, &LabelKind::SingleLabel)
    }

    /// Outputs of these names, in this order, for labels of this kind.
    ///
    /// # Errors
    /// Fails if there are fewer than two of which one is true, or none at all, or if a name is empty or occurs twice.
    pub fn named(names: Vec<String>, kind: &LabelKind) -> Result<Self, DataError> {
        let mut numbers = HashMap::new();
        let problem = |(number, name): (usize, &String)| match numbers.insert(name.clone(), number) {
            _ if name.is_empty() => Some("a label is empty".to_owned()),
            Some(_) => Some(format!("the label `{}` occurs twice", shortened(name))),
            None => None,
        };
        let few = || match names.as_slice() {
            [] => "there is no label".into(),
            names => {
                format!("there is {} label ({}), but a classifier needs two or more", names.len(), listed(names))
            }
        };
        let is_few = names.len() < kind.fewest();
        match names.iter().enumerate().find_map(problem).or_else(|| is_few.then(few)) {
            Some(problem) => {
                Err(InputError::new(problem).advise("does columns.label name the column of the labels?").into())
            }
            None => Ok(Self { names, numbers }),
        }
    }

    /// The names, by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Number of classes: two or more of which one is true, one or more otherwise.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// The number of a class; none for another label.
    pub fn id(&self, label: &str) -> Option<usize> {
        self.numbers.get(label).copied()
    }

    /// The numbers of the classes of examples, which were read from `path`.
    ///
    /// # Errors
    /// Fails at the first label that is not among these, with its line.
    pub fn ids(&self, path: &Path, texts: &[LabelledText]) -> Result<Vec<usize>, DataError> {
        texts.iter().map(|text| self.known(path, text.line, &text.label)).collect()
    }

    /// The numbers of all classes of each example, where there may be several.
    ///
    /// # Errors
    /// As [`ids`](Self::ids).
    pub fn id_lists(
        &self,
        path: &Path,
        texts: &[LabelledText],
        kind: &LabelKind,
    ) -> Result<Vec<Vec<usize>>, DataError> {
        let of_text = |text: &LabelledText| {
            kind.parts(&text.label).iter().map(|part| self.known(path, text.line, part)).collect()
        };
        texts.iter().map(of_text).collect()
    }

    fn known(&self, path: &Path, line: usize, label: &str) -> Result<usize, DataError> {
        self.id(label).ok_or_else(|| {
            let (label, known) = (shortened(label), listed(&self.names));
            let problem =
                format!("has the label `{label}`, which the training did not have: the known labels are {known}");
            InputError::at_line(path, line, problem).into()
        })
    }
}

impl TryFrom<Vec<String>> for Labels {
    type Error = DataError;

    fn try_from(names: Vec<String>) -> Result<Self, DataError> {
        Self::new(names)
    }
}

impl From<Labels> for Vec<String> {
    fn from(labels: Labels) -> Self {
        labels.names
    }
}

/// The labels of examples as numbers, for a regression.
///
/// # Errors
/// Fails at the first label that is no finite number, with its line.
pub fn numbers(path: &Path, texts: &[LabelledText]) -> Result<Vec<f64>, DataError> {
    let number = |text: &LabelledText| {
        let value = text.label.trim().parse().ok().filter(|value: &f64| value.is_finite());
        value.ok_or_else(|| {
            let problem = format!("has the label `{}`: a regression needs a finite number", shortened(&text.label));
            InputError::at_line(path, text.line, problem).into()
        })
    };
    texts.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(labels: &[&str]) -> Vec<LabelledText> {
        let text = |(index, label): (usize, &&str)| LabelledText {
            text: String::new(),
            pair: None,
            label: (*label).into(),
            line: index + 2,
        };
        labels.iter().enumerate().map(text).collect()
    }

    #[test]
    fn labels_are_sorted_by_value_or_by_spelling() {
        assert_eq!(Labels::of(&texts(&["10", "9", "-1", "9"])).unwrap().names(), ["-1", "9", "10"]);
        assert_eq!(Labels::of(&texts(&["b", "10", "9"])).unwrap().names(), ["10", "9", "b"]);
        let many: Vec<String> = (0..200_000).map(|label| label.to_string()).collect();
        let labels = Labels::new(many.clone()).unwrap();
        assert!(many.iter().enumerate().all(|(number, name)| labels.id(name) == Some(number)));
    }

    #[test]
    fn a_label_unseen_in_training_is_named_with_its_line_and_those_known() {
        let labels = Labels::of(&texts(&["bad", "good"])).unwrap();
        assert_eq!(labels.ids(Path::new("dev.tsv"), &texts(&["good", "bad"])).unwrap(), [1, 0]);
        let error = labels.ids(Path::new("dev.tsv"), &texts(&["good", "Good"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 3 of `dev.tsv` has the label `Good`, which the training did not have: the known labels are bad, good"
        );
        let long = labels.ids(Path::new("dev.tsv"), &texts(&["x".repeat(1_000_000).as_str()])).unwrap_err().to_string();
        assert!(long.len() < 250 && long.contains("xxx...`, which"), "{long}");
    }

    #[test]
    fn names_are_two_or_more_different_ones_and_a_list_in_a_file() {
        let labels: Labels = serde_json::from_str(r#"["no", "maybe", "yes"]"#).unwrap();
        assert_eq!((labels.len(), labels.id("yes"), labels.id("")), (3, Some(2), None));
        assert_eq!(serde_json::to_string(&labels).unwrap(), r#"["no","maybe","yes"]"#);
        for (wrong, reason) in
            [(r#"["a", "a"]"#, "`a` occurs twice"), (r#"["a", ""]"#, "is empty"), (r#"["a"]"#, "1 label (a)")]
        {
            let error = serde_json::from_str::<Labels>(wrong).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn classes_of_several_labels_are_all_that_occur() {
        let (several, path) = (LabelKind::multi_label(), Path::new("dev.tsv"));
        let labels = Labels::of_kind(&texts(&["b|a", "", "c | a"]), &several).unwrap();
        assert_eq!(labels.names(), ["a", "b", "c"]);
        let lists = labels.id_lists(path, &texts(&["", "c|a", "b"]), &several).unwrap();
        assert_eq!(lists, [vec![], vec![2, 0], vec![1]]);
        let error = labels.id_lists(path, &texts(&["a", "b|x"]), &several).unwrap_err().to_string();
        assert!(
            error.starts_with("line 3 of `dev.tsv` has the label `x`") && error.ends_with("are a, b, c"),
            "{error}"
        );
        assert_eq!(Labels::of_kind(&texts(&["a", ""]), &several).unwrap().len(), 1);
        let error = Labels::of_kind(&texts(&["", ""]), &several).unwrap_err().to_string();
        assert!(error.starts_with("there is no label;"), "{error}");
    }

    #[test]
    fn labels_of_a_regression_are_finite_numbers() {
        assert_eq!(numbers(Path::new("a"), &texts(&["1", " -2.5"])).unwrap(), [1.0, -2.5]);
        for wrong in ["x", "inf", "NaN", ""] {
            let error = numbers(Path::new("a"), &texts(&["1", wrong])).unwrap_err();
            assert!(error.to_string().starts_with("line 3 of `a` has the label"), "{error}");
        }
    }
}
