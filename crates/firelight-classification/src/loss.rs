//! What an answer for a whole text costs: the cross-entropy of its one label, the binary cross-entropies of its many, or the
//! squared error of its numbers.
//!
//! Sources: label smoothing Szegedy et al. 2016, §7 (<https://arxiv.org/abs/1512.00567>). Class weights `w` are those of
//! `torch.nn.CrossEntropyLoss`: a text of class `y` counts `w_y`, and the smoothed share of every class `c` counts `w_c`.
//! Balanced weights are `N / (C n_c)` (King and Zeng 2001, §2, as scikit-learn writes them), so that every class counts alike.

use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{Device, Int, Tensor};
use firelight_core::ConfigError;
use firelight_data::labelled::LabelKind;
use serde::{Deserialize, Serialize};

/// What a label is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemType {
    /// One of several classes.
    #[default]
    SingleLabel,
    /// Any number of several classes.
    MultiLabel,
    /// Numbers.
    Regression,
}

impl ProblemType {
    /// The name in `recipe.toml` and `config.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::SingleLabel => "single_label",
            Self::MultiLabel => "multi_label",
            Self::Regression => "regression",
        }
    }

    /// What the plain loss counts, as people read it behind the number.
    pub fn loss_unit(self) -> &'static str {
        match self {
            Self::SingleLabel => "nats per text",
            Self::MultiLabel => "nats per label of a text",
            Self::Regression => "squared error per text",
        }
    }
}

impl From<&LabelKind> for ProblemType {
    fn from(kind: &LabelKind) -> Self {
        match kind {
            LabelKind::SingleLabel => Self::SingleLabel,
            LabelKind::MultiLabel { .. } => Self::MultiLabel,
            LabelKind::Regression => Self::Regression,
        }
    }
}

/// What is true of the texts of a batch.
#[derive(Debug, Clone)]
pub enum SequenceTargets {
    /// `[B]`, the class of each text.
    Class(Tensor<1, Int>),
    /// `[B, C]`, 1 for every class of a text, 0 for the others.
    Classes(Tensor<2>),
    /// `[B, C]`, the numbers of each text.
    Numbers(Tensor<2>),
}

#[cfg(feature = "train")]
impl SequenceTargets {
    /// The class of each text, or all its numbers.
    pub(crate) fn numbers(&self) -> Result<Vec<Vec<f64>>, burn::tensor::TensorReadError> {
        let (width, values) = match self {
            Self::Class(classes) => (1, classes.clone().try_into_vec_as::<f64>()?),
            Self::Classes(table) | Self::Numbers(table) => (table.dims()[1], table.clone().try_into_vec_as()?),
        };
        Ok(values.chunks(width).map(<[f64]>::to_vec).collect())
    }
}

/// How much the classes weigh.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", expecting = "expected \"none\", \"balanced\" or a list of numbers")]
#[non_exhaustive]
pub enum ClassWeights {
    /// Each text alike.
    #[default]
    None,
    /// Each class alike, however many texts it has.
    Balanced,
    /// So much for a text of each class, in the order of the labels.
    #[serde(untagged)]
    Given(Vec<f64>),
}

impl ClassWeights {
    /// The weights in numbers, where classes with so many texts each are to be balanced.
    ///
    /// ```
    /// use firelight_classification::ClassWeights;
    ///
    /// assert_eq!(ClassWeights::Balanced.resolved(&[30, 10]), ClassWeights::Given(vec![2.0 / 3.0, 2.0]));
    /// ```
    pub fn resolved(self, counts: &[usize]) -> Self {
        let total: usize = counts.iter().sum();
        let weight = |&count: &usize| total as f64 / (counts.len() * count.max(1)) as f64;
        if self == Self::Balanced { Self::Given(counts.iter().map(weight).collect()) } else { self }
    }

    fn tensor(&self, classes: usize, device: &Device) -> Option<Tensor<1>> {
        match self {
            Self::None => None,
            Self::Balanced => panic!("balanced class weights need the number of texts of each class: resolve them"),
            Self::Given(weights) => {
                let found = weights.len();
                assert!(found == classes, "{found} class weights for {classes} classes");
                Some(Tensor::from_floats(weights.as_slice(), device))
            }
        }
    }
}

