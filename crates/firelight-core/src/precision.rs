//! Computation in half precision, with parameters in single precision.
//!
//! Source: Micikevicius et al. 2018, Mixed precision training, §3.1 (<https://arxiv.org/abs/1710.03740>): the parameters stay in
//! single precision, a copy of them is rounded in every pass, and their gradients come back in single precision. A stack
//! takes and gives single precision; in between a block computes in the type of the pass. Where all parameters and the input are of half
//! precision, nothing is cast but what the blocks share. Only here are numbers cast; the
//! kernels form sums, statistics of norms and softmaxes in single precision.

use crate::context::LayerContext;
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, FloatDType, Tensor};
use std::borrow::Cow;

/// The type that a pass computes in; none where it is that of the parameters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Precision(pub(crate) Option<FloatDType>);

impl Precision {
    /// That of an input of half precision, where the pass names none.
    pub(crate) fn or_dtype_of<const D: usize>(self, x: &Tensor<D>) -> Self {
        let is_half = matches!(x.dtype(), DType::F16 | DType::BF16);
        Self(self.0.or_else(|| is_half.then(|| x.dtype().into())))
    }

    /// A tensor of the pass in its type.
    pub(crate) fn tensor<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self.0 {
            Some(dtype) => firelight_kernels::cast(x, dtype),
            None => x,
        }
    }

    /// A module whose parameters are cast. Gradients flow through to its own.
    pub(crate) fn module<M: Module>(self, module: &M) -> Cow<'_, M> {
        match self.0 {
            Some(dtype) => Cow::Owned(cast_parameters(module.clone(), dtype)),
            None => Cow::Borrowed(module),
        }
    }

    /// What the blocks of a pass share, in its type.
    pub(crate) fn context(self, context: LayerContext) -> LayerContext {
        let Some(dtype) = self.0 else { return context };
        let mut context = context.exchanged(&mut |tensor| firelight_kernels::cast(tensor, dtype));
        context.attention.rotation = context.attention.rotation.map(|rotation| rotation.cast(dtype));
        context
    }
}

/// A tensor in single precision if it is of half precision.
pub(crate) fn widened<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if matches!(x.dtype(), DType::F16 | DType::BF16) { firelight_kernels::cast(x, FloatDType::F32) } else { x }
}

/// `module` with its parameters in `dtype`.
///
/// ```
/// use burn::tensor::{DType, Device, FloatDType};
/// use firelight_core::{LinearConfig, cast_parameters};
///
/// let layer = cast_parameters(LinearConfig::new(2, 3).init(&Device::flex()), FloatDType::BF16);
/// assert_eq!(layer.weight.val().dtype(), DType::BF16);
/// ```
pub fn cast_parameters<M: Module>(module: M, dtype: FloatDType) -> M {
    module.map(&mut Cast(dtype))
}

struct Cast(FloatDType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| firelight_kernels::cast(tensor, self.0))
    }
}

#[cfg(test)]
mod tests {
    use crate::feed_forward::{Activation, ExpertsConfig};
    use crate::{
        AttentionMechanism, AttentionPattern, AuxiliaryLosses, EncoderOutput, NormPlacement, ParamBuilder, Pass,
        PositionConfig, SequenceInput, Transformer, TransformerConfig,
    };
    use burn::module::{Module, ModuleVisitor, Param};
    use burn::tensor::{DType, Device, FloatDType, Gradients, Tensor, TensorData};
    use firelight_kernels::assert_same_bits;

