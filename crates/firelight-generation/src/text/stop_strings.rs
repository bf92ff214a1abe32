//! Stop strings as a processor, for searches: their texts branch, so that each carries its own end.

use std::sync::Arc;

use firelight_data::TextStream;

use super::first_stop;
use crate::Processing;
use crate::processors::{History, LogitsProcessor};

/// Ends a text behind the first stop string in it, even if that begins within a token. It is for loops that know ids alone, such as
/// [`beam_search`](crate::beam_search()): each row and each beam has its own. The ids reach to the end of the stop string;
/// [`cut`](Self::cut) takes it from the text.
///
/// ```
/// use firelight_data::{Tokenizer, TokenizerConfig};
/// use firelight_generation::{LogitsProcessor, StopStrings};
///
/// let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
/// let stops = ["nd".to_string()];
/// let mut processor = StopStrings::new(tokenizer.stream(), &stops);
/// tokenizer.encode("The en").unwrap().into_iter().for_each(|id| processor.accept(id));
/// assert!(!processor.is_complete());
/// tokenizer.encode("d").unwrap().into_iter().for_each(|id| processor.accept(id));
/// assert!(processor.is_complete());
/// assert_eq!(StopStrings::cut("The end".into(), &stops), ("The e".to_string(), Some(0)));
/// ```
#[derive(Clone, Debug)]
pub struct StopStrings {
    stream: TextStream,
    stops: Arc<[String]>,
    /// The end of the text, in which a stop string may have begun.
    end: String,
    is_found: bool,
}

impl StopStrings {
    /// Looks for the strings in what `stream` decodes: that of a tokenizer, or what a tokenizer has after the prompt.
    pub fn new(stream: TextStream, stops: &[String]) -> Self {
        Self { stream, stops: stops.into(), end: String::new(), is_found: false }
    }

    /// Adds one to processors, where there are strings to look for.
    pub fn add_to(processing: &mut Processing, stream: &TextStream, stops: &[String]) {
        if !stops.is_empty() {
            processing.custom.push(Self::new(stream.clone(), stops));
        }
    }

    /// The text up to the first of the strings in it, and the index of that string.
    pub fn cut(mut text: String, stops: &[String]) -> (String, Option<usize>) {
        let found = first_stop(&text, stops);
        if let Some((place, _)) = found {
            text.truncate(place);
        }
        (text, found.map(|(_, stop)| stop))
    }

    /// Forgets what no stop string can have begun in.
    fn shorten(&mut self) {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let mut start = self.end.len().saturating_sub(longest);
        while !self.end.is_char_boundary(start) {
            start -= 1;
        }
        self.end.drain(..start);
    }
}

impl LogitsProcessor for StopStrings {
    fn process(&mut self, _: &History<'_>, _: &mut [f64]) {}

    fn accept(&mut self, chosen: u32) {
        self.end.extend(self.stream.push(chosen));
        self.is_found |= first_stop(&self.end, &self.stops).is_some();
        self.shorten();
    }

    fn is_complete(&self) -> bool {
        self.is_found
    }

    fn ignores_ids(&self) -> bool {
        true
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use firelight_data::{Tokenizer, TokenizerConfig};
    use proptest::prelude::*;

    use super::*;

    /// How many characters of a text are written until it ends, by tokens of one byte.
    fn written(text: &str, stops: &[String]) -> Option<usize> {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        let mut processor = StopStrings::new(tokenizer.stream(), stops);
        let ids = tokenizer.encode(text).unwrap();
        let ends = |id: &u32| {
            processor.accept(*id);
            processor.is_complete()
        };
        ids.iter().position(ends).map(|last| last + 1)
    }

    #[test]
    fn the_first_string_in_the_text_ends_it() {
        let stops = ["fox".to_string(), "\u{e9}".to_string(), "ox".to_string()];
        assert_eq!(StopStrings::cut("The fox, \u{e9}".into(), &stops), ("The ".into(), Some(0)));
        assert_eq!(StopStrings::cut("An ox".into(), &stops), ("An ".into(), Some(2)));
        assert_eq!(StopStrings::cut("A hen".into(), &stops), ("A hen".into(), None));
        assert_eq!(written("h\u{e9}n", &stops), Some(3));
    }

    proptest! {
        #[test]
        fn a_text_ends_with_the_token_that_completes_a_string(
            text in "[ab\u{e9}]{1,20}", stops in proptest::collection::vec("[ab\u{e9}]{1,4}", 1..4),
        ) {
            let ends = (1..=text.len()).find(|&end| {
                text.get(..end).is_some_and(|begin| stops.iter().any(|stop| begin.contains(stop.as_str())))
            });
            prop_assert_eq!(written(&text, &stops), ends);
        }
    }
}
