//! The loss in bits, which tells how far a text could be compressed with the model.

use super::mean_loss::{LossScale, MeanLoss};

/// `sum of losses / (number of targets * ln 2)`. Lower is better.
pub type BitsPerToken = MeanLoss<Bits>;

/// The scale of [`BitsPerToken`].
#[derive(Clone, Copy, Debug)]
pub struct Bits;

impl LossScale for Bits {
    const NAME: &'static str = "Bits per token";
    const DESCRIPTION: &'static str = "mean loss over all counted targets, in bits";

    fn value(nats: f64) -> f64 {
        nats / std::f64::consts::LN_2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_equally_likely_targets_are_three_bits() {
        assert!((Bits::value(8_f64.ln()) - 3.0).abs() < 1e-12);
    }
}