    /// All gradients one behind the other, and whether all of them are in single precision.
    struct Collect<'a>(&'a Gradients, Vec<f32>, bool);

    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let Some(gradient) = param.val().grad(self.0) else { return };
            self.2 &= gradient.dtype() == DType::F32;
            self.1.extend(gradient.into_data().iter::<f32>());
        }
    }

    /// Numbers from -1.4 to 1.4; `phase` tells inputs apart.
    fn waves(shape: [usize; 3], phase: f32, device: &Device) -> Tensor<3> {
        let numbers: Vec<f32> = (0..shape.iter().product()).map(|i| 1.4 * (i as f32 * 1.7 + phase).sin()).collect();
        Tensor::from_data(TensorData::new(numbers, shape), device)
    }

    fn cosine(a: &[f32], b: &[f32]) -> f64 {
        assert_eq!(a.len(), b.len());
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        product(a, b) / (product(a, a) * product(b, b)).sqrt()
    }

    /// Output and gradients of half precision are near those of single precision, and of its type; recomputed they are the same
    /// to the bit.
    fn check(config: &TransformerConfig) {
        let device = Device::flex().autodiff();
        let model = config.init_with(&ParamBuilder::new(&device, 3));
        let x = waves([2, 6, config.d_model], 0.0, &device);
        let cotangent = waves([2, 6, config.d_model], 1.0, &device);
        let memory = EncoderOutput::new(waves([2, 3, config.d_model], 2.0, &device));
        let input = SequenceInput {
            encoder_output: config.has_cross_attention().then_some(memory),
            ..SequenceInput::default()
        };
        let forward = |model: &Transformer, pass: Pass| model.forward(x.clone(), &input, &mut { pass });
        let run = |precision: Option<FloatDType>, recompute: bool| {
            let mut losses = AuxiliaryLosses::default();
            let pass = Pass::default().with_losses(&mut losses).with_precision(precision);
            let output = forward(&model, pass.with_recomputation(recompute));
            assert_eq!(output.dtype(), DType::F32);
            // Not the square, whose gradient the final norm makes a small difference of large numbers.
            let loss = (output.clone() * cotangent.clone()).sum();
            let loss = losses.load_balance().map_or(loss.clone(), |balance| loss + balance);
            let grads = loss.backward();
            let mut collect = Collect(&grads, Vec::new(), true);
            model.visit(&mut collect);
            assert!(collect.2, "gradients of parameters are in single precision");
            (output.into_data().iter::<f32>().collect::<Vec<_>>(), collect.1)
        };
        let single = run(None, false);
        for dtype in [FloatDType::BF16, FloatDType::F16] {
            let half = run(Some(dtype), false);
            let near = [cosine(&half.0, &single.0), cosine(&half.1, &single.1)];
            assert!(near.iter().all(|near| *near > 0.999), "{near:?} with {dtype:?} and {config:?}");
            assert_ne!(half.0, single.0, "computed in {dtype:?}");
            let (output, gradients) = run(Some(dtype), true);
            assert_same_bits(&output, &half.0);
            assert_same_bits(&gradients, &half.1);
            let once = |model: &Transformer| forward(model, Pass::default().with_precision(Some(dtype))).into_data();
            once(&model.clone().cast(dtype)).assert_eq(&once(&model), true);
        }
    }

    #[test]
    fn stacks_in_half_precision_are_near_those_in_single_precision() {
        let config = || TransformerConfig::new(16, 2, 2).with_max_seq_len(8);
        for position in [
            PositionConfig::Learned,
            PositionConfig::rotary(),
            PositionConfig::Alibi,
            PositionConfig::t5(false),
            PositionConfig::shaw(),
        ] {
            check(&config().with_position(position));
        }
        check(&config().with_norm_placement(NormPlacement::Sandwich).with_layer_scale(0.5));
        check(&config().with_patterns(vec![AttentionPattern::SlidingWindow { left: 2, right: 0 }]));
        check(&TransformerConfig::decoder(16, 2, 2));
    }

    #[test]
    fn every_mechanism_and_experts_compute_in_half_precision() {
        let config = || TransformerConfig::new(16, 2, 1).with_max_seq_len(8);
        for mechanism in [
            AttentionMechanism::Bilinear,
            AttentionMechanism::Additive,
            AttentionMechanism::Linear,
            AttentionMechanism::Performer { features: 16 },
        ] {
            check(&config().with_attention_mechanism(mechanism));
        }
        check(&config().with_activation(Activation::SwiGlu).with_experts(ExpertsConfig::new(2).with_top_k(2)));
    }
}
