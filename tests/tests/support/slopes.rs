//! Gradients against slopes, for the input, the memory and every parameter of a stack, and every parameter of a language model.
//!
//! Autodiff in double precision must give the slope of the output, by central differences, along a random direction through
//! all tensors at once. A step in a tensor is divided by the size of the tensor's gradient, so that each tensor has the same
//! share of the slope and none hides behind a larger one. In double precision the step is short, but where a gradient is next to nothing,
//! as that of a router of one expert under a norm, which undoes its weight, it may still cross a kink of ReLU or a border between
//! experts: a shorter step then does not, and what is wrong stays wrong. What the device under test gives in single precision must agree with that gradient.

use std::collections::BTreeMap;
use std::fmt::Debug;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use firelight::kernels::Difference;
use firelight::language::{LanguageModel, LanguageModelConfig};
use firelight::nn::{
    EncoderOutput, LayerConfig, LossConfig, MixerConfig, ParamBuilder, Pass, SequenceInput, Transformer,
    TransformerConfig,
};

use super::{Noise, ParameterPath, device, tolerance};

/// By how much the number changes in each tensor's share of a step. The slope is right if that of one step is.
const STEPS: [f64; 2] = [1e-6, 1e-8];

/// Between the slope and the gradient, of which each tensor's share is about 1.
const SLOPE_TOLERANCE: f64 = 1e-4;

/// Gradients that are zero in exact arithmetic, as that of a key's bias under a softmax, hold rounding noise. Below this part
/// of the largest gradient of the stack a tensor is compared with that part.
const NOISE: f64 = 1e-3;

/// The same for single precision, where noise is larger. So an error passes that is below 1e-5 of the stack's largest gradient, on a
/// GPU below 1e-4. The check is there for what double precision, which always runs on a CPU, cannot see: the kernels of the device
/// and those of single precision. A factor that is wrong by one per cent shows in every tensor whose gradient reaches a thousandth
/// of the largest, on a GPU a hundredth.
const SINGLE_NOISE: f64 = 0.1;

/// What the gradients of single precision may differ by, in tolerances of the device.
const SLACK: f64 = 10.0;

/// The same of the gated delta rule, which divides keys and queries by their lengths: rounding grows where these are small.
const DELTA_SLACK: f64 = 100.0;

/// The numbers of each tensor, by its path.
pub(crate) type Named = BTreeMap<String, Vec<f64>>;

/// A module, all of whose parameters have gradients.
trait Probe: Module {
    /// One number that is made of all of them.
    fn run(&self) -> Tensor<1>;

    /// The gradient of every tensor.
    fn gradients(&self) -> Named {
        let gradients = self.run().backward();
        let mut collect = Collect { gradients: &gradients, path: ParameterPath::default(), found: Named::new() };
        self.visit(&mut collect);
        collect.found
    }

    /// The same in double precision.
    fn in_double(self) -> Self {
        self.map(&mut Double)
    }

    /// The tensors that `along` names, moved by so much of it.
    fn moved(&self, along: &Named, by: f64) -> Self {
        self.clone().map(&mut Move { along, by, path: ParameterPath::default() })
    }
}

/// A stack and what it reads.
#[derive(Module, Debug)]
struct StackProbe {
    stack: Transformer,
    x: Param<Tensor<3>>,
    memory: Option<Param<Tensor<3>>>,
    /// Of the outputs.
    #[module(skip)]
    weights: TensorData,
}

impl Probe for StackProbe {
    /// The sum of the outputs, each times its weight.
    fn run(&self) -> Tensor<1> {
        let x = self.x.val();
        let input = match &self.memory {
            Some(memory) => SequenceInput::default().with_encoder_output(EncoderOutput::new(memory.val())),
            None => SequenceInput::default(),
        };
        let weights = Tensor::<3>::from_data(self.weights.clone(), (&x.device(), x.dtype()));
        (self.stack.forward(x.clone(), &input, &mut pass_in(x.dtype())) * weights).sum()
    }
}

