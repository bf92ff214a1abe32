//! What of a forward pass is dropped and computed again in the backward pass: time for memory.

use std::fmt;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, GradientCheckpointingStrategy, Int, Tensor};
use firelight_kernels::can_recompute;
use serde::{Deserialize, Serialize};

use firelight_storage::InputError;

use crate::TrainingError;

/// `training.recompute`: what is computed twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Recompute {
    /// Nothing: every activation is kept.
    #[default]
    None,
    /// Whole blocks of the stack (Chen et al. 2016, §4): of a block its input is kept. The task asks for it in its passes.
    Blocks,
    /// Single operations, by Burn's gradient checkpointing: cheap ones, whose inputs other operations keep anyway.
    Burn,
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Blocks => "blocks",
            Self::Burn => "burn",
        })
    }
}

impl Recompute {
    /// Refuses a `device` on which blocks cannot be recomputed.
    ///
    /// # Errors
    /// Names the device and the setting.
    pub fn check(self, device: &Device) -> Result<(), TrainingError> {
        match self == Self::Blocks && !can_recompute(device) {
            true => Err(InputError::new(format!(
                "`training.recompute` = blocks does not work on the device {:?}: this program was built without the operations of \
                 its backend; set it to `none` or `burn`, or take another device",
                device.clone().inner()
            ))
            .into()),
            false => Ok(()),
        }
    }

    /// The model with parameters of the graph that the setting asks for. What it reads must lie on the device of its
    /// parameters, graph included.
    pub(crate) fn apply<M: Module>(self, model: M) -> M {
        match self {
            Self::Burn => model.map(&mut Checkpointing),
            _ => model,
        }
    }
}

struct Checkpointing;

impl ModuleMapper for Checkpointing {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| match tensor.is_autodiff() {
            true => tensor.with_gradient_checkpointing_strategy(GradientCheckpointingStrategy::Balanced),
            false => tensor,
        })
    }

    /// Weights in blocks meet tensors of the graph, too.
    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        param.map(|tensor| match tensor.is_autodiff() {
            true => tensor.with_gradient_checkpointing_strategy(GradientCheckpointingStrategy::Balanced),
            false => tensor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Line, Points, alone};
    use crate::{OptimizerConfig, ScheduleConfig, Trainer};

    #[test]
    fn a_model_keeps_burns_checkpointing_from_step_to_step() {
        let _alone = alone();
        let slope = |recompute: Recompute| {
            let model = recompute.apply(Line::new(2.0, 0.0, &Device::default().autodiff()));
            let mut trainer = Trainer::new(model, OptimizerConfig::default(), ScheduleConfig::default(), 1);
            for _ in 0..3 {
                trainer.step(Points::new(vec![(1.0, 1.0), (0.5, 2.0)], &trainer.device())).unwrap();
            }
            (trainer.model().slope(), crate::evaluate::device_of(trainer.model()).gradient_checkpointing_strategy())
        };
        let (found, strategy) = slope(Recompute::Burn);
        assert_eq!(strategy, Some(GradientCheckpointingStrategy::Balanced));
        assert_eq!(found, slope(Recompute::None).0);
    }

    #[test]
    fn settings_are_words() {
        for (setting, word) in [(Recompute::None, "none"), (Recompute::Blocks, "blocks"), (Recompute::Burn, "burn")] {
            assert_eq!(serde_json::to_string(&setting).unwrap(), format!("\"{word}\""));
            assert_eq!(setting.to_string(), word);
            assert!(setting == Recompute::Blocks || setting.check(&Device::default()).is_ok());
        }
    }
}
