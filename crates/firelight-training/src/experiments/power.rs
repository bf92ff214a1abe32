//! Power laws of one size: how time or memory grows with a length.

use firelight_storage::InputError;
use serde::Serialize;

/// Quantiles of Student's t distribution for 1 to 10 degrees of freedom: 95 % lie between each and its negative.
const QUANTILES: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// `y = c x^p`: the straight line of least squares through points on logarithmic axes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PowerFit {
    /// `c`, in the unit of `y`: the value of the line at `x = 1`.
    pub coefficient: f64,
    /// `p`, the slope of the line.
    pub exponent: f64,
    /// The ends of the 95 % confidence interval of the exponent, by the distances of the points from the line; none for two points, which
    /// every line passes through.
    pub interval: Option<[f64; 2]>,
}

impl PowerFit {
    /// Fits points `(x, y)`.
    ///
    /// The interval is that of a slope whose errors are normal (Draper and Smith 1998, Applied Regression Analysis, section 1.4). For more than
    /// 12 points it is a little wider than that.
    ///
    /// # Errors
    /// If there are no two different `x`, or a number is not above 0.
    ///
    /// # Example
    ///
    /// ```
    /// use firelight_training::experiments::PowerFit;
    ///
    /// let seconds = [(1024.0, 0.5), (2048.0, 2.0), (4096.0, 8.0)]; // four times the time for twice the length
    /// let fit = PowerFit::of(&seconds).unwrap();
    /// assert!((fit.exponent - 2.0).abs() < 1e-9);
    /// ```
    pub fn of(points: &[(f64, f64)]) -> Result<Self, InputError> {
        check(points)?;
        let points: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let exponent = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
        let residual = |point: &(f64, f64)| point.1 - y - exponent * (point.0 - x);
        let squares: f64 = points.iter().map(|point| residual(point).powi(2)).sum();
        let interval = half_width(points.len(), squares, spread).map(|half| [exponent - half, exponent + half]);
        Ok(Self { coefficient: (y - exponent * x).exp(), exponent, interval })
    }
}

/// # Errors
/// If no line goes through the logarithms of the points.
fn check(points: &[(f64, f64)]) -> Result<(), InputError> {
    let is_fit = |number: f64| number.is_finite() && number > 0.0;
    if let Some((x, y)) = points.iter().find(|(x, y)| !is_fit(*x) || !is_fit(*y)) {
        return Err(InputError::new(format!("a power law is of numbers above 0, and a point is ({x}, {y})")));
    }
    if points.iter().all(|point| point.0 == points[0].0) {
        let text =
            format!("a power law takes points at 2 different sizes or more, and all {} are at one", points.len());
        return Err(InputError::new(text).advise("measure more sizes"));
    }
    Ok(())
}

/// Half the interval of a slope, by the sum of the squares of the residuals and that of the distances from the mean size.
fn half_width(points: usize, squares: f64, spread: f64) -> Option<f64> {
    let freedom = points.saturating_sub(2);
    let quantile = QUANTILES.get(freedom.checked_sub(1)?.min(QUANTILES.len() - 1))?;
    Some(quantile * (squares / freedom as f64 / spread).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_law_is_recovered_from_exact_points() {
        for (coefficient, exponent) in [(3.0, 2.0), (0.25, 1.0), (7.0, 0.0), (2.0, -0.5)] {
            let point = |x: f64| (x, coefficient * x.powf(exponent));
            let fit = PowerFit::of(&[256.0, 512.0, 1024.0, 4096.0].map(point)).unwrap();
            assert!((fit.exponent - exponent).abs() < 1e-9, "{fit:?}");
            assert!((fit.coefficient / coefficient - 1.0).abs() < 1e-9, "{fit:?}");
            let [low, high] = fit.interval.unwrap();
            assert!(low <= fit.exponent && fit.exponent <= high && high - low < 1e-6, "{fit:?}");
        }
    }

    /// Residuals of d (1, -2, 1) change neither the mean nor the slope. The sum of their squares is 6 d², that of the distances of
    /// -1, 0 and 1 is 2, and one degree of freedom is left: half the interval is 12.706 sqrt(3) d.
    #[test]
    fn the_interval_is_that_of_a_slope_by_hand() {
        let d = 0.01;
        let point = |(x, error): (f64, f64)| (x.exp(), (2.0 * x + error * d).exp());
        let fit = PowerFit::of(&[(-1.0, 1.0), (0.0, -2.0), (1.0, 1.0)].map(point)).unwrap();
        assert!((fit.exponent - 2.0).abs() < 1e-9 && (fit.coefficient - 1.0).abs() < 1e-9, "{fit:?}");
        let [low, high] = fit.interval.unwrap();
        assert!((high - 2.0 - 0.220_074).abs() < 1e-5 && (low + high - 4.0).abs() < 1e-9, "{fit:?}");
    }

    #[test]
    fn noisy_points_give_an_exponent_within_its_interval() {
        let point = |index: i32| {
            let (x, noise) = (2_f64.powi(index), 1.0 + 0.05 * (7.3 * f64::from(index)).sin());
            (x, 4.0 * noise * x.powf(1.5))
        };
        let fit = PowerFit::of(&(6..14).map(point).collect::<Vec<_>>()).unwrap();
        let [low, high] = fit.interval.unwrap();
        assert!(low < 1.5 && 1.5 < high && high - low < 0.1, "{fit:?}");
        assert!(high - low > 1e-3, "{fit:?}");
    }

    #[test]
    fn two_points_have_no_interval_and_many_the_last_quantile() {
        let fit = PowerFit::of(&[(1.0, 5.0), (2.0, 10.0)]).unwrap();
        assert!((fit.exponent - 1.0).abs() < 1e-12 && fit.interval.is_none(), "{fit:?}");
        // Of 14 points 12 degrees of freedom are left: sqrt(12 / 12 / 1) times the quantile of 10.
        assert_eq!(half_width(14, 12.0, 1.0), Some(2.228));
        assert_eq!([half_width(2, 1.0, 1.0), half_width(0, 0.0, 1.0)], [None, None]);
    }

    #[test]
    fn points_without_a_line_are_refused() {
        let message = |points: &[(f64, f64)]| PowerFit::of(points).unwrap_err().to_string();
        assert!(message(&[(1.0, 2.0), (2.0, 0.0)]).contains("numbers above 0, and a point is (2, 0)"));
        assert!(message(&[(1.0, f64::NAN), (2.0, 1.0)]).contains("numbers above 0"));
        assert!(message(&[(8.0, 1.0), (8.0, 2.0)]).contains("2 different sizes or more, and all 2 are at one"));
        assert!(message(&[]).contains("all 0 are at one"));
    }
}
