//! The loss of token predictions: cross-entropy in nats, the mean over counted tokens only.
//!
//! Sources: label smoothing Szegedy et al. 2016, §7 (<https://arxiv.org/abs/1512.00567>); z-loss `z log² Z` with
//! `Z = Σ_v exp(logit_v)` Chowdhery et al. 2022, §5 (<https://arxiv.org/abs/2204.02311>), who take `z = 1e-4`: it keeps the
//! softmax's normaliser near 1, which the cross-entropy leaves free to drift.

use crate::error::{Checks, ConfigError};
use crate::head::LazyLogits;
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor};
use firelight_kernels::{CrossEntropyOptions, cross_entropy, linear_cross_entropy};
use serde::{Deserialize, Serialize};

/// Logits whose loss is computed at once where nothing is differentiated: 16 MiB in single precision, which the caches
/// of a CPU hold and a GPU is busy with.
const CHUNK: usize = 1 << 22;

/// How the loss of predictions is computed.
#[doc(alias = "label smoothing")]
#[doc(alias = "z-loss")]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Share of the probability spread over all tokens, in `[0, 1)`. Default: 0.
    pub label_smoothing: f64,
    /// Factor of the z-loss, the squared logarithm of the softmax's normaliser, added for every counted token; PaLM uses 1e-4. Default: 0.
    pub z_loss: f64,
    /// Weight of the [load balance](crate::AuxiliaryLosses::load_balance) of models with experts. Default: 0.01, as
    /// Fedus et al. 2022, §2.2.
    pub load_balance: f64,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self { label_smoothing: 0.0, z_loss: 0.0, load_balance: 0.01 }
    }
}

/// A loss as sum and count, so that the mean over many batches weights every token equally.
#[derive(Debug, Clone)]
pub struct TokenLoss {
    /// Sum over the counted tokens, in nats: `[1]`.
    pub total: Tensor<1>,
    /// Sum of the plain cross-entropy over the counted tokens, without smoothing and z-loss, in nats: `[1]`. To report: it
    /// has no gradient.
    pub cross_entropy: Tensor<1>,
    /// Number of counted tokens: `[1]`.
    pub count: Tensor<1>,
}

impl TokenLoss {
    /// The mean over the counted tokens, `[1]`; 0 where none counts.
    pub fn mean(&self) -> Tensor<1> {
        self.total.clone() / self.count.clone().clamp_min(1.0)
    }

    /// The mean of the plain cross-entropy, `[1]`: its exponential is the perplexity, whatever the training minimises.
    pub fn mean_cross_entropy(&self) -> Tensor<1> {
        self.cross_entropy.clone() / self.count.clone().without_autodiff().clamp_min(1.0)
    }
}

/// Makes sure that every prediction has its target: other shapes, reshaped, would pair predictions with wrong targets.
fn check_shapes(predictions: [usize; 2], targets: &Tensor<2, Int>, ignored: Option<&Tensor<2, Bool>>) {
    let check = |name: &str, found: [usize; 2]| {
        assert!(found == predictions, "{name} {found:?} are not [B, T] of the predictions {predictions:?}");
    };
    check("targets", targets.dims());
    ignored.into_iter().for_each(|ignored| check("ignored", ignored.dims()));
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

    /// Sets the factor of the z-loss.
    pub fn with_z_loss(mut self, z_loss: f64) -> Self {
        self.z_loss = z_loss;
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
        let weight = |checks: Checks, field: &str, value: f64| {
            checks.require(value >= 0.0 && value.is_finite(), || format!("loss.{field} = {value} must be at least 0"))
        };
        let checks = Checks::default().rate("loss.label_smoothing", self.label_smoothing);
        weight(weight(checks, "z_loss", self.z_loss), "load_balance", self.load_balance).finish()
    }

    /// Whether the loss is the cross-entropy alone.
    pub fn is_plain(&self) -> bool {
        self.init().is_plain()
    }

    /// The loss with these settings.
    pub fn init(&self) -> TokenCriterion {
        TokenCriterion { label_smoothing: self.label_smoothing, z_loss: self.z_loss }
    }
}

