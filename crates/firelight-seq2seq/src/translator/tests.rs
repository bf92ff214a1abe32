use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::vocabulary::tests::framed;
use firelight_core::{Init, ParamBuilder, WeightInit};
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_generation::processors::{HIDDEN, History, LogitsProcessor};
use firelight_generation::{Constraint, GenerationError, Processing, RandomSampling};
use firelight_kernels::assert_close;
use firelight_storage::{Existing, save_weights};

pub(super) fn translator() -> Translator {
    translator_with(&[])
}

/// A model of random weights, whose tokenizer has these special tokens beside its ends.
fn translator_with(special: &[&str]) -> Translator {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
    let vocabulary = Vocabulary::new(None, tokenizer.ensure_special_tokens(special).unwrap()).unwrap();
    let model = config(&vocabulary).init_with(&ParamBuilder::new(&Device::default(), 0));
    Translator::new(model, vocabulary)
}

pub(super) fn config(vocabulary: &Vocabulary) -> Seq2SeqConfig {
    let (size, start_token) = (vocabulary.target().vocab_size(), vocabulary.ends().start);
    let config = Seq2SeqConfig { start_token, ..Seq2SeqConfig::new(size, 16, 2, 1) }.with_max_seq_len(9);
    let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
    config.with_both(|stack| stack.with_init(wide))
}

#[test]
fn lines_keep_their_places_whatever_their_length() {
    let translator = translator();
    let lines = ["abc", "", "hgfedcba", "a"];
    let together = translator.translate(&lines).unwrap();
    assert_eq!((together.len(), together[1].as_str()), (4, ""));
    for (line, found) in lines.iter().zip(&together) {
        assert_eq!(&translator.translate(&[line]).unwrap()[0], found);
    }
    let mut heard = Vec::new();
    let options = TranslateOptions { n_best: 3, ..TranslateOptions::default() };
    let found = translator.translate_with(&lines, &options, |done| heard.push(done)).unwrap();
    assert_eq!((found[0].len(), found[1].len(), heard.last()), (3, 0, Some(&4)));
    assert!(found[0].is_sorted_by(|a, b| a.score >= b.score));
    assert_eq!(heard, [4], "one batch of three, and the empty line");
}

pub(super) fn texts(found: &[Vec<Translation>]) -> Vec<Vec<String>> {
    found.iter().map(|best| best.iter().map(|best| best.text.clone()).collect()).collect()
}

#[test]
fn the_most_lines_of_a_batch_change_no_translation() {
    let (translator, lines) = (translator(), ["abc", "", "hgfedcba", "a", "cab"]);
    let translated = |batch: usize| {
        let mut heard = Vec::new();
        let options = TranslateOptions { n_best: 3, batch, ..TranslateOptions::default() };
        let found = translator.translate_with(&lines, &options, |done| heard.push(done)).unwrap();
        (texts(&found), heard)
    };
    let (expected, heard) = translated(usize::MAX);
    assert_eq!((expected.len(), heard), (5, vec![5]));
    // The empty line is done from the beginning.
    assert_eq!(translated(1), (expected.clone(), vec![2, 3, 4, 5]));
    assert_eq!(translated(3), (expected, vec![4, 5]));
}

#[test]
fn scores_are_divided_by_the_power_of_the_length_that_the_options_say() {
    let translator = translator();
    let best = |length_penalty: f64| {
        let options = TranslateOptions { length_penalty, ..TranslateOptions::greedy() };
        translator.translate_with(&["abc"], &options, |_| ()).unwrap().remove(0).remove(0)
    };
    let sum = best(0.0);
    // The end token counts, where the translation is not as long as the model writes.
    let length = (sum.ids.len() + 1).min(translator.model().max_target_len()) as f64;
    assert!(length > 1.0 && sum.score < 0.0, "{sum:?}");
    for penalty in [-1.0, 0.5, 1.0, 2.0] {
        let found = best(penalty);
        assert_eq!(found.ids, sum.ids);
        assert_close(&[found.score * length.powf(penalty)], &[sum.score], 1e-9);
    }
    let error = translator.translate_with(
        &["a"],
        &TranslateOptions { length_penalty: f64::NAN, ..TranslateOptions::default() },
        |_| (),
    );
    assert!(error.unwrap_err().to_string().contains("length_penalty is NaN"));
}

