//! Texts that are longer than a model reads: the parts that they are read in, and one answer out of those of the parts.
//!
//! Source: Sun et al. 2019, How to fine-tune BERT for text classification (<https://arxiv.org/abs/1905.05583>), §5.3.1: long texts are
//! truncated, or cut into fractions whose vectors are pooled by mean or max. Differs in that windows overlap, as Devlin et al. 2019 read
//! long texts, and that the mean is weighted: every token shares a weight of 1 among the windows that hold it.

use firelight_data::{Cut, DataError, OverlappingWindow, overlapping_windows, sentences};
use firelight_storage::InputError;

use crate::data::EncodedText;
use crate::vocabulary::{TextVocabulary, framed};

/// How a text is read that is longer than the model reads at once. It makes no difference to a text that fits.
///
/// The answers of the parts are merged into one: probabilities and numbers by their mean, vectors as [`PartPooling`] says. The mean is
/// weighted. The weight of a part is the sum, over its tokens of the text, of one over the number of windows that hold the token. So every
/// token of the text has a total weight of 1, which it shares evenly among its windows, and a sentence weighs as many times as it has
/// tokens. Special tokens, the prompt and the other text of a pair have no weight.
///
/// Only answers of whole parts are weighed, and an answer depends on all tokens of its part, so tokens do not count exactly alike. Where the
/// vector of a part is the mean over its tokens, a token counts as the sum, over its windows, of weight by number of tokens: of 8 tokens
/// in windows of 4 that begin every 3, which weigh 3.5, 3 and 1.5, the first counts 3.5/4 and the fourth 3.5/4 + 3/4.
///
/// Of a pair the text with more tokens is read in parts, each beside the whole other text.
///
/// ```
/// use firelight_classification::LongText;
///
/// assert_eq!(LongText::default(), LongText::Truncate);
/// let half_a_window = LongText::Windows { stride: None };
/// assert_ne!(half_a_window, LongText::Windows { stride: Some(64) });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LongText {
    /// Its end is not read.
    #[default]
    Truncate,
    /// In windows as long as the model reads, which overlap.
    Windows {
        /// Tokens from the beginning of one window to that of the next, at most as many of the text as a window holds. Default: half as many.
        stride: Option<usize>,
    },
    /// By its [`sentences`]; one that is itself too long is read in windows that begin every half a window.
    Sentences,
}

impl LongText {
    /// The same, for windows that hold so many tokens of a text.
    ///
    /// # Errors
    /// If the stride is 0 or longer than a window.
    pub(crate) fn checked(self, room: usize) -> Result<Self, InputError> {
        match self {
            Self::Windows { stride: Some(stride) } if !(1..=room).contains(&stride) => {
                let range = format!("expected at least 1 and at most {room}, the tokens of a text that a window holds");
                Err(InputError::new(format!("stride is {stride}, {range}")).advise("leave it out for half of them"))
            }
            other => Ok(other),
        }
    }
}

/// How the vectors of the parts of a long text become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartPooling {
    /// Their mean, weighted as [`LongText`] says.
    #[default]
    Mean,
    /// The largest value of each channel.
    Max,
}

impl PartPooling {
    /// One row out of several, which have these weights.
    pub(crate) fn merge(self, rows: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
        let larger = |most: Vec<f64>, row: &Vec<f64>| most.iter().zip(row).map(|(&a, &b)| f64::max(a, b)).collect();
        match self {
            Self::Mean => weighted_mean(rows, weights),
            Self::Max => rows[1..].iter().fold(rows[0].clone(), larger),
        }
    }
}

/// The mean of rows, each of which counts as much as its weight says.
pub(crate) fn weighted_mean(rows: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    let of_column =
        |column: usize| rows.iter().zip(weights).map(|(row, weight)| row[column] * weight).sum::<f64>() / total;
    (0..rows[0].len()).map(of_column).collect()
}

