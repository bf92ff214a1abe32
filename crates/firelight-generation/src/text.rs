//! Runs the decoding loop and turns the ids into text while they come: the border between ids and characters.

use std::ops::ControlFlow;

use firelight_data::TextStream;

use crate::{Autoregressive, Generated, GenerationError, GenerationOptions, StopReason, generate, generate_samples};

/// The continuation of a prompt as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedText {
    /// The new text, without the prompt.
    pub text: String,
    /// Its ids, without the stop token.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub stopped: StopReason,
}

/// Continues a prompt of one row and decodes the continuation with `stream`: that of a tokenizer, or what a tokenizer has after the
/// prompt.
///
/// `observe` gets the text piece by piece as it comes, cut only between characters: joined, the pieces are the text. It
/// breaks off the generation with [`ControlFlow::Break`].
///
/// # Errors
/// As [`generate`](crate::generate()).
///
/// # Panics
/// If the prompt holds more than one row: a stream of text has one.
pub fn generate_text<M: Autoregressive>(
    model: &M,
    prompt: M::Prompt,
    mut stream: TextStream,
    options: &GenerationOptions,
    mut observe: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<GeneratedText, GenerationError> {
    let mut text = String::new();
    let mut emit = |piece: Option<String>| {
        let piece = piece?;
        text.push_str(&piece);
        Some(observe(&piece))
    };
    let rows = generate(model, prompt, options, |tokens| {
        let [token] = tokens else { panic!("text is generated for one row, the prompt has {}", tokens.len()) };
        token.and_then(|id| emit(stream.push(id))).unwrap_or(ControlFlow::Continue(()))
    })?;
    // The end of the text may be the start of a character that never came.
    emit(stream.finish());
    let row = rows.into_iter().next();
    let (ids, stopped) = row.map_or((Vec::new(), StopReason::MaxNewTokens), |row| (row.ids, row.stopped));
    Ok(GeneratedText { text, ids, stopped })
}

/// Continues a prompt of one row `samples` times and decodes the continuations; see [`generate_samples`].
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
    let rows = generate_samples(model, prompt, samples, options)?;
    assert_eq!(rows.len(), samples, "text is generated for a prompt of one row");
    let text = |Generated { ids, stopped }| GeneratedText { text: stream.clone().read(&ids), ids, stopped };
    Ok(rows.into_iter().map(text).collect())
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

    #[test]
    fn the_caller_may_break_off() {
        let generated = run(u32::from(b'a'), 9, |_| ControlFlow::Break(()));
        assert_eq!((generated.text.as_str(), generated.stopped), ("b", StopReason::Caller));
    }
}
