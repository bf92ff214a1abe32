//! One pass of a published model, with arguments and outputs by the names that `transformers` gives them: what a proof needs.

mod arrays;
mod image;
mod names;
mod padding;
mod text;
mod towers;

use burn::tensor::{Device, Tensor};
use firelight_core::{Pass, Trace};
use firelight_storage::TaskError;

pub use arrays::{Array, Arrays, Numbers};

use crate::AutoModel;
use image::pixels;
use text::{TextArguments, greedy};

/// What is put out beside the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardOptions {
    /// The residual stream between the layers: `hidden_states.0` is what the first one reads, the last what the head does.
    pub hidden_states: bool,
    /// The weights of every layer's attention: `attentions.0` and so on.
    pub attentions: bool,
    /// Tokens of the greedy continuation of the first row, without padding and end: `greedy` holds prompt and continuation.
    pub greedy: usize,
}

/// What a pass is asked.
#[derive(Clone, Copy)]
struct Asked<'a> {
    inputs: &'a Arrays,
    options: ForwardOptions,
    device: &'a Device,
}

/// Tensors of a pass, by name, on their way to the host.
#[derive(Debug, Default)]
struct Found {
    arrays: Arrays,
}

impl Found {
    fn put<const D: usize>(&mut self, name: &str, tensor: Tensor<D>) -> Result<(), TaskError> {
        let shape = tensor.dims().to_vec();
        let numbers = tensor.try_into_vec_as::<f32>().map_err(TaskError::device("the outputs of the model"))?;
        self.arrays.insert(name, Array { shape, numbers: Numbers::Floats(numbers) });
        Ok(())
    }

    /// What the layers did, by names that begin with those of a stack. The last state is `normed`, what the final norm makes of it, where
    /// `transformers` gives that.
    fn trace(
        &mut self,
        [states_name, weights_name]: [&str; 2],
        trace: &Trace,
        normed: Option<Tensor<3>>,
        options: ForwardOptions,
    ) -> Result<(), TaskError> {
        let behind = trace.layers.iter().map(|layer| layer.output.clone());
        let mut states: Vec<_> = std::iter::once(trace.embeddings.clone()).chain(behind).collect();
        if let (Some(last), Some(_)) = (states.last_mut(), &normed) {
            *last = normed;
        }
        for (i, state) in states.into_iter().enumerate().filter(|_| options.hidden_states) {
            state.map_or(Ok(()), |state| self.put(&format!("{states_name}.{i}"), state))?;
        }
        for (i, layer) in trace.layers.iter().enumerate().filter(|_| options.attentions) {
            layer.attention.clone().map_or(Ok(()), |weights| self.put(&format!("{weights_name}.{i}"), weights))?;
            let crossed = layer.cross_attention.clone();
            crossed.map_or(Ok(()), |weights| self.put(&format!("cross_attentions.{i}"), weights))?;
        }
        Ok(())
    }
}

impl AutoModel {
    /// Runs the model on arguments by their names in `transformers`: `input_ids`, `attention_mask`, `token_type_ids`, `position_ids`,
    /// `decoder_input_ids`, `decoder_attention_mask`, `pixel_values`, each where the model reads it; outputs are called `logits`,
    /// `last_hidden_state`, `start_logits`, `end_logits` and so on.
    /// A missing `attention_mask` is all ones. RoBERTa and its relatives need one that hides padding, which
    /// [`Structure::check_padding`](crate::Structure::check_padding) makes sure of.
    ///
    /// # Errors
    /// If an argument is missing, does not fit the model or is none of its own, or the device fails.
    pub fn forward(&self, inputs: &Arrays, options: ForwardOptions, device: &Device) -> Result<Arrays, TaskError> {
        names::check(self, inputs)?;
        let asked = Asked { inputs, options, device };
        if let Self::ImageText(model) = self {
            return towers::forward(model, asked);
        }
        let mut trace = Trace::default();
        let wants_trace = options.hidden_states || options.attentions;
        let mut pass = if wants_trace { Pass::default().with_trace(&mut trace) } else { Pass::default() };
        let mut found = Found::default();
        let last = self.run(asked, &mut pass, &mut found)?;
        let names = match self {
            Self::Seq2Seq(_) => ["decoder_hidden_states", "decoder_attentions"],
            _ => ["hidden_states", "attentions"],
        };
        let is_normed = !matches!(self, Self::Image(_) | Self::ImageEncoder(_));
        found.trace(names, &trace, is_normed.then(|| last.clone()), options)?;
        found.put("last_hidden_state", last)?;
        Ok(found.arrays)
    }