/// The loss of token predictions.
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use firelight_core::LossConfig;
///
/// let device = Device::flex();
/// let targets = Tensor::<2, Int>::from_ints([[1, 3]], &device);
/// let loss = LossConfig::new().init().forward(Tensor::zeros([1, 2, 4], &device), targets, None);
/// assert!((loss.mean().into_scalar::<f32>() - 4.0_f32.ln()).abs() < 1e-6); // All four tokens are as likely.
/// ```
#[doc(alias = "CrossEntropyLoss")]
#[derive(Module, Debug)]
pub struct TokenCriterion {
    label_smoothing: f64,
    z_loss: f64,
}

impl TokenCriterion {
    fn is_plain(&self) -> bool {
        self.label_smoothing == 0.0 && self.z_loss == 0.0
    }

    /// Computes the loss over every target that is not ignored.
    ///
    /// # Shapes
    /// - `logits`: `[B, T, V]`, `targets`: `[B, T]`, `ignored`: `[B, T]`, true where a target does not count
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn forward(&self, logits: Tensor<3>, targets: Tensor<2, Int>, ignored: Option<Tensor<2, Bool>>) -> TokenLoss {
        let [batch, seq_len, vocab_size] = logits.dims();
        check_shapes([batch, seq_len], &targets, ignored.as_ref());
        let rows = batch * seq_len;
        let ignored = ignored.map(|ignored| ignored.reshape([rows]));
        let count = count(rows, ignored.as_ref(), &logits.device());
        let rows = Rows { logits: logits.reshape([rows, vocab_size]), targets: targets.reshape([rows]), ignored };
        let [total, cross_entropy] = self.loss_sums_in_chunks(rows, (CHUNK / vocab_size.max(1)).max(1));
        TokenLoss { total, cross_entropy, count }
    }

    /// [`forward`](Self::forward) of the logits of a head, which are never held as a whole where they are many and the loss is
    /// [plain](LossConfig::is_plain): with a large vocabulary they are the largest tensor of a training.
    ///
    /// # Shapes
    /// - `logits`: `[B, T, V]` once formed, `targets`: `[B, T]`, `ignored`: `[B, T]`
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn forward_head(
        &self,
        logits: LazyLogits,
        targets: Tensor<2, Int>,
        ignored: Option<Tensor<2, Bool>>,
    ) -> TokenLoss {
        if !self.is_plain() {
            return self.forward(logits.form(), targets, ignored);
        }
        let LazyLogits { hidden, map } = logits;
        let [batch, seq_len, _] = hidden.dims();
        check_shapes([batch, seq_len], &targets, ignored.as_ref());
        let rows = batch * seq_len;
        let ignored = ignored.map(|ignored| ignored.reshape([rows]));
        let count = count(rows, ignored.as_ref(), &hidden.device());
        let (hidden, targets) = (hidden.flatten::<2>(0, 1), targets.reshape([rows]));
        let losses = linear_cross_entropy(hidden, &map, targets, &CrossEntropyOptions::default().with_ignored(ignored));
        let total = losses.sum();
        TokenLoss { cross_entropy: total.clone().without_autodiff(), total, count }
    }

    /// As [`loss_sums`](Self::loss_sums), `size` rows at a time where nothing is differentiated, so that the
    /// temporaries of one chunk alone take memory. A gradient is as large as the logits themselves: with one, all rows go
    /// at once.
    fn loss_sums_in_chunks(&self, rows: Rows, size: usize) -> [Tensor<1>; 2] {
        let [length, _] = rows.logits.dims();
        if length <= size || rows.logits.is_autodiff() {
            return self.loss_sums(rows);
        }
        let chunks = (0..length).step_by(size).map(|start| rows.narrow(start, size.min(length - start)));
        let sums: Vec<_> = chunks.map(|chunk| self.loss_sums(chunk)).collect();
        [0, 1].map(|i| Tensor::cat(sums.iter().map(|sums| sums[i].clone()).collect(), 0).sum())
    }

