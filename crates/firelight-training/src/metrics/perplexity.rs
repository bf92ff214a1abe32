//! Perplexity, exact over an epoch: the exponential of the mean loss, not a mean of exponentials.

use super::mean_loss::{LossScale, MeanLoss};

/// `exp(sum of losses / number of targets)`: among how many equally likely targets the model hesitates. Lower is better.
pub type Perplexity = MeanLoss<Exponential>;

/// The scale of [`Perplexity`].
#[derive(Clone, Copy, Debug)]
pub struct Exponential;

impl LossScale for Exponential {
    const NAME: &'static str = "Perplexity";
    const DESCRIPTION: &'static str = "exp of the mean loss over all counted targets";

    fn value(nats: f64) -> f64 {
        nats.exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LossOutput;
    use burn::data::dataloader::Progress;
    use burn::tensor::{Device, Tensor};
    use burn::train::metric::{Metric, MetricMetadata, Numeric};

    #[test]
    fn the_epoch_is_the_exponential_of_the_mean() {
        let metadata = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
        let mut metric = Perplexity::new();
        for (total, count) in [(2_f32.ln(), 1.0), (3.0 * 8_f32.ln(), 3.0)] {
            let number = |value| Tensor::from_floats([value], &Device::default());
            metric.update(&LossOutput::new(number(total), number(count)), &metadata).unwrap();
        }
        // (ln 2 + 3 ln 8) / 4 = 10 ln 2 / 4, and 2^2.5 = 5.657.
        assert!((metric.final_value().current() - 2_f64.powf(2.5)).abs() < 1e-5);
        assert!((Numeric::value(&metric).unwrap().current() - 8.0).abs() < 1e-5);
        assert_eq!(metric.compute().unwrap().formatted, "epoch 5.657 - batch 8.000");
    }
}
