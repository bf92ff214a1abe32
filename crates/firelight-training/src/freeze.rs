//! Parameters that a training leaves as they are: `freeze = ["embedding", "*.blocks.0"]` in `[training]`. They have no
//! gradients, so that neither an optimiser nor its decay moves them; their bytes stay the same.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

use crate::config::{Problems, SettingsError};
use crate::evaluate::device_of;
use crate::path::{self, ModulePath, listed, shapes_of};

/// In front of a pattern whose parameters are trained.
const EXCEPT: char = '!';

/// `model` with the parameters frozen that `patterns` name: for loops of one's own, before a [`Trainer`](crate::Trainer) is made.
/// [`fit`](crate::fit()) does so by `training.freeze`.
///
/// A pattern names a parameter, or a module with all that is in it, by its path, as
/// [`ParameterGroup`](crate::ParameterGroup) does: `*` stands for any text, dots included, and `?` for one character. With
/// a `!` in front it names what is trained after all. The last pattern that fits counts: `["*", "!*.adapter", "!head"]` trains
/// adapters and the head alone.
///
/// # Errors
/// Lists the patterns that fit no parameter, and fails if nothing is left to train.
pub fn freeze<M: Module>(model: M, patterns: &[String]) -> Result<M, SettingsError> {
    check(&model, &[], patterns)?;
    Ok(model.map(&mut Freeze { patterns, path: ModulePath::default() }))
}

/// Refuses patterns that fit no parameter of `model`, and those that, after the ones of `before`, fit all.
pub(crate) fn check<M: Module>(model: &M, before: &[String], patterns: &[String]) -> Result<(), SettingsError> {
    let paths: Vec<String> = shapes_of(model).into_iter().map(|(path, _)| path).collect();
    let mut problems = Problems::of("training");
    let expected = format!("the pattern of a parameter or of a module; there are {}", listed(&paths));
    for (index, pattern) in patterns.iter().enumerate() {
        let is_there = paths.iter().any(|path| fits(pattern, path));
        let key = format!("freeze[{index}]");
        problems.require(is_there, &key, format!("\"{pattern}\""), &expected);
    }
    let all = [before, patterns].concat();
    let leaves_some = all.is_empty() || paths.iter().any(|path| !is_frozen(&all, path));
    problems.require(leaves_some, "freeze", format!("{patterns:?}"), "patterns that leave a parameter to train");
    problems.into_result()
}

/// Whether the last pattern that fits a path freezes it.
pub(crate) fn is_frozen(patterns: &[String], path: &str) -> bool {
    let last = patterns.iter().rev().find(|pattern| fits(pattern, path));
    last.is_some_and(|pattern| !pattern.starts_with(EXCEPT))
}

/// Whether a pattern names a path or a module that it goes through, whatever becomes of it.
fn fits(pattern: &str, path: &str) -> bool {
    path::fits(pattern.strip_prefix(EXCEPT).unwrap_or(pattern), path)
}

/// Whether `model` has a parameter that a training moves; a backward pass without one is a programmer's error to Burn.
pub(crate) fn is_trained<M: Module>(model: &M) -> bool {
    trained(model) > 0
}

/// How many numbers of `model` a training moves that freezes what `patterns` name.
pub(crate) fn trained_beside<M: Module>(model: M, patterns: &[String]) -> usize {
    let model = if device_of(&model).is_autodiff() { model } else { model.train() };
    trained(&model.map(&mut Freeze { patterns, path: ModulePath::default() }))
}

/// The same by the paths of the parameters alone, none of which is drawn for it.
pub(crate) fn trained_by_paths<M: Module>(model: &M, patterns: &[String]) -> usize {
    let trained = shapes_of(model).into_iter().filter(|(path, _)| !is_frozen(patterns, path));
    trained.map(|(_, shape)| shape.iter().product::<usize>()).sum()
}

/// How many numbers of `model` have a gradient.
fn trained<M: Module>(model: &M) -> usize {
    struct Trained(usize);

    impl ModuleVisitor for Trained {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            self.0 += if value.is_require_grad() { value.shape().num_elements() } else { 0 };
        }
    }

    let mut trained = Trained(0);
    model.visit(&mut trained);
    trained.0
}

struct Freeze<'a> {
    patterns: &'a [String],
    path: ModulePath,
}

