//! Gated DeltaNet against Qwen3-Next of transformers: the module alone, and in a stack with softmax attention.

use burn::module::Module;
use burn::tensor::Tensor;
use firelight::nn::{
    Attention, AttentionContext, AttentionMask, GatedDelta, GatedDeltaConfig, LayerContext, LayerPass, PairRule,
    ParamBuilder, Pass, SequenceInput, State, TokenMixer, Transformer, TransformerBlock, TransformerConfig,
};

use super::described::{assert_felt, config, paths};
use crate::support::device;
use crate::support::golden::Golden;

/// What stands in the layers of Qwen3-Next.
#[derive(Module, Debug)]
enum Mixer {
    Delta(GatedDelta),
    Softmax(Attention),
}

impl TokenMixer for Mixer {
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        match self {
            Self::Delta(mixer) => mixer.forward(x, context, pass),
            Self::Softmax(mixer) => TokenMixer::forward(mixer, x, context, pass),
        }
    }

    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
        match self {
            Self::Delta(mixer) => mixer.state(rule, capacity),
            Self::Softmax(mixer) => mixer.state(rule, capacity),
        }
    }
}

fn case(index: usize) -> Golden {
    Golden::load("gated_delta").cases().nth(index).expect("a case")
}

#[test]
fn the_module_agrees() {
    let golden = case(0);
    let x = golden.input::<3>("x", &device());
    let mixer = golden.fill(config::<GatedDeltaConfig>(&golden, "config").init(&x.device()));
    let attention = AttentionContext::masked(AttentionMask::causal());
    let context = LayerContext { attention, ..LayerContext::default() };
    let output = mixer.forward(x.clone(), &context, &mut LayerPass::default());
    golden.agrees(output, [("x", &x)], &mixer);
    assert_felt(&golden, &paths(&mixer));
}

/// Three layers of it and one of attention.
fn hybrid(golden: &Golden) -> Transformer<TransformerBlock<Mixer>> {
    let delta: GatedDeltaConfig = config(&case(0), "config");
    let params = ParamBuilder::new(&device().autodiff(), 0);
    golden.fill(config::<TransformerConfig>(golden, "config").init_layers(&params, |index, block, params| {
        let part = |params: &ParamBuilder| match index {
            3 => Mixer::Softmax(block.attention.init_with(params)),
            _ => Mixer::Delta(delta.init_with(params)),
        };
        block.init_parts(params, part, |params| block.init_feed_forward(params))
    }))
}

#[test]
fn a_stack_with_softmax_attention_agrees() {
    let golden = case(1);
    let x = golden.input::<3>("x", &device());
    let padding = golden.flags::<2>("padding", &x.device());
    let model = hybrid(&golden);
    let input = SequenceInput::default().with_padding(padding.clone());
    let output = model.forward(x.clone(), &input, &mut Pass::default());
    let output = output.clone().mask_fill(padding.unsqueeze_dim::<3>(2).expand(output.dims()), 0.0);
    golden.agrees(output, [("x", &x)], &model);
    assert_felt(&golden, &paths(&model));
}
