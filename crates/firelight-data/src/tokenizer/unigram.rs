//! The Unigram model over bytes, trained by the `tokenizers` crate: of all ways to cut a word into tokens it takes the most
//! likely one. Made the same on every machine: the crate's trainer adds probabilities up in the order of its threads and
//! breaks ties by the order of a hash map, so that it runs on one thread here and ties are broken again. It is also shown
//! words in such a way that they can become tokens as a whole.
//!
//! Source: Kudo 2018, Subword regularization, section 3.2 (<https://arxiv.org/abs/1804.10959>). Differences from
//! SentencePiece: the alphabet is that of bytes, so there is no unknown token, and words are cut as by GPT-2, with a space in
//! front of a text.

use std::collections::BTreeMap;

use tokenizers::models::unigram::{Unigram, UnigramTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::byte_level::{assemble, check_vocab_size, gpt2, put_space_in_front, sentences, spelling, words};
use super::failure;
use super::words::no_words;
use crate::DataError;

/// What the trainer puts between the scores of characters that no likely cut needs.
const STEP: f64 = 1e-4;

/// Scores have six decimals, which come back from the file as they were.
const PRECISION: f64 = 1e6;

/// The text beyond this many bytes is not counted, so that the trainer's 32-bit counts cannot overflow.
const COUNTED: usize = 1 << 30;

/// Trains a vocabulary of at most `vocab_size` tokens on a text of one sentence a line.
pub(super) fn train(text: &str, vocab_size: usize) -> Result<tokenizers::Tokenizer, DataError> {
    check_vocab_size(text, vocab_size)?;
    let counts = word_counts(text)?;
    if counts.is_empty() {
        return Err(no_words(1).into());
    }
    let trainer = UnigramTrainer::builder()
        .show_progress(false)
        .vocab_size(vocab_size as u32)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build()
        .map_err(|error| failure(error.into()))?;
    let mut model = Unigram::default();
    on_one_thread(|| trainer.do_train(counts, &mut model))?.map_err(failure)?;
    let scores = settle(model.iter().cloned().collect(), vocab_size);
    let mut tokenizer = assemble(Unigram::from(scores, None, false).map_err(failure)?, gpt2());
    put_space_in_front(&mut tokenizer);
    Ok(tokenizer)
}

/// How often each word occurs, in the order of the words, each frequent one followed by its [`shadow`].
fn word_counts(text: &str) -> Result<Vec<(String, u32)>, DataError> {
    let mut counts = BTreeMap::<String, u32>::new();
    for sentence in sentences(&text[..text.floor_char_boundary(COUNTED)]) {
        for word in words(&sentence).map_err(failure)? {
            *counts.entry(word).or_default() += 1;
        }
    }
    let with_shadow = |(word, count): (String, u32)| {
        let shadow = (count > 1).then(|| shadow(&word));
        [Some((word, count)), shadow].into_iter().flatten()
    };
    let no_byte = (!counts.is_empty()).then(|| (spelling(0xff).to_string(), 1)); // else its probability were 0
    Ok(counts.into_iter().flat_map(with_shadow).chain(no_byte).collect())
}

/// A word that occurs no time and ends in a byte that is in no text.
///
/// The trainer proposes what stands before two different characters as a token. Behind a whole word there is always the
/// end, so that without its shadow no word would become a token unless another begins with it.
fn shadow(word: &str) -> (String, u32) {
    (format!("{word}{}", spelling(0xff)), 0)
}

/// Runs in a pool of one thread, whose order of additions is always the same.
fn on_one_thread<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, DataError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    Ok(pool.map_err(|error| failure(error.into()))?.install(work))
}

/// Gives the tokens an order and scores that depend on nothing but the text.
///
/// Bytes that the trainer does not need stand a [`STEP`] apart from the lowest score on, in the order of a hash map; here
/// they stand in the order of the bytes. Tokens of one score are in the order of their spelling.
fn settle(scores: Vec<(String, f64)>, vocab_size: usize) -> Vec<(String, f64)> {
    let lowest = scores.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
    let (mut bytes, mut longer): (Vec<_>, Vec<_>) =
        scores.into_iter().partition(|(token, _)| token.chars().nth(1).is_none());
    bytes.sort_by(|(left, _), (right, _)| left.cmp(right));
    let unneeded = bytes.iter_mut().filter(|(_, score)| *score <= lowest + 256.0 * STEP);
    unneeded.enumerate().for_each(|(number, (_, score))| *score = lowest + number as f64 * STEP);
    let by_score = |(left, a): &(String, f64), (right, b): &(String, f64)| b.total_cmp(a).then_with(|| left.cmp(right));
    longer.sort_by(by_score);
    longer.truncate(vocab_size - bytes.len());
    let mut all = [bytes, longer].concat();
    all.iter_mut().for_each(|(_, score)| *score = (*score * PRECISION).round() / PRECISION);
    all.sort_by(by_score);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tokenizer, TokenizerConfig, TokenizerKind};

    fn unigram(text: &str, vocab_size: usize) -> Tokenizer {
        Tokenizer::train(&TokenizerConfig::Unigram { vocab_size }, text).unwrap()
    }

    #[test]
    fn the_most_likely_cut_is_taken() {
        // log 0.3 + log 0.3 is above log 0.05, and log 0.2 above log 0.3 + log 0.1.
        let score = |probability: f64| probability.ln();
        let pieces = [("a", 0.3), ("b", 0.3), ("ab", 0.05), ("c", 0.1), ("bc", 0.2)];
        let model = Unigram::from(pieces.map(|(token, p)| (token.into(), score(p))).to_vec(), None, false).unwrap();
        assert_eq!(model.encode("ab").unwrap(), ["a", "b"]);
        assert_eq!(model.encode("abc").unwrap(), ["a", "bc"]);
    }

    #[test]
    fn frequent_words_become_tokens() {
        let tokenizer = unigram(&"the cat sat\nthe dog sat\n".repeat(30), 262);
        assert_eq!(tokenizer.kind(), TokenizerKind::Unigram);
        assert!((260..=262).contains(&tokenizer.vocab_size()));
        let tokens = |text| {
            let ids = tokenizer.encode(text).unwrap();
            ids.into_iter().filter_map(|id| tokenizer.token(id)).collect::<Vec<_>>()
        };
        assert_eq!(tokens("the cat"), ["\u{120}the", "\u{120}cat"]);
    }

    #[test]
    fn every_training_gives_the_same_file() {
        let text = crate::stories(1, 60_000).replace(". ", ".\n") + "q\u{e9}\u{416}\u{1f600} zzzzz\n";
        let json = |tokenizer: Tokenizer| tokenizer.inner.to_string(false).unwrap();
        let first = json(unigram(&text, 800));
        assert!((0..4).all(|_| json(unigram(&text, 800)) == first));
    }

    #[test]
    fn small_and_strange_texts_are_trained_on() {
        for (text, vocab_size) in [("a", 256), ("a", 257), ("ab", 258), ("\u{416}\n\n\u{416}", 261), ("\0\0\0", 259)] {
            let tokenizer = unigram(text, vocab_size);
            assert!((256..=vocab_size).contains(&tokenizer.vocab_size()), "{text:?}");
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
        }
        let long = "ab".repeat(50_000);
        let tokenizer = unigram(&long, 300);
        assert_eq!(tokenizer.decode(&tokenizer.encode(&long).unwrap()), long);
        let empty = Tokenizer::train(&TokenizerConfig::Unigram { vocab_size: 256 }, "\n").unwrap_err();
        assert!(empty.to_string().contains("nothing to learn from") && empty.is_user_error());
    }
}
