//! Byte-level byte pair encoding through the `tokenizers` crate, and bytes as the same without a single pair. A long text
//! is handed to the crate in parts, because it needs some hundred bytes of memory for each byte of text it works on.
//!
//! Sources: Sennrich et al. 2016, Neural machine translation of rare words with subword units, section 3.2
//! (<https://arxiv.org/abs/1508.07909>); Radford et al. 2019, GPT-2, section 2.2 (bytes and the pre-tokenizer).

use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    AddedToken, ModelWrapper, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
    Trainer,
};

use super::failure;
use super::pieces::spelling;
use crate::DataError;

/// Bytes of text after which a part ends at the next opportunity.
const PART: usize = 4096;

/// No vocabulary is larger, whatever the text: the trainer reserves memory for all of it at once.
const MAX_VOCAB_SIZE: usize = 10_000_000;

/// Parts that are encoded at once, on several threads.
const PARTS_AT_ONCE: usize = 64;

/// Makes the tokenizer of bytes: ids are the bytes' values.
pub(super) fn bytes() -> Result<tokenizers::Tokenizer, DataError> {
    let vocabulary = (0..=255).map(|byte| (spelling(byte).to_string(), byte.into()));
    let model = BPE::builder().vocab_and_merges(vocabulary.collect::<tokenizers::models::bpe::Vocab>(), Vec::new());
    // Without the cuts of GPT-2: nothing is merged, so nothing needs to be kept apart.
    Ok(assemble(model.build().map_err(failure)?, ByteLevel::new(false, false, false)))
}

/// Trains a vocabulary of at most `vocab_size` tokens on a text.
pub(super) fn train(text: &str, vocab_size: usize) -> Result<tokenizers::Tokenizer, DataError> {
    if vocab_size < 256 {
        return Err(DataError::VocabSize { vocab_size });
    }
    // A merge makes one token out of at least two bytes of the text.
    let limit = text.len().saturating_add(256).min(MAX_VOCAB_SIZE);
    if vocab_size > limit {
        return Err(DataError::VocabTooLarge { vocab_size, limit, bytes: text.len() });
    }
    let mut trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(vocab_size)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut model = BPE::default();
    trainer.feed(parts(text), words).map_err(failure)?;
    trainer.train(&mut model).map_err(failure)?;
    Ok(assemble(model, gpt2()))
}

