//! What predicted classes, numbers and spans are worth beside the true ones: [`class_report`] for classes,
//! [`multi_label_report`] for any number of them, [`regression_report`] for numbers, [`entity_report`] for tags of tokens. Numbers
//! in, numbers out: no tensor, no device, no task.
//!
//! The values are those of scikit-learn, SciPy and the script `conlleval`, each at its default; a score whose denominator is
//! zero is 0. Where they have several ways, the documentation of the item says which one it is.
//!
//! ```
//! use firelight_training::metrics::classes::class_report;
//!
//! let report = class_report(&[vec![0.9, 0.1], vec![0.4, 0.6], vec![0.3, 0.7]], &[0, 0, 1]);
//! assert_eq!(report.accuracy, 2.0 / 3.0);
//! assert_eq!(report.confusion, [[1, 1], [0, 1]]); // a row for each true class
//! assert_eq!(report.auroc, Some(1.0));
//! ```

mod calibration;
mod confusion;
mod correlation;
mod drawing;
mod entities;
mod ranks;
mod several;

use serde::Serialize;

pub use calibration::{CALIBRATION_BINS, calibration_error};
pub use confusion::{ConfusionMatrix, PerClass};
pub use correlation::{RegressionReport, pearson, regression_report, spearman};
pub use drawing::draw_confusion;
pub use entities::{EntityReport, entity_report};
pub use ranks::{auroc, auroc_one_vs_rest};
pub use several::{MultiLabelReport, multi_label_report};

/// Everything that is said of a classifier on some examples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// The share of examples whose class is the likeliest one.
    pub accuracy: f64,
    /// The mean F1 of the classes that occur as target or prediction.
    pub macro_f1: f64,
    /// The mean F1 of the classes, each with the weight of its targets.
    pub weighted_f1: f64,
    /// Matthews correlation coefficient, for any number of classes.
    pub matthews: f64,
    /// Expected calibration error, in [`CALIBRATION_BINS`] bins.
    pub calibration_error: f64,
    /// Area under the receiver operating characteristic: of class 1 for two classes, the mean of each against the rest for more.
    /// None where there is but one class among the targets.
    pub auroc: Option<f64>,
    /// Precision, recall and F1 of each class.
    pub per_class: Vec<PerClass>,
    /// Counts by target (row) and prediction (column).
    pub confusion: Vec<Vec<usize>>,
}

/// Compares the `probabilities` of the classes, a row for each example, with the true classes.
///
/// The prediction is the likeliest class, the first of equal ones.
///
/// # Panics
/// Panics if there is no example, if the lengths differ, or if a target is no class.
pub fn class_report(probabilities: &[Vec<f64>], targets: &[usize]) -> ClassReport {
    assert_eq!(probabilities.len(), targets.len(), "as many rows of probabilities as targets");
    let classes = probabilities.first().expect("at least one example").len();
    assert!(probabilities.iter().all(|row| row.len() == classes), "as many probabilities in every row");
    let predictions: Vec<usize> = probabilities.iter().map(|row| likeliest(row)).collect();
    let matrix = ConfusionMatrix::of(&predictions, targets, classes);
    ClassReport {
        accuracy: matrix.accuracy(),
        macro_f1: matrix.macro_f1(),
        weighted_f1: matrix.weighted_f1(),
        matthews: matrix.matthews(),
        calibration_error: calibration_error(probabilities, targets),
        auroc: match classes {
            2 => auroc(&probabilities.iter().map(|row| row[1]).collect::<Vec<_>>(), |item| targets[item] == 1),
            _ => auroc_one_vs_rest(probabilities, targets),
        },
        per_class: matrix.per_class(),
        confusion: matrix.counts,
    }
}

/// The class with the highest probability, the first of equal ones.
fn likeliest(probabilities: &[f64]) -> usize {
    (0..probabilities.len())
        .fold(0, |best, class| if probabilities[class] > probabilities[best] { class } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rows of probabilities of four classes with their targets.
    fn examples() -> impl Strategy<Value = (Vec<Vec<f64>>, Vec<usize>)> {
        let row = prop::collection::vec(0_u32..5, 4).prop_map(|weights| {
            let total = f64::from(weights.iter().sum::<u32>().max(1));
            weights.into_iter().map(|weight| f64::from(weight) / total).collect::<Vec<_>>()
        });
        prop::collection::vec((row, 0_usize..4), 1..40).prop_map(|examples| examples.into_iter().unzip())
    }

    #[test]
    fn the_first_of_equally_likely_classes_is_predicted() {
        assert_eq!(likeliest(&[0.2, 0.4, 0.4]), 1);
        assert_eq!(likeliest(&[f64::NAN, f64::NAN]), 0);
    }

    #[test]
    #[should_panic(expected = "as many rows of probabilities as targets")]
    fn examples_without_a_target_are_refused() {
        class_report(&[vec![1.0, 0.0]], &[]);
    }

    proptest! {
        #[test]
        fn scores_are_in_their_ranges((probabilities, targets) in examples()) {
            let report = class_report(&probabilities, &targets);
            let shares = [report.accuracy, report.macro_f1, report.weighted_f1, report.calibration_error];
            prop_assert!(shares.iter().all(|share| (0.0..=1.0 + 1e-12).contains(share)), "{report:?}");
            prop_assert!((-1.0 - 1e-12..=1.0 + 1e-12).contains(&report.matthews));
            prop_assert_eq!(report.confusion.as_slice().concat().iter().sum::<usize>(), targets.len());
        }

        #[test]
        fn certain_and_right_is_best((_, targets) in examples()) {
            let certain: Vec<Vec<f64>> =
                targets.iter().map(|&target| (0..4).map(|class| f64::from(u8::from(class == target))).collect()).collect();
            let report = class_report(&certain, &targets);
            prop_assert_eq!((report.accuracy, report.calibration_error), (1.0, 0.0));
            prop_assert!((report.macro_f1 - 1.0).abs() < 1e-12 && (report.weighted_f1 - 1.0).abs() < 1e-12);
            let several = targets.iter().any(|target| *target != targets[0]);
            prop_assert_eq!(report.auroc, several.then_some(1.0));
            prop_assert!((report.matthews - f64::from(u8::from(several))).abs() < 1e-12);
        }

        #[test]
        fn the_order_of_the_examples_does_not_matter((probabilities, targets) in examples()) {
            let (mut turned_rows, mut turned_targets) = (probabilities.clone(), targets.clone());
            turned_rows.reverse();
            turned_targets.reverse();
            let (one, two) = (class_report(&probabilities, &targets), class_report(&turned_rows, &turned_targets));
            prop_assert_eq!(one.per_class, two.per_class);
            prop_assert_eq!(one.auroc, two.auroc);
            prop_assert!((one.calibration_error - two.calibration_error).abs() < 1e-12);
        }
    }
}
