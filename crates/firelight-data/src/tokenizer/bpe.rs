//! Byte pair encoding of bytes, trained by the `tokenizers` crate, and bytes as the same without a single pair. How text is
//! cut and spelt is in [`byte_level`](super::byte_level).
//!
//! A word of more than 256 bytes is learnt from in pieces of 256: text without white space would be one word, and merging
//! takes time by the square of its length. It is encoded as a whole.
//!
//! Source: Sennrich et al. 2016, Neural machine translation of rare words with subword units, section 3.2
//! (<https://arxiv.org/abs/1508.07909>).

use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{PreTokenizerWrapper, Trainer};

use super::byte_level::{assemble, check_vocab_size, gpt2, parts, put_space_in_front, sentences, spelling, words};
use super::failure;
use crate::DataError;

/// Makes the tokenizer of bytes: ids are the bytes' values.
pub(super) fn bytes() -> Result<tokenizers::Tokenizer, DataError> {
    let vocabulary = (0..=255).map(|byte| (spelling(byte).to_string(), byte.into()));
    let model = BPE::builder().vocab_and_merges(vocabulary.collect::<tokenizers::models::bpe::Vocab>(), Vec::new());
    // Without the cuts of GPT-2: nothing is merged, so nothing needs to be kept apart.
    Ok(assemble(model.build().map_err(failure)?, ByteLevel::new(false, false, false)))
}

/// Trains a vocabulary of at most `vocab_size` tokens on a running text.
pub(super) fn train(text: &str, vocab_size: usize) -> Result<tokenizers::Tokenizer, DataError> {
    check_vocab_size(text, vocab_size)?;
    train_on(parts(text), vocab_size)
}

/// Trains a vocabulary of at most `vocab_size` tokens on a text of one sentence a line.
pub(super) fn train_on_sentences(text: &str, vocab_size: usize) -> Result<tokenizers::Tokenizer, DataError> {
    check_vocab_size(text, vocab_size)?;
    let mut tokenizer = train_on(sentences(text), vocab_size)?;
    put_space_in_front(&mut tokenizer);
    Ok(tokenizer)
}

fn train_on<S: AsRef<str> + Send>(
    texts: impl Iterator<Item = S> + Send,
    vocab_size: usize,
) -> Result<tokenizers::Tokenizer, DataError> {
    let mut trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(vocab_size)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut model = BPE::default();
    trainer.feed(texts, words).map_err(failure)?;
    trainer.train(&mut model).map_err(failure)?;
    Ok(assemble(model, gpt2()))
}

/// Whether this is what [`bytes`] makes.
pub(super) fn is_bytes(tokenizer: &tokenizers::Tokenizer) -> bool {
    tokenizer.get_vocab_size(false) == 256
        && matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::ByteLevel(level)) if !level.add_prefix_space)
        && tokenizer.get_added_tokens_decoder().values().all(|token| token.special)
        && tokenizer.get_normalizer().is_none()
        && (0..=255).all(|byte| tokenizer.token_to_id(&spelling(byte).to_string()) == Some(byte.into()))
}

#[cfg(test)]
mod tests {
    use crate::{Tokenizer, TokenizerConfig, TokenizerKind};

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
    fn a_word_without_an_end_is_learnt_from_in_pieces() {
        let text = "ab".repeat(100_000);
        let tokenizer = bpe(&text, 300);
        let longest =
            (0..tokenizer.vocab_size() as u32).filter_map(|id| tokenizer.token(id)).map(|token| token.len()).max();
        assert_eq!(longest, Some(256));
        assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()), text);
        let sentences = Tokenizer::train(&TokenizerConfig::SentenceBpe { vocab_size: 300 }, &text).unwrap();
        assert_eq!(sentences.decode(&sentences.encode(&text).unwrap()), text);
    }

    #[test]
    fn a_vocabulary_without_all_bytes_is_refused() {
        let small = Tokenizer::train(&TokenizerConfig::Bpe { vocab_size: 255 }, "a").unwrap_err().to_string();
        assert!(small.contains("255 tokens is too small"), "{small}");
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
            "a subword tokenizer of 99999999999999 tokens is too large: a text of 4 bytes can give at most 260; give a \
             smaller vocab_size"
        );
        assert!(error(&" ".repeat(10_000_000), 10_000_001).contains("can give at most 10000000"));
    }

    #[test]
    fn training_is_deterministic() {
        let text = crate::stories(1, 60_000);
        let json = |tokenizer: &Tokenizer| tokenizer.inner.to_string(false).unwrap();
        let first = json(&bpe(&text, 800));
        assert!((0..3).all(|_| json(&bpe(&text, 800)) == first));
    }
}