/// What is read of a text at once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextPart {
    pub(crate) text: EncodedText,
    /// How much it counts in a mean over the parts of its text.
    pub(crate) weight: f64,
}

/// One row for each text, out of those of the parts of all texts in their order: that of a single part as it is, or else what `merge`
/// makes of several rows and their weights.
pub(crate) fn merged<A>(
    texts: &[Vec<TextPart>],
    rows: Vec<Vec<A>>,
    merge: impl Fn(&[Vec<A>], &[f64]) -> Vec<A>,
) -> Vec<Vec<A>> {
    let mut rows = rows.into_iter();
    let of_text = |parts: &Vec<TextPart>| {
        let weights: Vec<f64> = parts.iter().map(|part| part.weight).collect();
        match <[_; 1]>::try_from(rows.by_ref().take(parts.len()).collect::<Vec<_>>()) {
            Ok([row]) => row,
            Err(rows) => merge(&rows, &weights),
        }
    };
    texts.iter().map(of_text).collect()
}

/// How texts become what a model reads: with which tokens, how many at most, and what becomes of longer ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartReader<'a> {
    pub(crate) vocabulary: &'a TextVocabulary,
    pub(crate) max_len: usize,
    pub(crate) long_text: LongText,
}

impl PartReader<'_> {
    /// A text, or a pair, in the parts that are read, at least one; in each the prompt stands in front of the text.
    ///
    /// # Errors
    /// As [`TextVocabulary::encode`], and if what stands beside a long text leaves no room for it.
    pub(crate) fn parts(&self, prompt: &str, texts: (&str, Option<&str>)) -> Result<Vec<TextPart>, DataError> {
        let whole = self.vocabulary.encode(&[prompt, texts.0].concat(), texts.1, self.max_len)?;
        match self.long_text {
            LongText::Windows { stride } if whole.is_cut => self.windows(prompt, texts, (Cut::Longest, stride)),
            LongText::Sentences if whole.is_cut => self.sentences(prompt, texts),
            _ => Ok(vec![TextPart { text: whole, weight: 1.0 }]),
        }
    }

    fn windows(
        &self,
        prompt: &str,
        texts: (&str, Option<&str>),
        (cut, stride): (Cut, Option<usize>),
    ) -> Result<Vec<TextPart>, DataError> {
        let tokens = Tokens::of(self.vocabulary, prompt, texts, cut)?;
        let room = tokens.room(self.max_len)?;
        let stride = stride.unwrap_or(room / 2).clamp(1, room);
        let windows = overlapping_windows(tokens.cut.len(), 0, room, stride);
        let part = |(window, weight): (&OverlappingWindow, f64)| TextPart {
            text: tokens.beside(&tokens.cut[window.tokens()]),
            weight,
        };
        Ok(windows.iter().zip(shared_weights(&windows)).map(part).collect())
    }

    fn sentences(&self, prompt: &str, texts: (&str, Option<&str>)) -> Result<Vec<TextPart>, DataError> {
        let is_second = Tokens::of(self.vocabulary, prompt, texts, Cut::Longest)?.is_second;
        let (long, cut) = if is_second { (texts.1.unwrap_or_default(), Cut::Second) } else { (texts.0, Cut::First) };
        let read = |sentence| {
            let texts = if is_second { (texts.0, Some(sentence)) } else { (sentence, texts.1) };
            self.windows(prompt, texts, (cut, None))
        };
        let parts = sentences(long).into_iter().map(read).collect::<Result<Vec<_>, _>>()?.concat();
        // White space is no sentence, but may be tokens.
        if parts.is_empty() { self.windows(prompt, texts, (cut, None)) } else { Ok(parts) }
    }
}

/// The weight of each window: every token has a weight of 1 and shares it evenly among the windows that hold it.
fn shared_weights(windows: &[OverlappingWindow]) -> Vec<f64> {
    let mut holders = vec![0_usize; windows.last().map_or(0, |last| last.end)];
    windows.iter().flat_map(OverlappingWindow::tokens).for_each(|token| holders[token] += 1);
    let weight = |window: &OverlappingWindow| window.tokens().map(|token| 1.0 / holders[token] as f64).sum::<f64>();
    windows.iter().map(weight).collect()
}

