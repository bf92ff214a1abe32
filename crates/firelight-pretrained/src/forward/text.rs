//! The arguments of models of text.

use std::ops::ControlFlow;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_classification::{TextEncoder, TextInput};
use firelight_core::{EncoderOutput, Pass, Position, SequenceInput, Trace, Transformer};
use firelight_generation::{Autoregressive, GenerationOptions, generate};
use firelight_language::LanguageModel;
use firelight_seq2seq::Seq2SeqModel;
use firelight_storage::{InputError, TaskError};

use super::arrays::unfit;
use super::{Array, Arrays, ForwardOptions, Found, Numbers};

/// Positions are computed as floats, which hold whole numbers to here.
const MOST_POSITIONS: usize = 1 << 24;

/// `input_ids`, `attention_mask`, `token_type_ids` and `position_ids`, checked; or those of a target.
pub(super) struct TextArguments<'a> {
    shape: [usize; 2],
    ids: &'a [i64],
    mask: Option<&'a [i64]>,
    segments: Option<&'a [i64]>,
    /// Of all rows, or of each alike.
    positions: Option<&'a [i64]>,
    device: &'a Device,
}

impl<'a> TextArguments<'a> {
    /// Of a model of so many tokens and segments.
    pub(super) fn new(
        inputs: &'a Arrays,
        vocab_size: usize,
        n_segments: usize,
        device: &'a Device,
    ) -> Result<Self, TaskError> {
        let Some((shape, ids)) = inputs.integers("input_ids")? else {
            return Err(unfit("input_ids", "is missing", "the ids of tokens"));
        };
        if shape.contains(&0) {
            return Err(unfit("input_ids", &format!("is of shape {shape:?}"), "at least one token"));
        }
        within("input_ids", ids, vocab_size)?;
        let of = ("input_ids", shape);
        let mask = beside(inputs, "attention_mask", of, 2)?;
        let segments = beside(inputs, "token_type_ids", of, n_segments.max(1))?.filter(|_| n_segments > 0);
        Ok(Self { shape, ids, mask, segments, positions: positions(inputs, shape)?, device })
    }

    /// Makes sure that a stack has positions for all tokens.
    pub(super) fn fit(&self, stack: &Transformer, longest: usize) -> Result<(), TaskError> {
        let length = self.shape[1];
        fit("input_ids", length, stack, longest)?;
        let Some(positions) = self.positions else { return Ok(()) };
        let most = if ends(stack) { longest } else { MOST_POSITIONS };
        within("position_ids", positions, most)?;
        let end = positions.iter().max().map_or(0, |last| *last as usize + 1);
        match stack.cache_stays_valid(length, end) {
            true => Ok(()),
            false => {
                let problem = format!("counts to {} in rows of {length} tokens", end - 1);
                Err(unfit("position_ids", &problem, "positions with the rotary frequencies of that length"))
            }
        }
    }

    /// A continuation goes on behind the first row's text, whose tokens it counts itself.
    pub(super) fn fit_greedy(&self, count: usize) -> Result<(), TaskError> {
        match self.positions.is_some() && count > 0 {
            true => Err(unfit("position_ids", "stands beside a greedy continuation", "one of the two")),
            false => Ok(()),
        }
    }

    /// Whether padding stands before a token.
    fn hides_before(&self) -> bool {
        let begins = |row: &[i64]| row.windows(2).any(|pair| pair[0] == 0 && pair[1] != 0);
        self.mask.is_some_and(|mask| mask.chunks(self.shape[1]).any(begins))
    }

    /// Some encoders count padding in their positions there, and others do not: it may stand behind a text alone.
    fn padded_behind(&self) -> Result<(), TaskError> {
        match self.hides_before() {
            true => Err(unfit("attention_mask", "hides tokens before others", "padding behind each text")),
            false => Ok(()),
        }
    }

