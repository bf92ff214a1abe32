//! One token a word or mark, for small closed vocabularies and for reading attention. Words are what white space and
//! punctuation leave (`\w+`); every other character is a mark of its own. A mark says where it joins its neighbours, so that
//! decoding restores the spaces: one between any two tokens, except where a joiner stands. `don't (ever)` is
//! `don ￭'￭ t (￭ ever ￭)`.
//!
//! What is lost: words that occur too rarely become `<unk>`, and so do marks that never stood so; white space of any sort
//! becomes one space, none at the ends; and the joiner itself, U+FFED, counts as white space. Source: the joiner annotation
//! of OpenNMT's tokenizer (Klein et al. 2017).

use tokenizers::decoders::sequence::Sequence;
use tokenizers::decoders::wordpiece::WordPiece;
use tokenizers::models::wordlevel::{WordLevel, WordLevelTrainer};
use tokenizers::normalizers::replace::{Replace, ReplacePattern};
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper, Trainer, normalizers,
};

use super::byte_level::parts;
use super::failure;
use firelight_storage::InputError;

use crate::DataError;

/// Marks the side on which a token joins its neighbour.
const JOINER: char = '\u{ffed}';

/// Stands for the words outside the vocabulary.
const UNKNOWN: &str = "<unk>";

/// Between something and a mark.
const BEFORE_MARK: &str = r"(?<=\S)(?=[^\w\s\x{FFED}])";

/// Between a mark and a word.
const AFTER_MARK: &str = r"(?<=[^\w\s\x{FFED}])(?=\w)";

/// Makes a vocabulary of the words and marks that occur `min_frequency` times or more, the most frequent first.
pub(super) fn train(text: &str, min_frequency: usize) -> Result<tokenizers::Tokenizer, DataError> {
    let mut trainer = WordLevelTrainer::builder()
        .show_progress(false)
        .min_frequency(min_frequency as u64)
        .vocab_size(usize::MAX)
        .special_tokens(vec![AddedToken::from(UNKNOWN, false)])
        .build()
        .map_err(|error| failure(error.into()))?;
    let normalizer = normalizer().map_err(failure)?;
    let mut model = WordLevel::default();
    trainer.feed(parts(text), |part| words(&normalizer, part)).map_err(failure)?;
    trainer.train(&mut model).map_err(failure)?;
    match tokenizers::Model::get_vocab_size(&model) {
        ..=1 => Err(no_words(min_frequency as u64).into()),
        _ => assemble(model, normalizer).map_err(failure),
    }
}

/// Whether a WordLevel tokenizer cuts as this module does.
pub(super) fn are_tokens(tokenizer: &tokenizers::Tokenizer) -> bool {
    let json = |normalizer: &NormalizerWrapper| serde_json::to_value(normalizer).ok();
    let splits = matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::WhitespaceSplit(_)));
    splits && tokenizer.get_normalizer().is_some_and(|found| json(found) == normalizer().ok().as_ref().and_then(json))
}

/// Puts a space and a joiner wherever a mark stands without a space.
fn normalizer() -> tokenizers::Result<NormalizerWrapper> {
    let joiner = ReplacePattern::String(JOINER.into());
    let steps = [
        Replace::new(joiner, " ")?,
        Replace::new(ReplacePattern::Regex(BEFORE_MARK.into()), format!(" {JOINER}"))?,
        Replace::new(ReplacePattern::Regex(AFTER_MARK.into()), format!("{JOINER} "))?,
    ];
    Ok(NormalizerWrapper::Sequence(normalizers::Sequence::new(steps.map(NormalizerWrapper::Replace).into())))
}

/// The words and marks of a part, as the trainer counts them.
fn words(normalizer: &NormalizerWrapper, part: &str) -> tokenizers::Result<Vec<String>> {
    let mut text = NormalizedString::from(part);
    normalizer.normalize(&mut text)?;
    let mut text = PreTokenizedString::from(text);
    WhitespaceSplit.pre_tokenize(&mut text)?;
    let splits = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
    Ok(splits.into_iter().map(|(word, _, _)| word.to_owned()).collect())
}

