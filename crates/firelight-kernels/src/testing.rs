//! The comparison of a fused operation with its reference, shared by the tests of all operations.

use crate::Difference;
use crate::path::{KernelPath, kernel_path};
use burn::tensor::{DType, Device, Tensor, TensorData};

/// One set-up of a comparison: number type, layout of the inputs, size of their numbers, what gradients that cancel to
/// nothing are compared with, a shape for the operations that work on rows, and the device.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) dtype: DType,
    pub(crate) strided: bool,
    pub(crate) size: f64,
    pub(crate) smallest: f64,
    pub(crate) shape: [usize; 2],
    pub(crate) device: Device,
}

impl Case {
    /// Every combination of type, layout and size, for some rows and for a single one, on flex.
    pub(crate) fn all(&[rows, width]: &[usize; 2]) -> Vec<Self> {
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::F64] {
            for (strided, size) in [(false, 1.0), (true, 1.0), (false, 30.0)] {
                let shapes = [rows, 1].map(|rows| [rows, width]);
                cases.extend(shapes.map(|shape| Self { dtype, strided, size, shape, ..Self::plain() }));
            }
        }
        cases
    }

    /// Some rows and a single one, in order and strided, on the default device if that is a GPU with kernels of our own. The
    /// order of sums there is nobody's choice, so what cancels leaves more behind.
    pub(crate) fn on_gpu(&[rows, width]: &[usize; 2]) -> Vec<Self> {
        let device = Device::default();
        let has_kernels = kernel_path(&device, DType::F32) == KernelPath::Fused;
        let case = |strided, rows| Self {
            strided,
            smallest: 0.1,
            shape: [rows, width],
            device: device.clone(),
            ..Self::plain()
        };
        let is_gpu = has_kernels && device != Device::flex();
        if is_gpu { vec![case(false, rows), case(true, rows), case(false, 1)] } else { Vec::new() }
    }

    /// The first case of [`on_gpu`](Self::on_gpu), for what a GPU alone computes. Such tests are ignored by name in builds
    /// without one.
    pub(crate) fn gpu(shape: &[usize; 2]) -> Self {
        Self::on_gpu(shape).into_iter().next().expect("BURN_DEVICE names a GPU that this build has kernels for")
    }

    /// The cases of [`on_gpu`](Self::on_gpu), if the GPU computes in half precision; elsewhere none, and a message.
    pub(crate) fn gpu_in_half_precision(shape: &[usize; 2]) -> Vec<Self> {
        let device = Self::gpu(shape).device;
        if device.supports_dtype(DType::F16) {
            return Self::on_gpu(shape);
        }
        eprintln!("skipped: {device:?} does not compute in half precision");
        Vec::new()
    }

    /// Numbers in order and in single precision, on flex.
    pub(crate) fn plain() -> Self {
        Self { dtype: DType::F32, strided: false, size: 1.0, smallest: 1e-3, shape: [1, 1], device: Device::flex() }
    }

    pub(crate) fn device(&self) -> Device {
        self.device.clone().autodiff()
    }

    /// The error that may be made, relative to the largest element. Large numbers round before they cancel.
    fn tolerance(&self) -> f64 {
        let unit = match self.dtype {
            DType::F64 => 1e-9,
            _ if self.is_on_cpu() => 1e-5,
            _ => 1e-4,
        };
        unit * (self.size / 5.0).clamp(1.0, 10.0)
    }

    /// Some of many sets on a GPU, where every other shape and option is another program to compile.
    pub(crate) fn some<T>(&self, sets: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        sets.step_by(if self.is_on_cpu() { 1 } else { 5 })
    }

    #[cfg_attr(feature = "ndarray", allow(deprecated))]
    pub(crate) fn is_on_cpu(&self) -> bool {
        #[cfg(feature = "ndarray")]
        if self.device == Device::ndarray() {
            return true;
        }
        self.device == Device::flex()
    }
}

/// Runs a test in a process of its own, where no other test draws from the generators that a process has.
pub(crate) fn alone(test: impl FnOnce()) {
    const MARK: &str = "FIRELIGHT_TEST_ALONE";
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    if std::env::var_os(MARK).is_some() || name == "main" {
        return test(); // On the main thread tests run one after another.
    }
    let program = std::env::current_exe().expect("the program of the tests");
    let arguments = [&name, "--exact", "--include-ignored"];
    let output = std::process::Command::new(program).args(arguments).env(MARK, "1").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("test result: ok. 1 passed"), "{text}");
}

/// Random numbers of the case's shape, type and size; `seed` tells inputs apart.
pub(crate) fn normal(case: &Case, seed: u64) -> Tensor<2> {
    random(case, case.shape, seed)
}