/// A language model.
#[derive(Module, Debug)]
struct LanguageProbe {
    model: LanguageModel,
}

impl Probe for LanguageProbe {
    /// Its loss, by the logits that are not formed as a whole.
    fn run(&self) -> Tensor<1> {
        let table = self.model.embedding.weight.val();
        let ids = [[[1, 5, 2, 7], [3, 3, 0, 6]], [[5, 2, 7, 4], [3, 0, 6, 1]]];
        let [tokens, targets] = ids.map(|ids| Tensor::<2, Int>::from_ints(ids, &table.device()));
        let hidden = self.model.hidden(tokens, &SequenceInput::default(), &mut pass_in(table.dtype()));
        LossConfig::default().init().forward_head(self.model.lazy_logits(hidden), targets, None).total
    }
}

/// A pass over numbers of a type.
fn pass_in(dtype: DType) -> Pass<'static> {
    Pass::default().with_precision((dtype == DType::F64).then_some(FloatDType::F64))
}

/// Checks the gradients of the stack of `config` on two rows of `length` tokens, and gives those of double precision.
///
/// # Panics
/// If a tensor has no gradient, or one that is not the slope, or another one on the device under test; with its path.
pub(crate) fn assert_gradients_are_slopes(config: &TransformerConfig, length: usize, noise: &mut Noise) -> Named {
    let [x, memory, weights] = [length, 3, length].map(|len| noise.tensor([2, len, config.d_model]).into_data());
    let build = |device: &Device| StackProbe {
        stack: config.init_with(&ParamBuilder::new(device, 0)),
        x: Param::from_data(x.clone(), device),
        memory: config.has_cross_attention().then(|| Param::from_data(memory.clone(), device)),
        weights: weights.clone(),
    };
    let has_delta = |layer: &LayerConfig| matches!(layer.block.mixer, MixerConfig::GatedDelta(_));
    let slack = if config.layers.iter().any(has_delta) { DELTA_SLACK } else { SLACK };
    assert_slopes(build, config, slack, noise)
}

/// The same for the loss of a language model of eight tokens.
pub(crate) fn assert_gradients_of_a_loss_are_slopes(config: &LanguageModelConfig, noise: &mut Noise) -> Named {
    let build = |device: &Device| LanguageProbe { model: config.init_with(&ParamBuilder::new(device, 0)) };
    assert_slopes(build, config, SLACK, noise)
}

fn assert_slopes<P: Probe>(build: impl Fn(&Device) -> P, config: &impl Debug, slack: f64, noise: &mut Noise) -> Named {
    let exact = double_device();
    let expected = build(&exact.clone().autodiff()).in_double().gradients();
    let plain = build(&exact).in_double();
    assert_slope(&plain, &expected, noise).unwrap_or_else(|text| panic!("{text}: {config:?}"));
    let found = build(&device().autodiff()).gradients();
    assert_agree(&found, &expected, slack).unwrap_or_else(|text| panic!("{text}: {config:?}"));
    expected
}

/// The Euclidean length of all tensors whose path contains `part`.
pub(crate) fn size_of(gradients: &Named, part: &str) -> f64 {
    let numbers = gradients.iter().filter(|(path, _)| path.contains(part)).flat_map(|(_, numbers)| numbers);
    numbers.map(|number| number * number).sum::<f64>().sqrt()
}

/// Flex, where it is built in: not every operation of the others computes in double precision.
fn double_device() -> Device {
    firelight::device::select(Some("cpu")).expect("a CPU backend beside the GPU's")
}