    /// The sums over all rows, `[1]` each: the loss, and the plain cross-entropy without a gradient.
    fn loss_sums(&self, rows: Rows) -> [Tensor<1>; 2] {
        let smooth = self.label_smoothing != 0.0;
        // With smoothing alone the plain losses are only reported and need no graph.
        let plain = if smooth && self.z_loss == 0.0 { rows.constant().losses(0.0) } else { rows.losses(0.0) };
        let reported = plain.clone().without_autodiff().sum();
        let mut losses = if smooth { rows.losses(self.label_smoothing) } else { plain.clone() };
        if self.z_loss != 0.0 {
            losses = losses + rows.log_normalizers(plain).square() * self.z_loss;
        }
        [losses.sum(), reported]
    }
}

/// How many rows count, `[1]`.
fn count(rows: usize, ignored: Option<&Tensor<1, Bool>>, device: &Device) -> Tensor<1> {
    match ignored {
        Some(ignored) => ignored.clone().bool_not().float().sum(),
        None => Tensor::full([1], rows as f64, device),
    }
}

/// Predictions, one token below the other, and what they are compared with.
struct Rows {
    /// `[N, V]`.
    logits: Tensor<2>,
    /// `[N]`.
    targets: Tensor<1, Int>,
    /// `[N]`.
    ignored: Option<Tensor<1, Bool>>,
}

impl Rows {
    fn narrow(&self, start: usize, length: usize) -> Self {
        Self {
            logits: self.logits.clone().narrow(0, start, length),
            targets: self.targets.clone().narrow(0, start, length),
            ignored: self.ignored.as_ref().map(|rows| rows.clone().narrow(0, start, length)),
        }
    }

    /// The same rows without a graph.
    fn constant(&self) -> Self {
        Self {
            logits: self.logits.clone().without_autodiff(),
            targets: self.targets.clone().without_autodiff(),
            ignored: self.ignored.clone().map(Tensor::without_autodiff),
        }
    }

    /// The cross-entropy of every row, 0 where it is ignored: `[N]`.
    fn losses(&self, smoothing: f64) -> Tensor<1> {
        let options = CrossEntropyOptions::default().with_ignored(self.ignored.clone()).with_label_smoothing(smoothing);
        cross_entropy(self.logits.clone(), self.targets.clone(), &options)
    }

