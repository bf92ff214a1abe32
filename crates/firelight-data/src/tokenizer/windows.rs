//! A text, or a pair of texts, with what its file puts around it, cut into windows where it is long: the crate's truncation with a
//! stride, which is off everywhere else.

use std::ops::Range;

use tokenizers::{Encoding, PostProcessor, TruncationParams, TruncationStrategy, truncate_encodings};

use super::{Tokenizer, guarded};
use firelight_storage::InputError;

use crate::DataError;

/// Which text of a pair is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// The longer one first.
    #[default]
    Longest,
    /// The first.
    First,
    /// The second, as the text that a question is about.
    Second,
}

/// How a text that is too long is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowOptions {
    /// The most tokens of a window, with those around the texts.
    pub max_len: usize,
    /// How many tokens of the text that is cut a window shares with the one before it. The `stride` of Hugging Face.
    pub overlap: usize,
    /// Which text of a pair is cut.
    pub cut: Cut,
}

/// One window: as many entries of each as it has tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextWindow {
    /// The tokens.
    pub ids: Vec<u32>,
    /// The segment of each, as the file numbers them.
    pub segments: Vec<u32>,
    /// Which text each belongs to, 0 or 1; none for those around the texts.
    pub texts: Vec<Option<usize>>,
    /// The bytes of its text that each stands for; empty for those around the texts.
    pub offsets: Vec<Range<usize>>,
    /// The number of its word in its text, as the pre-tokenizer cuts words; none for those around the texts.
    pub words: Vec<Option<u32>>,
}

impl TextWindow {
    /// The characters that a token stands for, in the text that it belongs to.
    ///
    /// # Panics
    /// If there is no such token, or `text` is not its text.
    pub fn characters(&self, token: usize, text: &str) -> Range<usize> {
        let before = |byte: usize| text[..byte].chars().count();
        before(self.offsets[token].start)..before(self.offsets[token].end)
    }

    /// Where the second segment begins; behind the end, where there is none.
    pub fn second_from(&self) -> usize {
        self.segments.iter().position(|&segment| segment > 0).unwrap_or(self.ids.len())
    }

    /// The places of the tokens of a text.
    pub fn places_of(&self, text: usize) -> Range<usize> {
        let of_text = |found: &Option<usize>| *found == Some(text);
        let first = self.texts.iter().position(of_text).unwrap_or(0);
        first..self.texts.iter().rposition(of_text).map_or(first, |last| last + 1)
    }

    fn of(encoding: &Encoding) -> Self {
        Self {
            ids: encoding.get_ids().into(),
            segments: encoding.get_type_ids().into(),
            texts: encoding.get_sequence_ids(),
            offsets: encoding.get_offsets().iter().map(|&(begin, end)| begin..end).collect(),
            words: encoding.get_word_ids().into(),
        }
    }
}

impl Tokenizer {
    /// A text, or a pair, with what the file puts around it, in as many windows as it needs: one where it is short enough.
    ///
    /// ```
    /// use firelight_data::{Cut, Tokenizer, TokenizerConfig, WindowOptions};
    ///
    /// let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    /// let options = WindowOptions { max_len: 4, overlap: 1, cut: Cut::Second };
    /// let windows = bytes.windows("?", Some("abcde"), &options).unwrap();
    /// let ids: Vec<&[u32]> = windows.iter().map(|window| &window.ids[..]).collect();
    /// assert_eq!(ids, [b"?abc".map(u32::from), b"?cde".map(u32::from)]);
    /// assert_eq!(windows[1].offsets[1..], [2..3, 3..4, 4..5]);
    /// ```
    ///
    /// # Errors
    /// As [`encode`](Self::encode), and if what is not cut leaves no room for the text that is, or `overlap` is not below that room.
    pub fn windows(
        &self,
        first: &str,
        second: Option<&str>,
        options: &WindowOptions,
    ) -> Result<Vec<TextWindow>, DataError> {
        let mut second = second.map(|text| self.encoded(text)).transpose()?;
        second.iter_mut().for_each(|second| second.set_type_ids(vec![1; second.len()]));
        let first = self.encoded(first)?;
        let (first, second) = self.truncated(first, second, options)?;
        let framed = guarded(|| match &self.processor {
            Some(processor) => processor.process(first, second, true),
            None => Ok(joined(first, second)),
        })?;
        Ok([&framed].into_iter().chain(framed.get_overflowing()).map(TextWindow::of).collect())
    }

