//! What BPE and Unigram share: text as bytes spelt in printable characters, so that no text is lost, cut into words by the
//! pre-tokenizer of GPT-2. A long text is handed to the `tokenizers` crate in parts, because that needs some hundred bytes
//! of memory for each byte of text it works on.
//!
//! The pre-tokenizer counts a space to the word behind it, so that `dog` at the beginning of a text is another word than
//! ` dog` inside it. In running text that happens once; where every line is a sentence it would split the counts of every
//! word that can begin one. The tokenizers for sentences therefore put a space in front of each text and take it away
//! again in decoding: Llama's `Prepend` and `Strip`, SentencePiece's `add_dummy_prefix` (Kudo and Richardson
//! 2018). Source of bytes and pre-tokenizer: Radford et al. 2019, GPT-2, section 2.2.

use tokenizers::decoders::sequence::Sequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::normalizers::Prepend;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    DecoderWrapper, ModelWrapper, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
};

use super::guarded;
use firelight_storage::InputError;

use crate::DataError;

/// Bytes of text after which a part ends at the next opportunity.
const PART: usize = 4096;

/// Bytes after which a part ends in the middle of white space too: the pre-tokenizer gives up a million spaces in a row.
const LONGEST_SPACE: usize = 1 << 18;

/// No vocabulary is larger, whatever the text: the trainers reserve memory for all of it at once.
pub(super) const MAX_VOCAB_SIZE: usize = 10_000_000;

/// Longer words are learnt from in pieces of this many characters, or bytes where they are spelt as such. Merging within a
/// word takes time by the square of its length, and no token is to be as long as this: without white space a whole text
/// would be one word.
const WORD: usize = 256;

/// Parts that are encoded at once, on several threads.
const PARTS_AT_ONCE: usize = 64;

/// A vocabulary holds the bytes, and no more than a text of this length can fill.
pub(super) fn check_vocab_size(text: &str, vocab_size: usize) -> Result<(), DataError> {
    if vocab_size < 256 {
        let problem = format!("a subword tokenizer of {vocab_size} tokens is too small: the 256 bytes alone need 256");
        return Err(InputError::new(problem).advise("give vocab_size = 256 or more").into());
    }
    // Every token beyond the bytes stands for at least two bytes of the text.
    let limit = text.len().saturating_add(256).min(MAX_VOCAB_SIZE);
    match vocab_size > limit {
        true => Err(too_large(vocab_size, limit, text).into()),
        false => Ok(()),
    }
}

/// A vocabulary that no text of this length fills.
pub(super) fn too_large(vocab_size: usize, limit: usize, text: &str) -> InputError {
    let bytes = text.len();
    let problem = format!(
        "a subword tokenizer of {vocab_size} tokens is too large: a text of {bytes} bytes can give at most {limit}"
    );
    InputError::new(problem).advise("give a smaller vocab_size")
}

/// The ids of the parts of a text.
pub(super) fn encode_parts(tokenizer: &tokenizers::Tokenizer, parts: &[&str]) -> Result<Vec<u32>, DataError> {
    let mut ids = Vec::new();
    for group in parts.chunks(PARTS_AT_ONCE) {
        for encoding in guarded(|| tokenizer.encode_batch_fast(group.to_vec(), false))? {
            ids.extend_from_slice(encoding.get_ids());
        }
    }
    Ok(ids)
}

/// Puts a space in front of every text and takes it away again in decoding.
pub(super) fn put_space_in_front(tokenizer: &mut tokenizers::Tokenizer) {
    let decoders = vec![
        DecoderWrapper::ByteLevel(ByteLevel::default()),
        DecoderWrapper::Fuse(Default::default()),
        DecoderWrapper::Strip(Strip::new(' ', 1, 0)),
    ];
    tokenizer.with_normalizer(Some(Prepend::new(" ".into()))).with_decoder(Some(Sequence::new(decoders)));
}