/// The tokens of a text, or of a pair, one of which is cut.
struct Tokens<'a> {
    vocabulary: &'a TextVocabulary,
    prompt: Vec<u32>,
    cut: Vec<u32>,
    /// Whether the second text is the one that is cut.
    is_second: bool,
    other: Option<Vec<u32>>,
}

impl<'a> Tokens<'a> {
    fn of(
        vocabulary: &'a TextVocabulary,
        prompt: &str,
        (text, pair): (&str, Option<&str>),
        cut: Cut,
    ) -> Result<Self, DataError> {
        let tokens = vocabulary.tokenizer().encode_with_offsets(&[prompt, text].concat())?;
        let is_of_prompt = |end: usize| !prompt.is_empty() && end <= prompt.len();
        let from = tokens.iter().take_while(|(_, stretch)| is_of_prompt(stretch.end)).count();
        let mut prompt: Vec<u32> = tokens.into_iter().map(|(id, _)| id).collect();
        let first = prompt.split_off(from);
        let second = pair.map(|pair| vocabulary.tokenizer().encode(pair)).transpose()?;
        Ok(match second {
            Some(second) if cut == Cut::Second || (cut == Cut::Longest && second.len() > first.len()) => {
                Self { vocabulary, prompt, cut: second, is_second: true, other: Some(first) }
            }
            other => Self { vocabulary, prompt, cut: first, is_second: false, other },
        })
    }

    /// How many tokens of the text that is cut fit into `max_len` beside the others.
    fn room(&self, max_len: usize) -> Result<usize, InputError> {
        let frame = self.vocabulary.frame().size(self.other.is_some());
        let beside = frame + self.prompt.len() + self.other.as_ref().map_or(0, Vec::len);
        max_len.checked_sub(beside).filter(|room| *room > 0).ok_or_else(|| {
            let problem = format!("the text has more than the {max_len} tokens that the model reads");
            let why = format!(
                "{beside} tokens of its prompt, its pair and those around texts leave no room for a part of it"
            );
            InputError::new(format!("{problem}, and {why}")).advise("shorten what stands beside the long text")
        })
    }

