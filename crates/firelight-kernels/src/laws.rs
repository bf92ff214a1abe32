//! What holds for every operation, whichever it is: its reference is right, for every shape and layout and at every level of
//! vector units; empty tensors pass; neither the level nor the number of threads decides a bit; a task that panics leaves the
//! threads fit for the next one.

use crate::flex::simd::on_every_level;
use crate::path::by_reference;
use crate::recompute::replay::with_seeds;
use crate::testing::{Case, random};
use crate::*;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use proptest::prelude::*;
use rayon::prelude::*;
use std::sync::mpsc;
use std::time::Duration;

/// A norm's epsilon, so large that the gradient of two columns does not cancel to what rounding leaves.
const EPSILON: f64 = 0.1;

/// `x` and `y` are `[N, D]`, a table `[V, D]`, a row `[1, D]`; any rows may come out.
type Operation = (&'static str, fn([Tensor<2>; 4]) -> Tensor<2>);

const OPERATIONS: [Operation; 18] = [
    ("gelu, tanh", |[x, ..]| gelu(x, GeluForm::Tanh)),
    ("gelu, exact", |[x, ..]| gelu(x, GeluForm::Exact)),
    ("silu", |[x, ..]| silu(x)),
    ("gated by silu", |[x, y, ..]| gated(x, y, Gate::Silu)),
    ("gated by gelu", |[x, y, ..]| gated(x, y, Gate::Gelu(GeluForm::Tanh))),
    ("layer_norm", |[x, _, _, row]| layer_norm(x, flat(row.clone()), Some(flat(row)), EPSILON)),
    ("rms_norm", |[x, _, _, row]| rms_norm(x, flat(row), EPSILON)),
    ("add_layer_norm", |[x, y, _, row]| both(add_layer_norm(x, y, flat(row), None, EPSILON))),
    ("add_rms_norm", |[x, y, _, row]| both(add_rms_norm(x, y, flat(row), EPSILON))),
    ("linear", |[x, _, table, _]| {
        let bias = table.clone().narrow(1, 0, 1);
        linear(x, table.transpose(), Some(flat(bias)))
    }),
    ("cross_entropy", |[x, ..]| {
        let [rows, classes] = x.dims();
        cross_entropy(x.clone(), numbers(rows, classes, &x), &smoothed()).unsqueeze()
    }),
    ("linear_cross_entropy", |[x, _, table, _]| {
        let targets = numbers(x.dims()[0], table.dims()[0], &x);
        let bias = table.clone().narrow(1, 0, 1);
        let map = LogitMap::new(table.transpose()).with_bias(Some(flat(bias)));
        linear_cross_entropy(x, &map.with_scale(0.7).with_soft_cap(Some(2.0)), targets, &smoothed()).unsqueeze()
    }),
    ("logits", |[x, _, table, _]| {
        let bias = table.clone().narrow(1, 0, 1);
        let map = LogitMap::new(table.transpose()).with_bias(Some(flat(bias)));
        map.with_scale(0.7).with_soft_cap(Some(2.0)).forward(x)
    }),
    ("embedding", |[x, _, table, _]| {
        let [rows, vocab_size] = [x.dims()[0], table.dims()[0]];
        let tokens: Vec<i64> = (0..rows).map(|i| (i * 7 % vocab_size) as i64).collect();
        let tokens = Tensor::from_data(TensorData::new(tokens, [1, rows]), &x.device());
        embedding(table, tokens).squeeze_dim(0)
    }),
    ("rotary", |[x, y, ..]| {
        let ([rows, width], pairs) = (x.dims(), x.dims()[1] / 2);
        let angles = y.detach().narrow(1, 0, pairs).reshape([1, 1, rows, pairs]);
        let x = x.reshape([1, 1, rows, width]);
        rotary(x, angles.clone().cos(), angles.sin(), RotaryPairs::Halves).reshape([rows, width])
    }),
    ("causal_convolution", |[x, _, _, row]| {
        let taps = Tensor::cat(vec![row.clone() * 2, row.clone()], 0);
        causal_convolution(x.unsqueeze(), row.unsqueeze(), taps, None).squeeze_dim(0)
    }),
    ("linear_recurrence", |[x, y, ..]| {
        let [rows, width] = x.dims();
        let [x, y] = [x, y].map(|x| x.reshape([rows, 1, 1, width]));
        let before = Tensor::zeros([1, 1, width], (&x.device(), x.dtype()));
        let states = linear_recurrence(y.narrow(3, 0, 1) * 0.1, x, before);
        states.narrow(0, 1, rows).reshape([rows, width])
    }),
    ("attention", |[x, y, table, _]| {
        let heads = |x: Tensor<2>| x.unsqueeze_dims::<4>(&[0, 0]);
        let options =
            AttentionOptions::default().with_mask(AttentionMask::rule(PairRule::window(9, 0))).with_soft_cap(Some(2.0));
        let rows = Tensor::cat(vec![table.clone(), y], 0);
        attention(heads(x), heads(rows.clone()), heads(rows), &options).squeeze_dims(&[0, 1])
    }),
];

/// What is computed outside of a graph. Every output has its part in the result.
const WITHOUT_GRADIENTS: [Operation; 3] = [
    ("adamw", |[x, y, ..]| {
        let step =
            AdamWStep { learning_rate: 0.1, weight_decay: 0.01, beta_1: 0.9, beta_2: 0.99, epsilon: 1e-8, time: 3 };
        let moments = [y.clone().inner(), y.clone().inner().abs()];
        let (parameter, [mean, square]) = adamw(x.clone().inner(), y.inner(), Some(moments), &step);
        x + Tensor::from_inner(parameter + mean * 3.0 + square * 5.0)
    }),
    ("square_sum", |[x, ..]| x.clone() * Tensor::from_inner(square_sum(x.inner())).unsqueeze()),
    ("dropout", |[x, ..]| with_seeds(vec![7], || dropout(x, 0.4))),
];

fn flat(x: Tensor<2>) -> Tensor<1> {
    x.flatten(0, 1)
}

/// One of two outputs, of which each leaves its trace.
fn both((sum, normed): (Tensor<2>, Tensor<2>)) -> Tensor<2> {
    sum * 3.0 + normed
}

fn smoothed() -> CrossEntropyOptions {
    CrossEntropyOptions::default().with_label_smoothing(0.1)
}

/// So many numbers below `limit`, on the device of `x`.
fn numbers(count: usize, limit: usize, x: &Tensor<2>) -> Tensor<1, Int> {
    let numbers: Vec<i64> = (0..count).map(|i| (i * 7 % limit) as i64).collect();
    Tensor::from_data(numbers.as_slice(), &x.device())
}

/// How a matrix lies in memory.
#[derive(Debug, Clone, Copy)]
enum Layout {
    Whole,
    Turned,
    Part,
    Reversed,
}

impl Layout {
    const ALL: [Self; 4] = [Self::Whole, Self::Turned, Self::Part, Self::Reversed];

    /// What is stored so that [`view`](Self::view) is `x`.
    fn stored(self, x: Tensor<2>) -> Tensor<2> {
        let [rows, columns] = x.dims();
        match self {
            Self::Whole => x,
            Self::Turned => x.transpose(),
            Self::Part => Tensor::zeros([rows + 2, columns + 3], (&x.device(), x.dtype()))
                .slice_assign([1..rows + 1, 2..columns + 2], x),
            Self::Reversed => x.flip([0, 1]),
        }
    }

    fn view(self, stored: Tensor<2>) -> Tensor<2> {
        let [rows, columns] = stored.dims();
        match self {
            Self::Whole => stored,
            Self::Turned => stored.transpose(),
            Self::Part => stored.slice([1..rows - 1, 2..columns - 1]),
            Self::Reversed => stored.flip([0, 1]),
        }
    }
}

/// The inputs of an operation: how many rows and columns, and how they lie.
#[derive(Debug, Clone)]
struct Inputs {
    case: Case,
    sizes: [usize; 3],
    layouts: [Layout; 4],
}

impl Inputs {
    fn new(dtype: DType, sizes: [usize; 3], layouts: [Layout; 4]) -> Self {
        Self { case: Case { dtype, ..Case::plain() }, sizes, layouts }
    }

    /// The output, and the gradient of a weighted sum of it in every input that it depends on.
    fn run(&self, operation: fn([Tensor<2>; 4]) -> Tensor<2>) -> Vec<Vec<f64>> {
        let [n, d, v] = self.sizes;
        let mut seed = 0;
        let leaves = [[n, d], [n, d], [v, d], [1, d]].map(|shape| {
            seed += 1;
            let stored = self.layouts[seed as usize - 1].stored(random(&self.case, shape, seed)).into_data();
            Tensor::<2>::from_data(stored, (&self.case.device(), self.case.dtype)).require_grad()
        });
        let mut layouts = self.layouts.into_iter();
        let output = operation(leaves.clone().map(|leaf| layouts.next().expect("one for each").view(leaf)));
        let weights = random(&self.case, output.dims(), 99);
        let grads = (output.clone() * weights).sum().backward();
        let gradients = leaves.iter().filter_map(|leaf| leaf.grad(&grads)).map(Tensor::into_data);
        std::iter::once(output.into_data()).chain(gradients).map(|data| data.iter::<f64>().collect()).collect()
    }
}

fn inputs() -> impl Strategy<Value = Inputs> {
    let layout = || prop::sample::select(Layout::ALL.as_slice());
    let dtype = prop::sample::select([DType::F32, DType::F64].as_slice());
    (dtype, [1..40usize, 2..70, 1..50], [layout(), layout(), layout(), layout()])
        .prop_map(|(dtype, sizes, layouts)| Inputs::new(dtype, sizes, layouts))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_shape_and_layout_equals_the_reference(inputs in inputs()) {
        let tolerance = if inputs.case.dtype == DType::F64 { 1e-9 } else { 1e-5 };
        for (name, operation) in OPERATIONS {
            let expected = by_reference(|| inputs.run(operation));
            for (level, found) in on_every_level(|| inputs.run(operation)) {
                prop_assert_eq!(found.len(), expected.len(), "{} at {}", name, level);
                for (found, expected) in found.iter().zip(&expected) {
                    let difference = Difference::between(found, expected);
                    prop_assert!(difference.relative(0.1) <= tolerance, "{name} at {level}: {difference:?}");
                }
            }
        }
    }
}

/// A row and a matrix so large that a decoder's product takes its own way are among the inputs. A level that a CPU lacks is
/// not tested there: the `gemm` crate chooses its own, equal in all runs.
#[test]
fn every_level_of_vector_units_gives_the_same_bits() {
    for (dtype, sizes) in [(DType::F32, [70, 67, 50]), (DType::F64, [70, 67, 50]), (DType::F32, [1, 300, 300])] {
        let inputs = Inputs::new(dtype, sizes, [Layout::Whole; 4]);
        for (name, operation) in OPERATIONS.into_iter().chain(WITHOUT_GRADIENTS) {
            let levels = on_every_level(|| inputs.run(operation));
            assert!(levels[0].1.iter().flatten().all(|number| number.is_finite()), "{name}");
            for (level, found) in &levels[1..] {
                assert!(*found == levels[0].1, "{name} at {level} in {inputs:?}");
            }
        }
    }
}

#[test]
fn the_reference_is_another_way() {
    let inputs = Inputs::new(DType::F32, [40, 64, 48], [Layout::Whole; 4]);
    let differs = |&(_, operation): &Operation| inputs.run(operation) != by_reference(|| inputs.run(operation));
    assert!(OPERATIONS.iter().filter(|operation| differs(operation)).count() > 8, "both ways give the same bits");
}

/// Losses have none, and those of heads stand below: Burn cannot make four dimensions out of two where there is nothing.
#[test]
fn empty_batches_pass_in_both_directions() {
    let is_of_rows = |name: &str| {
        !name.contains("cross_entropy")
            && !["rotary", "attention", "causal_convolution", "linear_recurrence"].contains(&name)
    };
    for (name, operation) in OPERATIONS.into_iter().filter(|(name, _)| is_of_rows(name)) {
        let found = Inputs::new(DType::F32, [0, 6, 5], [Layout::Whole; 4]).run(operation);
        assert!(found.len() > 1 && found[0].is_empty(), "{name}");
        assert!(found[1..].iter().flatten().all(|&gradient| gradient == 0.0), "{name}");
    }
}

#[test]
fn empty_batches_of_heads_pass_in_both_directions() {
    let device = Case::plain().device();
    let operations: [fn(Tensor<4>) -> Tensor<4>; 3] = [
        |x| attention(x.clone(), x.clone(), x, &AttentionOptions::default().with_mask(AttentionMask::causal())),
        |x| {
            let sinks = Tensor::zeros([2], &x.device()).require_grad();
            attention(x.clone(), x.clone(), x, &AttentionOptions::default().with_sinks(Some(sinks)))
        },
        |x| {
            let angles = Tensor::zeros([1, 1, 3, 2], &x.device());
            rotary(x, angles.clone().cos(), angles.sin(), RotaryPairs::Halves)
        },
    ];
    for operation in operations {
        let x = Tensor::<4>::zeros([0, 2, 3, 4], &device).require_grad();
        let output = operation(x.clone());
        assert_eq!(output.dims(), [0, 2, 3, 4]);
        assert_eq!(x.grad(&output.sum().backward()).expect("a gradient").dims(), [0, 2, 3, 4]);
    }
}

#[test]
fn the_number_of_threads_decides_no_bit() {
    let inputs = Inputs::new(DType::F32, [700, 66, 130], [Layout::Whole; 4]);
    let on = |threads: usize, operation| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
        pool.install(|| inputs.run(operation))
    };
    for (name, operation) in OPERATIONS {
        let once = on(4, operation);
        assert!(once == on(4, operation) && once == on(1, operation), "{name}");
    }
}

