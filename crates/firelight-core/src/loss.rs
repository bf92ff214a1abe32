//! The loss of token predictions: cross-entropy in nats, the mean over counted tokens only.

use crate::error::{Checks, ConfigError};
use burn::tensor::{Bool, Int, Tensor};
use firelight_kernels::{CrossEntropyOptions, cross_entropy};
use serde::{Deserialize, Serialize};

/// How predictions are charged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Share of the probability spread over all tokens, in `[0, 1)`. Default: 0.
    pub label_smoothing: f64,
    /// Weight of the [load balance](crate::AuxiliaryLosses::load_balance) of models with experts. Default: 0.01, as
    /// Fedus et al. 2022, §2.2.
    pub load_balance: f64,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self { label_smoothing: 0.0, load_balance: 0.01 }
    }
}

/// A loss as sum and count, so that the mean over many batches weighs every token alike.
#[derive(Debug, Clone)]
pub struct TokenLoss {
    /// Sum over the counted tokens, in nats: `[1]`.
    pub total: Tensor<1>,
    /// Number of counted tokens: `[1]`.
    pub count: Tensor<1>,
}

impl TokenLoss {
    /// The mean over the counted tokens, `[1]`; 0 where none counts.
    pub fn mean(&self) -> Tensor<1> {
        self.total.clone() / self.count.clone().clamp_min(1.0)
    }
}

impl LossConfig {
    /// Plain cross-entropy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the label smoothing.
    pub fn with_label_smoothing(mut self, label_smoothing: f64) -> Self {
        self.label_smoothing = label_smoothing;
        self
    }

    /// Sets the weight of the load balance.
    pub fn with_load_balance(mut self, load_balance: f64) -> Self {
        self.load_balance = load_balance;
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Checks::default()
            .rate("loss.label_smoothing", self.label_smoothing)
            .require(self.load_balance >= 0.0 && self.load_balance.is_finite(), || {
                format!("loss.load_balance = {} must be at least 0", self.load_balance)
            })
            .finish()
    }

    /// Charges every target that is not ignored.
    ///
    /// # Shapes
    /// - `logits`: `[B, T, V]`, `targets`: `[B, T]`, `ignored`: `[B, T]`, true where a target does not count
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn forward(&self, logits: Tensor<3>, targets: Tensor<2, Int>, ignored: Option<Tensor<2, Bool>>) -> TokenLoss {
        let [batch, seq_len, vocab_size] = logits.dims();
        let rows = batch * seq_len;
        let ignored = ignored.map(|ignored| ignored.reshape([rows]));
        let count = match &ignored {
            Some(ignored) => ignored.clone().bool_not().float().sum(),
            None => Tensor::full([1], rows as f64, &logits.device()),
        };
        let options = CrossEntropyOptions::default().with_ignored(ignored).with_label_smoothing(self.label_smoothing);
        let losses = cross_entropy(logits.reshape([rows, vocab_size]), targets.reshape([rows]), &options);
        TokenLoss { total: losses.sum(), count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution};

    #[test]
    fn only_counted_tokens_enter_the_mean() {
        let device = Device::default();
        let logits = Tensor::<3>::random([1, 3, 4], Distribution::Default, &device);
        let targets = Tensor::<2, Int>::from_ints([[1, 2, -1]], &device);
        let ignored = Tensor::<2, Bool>::from_bool([[false, false, true]], &device);
        let loss = LossConfig::default();
        let whole = loss.forward(logits.clone(), targets.clone(), Some(ignored)).mean().into_scalar::<f32>();
        let part = loss.forward(logits.slice([0..1, 0..2]), targets.slice([0..1, 0..2]), None);
        let part = part.mean().into_scalar::<f32>();
        assert!((whole - part).abs() < 1e-6);
    }

    #[test]
    fn nothing_counted_costs_nothing() {
        let device = Device::default();
        let ignored = Tensor::<2, Bool>::from_bool([[true, true]], &device);
        let loss = LossConfig::default().with_label_smoothing(0.1);
        let loss = loss.forward(Tensor::zeros([1, 2, 3], &device), Tensor::zeros([1, 2], &device), Some(ignored));
        assert_eq!(loss.mean().into_scalar::<f32>(), 0.0);
    }
}
