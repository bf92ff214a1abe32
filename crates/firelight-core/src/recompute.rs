//! Blocks whose activations are dropped after the forward pass and computed again in the backward pass.
//!
//! Source: Chen et al. 2016, §4 (<https://arxiv.org/abs/1604.06174>), with the parts of their equation 1 the blocks of the
//! stack: of every block its input stays, and in the backward pass the activations of one block at a time.

use crate::context::LayerContext;
use crate::layer::Layer;
use crate::pass::{AuxiliaryLosses, LayerPass};
use crate::position::ScoreBias;
use crate::precision::{Precision, widened};
use burn::tensor::Tensor;
use firelight_kernels::recomputed;
use std::iter::once;

/// What becomes of a tensor, as a vector.
type Exchange<'a> = &'a mut dyn FnMut(Tensor<1>) -> Tensor<1>;

/// [`Layer::forward`] without a cache, of which the graph keeps the input alone.
pub(crate) fn forward_recomputed<L: Layer + 'static>(
    layer: &L,
    x: Tensor<3>,
    context: &LayerContext,
    precision: Precision,
    losses: Option<&mut AuxiliaryLosses>,
) -> Tensor<3> {
    let (shape, dtype, with_losses) = (x.dims(), x.dtype(), losses.is_some());
    let mut inputs = vec![x.reshape([-1])];
    let context = context.exchanged(&mut |tensor| {
        inputs.push(tensor.clone());
        tensor.detach()
    });
    let outputs = recomputed(layer, inputs, move |layer, inputs| {
        let mut inputs = inputs.into_iter();
        let mut next = || inputs.next().expect("an input for every tensor of the context");
        let x = next().reshape(shape);
        let context = context.exchanged(&mut |_| next());
        let mut losses = AuxiliaryLosses::default();
        let mut pass = LayerPass::collecting(with_losses.then_some(&mut losses));
        let output = precision.module(layer).forward(x, &context, &mut pass).reshape([-1]);
        let losses = losses.into_load_balances();
        // They stand in one vector, and losses are in single precision.
        let output = if losses.is_empty() { output } else { widened(output) };
        once(output).chain(losses).collect()
    });
    let mut outputs = outputs.into_iter();
    let output = outputs.next().expect("a block has an output").reshape(shape).cast(dtype);
    if let Some(losses) = losses {
        outputs.for_each(|loss| losses.add_load_balance(loss));
    }
    output
}

impl LayerContext {
    /// The same with others in the place of the tensors through which gradients may flow: the memory, and biases that are
    /// trained.
    pub(crate) fn exchanged(&self, exchange: Exchange) -> Self {
        let mut context = self.clone();
        if let Some(memory) = &mut context.encoder_output {
            memory.hidden = through(memory.hidden.clone(), exchange);
        }
        context.attention.bias = context.attention.bias.map(|bias| bias.exchanged(exchange));
        context
    }
}

impl ScoreBias {
    fn exchanged(self, exchange: Exchange) -> Self {
        match self {
            Self::Fixed(bias) => Self::Fixed(through(bias, exchange)),
            Self::ByDistance(bias) => Self::ByDistance(through(bias, exchange)),
            Self::OfQuery { weight, index } => Self::OfQuery { weight: through(weight, exchange), index },
        }
    }
}

fn through<const D: usize>(tensor: Tensor<D>, exchange: Exchange) -> Tensor<D> {
    let shape = tensor.dims();
    exchange(tensor.reshape([-1])).reshape(shape)
}

#[cfg(test)]
mod tests {
    use crate::feed_forward::{Activation, ExpertsConfig, RouterScores};
    use crate::{
        AttentionPattern, AuxiliaryLosses, EncoderDecoderConfig, EncoderOutput, NormPlacement, ParamBuilder, Pass,
        PositionConfig, SequenceInput, TransformerConfig,
    };
    use burn::module::{Module, ModuleVisitor, Param};
    use burn::tensor::{Bool, Device, Distribution, Gradients, Tensor, TensorData};
    use firelight_kernels::{Difference, assert_same_bits};
    use proptest::prelude::*;

