//! Linear probes: what can be read off an activation by a linear map.
//!
//! Source: Alain and Bengio 2016, "Understanding intermediate layers using linear classifier probes" (<https://arxiv.org/abs/1610.01644>).
//! Differs from it: the probes are solved in closed form or by Newton's method, in double precision on the host, so that there are no steps
//! or learning rates to choose, and one input gives one probe.

use crate::error::{Checks, ConfigError};
use burn::tensor::Tensor;

/// Newton's method doubles the digits with every step: it has long ended.
const STEPS: usize = 50;
/// The change of the weights at which it ends.
const STILL: f64 = 1e-9;

/// A linear classifier of vectors, with a score for each class.
///
/// Fit one on what each layer leaves, and score it on rows that it has not seen: a probe with many channels and few rows learns them by
/// heart.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::ConfigError;
/// use firelight_core::inspect::LinearProbe;
///
/// let x = Tensor::<2>::from_floats([[0.0, 1.0], [0.2, -1.0], [1.0, 0.5], [1.2, -0.5]], &Device::flex());
/// let probe = LinearProbe::ridge(x.clone(), &[0, 0, 1, 1], 0.01)?;
/// assert_eq!(probe.predict(x), [0, 0, 1, 1]);
/// # Ok::<(), ConfigError>(())
/// ```
#[doc(alias = "probing classifier")]
#[derive(Debug, Clone, PartialEq)]
pub struct LinearProbe {
    /// Of each class a weight for each channel, then the bias.
    classes: Vec<Vec<f64>>,
}

impl LinearProbe {
    /// Least squares with a penalty: the map to one number for each class, 1 for a row's own and 0 for the others, whose squared error plus
    /// `penalty` times its squared weights is least. The bias bears no penalty.
    ///
    /// # Shapes
    /// - `features`: `[N, D]`; `labels`: `N` numbers from 0
    ///
    /// # Errors
    /// If there are no rows, not as many labels as rows, or `penalty` is not above 0.
    pub fn ridge(features: Tensor<2>, labels: &[usize], penalty: f64) -> Result<Self, ConfigError> {
        let rows = checked(features, labels, penalty)?;
        let matrix = moments(&rows, &vec![1.0; labels.len()], penalty);
        let of_class = |class: usize| {
            let target = |row: usize| f64::from(u8::from(labels[row] == class));
            solve(matrix.clone(), sums(&rows, target))
        };
        Ok(Self { classes: (0..count(labels)).map(of_class).collect() })
    }

    /// Logistic regression of each class against the others, with `penalty` times half the squared weights; the bias bears none.
    ///
    /// Time grows with the rows times the square of the channels, for each class and a few steps.
    ///
    /// # Shapes
    /// - `features`: `[N, D]`; `labels`: `N` numbers from 0
    ///
    /// # Errors
    /// As [`ridge`](Self::ridge).
    pub fn logistic(features: Tensor<2>, labels: &[usize], penalty: f64) -> Result<Self, ConfigError> {
        let rows = checked(features, labels, penalty)?;
        let of_class = |class: usize| {
            let own: Vec<bool> = labels.iter().map(|label| *label == class).collect();
            newton(&rows, &own, penalty)
        };
        Ok(Self { classes: (0..count(labels)).map(of_class).collect() })
    }

    /// The class of the highest score of each row, `[N, D] -> N`.
    ///
    /// # Panics
    /// If `D` is another than in the fit.
    pub fn predict(&self, features: Tensor<2>) -> Vec<usize> {
        let rows = rows(features);
        let best = |row: &Vec<f64>| {
            let scores: Vec<f64> = self.classes.iter().map(|weights| dot(weights, row)).collect();
            (0..scores.len()).rev().max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or(0) // The first of equals.
        };
        rows.iter().map(best).collect()
    }

    /// The share of rows whose class is `labels`'.
    ///
    /// # Panics
    /// If there are not as many labels as rows, or `D` is another than in the fit.
    pub fn accuracy(&self, features: Tensor<2>, labels: &[usize]) -> f64 {
        let predicted = self.predict(features);
        assert!(
            predicted.len() == labels.len(),
            "{} labels are not one for each of {} rows",
            labels.len(),
            predicted.len()
        );
        let right = predicted.iter().zip(labels).filter(|(found, label)| found == label).count();
        right as f64 / labels.len() as f64
    }
}