/// The ids of a text.
pub(super) fn encode(tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<Vec<u32>, DataError> {
    let parts: Vec<&str> = parts(text).collect();
    let mut ids = Vec::new();
    for group in parts.chunks(PARTS_AT_ONCE) {
        for encoding in tokenizer.encode_batch_fast(group.to_vec(), false).map_err(failure)? {
            ids.extend_from_slice(encoding.get_ids());
        }
    }
    Ok(ids)
}

/// Whether this is what [`bytes`] makes.
pub(super) fn is_bytes(tokenizer: &tokenizers::Tokenizer) -> bool {
    tokenizer.get_vocab_size(true) == 256
        && tokenizer.get_normalizer().is_none()
        && (0..=255).all(|byte| tokenizer.token_to_id(&spelling(byte).to_string()) == Some(byte.into()))
}

/// Checks that a BPE tokenizer knows every byte and cuts as GPT-2 does; the error is what it does instead.
pub(super) fn recognise(tokenizer: &tokenizers::Tokenizer) -> Result<(), String> {
    let cuts_as_gpt2 = |pre_tokenizer: &PreTokenizerWrapper| match pre_tokenizer {
        PreTokenizerWrapper::ByteLevel(level) => level.use_regex && !level.add_prefix_space,
        _ => false,
    };
    if tokenizer.get_normalizer().is_some() {
        return Err("its BPE model changes the text before it encodes it (a normalizer)".into());
    }
    if !tokenizer.get_pre_tokenizer().is_some_and(cuts_as_gpt2) {
        return Err("its BPE model is not byte-level with the pre-tokenizer of GPT-2".into());
    }
    let is_missing = |byte: &u8| tokenizer.token_to_id(&spelling(*byte).to_string()).is_none();
    if let Some(byte) = (0..=255).find(is_missing) {
        return Err(format!("its vocabulary lacks the byte {byte:#04x}, so it cannot encode every text"));
    }
    // A part may end at any white space, which such a token could reach across.
    let reaches = |token: &AddedToken| token.lstrip || token.rstrip || token.content.contains(char::is_whitespace);
    match tokenizer.get_added_tokens_decoder().into_values().find(reaches) {
        Some(token) => Err(format!("its added token {:?} takes white space in", token.content)),
        None => Ok(()),
    }
}

/// A tokenizer that hands the words of a pre-tokenizer to a model and joins the bytes again.
fn assemble(model: BPE, pre_tokenizer: ByteLevel) -> tokenizers::Tokenizer {
    let mut tokenizer = tokenizers::Tokenizer::new(ModelWrapper::BPE(model));
    tokenizer.with_pre_tokenizer(Some(pre_tokenizer)).with_decoder(Some(ByteLevel::default()));
    tokenizer
}

/// The pre-tokenizer of GPT-2, which adds no space in front of a text.
fn gpt2() -> ByteLevel {
    ByteLevel::new(false, false, true)
}

/// The words of a part, spelt in the byte alphabet, as the trainer counts them.
fn words(part: &str) -> tokenizers::Result<Vec<String>> {
    let mut text = PreTokenizedString::from(part);
    gpt2().pre_tokenize(&mut text)?;
    let splits = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
    Ok(splits.into_iter().map(|(word, _, _)| word.to_owned()).collect())
}

/// Cuts a text into parts that can be encoded one by one.
///
/// A part ends where white space follows something else: no word of GPT-2's pre-tokenizer reaches across such a place,
/// and where it cuts does not depend on what stands further to the left.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at(part_len(rest));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// Length of the first part in bytes.
fn part_len(text: &str) -> usize {
    let mut after_word = false;
    for (offset, character) in text.char_indices().skip_while(|&(offset, _)| offset < PART) {
        let is_space = character.is_whitespace();
        if after_word && is_space {
            return offset;
        }
        after_word = !is_space;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tokenizer, TokenizerConfig, TokenizerKind};
    use proptest::prelude::*;

    fn bpe(text: &str, vocab_size: usize) -> Tokenizer {
        Tokenizer::train(&TokenizerConfig::Bpe { vocab_size }, text).unwrap()
    }

    #[test]
    fn bytes_are_their_values() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        assert_eq!((tokenizer.kind(), tokenizer.vocab_size()), (TokenizerKind::Byte, 256));
        assert_eq!(tokenizer.encode("A\u{e9}\n").unwrap(), [0x41, 0xc3, 0xa9, 0x0a]);
    }

    #[test]
    fn the_most_frequent_pair_is_merged_first() {
        // "ab" occurs four times, "abc" three times: ids 256 and 257.
        let tokenizer = bpe("abc\nabc\nabc\nab", 258);
        let [a, c] = ["a", "c"].map(|token| tokenizer.encode(token).unwrap()[0]);
        assert_eq!((tokenizer.kind(), tokenizer.vocab_size()), (TokenizerKind::Bpe, 258));
        assert_eq!(tokenizer.encode("ababcca").unwrap(), [256, 257, c, a]);
        assert_eq!(tokenizer.token(257).as_deref(), Some("abc"));
    }

    #[test]
    fn a_vocabulary_without_all_bytes_is_refused() {
        let small = Tokenizer::train(&TokenizerConfig::Bpe { vocab_size: 255 }, "a");
        assert!(matches!(small, Err(DataError::VocabSize { vocab_size: 255 })));
    }

    #[test]
    fn a_vocabulary_that_no_text_of_this_length_fills_is_refused() {
        assert_eq!(bpe("abab", 260).vocab_size(), 258);
        let error = |text: &str, vocab_size| {
            let error = Tokenizer::train(&TokenizerConfig::Bpe { vocab_size }, text).unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        assert_eq!(
            error("abab", 99_999_999_999_999),
            "a bpe tokenizer of 99999999999999 tokens is too large: a text of 4 bytes can give at most 260; give a \
             smaller vocab_size"
        );
        assert!(error(&" ".repeat(10_000_000), 10_000_001).contains("can give at most 10000000"));
    }

    #[test]
    fn a_file_that_lacks_a_byte_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        bpe("abc\nabc\nab", 258).save(&path).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        // "Q" is in no merge, so the file without it is one that the tokenizers crate reads.
        let lacking: String = whole.lines().filter(|line| !line.contains("\"Q\":")).collect();
        std::fs::write(&path, lacking).unwrap();
        let error = Tokenizer::load(&path).unwrap_err().to_string();
        assert!(error.contains("its vocabulary lacks the byte 0x51"), "{error}");
    }

    #[test]
    fn training_is_deterministic() {
        let text = crate::stories(1, 60_000);
        let json = |tokenizer: &Tokenizer| tokenizer.inner.to_string(false).unwrap();
        let first = json(&bpe(&text, 800));
        assert!((0..3).all(|_| json(&bpe(&text, 800)) == first));
    }

    #[test]
    fn a_long_text_is_encoded_as_if_it_were_one_part() {
        let text = crate::stories(2, 40_000).replace(". ", ".  \n\t");
        let tokenizer = bpe(&text, 600);
        assert!(parts(&text).count() > 5);
        let whole = tokenizer.inner.encode_fast(text.as_str(), false).unwrap();
        assert_eq!(tokenizer.encode(&text).unwrap(), whole.get_ids());
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