/// How the loss of answers is computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SequenceLossConfig {
    /// Share of the probability spread over all classes of single labels, in `[0, 1)`. Default: 0.
    pub label_smoothing: f64,
    /// How much the classes weigh: `"none"`, `"balanced"` or a list of numbers. Default: none.
    pub class_weights: ClassWeights,
    /// Weight of the [load balance](firelight_core::AuxiliaryLosses::load_balance) of encoders with experts. Default: 0.01.
    pub load_balance: f64,
}

impl Default for SequenceLossConfig {
    fn default() -> Self {
        Self { label_smoothing: 0.0, class_weights: ClassWeights::None, load_balance: 0.01 }
    }
}

/// A loss as sum and weight.
#[derive(Debug, Clone)]
pub struct SequenceLoss {
    /// The loss, summed: `[1]`.
    pub total: Tensor<1>,
    /// What it is divided by: `[1]`.
    pub weight: Tensor<1>,
    /// The loss without weights and smoothing, summed, to report: it has no gradient, `[1]`.
    pub plain: Tensor<1>,
    /// Number of targets behind it: `[1]`.
    pub count: Tensor<1>,
}

impl SequenceLoss {
    /// The weighted mean, `[1]`.
    pub fn mean(&self) -> Tensor<1> {
        self.total.clone() / self.weight.clone()
    }
}

impl SequenceLossConfig {
    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { label_smoothing: smoothing, load_balance: balance, .. } = *self;
        let bad = match &self.class_weights {
            ClassWeights::Given(weights) => weights.iter().find(|weight| !(**weight > 0.0 && weight.is_finite())),
            _ => None,
        };
        let own = [
            (!(0.0..1.0).contains(&smoothing)).then(|| format!("loss.label_smoothing = {smoothing} must be in [0, 1)")),
            bad.map(|weight| format!("loss.class_weights: {weight} must be above 0")),
            (!(balance >= 0.0 && balance.is_finite()))
                .then(|| format!("loss.load_balance = {balance} must be at least 0")),
        ];
        ConfigError::collect([], own)
    }

    /// Whether the loss is the plain one, without class weights and smoothing.
    pub fn is_plain(&self) -> bool {
        self.label_smoothing == 0.0 && self.class_weights == ClassWeights::None
    }

    /// The loss with these settings.
    pub fn init(&self) -> SequenceCriterion {
        SequenceCriterion { label_smoothing: self.label_smoothing, class_weights: self.class_weights.clone() }
    }
}

/// The loss of the answers for whole texts.
#[derive(Debug, Clone)]
pub struct SequenceCriterion {
    label_smoothing: f64,
    class_weights: ClassWeights,
}

impl SequenceCriterion {
    /// Computes the loss of the outputs of a batch.
    ///
    /// # Shapes
    /// - `outputs`: `[B, C]`
    ///
    /// # Panics
    /// If the shapes differ, there is not a weight for each class, or balanced weights are not
    /// [resolved](ClassWeights::resolved).
    pub fn forward(&self, outputs: Tensor<2>, targets: SequenceTargets) -> SequenceLoss {
        match targets {
            SequenceTargets::Class(targets) => self.single(outputs, targets),
            SequenceTargets::Classes(targets) => self.multi(outputs, targets),
            SequenceTargets::Numbers(targets) => mean_of((outputs - targets).square()),
        }
    }

    fn single(&self, logits: Tensor<2>, targets: Tensor<1, Int>) -> SequenceLoss {
        let [batch, classes] = logits.dims();
        let device = logits.device();
        let losses = log_softmax(logits, 1).neg(); // [B, C]
        let own: Tensor<1> = losses.clone().gather(1, targets.clone().unsqueeze_dim(1)).squeeze_dim(1);
        let plain = own.clone().without_autodiff().sum();
        let count = Tensor::full([1], batch as f64, &device);
        let weights = self.class_weights.tensor(classes, &device);
        let (own, weight, losses) = match weights {
            Some(weights) => {
                let of_targets = weights.clone().select(0, targets);
                (own * of_targets.clone(), of_targets.sum(), losses * weights.unsqueeze::<2>())
            }
            None => (own, count.clone(), losses),
        };
        let smoothing = self.label_smoothing;
        let total = match smoothing {
            0.0 => own.sum(),
            _ => own.sum() * (1.0 - smoothing) + losses.sum() * (smoothing / classes as f64),
        };
        SequenceLoss { total, weight, plain, count }
    }

