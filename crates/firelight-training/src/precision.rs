//! The type that a training computes in, and the scale that keeps the gradients of `f16` from vanishing.
//!
//! Source: Micikevicius et al. 2018, Mixed precision training, §3.1 and §3.2 (<https://arxiv.org/abs/1710.03740>), the scale
//! found as in their §3.2's last paragraph, with the numbers of PyTorch's `GradScaler`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Tensor};
use serde::{Deserialize, Serialize};

use firelight_kernels::MatmulPrecision;
use firelight_storage::InputError;

use crate::TrainingError;
use crate::gradients::scaled;

/// `training.precision`: what a forward and a backward pass compute in. Parameters, their gradients and the state of the
/// optimiser are `f32` in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Single precision, whose linear maps form three products of `bf16` for each of `f32` where a processor has units for them, see
    /// [`MatmulPrecision::Bf16x3`]; elsewhere as `F32`.
    Bf16x3,
    /// The range of `f32` with 8 bits of precision.
    Bf16,
    /// 11 bits of precision from 6e-5 to 65504: with a [`LossScale`].
    F16,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16x3 => "bf16x3",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

impl Precision {
    /// The type to cast to, for [`Pass::with_precision`] of `firelight-core`; none where nothing is cast.
    ///
    /// [`Pass::with_precision`]: https://docs.rs/firelight-core/latest/firelight_core/struct.Pass.html#method.with_precision
    pub fn dtype(self) -> Option<FloatDType> {
        match self {
            Self::F32 | Self::Bf16x3 => None,
            Self::Bf16 => Some(FloatDType::BF16),
            Self::F16 => Some(FloatDType::F16),
        }
    }

    /// The precision of matrix products in `f32`, for [`MatmulPrecision::within`].
    ///
    /// ```
    /// use firelight_kernels::MatmulPrecision;
    /// use firelight_training::Precision;
    ///
    /// assert_eq!(Precision::Bf16x3.matmul_precision(), MatmulPrecision::Bf16x3);
    /// assert_eq!(Precision::Bf16.matmul_precision(), MatmulPrecision::F32); // Its blocks have no numbers of `f32`.
    /// ```
    pub fn matmul_precision(self) -> MatmulPrecision {
        match self {
            Self::Bf16x3 => MatmulPrecision::Bf16x3,
            Self::F32 | Self::Bf16 | Self::F16 => MatmulPrecision::F32,
        }
    }

    /// The scale that a training in this type needs: one for `f16`.
    pub fn loss_scale(self) -> Option<LossScale> {
        (self == Self::F16).then(LossScale::default)
    }

    /// Refuses a `device` that cannot compute in this type.
    ///
    /// # Errors
    /// Names device, type and what to do.
    pub fn check(self, device: &Device) -> Result<(), TrainingError> {
        let device = device.clone().inner();
        match self.dtype().is_none_or(|dtype| device.supports_dtype(dtype)) {
            true => Ok(()),
            false => Err(InputError::new(format!(
                "the device {device:?} cannot compute in {self}, which `training.precision` asks for; set it to another of f32, \
                 bf16x3, bf16 and f16, or take another device"
            ))
            .into()),
        }
    }
}

/// What the loss is multiplied with before the backward pass, and the gradients divided by after it: shared by the task,
/// which multiplies, and the trainer, which divides, skips a step whose gradients are not finite, and adapts it.
#[derive(Clone, Debug, Default)]
pub struct LossScale(Arc<Mutex<Scale>>);

/// Where a [`LossScale`] stands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scale {
    factor: f64,
    /// Steps since the factor changed.
    good: usize,
}

/// Steps without an overflow after which the factor doubles.
const PATIENCE: usize = 2000;

impl Default for Scale {
    fn default() -> Self {
        Self { factor: 65_536.0, good: 0 }
    }
}

impl Scale {
    /// After a step whose gradients were numbers.
    fn kept(self) -> Self {
        match self.good + 1 == PATIENCE {
            true => Self { factor: 2.0 * self.factor, good: 0 },
            false => Self { good: self.good + 1, ..self },
        }
    }

    /// After a step whose gradients were not; none where no smaller factor is left to try.
    fn halved(self) -> Option<Self> {
        (self.factor > 1.0).then_some(Self { factor: 0.5 * self.factor, good: 0 })
    }
}

impl LossScale {
    /// The loss to differentiate.
    pub fn scaled(&self, loss: Tensor<1>) -> Tensor<1> {
        loss * self.state().factor
    }

    /// Begins anew with a factor of one's own in the place of 2^16.
    pub fn begin_at(&self, factor: f64) {
        self.restore(Scale { factor, good: 0 });
    }

    pub(crate) fn state(&self) -> Scale {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn restore(&self, scale: Scale) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = scale;
    }

    /// The gradients of the loss itself.
    pub(crate) fn unscaled<M: Module>(&self, model: &M, gradients: GradientsParams) -> GradientsParams {
        scaled(model, gradients, 1.0 / self.state().factor)
    }

    /// Notes a step that was taken.
    pub(crate) fn keep(&self) {
        self.restore(self.state().kept());
    }

    /// Notes gradients that are not finite, and returns whether a smaller scale can help.
    pub(crate) fn halve(&self) -> bool {
        self.state().halved().map(|scale| self.restore(scale)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_halves_at_once_and_doubles_after_two_thousand_steps() {
        let scale = LossScale::default();
        assert_eq!(scale.state().factor, 65_536.0);
        for _ in 1..PATIENCE {
            scale.keep();
        }
        assert_eq!(scale.state(), Scale { factor: 65_536.0, good: PATIENCE - 1 });
        scale.keep();
        assert_eq!(scale.state(), Scale { factor: 131_072.0, good: 0 });
        scale.keep();
        assert!(scale.halve());
        assert_eq!(scale.state(), Scale { factor: 65_536.0, good: 0 });
    }

    #[test]
    fn below_one_no_scale_helps() {
        let scale = LossScale::default();
        assert!((0..16).all(|_| scale.halve()));
        assert!(!scale.halve());
        assert_eq!(scale.state().factor, 1.0);
    }

    #[test]
    fn the_scale_is_restored_to_the_bit() {
        let scale = Scale { factor: 1.0 / 3.0, good: 7 };
        let text = serde_json::to_string(&scale).unwrap();
        assert_eq!(serde_json::from_str::<Scale>(&text).unwrap(), scale);
    }

    #[test]
    #[cfg(not(miri))]
    #[allow(deprecated)]
    fn a_device_without_the_type_is_refused() {
        let ndarray = Device::ndarray();
        Precision::F32.check(&ndarray).unwrap();
        Precision::Bf16x3.check(&ndarray).unwrap(); // By the products of f32.
        for (precision, name) in [(Precision::Bf16, "bf16"), (Precision::F16, "f16")] {
            let error = precision.check(&ndarray.clone().autodiff()).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(name) && text.contains("NdArray") && text.contains("`training.precision`"), "{text}");
            assert!(error.is_user_error());
            precision.check(&Device::flex()).unwrap();
        }
    }
}
