//! The tokenizer of an encoder, with the tokens that stand around texts: those of its file where it has some, else BERT's.
//!
//! Source: Devlin et al. 2019, §3 (<https://arxiv.org/abs/1810.04805>): `[CLS] text [SEP]`, or `[CLS] text [SEP] pair [SEP]`,
//! where the pair and the token behind it are the second segment.

#[cfg(feature = "train")]
use firelight_data::TokenizerConfig;
use firelight_data::{Cut, DataError, Frame, SpecialRole, Tokenizer, WindowOptions};
use firelight_storage::{InputError, ModelFolder, TaskError};

use crate::data::{EncodedText, EncodedWords, QuestionWindow};

/// The tokens that are added to a tokenizer without them: in front of every text, behind every text, and in the place of a hidden token.
const SPECIAL: [(SpecialRole, &str); 3] =
    [(SpecialRole::Class, "[CLS]"), (SpecialRole::Separator, "[SEP]"), (SpecialRole::Mask, "[MASK]")];

/// A tokenizer with the tokens of an encoder.
#[derive(Clone, Debug)]
pub struct TextVocabulary {
    tokenizer: Tokenizer,
    frame: Frame,
    mask: u32,
}

impl TextVocabulary {
    /// Adds the tokens `[CLS]`, `[SEP]` and `[MASK]` where the tokenizer has none of their roles, and BERT's frame where its own has
    /// nothing in front of a text.
    ///
    /// # Errors
    /// If they cannot be added.
    pub fn new(tokenizer: Tokenizer) -> Result<Self, DataError> {
        Self::of(tokenizer.ensure_roles(&SPECIAL)?)
    }

    /// Reads the tokenizer of a run folder.
    ///
    /// # Errors
    /// If the file cannot be read, is no tokenizer, or is that of a run of another kind.
    pub fn load(folder: &ModelFolder) -> Result<Self, TaskError> {
        Ok(Self::of(Tokenizer::load(folder.tokenizer())?)?)
    }

    fn of(tokenizer: Tokenizer) -> Result<Self, DataError> {
        let (class, separator) = (tokenizer.need(SpecialRole::Class)?, tokenizer.need(SpecialRole::Separator)?);
        let mask = tokenizer.need(SpecialRole::Mask)?;
        match tokenizer.frame().filter(|frame| frame.begin() > 0) {
            Some(frame) => Ok(Self { tokenizer, frame, mask }),
            None => {
                let (tokenizer, frame) = tokenizer.with_frame(class, separator)?;
                Ok(Self { tokenizer, frame, mask })
            }
        }
    }

    /// The tokenizer of a training: that of the run that it begins from, unless the recipe names a file or there is no such run, or
    /// else one that is learnt from a text.
    ///
    /// # Errors
    /// If the run cannot be read, or nothing can be learnt.
    #[cfg(feature = "train")]
    pub(crate) fn begin(
        init: &firelight_training::InitConfig,
        tokenizer: &TokenizerConfig,
        text: impl FnOnce() -> String,
    ) -> Result<Self, TaskError> {
        match init.run_with_tokenizer(tokenizer.is_file())? {
            Some(run) => Self::load(&run),
            None => Ok(Self::new(Tokenizer::train(tokenizer, &text())?)?),
        }
    }

    /// Makes sure that the model beside it in the folder knows all of its tokens.
    pub(crate) fn fits(self, size: usize, folder: &ModelFolder) -> Result<Self, TaskError> {
        self.tokenizer.fits(size, &folder.config())?;
        Ok(self)
    }