#[test]
fn a_line_that_is_too_long_is_named_or_cut_if_that_is_allowed() {
    let error = translator().translate(&["a", "abcdefgha"]).unwrap_err();
    assert!(error.is_user_error());
    assert!(error.to_string().starts_with("line 2 has 10 tokens, special tokens of the source included"), "{error}");
    let options = TranslateOptions { truncate: true, ..TranslateOptions::greedy() };
    let cut = translator().translate_with(&["abcdefgha"], &options, |_| ()).unwrap();
    assert_eq!(cut, translator().translate_with(&["abcdefgh"], &options, |_| ()).unwrap());
}

#[test]
fn a_character_that_is_unknown_is_found_in_its_line() {
    let error = translator().translate(&["a", "bz"]).unwrap_err();
    assert!(error.is_user_error() && error.to_string().starts_with("line 2: the character 'z'"), "{error}");
}

#[test]
fn a_line_that_cannot_be_read_fails_alone() {
    let (translator, lines) = (translator(), ["abc", "bz", "", "abcdefgha", "a"]);
    let options = TranslateOptions::default();
    let found = translator.translate_each(10, &lines, &options, |_| ()).unwrap();
    let errors: Vec<String> = found.iter().filter_map(|line| Some(line.as_ref().err()?.to_string())).collect();
    assert_eq!((found.len(), errors.len()), (5, 2));
    assert!(errors[0].starts_with("line 12: the character 'z'"), "{errors:?}");
    assert!(errors[1].starts_with("line 14 has 10 tokens"), "{errors:?}");
    let alone = translator.translate_with(&["abc", "", "a"], &options, |_| ()).unwrap();
    assert_eq!(texts(&found.into_iter().filter_map(Result::ok).collect::<Vec<_>>()), texts(&alone));
    let beams = TranslateOptions { beams: 0, ..options };
    assert!(translator.translate_each(0, &lines, &beams, |_| ()).unwrap_err().is_user_error());
}

#[test]
fn an_unknown_character_is_the_unknown_token_where_there_is_one() {
    let translator = translator_with(&["<unk>"]);
    let unknown = translator.vocabulary().source().special("<unk>").unwrap();
    let ids = translator.source(0, "az\u{e9}b", false).unwrap();
    assert_eq!(ids, translator.vocabulary().ends().source.put(&[1, unknown, unknown, 2], None).0);
    assert_eq!(translator.translate(&["a", "bz"]).unwrap().len(), 2);
}

/// A model of random weights that reads 9 tokens, with one of [`framed`]'s tokenizers.
fn framed_translator(front: &[&str], back: &[&str]) -> Translator {
    let vocabulary = Vocabulary::new(None, framed(front, back)).unwrap();
    let model = config(&vocabulary).init_with(&ParamBuilder::new(&Device::default(), 0));
    Translator::new(model, vocabulary)
}

#[test]
fn what_stands_around_a_source_counts_and_is_not_cut_off() {
    let translator = framed_translator(&["<s>"], &["</s>", "de"]);
    assert_eq!(translator.encode("ab\n").unwrap(), [2, 0, 1, 3, 4]);
    assert!(translator.encode("").unwrap().is_empty());
    let line = "abababab";
    assert_eq!(translator.encode(&line[..6]).unwrap(), [2, 0, 1, 0, 1, 0, 1, 3, 4]);
    let error = translator.encode(&line[..7]).unwrap_err();
    assert!(error.to_string().starts_with("line 1 has 10 tokens, special tokens of the source included"), "{error}");
    assert_eq!(translator.source(1, line, true).unwrap(), translator.encode(&line[..6]).unwrap());
    let cut = TranslateOptions { truncate: true, ..TranslateOptions::greedy() };
    let found = translator.translate_with(&[line], &cut, |_| ()).unwrap();
    assert_eq!(found[0][0].text, translator.translate_with(&[&line[..6]], &cut, |_| ()).unwrap()[0][0].text);
}