    /// `log Z = -log p(target) + logit(target)` of every row, 0 where it is ignored: `[N]`. `losses` are the plain ones.
    fn log_normalizers(&self, losses: Tensor<1>) -> Tensor<1> {
        let targets = match &self.ignored {
            Some(ignored) => self.targets.clone().mask_fill(ignored.clone(), 0),
            None => self.targets.clone(),
        };
        let sums = losses + self.logits.clone().gather(1, targets.unsqueeze_dim(1)).squeeze_dim(1);
        match &self.ignored {
            Some(ignored) => sums.mask_fill(ignored.clone(), 0.0),
            None => sums,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Distribution, TensorData};
    use firelight_kernels::{Difference, LogitMap, assert_close};

    #[test]
    fn the_loss_of_a_head_is_that_of_its_logits() {
        let device = Device::default();
        let hidden = Tensor::<3>::random([2, 3, 5], Distribution::Default, &device);
        let weight = Tensor::<2>::random([5, 7], Distribution::Default, &device);
        let bias = Tensor::<1>::random([7], Distribution::Default, &device);
        let map = LogitMap::new(weight.clone()).with_bias(Some(bias.clone())).with_scale(0.5).with_soft_cap(Some(0.8));
        let product = hidden.clone().matmul(weight.unsqueeze()) + bias.unsqueeze();
        let logits = (product * 0.5 / 0.8).tanh() * 0.8;
        let targets = || Tensor::<2, Int>::from_ints([[1, 2, 6], [0, 3, 3]], &device);
        let ignored = Tensor::<2, Bool>::from_bool([[false, false, true], [false, true, false]], &device);
        for loss in [LossConfig::default(), LossConfig::default().with_label_smoothing(0.1).with_z_loss(0.1)] {
            for ignored in [None, Some(ignored.clone())] {
                let lazy = LazyLogits::new(hidden.clone(), map.clone());
                let found = loss.init().forward_head(lazy, targets(), ignored.clone());
                let expected = loss.init().forward(logits.clone(), targets(), ignored);
                for (found, expected) in [
                    (found.mean(), expected.mean()),
                    (found.mean_cross_entropy(), expected.mean_cross_entropy()),
                    (found.count, expected.count),
                ] {
                    assert_close(&found, &expected, 1e-5);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "targets [3, 2] are not [B, T] of the predictions [2, 3]")]
    fn targets_of_another_order_panic() {
        let device = Device::default();
        LossConfig::default().init().forward(Tensor::zeros([2, 3, 5], &device), Tensor::zeros([3, 2], &device), None);
    }

    #[test]
    #[should_panic(expected = "ignored [2, 2] are not [B, T] of the predictions [2, 3]")]
    fn marks_of_another_length_panic() {
        let device = Device::default();
        let ignored = Tensor::<2, Int>::zeros([2, 2], &device).bool();
        let logits = LazyLogits::new(Tensor::zeros([2, 3, 4], &device), LogitMap::new(Tensor::zeros([4, 5], &device)));
        LossConfig::default().init().forward_head(logits, Tensor::zeros([2, 3], &device), Some(ignored));
    }

    #[test]
    fn only_counted_tokens_enter_the_mean() {
        let device = Device::default();
        let logits = Tensor::<3>::random([1, 3, 4], Distribution::Default, &device);
        let targets = Tensor::<2, Int>::from_ints([[1, 2, -1]], &device);
        let ignored = Tensor::<2, Bool>::from_bool([[false, false, true]], &device);
        let loss = LossConfig::default().with_z_loss(0.1);
        let whole = loss.init().forward(logits.clone(), targets.clone(), Some(ignored)).mean().into_scalar::<f32>();
        let part = loss.init().forward(logits.slice([0..1, 0..2]), targets.slice([0..1, 0..2]), None);
        let part = part.mean().into_scalar::<f32>();
        assert!((whole - part).abs() < 1e-6);
    }

    #[test]
    fn nothing_counted_costs_nothing_and_teaches_nothing() {
        let device = Device::default().autodiff();
        let ignored = Tensor::<2, Bool>::from_bool([[true, true]], &device);
        let loss = LossConfig::default().with_label_smoothing(0.1).with_z_loss(0.1);
        let logits = Tensor::<3>::random([1, 2, 3], Distribution::Default, &device).require_grad();
        let loss = loss.init().forward(logits.clone(), Tensor::zeros([1, 2], &device), Some(ignored));
        assert_eq!(loss.mean().into_scalar::<f32>(), 0.0);
        assert_eq!(loss.mean_cross_entropy().into_scalar::<f32>(), 0.0);
        let gradient = logits.grad(&loss.mean().backward()).expect("a gradient");
        assert_close(&gradient, &[0.0; 6], 0.0);
    }

    #[test]
    fn a_z_loss_by_hand() {
        // Logits ln 3 and ln 1: Z = 4, log Z = 1.386294, squared 1.921812; the target has probability 3/4: .287682.
        let device = Device::default();
        let logits = Tensor::<3>::from_floats([[[3f32.ln(), 0.0]]], &device);
        let loss = LossConfig::default().with_z_loss(0.5).init().forward(logits, Tensor::zeros([1, 1], &device), None);
        assert!((loss.mean().into_scalar::<f64>() - (0.287_682 + 0.960_906)).abs() < 1e-5);
        assert!((loss.mean_cross_entropy().into_scalar::<f64>() - 0.287_682).abs() < 1e-5);
    }

    #[test]
    fn the_z_loss_takes_away_what_the_cross_entropy_cannot_see() {
        // A number added to all logits of a token changes its z-loss alone.
        let device = Device::default();
        let logits = Tensor::<3>::random([1, 5, 7], Distribution::Default, &device);
        let targets = Tensor::<2, Int>::from_ints([[1, 2, 0, 6, 3]], &device);
        let loss = |logits| LossConfig::default().with_z_loss(1e-2).init().forward(logits, targets.clone(), None);
        let (near, far) = (loss(logits.clone()), loss(logits + 10.0));
        let plain = [&near, &far].map(|loss| loss.mean_cross_entropy().into_scalar::<f64>());
        assert!((plain[0] - plain[1]).abs() < 1e-5, "{plain:?}");
        assert!(far.mean().into_scalar::<f64>() > near.mean().into_scalar::<f64>() + 1.0);
    }

    /// Eleven rows, some ignored, one of them with a target that is none.
    fn rows(device: &Device) -> Rows {
        let numbers: Vec<f32> = (0..77).map(|i| 3.0 * (1.7 * i as f32).sin()).collect();
        let ignored = (0..11).map(|i| i == 4 || i == 9).collect();
        Rows {
            logits: Tensor::from_data(TensorData::new(numbers, [11, 7]), device),
            targets: Tensor::from_ints([0, 6, 2, 3, -100, 1, 4, 5, 6, 0, 2], device),
            ignored: Some(Tensor::from_data(TensorData::new(ignored, [11]), device)),
        }
    }

    #[test]
    fn the_loss_in_chunks_is_that_of_the_whole() {
        let loss = LossConfig::default().with_label_smoothing(0.1).with_z_loss(0.1);
        let run = |size| loss.init().loss_sums_in_chunks(rows(&Device::default()), size).map(Tensor::into_data);
        for size in [1, 4, 10] {
            for (found, whole) in run(size).into_iter().zip(run(11)) {
                assert!(Difference::between(&found, &whole).relative(0.0) <= 2e-6, "{size}");
            }
        }
    }

    #[test]
    fn a_forbidden_token_costs_the_others_nothing() {
        // A logit of minus infinity leaves the softmax to the other two: ln 2, and Z = 2.
        let device = Device::default().autodiff();
        let logits = Tensor::<3>::from_floats([[[0.0, f32::NEG_INFINITY, 0.0]]], &device).require_grad();
        let loss =
            LossConfig::default().with_z_loss(1.0).init().forward(logits.clone(), Tensor::zeros([1, 1], &device), None);
        let log_2 = std::f64::consts::LN_2;
        assert!((loss.mean().into_scalar::<f64>() - (log_2 + log_2.powi(2))).abs() < 1e-5);
        let gradient = logits.grad(&loss.mean().backward()).expect("a gradient");
        assert!(gradient.is_finite().all().into_scalar::<bool>());
    }

    #[test]
    fn a_loss_is_plain_where_tokens_cost_their_cross_entropy() {
        assert!(LossConfig::default().is_plain() && LossConfig::default().with_load_balance(0.1).is_plain());
        assert!(!LossConfig::default().with_label_smoothing(0.1).is_plain());
        assert!(!LossConfig::default().with_z_loss(0.1).is_plain());
    }

    #[test]
    fn settings_are_read_with_their_defaults_and_judged() {
        let old: LossConfig = serde_json::from_str(r#"{"label_smoothing": 0.1}"#).expect("a configuration");
        assert_eq!(old, LossConfig::default().with_label_smoothing(0.1));
        let bad = LossConfig { label_smoothing: 1.0, z_loss: -1.0, load_balance: f64::NAN };
        assert_eq!(
            bad.validate().expect_err("three problems").problems(),
            [
                "loss.label_smoothing = 1 must be in [0, 1)",
                "loss.z_loss = -1 must be at least 0",
                "loss.load_balance = NaN must be at least 0",
            ]
        );
    }
}