    /// Writes the tokenizer into a run folder.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, folder: &ModelFolder) -> Result<(), DataError> {
        self.tokenizer.save(folder.tokenizer())
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The token that stands in the place of a hidden one.
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    /// A text in as many pieces of at most `max_len` tokens as it needs, each with the tokens around it; none for an empty text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn pieces(&self, text: &str, max_len: usize) -> Result<Vec<EncodedText>, DataError> {
        let ids = self.tokenizer.encode(text)?;
        Ok(ids.chunks(self.room(max_len)).map(|ids| framed(&self.frame, ids.into(), None, usize::MAX)).collect())
    }

    /// A text, or a pair, with the tokens around it, cut to `max_len` tokens in all: of a pair the longer text loses its last
    /// tokens, one by one.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(&self, text: &str, pair: Option<&str>, max_len: usize) -> Result<EncodedText, DataError> {
        let pair = pair.map(|pair| self.tokenizer.encode(pair)).transpose()?;
        Ok(framed(&self.frame, self.tokenizer.encode(text)?, pair, max_len))
    }

    /// Words, with single spaces between them, and the tokens around them, in as many parts of at most `max_len` tokens as they
    /// need; between two parts no word is cut, and one that alone is longer loses its last tokens.
    ///
    /// Source: Devlin et al. 2019, §5.3: the first token of a word is the one that is classified.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_words<S: AsRef<str>>(&self, words: &[S], max_len: usize) -> Result<Vec<EncodedWords>, DataError> {
        let room = self.room(max_len);
        let mut parts: Vec<Vec<Pieces>> = Vec::new();
        let mut left = 0;
        for pieces in self.pieces_of_words(words)? {
            let pieces = pieces.cut(room);
            if parts.is_empty() || pieces.ids.len() > left {
                parts.push(Vec::new());
                left = room;
            }
            left -= pieces.ids.len();
            parts.last_mut().into_iter().for_each(|part| part.push(pieces.clone()));
        }
        Ok(parts.iter().map(|part| self.part(part)).collect())
    }

    /// A question with its text, and the tokens around them, in windows of at most `max_len` tokens: one, or where the text is too long
    /// as many as begin every `stride` tokens until its end; at most as far apart as a window is long. Errors name the line.
    ///
    /// Source: Devlin et al. 2019, §4.2, and the `doc_stride` of its published code.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`], and if the question leaves no room for the text, or the text is too long and there is no stride.
    pub fn encode_question(
        &self,
        (question, context): (&str, &str),
        max_len: usize,
        stride: Option<usize>,
        line: usize,
    ) -> Result<Vec<QuestionWindow>, TaskError> {
        let windows = |max_len, overlap| -> Result<Vec<QuestionWindow>, TaskError> {
            let options = WindowOptions { max_len, overlap, cut: Cut::Second };
            let windows = self.tokenizer.windows(question, Some(context), &options);
            let windows = windows.map_err(TaskError::in_line(line))?;
            Ok(windows.into_iter().map(QuestionWindow::of).collect())
        };
        let whole = windows(usize::MAX, 0)?;
        let [tokens, len] = whole.first().map_or([0; 2], |whole| [whole.text.ids.len(), whole.stretches.len()]);
        let (asked, room) = (tokens - len - self.frame.size(true), max_len.saturating_sub(tokens - len));
        match stride {
            _ if room == 0 => {
                let limit = format!("model.max_seq_len = {max_len}: raise it");
                let problem = format!("the question has {asked} tokens, which leave no room for its text of {limit}");
                Err(InputError::new(format!("line {line}: {problem}")).into())
            }
            _ if len <= room => Ok(whole),
            None => {
                let problem =
                    format!("the question and its text have {tokens} tokens, but model.max_seq_len = {max_len}");
                let way_out = "raise it, or set data.stride to read the text in windows";
                Err(InputError::new(format!("line {line}: {problem}: {way_out}")).into())
            }
            Some(stride) => windows(max_len, room - stride.clamp(1, room)),
        }
    }

    /// The tokens of each word. A space between two words, where it is a token, belongs to the second one; a word of which the
    /// tokenizer leaves nothing, such as a control character, is hidden.
    fn pieces_of_words<S: AsRef<str>>(&self, words: &[S]) -> Result<Vec<Pieces>, DataError> {
        let text = words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ");
        let mut tokens = self.tokenizer.encode_with_offsets(&text)?.into_iter().peekable();
        let mut begin = 0;
        let pieces_of = |word: &S| {
            let end = begin + word.as_ref().len();
            let mut pieces = Pieces { ids: Vec::new(), first: None, is_cut: false };
            while let Some((id, stretch)) = tokens.next_if(|(_, stretch)| stretch.end <= end) {
                if pieces.first.is_none() && stretch.end > begin {
                    pieces.first = Some(pieces.ids.len());
                }
                pieces.ids.push(id);
            }
            if pieces.first.is_none() {
                pieces.first = Some(pieces.ids.len());
                pieces.ids.push(self.mask);
            }
            begin = end + 1;
            pieces
        };
        Ok(words.iter().map(pieces_of).collect())
    }

    fn part(&self, words: &[Pieces]) -> EncodedWords {
        let (mut ids, mut places) = (Vec::new(), Vec::new());
        for word in words {
            places.extend(word.first.map(|first| self.frame.begin() + ids.len() + first));
            ids.extend(&word.ids);
        }
        let text = framed(&self.frame, ids, None, usize::MAX);
        EncodedWords { text: EncodedText { is_cut: words.iter().any(|word| word.is_cut), ..text }, places }
    }

    /// Tokens of a text that stands alone in `max_len` tokens.
    pub(crate) fn room(&self, max_len: usize) -> usize {
        max_len.saturating_sub(self.frame.size(false)).max(1)
    }

    /// What stands around texts.
    pub(crate) fn frame(&self) -> &Frame {
        &self.frame
    }
}

