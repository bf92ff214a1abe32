//! Dropout in training, by Burn's own [`Dropout`], which knows whether it trains, and the operation of `firelight-kernels`.
//! The one place that asks whether something is to be dropped.

use burn::nn::Dropout;
use burn::tensor::{Device, Tensor};

/// The rate in force: 0 outside training, by the same rule as Burn's own.
pub(crate) fn rate(dropout: &Dropout, device: &Device) -> f64 {
    if is_training(dropout, device) { dropout.prob } else { 0.0 }
}

/// Whether a module that holds `dropout` is being trained.
pub(crate) fn is_training(dropout: &Dropout, device: &Device) -> bool {
    dropout.training.is_enabled() && device.is_autodiff()
}

/// Drops numbers in training, at the rate of `dropout`; outside of it nothing happens.
///
/// # Shapes
/// - any; the output has the shape of `x`
pub fn drop<const D: usize>(dropout: &Dropout, x: Tensor<D>) -> Tensor<D> {
    let rate = rate(dropout, &x.device());
    firelight_kernels::dropout(x, rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;
    use burn::nn::DropoutConfig;

    #[test]
    fn numbers_are_dropped_in_training_alone() {
        let (device, dropout) = (Device::default(), DropoutConfig::new(0.5).init());
        let dropped = |dropout: &Dropout, device: &Device| {
            let output = drop(dropout, Tensor::<2>::ones([20, 50], device)).into_data();
            output.iter::<f32>().filter(|&x| x == 0.0).count()
        };
        assert!((400..600).contains(&dropped(&dropout, &device.clone().autodiff())));
        assert_eq!(dropped(&dropout, &device), 0);
        assert_eq!(dropped(&dropout.freeze(), &device.autodiff()), 0);
    }
}
