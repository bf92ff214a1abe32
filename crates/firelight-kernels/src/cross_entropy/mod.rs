//! Softmax cross-entropy over rows of logits, with ignored rows and label smoothing.
//!
//! Source: label smoothing as Szegedy et al. 2016, §7 (<https://arxiv.org/abs/1512.00567>), in the form of PyTorch:
//! the smoothed distribution gives `1 - a` to the target and spreads `a` evenly over all classes, the target included.

mod reference;

use burn::tensor::{Bool, Int, Tensor};

/// Which rows count, and how far the targets are smoothed. The default counts every row and smooths nothing.
#[derive(Debug, Clone, Default)]
pub struct CrossEntropyOptions {
    /// `[N]`, true where a row is ignored: its loss and its gradient are 0, whatever its target says.
    pub ignored: Option<Tensor<1, Bool>>,
    /// Share `a` of the probability spread over all classes; in `[0, 1)`.
    pub label_smoothing: f64,
}

impl CrossEntropyOptions {
    /// Ignores rows, `[N]`.
    pub fn with_ignored(mut self, ignored: Option<Tensor<1, Bool>>) -> Self {
        self.ignored = ignored;
        self
    }

    /// Smooths the targets.
    pub fn with_label_smoothing(mut self, label_smoothing: f64) -> Self {
        self.label_smoothing = label_smoothing;
        self
    }
}

/// The loss of every row in nats: `(1 - a) (-log p(target)) + a mean_v(-log p(v))`.
///
/// # Shapes
/// - `logits`: `[N, V]`, `targets`: `[N]`; output: `[N]`
///
/// # Panics
/// If the number of rows differs, or `label_smoothing` is outside `[0, 1)`.
pub fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>, options: &CrossEntropyOptions) -> Tensor<1> {
    let rows = logits.dims()[0];
    assert!(
        targets.dims()[0] == rows && options.ignored.as_ref().is_none_or(|ignored| ignored.dims()[0] == rows),
        "cross_entropy: {rows} rows of logits need as many targets and flags, found {}",
        targets.dims()[0]
    );
    assert!(
        (0.0..1.0).contains(&options.label_smoothing),
        "cross_entropy: label smoothing {} is not in [0, 1)",
        options.label_smoothing
    );
    reference::cross_entropy(logits, targets, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, TensorData, Tolerance};

    #[test]
    fn losses_by_hand() {
        // Two classes with odds 3 : 1: -ln .75 = .287682 and -ln .25 = 1.386294.
        let device = Device::default();
        let logits = Tensor::<2>::from_floats([[3f32.ln(), 0.0], [3f32.ln(), 0.0]], &device);
        let targets = Tensor::<1, Int>::from_ints([0, 1], &device);
        let plain = cross_entropy(logits.clone(), targets.clone(), &CrossEntropyOptions::default()).into_data();
        plain.assert_approx_eq::<f32>(&TensorData::from([0.287682f32, 1.386294]), Tolerance::absolute(1e-5));
        // Smoothed by .2: .8 of the above plus .2 of the mean .836988.
        let options = CrossEntropyOptions::default().with_label_smoothing(0.2);
        let smoothed = cross_entropy(logits, targets, &options).into_data();
        smoothed.assert_approx_eq::<f32>(&TensorData::from([0.397543f32, 1.276433]), Tolerance::absolute(1e-5));
    }

    #[test]
    fn an_ignored_row_costs_nothing_whatever_its_target() {
        let device = Device::default().autodiff();
        let logits = Tensor::<2>::random([2, 3], Distribution::Default, &device).require_grad();
        let targets = Tensor::<1, Int>::from_ints([-100, 1], &device);
        let ignored = Tensor::<1, Bool>::from_bool([true, false], &device);
        let options = CrossEntropyOptions::default().with_ignored(Some(ignored)).with_label_smoothing(0.1);
        let losses = cross_entropy(logits.clone(), targets, &options);
        let gradient = logits.grad(&losses.clone().sum().backward()).expect("logits require a gradient");
        assert_eq!(losses.narrow(0, 0, 1).into_scalar::<f32>(), 0.0);
        assert_eq!(gradient.clone().narrow(0, 0, 1).abs().max().into_scalar::<f32>(), 0.0);
        // The gradient of a counted row is softmax minus target and sums to 0.
        assert!(gradient.narrow(0, 1, 1).sum().into_scalar::<f32>().abs() < 1e-6);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let device = Device::default();
        let logits = Tensor::<2>::from_floats([[1e4, 0.0]], &device);
        let losses = cross_entropy(logits, Tensor::from_ints([1], &device), &CrossEntropyOptions::default());
        assert_eq!(losses.into_scalar::<f32>(), 1e4);
    }
}