/// The rows, each with a one behind it for the bias.
fn rows(features: Tensor<2>) -> Vec<Vec<f64>> {
    let [_, width] = features.dims();
    let numbers: Vec<f64> = features.into_data().iter::<f64>().collect();
    numbers.chunks(width.max(1)).map(|row| row.iter().copied().chain([1.0]).collect()).collect()
}

fn checked(features: Tensor<2>, labels: &[usize], penalty: f64) -> Result<Vec<Vec<f64>>, ConfigError> {
    let rows = rows(features);
    let (found, expected) = (labels.len(), rows.len());
    let finite = rows.iter().flatten().all(|number| number.is_finite());
    Checks::default()
        .require(expected > 0, || "features have no rows: a probe learns from at least one".into())
        .require(found == expected, || format!("labels = {found} of them must be one for each of {expected} rows"))
        .require(penalty > 0.0 && penalty.is_finite(), || format!("penalty = {penalty} must be above 0"))
        .require(finite, || "features must be finite numbers".into())
        .finish()?;
    Ok(rows)
}

fn count(labels: &[usize]) -> usize {
    labels.iter().max().map_or(0, |largest| largest + 1)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert!(a.len() == b.len(), "a probe of {} channels reads none of {}", a.len() - 1, b.len() - 1);
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `sum of weight x xᵀ`, and the penalty on all but the bias.
fn moments(rows: &[Vec<f64>], weights: &[f64], penalty: f64) -> Vec<Vec<f64>> {
    let width = rows[0].len();
    let mut matrix = vec![vec![0.0; width]; width];
    for (row, weight) in rows.iter().zip(weights) {
        for (i, line) in matrix.iter_mut().enumerate() {
            let scaled = weight * row[i];
            line.iter_mut().zip(row).take(i + 1).for_each(|(sum, number)| *sum += scaled * number);
        }
    }
    (0..width - 1).for_each(|i| matrix[i][i] += penalty);
    matrix
}

/// `sum of factor(row) x`.
fn sums(rows: &[Vec<f64>], factor: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; rows[0].len()];
    for (i, row) in rows.iter().enumerate() {
        let factor = factor(i);
        sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += factor * number);
    }
    sums
}

/// Solves `matrix x = right` for a positive definite matrix, of which the lower half is read: by Cholesky's decomposition.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let width = right.len();
    for i in 0..width {
        for j in 0..=i {
            let done: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
            let rest = matrix[i][j] - done;
            // Rounding alone makes a pivot of a penalised matrix no longer positive.
            matrix[i][j] = if i == j {
                rest.max(f64::EPSILON * matrix[i][i]).max(f64::MIN_POSITIVE).sqrt()
            } else {
                rest / matrix[j][j]
            };
        }
    }
    for (i, line) in matrix.iter().enumerate() {
        let done: f64 = line[..i].iter().zip(&right).map(|(number, found)| number * found).sum();
        right[i] = (right[i] - done) / line[i];
    }
    for i in (0..width).rev() {
        let done: f64 = (i + 1..width).map(|k| matrix[k][i] * right[k]).sum();
        right[i] = (right[i] - done) / matrix[i][i];
    }
    right
}

/// Logistic regression by Newton's method, each step halved until the loss falls.
fn newton(rows: &[Vec<f64>], labels: &[bool], penalty: f64) -> Vec<f64> {
    let mut weights = vec![0.0; rows[0].len()];
    for _ in 0..STEPS {
        let change = step(rows, labels, &weights, penalty);
        let before = loss(rows, labels, &weights, penalty);
        let halved = (0..STEPS as i32).map(|halving| 0.5f64.powi(halving));
        let mut tried = halved.map(|size| weights.iter().zip(&change).map(|(weight, by)| weight - size * by).collect());
        let Some(next) = tried.find(|next: &Vec<f64>| loss(rows, labels, next, penalty) <= before) else { break };
        let ends = is_still(&next, &weights);
        weights = next;
        if ends {
            break;
        }
    }
    weights
}

/// Whether no weight moved. One that is no number has not come to rest.
fn is_still(next: &[f64], weights: &[f64]) -> bool {
    next.iter().zip(weights).all(|(a, b)| (a - b).abs() < STILL)
}