    fn ints(&self, numbers: &[i64]) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(numbers.to_vec(), self.shape), self.device)
    }

    pub(super) fn tokens(&self) -> Tensor<2, Int> {
        self.ints(self.ids)
    }

    /// True where a token is padding; none where no token is.
    fn padding(&self) -> Option<Tensor<2, Bool>> {
        let mask = self.mask.filter(|mask| mask.contains(&0))?;
        let flags: Vec<bool> = mask.iter().map(|&flag| flag == 0).collect();
        Some(Tensor::from_bool(TensorData::new(flags, self.shape), self.device))
    }

    pub(super) fn sequence(&self) -> SequenceInput {
        SequenceInput { padding: self.padding(), coordinates: self.coordinates(), ..SequenceInput::default() }
    }

    /// Where tokens stand, `[B, T, 1]`, where a stack by itself would count otherwise: `transformers` counts padding.
    fn coordinates(&self) -> Option<Tensor<3>> {
        let [rows, columns] = self.shape;
        let places: Vec<i64> = match self.positions {
            Some(positions) => positions.to_vec(),
            None if self.hides_before() => (0..columns as i64).collect(),
            None => return None,
        };
        let places: Vec<f32> = places.iter().cycle().take(rows * columns).map(|place| *place as f32).collect();
        Some(Tensor::from_data(TensorData::new(places, [rows, columns, 1]), self.device))
    }

    /// The tokens of the first row that are no padding.
    pub(super) fn first_row(&self) -> Vec<u32> {
        let shown = |index: &usize| self.mask.is_none_or(|mask| mask[*index] != 0);
        (0..self.shape[1]).filter(shown).map(|index| self.ids[index] as u32).collect()
    }
}

/// Tables of positions end; other schemes do not.
fn ends(stack: &Transformer) -> bool {
    matches!(stack.position, Position::Learned(_))
}

/// Makes sure that a stack has positions for so many tokens.
fn fit(name: &str, length: usize, stack: &Transformer, longest: usize) -> Result<(), TaskError> {
    match ends(stack) && length > longest {
        true => Err(unfit(name, &format!("has rows of {length} tokens"), &format!("at most {longest}"))),
        false => Ok(()),
    }
}

/// Makes sure that all numbers are below a size.
fn within(name: &str, numbers: &[i64], size: usize) -> Result<(), TaskError> {
    let fits = |number: i64| usize::try_from(number).is_ok_and(|number| number < size);
    match numbers.iter().find(|number| !fits(**number)) {
        Some(number) => Err(unfit(name, &format!("holds {number}"), &format!("numbers from 0 to {}", size - 1))),
        None => Ok(()),
    }
}

/// An argument of the shape of others, whose numbers are below a size.
fn beside<'a>(
    inputs: &'a Arrays,
    name: &str,
    (of, shape): (&str, [usize; 2]),
    size: usize,
) -> Result<Option<&'a [i64]>, TaskError> {
    match inputs.integers(name)? {
        Some((found, _)) if found != shape => {
            Err(unfit(name, &format!("is of shape {found:?}"), &format!("that of {of}, {shape:?}")))
        }
        Some((_, numbers)) => within(name, numbers, size).map(|()| Some(numbers)),
        None => Ok(None),
    }
}

/// `position_ids`, of one row for all or of each.
fn positions(inputs: &Arrays, [rows, columns]: [usize; 2]) -> Result<Option<&[i64]>, TaskError> {
    match inputs.integers("position_ids")? {
        Some((found, numbers)) if found == [rows, columns] || found == [1, columns] => Ok(Some(numbers)),
        Some((found, _)) => {
            let expected = format!("[{rows}, {columns}], as input_ids, or [1, {columns}]");
            Err(unfit("position_ids", &format!("is of shape {found:?}"), &expected))
        }
        None => Ok(None),
    }
}