/// Each with an input whose rows or columns are one too many, and what is said of it.
#[test]
fn shapes_that_do_not_fit_are_reported_with_the_name_of_the_operation() {
    type Wrong = fn(fn(&[usize; 2]) -> Tensor<2>, fn(usize) -> Tensor<1>, Tensor<1, Int>);
    let wrong: [(Wrong, [&str; 3]); 12] = [
        (|x, row, _| drop(layer_norm(x(&[2, 3]), row(4), None, 0.1)), ["layer_norm:", "[2, 3]", "[4]"]),
        (|x, row, _| drop(layer_norm(x(&[2, 3]), row(3), Some(row(5)), 0.1)), ["layer_norm:", "[2, 3]", "[5]"]),
        (|x, row, _| drop(rms_norm(x(&[2, 3]), row(4), 0.1)), ["rms_norm:", "[2, 3]", "[4]"]),
        (
            |x, row, _| drop(add_layer_norm(x(&[2, 3]), x(&[2, 4]), row(3), None, 0.1)),
            ["add_layer_norm:", "[2, 3]", "[2, 4]"],
        ),
        (
            |x, row, _| drop(add_layer_norm(x(&[2, 3]), x(&[2, 3]), row(4), None, 0.1)),
            ["add_layer_norm:", "[2, 3]", "[4]"],
        ),
        (|x, row, _| drop(add_rms_norm(x(&[2, 3]), x(&[2, 3]), row(4), 0.1)), ["add_rms_norm:", "[2, 3]", "[4]"]),
        (|x, _, _| drop(linear(x(&[2, 3]), x(&[4, 5]), None)), ["linear:", "[2, 3]", "[4, 5]"]),
        (|x, row, _| drop(linear(x(&[2, 3]), x(&[3, 5]), Some(row(4)))), ["linear:", "[3, 5]", "[4]"]),
        (|x, _, _| drop(gated(x(&[2, 3]), x(&[2, 4]), Gate::Silu)), ["gated:", "[2, 3]", "[2, 4]"]),
        (|x, _, ids| drop(cross_entropy(x(&[3, 5]), ids, &smoothed())), ["cross_entropy:", "[3, 5]", "[2]"]),
        (
            |x, _, ids| drop(linear_cross_entropy(x(&[3, 4]), &LogitMap::new(x(&[4, 5])), ids, &smoothed())),
            ["linear_cross_entropy:", "[3, 4]", "[2]"],
        ),
        (
            |x, _, ids| drop(linear_cross_entropy(x(&[2, 3]), &LogitMap::new(x(&[4, 5])), ids, &smoothed())),
            ["linear_cross_entropy:", "[2, 3]", "[4, 5]"],
        ),
    ];
    for (wrong, parts) in wrong {
        let zeros = |shape: &[usize; 2]| Tensor::<2>::zeros(*shape, &Device::flex());
        let ids = Tensor::<1, Int>::zeros([2], &Device::flex());
        let panic = std::panic::catch_unwind(|| wrong(zeros, |length| Tensor::zeros([length], &Device::flex()), ids));
        let text = *panic.expect_err("shapes that do not fit").downcast::<String>().expect("a text");
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

/// On a thread of its own, so that one that waits for ever is found out.
#[test]
fn a_task_that_panics_leaves_the_threads_fit() {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool of threads");
        let inputs = Inputs::new(DType::F32, [700, 66, 130], [Layout::Whole; 4]);
        let all = || OPERATIONS.map(|(_, operation)| inputs.run(operation));
        let before = pool.install(all);
        for _ in 0..3 {
            let broken = || (0..100).into_par_iter().for_each(|i| assert_ne!(i, 57, "on purpose"));
            let broken = || awake(&inputs.case.device(), broken);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.install(broken))).is_err());
        }
        done.send(before == pool.install(|| awake(&inputs.case.device(), all))).expect("somebody waits");
    });
    let is_equal = is_done.recv_timeout(Duration::from_secs(300)).expect("the operations end");
    assert!(is_equal);
}
