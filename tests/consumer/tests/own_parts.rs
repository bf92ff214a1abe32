//! Both parts of a block of this project's own: a mixer with a state of its own, which reads each token with the two before it, and
//! a feed-forward network, the product of two linear maps.

use burn::module::Module;
use burn::tensor::{Device, Distribution, Int, Tensor};
use firelight_consumer::{fit, model::D_MODEL};
use firelight_core::{invariants::stack, *};

/// The two tokens before those of a pass, `[B, 2, D]`, zeros before the first of a document, and how many were read.
#[derive(Debug, Clone, Default)]
struct LastTwo(Option<Tensor<3>>, usize);

impl State for LastTwo {
    fn len(&self) -> usize {
        self.1
    }
    fn truncate(&mut self, _: usize) {
        *self = Self::default(); // It can go back to the begin alone.
    }
    fn select_rows(&mut self, rows: &Tensor<1, Int>) {
        self.0 = self.0.take().map(|tokens| tokens.select(0, rows.clone()));
    }
    fn join(&mut self, other: Box<dyn State>) {
        let other: Self = other.expect();
        let both = self.0.take().into_iter().chain(other.0);
        *self = Self(both.reduce(|above, below| Tensor::cat(vec![above, below], 0)), self.1.max(other.1));
    }
    fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |tokens| 4 * tokens.shape().num_elements())
    }
    fn boxed(&self) -> Box<dyn State> {
        Box::new(self.clone())
    }
}

#[derive(Module, Debug)]
struct Parts {
    maps: Vec<Linear>,
}

impl TokenMixer for Parts {
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let x = context.fill_padding(x, 0.0);
        let mut alone = LastTwo::default();
        let state = pass.state().map_or(&mut alone, |state| state.expect_mut());
        let past = state.0.take().unwrap_or_else(|| Tensor::zeros([batch, 2, width], &x.device()));
        let before = |x: &Tensor<3>, at: usize| {
            let all = Tensor::cat(vec![past.clone().narrow(1, at, 1), x.clone()], 1);
            context.fill_document_starts(all.narrow(1, 0, length), 0.0)
        };
        let one = before(&x, 1);
        let two = before(&one, 0);
        let last = [&one, &x].map(|tokens| tokens.clone().narrow(1, length - 1, 1));
        *state = LastTwo(Some(Tensor::cat(last.to_vec(), 1)), state.1 + length);
        let mixed = self.maps[0].forward(two) + self.maps[1].forward(one) + self.maps[2].forward(x);
        pass.activation("near.mixed", mixed)
    }
    fn state(&self, _: &PairRule, _: usize) -> Box<dyn State> {
        LastTwo::default().boxed()
    }
}

impl FeedForwardNetwork for Parts {
    fn forward(&self, x: Tensor<3>, _: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        let product = self.maps[0].forward(x.clone()) * self.maps[1].forward(x);
        self.maps[2].forward(pass.activation("feed_forward.product", product))
    }
}

fn own_stack() -> Transformer<TransformerBlock<Parts, Parts>> {
    let maps = |params: &ParamBuilder| Parts {
        maps: ["0", "1", "2"].map(|name| LinearConfig::new(D_MODEL, D_MODEL).init_with(&params.scope(name))).into(),
    };
    let config = TransformerConfig::new(D_MODEL, 4, 2).with_position(PositionConfig::Learned);
    config
        .init_layers(&ParamBuilder::new(&Device::default(), 0), |_, block, params| block.init_parts(params, maps, maps))
}

#[test]
fn parts_of_ones_own_have_the_properties_of_ours_and_learn() {
    let x = Tensor::random([2, 9, D_MODEL], Distribution::Default, &Device::default());
    stack(&own_stack(), &PairRule::Full, x, 1e-4).expect("the properties of a stack");
    let [before, after] = fit(own_stack(), PairRule::Full, 50).expect("a training");
    assert!(after < 0.9 * before, "the loss went from {before} to {after}");
}

#[test]
fn a_trace_and_hooks_see_what_they_do() {
    let x = Tensor::<3>::random([1, 5, D_MODEL], Distribution::Default, &Device::default());
    let hooks = Hooks::new().ablate("blocks.0.near.mixed", Ablation::Zero, ActivationSlice::all());
    let hooks = hooks.record("blocks.*.feed_forward.product").record("blocks.*.attention.output");
    let (mut hooks, mut trace) = (hooks.record("blocks.1.output"), Trace::default());
    let mut pass = Pass::default().with_trace(&mut trace).with_hooks(&mut hooks);
    own_stack().forward(x, &SequenceInput::default(), &mut pass);
    let found = hooks.finish().expect("paths of this stack");
    assert_eq!(found.shape("blocks.1.feed_forward.product"), Some(&[1, 5, D_MODEL][..]));
    let mixed = |layer| found.get::<3>(&format!("blocks.{layer}.attention.output")).expect("recorded").abs().sum();
    assert!(mixed(0).into_scalar::<f32>() == 0.0 && mixed(1).into_scalar::<f32>() > 0.0);
    let [traced, recorded] = [trace.layers[1].output.clone(), found.get("blocks.1.output").ok()];
    assert_eq!(traced.map(Tensor::into_data), recorded.map(Tensor::into_data));
}
