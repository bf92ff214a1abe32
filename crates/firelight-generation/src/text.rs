//! Runs the decoding loop and turns the ids into text while they come: the border between ids and characters.

use std::ops::ControlFlow;

use firelight_data::TextStream;

use crate::generate::sample_groups;
use crate::{Autoregressive, GenerationError, GenerationOptions, StopReason, TokenScore, TokenStream};

/// The continuation of a prompt as text.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedText {
    /// The new text, without the prompt and without a stop string.
    pub text: String,
    /// Its ids, without the stop token; the last of them may reach into a stop string.
    pub ids: Vec<u32>,
    /// What the model gave each of the ids, where [`GenerationOptions::logprobs`] asks for it; else none.
    pub scores: Vec<TokenScore>,
    /// Why it ended.
    pub stopped: StopReason,
}

impl GeneratedText {
    /// The mean of the log-probabilities of its tokens, where they were asked for; minus infinity where there is none.
    pub fn mean_log_probability(&self) -> f64 {
        let total: f64 = self.scores.iter().map(|score| score.log_probability).sum();
        if self.scores.is_empty() { f64::NEG_INFINITY } else { total / self.scores.len() as f64 }
    }
}

/// Continues a prompt of one row and decodes the continuation with `stream`: that of a tokenizer, or what a tokenizer has after the
/// prompt.
///
/// `observe` gets the text piece by piece as it comes, cut only between characters: joined, the pieces are the text. What may be the
/// beginning of a stop string is held back until it is none. It breaks off the generation with [`ControlFlow::Break`].
///
/// # Errors
/// As [`generate`](crate::generate()).
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
    let mut texts = write_texts(&mut tokens, vec![stream], |_, piece| observe(piece))?;
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
    let groups = sample_groups(samples).map(|group| {
        let mut tokens = TokenStream::of_samples(model, prompt.clone(), options, group)?;
        let streams = vec![stream.clone(); tokens.batch_size()];
        write_texts(&mut tokens, streams, |_, _| ControlFlow::Continue(()))
    });
    let texts = groups.collect::<Result<Vec<_>, _>>()?.concat();
    assert_eq!(texts.len(), samples, "text is generated for a prompt of one row");
    Ok(texts)
}

/// The texts of all rows of a stream of tokens, each decoded by its own stream of text, up to its first stop string; `observe` sees their
/// pieces with the number of the row, and ends the row with [`ControlFlow::Break`].
///
/// # Errors
/// The first error of the stream.
///
/// # Panics
/// If there are not as many streams of text as rows.
pub fn write_texts<M: Autoregressive>(
    tokens: &mut TokenStream<'_, M>,
    streams: Vec<TextStream>,
    mut observe: impl FnMut(usize, &str) -> ControlFlow<()>,
) -> Result<Vec<GeneratedText>, GenerationError> {
    let stops: Vec<Vec<String>> = (0..tokens.batch_size()).map(|row| tokens.stop_strings(row).to_vec()).collect();
    assert_eq!(streams.len(), stops.len(), "streams of text for the rows");
    let mut writers: Vec<Writer> =
        streams.into_iter().zip(&stops).map(|(stream, stops)| Writer::new(stream, stops)).collect();
    while let Some(step) = tokens.next() {
        for (row, id) in step?.into_iter().enumerate().filter_map(|(row, id)| Some((row, id?))) {
            writers[row].scores.extend(tokens.scores()[row].clone());
            let (piece, stop) = writers[row].push(id);
            if !piece.is_empty() && observe(row, &piece).is_break() {
                tokens.end_row(row, StopReason::Caller);
            }
            if let Some(stop) = stop {
                tokens.end_row(row, StopReason::StopString(stop));
            }
        }
    }
    let rows = writers.into_iter().zip(tokens.stops()).enumerate();
    Ok(rows
        .map(|(row, (mut writer, stopped))| {
            let (piece, stop) = writer.finish();
            if !piece.is_empty() {
                let _ = observe(row, &piece); // There is nothing left to break off.
            }
            let stopped = stop.map(StopReason::StopString).or(*stopped).unwrap_or(StopReason::Caller);
            GeneratedText { text: writer.text, ids: writer.ids, scores: writer.scores, stopped }
        })
        .collect())
}

/// The text of a row as it is written, up to the first stop string.
#[derive(Clone, Debug)]
struct Writer<'o> {
    stream: TextStream,
    stops: &'o [String],
    ids: Vec<u32>,
    scores: Vec<TokenScore>,
    /// What was given out.
    text: String,
    /// What may be the beginning of a stop string.
    held: String,
    has_stopped: bool,
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
        }
    }

    /// Takes the next id. Returns the text that is certain now, and which stop string ends it.
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
        self.held.extend(self.stream.finish());
        let stop = self.stop();
        (self.give_out(stop.map_or(self.held.len(), |(at, _)| at)), stop.map(|(_, stop)| stop))
    }

    /// Where the first stop string begins, and which it is.
    fn stop(&mut self) -> Option<(usize, usize)> {
        let found = self.stops.iter().enumerate().filter_map(|(stop, text)| Some((self.held.find(text)?, stop))).min();
        self.has_stopped |= found.is_some();
        found
    }

    /// How many bytes at the end are those that a stop string begins with.
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

