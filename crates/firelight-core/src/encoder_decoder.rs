//! Encoder and decoder together, on embeddings: a source is read whole, a target is written token by token.
//!
//! Source: Vaswani et al. 2017, §3.1, figure 1 (<https://arxiv.org/abs/1706.03762>).

use crate::context::EncoderOutput;
use crate::cost::Cost;
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::ParamBuilder;
use crate::pass::Pass;
use crate::transformer::{SequenceInput, Transformer, TransformerConfig};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// Configuration of an [`EncoderDecoder`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncoderDecoderConfig {
    /// The stack that reads the source.
    pub encoder: TransformerConfig,
    /// The stack that writes the target; it has cross-attention.
    pub decoder: TransformerConfig,
}

impl EncoderDecoderConfig {
    /// Two pre-norm stacks of `n_layers` each.
    pub fn new(d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        let encoder = TransformerConfig::encoder(d_model, n_heads, n_layers);
        Self { encoder, decoder: TransformerConfig::decoder(d_model, n_heads, n_layers) }
    }

    /// Makes the same change in both stacks.
    pub fn with_both(mut self, change: impl Fn(TransformerConfig) -> TransformerConfig) -> Self {
        (self.encoder, self.decoder) = (change(self.encoder), change(self.decoder));
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (source, target) = (self.encoder.d_model, self.decoder.d_model);
        Checks::default()
            .include(self.encoder.validate())
            .include(self.decoder.validate())
            .require(source == target, || {
                format!("encoder.d_model = {source} must equal decoder.d_model = {target}, which reads its output")
            })
            .require(!self.encoder.has_cross_attention(), || {
                "encoder.cross_attention = true has nothing to read".into()
            })
            .require(self.decoder.has_cross_attention(), || {
                "decoder.cross_attention = false leaves the source unread: set it to true".into()
            })
            .finish()
    }

    /// Builds both stacks; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> EncoderDecoder {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds both stacks at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> EncoderDecoder {
        expect_valid(self.validate());
        EncoderDecoder {
            encoder: self.encoder.init_with(&params.scope("encoder")),
            decoder: self.decoder.init_with(&params.scope("decoder")),
        }
    }
}

/// An encoder and a decoder that reads it.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{EncoderDecoderConfig, SequenceInput};
///
/// let device = Device::flex();
/// let model = EncoderDecoderConfig::new(64, 8, 2).init(&device);
/// let (source, target) = (Tensor::<3>::zeros([2, 7, 64], &device), Tensor::<3>::zeros([2, 5, 64], &device));
/// let hidden = model.forward(source, &SequenceInput::default(), target, &SequenceInput::default());
/// assert_eq!(hidden.dims(), [2, 5, 64]);
/// ```
#[derive(Module, Debug)]
pub struct EncoderDecoder {
    /// Reads the source.
    pub encoder: Transformer,
    /// Writes the target.
    pub decoder: Transformer,
}

impl EncoderDecoder {
    /// What a token of the source and one of the target cost together, in sequences of these lengths.
    pub fn cost(&self, [source, target]: [usize; 2]) -> Cost {
        Cost::sum([self.encoder.cost(source).named("encoder"), self.decoder.cost(target).named("decoder")])
    }

    /// Both, in plain passes, as in training.
    ///
    /// # Shapes
    /// - `source`: `[B, S, D]`, `target`: `[B, T, D]`; output: `[B, T, D]`
    ///
    /// # Panics
    /// If an input does not fit its embeddings.
    pub fn forward(
        &self,
        source: Tensor<3>,
        source_input: &SequenceInput,
        target: Tensor<3>,
        target_input: &SequenceInput,
    ) -> Tensor<3> {
        let encoder_output = self.encode(source, source_input, &mut Pass::default());
        self.decode(target, encoder_output, target_input, &mut Pass::default())
    }

    /// What the decoder reads: the source, with its padding.
    ///
    /// # Shapes
    /// - `source`: `[B, S, D]`; output: `[B, S, D]`
    ///
    /// # Panics
    /// As [`Transformer::forward`].
    pub fn encode(&self, source: Tensor<3>, input: &SequenceInput, pass: &mut Pass) -> EncoderOutput {
        EncoderOutput::new(self.encoder.forward(source, input, pass)).with_padding(input.padding.clone())
    }

