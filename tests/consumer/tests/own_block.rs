//! A block of this project's own, in a stack of `firelight-core`.
//!
//! A gated recurrence: `h_t = a_t h_{t-1} + (1 - a_t) v_t` with `a_t = σ(W x_t)`, as minGRU in Feng et al. 2024, §3.1
//! (<https://arxiv.org/abs/2410.01201>). A token that is padding leaves `h` as it is; a document begins with zeros.

use burn::module::Module;
use burn::tensor::{Device, Distribution, Tensor, activation::sigmoid};
use firelight_consumer::{fit, model::D_MODEL};
use firelight_core::{invariants::stack, *};

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
        let ([batch, length, width], device) = (x.dims(), x.device());
        let gate = pass.activation("recurrence.gate", sigmoid(self.gate.forward(x.clone())));
        let gate = context.fill_padding(gate, 1.0);
        let new: Tensor<3> = (1 - gate.clone()) * self.value.forward(x);
        let kept = context.fill_document_starts(gate, 0.0);
        let mut fresh = None;
        let past = match pass.state() {
            Some(state) => state.expect_mut::<RecurrentState<3>>().extend(length),
            None => &mut fresh,
        };
        let mut hidden = past.take().unwrap_or_else(|| Tensor::zeros([batch, 1, width], &device));
        let steps = kept.split(1, 1).into_iter().zip(new.split(1, 1));
        let outputs = steps.map(|(kept, new)| {
            hidden = kept * hidden.clone() + new;
            hidden.clone()
        });
        let outputs = Tensor::cat(outputs.collect(), 1);
        *past = Some(hidden);
        stream + self.output.forward(pass.activation("recurrence.hidden", outputs))
    }

    fn state(&self, _: &PairRule, capacity: usize) -> Box<dyn State> {
        RecurrentState::<3>::new(capacity).boxed()
    }
}

fn own_stack() -> Transformer<Recurrence> {
    let config = TransformerConfig::new(D_MODEL, 4, 2).with_position(PositionConfig::None);
    config.init_layers(&ParamBuilder::new(&Device::default(), 0), |_, block, params| {
        let linear = |name: &str| LinearConfig::new(D_MODEL, D_MODEL).init_with(&params.scope(name));
        let [gate, value, output] = ["gate", "value", "output"].map(linear);
        Recurrence { norm: block.norm.init_with(D_MODEL, &params.scope("norm")), gate, value, output }
    })
}

#[test]
fn a_block_of_ones_own_has_the_properties_of_ours_and_learns() {
    let x = Tensor::random([2, 9, D_MODEL], Distribution::Default, &Device::default());
    stack(&own_stack(), &PairRule::Full, x, 1e-4).expect("the properties of a stack");
    let [before, after] = fit(own_stack(), PairRule::Full, 50).expect("a training");
    assert!(after < 0.9 * before, "the loss went from {before} to {after}");
}

#[test]
fn a_trace_and_hooks_see_what_it_does() {
    let x = Tensor::<3>::random([1, 5, D_MODEL], Distribution::Default, &Device::default());
    // A gate of ones keeps all, of nothing.
    let kept = Hooks::new().edit("blocks.0.recurrence.gate", |gate: Tensor<3>| gate.ones_like());
    let mut hooks = kept.record("blocks.*.recurrence.hidden").record("blocks.1.output");
    let mut trace = Trace::default();
    let mut pass = Pass::default().with_trace(&mut trace).with_hooks(&mut hooks);
    own_stack().forward(x, &SequenceInput::default(), &mut pass);
    let found = hooks.finish().expect("paths of this stack");
    let hidden = |layer| found.get::<3>(&format!("blocks.{layer}.recurrence.hidden")).expect("recorded").abs().sum();
    assert!(hidden(0).into_scalar::<f32>() == 0.0 && hidden(1).into_scalar::<f32>() > 0.0);
    let [traced, recorded] = [trace.layers[1].output.clone(), found.get("blocks.1.output").ok()];
    assert_eq!(traced.map(Tensor::into_data), recorded.map(Tensor::into_data));
}
