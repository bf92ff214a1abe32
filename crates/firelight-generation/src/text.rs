//! Runs the decoding loop and turns the ids into text while they come: the border between ids and characters.

mod stop_strings;

use std::ops::ControlFlow;

use firelight_data::TextStream;

use crate::generate::sample_groups;
use crate::{Autoregressive, Generated, GenerationError, GenerationOptions, StopReason, TokenScore, TokenStream};

pub use self::stop_strings::StopStrings;

/// The continuation of a prompt as text.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedText {
    /// The new text, without the prompt and without a stop string.
    pub text: String,
    /// Its ids, without the stop token; the last of them may reach into a stop string.
    pub ids: Vec<u32>,
    /// The scores of the ids that were chosen, if [`GenerationOptions::logprobs`] asks for them; else empty.
    pub scores: Vec<TokenScore>,
    /// Why it ended.
    #[doc(alias = "stopped")]
    #[doc(alias = "finish_reason")]
    pub stop_reason: StopReason,
}

impl GeneratedText {
    /// A row of which the text is not known.
    pub(crate) fn without_text(Generated { ids, scores, stop_reason }: Generated) -> Self {
        Self { text: String::new(), ids, scores, stop_reason }
    }

    /// The mean log-probability of its tokens in nats; minus infinity if they have no scores.
    pub fn mean_log_probability(&self) -> f64 {
        let total: f64 = self.scores.iter().map(|score| score.log_probability).sum();
        if self.scores.is_empty() { f64::NEG_INFINITY } else { total / self.scores.len() as f64 }
    }
}