/// The tokens of a text, or of a pair, with those around them, cut to `max_len` in all: of a pair the longer text loses its last
/// tokens, one by one.
pub(crate) fn framed(frame: &Frame, mut first: Vec<u32>, mut second: Option<Vec<u32>>, max_len: usize) -> EncodedText {
    let whole = first.len() + second.as_ref().map_or(0, Vec::len) + frame.size(second.is_some());
    let mut over = whole.saturating_sub(max_len);
    while over > 0 && first.len() + second.as_ref().map_or(0, Vec::len) > 0 {
        match &mut second {
            Some(second) if second.len() > first.len() => drop(second.pop()),
            _ => drop(first.pop()),
        }
        over -= 1;
    }
    let (ids, second_from) = frame.put(&first, second.as_deref());
    EncodedText { ids, second_from, is_cut: whole > max_len }
}

/// The tokens of a word.
#[derive(Clone)]
struct Pieces {
    ids: Vec<u32>,
    /// Which of them is the first that is more than white space.
    first: Option<usize>,
    is_cut: bool,
}

impl Pieces {
    /// The word in at most so many tokens: from its first one on, where it has more.
    fn cut(mut self, room: usize) -> Self {
        if self.ids.len() > room {
            self.ids.drain(..self.first.unwrap_or(0));
            self.ids.truncate(room);
            (self.first, self.is_cut) = (Some(0), true);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::TokenizerConfig;

    fn vocabulary() -> TextVocabulary {
        TextVocabulary::new(Tokenizer::train(&TokenizerConfig::Char, "abcdef").unwrap()).unwrap()
    }

    #[test]
    fn texts_and_pairs_stand_between_their_tokens() {
        let vocabulary = vocabulary();
        let text = vocabulary.encode("ab", None, 9).unwrap();
        assert_eq!((text.ids, text.second_from, text.is_cut), (vec![6, 0, 1, 7], 4, false));
        let pair = vocabulary.encode("ab", Some("c"), 9).unwrap();
        assert_eq!((pair.ids, pair.second_from, pair.is_cut), (vec![6, 0, 1, 7, 2, 7], 4, false));
        assert_eq!(vocabulary.mask(), 8);
    }

    #[test]
    fn long_texts_are_cut_and_of_a_pair_the_longer_one() {
        let vocabulary = vocabulary();
        let text = vocabulary.encode("abcdef", None, 4).unwrap();
        assert_eq!((text.ids, text.is_cut), (vec![6, 0, 1, 7], true));
        let pair = vocabulary.encode("abcde", Some("fe"), 7).unwrap();
        assert_eq!((pair.ids, pair.second_from), (vec![6, 0, 1, 7, 5, 4, 7], 4));
        assert_eq!(vocabulary.encode("abc", Some("d"), 1).unwrap().ids, [6, 7, 7]);
    }

    #[test]
    fn a_long_text_comes_in_pieces() {
        let pieces = vocabulary().pieces("abcde", 4).unwrap();
        let ids: Vec<&[u32]> = pieces.iter().map(|piece| piece.ids.as_slice()).collect();
        assert_eq!(ids, [&[6, 0, 1, 7][..], &[6, 2, 3, 7], &[6, 4, 7]]);
        assert!(vocabulary().pieces("", 4).unwrap().is_empty());
    }

    #[test]
    fn words_are_spoken_for_by_their_first_tokens_and_never_cut_in_two() {
        let text = "ab ba a b fab cab ab ba".repeat(9);
        let words = ["ab", "fab", "b", "\u{200b}"];
        for (config, expected) in [
            (TokenizerConfig::Char, 8),
            (TokenizerConfig::Byte, 8),
            (TokenizerConfig::Word { min_frequency: 1 }, 3),
            (TokenizerConfig::SentenceBpe { vocab_size: 256 }, 9),
            (TokenizerConfig::WordPiece { vocab_size: 14 }, 4),
        ] {
            let vocabulary = TextVocabulary::new(Tokenizer::train(&config, &text).unwrap()).unwrap();
            let known = if config == TokenizerConfig::Char { &words[..3] } else { &words };
            let whole = vocabulary.encode_words(known, 99).unwrap();
            let [EncodedWords { text, places }] = &whole[..] else { panic!("{whole:?}") };
            assert_eq!(places.len(), known.len(), "{config:?}");
            let begins = places.iter().map(|&place| vocabulary.tokenizer.token(text.ids[place]).unwrap());
            let begins: String = begins.take(3).filter_map(|token| token.chars().next()).collect();
            assert!(["afb", "\u{120}\u{120}\u{120}"].contains(&begins.as_str()), "{config:?} {begins}");
            let found = vocabulary.encode_words(&words[..3], 6).unwrap();
            let joined: Vec<u32> =
                found.iter().flat_map(|part| &part.text.ids[1..part.text.ids.len() - 1]).copied().collect();
            assert_eq!(
                (joined.len(), found.iter().map(|part| part.places.len()).sum::<usize>()),
                (expected, 3),
                "{config:?}"
            );
            assert!(found.iter().all(|part| part.text.ids.len() <= 6 && !part.text.is_cut));
        }
        let hidden = vocabulary().encode_words(&["ab", "", "c"], 9);
        assert!(hidden.is_err(), "the space is unknown to these characters");
    }

    #[test]
    fn a_word_without_tokens_is_hidden_and_one_that_is_too_long_loses_its_end() {
        let bytes = TextVocabulary::new(Tokenizer::train(&TokenizerConfig::Byte, "").unwrap()).unwrap();
        let long = bytes.encode_words(&["a", "bcdefg", "h"], 6).unwrap();
        let cut: Vec<bool> = long.iter().map(|part| part.text.is_cut).collect();
        assert_eq!(
            (cut, &long[1].text.ids[1..5], long[1].places[0]),
            (vec![false, true, false], &[98, 99, 100, 101][..], 1)
        );
        assert!(bytes.encode_words::<&str>(&[], 6).unwrap().is_empty());
        let config = TokenizerConfig::WordPiece { vocab_size: 14 };
        let pieces = TextVocabulary::new(Tokenizer::train(&config, "ab fab cab").unwrap()).unwrap();
        let [EncodedWords { text, places }] = &pieces.encode_words(&["ab", "\u{1}", "b"], 9).unwrap()[..] else {
            panic!("one part")
        };
        assert_eq!((places.len(), text.ids[places[1]]), (3, pieces.mask()));
    }

    #[test]
    fn windows_reach_to_the_end_of_a_text_and_know_where_they_stand() {
        let vocabulary = vocabulary();
        let windows = |context: &str, max_len, stride| vocabulary.encode_question(("ab", context), max_len, stride, 7);
        let found = windows("cdefab", 9, Some(3)).unwrap();
        let ids: Vec<&[u32]> = found.iter().map(|window| window.text.ids.as_slice()).collect();
        assert_eq!(ids, [&[6, 0, 1, 7, 2, 3, 4, 5, 7][..], &[6, 0, 1, 7, 5, 0, 1, 7]]);
        assert_eq!((found[1].text.second_from, &found[1].stretches[..]), (4, &[3..4, 4..5, 5..6][..]));
        assert_eq!(
            (found[0].places_of(1..3), found[1].places_of(1..3), found[1].places_of(4..6)),
            (Some([5, 6]), None, Some([5, 6]))
        );
        assert_eq!((found[0].places_of(3..5), found[1].places_of(3..5)), (None, Some([4, 5])));
        assert_eq!(windows("cdefab", 9, Some(99)).unwrap().len(), 2, "no token is passed over");
        assert_eq!(windows("cdef", 9, None).unwrap().len(), 1);
        assert!(windows("", 9, None).unwrap()[0].stretches.is_empty());
        let long = windows("cdefab", 9, None).unwrap_err().to_string();
        assert!(long.contains("line 7") && long.contains("11 tokens") && long.contains("data.stride"), "{long}");
        assert!(windows("c", 5, None).unwrap_err().to_string().contains("line 7: the question has 2 tokens"));
    }

    #[test]
    fn the_tokenizer_of_another_task_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), firelight_storage::Existing::Refuse).unwrap();
        Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap().save(folder.tokenizer()).unwrap();
        let error = TextVocabulary::load(&folder).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("has no classification token"), "{error}");
        vocabulary().save(&folder).unwrap();
        assert_eq!(TextVocabulary::load(&folder).unwrap().vocab_size(), 9);
    }
}