    fn truncated(
        &self,
        first: Encoding,
        second: Option<Encoding>,
        options: &WindowOptions,
    ) -> Result<(Encoding, Option<Encoding>), DataError> {
        let around = self.processor.as_ref().map_or(0, |processor| processor.added_tokens(second.is_some()));
        let lengths = [first.len(), second.as_ref().map_or(0, Encoding::len)];
        let (kept, strategy) = match options.cut {
            Cut::Longest => (0, TruncationStrategy::LongestFirst),
            Cut::First => (lengths[1], TruncationStrategy::OnlyFirst),
            Cut::Second => (lengths[0], TruncationStrategy::OnlySecond),
        };
        let (max_length, stride) = (options.max_len.saturating_sub(around), options.overlap);
        // Of two texts that are cut each may have half of the room.
        let share = if options.cut == Cut::Longest && second.is_some() { max_length / 2 } else { max_length };
        if lengths.iter().sum::<usize>() > max_length && share.saturating_sub(kept) <= stride {
            let (max_len, taken) = (options.max_len, around + kept);
            let problem = format!(
                "a window of {max_len} tokens is too short: {taken} of them are not for the text that is cut, and {stride} are \
                 shared with the window before"
            );
            return Err(InputError::new(problem).advise("give a larger max_len or a smaller overlap").into());
        }
        let params = TruncationParams { max_length, strategy, stride, ..TruncationParams::default() };
        guarded(|| truncate_encodings(first, second, &params))
    }
}

/// Texts one after the other, where nothing stands around them.
fn joined(mut first: Encoding, second: Option<Encoding>) -> Encoding {
    let Some(mut second) = second else { return first };
    for (number, encoding) in [&mut first, &mut second].into_iter().enumerate() {
        encoding.set_sequence_id(number);
        encoding.get_overflowing_mut().iter_mut().for_each(|more| more.set_sequence_id(number));
    }
    Encoding::merge([first, second], false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;

    fn framed() -> Tokenizer {
        let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        bytes.with_special_tokens(&["[CLS]", "[SEP]"]).unwrap().with_frame(256, 257).unwrap().0
    }

    #[test]
    fn a_window_knows_texts_segments_places_and_characters() {
        let options = WindowOptions { max_len: 9, overlap: 2, cut: Cut::Second };
        let windows = framed().windows("q", Some("\u{e9}abcd"), &options).unwrap();
        assert_eq!(windows.len(), 2);
        let first = &windows[0];
        assert_eq!(first.ids, [256, 113, 257, 0xc3, 0xa9, 97, 98, 99, 257]);
        assert_eq!(first.segments, [0, 0, 0, 1, 1, 1, 1, 1, 1]);
        assert_eq!((first.second_from(), first.places_of(0), first.places_of(1)), (3, 1..2, 3..8));
        assert_eq!(first.offsets[2..6], [0..0, 0..2, 0..2, 2..3]);
        assert_eq!(first.characters(5, "\u{e9}abcd"), 1..2);
        assert_eq!((windows[1].ids.len(), &windows[1].ids[3..]), (7, &[98, 99, 100, 257][..]));
        assert_eq!(windows[1].places_of(1), 3..6);
    }

    #[test]
    fn one_text_and_both_of_a_pair_can_be_cut() {
        let ids = |second, max_len, cut| {
            let windows = framed().windows("abcdef", second, &WindowOptions { max_len, overlap: 0, cut }).unwrap();
            windows.into_iter().map(|window| window.ids.into_iter().filter(|id| *id < 256).count()).collect::<Vec<_>>()
        };
        assert_eq!(ids(None, 6, Cut::Longest), [4, 2]);
        assert_eq!(ids(None, 8, Cut::Longest), [6]);
        assert_eq!(ids(Some("xyz"), 8, Cut::First), [5, 5, 5]);
        assert_eq!(ids(Some("xyz"), 9, Cut::Longest)[0], 6);
    }

    #[test]
    fn no_room_is_an_error_and_no_panic() {
        for (max_len, overlap) in [(0, 0), (2, 0), (5, 0), (8, 9), (9, 2)] {
            let options = WindowOptions { max_len, overlap, cut: Cut::Second };
            let error = framed().windows("abcd", Some("efghijk"), &options).unwrap_err();
            assert!(error.is_user_error() && error.to_string().contains(&max_len.to_string()), "{error}");
        }
    }
}