/// Whether a tokenizer cuts as GPT-2 does.
pub(super) fn is_gpt2(tokenizer: &tokenizers::Tokenizer) -> bool {
    let cuts = |level: &ByteLevel| level.use_regex && !level.add_prefix_space;
    matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::ByteLevel(level)) if cuts(level))
}

/// Whether a token that the file adds reaches across white space, before which a text could otherwise be cut.
pub(super) fn takes_white_space(tokenizer: &tokenizers::Tokenizer) -> bool {
    let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder().values();
    let mut text = added.filter(|token| !token.special);
    text.any(|token| token.lstrip || token.rstrip || token.content.contains(char::is_whitespace))
}

/// Whether tokens spell bytes in printable characters.
pub(super) fn is_spelt(tokenizer: &tokenizers::Tokenizer) -> bool {
    let spells = |decoder: &DecoderWrapper| matches!(decoder, DecoderWrapper::ByteLevel(_));
    match tokenizer.get_decoder() {
        Some(DecoderWrapper::Sequence(all)) => all.get_decoders().iter().any(spells),
        decoder => decoder.is_some_and(spells),
    }
}

/// The character that spells each byte in byte-level BPE: printable bytes of Latin-1 spell themselves, the others take
/// the characters from U+0100 on. Source: Radford et al. 2019, `bytes_to_unicode` in GPT-2's encoder.py.
pub(super) fn spelling(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return byte.into();
    }
    let before = (0..byte).filter(|&other| !is_printable(other)).count();
    char::from_u32(0x100 + before as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// A tokenizer that hands the words of a pre-tokenizer to a model and joins the bytes again.
pub(super) fn assemble(model: impl Into<ModelWrapper>, pre_tokenizer: ByteLevel) -> tokenizers::Tokenizer {
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    tokenizer.with_pre_tokenizer(Some(pre_tokenizer)).with_decoder(Some(ByteLevel::default()));
    tokenizer
}

/// The pre-tokenizer of GPT-2, which adds no space in front of a text.
pub(super) fn gpt2() -> ByteLevel {
    ByteLevel::new(false, false, true)
}

/// The words of a part, spelt in the byte alphabet, as the trainers count them: in pieces of 256 bytes where they are longer.
pub(super) fn words(part: &str) -> tokenizers::Result<Vec<String>> {
    let mut text = PreTokenizedString::from(part);
    gpt2().pre_tokenize(&mut text)?;
    let splits = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
    Ok(splits.into_iter().flat_map(|(word, _, _)| learnt(word)).collect())
}

/// The pieces of a word that a trainer counts; nearly always it is one.
pub(super) fn learnt(word: &str) -> Vec<String> {
    if word.len() <= WORD {
        return vec![word.to_owned()];
    }
    let characters: Vec<char> = word.chars().collect();
    characters.chunks(WORD).map(|piece| piece.iter().collect()).collect()
}

/// The lines of a text as the tokenizers for sentences are trained on them: each with a space in front, in parts.
pub(super) fn sentences(text: &str) -> impl Iterator<Item = String> {
    let in_front = |number: usize, part: &str| if number == 0 { format!(" {part}") } else { part.to_owned() };
    text.lines().flat_map(move |line| parts(line).enumerate().map(move |(number, part)| in_front(number, part)))
}

/// Cuts a text into parts that can be encoded one by one.
///
/// A part ends where white space follows something else: no word of GPT-2's pre-tokenizer reaches across such a place,
/// and where it cuts does not depend on what stands further to the left. White space without an end is cut anywhere.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    parts_before(text, char::is_whitespace)
}

