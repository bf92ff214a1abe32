//! Translations sentence by sentence: models learn from sentences, and a line may have several.

use firelight_data::sentences;
use firelight_storage::{InputError, TaskError};

use super::{TranslateOptions, Translation, Translator};

impl Translator {
    /// As [`translate_each`](Self::translate_each), sentence by sentence: the translation of a line of several [`sentences`] is the best one
    /// of each, with a space between them, their ids one after the other and the mean of their scores. A line fails where one of its
    /// sentences does; one that has not several is translated as it is. `observe` hears after every batch how many sentences are done.
    ///
    /// ```no_run
    /// use firelight_seq2seq::{TranslateOptions, Translator};
    ///
    /// let translator = Translator::load("runs/de-en")?;
    /// let lines = ["Der Hund rennt. Zwei Kinder spielen."];
    /// for found in translator.translate_sentences(0, &lines, &TranslateOptions::default(), |_| ())? {
    ///     println!("{}", found?[0].text); // two sentences
    /// }
    /// # Ok::<(), firelight_storage::TaskError>(())
    /// ```
    ///
    /// # Errors
    /// If an option is out of its range, more than one translation of a line is asked for, or the device fails.
    pub fn translate_sentences<S: AsRef<str>>(
        &self,
        before: usize,
        lines: &[S],
        options: &TranslateOptions,
        observe: impl FnMut(usize),
    ) -> Result<Vec<Result<Vec<Translation>, TaskError>>, TaskError> {
        require_one_best(options)?;
        let lines = (before + 1..).zip(lines).map(|(line, text)| placed_sentences(line, text.as_ref()));
        let lines: Vec<Vec<(String, &str)>> = lines.collect();
        let mut found = self.translate_placed(&lines.concat(), options, observe)?.into_iter();
        Ok(lines.iter().map(|line| joined(found.by_ref().take(line.len()).collect())).collect())
    }
}

/// The sentences of a line with their places, or the line as it is where it has not several.
fn placed_sentences(line: usize, text: &str) -> Vec<(String, &str)> {
    match &sentences(text)[..] {
        several @ [_, _, ..] => {
            (1..).zip(several).map(|(number, sentence)| (format!("{line}, sentence {number}"), *sentence)).collect()
        }
        _ => vec![(line.to_string(), text)],
    }
}

/// The translation of a line out of those of its sentences; none where none of them has one.
fn joined(sentences: Vec<Result<Vec<Translation>, TaskError>>) -> Result<Vec<Translation>, TaskError> {
    let found: Vec<Translation> = sentences.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    if found.is_empty() {
        return Ok(found);
    }
    let texts: Vec<&str> = found.iter().map(|found| found.text.as_str()).filter(|text| !text.is_empty()).collect();
    let scores: f64 = found.iter().map(|found| found.score).sum();
    Ok(vec![Translation {
        text: texts.join(" "),
        ids: found.iter().flat_map(|found| found.ids.iter().copied()).collect(),
        score: scores / found.len() as f64,
    }])
}

/// The translations of sentences are joined to one of their line.
fn require_one_best(options: &TranslateOptions) -> Result<(), InputError> {
    if options.n_best <= 1 {
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

    #[test]
    fn the_translation_of_sentences_is_that_of_each_with_a_space_between_them() {
        let (translator, options) = (translator(), TranslateOptions::default());
        let alone = |line: &str| translator.translate_with(&[line], &options, |_| ()).unwrap().remove(0).remove(0);
        let (first, second) = (alone("Aab."), alone("Ba ba."));
        let lines = ["Aab.  Ba ba. ", "", " Bab."];
        let mut heard = Vec::new();
        let found = translator.translate_sentences(0, &lines, &options, |done| heard.push(done)).unwrap();
        let found: Vec<Vec<Translation>> = found.into_iter().map(Result::unwrap).collect();
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1]);
        assert_eq!(found[0][0].text, format!("{} {}", first.text, second.text));
        assert_eq!(found[0][0].ids, [first.ids, second.ids].concat());
        assert_close(&[found[0][0].score], &[(first.score + second.score) / 2.0], 1e-4);
        assert_eq!(found[2][0].ids, alone(" Bab.").ids, "one sentence is translated with the space in front of it");
        assert_eq!(heard.last(), Some(&4), "three sentences and the empty line");
    }

    #[test]
    fn lines_of_one_sentence_are_translated_as_they_are() {
        let (translator, lines) = (translator(), [" Bab.", "ab", "", "  "]);
        let options = TranslateOptions::default();
        let found = translator.translate_sentences(0, &lines, &options, |_| ()).unwrap();
        let expected = translator.translate_with(&lines, &options, |_| ()).unwrap();
        assert_eq!(found.into_iter().map(Result::unwrap).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_line_fails_where_one_of_its_sentences_does_and_says_which() {
        let (translator, options) = (translator(), TranslateOptions::greedy());
        let lines = ["Aab. Baaaaaaaab. A", "Aa.", "Aa. Bz.", "Bb. Aa."];
        let found = translator.translate_sentences(10, &lines, &options, |_| ()).unwrap();
        let failures = found.iter().filter_map(|line| Some(line.as_ref().err()?.to_string()));
        let failures: Vec<String> = failures.collect();
        assert_eq!((failures.len(), found[1].is_ok(), found[3].is_ok()), (2, true, true), "{failures:?}");
        let long = "line 11, sentence 2 has 12 tokens, the end of the source included";
        assert!(failures[0].starts_with(long), "{failures:?}");
        assert!(failures[1].starts_with("line 13, sentence 2: the character 'z'"), "{failures:?}");
        let several = TranslateOptions { n_best: 2, ..TranslateOptions::default() };
        let error = translator.translate_sentences(0, &lines, &several, |_| ()).unwrap_err();
        assert!(error.is_user_error() && error.to_string().starts_with("n_best = 2, but a line"), "{error}");
    }
}