/// In decoding spaces stand between tokens, except at joiners; those at the ends of a text join nothing.
fn assemble(model: WordLevel, normalizer: NormalizerWrapper) -> tokenizers::Result<tokenizers::Tokenizer> {
    let decoders = vec![
        DecoderWrapper::WordPiece(WordPiece::new(JOINER.into(), false)),
        DecoderWrapper::Fuse(Default::default()),
        DecoderWrapper::Replace(Replace::new(format!("{JOINER} "), "")?),
        DecoderWrapper::Replace(Replace::new(JOINER.to_string(), "")?),
    ];
    let mut tokenizer = tokenizers::Tokenizer::new(ModelWrapper::WordLevel(model));
    tokenizer
        .with_normalizer(Some(normalizer))
        .with_pre_tokenizer(Some(WhitespaceSplit))
        .with_decoder(Some(Sequence::new(decoders)));
    Ok(tokenizer)
}

/// No word occurs often enough.
pub(super) fn no_words(min_frequency: u64) -> InputError {
    let problem =
        format!("the tokenizer has nothing to learn from: no word occurs {min_frequency} times or more in its text");
    InputError::new(problem).advise("give more text or a smaller min_frequency")
}

#[cfg(test)]
mod tests {
    use crate::{Tokenizer, TokenizerConfig, TokenizerKind};
    use proptest::prelude::*;

    fn word(text: &str, min_frequency: usize) -> Tokenizer {
        Tokenizer::train(&TokenizerConfig::Word { min_frequency }, text).unwrap()
    }

    fn tokens(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
        tokenizer.encode(text).unwrap().into_iter().filter_map(|id| tokenizer.token(id)).collect()
    }

    #[test]
    fn marks_tell_where_they_join() {
        let text = "Don't (ever) say \"well-known\", 3.5% - ok?!";
        let tokenizer = word(text, 1);
        let joined = tokens(&tokenizer, text).join(" ");
        assert_eq!(joined, "Don ￭'￭ t (￭ ever ￭) say \"￭ well ￭-￭ known ￭\" ￭, 3 ￭.￭ 5 ￭% - ok ￭? ￭!");
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
        assert_eq!(tokenizer.decode(&tokenizer.encode("  well\tknown \n ok ").unwrap()), "well known ok");
    }

    #[test]
    fn rare_words_are_unknown() {
        let tokenizer = word("a b a c, a b", 2);
        // By frequency: a three times, b twice; c and the comma once.
        assert_eq!((tokenizer.kind(), tokenizer.vocab_size()), (TokenizerKind::Word, 3));
        assert_eq!(tokenizer.encode("b a c").unwrap(), [2, 1, 0]);
        assert_eq!(tokenizer.decode(&[2, 1, 0, 9]), "b a <unk>");
        assert_eq!(tokens(&tokenizer, "<unk>"), ["<unk>"; 3], "three unknown tokens, not the one that is typed");
        let error = Tokenizer::train(&TokenizerConfig::Word { min_frequency: 3 }, "a b").unwrap_err();
        assert!(error.to_string().contains("no word occurs 3 times"), "{error}");
    }

    #[test]
    fn a_stream_puts_the_spaces_where_decoding_does() {
        let tokenizer = word("so (a) b.", 1);
        let ids = tokenizer.encode("so (a) b.").unwrap();
        let mut stream = tokenizer.stream();
        let pieces: Vec<String> = ids.iter().filter_map(|&id| stream.push(id)).collect();
        assert_eq!(pieces, ["so", " (", "a", ")", " b", "."]);
    }

    proptest! {
        #[test]
        fn known_words_come_back_with_single_spaces(text in "[a-c\u{e9}\u{416}0-1_.,'()\\-\u{20ac} \n]{1,40}[a-z]") {
            let tokenizer = word(&text, 1);
            let expected: Vec<&str> = text.split_whitespace().collect();
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()), expected.join(" "));
        }
    }
}
