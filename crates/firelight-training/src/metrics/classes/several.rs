//! What predicted labels are worth where an example may have any number of them. Source: Sokolova and Lapalme 2009, A
//! systematic analysis of performance measures for classification tasks, the averages and the exact match ratio; the values are
//! those of scikit-learn for indicator matrices.

use serde::Serialize;

use super::confusion::PerClass;

/// Everything that is said of a tagger on some examples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MultiLabelReport {
    /// F1 of all decisions together, whatever label they are about.
    pub micro_f1: f64,
    /// The mean F1 of the labels. One that is neither target nor prediction has 0, as scikit-learn has it.
    pub macro_f1: f64,
    /// The share of examples of which every label is right.
    pub exact_match: f64,
    /// Precision, recall and F1 of each label.
    pub per_class: Vec<PerClass>,
}

/// Compares predicted with true labels: a row for each example, which says of every label whether it holds.
///
/// # Panics
/// Panics if there is no example, or if the lengths differ.
pub fn multi_label_report(predictions: &[Vec<bool>], targets: &[Vec<bool>]) -> MultiLabelReport {
    assert_eq!(predictions.len(), targets.len(), "as many predictions as targets");
    let labels = targets.first().expect("at least one example").len();
    let is_even = predictions.iter().chain(targets).all(|row| row.len() == labels);
    assert!(is_even, "as many labels in every row");
    let counts: Vec<[usize; 3]> = (0..labels).map(|label| counts(predictions, targets, label)).collect();
    let f1 = |[correct, predicted, support]: [usize; 3]| PerClass::of(correct, predicted, support);
    let per_class: Vec<PerClass> = counts.iter().copied().map(f1).collect();
    let exact = predictions.iter().zip(targets).filter(|(prediction, target)| prediction == target).count();
    MultiLabelReport {
        micro_f1: f1([0, 1, 2].map(|which| counts.iter().map(|counts| counts[which]).sum())).f1,
        macro_f1: per_class.iter().map(|class| class.f1).sum::<f64>() / labels.max(1) as f64,
        exact_match: exact as f64 / targets.len() as f64,
        per_class,
    }
}

/// How often a label is rightly predicted, predicted, and true.
fn counts(predictions: &[Vec<bool>], targets: &[Vec<bool>], label: usize) -> [usize; 3] {
    let pairs = || predictions.iter().zip(targets).map(|(prediction, target)| (prediction[label], target[label]));
    let count = |is_counted: fn((bool, bool)) -> bool| pairs().filter(|pair| is_counted(*pair)).count();
    [
        count(|(prediction, target)| prediction && target),
        count(|(prediction, _)| prediction),
        count(|(_, target)| target),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_labels_by_hand() {
        let targets = [[true, false, true], [false, false, true], [true, false, false]].map(Vec::from);
        let predictions = [[true, false, true], [true, false, false], [true, false, false]].map(Vec::from);
        let report = multi_label_report(&predictions, &targets);
        // Rightly predicted, predicted and true: 2, 3, 2; nothing; 1, 1, 2.
        assert_eq!(report.per_class.iter().map(|class| class.f1).collect::<Vec<_>>(), [0.8, 0.0, 2.0 / 3.0]);
        assert_eq!(report.micro_f1, 6.0 / 8.0);
        assert!((report.macro_f1 - (0.8 + 2.0 / 3.0) / 3.0).abs() < 1e-15);
        assert_eq!(report.exact_match, 2.0 / 3.0);
    }

    #[test]
    fn right_is_best_and_nothing_found_is_zero() {
        let targets = [vec![true, false], vec![false, true]];
        let best = multi_label_report(&targets, &targets);
        assert_eq!((best.micro_f1, best.macro_f1, best.exact_match), (1.0, 1.0, 1.0));
        let none = multi_label_report(&[vec![false; 2], vec![false; 2]], &targets);
        assert_eq!((none.micro_f1, none.macro_f1, none.exact_match), (0.0, 0.0, 0.0));
    }

    #[test]
    #[should_panic(expected = "as many labels in every row")]
    fn rows_of_other_lengths_are_refused() {
        multi_label_report(&[vec![true]], &[vec![true, false]]);
    }
}
