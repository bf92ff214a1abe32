//! A block of this project's own, in a stack of `firelight-core`.
//!
//! A gated recurrence: `h_t = a_t h_{t-1} + (1 - a_t) v_t` with `a_t = σ(W x_t)`, as minGRU in Feng et al. 2024, §3.1
//! (<https://arxiv.org/abs/2410.01201>). A token that is padding leaves `h` as it is.

use burn::module::Module;
use burn::tensor::{Device, Distribution, Tensor, activation::sigmoid};
use firelight_consumer::{fit, model::D_MODEL};
use firelight_core::invariants::{Violation, stack};
use firelight_core::{
    Layer, LayerContext, LayerPass, Linear, LinearConfig, Norm, PairRule, ParamBuilder, PositionConfig, RecurrentState,
    ResidualStream, State, Transformer, TransformerConfig,
};

#[derive(Module, Debug)]
struct Recurrence {
    norm: Norm,
    gate: Linear,
    value: Linear,
    output: Linear,
}

impl Layer for Recurrence {
    fn extend(&self, stream: ResidualStream, context: &LayerContext, pass: &mut LayerPass) -> ResidualStream {
        let (stream, x) = stream.normed(&self.norm);
        let ([batch, length, width], value) = (x.dims(), self.value.forward(x.clone()));
        let gate = sigmoid(self.gate.forward(x));
        let gate = match &context.padding {
            Some(padding) => gate.mask_fill(padding.clone().unsqueeze_dim::<3>(2).expand([batch, length, width]), 1.0),
            None => gate,
        };
        let state = pass.state().map(|state| state.expect_mut::<RecurrentState<3>>().extend(length));
        let mut past = None;
        let past = state.unwrap_or(&mut past);
        let mut hidden = past.take().unwrap_or_else(|| Tensor::zeros([batch, 1, width], &value.device()));
        let steps = gate.split(1, 1).into_iter().zip(value.split(1, 1));
        let outputs = steps.map(|(gate, value)| {
            hidden = gate.clone() * hidden.clone() + (1 - gate) * value;
            hidden.clone()
        });
        let outputs = Tensor::cat(outputs.collect(), 1);
        *past = Some(hidden);
        stream + self.output.forward(outputs)
    }

    fn state(&self, _: &PairRule, capacity: usize) -> Box<dyn State> {
        RecurrentState::<3>::new(capacity).boxed()
    }
}

fn own_stack() -> Transformer<Recurrence> {
    let config = TransformerConfig::new(D_MODEL, 4, 2).with_position(PositionConfig::None);
    config.init_layers(&ParamBuilder::new(&Device::flex(), 0), |_, block, params| {
        let linear = |name: &str| LinearConfig::new(D_MODEL, D_MODEL).init_with(&params.scope(name));
        let [gate, value, output] = ["gate", "value", "output"].map(linear);
        Recurrence { norm: block.norm.init_with(D_MODEL, &params.scope("norm")), gate, value, output }
    })
}

#[test]
fn a_block_of_ones_own_has_the_properties_of_ours() -> Result<(), Violation> {
    let x = Tensor::random([2, 9, D_MODEL], Distribution::Default, &Device::flex());
    stack(&own_stack(), &PairRule::Full, x, 1e-4)
}

#[test]
fn it_learns() {
    let [before, after] = fit(own_stack(), PairRule::Full, 50).expect("a training");
    assert!(after < 0.9 * before, "the loss went from {before} to {after}");
}
