//! A step of a training and one of an evaluation: their passes, and what they minimise and report.

use std::array;

use burn::tensor::Tensor;
use firelight_core::{AuxiliaryLosses, LossConfig, Pass, TokenLoss};
use firelight_training::{LossOutput, Switches, TrainLoss};

/// The pass of an evaluation, as the switches ask for it.
pub fn plain_pass<'a>(switches: Switches) -> Pass<'a> {
    Pass::default().with_precision(switches.dtype)
}

/// The pass of a training step, as the switches ask for it.
pub fn train_pass<'a>(switches: Switches) -> Pass<'a> {
    plain_pass(switches).with_recomputation(switches.recompute_blocks)
}

/// A training step of one pass or of several, such as those of encoder and decoder: `losses` makes the mean that is minimised and what
/// is reported. With experts, their load balance in every pass is minimised beside it.
pub fn train_step<const N: usize>(
    switches: Switches,
    load_balance: f64,
    losses: impl FnOnce([&mut Pass; N]) -> (Tensor<1>, LossOutput),
) -> TrainLoss {
    let mut auxiliary: [AuxiliaryLosses; N] = array::from_fn(|_| AuxiliaryLosses::default());
    let mut passes = auxiliary.each_mut().map(|losses| train_pass(switches).with_losses(losses));
    let (mean, reported) = losses(passes.each_mut());
    let minimised = auxiliary.iter().fold(mean, |sum, own| own.added_to(sum, load_balance));
    TrainLoss { minimised, reported }
}

/// What a training step on tokens minimises, their mean loss, and what it reports: the plain cross-entropy, so that training and
/// evaluation report the same quantity, and beside it the loss that `config` minimises, where that is another one.
pub fn token_step(loss: TokenLoss, config: &LossConfig) -> (Tensor<1>, LossOutput) {
    let (mean, training_total) = (loss.mean(), (!config.is_plain()).then(|| loss.total.clone()));
    (mean, token_report(loss).with_training_total(training_total))
}

/// What an evaluation on tokens reports: the plain cross-entropy.
pub fn token_report(loss: TokenLoss) -> LossOutput {
    LossOutput::new(loss.cross_entropy, loss.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn number(tensor: &Tensor<1>) -> f64 {
        tensor.clone().into_scalar::<f64>()
    }

    fn loss(total: f32) -> TokenLoss {
        let tensor = |value: f32| Tensor::from_floats([value], &Device::default());
        TokenLoss { total: tensor(total), cross_entropy: tensor(6.0), count: tensor(4.0) }
    }

    #[test]
    fn a_step_minimises_its_mean_and_reports_the_plain_loss() {
        let step = |config: LossConfig, total: f32| {
            train_step(Switches::default(), 0.01, |[_]| token_step(loss(total), &config))
        };
        let plain = step(LossConfig::default(), 6.0);
        assert_eq!((number(&plain.minimised), number(&plain.reported.total)), (1.5, 6.0));
        assert!(plain.reported.training_total.is_none());
        let smoothed = step(LossConfig::default().with_label_smoothing(0.1), 8.0);
        assert_eq!((number(&smoothed.minimised), number(&smoothed.reported.total)), (2.0, 6.0));
        assert_eq!(smoothed.reported.training_total.as_ref().map(number), Some(8.0));
    }
}