    struct Collect<'a>(&'a Gradients, Vec<(String, Option<TensorData>)>);

    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let gradient = param.val().grad(self.0).map(Tensor::into_data);
            self.1.push((format!("{:?}", param.val().dims()), gradient));
        }
    }

    fn gradients<M: Module>(module: &M, grads: &Gradients) -> Vec<(String, Option<TensorData>)> {
        let mut collect = Collect(grads, Vec::new());
        module.visit(&mut collect);
        collect.1
    }

    /// Asserts that the gradients are the same to the bit, and that there are some.
    fn same(found: &[(String, Option<TensorData>)], expected: &[(String, Option<TensorData>)]) {
        assert_eq!(found.len(), expected.len());
        let mut norm = 0.0;
        for ((name, found), (other, expected)) in found.iter().zip(expected) {
            assert_eq!((name, found.is_some()), (other, expected.is_some()));
            if let Some(found) = found {
                assert_same_bits(found, expected);
                norm += found.iter::<f64>().map(|number| number * number).sum::<f64>();
            }
        }
        assert!(norm > 1e-6, "{norm:e}");
    }

    /// Asserts that gradients differ only by the rounding of a sum: where several layers read a tensor more than once each, its
    /// gradient is summed layer by layer.
    fn near(found: &[(String, Option<TensorData>)], expected: &[(String, Option<TensorData>)]) {
        let numbers = |all: &[(String, Option<TensorData>)]| {
            let gradients = all.iter().filter_map(|(_, gradient)| gradient.as_ref());
            gradients.flat_map(|gradient| gradient.iter::<f64>().collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let difference = Difference::between(&numbers(found), &numbers(expected));
        assert!(difference.largest > 0.0 && difference.relative(0.0) <= 1e-6, "{difference:?}");
    }

    fn random(shape: [usize; 3], device: &Device) -> Tensor<3> {
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
    }

    /// The gradients of a stack, with and without recomputation.
    fn compare(config: &TransformerConfig, input: impl Fn(&Device) -> SequenceInput) {
        let device = Device::flex().autodiff();
        let model = config.init_with(&ParamBuilder::new(&device, 0));
        let x = random([2, 6, config.d_model], &device).require_grad();
        let cotangent = random([2, 6, config.d_model], &device);
        let input = input(&device);
        let run = |recompute: bool| {
            let mut losses = AuxiliaryLosses::default();
            let mut pass = Pass::default().with_losses(&mut losses).with_recomputation(recompute);
            let output = model.forward(x.clone(), &input, &mut pass);
            let loss = (output * cotangent.clone()).mean();
            let loss = losses.load_balance().map_or(loss.clone(), |balance| loss + balance);
            let grads = loss.clone().backward();
            let mut all = gradients(&model, &grads);
            all.push(("x".into(), x.grad(&grads).map(Tensor::into_data)));
            all.push(("loss".into(), Some(loss.into_data())));
            let memory = input.encoder_output.as_ref().map(|memory| memory.hidden.grad(&grads).map(Tensor::into_data));
            (all, memory.map(|gradient| ("memory".to_owned(), gradient)))
        };
        let ((found, found_memory), (expected, expected_memory)) = (run(true), run(false));
        same(&found, &expected);
        if expected_memory.is_some() {
            near(found_memory.as_slice(), expected_memory.as_slice());
        }
    }

    fn plain(_: &Device) -> SequenceInput {
        SequenceInput::default()
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(12))]
        #[test]
        fn gradients_are_those_of_the_plain_pass_to_the_bit(
            n_layers in 1usize..4,
            placement in prop_oneof![
                Just(NormPlacement::Pre), Just(NormPlacement::Post),
                Just(NormPlacement::Sandwich), Just(NormPlacement::Parallel)
            ],
            position in prop_oneof![
                Just(PositionConfig::Learned), Just(PositionConfig::rotary()), Just(PositionConfig::Alibi)
            ],
        ) {
            let config = TransformerConfig::new(8, 2, n_layers).with_max_seq_len(8);
            compare(&config.with_norm_placement(placement).with_position(position), plain);
        }
    }

    #[test]
    fn trained_biases_of_all_layers_gather_their_gradients() {
        for position in [PositionConfig::t5(false), PositionConfig::shaw()] {
            let patterns = vec![AttentionPattern::Causal, AttentionPattern::SlidingWindow { left: 2, right: 0 }];
            let config = TransformerConfig::new(8, 2, 3).with_max_seq_len(8).with_position(position);
            compare(&config.with_patterns(patterns), plain);
        }
    }

    #[test]
    fn a_memory_receives_the_gradients_of_every_layer() {
        let memory = |device: &Device| {
            let padding = Tensor::<2, Bool>::from_bool([[false, false, true], [false; 3]], device);
            let memory = EncoderOutput::new(random([2, 3, 8], device).require_grad()).with_padding(Some(padding));
            SequenceInput::default().with_encoder_output(memory)
        };
        compare(&TransformerConfig::decoder(8, 2, 2), memory);
    }

    #[test]
    fn experts_keep_their_load_balance() {
        let experts = ExpertsConfig::new(3).with_top_k(2);
        let config = TransformerConfig::new(8, 2, 2).with_max_seq_len(8).with_activation(Activation::SwiGlu);
        compare(&config.clone().with_experts(experts), plain);
        compare(&config.with_experts(experts.with_scores(RouterScores::Sigmoid).with_shared(1)), plain);
    }

    #[test]
    fn an_encoder_and_its_decoder_are_recomputed_in_one_backward_pass() {
        let device = Device::flex().autodiff();
        let model = EncoderDecoderConfig::new(8, 2, 2).init_with(&ParamBuilder::new(&device, 0));
        let (source, target) = (random([2, 3, 8], &device), random([2, 4, 8], &device));
        let cotangent = random([2, 4, 8], &device); // the square of a normed output has hardly a gradient
        let run = |recompute: bool| {
            let pass = || Pass::default().with_recomputation(recompute);
            let memory = model.encode(source.clone(), &SequenceInput::default(), &mut pass());
            let output = model.decode(target.clone(), memory, &SequenceInput::default(), &mut pass());
            let grads = (output * cotangent.clone()).mean().backward();
            [gradients(&model.encoder, &grads), gradients(&model.decoder, &grads)]
        };
        let ([encoder, decoder], [plain_encoder, plain_decoder]) = (run(true), run(false));
        near(&encoder, &plain_encoder);
        same(&decoder, &plain_decoder);
    }

    #[test]
    #[should_panic(expected = "a pass that recomputes its blocks has neither cache nor trace")]
    fn a_cache_cannot_be_recomputed() {
        let device = Device::flex().autodiff();
        let model = TransformerConfig::new(8, 2, 1).with_max_seq_len(8).init_with(&ParamBuilder::new(&device, 0));
        let mut cache = model.cache(8);
        let mut pass = Pass::cached(&mut cache).with_recomputation(true);
        model.forward(random([1, 2, 8], &device), &SequenceInput::default(), &mut pass);
    }
}
