//! Who reads or changes what an attention does inside: traces and hooks.

use super::linear::product;
use super::{merge, split};
use crate::hooks::LayerHooks;
use crate::pass::LayerPass;
use burn::tensor::Tensor;

/// Who wants the attention weights of a layer: a trace, hooks, or both.
#[derive(Debug)]
pub(crate) struct WeightsTap<'a> {
    trace: Option<&'a mut Option<Tensor<4>>>,
    /// With the name of the weights in the layer.
    hooks: Option<(LayerHooks<'a>, &'static str)>,
}

impl<'a> WeightsTap<'a> {
    /// None if nobody wants them, so that they need not be formed.
    pub(crate) fn new(
        trace: Option<&'a mut Option<Tensor<4>>>,
        hooks: Option<LayerHooks<'a>>,
        name: &'static str,
    ) -> Option<Self> {
        let hooks = hooks.and_then(|mut hooks| hooks.wants(name).then_some((hooks, name)));
        (trace.is_some() || hooks.is_some()).then_some(Self { trace, hooks })
    }

    /// Hands the weights `[B, H, Q, K]` out. Returns the heads `[B, H, Q, W]`, which change with the weights: by the product of that change
    /// with the values `[B, G, K, W]`, so that what else is in them, a past that is kept as sums, stays.
    pub(crate) fn read(self, heads: Tensor<4>, weights: Tensor<4>, value: Tensor<4>) -> Tensor<4> {
        let (heads, weights) = match self.hooks {
            Some((hooks, name)) => changed(hooks, name, [heads, weights, value]),
            None => (heads, weights),
        };
        if let Some(trace) = self.trace {
            *trace = Some(weights);
        }
        heads
    }
}

fn changed(mut hooks: LayerHooks, name: &str, [heads, weights, value]: [Tensor<4>; 3]) -> (Tensor<4>, Tensor<4>) {
    let after = hooks.activation(name, weights.clone());
    match hooks.edits(name) {
        // A cache may store values as numbers of another type.
        true => {
            let value = firelight_kernels::cast(value, after.dtype().into());
            (heads + product(after.clone() - weights, value), after)
        }
        false => (heads, after),
    }
}

/// What hooks make of heads that stand side by side, `[B, T, H W]`; they see them as `[B, H, T, W]`.
pub(crate) fn hooked_heads(heads: Tensor<3>, n_heads: usize, name: &str, pass: &mut LayerPass) -> Tensor<3> {
    match pass.wants(name) {
        true => merge(pass.activation(name, split(heads, n_heads))),
        false => heads,
    }
}