    /// The target, or its next tokens where the pass has a cache.
    ///
    /// # Shapes
    /// - `target`: `[B, T, D]`; output: the same
    ///
    /// # Panics
    /// As [`Transformer::forward`].
    pub fn decode(
        &self,
        target: Tensor<3>,
        encoder_output: EncoderOutput,
        input: &SequenceInput,
        pass: &mut Pass,
    ) -> Tensor<3> {
        self.decoder.forward(target, &input.clone().with_encoder_output(encoder_output), pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::NormPlacement;
    use crate::feed_forward::Activation;
    use crate::init::WeightInit;
    use crate::invariants::{causality, parts_equal_whole};
    use crate::position::PositionConfig;
    use burn::tensor::{Bool, Distribution};
    use firelight_kernels::{Difference, assert_close};

    fn config() -> EncoderDecoderConfig {
        EncoderDecoderConfig::new(8, 2, 2).with_both(|stack| stack.with_init(WeightInit::xavier()))
    }

    fn random(length: usize) -> Tensor<3> {
        Tensor::random([2, length, 8], Distribution::Normal(0.0, 1.0), &Device::default())
    }

    #[test]
    fn the_base_model_is_counted_exactly() {
        let base = EncoderDecoderConfig::new(512, 8, 6).with_both(|stack| {
            let stack = stack.with_activation(Activation::Relu).with_position(PositionConfig::Sinusoidal);
            stack.with_norm_placement(NormPlacement::Post)
        });
        assert_eq!(base.init(&Device::default()).num_params(), 44_138_496);
    }

    #[test]
    fn the_target_is_written_in_parts_as_at_once_and_never_looks_ahead() {
        let model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
        let padding = Tensor::<2, Bool>::from_bool([[false, false, true], [false; 3]], &Device::default());
        let source = SequenceInput::default().with_padding(padding);
        let encoder_output = model.encode(random(3), &source, &mut Pass::default());
        let plain = SequenceInput::default();
        let whole = |x| model.decode(x, encoder_output.clone(), &plain, &mut Pass::default());
        let mut cache = model.decoder.cache(8);
        let step = |x| model.decode(x, encoder_output.clone(), &plain, &mut Pass::cached(&mut cache));
        parts_equal_whole(whole, step, random(5), 2, 1e-5).expect("parts equal the whole");
        causality(whole, random(5), 1e-5).expect("causal");
    }

    #[test]
    fn the_padding_of_the_source_is_never_read() {
        let device = Device::default();
        let model = config().init_with(&ParamBuilder::new(&device, 0));
        let (source, target) = (random(3), random(4));
        let padding = Tensor::<2, Bool>::from_bool([[false, false, false, true, true]; 2], &device);
        let padded = Tensor::cat(vec![source.clone(), random(2) * 10.0], 1);
        let run =
            |source, input: SequenceInput| model.forward(source, &input, target.clone(), &SequenceInput::default());
        let alone = run(source.clone(), SequenceInput::default());
        let found = run(padded.clone(), SequenceInput::default().with_padding(padding));
        assert_close(&found, &alone, 1e-5);
        let seen = Difference::between(&run(padded, SequenceInput::default()), &alone).absolute;
        assert!(seen.is_finite() && seen > 1e-3, "{seen:e}");
    }

    #[test]
    fn joined_caches_go_on_with_sources_of_unequal_length() {
        let device = Device::default();
        let model = config().init_with(&ParamBuilder::new(&device, 0));
        let plain = SequenceInput::default();
        let padding = Tensor::<2, Bool>::from_bool([[false, false, true], [false; 3]], &device);
        let inputs = [plain.clone().with_padding(padding), plain.clone()];
        for lengths in [[3, 5], [3, 3], [3, 2]] {
            let texts = [random(4), random(3)];
            let read = |index: usize| {
                let encoder_output = model.encode(random(lengths[index]), &inputs[index], &mut Pass::default());
                let (mut cache, text) = (model.decoder.cache(8), texts[index].clone());
                let begin = text.clone().narrow(1, 0, text.dims()[1] - 1);
                model.decode(begin, encoder_output.clone(), &plain, &mut Pass::cached(&mut cache));
                (encoder_output, cache)
            };
            let [(encoder_output, mut cache), (more, other)] = [0, 1].map(read);
            cache.join(other);
            let last = |x: &Tensor<3>| x.clone().narrow(1, x.dims()[1] - 1, 1);
            let (next, joined) =
                (Tensor::cat(texts.iter().map(last).collect(), 0), encoder_output.clone().join(more.clone()));
            let found = model.decode(next, joined, &plain, &mut Pass::cached(&mut cache));
            for (index, encoder_output) in [encoder_output, more].into_iter().enumerate() {
                let alone = model.decode(texts[index].clone(), encoder_output, &plain, &mut Pass::default());
                assert_close(&found.clone().narrow(0, 2 * index, 2), &last(&alone), 1e-5);
            }
        }
    }

    #[test]
    fn stacks_that_do_not_meet_are_refused() {
        let decoder = TransformerConfig::new(16, 2, 1);
        let error = EncoderDecoderConfig { encoder: config().encoder, decoder }.validate().expect_err("two problems");
        assert_eq!(error.problems().len(), 2, "{error}");
    }
}