/// The slope along all tensors at once; if it is wrong, those of the single tensors tell which.
fn assert_slope(probe: &impl Probe, gradients: &Named, noise: &mut Noise) -> Result<(), String> {
    let along = directions(gradients, noise);
    if error(probe, gradients, &along) <= SLOPE_TOLERANCE {
        return Ok(());
    }
    let alone = |(path, numbers): (&String, &Vec<f64>)| {
        let along = Named::from([(path.clone(), numbers.clone())]);
        format!("{path} by {:.1e}", error(probe, gradients, &along))
    };
    Err(format!("the gradient is not the slope: {}", along.iter().map(alone).collect::<Vec<_>>().join(", ")))
}

/// Random numbers for each tensor, over the size of its gradient.
fn directions(gradients: &Named, noise: &mut Noise) -> Named {
    let largest = gradients.values().map(|numbers| norm(numbers)).fold(0.0, f64::max);
    let direction = |(path, numbers): (&String, &Vec<f64>)| {
        let size = norm(numbers).max(NOISE * largest);
        (path.clone(), noise.numbers(numbers.len()).into_iter().map(|number| f64::from(number) / size).collect())
    };
    gradients.iter().map(direction).collect()
}

/// How far the gradient is from the slope in the direction `along`. NaN is infinitely far.
fn error(probe: &impl Probe, gradients: &Named, along: &Named) -> f64 {
    let expected: f64 = along.iter().map(|(path, numbers)| dot(numbers, &gradients[path])).sum();
    let at = |by: f64| probe.moved(along, by).run().into_scalar::<f64>();
    let error = |step: f64| Difference::between(&[(at(step) - at(-step)) / (2.0 * step)], &[expected]).absolute;
    let mut errors = STEPS.iter().map(|step| error(*step));
    errors.find(|error| *error <= SLOPE_TOLERANCE).unwrap_or_else(|| error(STEPS[0]))
}

/// Single precision against double precision.
fn assert_agree(found: &Named, expected: &Named, slack: f64) -> Result<(), String> {
    let largest = expected.values().flatten().fold(0.0, |largest: f64, number| largest.max(number.abs()));
    for (path, expected) in expected {
        let difference = Difference::between(&found.get(path), expected).relative(SINGLE_NOISE * largest);
        let is_close = difference <= slack * tolerance();
        if !is_close {
            return Err(format!(
                "the gradient of {path} is {difference:.1e} of its size from that in double precision"
            ));
        }
    }
    Ok(())
}

fn norm(numbers: &[f64]) -> f64 {
    dot(numbers, numbers).sqrt()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `value` as what `old` was: a tensor with a gradient of its own, or none.
fn leaf<const D: usize>(value: Tensor<D>, old: &Tensor<D>) -> Tensor<D> {
    value.detach().set_require_grad(old.is_require_grad())
}

struct Double;

impl ModuleMapper for Double {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| leaf(tensor.clone().cast(FloatDType::F64), &tensor))
    }
}

struct Move<'a> {
    along: &'a Named,
    by: f64,
    path: ParameterPath,
}

impl ModuleMapper for Move<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(along) = self.along.get(&self.path.key()) else { return param };
        param.map(|tensor| {
            let along = TensorData::new(along.clone(), tensor.shape());
            let along = Tensor::<D>::from_data(along, (&tensor.device(), DType::F64));
            tensor + along * self.by
        })
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }
}

struct Collect<'a> {
    gradients: &'a burn::tensor::Gradients,
    path: ParameterPath,
    found: Named,
}

impl ModuleVisitor for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.key();
        // These are not trained: a choice depends on the correction, which jumps and has no slope, and the projections are drawn.
        if [".correction", ".projections"].iter().any(|end| path.ends_with(end)) {
            return;
        }
        let numbers = match param.val().grad(self.gradients) {
            Some(gradient) => gradient.into_data().iter::<f64>().collect(),
            // No token has chosen this expert, which its slope must confirm.
            None if path.contains(".experts.") => vec![0.0; param.val().dims().iter().product()],
            None => panic!("{path} has no gradient"),
        };
        let earlier = self.found.insert(path, numbers);
        assert!(earlier.is_none(), "{} is the path of two tensors", self.path.key());
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }
}