    /// A part of the text that is cut, with all that stands beside it.
    fn beside(&self, part: &[u32]) -> EncodedText {
        let part = part.to_vec();
        let (first, second) = match &self.other {
            Some(first) if self.is_second => (first.clone(), Some(part)),
            other => (part, other.clone()),
        };
        framed(self.vocabulary.frame(), [&self.prompt[..], &first].concat(), second, usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::{Tokenizer, TokenizerConfig};
    use firelight_kernels::assert_close;
    use proptest::prelude::*;

    /// `a` to `f` are 0 to 5, `[CLS]` is 6 and `[SEP]` 7.
    fn vocabulary() -> TextVocabulary {
        TextVocabulary::new(Tokenizer::train(&TokenizerConfig::Char, "abcdef").unwrap()).unwrap()
    }

    fn windows(stride: usize) -> LongText {
        LongText::Windows { stride: Some(stride) }
    }

    /// The ids of each part, and its weight.
    fn read(long_text: LongText, max_len: usize, prompt: &str, texts: (&str, Option<&str>)) -> Vec<(Vec<u32>, f64)> {
        let vocabulary = vocabulary();
        let parts = PartReader { vocabulary: &vocabulary, max_len, long_text }.parts(prompt, texts).unwrap();
        parts.into_iter().map(|part| (part.text.ids, part.weight)).collect()
    }

    #[test]
    fn windows_of_a_text_stand_between_its_tokens() {
        let found = read(windows(3), 6, "", ("abcdefab", None));
        let expected = [(vec![6, 0, 1, 2, 3, 7], 3.5), (vec![6, 3, 4, 5, 0, 7], 3.0), (vec![6, 0, 1, 7], 1.5)];
        assert_eq!(found, expected);
        let half = read(LongText::Windows { stride: None }, 6, "", ("abcdefab", None));
        assert_eq!(half, read(windows(2), 6, "", ("abcdefab", None)), "half of the 4 tokens that a window holds");
        assert_eq!(read(windows(4), 6, "", ("abcdefab", None)).len(), 2, "windows side by side");
    }

    #[test]
    fn a_prompt_stands_in_front_of_every_part() {
        let found = read(windows(2), 6, "fe", ("abc", None));
        assert_eq!(found, [(vec![6, 5, 4, 0, 1, 7], 2.0), (vec![6, 5, 4, 2, 7], 1.0)]);
        assert_eq!(read(windows(2), 6, "fe", ("ab", None)), [(vec![6, 5, 4, 0, 1, 7], 1.0)]);
    }

    #[test]
    fn the_longer_text_of_a_pair_is_cut_beside_the_whole_other() {
        let found = read(windows(3), 7, "", ("abcdef", Some("b")));
        assert_eq!(found, [(vec![6, 0, 1, 2, 7, 1, 7], 3.0), (vec![6, 3, 4, 5, 7, 1, 7], 3.0)]);
        let found = read(windows(9), 7, "", ("b", Some("abcdef")));
        let expected = [(vec![6, 1, 7, 0, 1, 2, 7], 3.0), (vec![6, 1, 7, 3, 4, 5, 7], 3.0)];
        assert_eq!(found, expected, "no token is passed over where the other text leaves less room than the stride");
        let vocabulary = vocabulary();
        let reader = PartReader { vocabulary: &vocabulary, max_len: 8, long_text: windows(1) };
        let error = reader.parts("", ("abcde", Some("abcdef"))).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("8 tokens of its prompt, its pair"), "{error}");
        let second = reader.parts("", ("ab", Some("abcdef"))).unwrap().remove(0).text.second_from;
        assert_eq!(second, 4, "the second segment begins behind the first text");
    }

    #[test]
    fn sentences_are_parts_and_a_long_one_is_read_in_windows() {
        let vocabulary = TextVocabulary::new(Tokenizer::train(&TokenizerConfig::Char, "abAB. \t").unwrap()).unwrap();
        let parts = |max_len, text| {
            let reader = PartReader { vocabulary: &vocabulary, max_len, long_text: LongText::Sentences };
            let shown = |part: TextPart| {
                let ids = &part.text.ids;
                (vocabulary.tokenizer().decode(&ids[1..ids.len() - 1]), (6.0 * part.weight).round() as usize)
            };
            reader.parts("", (text, None)).unwrap().into_iter().map(shown).collect::<Vec<_>>()
        };
        // Weights in sixths: of the eight tokens of the long sentence four are in two windows, and one is in all three.
        let part = |text: &str, sixths| (text.to_string(), sixths);
        let expected = [part("Aab.", 24), part("Baa.", 24), part("Abbbb", 20), part("bbbbb", 14), part("bbb.", 14)];
        assert_eq!(parts(7, "Aab. Baa.  Abbbbbb."), expected);
        assert_eq!(parts(40, "Aab. Baa."), [part("Aab. Baa.", 6)], "a text that fits is read as a whole");
        assert_eq!(parts(5, "    "), [part("   ", 12), part("   ", 12)], "white space has no sentence");
    }

    #[test]
    fn of_a_pair_the_longer_text_is_read_by_sentences() {
        let vocabulary = TextVocabulary::new(Tokenizer::train(&TokenizerConfig::Char, "abAB. ").unwrap()).unwrap();
        let reader = PartReader { vocabulary: &vocabulary, max_len: 10, long_text: LongText::Sentences };
        let found = reader.parts("", ("ab", Some("Aab. B."))).unwrap();
        let expected = ["Aab.", "B."].map(|sentence| vocabulary.encode("ab", Some(sentence), 99).unwrap());
        assert_eq!(found.iter().map(|part| part.text.clone()).collect::<Vec<_>>(), expected);
        assert_eq!(found.iter().map(|part| part.weight).collect::<Vec<_>>(), [4.0, 2.0]);
    }

    #[test]
    fn a_stride_that_fits_no_window_is_refused() {
        for stride in [0, 8] {
            let error = windows(stride).checked(7).unwrap_err().to_string();
            let range = "expected at least 1 and at most 7, the tokens of a text that a window holds";
            assert_eq!(error, format!("stride is {stride}, {range}; leave it out for half of them"));
        }
        for fits in [windows(1), windows(7), LongText::Sentences, LongText::Windows { stride: None }] {
            assert_eq!(fits.checked(7), Ok(fits));
        }
    }

    #[test]
    fn a_token_shares_its_weight_among_its_windows() {
        // 0..4, 1..5 and 2..6: one, two, three, three, two and one of them hold a token.
        let found = shared_weights(&overlapping_windows(6, 0, 4, 1));
        assert_close(&found, &[13.0 / 6.0, 10.0 / 6.0, 13.0 / 6.0], 1e-12);
        // 0..4, 2..6, 4..8 and 6..9: the last one is not the least, although only its last token is new.
        assert_close(&shared_weights(&overlapping_windows(9, 0, 4, 2)), &[3.0, 2.0, 2.0, 2.0], 1e-12);
        assert_close(&shared_weights(&overlapping_windows(9, 0, 4, 4)), &[4.0, 4.0, 1.0], 1e-12);
        assert!(shared_weights(&[]).is_empty());
    }

    #[test]
    fn parts_are_merged_by_hand() {
        let rows = [vec![1.0, -4.0], vec![3.0, -8.0]];
        assert_close(&PartPooling::Mean.merge(&rows, &[3.0, 1.0]), &[1.5, -5.0], 1e-12);
        assert_close(&PartPooling::Max.merge(&rows, &[3.0, 1.0]), &[3.0, -4.0], 1e-12);
        let part = |weight| TextPart { text: EncodedText { ids: vec![0], second_from: 1, is_cut: false }, weight };
        let texts = [vec![part(9.0)], vec![part(3.0), part(1.0)]];
        let rows = vec![vec![7.0], vec![2.0], vec![6.0]];
        let found = merged(&texts, rows, weighted_mean);
        assert_eq!(found[0], [7.0], "that of a single part is the same to the last bit");
        assert_close(&found[1], &[3.0], 1e-12);
    }

    proptest! {
        #[test]
        fn a_text_that_fits_is_as_it_was_and_the_weights_of_windows_count_every_token_once(
            text in "[a-f]{0,30}", max_len in 3_usize..14, stride in 1_usize..14,
        ) {
            let (whole, stride) = (vocabulary().encode(&text, None, usize::MAX).unwrap().ids, stride.min(max_len - 2));
            let found = read(windows(stride), max_len, "", (text.as_str(), None));
            if whole.len() <= max_len {
                prop_assert_eq!(&found, &[(whole.clone(), 1.0)]);
            } else {
                let (last, others) = found.split_last().unwrap();
                let begun = others.iter().flat_map(|(ids, _)| &ids[1..=stride]);
                let read: Vec<u32> = begun.chain(&last.0[1..last.0.len() - 1]).copied().collect();
                prop_assert_eq!(&read, &whole[1..whole.len() - 1]);
                let weight: f64 = found.iter().map(|(_, weight)| weight).sum();
                prop_assert!((weight - read.len() as f64).abs() < 1e-9, "{weight} for {} tokens", read.len());
                prop_assert!(found.iter().all(|(ids, _)| ids.len() <= max_len && ids[0] == 6 && ids.last() == Some(&7)));
            }
        }
    }
}
