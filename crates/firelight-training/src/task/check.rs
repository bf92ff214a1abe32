//! What a model must be able to do before it is worth training. A model that fails wastes the hours that follow. What depends
//! on the shape of its input is tried by its task, the rest here.
//!
//! Source of [`Check::guess`] and [`Check::overfit`]: Karpathy 2019, A Recipe for Training Neural Networks, step 2.

use std::fmt;

use burn::module::Module;
use burn::train::InferenceStep;
use firelight_kernels::Difference;

use super::run::training_module;
use super::{DataModule, Run, Task};
use crate::evaluate::evaluate_with;
use crate::ranks::Ranks;
use crate::{Objective, OptimizerConfig, ScheduleConfig, ScheduleKind, Trainer, TrainingError, TrainingModule};

/// Largest difference between logits that should be the same.
const SAME: f64 = 1e-3;

/// Largest distance of the first loss from `ln V`, as a share of it.
const GUESS: f64 = 0.2;

/// Steps on one batch, and the share of its loss that may be left after them.
const OVERFIT: (usize, f64) = (60, 0.5);

/// One property of a model, and whether it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What must hold.
    pub property: &'static str,
    /// What was measured.
    pub found: f64,
    /// The most that is allowed.
    pub limit: f64,
}

impl Check {
    /// Logits that something must not change. Where there are none, as in the past of a context of one token, it holds.
    ///
    /// # Panics
    /// If there is not the same number of them.
    pub fn same(property: &'static str, found: &[f32], expected: &[f32]) -> Self {
        assert_eq!(found.len(), expected.len(), "as many logits");
        let is_empty = found.is_empty() && expected.is_empty();
        let found = if is_empty { 0.0 } else { Difference::between(found, expected).absolute };
        Self { property, found, limit: SAME }
    }

    /// Nothing is known yet: the loss is that of a guess among all `vocab_size` tokens.
    ///
    /// # Errors
    /// If the device fails.
    pub fn guess<M: Objective>(
        task: &TrainingModule<M>,
        batch: M::Batch,
        vocab_size: usize,
    ) -> Result<Self, TrainingError> {
        let (total, count) =
            InferenceStep::step(task, batch).losses.read().map_err(TrainingError::device("loss of the self-check"))?;
        let expected = (vocab_size as f64).ln();
        let found = (total / count - expected).abs();
        Ok(Self { property: "initial loss ln V", found, limit: GUESS * expected })
    }

    /// The model computes: its loss is a number.
    pub fn finite(loss: f64) -> Self {
        Self { property: "first losses that are no number", found: f64::from(!loss.is_finite()), limit: 0.0 }
    }

    /// A batch that is seen again and again is learnt.
    ///
    /// # Errors
    /// If the device fails or the loss is not finite.
    pub fn overfit<M: Objective>(
        task: TrainingModule<M>,
        batch: impl Fn() -> M::Batch,
        seed: u64,
    ) -> Result<Self, TrainingError> {
        let optimizer = OptimizerConfig { learning_rate: 3e-3, weight_decay: 0.0, ..OptimizerConfig::default() };
        let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 10, ..ScheduleConfig::default() };
        let mut trainer = Trainer::new(task, optimizer, schedule, seed);
        let losses =
            (0..OVERFIT.0).map(|_| Ok(trainer.step(batch())?.loss)).collect::<Result<Vec<_>, TrainingError>>()?;
        let found = losses[losses.len() - 1] / losses[0];
        Ok(Self { property: "overfitting one batch", found, limit: OVERFIT.1 })
    }

    /// Whether the property holds.
    pub fn holds(&self) -> bool {
        self.found <= self.limit
    }
}

/// What can be tried of any task: the loss of the first training batch, before a step is taken.
pub(super) fn first_loss<T: Task>(run: &Run<T>) -> Result<Vec<Check>, T::Error> {
    let (recipe, device) = (&run.recipe, run.device());
    let task = training_module::<T>(recipe, T::model(run.config(), recipe.seed, device)).valid();
    let first = run.corpus.training_loader(recipe, 0..1, device)?;
    let found = evaluate_with(&task, first.as_ref(), &Ranks::alone(), &mut (), |_, _| ())?;
    Ok(vec![Check::finite(found.loss)])
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [found, limit] = [self.found, self.limit].map(short);
        match self.holds() {
            true => write!(f, "{}: ok ({found} <= {limit})", self.property),
            false => write!(f, "{}: FAILED ({found}, at most {limit})", self.property),
        }
    }
}

/// A number in three digits.
fn short(number: f64) -> String {
    let rounded: f64 = format!("{number:.2e}").parse().unwrap_or(number);
    match rounded.abs() {
        0.0 | 0.01..1000.0 => rounded.to_string(),
        _ => format!("{rounded:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::toy_task::{Toy, request};
    use super::*;
    use crate::toy::{Line, Noted, Points, alone};
    use burn::tensor::Device;

    #[test]
    fn a_property_holds_up_to_its_limit_and_no_number_is_above_all() {
        let check = |found| Check { property: "initial loss ln V", found, limit: 0.5 };
        assert!(check(0.5).holds() && !check(0.51).holds() && !check(f64::NAN).holds());
        assert_eq!(check(0.25).to_string(), "initial loss ln V: ok (0.25 <= 0.5)");
        assert_eq!(check(12.3456).to_string(), "initial loss ln V: FAILED (12.3, at most 0.5)");
        assert_eq!(check(f64::NAN).to_string(), "initial loss ln V: FAILED (NaN, at most 0.5)");
        let same = Check { property: "causality", found: 0.0, limit: SAME };
        assert_eq!(same.to_string(), "causality: ok (0 <= 1e-3)");
    }

    #[test]
    fn logits_that_differ_anywhere_or_are_no_numbers_are_not_the_same() {
        let same = |found: &[f32]| Check::same("padding invariance", found, &[1.0, 2.0, 3.0]).holds();
        assert!(same(&[1.0, 2.0, 3.0005]));
        for found in
            [[1.0, 2.0, 3.1], [0.9, 2.0, 3.0], [f32::NAN, 2.0, 3.0], [1.0, 2.0, f32::NAN], [1.0, f32::INFINITY, 3.0]]
        {
            assert!(!same(&found), "{found:?}");
        }
        assert!(Check::same("causality", &[], &[]).holds());
    }

    #[test]
    fn the_first_loss_of_a_task_is_a_number() {
        let _alone = alone();
        let (_home, request) = request(&[]);
        let found = Run::<Toy>::prepare(&request).unwrap().self_check().unwrap();
        assert_eq!(found, [Check::finite(1.0)]);
        assert!(found[0].holds() && !Check::finite(f64::NAN).holds() && !Check::finite(f64::INFINITY).holds());
        assert_eq!(found[0].to_string(), "first losses that are no number: ok (0 <= 0)");
    }

    #[test]
    fn one_batch_is_overfitted_unless_the_weights_cannot() {
        let _alone = alone();
        let device = Device::default().autodiff();
        let found = |points: &[(f32, f32)]| {
            let task = TrainingModule::new(Line::new(0.0, 0.0, &device), Noted::default());
            Check::overfit(task, || Points::new(points.to_vec(), &device), 1).unwrap()
        };
        let learnt = found(&[(1.0, 0.2), (1.0, 0.2)]);
        assert!(learnt.holds(), "{learnt}");
        let torn = found(&[(1.0, 0.2), (1.0, -0.2)]); // no line answers both
        assert!(!torn.holds() && torn.to_string().contains("overfitting one batch: FAILED"), "{torn}");
    }
}
