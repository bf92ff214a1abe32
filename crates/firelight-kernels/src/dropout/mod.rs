//! Dropout: in training some numbers are left out at random and the rest scaled up, so that the mean stays.
//!
//! Source: Srivastava et al. 2014, §4 (<https://jmlr.org/papers/v15/srivastava14a.html>), scaled in training and not
//! afterwards. On the fused path the mask is a function of a seed and the place of a number, and no tensor: the backward
//! pass computes it again. One such generator serves this operation and the weights of [`attention`](crate::attention).

#[cfg(feature = "flex")]
mod flex;
pub(crate) mod reference;

#[cfg(feature = "extension")]
use burn::tensor::Device;
use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use extension::{DropoutExtension, DropoutKernel};

/// Drops a share `rate` of the numbers and multiplies the rest by `1 / (1 - rate)`. The caller passes 0 outside training,
/// which returns `x`.
///
/// The seed comes from the generator of the device: one [`seed`](burn::tensor::Device::seed) of the device and one order of
/// calls give the same numbers again.
///
/// # Shapes
/// - any; the output has the shape of `x`
///
/// # Panics
/// If `rate` is outside `[0, 1)`.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_kernels::dropout;
///
/// let device = Device::flex();
/// device.seed(1);
/// let kept = dropout(Tensor::<1>::ones([1000], &device), 0.75).sum().into_scalar::<f32>();
/// assert!((800.0..1200.0).contains(&kept)); // About 250 numbers of 4.
/// ```
pub fn dropout<const D: usize>(x: Tensor<D>, rate: f64) -> Tensor<D> {
    assert!((0.0..1.0).contains(&rate), "dropout: rate {rate} is not in [0, 1)");
    if rate == 0.0 {
        return x;
    }
    #[cfg(feature = "flex")]
    if crate::half::is_half(&x) {
        return crate::half::in_single(x, |x| dropout(x, rate));
    }
    #[cfg(feature = "flex")]
    if crate::path::log_path("dropout", crate::path::is_fused_on_cpu(&x)) {
        let seed = seed(&x.device());
        return extension::dropout(x, rate, seed);
    }
    reference::dropout(x, rate)
}

/// A seed from the generator of the device, so that one seed of the device decides on all dropout; in a part of a model that
/// runs again, the one that it drew before.
#[cfg(feature = "extension")]
pub(crate) fn seed(device: &Device) -> u64 {
    crate::recompute::replay::next(|| drawn(device))
}

#[cfg(feature = "extension")]
fn drawn(device: &Device) -> u64 {
    let numbers = Tensor::<1>::random([4], burn::tensor::Distribution::Default, &device.clone().inner()).into_data();
    numbers.iter::<f64>().fold(0, |seed: u64, number| seed.rotate_left(16) ^ (number * f64::from(1 << 24)) as u64)
}

