//! Both parts of a block of this project's own: a mixer with a state of its own, which reads each token with the two before it, and
//! a feed-forward network, the product of two linear maps.

use burn::module::Module;
use burn::tensor::{Device, Distribution, Int, Tensor};
use firelight_consumer::{fit, model::D_MODEL};
use firelight_core::{invariants::stack, *};

/// The two tokens before those of a pass, `[B, 2, D]`, zeros before the first, and how many were read.
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
        let shape @ [batch, length, width] = x.dims();
        let x = match context.padding.clone() {
            Some(padding) => x.mask_fill(padding.unsqueeze_dim::<3>(2).expand(shape), 0.0),
            None => x,
        };
        let mut alone = LastTwo::default();
        let state = pass.state().map_or(&mut alone, |state| state.expect_mut());
        let before = state.0.take().unwrap_or_else(|| Tensor::zeros([batch, 2, width], &x.device()));
        let all = Tensor::cat(vec![before, x], 1);
        *state = LastTwo(Some(all.clone().narrow(1, length, 2)), state.1 + length);
        let from = |start: usize| self.maps[start].forward(all.clone().narrow(1, start, length));
        from(0) + from(1) + from(2)
    }
    fn state(&self, _: &PairRule, _: usize) -> Box<dyn State> {
        LastTwo::default().boxed()
    }
}

impl FeedForwardNetwork for Parts {
    fn forward(&self, x: Tensor<3>, _: &LayerContext, _: &mut LayerPass) -> Tensor<3> {
        self.maps[2].forward(self.maps[0].forward(x.clone()) * self.maps[1].forward(x))
    }
}

#[test]
fn parts_of_ones_own_have_the_properties_of_ours_and_learn() {
    let maps = |params: &ParamBuilder| Parts {
        maps: ["0", "1", "2"].map(|name| LinearConfig::new(D_MODEL, D_MODEL).init_with(&params.scope(name))).into(),
    };
    let config = TransformerConfig::new(D_MODEL, 4, 2).with_position(PositionConfig::Learned);
    let params = ParamBuilder::new(&Device::flex(), 0);
    let own = || config.init_layers(&params, |_, block, params| block.init_parts(params, maps, maps));
    let x = Tensor::random([2, 9, D_MODEL], Distribution::Default, &Device::flex());
    stack(&own(), &PairRule::Full, x, 1e-4).expect("the properties of a stack");
    let [before, after] = fit(own(), PairRule::Full, 50).expect("a training");
    assert!(after < 0.9 * before, "the loss went from {before} to {after}");
}
