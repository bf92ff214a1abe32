//! Whether predicted numbers rise and fall with the true ones, and how far off they are, for regressions.

use serde::Serialize;

use super::ranks::ranks;

/// Everything that is said of a regression on some examples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RegressionReport {
    /// [`pearson`] of predictions and targets.
    pub pearson: Option<f64>,
    /// [`spearman`] of predictions and targets.
    pub spearman: Option<f64>,
    /// The mean of the squared differences.
    pub mean_squared_error: f64,
}

/// Compares predicted with true numbers.
///
/// # Panics
/// Panics if there is no example, or if the lengths differ.
pub fn regression_report(predictions: &[f64], targets: &[f64]) -> RegressionReport {
    assert!(!targets.is_empty(), "at least one example");
    let squares = predictions.iter().zip(targets).map(|(prediction, target)| (prediction - target).powi(2));
    RegressionReport {
        pearson: pearson(predictions, targets),
        spearman: spearman(predictions, targets),
        mean_squared_error: squares.sum::<f64>() / targets.len() as f64,
    }
}

/// Pearson's correlation: how close the points lie to a rising line, from -1 to 1; none where all values of a side are equal.
///
/// # Panics
/// Panics if the lengths differ.
pub fn pearson(predictions: &[f64], targets: &[f64]) -> Option<f64> {
    assert_eq!(predictions.len(), targets.len(), "as many predictions as targets");
    let (left, right) = (centred(predictions), centred(targets));
    let product = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(one, other)| one * other).sum::<f64>();
    let scale = (product(&left, &left) * product(&right, &right)).sqrt();
    (scale > 0.0).then(|| (product(&left, &right) / scale).clamp(-1.0, 1.0))
}

/// Spearman's correlation: that of the ranks, which asks for a rising curve of any form. Equal values share a rank.
///
/// # Panics
/// Panics if the lengths differ.
pub fn spearman(predictions: &[f64], targets: &[f64]) -> Option<f64> {
    pearson(&ranks(predictions), &ranks(targets))
}

/// The values with their mean taken away; none but zeros where all are equal, whatever rounding makes of the mean.
fn centred(values: &[f64]) -> Vec<f64> {
    let mean = match values.iter().all(|value| *value == values[0]) {
        true => values.first().copied().unwrap_or_default(),
        false => values.iter().sum::<f64>() / values.len() as f64,
    };
    values.iter().map(|value| value - mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        // Centred: -1, 0, 1 and -5/3, 1/3, 4/3; products 3, squares 2 and 14/3.
        let expected = 3.0 / (2.0 * 14.0 / 3.0_f64).sqrt();
        assert!((pearson(&[1.0, 2.0, 3.0], &[0.0, 2.0, 3.0]).unwrap() - expected).abs() < 1e-15);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[0.0, 2.0, 3.0]), Some(1.0));
        // Ranks 1.5, 1.5, 3 and 1, 2, 3: centred products 1.5, squares 1.5 and 2.
        assert!((spearman(&[5.0, 5.0, 9.0], &[0.1, 0.2, 0.7]).unwrap() - 1.5 / 3.0_f64.sqrt()).abs() < 1e-15);
    }

    #[test]
    fn numbers_that_rise_alike_may_still_be_off() {
        let report = regression_report(&[1.0, 2.0, 4.0], &[2.0, 3.0, 6.0]);
        assert_eq!((report.spearman, report.mean_squared_error), (Some(1.0), 2.0));
        assert!(report.pearson.unwrap() > 0.99);
        assert_eq!(regression_report(&[1.0, 1.0], &[0.0, 2.0]).pearson, None);
    }

    #[test]
    fn equal_values_correlate_with_nothing() {
        assert_eq!(pearson(&[0.1; 3], &[1.0, 2.0, 3.0]), None);
        assert_eq!(spearman(&[1.0, 2.0], &[7.0, 7.0]), None);
        assert_eq!(pearson(&[], &[]), None);
    }

    proptest! {
        #[test]
        fn ranks_do_not_change_on_a_rising_curve(points in prop::collection::vec((-50_i32..50, -50_i32..50), 2..20)) {
            let (left, right): (Vec<f64>, Vec<f64>) =
                points.iter().map(|(left, right)| (f64::from(*left), f64::from(*right))).unzip();
            let bent: Vec<f64> = left.iter().map(|value| value.powi(3) + 7.0).collect();
            prop_assert_eq!(spearman(&left, &right), spearman(&bent, &right));
            let turned: Vec<f64> = left.iter().map(|value| 3.0 - 2.0 * value).collect();
            match (pearson(&left, &right), pearson(&turned, &right)) {
                (Some(one), Some(two)) => prop_assert!((one + two).abs() < 1e-12),
                both => prop_assert_eq!(both, (None, None)),
            }
        }
    }
}
