//! The gradients of a stack's parameters, against slopes.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor};

use super::{Subject, Violation, noise, verdict};
use crate::layer::Layer;

/// By how much all parameters are moved first: a matrix that begins at zero hides the slopes of those before it, and a bias of zero may
/// stand at a kink.
const MOVED: f64 = 0.03;

/// Steps in units of a parameter's size, of which the best one counts: curvature and kinks spoil a long step, rounding a short one.
const STEPS: [f64; 4] = [3e-2, 1e-2, 3e-3, 1e-3];

/// The size of a parameter is the root mean square of its numbers, or this, if that is less.
const SMALLEST: f64 = 0.1;

/// Slopes below this part of the outputs' size are compared with that part: those that are zero in exact arithmetic, as that of a key's bias
/// under a softmax, hold rounding noise.
const NOISE: f64 = 0.02;

/// Between slope and gradient, relative to the larger of the gradient's and the noise's size.
const TOLERANCE: f64 = 1e-2;

impl<L: Layer + 'static> Subject<'_, L> {
    /// The gradient of each parameter that is trained, of a stack with autodiff, must be the slope of the outputs in a random direction.
    pub(super) fn parameter_gradients(&self, x: &Tensor<3>) -> Result<(), Violation> {
        let x = Tensor::<3>::from_data(x.to_data(), &x.device().autodiff());
        let stack = self.stack.clone().map(&mut Move { only: None, by: MOVED, place: 0 });
        let moved = Subject { stack: &stack, input: self.input.clone(), tolerance: self.tolerance };
        moved.directions(&x).iter().try_for_each(|direction| moved.slope(&x, direction))
    }

    /// The outputs, each times its weight.
    fn weighted(&self, x: Tensor<3>) -> Tensor<3> {
        let output = self.whole(x);
        let weights = noise(output.dims(), 1000, &output.device());
        output * weights
    }

    fn directions(&self, x: &Tensor<3>) -> Vec<Direction> {
        let outputs = self.weighted(x.clone());
        let smallest = NOISE * norm(&numbers(outputs.clone()));
        let gradients = outputs.sum().backward();
        let mut all = Directions { gradients, smallest, path: Vec::new(), place: 0, found: Vec::new() };
        self.stack.visit(&mut all);
        all.found
    }

    fn slope(&self, x: &Tensor<3>, direction: &Direction) -> Result<(), Violation> {
        let mut best = f64::NAN;
        for step in STEPS {
            let [ahead, behind] = [step, -step].map(|by| self.outputs_after(x, direction, by));
            let change: f64 = ahead.iter().zip(&behind).map(|(ahead, behind)| ahead - behind).sum();
            best = best.min((change / (2.0 * step) - direction.expected).abs() / direction.size);
            if best <= TOLERANCE {
                break;
            }
        }
        verdict("the gradient is the slope", format!("parameter {}", direction.path), best, TOLERANCE)
    }

    /// The weighted outputs after a step in one parameter.
    fn outputs_after(&self, x: &Tensor<3>, direction: &Direction, by: f64) -> Vec<f64> {
        let mut step = Move { only: Some(direction.place), by: by * direction.unit, place: 0 };
        let stack = self.stack.clone().map(&mut step);
        let moved = Subject { stack: &stack, input: self.input.clone(), tolerance: self.tolerance };
        numbers(moved.weighted(x.clone()))
    }
}

/// What the gradient says of a step in one parameter.
struct Direction {
    path: String,
    /// Its number among all parameters.
    place: usize,
    /// The size of the parameter.
    unit: f64,
    /// The slope by the gradient, in steps of that size.
    expected: f64,
    /// What a difference of slopes is divided by.
    size: f64,
}

/// The directions of the parameters that were visited.
struct Directions {
    gradients: Gradients,
    smallest: f64,
    path: Vec<String>,
    place: usize,
    found: Vec<Direction>,
}

impl ModuleVisitor for Directions {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (value, place) = (param.val(), self.place);
        self.place += 1;
        if !value.is_require_grad() {
            return;
        }
        let along = numbers(noise(value.dims(), place, &value.device()));
        let gradient = value.grad(&self.gradients).map_or_else(|| vec![0.0; along.len()], numbers);
        let unit = (norm(&numbers(value)) / (along.len() as f64).sqrt()).max(SMALLEST);
        let expected = unit * along.iter().zip(&gradient).map(|(along, gradient)| along * gradient).sum::<f64>();
        let size = (unit * norm(&gradient)).max(self.smallest);
        self.found.push(Direction { path: self.path.join("."), place, unit, expected, size });
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        if !container.starts_with("Enum:") {
            self.path.push(name.into());
        }
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        if !container.starts_with("Enum:") {
            self.path.pop();
        }
    }
}

/// Moves one parameter that is trained, or all, each by `by` times random numbers of its own.
struct Move {
    only: Option<usize>,
    by: f64,
    place: usize,
}

impl ModuleMapper for Move {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (place, by) = (self.place, self.by);
        self.place += 1;
        if self.only.is_some_and(|only| only != place) || !param.val().is_require_grad() {
            return param;
        }
        param.map(|value| {
            let value = value.inner(); // Without it the sum would not be a leaf.
            let along = noise(value.dims(), place, &value.device());
            Tensor::from_inner(value + along * by).require_grad()
        })
    }
}

fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    let data = x.into_data();
    data.iter::<f64>().collect()
}

fn norm(numbers: &[f64]) -> f64 {
    numbers.iter().map(|number| number * number).sum::<f64>().sqrt()
}