/// The gradient, by the inverse of the second derivative.
fn step(rows: &[Vec<f64>], labels: &[bool], weights: &[f64], penalty: f64) -> Vec<f64> {
    let chances: Vec<f64> = rows.iter().map(|row| 1.0 / (1.0 + (-dot(weights, row)).exp())).collect();
    let mut gradient = sums(rows, |row| chances[row] - f64::from(u8::from(labels[row])));
    let bias = gradient.len() - 1;
    gradient[..bias].iter_mut().zip(weights).for_each(|(slope, weight)| *slope += penalty * weight);
    // A chance of 0 or 1 to the last digit has no curvature.
    let curvature: Vec<f64> = chances.iter().map(|chance| (chance * (1.0 - chance)).max(1e-12)).collect();
    solve(moments(rows, &curvature, penalty), gradient)
}

/// `sum of ln(1 + exp(-sign score))`, and the penalty.
fn loss(rows: &[Vec<f64>], labels: &[bool], weights: &[f64], penalty: f64) -> f64 {
    let of_row = |(row, label): (&Vec<f64>, &bool)| {
        let score = if *label { dot(weights, row) } else { -dot(weights, row) };
        (-score.abs()).exp().ln_1p() + (-score).max(0.0)
    };
    let squares: f64 = weights[..weights.len() - 1].iter().map(|weight| weight * weight).sum();
    rows.iter().zip(labels).map(of_row).sum::<f64>() + penalty / 2.0 * squares
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use firelight_kernels::assert_close;

    fn column(numbers: [f32; 4]) -> Tensor<2> {
        Tensor::<1>::from_floats(numbers, &Device::default()).reshape([4, 1])
    }

    #[test]
    fn a_ridge_on_a_line_is_that_of_the_book() {
        // x = -1, -1, 1, 1 with the mean 0; the classes' numbers 1, 1, 0, 0: slope sum(x y) / (sum(x²) + penalty) = -2 / (4 + 1), bias 1/2.
        let probe = LinearProbe::ridge(column([-1.0, -1.0, 1.0, 1.0]), &[0, 0, 1, 1], 1.0).expect("it fits");
        assert_close(&probe.classes[0], &[-0.4, 0.5], 1e-12);
        assert_close(&probe.classes[1], &[0.4, 0.5], 1e-12);
    }

    #[test]
    fn newton_ends_where_the_gradient_does() {
        let x = column([-2.0, -0.5, 0.7, 1.5]);
        let labels = [0, 1, 0, 1]; // Not separable.
        let probe = LinearProbe::logistic(x.clone(), &labels, 0.1).expect("it fits");
        let (rows, is_one) = (rows(x), [false, true, false, true]);
        let weights = &probe.classes[1];
        let around = |i: usize, by: f64| {
            let mut moved = weights.clone();
            moved[i] += by;
            loss(&rows, &is_one, &moved, 0.1)
        };
        for i in 0..2 {
            let slope = (around(i, 1e-5) - around(i, -1e-5)) / 2e-5;
            assert!(slope.abs() < 1e-6, "{slope:e}");
        }
        assert!(weights[0] > 0.0, "larger numbers are more often of class 1: {weights:?}");
    }

    #[test]
    fn weights_that_are_no_numbers_are_not_at_rest() {
        assert!(is_still(&[1.0, 2.0], &[1.0, 2.0 + 1e-10]));
        assert!(!is_still(&[1.0, 2.0], &[1.0, 2.0 + 1e-8]));
        assert!(!is_still(&[1.0, f64::NAN], &[1.0, 2.0]));
        assert!(!is_still(&[1.0, f64::INFINITY], &[1.0, f64::INFINITY]));
    }

    #[test]
    fn classes_that_a_line_divides_are_told_apart() {
        let x = Tensor::<2>::from_floats(
            [[0.0, 3.0], [0.5, 2.0], [2.0, 0.0], [3.0, 0.5], [-2.0, -2.0], [-3.0, -1.0]],
            &Device::default(),
        );
        let labels = [0, 0, 1, 1, 2, 2];
        for probe in [LinearProbe::ridge(x.clone(), &labels, 0.01), LinearProbe::logistic(x.clone(), &labels, 0.01)] {
            assert_eq!(probe.expect("it fits").accuracy(x.clone(), &labels), 1.0);
        }
    }

    #[test]
    fn what_does_not_fit_is_listed() {
        let error = LinearProbe::ridge(column([0.0; 4]), &[0, 1], 0.0).expect_err("two labels and no penalty");
        assert_eq!(
            ConfigError::list(Err(error)),
            ["labels = 2 of them must be one for each of 4 rows", "penalty = 0 must be above 0"]
        );
    }
}
