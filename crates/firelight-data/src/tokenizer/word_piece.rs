//! WordPiece as BERT uses it: lower-case words without accents, punctuation marks apart, cut into the longest pieces of the
//! vocabulary from left to right. A piece that goes on with a word begins with `##`. The first five ids are the special
//! tokens `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]`.
//!
//! What is lost: case, accents, control characters and how much white space there was; a word with a character that is not
//! in the alphabet becomes `[UNK]` as a whole.
//!
//! Sources: Wu et al. 2016, Google's neural machine translation system, section 4.1 (<https://arxiv.org/abs/1609.08144>);
//! Devlin et al. 2019, BERT, section 3 (<https://arxiv.org/abs/1810.04805>), its tokenizer's rules through the crate. The
//! vocabulary is learnt by merging the most frequent pairs, as the `tokenizers` crate has it, not by likelihood. The crate
//! numbers pieces in the order of a hash map, so that the alphabet is numbered here before it begins.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tokenizers::decoders::wordpiece::WordPiece as Decoder;
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainer};
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::{
    AddedToken, NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer, PreTokenizerWrapper, Trainer,
};

use super::byte_level::{MAX_VOCAB_SIZE, learnt, parts_before, too_large};
use super::failure;
use super::words::no_words;
use firelight_storage::InputError;

use crate::DataError;

/// In front of a piece that goes on with a word.
const CONTINUES: &str = "##";

const UNKNOWN: &str = "[UNK]";

/// The special tokens, by id.
const SPECIAL: [&str; 5] = ["[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]"];

/// The most frequent characters, beyond which words are unknown. BERT's English vocabulary has about as many.
const ALPHABET: usize = 1000;

/// Trains a vocabulary of at most `vocab_size` tokens.
pub(super) fn train(text: &str, vocab_size: usize) -> Result<tokenizers::Tokenizer, DataError> {
    let alphabet = Alphabet::of(text)?;
    let initial = alphabet.tokens();
    check_vocab_size(text, initial.len(), vocab_size)?;
    let mut trainer = WordPieceTrainer::builder()
        .show_progress(false)
        .vocab_size(vocab_size)
        .continuing_subword_prefix(CONTINUES.into())
        .special_tokens(initial.into_iter().map(|token| AddedToken::from(token, false)).collect())
        .build();
    let known = |part: &str| Ok(words(part)?.into_iter().filter(|word| alphabet.spells(word)).collect());
    Trainer::feed(&mut trainer, parts(text), known).map_err(failure)?;
    let mut model = WordPiece::default();
    trainer.train(&mut model).map_err(failure)?;
    model.unk_token = UNKNOWN.into();
    Ok(assemble(model))
}

/// Cuts a text where every tokenizer of BERT's kind does.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    parts_before(text, |character| matches!(character, ' ' | '\t' | '\n' | '\r'))
}

/// Whether a tokenizer cuts words as BERT does.
pub(super) fn is_bert(tokenizer: &tokenizers::Tokenizer) -> bool {
    matches!(tokenizer.get_normalizer(), Some(NormalizerWrapper::BertNormalizer(_)))
        && matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::BertPreTokenizer(_)))
}

/// The characters that words are made of.
struct Alphabet {
    known: BTreeSet<char>,
    /// Those that stand behind another one.
    continuing: BTreeSet<char>,
}

impl Alphabet {
    /// The most frequent characters of a text, of equally frequent ones the first.
    fn of(text: &str) -> Result<Self, DataError> {
        let (mut counts, mut continuing) = (BTreeMap::<char, u64>::new(), BTreeSet::new());
        for part in parts(text) {
            for word in words(part).map_err(failure)? {
                word.chars().for_each(|character| *counts.entry(character).or_default() += 1);
                continuing.extend(word.chars().skip(1));
            }
        }
        if counts.is_empty() {
            return Err(no_words(1).into());
        }
        let mut frequent: Vec<(char, u64)> = counts.into_iter().collect();
        frequent.sort_by_key(|&(_, count)| Reverse(count));
        let known: BTreeSet<char> = frequent.into_iter().take(ALPHABET).map(|(character, _)| character).collect();
        continuing.retain(|character| known.contains(character));
        Ok(Self { known, continuing })
    }

    /// What every vocabulary begins with, by id.
    fn tokens(&self) -> Vec<String> {
        let special = SPECIAL.iter().map(|token| (*token).to_owned());
        let continuing = self.continuing.iter().map(|character| format!("{CONTINUES}{character}"));
        special.chain(self.known.iter().map(char::to_string)).chain(continuing).collect()
    }

