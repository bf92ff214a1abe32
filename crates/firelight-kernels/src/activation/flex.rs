//! Activation functions on the flex backend: vectorised, in parallel over blocks.

use super::{Activation, ActivationExtension, ActivationKernel};
use crate::flex::{Number, Real, contiguous, filled, for_each_block, values, vectorised, with_number};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

impl ActivationExtension for Flex {
    fn activate(x: FlexTensor, activation: Activation) -> FlexTensor {
        Self::forward(x, activation)
    }
}

impl ActivationKernel for Flex {
    fn forward(x: FlexTensor, activation: Activation) -> FlexTensor {
        with_function!(activation, forward(x))
    }

    fn backward(x: FlexTensor, grad: FlexTensor, activation: Activation) -> FlexTensor {
        with_function!(activation, backward(x, grad))
    }
}

/// Calls a function that is generic over the activation function.
macro_rules! with_function {
    ($activation:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        use $crate::activation::{Activation, flex};
        match $activation {
            Activation::GeluExact => $function::<flex::GeluExact>($($argument),*),
            Activation::GeluTanh => $function::<flex::GeluTanh>($($argument),*),
            Activation::GeluSigmoid => $function::<flex::GeluSigmoid>($($argument),*),
            Activation::Relu => $function::<flex::Relu>($($argument),*),
            Activation::Sigmoid => $function::<flex::Sigmoid>($($argument),*),
            Activation::Silu => $function::<flex::Silu>($($argument),*),
        }
    }};
}
pub(crate) use with_function;

fn forward<F: Elementwise>(x: FlexTensor) -> FlexTensor {
    fn map<T: Number, F: Elementwise>(x: FlexTensor) -> FlexTensor {
        let x = contiguous(x);
        let numbers = values::<T>(&x);
        let out = filled(numbers.len(), |out| {
            for_each_block(out, 1, |first, out| {
                let x = &numbers[first..first + out.len()];
                vectorised(
                    #[inline(always)]
                    || {
                        for (out, x) in out.iter_mut().zip(x) {
                            *out = T::round(F::value(x.widen()));
                        }
                    },
                );
            });
        });
        T::tensor(out, x.layout().shape().clone())
    }
    with_number!(x, map[F](x))
}

fn backward<F: Elementwise>(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
    fn map<T: Number, F: Elementwise>(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
        let (x, grad) = (contiguous(x), contiguous(grad));
        let (numbers, grads) = (values::<T>(&x), values::<T>(&grad));
        let out = filled(numbers.len(), |out| {
            for_each_block(out, 1, |first, out| {
                let (x, grad) = (&numbers[first..first + out.len()], &grads[first..first + out.len()]);
                vectorised(
                    #[inline(always)]
                    || {
                        for ((out, x), grad) in out.iter_mut().zip(x).zip(grad) {
                            *out = T::round(grad.widen() * F::value_and_slope(x.widen()).1);
                        }
                    },
                );
            });
        });
        T::tensor(out, x.layout().shape().clone())
    }
    with_number!(x, map[F](x, grad))
}

/// A function and its derivative, inlined into the loops over tensors.
pub(crate) trait Elementwise {
    fn value<T: Real>(x: T) -> T;
    fn value_and_slope<T: Real>(x: T) -> (T, T);
}

pub(crate) struct GeluExact;

impl Elementwise for GeluExact {
    #[inline(always)]
    fn value<T: Real>(x: T) -> T {
        x * probability(x)
    }

    #[inline(always)]
    fn value_and_slope<T: Real>(x: T) -> (T, T) {
        let density = T::of(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2) * (T::of(-0.5) * x * x).exp();
        (x * probability(x), probability(x) + x * density)
    }
}

/// `Φ(x)`.
#[inline(always)]
fn probability<T: Real>(x: T) -> T {
    T::of(0.5) * (T::of(-FRAC_1_SQRT_2) * x).erfc()
}

pub(crate) struct GeluTanh;

/// Two times `sqrt(2/π)`: `(1 + tanh(u)) / 2 = sigmoid(2u)`.
const TWICE_SQRT_2_OVER_PI: f64 = 2.0 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

impl Elementwise for GeluTanh {
    #[inline(always)]
    fn value<T: Real>(x: T) -> T {
        Self::value_and_slope(x).0
    }

    #[inline(always)]
    fn value_and_slope<T: Real>(x: T) -> (T, T) {
        let cubic = T::of(0.044715 * TWICE_SQRT_2_OVER_PI) * x * x;
        let gate = ((cubic + T::of(TWICE_SQRT_2_OVER_PI)) * x).sigmoid();
        let slope = T::of(3.0) * cubic + T::of(TWICE_SQRT_2_OVER_PI);
        // Far out the slope overflows before the gate's own slope reaches 0.
        let bend = x * gate * (T::ONE - gate);
        let bend = if bend == T::ZERO { T::ZERO } else { bend * slope };
        (x * gate, gate + bend)
    }
}

pub(crate) struct GeluSigmoid;

impl Elementwise for GeluSigmoid {
    #[inline(always)]
    fn value<T: Real>(x: T) -> T {
        x * (T::of(1.702) * x).sigmoid()
    }

    #[inline(always)]
    fn value_and_slope<T: Real>(x: T) -> (T, T) {
        swish(x, T::of(1.702))
    }
}

pub(crate) struct Silu;

impl Elementwise for Silu {
    #[inline(always)]
    fn value<T: Real>(x: T) -> T {
        x * x.sigmoid()
    }

    #[inline(always)]
    fn value_and_slope<T: Real>(x: T) -> (T, T) {
        swish(x, T::ONE)
    }
}

/// `x σ(b x)` and its slope.
#[inline(always)]
fn swish<T: Real>(x: T, b: T) -> (T, T) {
    let gate = (b * x).sigmoid();
    (x * gate, gate + b * x * gate * (T::ONE - gate))
}

pub(crate) struct Sigmoid;

impl Elementwise for Sigmoid {
    #[inline(always)]
    fn value<T: Real>(x: T) -> T {
        x.sigmoid()
    }

    #[inline(always)]
    fn value_and_slope<T: Real>(x: T) -> (T, T) {
        let value = x.sigmoid();
        (value, value * (T::ONE - value))
    }
}

pub(crate) struct Relu;

impl Elementwise for Relu {
    #[inline(always)]
    fn value<T: Real>(x: T) -> T {
        // A comparison that NaN fails, so that it passes through.
        if x <= T::ZERO { T::ZERO } else { x }
    }

    #[inline(always)]
    fn value_and_slope<T: Real>(x: T) -> (T, T) {
        (Self::value(x), if x <= T::ZERO { T::ZERO } else { T::ONE })
    }
}