#[cfg(feature = "flex")]
mod extension {
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record_cheap};
    use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
    use burn::tensor::Tensor;

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex, Autodiff)]
    pub(crate) trait DropoutExtension: Backend {
        fn dropout(x: FloatTensor<Self>, rate: f64, seed: u64) -> FloatTensor<Self>;
    }

    /// What a backend brings: the same factors for the same seed, so that the operation is its own gradient.
    pub(crate) trait DropoutKernel: Backend {
        fn dropped(x: FloatTensor<Self>, rate: f64, seed: u64) -> FloatTensor<Self>;
    }

    pub(super) fn dropout<const D: usize>(x: Tensor<D>, rate: f64, seed: u64) -> Tensor<D> {
        Tensor::from_dispatch(Dispatch::dropout(x.into_dispatch(), rate, seed))
    }

    /// The gradient of dropout: the same numbers dropped again. Nothing is kept but rate and seed.
    impl<B: DropoutKernel, C: CheckpointStrategy> DropoutExtension for Autodiff<B, C> {
        fn dropout(x: FloatTensor<Self>, rate: f64, seed: u64) -> FloatTensor<Self> {
            let forward = |Dropped { rate, seed }: &Dropped, [x]: [FloatTensor<B>; 1]| B::dropped(x, *rate, *seed);
            record_cheap::<B, C, _, 1>([x], [false], Dropped { rate, seed }, forward)
        }
    }

    #[derive(Debug, Clone)]
    struct Dropped {
        rate: f64,
        seed: u64,
    }

    impl<B: DropoutKernel> Operation<B, 1> for Dropped {
        fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
            [Some(B::dropped(pass.gradient, self.rate, self.seed))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn the_share_of_the_rate_is_dropped_and_the_mean_stays() {
        let device = Device::default().autodiff();
        let x = Tensor::<2>::full([300, 70], 2.0, &device).require_grad();
        let y = dropout(x.clone(), 0.25);
        let gradient = x.grad(&y.sum().backward()).expect("x requires a gradient");
        let dropped = gradient.clone().equal_scalar(0.0).int().sum().into_scalar::<i64>() as f64;
        // Six standard deviations of a count of 21,000 with a chance of 1/4.
        assert!((dropped - 5250.0).abs() < 6.0 * (21_000.0f64 * 3.0 / 16.0).sqrt(), "{dropped}");
        let factors: Vec<f32> = gradient.into_data().iter::<f32>().collect();
        assert!(factors.iter().all(|&factor| factor == 0.0 || (factor - 4.0 / 3.0).abs() < 1e-6));
    }

    #[test]
    fn the_gradient_has_the_zeros_of_the_output() {
        let device = Device::default().autodiff();
        let x = Tensor::<3>::ones([7, 3, 1111], &device).require_grad();
        let y = dropout(x.clone(), 0.5);
        let gradient = x.grad(&y.clone().sum().backward()).expect("x requires a gradient");
        gradient.into_data().assert_eq(&y.into_data(), true);
    }

    #[test]
    fn nothing_is_dropped_at_a_rate_of_zero_or_of_nothing() {
        let device = Device::default();
        let x = Tensor::<1>::from_floats([1.0, -0.0, f32::INFINITY], &device);
        dropout(x.clone(), 0.0).into_data().assert_eq(&x.into_data(), true);
        assert_eq!(dropout(Tensor::<2>::zeros([0, 5], &device), 0.5).dims(), [0, 5]);
    }

    #[test]
    #[should_panic(expected = "rate 1 is not in [0, 1)")]
    fn dropping_all_panics() {
        dropout(Tensor::<1>::ones([1], &Device::default()), 1.0);
    }

    #[cfg(feature = "flex")]
    mod fused {
        use super::*;
        use crate::testing::{Case, alone, compare, normal};
        use burn::tensor::TensorData;

        /// What the numbers of a tensor in order are multiplied with.
        fn factors<const D: usize>(x: &Tensor<D>, rate: f64, seed: u64) -> Tensor<D> {
            let count = x.shape().num_elements();
            let lines = count.div_ceil(flex::LINE);
            let mut factors = crate::flex::dropout::factors(rate, seed, [lines, flex::LINE]);
            factors.truncate(count);
            Tensor::from_data(TensorData::new(factors, x.shape()), (&x.device(), x.dtype()))
        }

        #[test]
        fn it_equals_a_product_with_its_factors() {
            for case in [[5, 33], [3, 1025], [300, 70]].iter().flat_map(Case::all) {
                for rate in [0.1, 0.9] {
                    let fused = |[x]: [Tensor<2>; 1]| extension::dropout(x, rate, 11);
                    compare(&case, [normal(&case, 0)], fused, |[x]| x.clone() * factors(&x, rate, 11));
                }
            }
        }

        #[test]
        fn one_seed_drops_the_same_on_any_number_of_threads_and_another_seed_others() {
            let x = Tensor::<2>::ones([100, 1000], &Device::flex());
            let run = |threads: usize, seed: u64| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
                pool.install(|| extension::dropout(x.clone(), 0.5, seed).into_data())
            };
            assert_eq!(run(1, 3), run(4, 3));
            assert_eq!(run(4, 3), factors(&x, 0.5, 3).into_data());
            assert_ne!(run(1, 3), run(1, 4));
        }

        #[test]
        fn a_checkpointing_graph_drops_the_same_again() {
            let slope = |device: Device| {
                let x = Tensor::<1>::ones([64], &device).require_grad();
                let y = extension::dropout(x.clone() * 2.0, 0.5, 5).exp();
                x.grad(&y.sum().backward()).expect("x requires a gradient").into_data()
            };
            let device = Device::flex().autodiff();
            assert_eq!(slope(device.clone()), slope(device.gradient_checkpointing()));
        }

        #[test]
        fn the_seed_of_the_device_decides_what_is_dropped() {
            alone(|| {
                let device = Device::flex();
                let run = |seed: u64| {
                    device.seed(seed);
                    dropout(Tensor::<1>::ones([100], &device), 0.5).into_data()
                };
                assert_eq!(run(3), run(3));
                assert_ne!(run(3), run(4));
            });
        }
    }
}