impl ModuleMapper for Freeze<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if is_frozen(self.patterns, &self.path.joined()) { param.set_require_grad(false) } else { param }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Line, PointLoader, Points, alone};
    use crate::{FitInput, OptimizerConfig, ParameterGroup, ScheduleConfig, Trainer, TrainingConfig, fit};
    use burn::tensor::Device;
    use std::sync::Arc;

    fn patterns(patterns: &[&str]) -> Vec<String> {
        patterns.iter().map(|pattern| (*pattern).to_owned()).collect()
    }

    #[test]
    fn the_last_pattern_that_fits_counts() {
        let frozen = |list: &[&str], path: &str| is_frozen(&patterns(list), path);
        let layer = "encoder.blocks.1.attention.query.weight";
        for list in
            [&["encoder"][..], &["encoder.blocks.1"], &["*.attention"], &["*.query.*"], &["*"], &["!*", "*.blocks.?"]]
        {
            assert!(frozen(list, layer), "{list:?}");
        }
        for list in [&["enc"][..], &["encoder.blocks"][..0], &["*", "!encoder"], &["encoder.blocks.10"], &["blocks.1"]]
        {
            assert!(!frozen(list, layer), "{list:?}");
        }
        let adapters = ["*", "!*.adapter", "!head"];
        assert!(frozen(&adapters, layer) && !frozen(&adapters, "head.weight"));
        assert!(!frozen(&adapters, "encoder.blocks.1.attention.query.adapter.down"));
    }

    #[test]
    fn a_pattern_that_fits_nothing_is_refused() {
        let error = freeze(Line::new(2.0, 0.0, &Device::default()), &patterns(&["slope", "!slop"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "training.freeze[1] = \"!slop\" must be the pattern of a parameter or of a module; there are `slope`, `offset`"
        );
    }

    #[test]
    fn what_is_trained_is_counted_on_any_device_and_the_last_word_is_the_recipes() {
        let line = |device: Device| Line::new(2.0, 0.0, &device);
        for device in [Device::default(), Device::default().autodiff()] {
            for (list, expected) in [(&[][..], 2), (&["slope"], 1), (&["*", "!offset"], 1), (&["*"], 0)] {
                assert_eq!(trained_beside(line(device.clone()), &patterns(list)), expected, "{list:?}");
                assert_eq!(trained_by_paths(&line(device.clone()), &patterns(list)), expected, "{list:?}");
            }
        }
        let model = line(Device::default());
        check(&model, &patterns(&["slope"]), &[]).unwrap();
        check(&model, &patterns(&["*"]), &patterns(&["!slope"])).unwrap();
        let error = check(&model, &patterns(&["slope"]), &patterns(&["offset"])).unwrap_err().to_string();
        assert_eq!(error, "training.freeze = [\"offset\"] must be patterns that leave a parameter to train");
    }

    #[test]
    fn a_model_without_anything_to_train_is_refused_by_the_patterns_and_by_the_step() {
        let _alone = alone();
        let line = || Line::new(2.0, 0.0, &Device::default().autodiff());
        let error = freeze(line(), &patterns(&["*"])).unwrap_err();
        assert_eq!(error.to_string(), "training.freeze = [\"*\"] must be patterns that leave a parameter to train");
        let schedule = ScheduleConfig::default();
        let mut trainer = Trainer::new(line().no_grad(), OptimizerConfig::default(), schedule, 1);
        let error = trainer.step(Points::new(vec![(1.0, 9.0)], &trainer.device())).unwrap_err();
        assert!(error.to_string().starts_with("step 1: no parameter has a gradient"), "{error}");
    }

    #[test]
    fn frozen_bytes_stay_and_the_others_move_with_their_group() {
        let _alone = alone();
        let line = freeze(Line::new(2.0, 1.5, &Device::default().autodiff()), &patterns(&["slope"])).unwrap();
        let group = |name: &str, factor| ParameterGroup {
            parameters: name.into(),
            learning_rate_factor: Some(factor),
            ..ParameterGroup::default()
        };
        let groups = vec![group("slope", 2.0), group("offset", 0.5)];
        let optimizer = OptimizerConfig { learning_rate: 0.1, weight_decay: 0.5, groups, ..OptimizerConfig::default() };
        let mut trainer =
            Trainer::new(line, optimizer, ScheduleConfig { warmup_steps: 0, ..ScheduleConfig::default() }, 1);
        for _ in 0..3 {
            trainer.step(Points::new(vec![(1.0, 9.0)], &trainer.device())).unwrap();
        }
        assert_eq!(trainer.model().slope().to_bits(), 2.0_f32.to_bits());
        assert!(trainer.model().offset() > 1.6, "{}", trainer.model().offset());
    }

    #[test]
    fn a_whole_training_with_a_moving_average_keeps_frozen_bytes() {
        let _alone = alone();
        let start = 0.1_f32; // Not a sum of few powers of two: averaging would round it.
        let points = |steps| Arc::new(PointLoader::of_steps(0, steps));
        let training =
            TrainingConfig { steps: 5, ema_decay: 0.9, freeze: patterns(&["slope"]), ..TrainingConfig::default() };
        let input = FitInput { training, ..FitInput::new(points(5), points(1)) };
        let fitted = fit(Line::new(start, 0.0, &Device::default()), input).unwrap();
        assert_eq!(fitted.model.slope().to_bits(), start.to_bits());
        assert_ne!(fitted.model.offset(), 0.0);
    }
}
