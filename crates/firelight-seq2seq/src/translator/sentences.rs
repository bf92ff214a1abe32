//! Translations sentence by sentence: models learn from sentences, and a line may have several.

use firelight_data::sentences;
use firelight_storage::InputError;

use super::{TranslateOptions, Translation};

/// The parts of a line that are translated by themselves, with their places: its sentences where those are asked for and it has several, or
/// the line as it is.
pub(super) fn parts<'l>(number: usize, line: &'l str, options: &TranslateOptions) -> Vec<(String, &'l str)> {
    let sentences = if options.sentences { sentences(line) } else { Vec::new() };
    match sentences.len() {
        0 | 1 => vec![(number.to_string(), line)],
        _ => (1..).zip(sentences).map(|(place, text)| (format!("{number}, sentence {place}"), text)).collect(),
    }
}

/// Counts the lines of which no part is left to translate.
pub(super) struct Lines {
    /// The line of each part.
    lines: Vec<usize>,
    /// How many parts of each line are left.
    left: Vec<usize>,
}

impl Lines {
    /// Lines with the ids of their parts. Empty parts are not translated.
    pub(super) fn new<'l>(lines: impl Iterator<Item = &'l [Vec<u32>]>) -> Self {
        let mut found = Self { lines: Vec::new(), left: Vec::new() };
        for (line, parts) in lines.enumerate() {
            found.lines.extend(parts.iter().map(|_| line));
            found.left.push(parts.iter().filter(|part| !part.is_empty()).count());
        }
        found
    }

    /// How many lines are done when these parts are, too.
    pub(super) fn without(&mut self, parts: &[usize]) -> usize {
        for &part in parts {
            self.left[self.lines[part]] -= 1;
        }
        self.left.iter().filter(|&&left| left == 0).count()
    }
}

/// The translations of a line out of those of its parts: those of its only part, or one of the best of each; none where no part has one.
pub(super) fn joined(mut parts: Vec<Vec<Translation>>) -> Vec<Translation> {
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    let found = parts.concat();
    if found.is_empty() {
        return found;
    }
    let texts: Vec<&str> = found.iter().map(|found| found.text.as_str()).filter(|text| !text.is_empty()).collect();
    let scores: f64 = found.iter().map(|found| found.score).sum();
    vec![Translation {
        text: texts.join(" "),
        ids: found.iter().flat_map(|found| found.ids.iter().copied()).collect(),
        score: scores / found.len() as f64,
        scores: found.iter().flat_map(|found| found.scores.clone()).collect(),
    }]
}

/// The translations of sentences are joined to one of their line.
pub(super) fn require_one_best(options: &TranslateOptions) -> Result<(), InputError> {
    if !options.sentences || options.n_best <= 1 {
        return Ok(());
    }
    let problem =
        format!("n_best = {}, but a line that is translated by sentences has one translation", options.n_best);
    Err(InputError::new(problem).advise("leave it out, or translate whole lines"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Seq2SeqConfig;
    use crate::translator::Translator;
    use crate::vocabulary::Vocabulary;
    use burn::tensor::Device;
    use firelight_core::{Init, ParamBuilder, WeightInit};
    use firelight_data::{Tokenizer, TokenizerConfig};
    use firelight_kernels::assert_close;

    /// A model of random weights that reads 9 characters, the end token included.
    fn translator() -> Translator {
        let vocabulary = Vocabulary::new(None, Tokenizer::train(&TokenizerConfig::Char, "ABab .").unwrap()).unwrap();
        let (size, start_token) = (vocabulary.target().vocab_size(), vocabulary.ends().start);
        let config = Seq2SeqConfig { start_token, ..Seq2SeqConfig::new(size, 16, 2, 1) }.with_max_seq_len(9);
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let config = config.with_both(|stack| stack.with_init(wide));
        Translator::new(config.init_with(&ParamBuilder::new(&Device::default(), 0)), vocabulary)
    }

    fn by_sentences(options: TranslateOptions) -> TranslateOptions {
        TranslateOptions { sentences: true, ..options }
    }

    #[test]
    fn the_translation_of_sentences_is_that_of_each_with_a_space_between_them() {
        let (translator, options) = (translator(), TranslateOptions::default());
        let alone = |line: &str| translator.translate_with(&[line], &options, |_| ()).unwrap().remove(0).remove(0);
        let (first, second) = (alone("Aab."), alone("Ba ba."));
        let lines = ["Aab.  Ba ba. ", "", " Bab."];
        let mut heard = Vec::new();
        let found = translator.translate_with(&lines, &by_sentences(options.clone()), |done| heard.push(done)).unwrap();
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1]);
        assert_eq!(found[0][0].text, format!("{} {}", first.text, second.text));
        assert_eq!(found[0][0].ids, [first.ids, second.ids].concat());
        assert_close(&[found[0][0].score], &[(first.score + second.score) / 2.0], 1e-4);
        assert_eq!(found[2][0].ids, alone(" Bab.").ids, "one sentence is translated with the space in front of it");
        assert_eq!(heard, [3], "one batch");
    }

    #[test]
    fn a_line_is_done_when_all_of_its_parts_are() {
        let [part, empty] = [vec![1], Vec::new()];
        // Of five lines, the second is empty, the fourth could not be read, and the fifth has an empty part.
        let lines =
            [vec![part.clone(), part.clone()], vec![empty.clone()], vec![part.clone()], vec![], vec![empty, part]];
        let mut open = Lines::new(lines.iter().map(Vec::as_slice));
        assert_eq!(open.without(&[]), 2);
        assert_eq!(open.without(&[1]), 2);
        assert_eq!(open.without(&[3, 5]), 4);
        assert_eq!(open.without(&[0]), 5);
    }

    #[test]
    fn lines_of_one_sentence_are_translated_as_they_are() {
        let (translator, lines) = (translator(), [" Bab.", "ab", "", "  "]);
        let options = TranslateOptions::default();
        let expected = translator.translate_with(&lines, &options, |_| ()).unwrap();
        assert_eq!(translator.translate_with(&lines, &by_sentences(options), |_| ()).unwrap(), expected);
    }

    #[test]
    fn a_line_fails_where_one_of_its_sentences_does_and_says_which() {
        let (translator, options) = (translator(), by_sentences(TranslateOptions::greedy()));
        let lines = ["Aab. Baaaaaaaab. A", "Aa.", "Aa. Bz.", "Bb. Aa."];
        let (options, mut heard) = (TranslateOptions { batch: 1, ..options }, Vec::new());
        let found = translator.translate_each(10, &lines, &options, |done| heard.push(done)).unwrap();
        assert_eq!((heard.len(), heard.is_sorted(), heard.last()), (3, true, Some(&4)), "{heard:?}");
        let failures = found.iter().filter_map(|line| Some(line.as_ref().err()?.to_string()));
        let failures: Vec<String> = failures.collect();
        assert_eq!((failures.len(), found[1].is_ok(), found[3].is_ok()), (2, true, true), "{failures:?}");
        let long = "line 11, sentence 2 has 12 tokens, special tokens of the source included";
        assert!(failures[0].starts_with(long), "{failures:?}");
        assert!(failures[1].starts_with("line 13, sentence 2: the character 'z'"), "{failures:?}");
        let several = by_sentences(TranslateOptions { n_best: 2, ..TranslateOptions::default() });
        let error = translator.translate_each(0, &lines, &several, |_| ()).unwrap_err();
        assert!(error.is_user_error() && error.to_string().starts_with("n_best = 2, but a line"), "{error}");
    }
}