/// Cuts a text into parts that end where a space follows something else.
pub(super) fn parts_before(text: &str, is_space: impl Fn(char) -> bool) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at(part_len(rest, &is_space));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// Length of the first part in bytes.
fn part_len(text: &str, is_space: impl Fn(char) -> bool) -> usize {
    let mut after_word = false;
    for (offset, character) in text.char_indices().skip_while(|&(offset, _)| offset < PART) {
        let ends = is_space(character);
        if ends && (after_word || offset >= LONGEST_SPACE) {
            return offset;
        }
        after_word = !ends;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tokenizer, TokenizerConfig, TokenizerKind};
    use proptest::prelude::*;

    #[test]
    fn the_alphabet_is_that_of_the_tokenizers_crate() {
        let ours: std::collections::HashSet<char> = (0..=255).map(spelling).collect();
        assert_eq!(ours, ByteLevel::alphabet().into_iter().collect());
        assert_eq!((spelling(b'a'), spelling(b' '), spelling(b'\n')), ('a', '\u{120}', '\u{10a}'));
    }

    #[test]
    fn a_long_text_is_encoded_as_if_it_were_one_part() {
        let text = crate::stories(2, 40_000).replace(". ", ".  \n\t");
        for config in [TokenizerConfig::Bpe { vocab_size: 600 }, TokenizerConfig::Word { min_frequency: 1 }] {
            let tokenizer = Tokenizer::train(&config, &text).unwrap();
            assert!(tokenizer.parts(&text).len() > 5);
            let whole = tokenizer.inner.encode_fast(text.as_str(), false).unwrap();
            assert_eq!(tokenizer.encode(&text).unwrap(), whole.get_ids());
        }
    }

    #[test]
    fn a_word_is_the_same_at_the_begin_of_a_sentence_and_inside_it() {
        let lines = "dogs see cats\ncats see dogs\n".repeat(20);
        for config in [TokenizerConfig::SentenceBpe { vocab_size: 270 }, TokenizerConfig::Unigram { vocab_size: 270 }] {
            let tokenizer = Tokenizer::train(&config, &lines).unwrap();
            let [first, second] = ["dogs see cats", "cats see dogs"].map(|text| tokenizer.encode(text).unwrap());
            assert_eq!(first.iter().rev().copied().collect::<Vec<_>>(), second, "{config}");
            assert_eq!((first.len(), tokenizer.token(first[0]).as_deref()), (3, Some("\u{120}dogs")));
            assert_eq!(tokenizer.decode(&first[1..]), "see cats");
        }
    }

    #[test]
    fn a_space_of_the_text_is_kept_beside_the_one_in_front() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::SentenceBpe { vocab_size: 256 }, "").unwrap();
        assert_eq!(tokenizer.encode("a").unwrap().len(), 2);
        assert!(tokenizer.encode("").unwrap().is_empty());
        for text in ["a", " a", "  a", " ", "", "\n"] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
        }
    }

    #[test]
    fn a_million_spaces_are_encoded_too() {
        let text = format!("a{}b", " \n".repeat(600_000));
        for config in [TokenizerConfig::Bpe { vocab_size: 260 }, TokenizerConfig::Word { min_frequency: 1 }] {
            let tokenizer = Tokenizer::train(&config, &text).unwrap();
            let expected = if tokenizer.kind() == TokenizerKind::Word { "a b" } else { &text };
            let [ids, of_fewer] = [text.as_str(), "a \n \n \n \nb"].map(|text| tokenizer.encode(text).unwrap());
            assert_eq!(tokenizer.decode(&ids), expected);
            // The last of them is a word of its own, as it is where they are few.
            assert_eq!(ids[ids.len() - 2..], of_fewer[of_fewer.len() - 2..]);
        }
    }

    proptest! {
        #[test]
        fn parts_join_to_the_text_and_end_before_white_space(text in "([a-z]{0,400}[ \n\u{2003}]{0,3}){0,60}") {
            let parts: Vec<&str> = parts(&text).collect();
            prop_assert_eq!(parts.concat(), text.as_str());
            for pair in parts.windows(2) {
                prop_assert!(pair[0].len() >= PART && !pair[0].ends_with(char::is_whitespace));
                prop_assert!(pair[1].starts_with(char::is_whitespace));
            }
        }
    }
}