    fn spells(&self, word: &str) -> bool {
        word.chars().all(|character| self.known.contains(&character))
    }
}

/// A vocabulary holds the special tokens and the alphabet, and no more than a text of this length can fill.
fn check_vocab_size(text: &str, needed: usize, vocab_size: usize) -> Result<(), DataError> {
    let limit = text.len().saturating_add(needed).min(MAX_VOCAB_SIZE);
    match vocab_size {
        _ if vocab_size < needed => Err(InputError::new(format!(
            "a WordPiece tokenizer of {vocab_size} tokens is too small: the special tokens and the characters of this text alone \
             need {needed}, so give vocab_size = {needed} or more"
        ))
        .into()),
        _ if vocab_size > limit => Err(too_large(vocab_size, limit, text).into()),
        _ => Ok(()),
    }
}

/// Lower case, no accents, no control characters, spaces around Chinese characters.
fn normalizer() -> BertNormalizer {
    BertNormalizer::new(true, true, None, true)
}

/// The words and marks of a part, as the trainer counts them: in pieces of 256 characters where they are longer.
fn words(part: &str) -> tokenizers::Result<Vec<String>> {
    let mut text = NormalizedString::from(part);
    normalizer().normalize(&mut text)?;
    let mut text = PreTokenizedString::from(text);
    BertPreTokenizer.pre_tokenize(&mut text)?;
    let splits = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
    Ok(splits.into_iter().flat_map(|(word, _, _)| learnt(word)).collect())
}