#[test]
fn places_of_an_alignment_are_those_of_the_text_alone() {
    let (front, back) = (&["<s>"][..], &["</s>", "de"][..]);
    let translator = framed_translator(front, back);
    let translation = Translation { text: "bab".into(), ids: vec![1, 0, 1], score: 0.0, scores: Vec::new() };
    let pairs = translator.align("ab", &translation).unwrap();
    assert_eq!(pairs.iter().map(|pair| pair.1).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(pairs.iter().all(|pair| pair.0 < 2), "{pairs:?}");
    let named = translator.align_tokens("ab", &translation).unwrap();
    assert!(named.iter().all(|pair| pair.source_token == ["a", "b"][pair.source]), "{named:?}");
    assert!(translator.align_tokens("", &translation).unwrap().is_empty());
}

#[test]
fn a_model_comes_back_from_its_folder_and_lacks_nothing_that_changes_a_translation() {
    let home = tempfile::tempdir().unwrap();
    let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
    let (before, lines) = (translator(), ["abc", "hgfedcba", "a"]);
    before.vocabulary().save(&folder).unwrap();
    folder.write_config(crate::TASK, &config(before.vocabulary())).unwrap();
    save_weights(before.model(), folder.weights_path(&Checkpoint::Last)).unwrap();
    let load = || Translator::load_from(folder.path(), &Checkpoint::Last, &Device::default());
    assert_eq!(load().unwrap().translate(&lines).unwrap(), before.translate(&lines).unwrap());

    let whole = std::fs::read_to_string(folder.config()).unwrap();
    for key in ["start_token", "scale_embedding", "tying", "joint"] {
        let mut fields: serde_json::Value = serde_json::from_str(&whole).unwrap();
        fields.as_object_mut().unwrap().remove(key).unwrap();
        std::fs::write(folder.config(), fields.to_string()).unwrap();
        let error = load().unwrap_err();
        let text = error.to_string();
        assert!(error.is_user_error() && text.contains("config.json`"), "{text}");
        assert!(text.contains(&format!("missing field `{key}`")), "{text}");
    }
}

fn drawing(seed: u64) -> TranslateOptions {
    let mut sampling = RandomSampling::default();
    sampling.temperature = 1.5;
    TranslateOptions { draws: Some(Draws { sampling, seed }), ..TranslateOptions::greedy() }
}

#[test]
fn drawn_translations_depend_on_the_seed_and_not_on_the_other_lines() {
    let (translator, lines) = (translator(), ["abc", "", "hgfedcba", "a", "cab"]);
    let drawn = |lines: &[&str], seed| texts(&translator.translate_with(lines, &drawing(seed), |_| ()).unwrap());
    let together = drawn(&lines, 3);
    for (line, found) in lines.iter().zip(&together) {
        assert_eq!(&drawn(&[*line], 3)[0], found, "{line}");
    }
    assert_eq!(drawn(&lines, 3), together);
    assert_ne!(drawn(&lines, 4), together);
}

#[test]
fn draws_from_the_best_token_alone_are_the_greedy_translation_with_its_score() {
    let (translator, lines) = (translator(), ["abc", "hgfedcba", "a"]);
    let mut options = drawing(1);
    options.draws.iter_mut().for_each(|draws| draws.sampling.top_k = Some(1));
    let greedy = translator.translate_with(&lines, &TranslateOptions::greedy(), |_| ()).unwrap();
    let found = translator.translate_with(&lines, &options, |_| ()).unwrap();
    assert_eq!(texts(&found), texts(&greedy));
    for (found, greedy) in found.iter().flatten().zip(greedy.iter().flatten()) {
        assert_close(&[found.score], &[greedy.score], 1e-4);
    }
}

/// Translators and options that all write the greedy translation: a search, draws from the best token alone, and guesses.
fn greedy_ways() -> [(Translator, TranslateOptions); 3] {
    let mut drawing = drawing(1);
    drawing.draws.iter_mut().for_each(|draws| draws.sampling.top_k = Some(1));
    let guessing = translator().with_lookup(firelight_generation::PromptLookup::default());
    [(translator(), TranslateOptions::greedy()), (translator(), drawing), (guessing, TranslateOptions::greedy())]
}

#[test]
fn translations_end_where_they_are_told_to_in_every_way() {
    let lines = ["abc", "hgfedcba", "a"];
    let long = Processing { min_new_tokens: 6, ..Processing::default() };
    for (translator, options) in greedy_ways() {
        let write = |options: TranslateOptions| {
            let found = translator.translate_with(&lines, &options, |_| ()).unwrap();
            found.into_iter().flatten().collect::<Vec<_>>()
        };
        let plain = write(options.clone());
        let end = *plain.iter().flat_map(|found| &found.ids).next_back().expect("a token");
        let ended = write(TranslateOptions { end_tokens: vec![end], ..options.clone() });
        for (found, plain) in ended.iter().zip(&plain) {
            assert_eq!(found.ids, plain.ids.split(|&id| id == end).next().unwrap());
        }

        let options = TranslateOptions { processing: long.clone(), ..options };
        let whole = write(options.clone());
        let cut = write(TranslateOptions { max_new_tokens: Some(3), ..options.clone() });
        assert!(cut.iter().zip(&whole).all(|(cut, whole)| cut.ids == whole.ids[..3]), "{cut:?} {whole:?}");
        let longest = whole.iter().max_by_key(|found| found.text.len()).unwrap();
        let stop = longest.text[1..3].to_string(); // two tokens, for a character is one
        let stopped = write(TranslateOptions { stop_strings: vec![stop.clone()], ..options.clone() });
        for (found, whole) in stopped.iter().zip(&whole) {
            assert_eq!(found.text, whole.text.split(&stop).next().unwrap());
        }
        let shorter = stopped.iter().zip(&whole).any(|(found, whole)| found.ids.len() < whole.ids.len());
        assert!(shorter, "nothing is written behind a stop string");
    }
    let none = TranslateOptions { max_new_tokens: Some(0), ..TranslateOptions::greedy() };
    let error = translator().translate_with(&lines, &none, |_| ()).unwrap_err();
    assert!(error.is_user_error() && error.to_string().contains("max_new_tokens is 0"), "{error}");
}

#[test]
fn each_token_of_a_translation_has_a_score_in_every_way() {
    let lines = ["abc", "hgfedcba"];
    let mut first: Option<Vec<f64>> = None;
    for (translator, options) in greedy_ways() {
        let found =
            translator.translate_with(&lines, &TranslateOptions { logprobs: Some(2), ..options.clone() }, |_| ());
        let scored: Vec<Translation> = found.unwrap().into_iter().flatten().collect();
        for found in &scored {
            assert_eq!(found.scores.iter().map(|score| score.id).collect::<Vec<_>>(), found.ids);
            assert!(found.scores.iter().all(|score| score.rank == Some(1) && score.top.len() == 2), "{found:?}");
        }
        let all = scored.iter().flat_map(|found| &found.scores).map(|score| score.log_probability).collect::<Vec<_>>();
        assert_close(&all, first.get_or_insert_with(|| all.clone()), 1e-4);
        let plain = translator.translate_with(&lines, &options, |_| ()).unwrap();
        assert!(plain.iter().flatten().all(|found| found.scores.is_empty()));
    }
}

#[test]
fn drawn_and_searched_translations_satisfy_a_constraint() {
    let translator = translator();
    let constraint = Constraint::regex("(ab|cd)( (ab|cd))*", translator.vocabulary().target()).unwrap();
    let processing = Processing { constraint: Some(constraint.clone()), ..Processing::default() };
    for options in [drawing(1), drawing(2), TranslateOptions::greedy(), TranslateOptions::default()] {
        let options = TranslateOptions { processing: processing.clone(), ..options };
        let found = translator.translate_with(&["abc", "hgfedcba", "a"], &options, |_| ()).unwrap();
        assert!(found.iter().flatten().all(|found| constraint.accepts(&found.text)), "{found:?}");
        assert_eq!(found.iter().flatten().count(), 3);
    }
}

#[test]
fn draws_are_of_one_beam_and_in_their_range() {
    let refused = |options: TranslateOptions| {
        let error = translator().translate_with(&["a"], &options, |_| ()).unwrap_err();
        assert!(error.is_user_error());
        error.to_string()
    };
    let several = refused(TranslateOptions { beams: 5, ..drawing(1) });
    assert!(several.starts_with("tokens are drawn, but 5 beams are searched; take one beam"), "{several}");
    let mut cold = drawing(1);
    cold.draws.iter_mut().for_each(|draws| draws.sampling.temperature = -1.0);
    assert!(refused(cold).contains("temperature is -1"));
}

/// Leaves no token behind a text.
#[derive(Clone, Debug)]
struct NothingBehind(Vec<u32>);

impl LogitsProcessor for NothingBehind {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        if history.new_ids() == self.0 {
            logits.fill(HIDDEN);
        }
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[test]
fn a_line_for_which_no_token_is_left_fails_alone() {
    let (translator, lines) = (translator(), ["abc", "", "hgfedcba", "a", "cab"]);
    let plain = translator.translate_with(&lines, &TranslateOptions::greedy(), |_| ()).unwrap();
    let ids = &plain[0][0].ids;
    let begun = ids[..ids.len().saturating_sub(1)].to_vec();
    let processing = Processing::default().with_processor(NothingBehind(begun.clone()));
    let options = TranslateOptions { processing, ..TranslateOptions::greedy() };
    let found = translator.translate_each(10, &lines, &options, |_| ()).unwrap();
    let fails = |plain: &[Translation]| plain.iter().any(|plain| plain.ids.starts_with(&begun));
    assert!(fails(&plain[0]) && !fails(&plain[1]));
    for (number, (plain, found)) in (11..).zip(plain.iter().zip(found)) {
        match found {
            Ok(found) => {
                let same = found.iter().map(|found| &found.ids).eq(plain.iter().map(|plain| &plain.ids));
                assert!(!fails(plain) && same, "line {number}: {found:?}");
            }
            Err(error) => {
                let told = format!("line {number}: no token is left to choose as new token {}", begun.len());
                assert!(fails(plain) && error.to_string().starts_with(&told), "{error}");
            }
        }
    }
}

/// Fails for every text behind the first ones.
#[derive(Clone, Debug)]
struct FailsBehind {
    most: usize,
    texts: Arc<AtomicUsize>,
    fails: bool,
}

impl LogitsProcessor for FailsBehind {
    fn process(&mut self, history: &History<'_>, _: &mut [f64]) {
        self.fails = history.new_ids().is_empty() && self.texts.fetch_add(1, Ordering::Relaxed) >= self.most;
    }

    fn failure(&mut self) -> Option<GenerationError> {
        let reason = "it is lost".to_string();
        std::mem::take(&mut self.fails).then_some(GenerationError::Device { reason })
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[test]
fn lines_that_were_finished_stay_where_the_device_fails() {
    let (translator, lines) = (translator(), ["a", "hgfedcba", "", "abc", "z", "ab"]);
    let greedy = TranslateOptions { batch: 1, ..TranslateOptions::greedy() };
    let plain = translator.translate_each(0, &lines, &greedy, |_| ()).unwrap();
    let failing = FailsBehind { most: 2, texts: Arc::default(), fails: false };
    let options = TranslateOptions { processing: Processing::default().with_processor(failing), ..greedy };
    let mut heard = Vec::new();
    let found = translator.translate_each(0, &lines, &options, |done| heard.push(done)).unwrap();
    // The longest come first; the empty line and the one that cannot be read are done from the beginning.
    assert_eq!(heard, [3, 4]);
    for place in [1, 2, 3] {
        let ids = |line: &Result<Vec<Translation>, TaskError>| {
            line.as_ref().unwrap().iter().map(|best| best.ids.clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&found[place]), ids(&plain[place]), "{place}");
    }
    let error = |place: usize| found[place].as_ref().unwrap_err();
    assert!(
        [0, 5].iter().all(|&place| !error(place).is_user_error() && error(place).to_string().ends_with("it is lost"))
    );
    assert!(error(4).is_user_error() && error(4).to_string().starts_with("line 5: "));
}