/// The vectors of an encoder, and which of them are padding.
pub(super) fn encode(
    encoder: &TextEncoder,
    inputs: &Arrays,
    pass: &mut Pass,
    device: &Device,
) -> Result<(Tensor<3>, Option<Tensor<2, Bool>>), TaskError> {
    let segments = encoder.segment_embedding.as_ref().map_or(0, |embedding| embedding.weight.shape()[0]);
    let text = TextArguments::new(inputs, encoder.vocab_size(), segments, device)?;
    text.fit(&encoder.transformer, encoder.max_seq_len())?;
    text.padded_behind()?;
    let segments = text.segments.map(|segments| text.ints(segments));
    let input = TextInput { tokens: text.tokens(), segments, padding: text.padding() };
    Ok((encoder.transformer.forward(encoder.embed(&input), &text.sequence(), pass), input.padding))
}

/// What the encoder of a model makes of its source, which is put out.
pub(super) fn encode_source(
    model: &Seq2SeqModel,
    inputs: &Arrays,
    options: ForwardOptions,
    found: &mut Found,
    device: &Device,
) -> Result<EncoderOutput, TaskError> {
    let text = TextArguments::new(inputs, model.source_vocab_size(), 0, device)?;
    text.fit(&model.stacks.encoder, model.max_source_len())?;
    let mut trace = Trace::default();
    let encoded = model.encode_with(text.tokens(), &text.sequence(), &mut Pass::default().with_trace(&mut trace));
    let names = ["encoder_hidden_states", "encoder_attentions"];
    found.trace(names, &trace, Some(encoded.hidden.clone()), options)?;
    found.put("encoder_last_hidden_state", encoded.hidden.clone())?;
    Ok(encoded)
}

/// `decoder_input_ids` and `decoder_attention_mask`. A hidden token is counted, and no other one sees it.
pub(super) fn target<'a>(
    model: &Seq2SeqModel,
    inputs: &'a Arrays,
    device: &'a Device,
) -> Result<TextArguments<'a>, TaskError> {
    let Some((shape, ids)) = inputs.integers("decoder_input_ids")? else {
        return Err(unfit("decoder_input_ids", "is missing", "the ids of tokens, the first of which begins a target"));
    };
    within("decoder_input_ids", ids, model.vocab_size())?;
    fit("decoder_input_ids", shape[1], &model.stacks.decoder, model.max_target_len())?;
    let rows = inputs.integers("input_ids")?.map_or(0, |([rows, _], _)| rows);
    match shape {
        [batch, length] if batch == rows && length > 0 => {
            let mask = beside(inputs, "decoder_attention_mask", ("decoder_input_ids", shape), 2)?;
            Ok(TextArguments { shape, ids, mask, segments: None, positions: None, device })
        }
        _ => Err(unfit("decoder_input_ids", &format!("is of shape {shape:?}"), &format!("{rows} rows, as input_ids"))),
    }
}

/// The start token and the greedy target of the first row, which no token ends.
pub(super) fn greedy_target(
    model: &Seq2SeqModel,
    inputs: &Arrays,
    count: usize,
    device: &Device,
) -> Result<Array, TaskError> {
    let source = TextArguments::new(inputs, model.source_vocab_size(), 0, device)?.first_row();
    continued(model, vec![source], vec![model.start_token()], count)
}

/// A prompt and its greedy continuation, which no token ends.
pub(super) fn greedy(model: &LanguageModel, prompt: Vec<u32>, count: usize) -> Result<Array, TaskError> {
    continued(model, vec![prompt.clone()], prompt, count)
}

/// What begins a row, and what the model greedily writes behind it.
fn continued<M: Autoregressive>(
    model: &M,
    prompt: M::Prompt,
    begin: Vec<u32>,
    count: usize,
) -> Result<Array, TaskError> {
    let options = GenerationOptions::new(count).greedy();
    let rows = generate(model, prompt, &options, |_| ControlFlow::Continue(()));
    let rows = rows.map_err(|error| InputError::new(error.to_string()))?;
    let ids = rows.into_iter().next().map(|row| row.ids).unwrap_or_default();
    let all: Vec<i64> = begin.into_iter().chain(ids).map(i64::from).collect();
    Ok(Array { shape: vec![all.len()], numbers: Numbers::Integers(all) })
}