/// Random numbers of the case's type and size, nearly normal.
pub(crate) fn random<const D: usize>(case: &Case, shape: [usize; D], seed: u64) -> Tensor<D> {
    let mut state = seed.wrapping_add(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    let count = shape.iter().product::<usize>();
    let values: Vec<f64> = (0..count).map(|_| (0..4).map(|_| uniform()).sum::<f64>() * 1.7 * case.size).collect();
    Tensor::from_data(TensorData::new(values, shape.to_vec()), (&case.device(), case.dtype))
}

/// Asserts that two functions of some tensors have the same output, and a weighted sum of it the same gradients, which are
/// its slopes.
pub(crate) fn compare<const N: usize, const D: usize, const R: usize>(
    case: &Case,
    inputs: [Tensor<D>; N],
    fused: impl Fn([Tensor<D>; N]) -> Tensor<R>,
    reference: impl Fn([Tensor<D>; N]) -> Tensor<R>,
) {
    let (found, expected) = (differentiate(case, &inputs, &fused), differentiate(case, &inputs, reference));
    if case.dtype == DType::F64 && !case.strided && case.size == 1.0 {
        (0..N).for_each(|place| assert_slope(case, &inputs, &fused, place, &found[place + 1]));
    }
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let difference = Difference::between(found, expected);
        let name = if place == 0 { "the output".to_owned() } else { format!("the gradient of input {}", place - 1) };
        assert!(difference.relative(case.smallest) <= case.tolerance(), "{name} differs: {difference:?} in {case:?}");
    }
}

/// Asserts that a gradient tells how the weighted sum of the output changes along a random direction of its input.
fn assert_slope<const N: usize, const D: usize, const R: usize>(
    case: &Case,
    inputs: &[Tensor<D>; N],
    function: impl Fn([Tensor<D>; N]) -> Tensor<R>,
    place: usize,
    gradient: &[f64],
) {
    let direction = random(case, inputs[place].dims(), 50 + place as u64);
    let at = |step: f64| {
        let mut moved = inputs.clone();
        moved[place] = moved[place].clone() + direction.clone() * step;
        let output = function(moved);
        let weights = random(case, output.dims(), 99);
        (output * weights).sum().into_data().iter::<f64>().next().expect("a sum")
    };
    const STEP: f64 = 1e-5;
    let found = (at(STEP) - at(-STEP)) / (2.0 * STEP);
    let direction: Vec<f64> = direction.into_data().iter().collect();
    let terms = || gradient.iter().zip(&direction).map(|(gradient, along)| gradient * along);
    let (expected, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
    let error = (found - expected).abs() / size.max(1e-2);
    assert!(error < 1e-5, "input {place} has the slope {found:e} where its gradient says {expected:e} in {case:?}");
}

/// The output and the gradients of all inputs. A strided input is a transposed view of its leaf.
fn differentiate<const N: usize, const D: usize, const R: usize>(
    case: &Case,
    inputs: &[Tensor<D>; N],
    function: impl Fn([Tensor<D>; N]) -> Tensor<R>,
) -> Vec<Vec<f64>> {
    let turn = |x: Tensor<D>| if case.strided && D > 1 { x.swap_dims(D - 2, D - 1) } else { x };
    let leaves = inputs.clone().map(|x| {
        let data = turn(x.clone()).into_data();
        Tensor::<D>::from_data(data, (&case.device(), case.dtype)).require_grad()
    });
    let output = function(leaves.clone().map(turn));
    let weights = random(case, output.dims(), 99) / case.size;
    let grads = (output.clone() * weights).sum().backward();
    let gradients = leaves.map(|x| x.grad(&grads).expect("every input requires a gradient").into_data());
    let data = std::iter::once(output.into_data()).chain(gradients);
    data.map(|data| data.iter::<f64>().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttentionMask, AttentionOptions, GeluForm, attention, gelu, layer_norm, linear};
    use burn::tensor::Distribution;

    /// Loss and gradients of a layer that has every kind of sum, on some threads.
    fn layer(threads: usize, inputs: &[Tensor<2>; 4]) -> Vec<Vec<f64>> {
        let case = Case::plain();
        let forward = |[x, weight, gamma, bias]: [Tensor<2>; 4]| {
            let width = gamma.dims()[1];
            let x = layer_norm(x, gamma.reshape([width]), Some(bias.clone().reshape([width])), 1e-5);
            let x = gelu(linear(x, weight, Some(bias.reshape([width]))), GeluForm::Tanh);
            let heads = x.reshape([2, 300, 4, 16]).swap_dims(1, 2);
            attention(
                heads.clone(),
                heads.clone(),
                heads,
                &AttentionOptions::default().with_mask(AttentionMask::causal()),
            )
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
        pool.install(|| differentiate(&case, inputs, forward))
    }

    #[test]
    fn runs_are_equal_to_the_bit_on_any_number_of_threads() {
        let device = Device::flex().autodiff();
        let random = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Default, &device);
        let inputs = [random([600, 64]), random([64, 64]), random([1, 64]), random([1, 64])];
        let once = layer(4, &inputs);
        assert_eq!(once, layer(4, &inputs));
        assert_eq!(once, layer(1, &inputs));
    }
}