/// The tokenizer with the frame of `[CLS]` and `[SEP]`.
fn assemble(model: WordPiece) -> tokenizers::Tokenizer {
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    tokenizer
        .with_normalizer(Some(normalizer()))
        .with_pre_tokenizer(Some(BertPreTokenizer))
        .with_post_processor(Some(BertProcessing::new(("[SEP]".into(), 3), ("[CLS]".into(), 2))))
        .with_decoder(Some(Decoder::new(CONTINUES.into(), false)));
    tokenizer.add_special_tokens(&SPECIAL.map(|token| AddedToken::from(token, true)));
    tokenizer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tokenizer, TokenizerConfig, TokenizerKind};
    use proptest::prelude::*;

    const TEXT: &str = "Low lower LOWEST, new newer newest! The low slower r\u{e9}sum\u{e9}s; 1999 \u{4e2d}\u{6587}.\n";

    fn word_piece(text: &str, vocab_size: usize) -> Tokenizer {
        Tokenizer::train(&TokenizerConfig::WordPiece { vocab_size }, text).unwrap()
    }

    fn tokens(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
        tokenizer.encode(text).unwrap().into_iter().filter_map(|id| tokenizer.token(id)).collect()
    }

    /// A tokenizer of these pieces behind the special tokens, as a file from elsewhere would hold it.
    fn of_pieces(pieces: &[&str]) -> Tokenizer {
        let vocabulary = SPECIAL.iter().chain(pieces).zip(0..).map(|(piece, id)| ((*piece).to_owned(), id));
        let vocabulary: tokenizers::models::bpe::Vocab = vocabulary.collect();
        let model = WordPiece::builder().vocab(vocabulary).unk_token(UNKNOWN.into()).build().unwrap();
        Tokenizer::of(assemble(model), None).unwrap()
    }

    #[test]
    fn the_longest_piece_is_taken_from_left_to_right() {
        // After an example of BERT's own tests.
        let tokenizer = of_pieces(&["want", "##want", "##ed", "wa", "un", "jump", "##ing"]);
        assert_eq!(tokens(&tokenizer, "UNwant\u{e9}d  jumping"), ["un", "##want", "##ed", "jump", "##ing"]);
        assert_eq!(tokens(&tokenizer, "unwanted jumpingx"), ["un", "##want", "##ed", "[UNK]"]);
        assert_eq!(tokenizer.decode(&tokenizer.encode("unwanted jumping").unwrap()), "unwanted jumping");
    }

    #[test]
    fn case_and_accents_go_and_marks_stand_alone() {
        let tokenizer = word_piece(TEXT, 55);
        let resume = tokenizer.encode("R\u{c9}SUM\u{c9}S").unwrap();
        assert_eq!(resume, tokenizer.encode("re\u{301}sumes").unwrap());
        assert_eq!(
            tokenizer.decode(&tokenizer.encode("Lowest, NEWEST!\u{4e2d}\u{6587}").unwrap()),
            "lowest , newest ! \u{4e2d} \u{6587}"
        );
        assert_eq!(tokens(&tokenizer, "\u{416}ow low"), ["[UNK]", "low"]);
    }

    #[test]
    fn the_special_tokens_come_first_and_no_text_gives_them() {
        let tokenizer = word_piece(TEXT, 50);
        assert_eq!((tokenizer.kind(), tokenizer.vocab_size()), (TokenizerKind::WordPiece, 50));
        assert_eq!(SPECIAL.map(|token| tokenizer.special(token)), [0, 1, 2, 3, 4].map(Some));
        assert!(tokenizer.encode("[MASK] [SEP]").unwrap().iter().all(|id| ![2, 3, 4].contains(id)));
        let ids = [vec![2], tokenizer.encode("low new").unwrap(), vec![3, 0]].concat();
        assert_eq!(tokenizer.decode(&ids), "low new");
        let more = tokenizer.ensure_special_tokens(&["[SEP]", "[NEW]", "[PAD]"]).unwrap();
        assert_eq!((more.special("[SEP]"), more.special("[NEW]"), more.vocab_size()), (Some(3), Some(50), 51));
    }

    #[test]
    fn a_saved_tokenizer_is_the_same_to_us_and_to_the_tokenizers_crate() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        let tokenizer = word_piece(TEXT, 50);
        tokenizer.save(&path).unwrap();
        let loaded = Tokenizer::load(&path).unwrap();
        assert_eq!((loaded.kind(), loaded.vocab_size()), (TokenizerKind::WordPiece, 50));
        let ids = tokenizer.encode(TEXT).unwrap();
        assert_eq!(loaded.encode(TEXT).unwrap(), ids);
        let theirs = tokenizers::Tokenizer::from_file(&path).unwrap();
        assert_eq!(theirs.encode(TEXT, false).unwrap().get_ids(), ids);
        assert_eq!(theirs.encode(TEXT, true).unwrap().get_ids(), [&[2], &ids[..], &[3]].concat());
        assert_eq!(theirs.decode(&ids, true).unwrap(), loaded.decode(&ids));
        let first = std::fs::read(&path).unwrap();
        loaded.save(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
    }

    #[test]
    fn every_training_gives_the_same_file() {
        let text = crate::stories(1, 60_000) + "q\u{e9}\u{416}\u{1f600} zzzzz\n";
        let json = || word_piece(&text, 500).inner.to_string(false).unwrap();
        let first = json();
        assert!((0..4).all(|_| json() == first));
    }

    #[test]
    fn a_long_text_is_encoded_as_if_it_were_one_part() {
        let text = crate::stories(2, 40_000).replace(". ", ".\u{85} \n\t");
        let tokenizer = word_piece(&text, 600);
        assert!(parts(&text).count() > 5);
        let whole = tokenizer.inner.encode_fast(text.as_str(), false).unwrap();
        assert_eq!(tokenizer.encode(&text).unwrap(), whole.get_ids());
    }

    #[test]
    fn a_word_without_an_end_is_learnt_from_in_pieces() {
        let tokenizer = word_piece(&"ab".repeat(50_000), 40);
        let tokens = (0..tokenizer.vocab_size() as u32).filter_map(|id| tokenizer.token(id));
        let lengths: Vec<usize> = tokens.map(|token| token.trim_start_matches(CONTINUES).len()).collect();
        assert_eq!((lengths.len(), lengths.iter().max()), (tokenizer.vocab_size(), Some(&256)));
    }

    #[test]
    fn what_cannot_be_trained_or_read_is_reported() {
        let error = |text: &str, vocab_size| {
            let error = Tokenizer::train(&TokenizerConfig::WordPiece { vocab_size }, text).unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        // Five special tokens, a and b, ##a and ##b.
        assert!(error("ab ba", 8).contains("need 9"), "{}", error("ab ba", 8));
        assert_eq!(word_piece("ab ba", 9).vocab_size(), 9);
        assert!(error("ab", 1_000).contains("is too large"));
        assert!(error(" \n", 100).contains("nothing to learn from"));
    }

    proptest! {
        #[test]
        fn known_words_come_back_in_lower_case(text in "[a-cA-C0-1., \n]{1,40}[a-z]") {
            let tokenizer = word_piece(&text, Alphabet::of(&text).unwrap().tokens().len() + text.len().min(10));
            let ids = tokenizer.encode(&text).unwrap();
            let expected = text.to_lowercase().replace('.', " . ").replace(',', " , ");
            prop_assert_eq!(tokenizer.decode(&ids), expected.split_whitespace().collect::<Vec<_>>().join(" "));
            let mut stream = tokenizer.stream();
            let mut streamed: String = ids.iter().filter_map(|&id| stream.push(id)).collect();
            streamed.extend(stream.finish());
            prop_assert_eq!(streamed, tokenizer.decode(&ids));
        }
    }
}