/// Continues a prompt of one row and decodes the continuation with `stream`: that of a tokenizer, or what a tokenizer has after the
/// prompt.
///
/// `observe` gets the text piece by piece as it comes, cut only between characters: joined, the pieces are the text. What may be the
/// beginning of a stop string is held back until it turns out not to be. `observe` stops the generation with [`ControlFlow::Break`].
///
/// Whatever ends a text under a [`Constraint`](crate::Constraint), it satisfies the constraint: where `observe` or an error stops it in the middle,
/// the rest of a short text that does is written behind it, and `observe` gets that, too.
///
/// # Errors
/// As [`generate`](crate::generate()): an error after the first token has the text up to there, which `observe` gets, too.
///
/// # Panics
/// If the prompt holds more than one row: a stream of text has one.
pub fn generate_text<M: Autoregressive>(
    model: &M,
    prompt: M::Prompt,
    stream: TextStream,
    options: &GenerationOptions,
    mut observe: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<GeneratedText, GenerationError> {
    let mut tokens = TokenStream::new(model, prompt, options)?;
    let mut texts = decode_texts(&mut tokens, vec![stream], |_, piece| observe(piece))?;
    assert_eq!(texts.len(), 1, "text is generated for a prompt of one row");
    Ok(texts.remove(0))
}

/// Continues a prompt of one row `samples` times and decodes the continuations; see [`generate_samples`](crate::generate_samples).
///
/// # Errors
/// As [`generate`](crate::generate()).
///
/// # Panics
/// If the prompt holds more than one row.
pub fn generate_text_samples<M: Autoregressive>(
    model: &M,
    prompt: M::Prompt,
    samples: usize,
    stream: &TextStream,
    options: &GenerationOptions,
) -> Result<Vec<GeneratedText>, GenerationError>
where
    M::Prompt: Clone,
{
    let write = |group| {
        let mut tokens = TokenStream::of_samples(model, prompt.clone(), options, group)?;
        let streams = vec![stream.clone(); tokens.batch_size()];
        decode_texts(&mut tokens, streams, |_, _| ControlFlow::Continue(()))
    };
    let mut texts = Vec::new();
    for group in sample_groups(samples) {
        match write(group) {
            Ok(more) => texts.extend(more),
            Err(error) => return Err(error.after(texts)),
        }
    }
    assert_eq!(texts.len(), samples, "text is generated for a prompt of one row");
    Ok(texts)
}

/// Runs a token stream to its end and decodes each row with a text stream of its own, up to the first stop string. `observe` gets the pieces
/// with the number of their row, and ends the row with [`ControlFlow::Break`]. Constrained texts are completed as by [`generate_text`].
///
/// # Errors
/// The first error of the stream. After the first token it is [`GenerationError::Unfinished`], with the texts up to there.
///
/// # Panics
/// If the number of text streams is not the number of rows.
pub fn decode_texts<M: Autoregressive>(
    tokens: &mut TokenStream<'_, M>,
    streams: Vec<TextStream>,
    mut observe: impl FnMut(usize, &str) -> ControlFlow<()>,
) -> Result<Vec<GeneratedText>, GenerationError> {
    let stops: Vec<Vec<String>> = (0..tokens.batch_size()).map(|row| tokens.stop_strings(row).to_vec()).collect();
    assert_eq!(streams.len(), stops.len(), "streams of text for the rows");
    let mut writers: Vec<Writer> =
        streams.into_iter().zip(&stops).map(|(stream, stops)| Writer::new(stream, stops)).collect();
    let mut failure = None;
    while let Some(step) = tokens.next() {
        let step = match step {
            Ok(step) => step,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        for (row, id) in step.into_iter().enumerate().filter_map(|(row, id)| Some((row, id?))) {
            writers[row].scores.extend(tokens.scores()[row].clone());
            let (piece, stop) = writers[row].push(id);
            if !piece.is_empty() && observe(row, &piece).is_break() {
                tokens.end_row(row, StopReason::Caller);
                writers[row].closing = tokens.closing(row);
            }
            if let Some(stop) = stop {
                tokens.end_row(row, StopReason::StopString(stop));
            }
        }
    }
    if failure.is_some() {
        for (row, writer) in writers.iter_mut().enumerate() {
            if tokens.stops()[row].is_none() {
                writer.closing = tokens.closing(row);
            }
        }
    }
    let open = if failure.is_some() { StopReason::Failed } else { StopReason::Caller };
    let rows = writers.into_iter().zip(tokens.stops()).enumerate();
    let texts = rows.map(|(row, (mut writer, stop_reason))| {
        let (piece, stop) = writer.finish();
        if !piece.is_empty() {
            let _ = observe(row, &piece); // There is nothing left to break off.
        }
        let stop_reason = stop.map(StopReason::StopString).or(*stop_reason).unwrap_or(open);
        GeneratedText { text: writer.text, ids: writer.ids, scores: writer.scores, stop_reason }
    });
    let texts = texts.collect();
    match failure {
        Some(error) => Err(error.after(texts)),
        None => Ok(texts),
    }
}

/// The text of a row as it is written, up to the first stop string.
#[derive(Clone, Debug)]
struct Writer<'o> {
    stream: TextStream,
    stops: &'o [String],
    ids: Vec<u32>,
    scores: Vec<TokenScore>,
    /// What `observe` has seen.
    text: String,
    /// What may be the beginning of a stop string.
    held: String,
    has_stopped: bool,
    /// The ids that complete the text, where its reader or an error stops it.
    closing: Vec<u32>,
}

impl<'o> Writer<'o> {
    fn new(stream: TextStream, stops: &'o [String]) -> Self {
        Self {
            stream,
            stops,
            ids: Vec::new(),
            scores: Vec::new(),
            text: String::new(),
            held: String::new(),
            has_stopped: false,
            closing: Vec::new(),
        }
    }

    /// Takes the next id. Returns the text that is now certain, and the stop string that ends it, if one does.
    fn push(&mut self, id: u32) -> (String, Option<usize>) {
        self.ids.push(id);
        self.held.extend(self.stream.push(id));
        let stop = self.stop();
        let certain = stop.map_or_else(|| self.held.len() - self.uncertain(), |(at, _)| at);
        (self.give_out(certain), stop.map(|(_, stop)| stop))
    }

    /// What is left when no more ids come. The end of the text may be the start of a character that never came.
    fn finish(&mut self) -> (String, Option<usize>) {
        if self.has_stopped {
            return (String::new(), None);
        }
        for id in std::mem::take(&mut self.closing) {
            self.ids.push(id);
            self.held.extend(self.stream.push(id));
        }
        self.held.extend(self.stream.finish());
        let stop = self.stop();
        (self.give_out(stop.map_or(self.held.len(), |(at, _)| at)), stop.map(|(_, stop)| stop))
    }

    /// Where the first stop string begins, and which it is.
    fn stop(&mut self) -> Option<(usize, usize)> {
        let found = first_stop(&self.held, self.stops);
        self.has_stopped |= found.is_some();
        found
    }

    /// The length in bytes of the longest end of the text that a stop string begins with.
    fn uncertain(&self) -> usize {
        let begins = |&length: &usize| {
            let end = self.held.len() - length;
            self.held.is_char_boundary(end) && self.stops.iter().any(|stop| stop.starts_with(&self.held[end..]))
        };
        (1..=self.held.len()).rev().find(begins).unwrap_or(0)
    }

    fn give_out(&mut self, length: usize) -> String {
        let piece: String = self.held.drain(..length).collect();
        self.text.push_str(&piece);
        piece
    }
}

/// Where the first stop string of a text begins, and which it is.
fn first_stop(text: &str, stops: &[String]) -> Option<(usize, usize)> {
    stops.iter().enumerate().filter_map(|(stop, string)| Some((text.find(string)?, stop))).min()
}

#[cfg(test)]
mod tests;
