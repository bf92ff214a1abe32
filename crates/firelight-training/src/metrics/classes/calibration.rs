//! Whether probabilities mean what they say: of the predictions made with a confidence of 80 %, 80 % should be right. Source:
//! Guo et al. 2017, On calibration of modern neural networks, eq. 2 and 3.

use super::likeliest;

/// Number of equally wide bins of confidence, as in the paper's experiments.
pub const CALIBRATION_BINS: usize = 15;

/// The expected calibration error: the mean distance of accuracy and confidence over bins of the confidence, each with the
/// weight of its examples. A bin holds its upper end.
///
/// # Panics
/// Panics if there are fewer targets than rows of `probabilities`, or if a row is empty.
pub fn calibration_error(probabilities: &[Vec<f64>], targets: &[usize]) -> f64 {
    let mut surplus = [0.0; CALIBRATION_BINS];
    for (row, target) in probabilities.iter().zip(targets) {
        let prediction = likeliest(row);
        surplus[bin(row[prediction])] += row[prediction] - f64::from(u8::from(prediction == *target));
    }
    surplus.iter().map(|sum| sum.abs()).sum::<f64>() / probabilities.len().max(1) as f64
}

fn bin(confidence: f64) -> usize {
    let above = (confidence * CALIBRATION_BINS as f64).ceil() as usize;
    above.clamp(1, CALIBRATION_BINS) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_their_upper_end() {
        assert_eq!([0.0, 0.01, 1.0 / 15.0, 0.07, 0.5, 1.0].map(bin), [0, 0, 0, 1, 7, 14]);
    }

    #[test]
    fn overconfidence_by_hand() {
        // 0.9 twice, once right: a mean confidence of 0.9 with an accuracy of 0.5. And 0.6 once, right.
        let rows = [vec![0.9, 0.1], vec![0.1, 0.9], vec![0.6, 0.4]];
        let expected = (2.0 * 0.4 + 0.4) / 3.0;
        assert!((calibration_error(&rows, &[0, 0, 0]) - expected).abs() < 1e-15);
        assert_eq!(calibration_error(&[vec![0.0, 1.0]], &[1]), 0.0);
    }
}