    /// The binary cross-entropy of every class, weighted by class.
    fn multi(&self, logits: Tensor<2>, targets: Tensor<2>) -> SequenceLoss {
        let (classes, device) = (logits.dims()[1], logits.device());
        let yes = log_sigmoid(logits.clone()) * targets.clone();
        let no = log_sigmoid(logits.neg()) * (targets.neg() + 1.0);
        let losses = (yes + no).neg();
        let plain = mean_of(losses.clone());
        match self.class_weights.tensor(classes, &device) {
            Some(weights) => SequenceLoss { total: (losses * weights.unsqueeze::<2>()).sum(), ..plain },
            None => plain,
        }
    }
}

/// Every number weighs the same.
fn mean_of(losses: Tensor<2>) -> SequenceLoss {
    let count = Tensor::full([1], losses.shape().num_elements() as f64, &losses.device());
    let total = losses.sum();
    SequenceLoss { plain: total.clone().without_autodiff(), total, weight: count.clone(), count }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;

    /// What torch 2.15 says of the logits and targets below.
    fn check(config: SequenceLossConfig, targets: SequenceTargets, expected: f64, plain: f64) {
        let device = Device::default();
        let logits = Tensor::<2>::from_floats([[1.0, -0.5, 2.0], [0.3, 0.1, -1.2]], &device);
        let loss = config.init().forward(logits, targets);
        assert!((loss.mean().into_scalar::<f64>() - expected).abs() < 1e-6, "{:?}", loss.mean());
        assert!(((loss.plain / loss.count).into_scalar::<f64>() - plain).abs() < 1e-6);
    }

    fn classes() -> SequenceTargets {
        SequenceTargets::Class(Tensor::from_data(TensorData::from([0, 1]), &Device::default()))
    }

    fn flags() -> Tensor<2> {
        Tensor::from_floats([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], &Device::default())
    }

    const WEIGHTED: [f64; 3] = [0.5, 2.0, 1.0];
    const SINGLE: [f64; 4] = [1.142_700, 1.169_367, 1.005_397, 1.054_176];
    const BINARY: [f64; 2] = [0.662_717, 0.768_494];
    const SQUARED: f64 = 1.031_667;

    #[test]
    fn the_loss_of_single_labels_is_that_of_torch() {
        // F.cross_entropy(x, tensor([0, 1]), weight=..., label_smoothing=...)
        let weights = ClassWeights::Given(WEIGHTED.to_vec());
        for (label_smoothing, class_weights, expected) in [
            (0.0, ClassWeights::None, SINGLE[0]),
            (0.1, ClassWeights::None, SINGLE[1]),
            (0.0, weights.clone(), SINGLE[2]),
            (0.1, weights, SINGLE[3]),
        ] {
            let config = SequenceLossConfig { label_smoothing, class_weights, ..SequenceLossConfig::default() };
            check(config, classes(), expected, SINGLE[0]);
        }
    }

    #[test]
    fn the_losses_of_many_labels_and_of_numbers_are_those_of_torch() {
        // F.binary_cross_entropy_with_logits(x, flags, weight=...) and F.mse_loss(x, flags)
        let weighted = SequenceLossConfig {
            class_weights: ClassWeights::Given(WEIGHTED.to_vec()),
            ..SequenceLossConfig::default()
        };
        check(SequenceLossConfig::default(), SequenceTargets::Classes(flags()), BINARY[0], BINARY[0]);
        check(weighted, SequenceTargets::Classes(flags()), BINARY[1], BINARY[0]);
        check(SequenceLossConfig::default(), SequenceTargets::Numbers(flags()), SQUARED, SQUARED);
    }

    #[test]
    fn weights_come_by_name_or_as_a_list() {
        let read = |text: &str| toml::from_str::<SequenceLossConfig>(text).map(|loss| loss.class_weights);
        assert_eq!(read("class_weights = \"balanced\"").unwrap(), ClassWeights::Balanced);
        assert_eq!(read("class_weights = [1.0, 2.0]").unwrap(), ClassWeights::Given(vec![1.0, 2.0]));
        assert_eq!(read("").unwrap(), ClassWeights::None);
        assert!(read("class_weights = \"heavy\"").is_err());
        let bad = SequenceLossConfig {
            label_smoothing: 1.0,
            class_weights: ClassWeights::Given(vec![0.0]),
            load_balance: -1.0,
        };
        assert_eq!(bad.validate().unwrap_err().problems().len(), 3);
    }
}
