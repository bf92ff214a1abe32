//! Who reads or changes what an attention does inside: traces and hooks.

use super::LayerPass;
use crate::heads::{merge_heads, product, split_heads};
use crate::hooks::LayerHooks;
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

impl LayerPass<'_> {
    /// [`activation`](Self::activation) of heads that stand side by side, `[B, T, H W]`; hooks see them as `[B, H, T, W]`.
    pub(crate) fn activation_of_heads(&mut self, name: &str, heads: Tensor<3>, n_heads: usize) -> Tensor<3> {
        match self.wants(name) {
            true => merge_heads(self.activation(name, split_heads(heads, n_heads))),
            false => heads,
        }
    }
}