    /// Puts out the answers, and returns what the head reads.
    fn run(&self, asked: Asked<'_>, pass: &mut Pass<'_>, found: &mut Found) -> Result<Tensor<3>, TaskError> {
        let Asked { inputs, options, device } = asked;
        Ok(match self {
            Self::Language(model) => {
                let text = TextArguments::new(inputs, model.vocab_size(), 0, device)?;
                text.fit(&model.transformer, model.max_seq_len())?;
                text.fit_greedy(options.greedy)?;
                let hidden = model.hidden(text.tokens(), &text.sequence(), pass);
                found.put("logits", model.logits(hidden.clone()))?;
                if options.greedy > 0 {
                    found.arrays.insert("greedy", greedy(model, text.first_row(), options.greedy)?);
                }
                hidden
            }
            Self::Encoder(model) => {
                let (hidden, padding) = text::encode(&model.encoder, inputs, pass, device)?;
                found.put("sentence_embedding", model.pooled(hidden.clone(), padding.as_ref()))?;
                if let Some(pooler) = &model.pooler {
                    found.put("pooler_output", pooler.forward(hidden.clone(), padding.as_ref()))?;
                }
                if let Some(discriminator) = &model.discriminator {
                    found.put("logits", discriminator.forward(hidden.clone()))?;
                }
                hidden
            }
            Self::Masked(model) => {
                let hidden = text::encode(&model.encoder, inputs, pass, device)?.0;
                found.put("logits", model.head.forward(hidden.clone(), &model.encoder.embedding))?;
                hidden
            }
            Self::Sequence(model) => {
                let (hidden, padding) = text::encode(&model.encoder, inputs, pass, device)?;
                found.put("logits", model.head.forward(hidden.clone(), padding.as_ref()))?;
                hidden
            }
            Self::Token(model) => {
                let hidden = text::encode(&model.encoder, inputs, pass, device)?.0;
                found.put("logits", model.head.forward(hidden.clone()))?;
                hidden
            }
            Self::Seq2Seq(model) => {
                let encoded = text::encode_source(model, inputs, options, found, device)?;
                let target = text::target(model, inputs, device)?;
                let hidden = model.decode(target.tokens(), encoded, &target.sequence(), pass);
                found.put("logits", model.logits(hidden.clone()))?;
                if options.greedy > 0 {
                    found.arrays.insert("greedy", text::greedy_target(model, inputs, options.greedy, device)?);
                }
                hidden
            }
            Self::Image(model) => {
                let hidden = model.vit.hidden(pixels(inputs, &model.vit, device)?, pass);
                found.put("logits", model.vit.logits(hidden.clone()))?;
                // Beside their mean the two heads of a model that has learnt from a teacher.
                if let Some(taught) = model.vit.distillation_logits(hidden.clone()) {
                    found.put("cls_logits", model.vit.class_logits(hidden.clone()))?;
                    found.put("distillation_logits", taught)?;
                }
                hidden
            }
            Self::ImageEncoder(model) => {
                let hidden = model.vit.hidden(pixels(inputs, &model.vit, device)?, pass);
                found.put("pooler_output", model.pooled(hidden.clone()))?;
                hidden
            }
            Self::ImageText(_) => unreachable!("two towers have two last layers"),
            Self::Span(model) => {
                let hidden = text::encode(&model.encoder, inputs, pass, device)?.0;
                // Without hiding padding, as `transformers`.
                let logits = model.head.forward(hidden.clone(), None);
                found.put("start_logits", logits.start)?;
                found.put("end_logits", logits.end)?;
                hidden
            }
        })
    }
}