#[cfg(test)]
mod tests {
    use firelight_data::{Tokenizer, TokenizerConfig};

    use super::*;
    use crate::mock::Successor;

    /// Ids are bytes, and the model counts upwards.
    fn run(prompt: u32, tokens: usize, observe: impl FnMut(&str) -> ControlFlow<()>) -> GeneratedText {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        let options = GenerationOptions::new(tokens).greedy();
        generate_text(&Successor::new(256), vec![vec![prompt]], tokenizer.stream(), &options, observe).unwrap()
    }

    #[test]
    fn the_pieces_are_the_text() {
        let mut pieces = Vec::new();
        let generated = run(u32::from(b'a'), 3, |piece| {
            pieces.push(piece.to_string());
            ControlFlow::Continue(())
        });
        assert_eq!(generated.text, "bcd");
        assert_eq!(generated.ids, [98, 99, 100]);
        assert_eq!(pieces, ["b", "c", "d"]);
    }

    #[test]
    fn samples_are_decoded_as_streams_are() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        let (model, options) = (Successor::new(256), GenerationOptions::new(9).with_temperature(20.0).with_seed(4));
        let samples = generate_text_samples(&model, vec![vec![97]], 3, &tokenizer.stream(), &options).unwrap();
        let stream = tokenizer.stream();
        let first = generate_text(&model, vec![vec![97]], stream, &options, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((samples.len(), &samples[0]), (3, &first));
        assert!(samples[1].ids != first.ids && samples[2].ids != first.ids, "{samples:?}");
        assert!(samples.iter().all(|sample| sample.text == tokenizer.decode(&sample.ids) && sample.ids.len() == 9));
    }

    #[test]
    fn a_character_that_never_came_whole_is_marked_at_the_end() {
        let mut pieces = Vec::new();
        let generated = run(0xC2, 1, |piece| {
            pieces.push(piece.to_string());
            ControlFlow::Continue(())
        });
        assert_eq!(generated.text, "\u{FFFD}"); // 0xC3 starts a character of two bytes
        assert_eq!(pieces.concat(), generated.text);
    }

    fn until(stops: &[&str], tokens: usize) -> (GeneratedText, Vec<String>) {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        let options = GenerationOptions::new(tokens).greedy().with_stop_strings(stops.iter().copied());
        let mut pieces = Vec::new();
        let text = generate_text(&Successor::new(256), vec![vec![97]], tokenizer.stream(), &options, |piece| {
            pieces.push(piece.to_string());
            ControlFlow::Continue(())
        });
        (text.unwrap(), pieces)
    }

    #[test]
    fn a_stop_string_ends_a_text_and_is_none_of_it() {
        let (found, pieces) = until(&["xx", "ef", "efg"], 20);
        assert_eq!((found.text.as_str(), found.stopped), ("bcd", StopReason::StopString(1)));
        assert_eq!(found.ids, [98, 99, 100, 101, 102]);
        assert_eq!(pieces, ["b", "c", "d"], "the e is held back");
        // What only began like one is given out late, and at the end at last.
        let (found, pieces) = until(&["dex"], 4);
        assert_eq!((found.text.as_str(), found.stopped), ("bcde", StopReason::MaxNewTokens));
        assert_eq!(pieces, ["b", "c", "de"]);
        assert_eq!(until(&["b"], 4).0.text, "");
    }

    #[test]
    fn of_overlapping_stop_strings_the_first_in_the_text_ends_it() {
        assert_eq!(until(&["de", "cde", "d"], 9).0.stopped, StopReason::StopString(2));
        assert_eq!(until(&["fgh", "gh"], 9).0.text, "bcde");
    }

    #[test]
    fn each_sample_stops_by_itself() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        let options = GenerationOptions::new(30).with_temperature(20.0).with_seed(4);
        let all = |options: &GenerationOptions| {
            generate_text_samples(&Successor::new(256), vec![vec![97]], 5, &tokenizer.stream(), options).unwrap()
        };
        let whole = all(&options);
        let stop = whole[0].text.chars().nth(8).unwrap().to_string();
        let stopped = all(&options.with_stop_strings([stop.clone()]));
        for (whole, stopped) in whole.iter().zip(&stopped) {
            assert_eq!(stopped.text, whole.text.split(&stop).next().unwrap());
            assert!(whole.ids.starts_with(&stopped.ids));
        }
        assert_eq!(stopped[0].stopped, StopReason::StopString(0));
    }

    #[test]
    fn the_caller_may_break_off() {
        let generated = run(u32::from(b'a'), 9, |_| ControlFlow::Break(()));
        assert_eq!((generated.text.as_str(), generated.stopped), ("b", StopReason::Caller));
    }
}
