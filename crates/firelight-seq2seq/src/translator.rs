//! A trained model and its tokenizers, loaded from a run folder: lines in, translations out, as many and in the same order.

mod guessed;
mod sentences;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

use burn::tensor::Device;
use firelight_core::{ConfigError, Pass};
use firelight_data::{Batching, DataError, Tokenizer, longest_first};
use firelight_generation::{
    BeamOptions, EarlyStopping, GenerationDefaults, GenerationError, Hypothesis, Processing, PromptLookup,
    WithVocabulary, beam_search,
};
use firelight_storage::{Checkpoint, InputError, ModelFolder, TaskError, load_weights};
use serde::Serialize;

use crate::data::right_padded;
use crate::inference::cross_attention;
use crate::model::{Seq2SeqConfig, Seq2SeqModel};
use crate::vocabulary::Vocabulary;
use crate::vocabulary::too_long;
use guessed::{SourceLookup, guessed};

/// How translations are searched.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslateOptions {
    /// Hypotheses that are followed at a time; 1 is greedy. Default: 5.
    pub beams: usize,
    /// The power of the length that log-probabilities are divided by. Default: 1.
    pub length_penalty: f64,
    /// Translations of a line, best first; at most as many as beams. Default: 1.
    pub n_best: usize,
    /// Groups of beams that search apart, which divide the beams. Default: 1.
    pub groups: usize,
    /// What a token costs for each beam of an earlier group that chose it at the same step. Default: 0.
    pub diversity_penalty: f64,
    /// When a line has been searched enough. Default: [`EarlyStopping::Heuristic`].
    pub early_stopping: EarlyStopping,
    /// Penalties, bans and forced tokens. Default: none but those of the model's makers.
    pub processing: Processing,
    /// Guesses that the last tokens go on as they did where they stood before, in the target and, where both sides have one tokenizer, in
    /// the source; the translations stay the same. Needs one beam, early stopping that is not [`EarlyStopping::Never`], and no constraint.
    /// Lines are then translated one at a time, and scores leave penalties out. Default: nothing is guessed.
    pub lookup: Option<PromptLookup>,
    /// Whether a line that is too long is cut; otherwise it is an error. Default: false.
    pub truncate: bool,
    /// Lines that are translated together, at most; never more than have 4,096 tokens of the source, beams and padding
    /// included. Fewer take less memory and more time, and give the same translations. Default: as many as that.
    pub batch: usize,
}

impl Default for TranslateOptions {
    fn default() -> Self {
        Self {
            beams: 5,
            length_penalty: 1.0,
            n_best: 1,
            groups: 1,
            diversity_penalty: 0.0,
            early_stopping: EarlyStopping::default(),
            processing: Processing::default(),
            lookup: None,
            truncate: false,
            batch: usize::MAX,
        }
    }
}

impl TranslateOptions {
    /// The search of one hypothesis, the likeliest token at every step.
    pub fn greedy() -> Self {
        Self { beams: 1, ..Self::default() }
    }
}

/// One translation of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// The text.
    pub text: String,
    /// Its ids, without the tokens around them.
    pub ids: Vec<u32>,
    /// Its log-probability in nats, divided by the power of its length.
    pub score: f64,
}

/// A token of a translation and the one of its line that it looked at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AlignedTokens {
    /// The place of the line's token, from 0.
    pub source: usize,
    /// The place of the translation's token, from 0.
    pub target: usize,
    /// The line's token as its tokenizer spells it.
    pub source_token: String,
    /// The translation's token as its tokenizer spells it.
    pub target_token: String,
}

/// A trained model and its tokenizers.
#[derive(Debug)]
pub struct Translator {
    model: Seq2SeqModel,
    vocabulary: Vocabulary,
    defaults: GenerationDefaults,
}

impl Translator {
    /// Puts a model and its tokenizers together.
    pub fn new(model: Seq2SeqModel, vocabulary: Vocabulary) -> Self {
        Self { model, vocabulary, defaults: GenerationDefaults::default() }
    }

    /// Loads the last weights of a run onto Burn's default device.
    ///
    /// # Errors
    /// If the folder is no run of this task, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, TaskError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(folder: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let folder = ModelFolder::open(folder)?;
        let config: Seq2SeqConfig = folder.read_config(crate::TASK)?;
        TaskError::in_config(&folder.config(), &ConfigError::list(config.validate()))?;
        let weights = folder.weights(checkpoint)?;
        let vocabulary = Vocabulary::load(&folder, config.joint)?;
        check_vocabulary(&config, &vocabulary, &folder)?;
        let mut model = config.init(device);
        load_weights(&mut model, weights)?;
        Ok(Self::new(model, vocabulary).with_defaults(GenerationDefaults::of_file(folder.generation())?))
    }

    /// What the makers of a published model say of its decoding: which tokens end a translation, begin it, or are not in it.
    pub fn with_defaults(mut self, defaults: GenerationDefaults) -> Self {
        self.defaults = defaults;
        self
    }

    /// The model.
    pub fn model(&self) -> &Seq2SeqModel {
        &self.model
    }

    /// What the makers of a published model say of its decoding.
    pub fn defaults(&self) -> &GenerationDefaults {
        &self.defaults
    }

    /// The tokenizers.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The best translation of every line, by five beams.
    ///
    /// # Errors
    /// If a line is too long, or has a character that the tokenizer does not know.
    pub fn translate<S: AsRef<str>>(&self, lines: &[S]) -> Result<Vec<String>, TaskError> {
        let found = self.translate_with(lines, &TranslateOptions::default(), |_| ())?;
        Ok(found.into_iter().map(|best| best.into_iter().next().map_or(String::new(), |best| best.text)).collect())
    }

    /// The best translations of every line; `observe` hears after every batch how many lines are done. An empty line has none:
    /// its list is empty. Neither batch mates nor their order change a translation.
    ///
    /// # Errors
    /// As [`translate`](Self::translate), and if an option is out of its range.
    pub fn translate_with<S: AsRef<str>>(
        &self,
        lines: &[S],
        options: &TranslateOptions,
        observe: impl FnMut(usize),
    ) -> Result<Vec<Vec<Translation>>, TaskError> {
        let sources = lines.iter().enumerate();
        let sources = sources.map(|(index, line)| self.source(index + 1, line.as_ref(), options.truncate));
        let found = self.search(&sources.collect::<Result<Vec<_>, _>>()?, options, observe)?;
        Ok(found.into_iter().map(|best| best.into_iter().map(|found| self.translation(found)).collect()).collect())
    }

    /// As [`translate_with`](Self::translate_with), but a line that cannot be read is an error in its own place, and the others
    /// are translated. Before the first line stand `before` others in its file: errors name the line.
    ///
    /// # Errors
    /// If an option is out of its range, or the device fails.
    pub fn translate_each<S: AsRef<str>>(
        &self,
        before: usize,
        lines: &[S],
        options: &TranslateOptions,
        observe: impl FnMut(usize),
    ) -> Result<Vec<Result<Vec<Translation>, TaskError>>, TaskError> {
        let lines: Vec<(usize, &str)> = (before + 1..).zip(lines.iter().map(AsRef::as_ref)).collect();
        self.translate_placed(&lines, options, observe)
    }

    /// The best translations of texts, whose errors name their places: a line, and maybe a sentence of it.
    fn translate_placed(
        &self,
        texts: &[(impl Display, &str)],
        options: &TranslateOptions,
        observe: impl FnMut(usize),
    ) -> Result<Vec<Result<Vec<Translation>, TaskError>>, TaskError> {
        let sources = texts.iter().map(|(place, text)| self.source(place, text, options.truncate));
        let sources: Vec<Result<Vec<u32>, TaskError>> = sources.collect();
        let ids: Vec<Vec<u32>> = sources.iter().map(|source| source.as_ref().cloned().unwrap_or_default()).collect();
        let found = self.search(&ids, options, observe)?;
        let of_line = |best: Vec<Hypothesis>| best.into_iter().map(|found| self.translation(found)).collect();
        Ok(sources.into_iter().zip(found).map(|(source, best)| source.map(|_| of_line(best))).collect())
    }

    /// The ids of a line, or of a sentence of one, with the end token, or nothing for an empty one.
    fn source(&self, place: impl Display, line: &str, truncate: bool) -> Result<Vec<u32>, TaskError> {
        let text = line.trim_end_matches(['\r', '\n']);
        let in_place = |error: DataError| TaskError::new(error.is_user_error(), format!("line {place}: {error}"));
        let mut ids = self.vocabulary.encode_source(text).map_err(in_place)?;
        let max_seq_len = self.model.max_source_len();
        if truncate {
            ids.truncate(max_seq_len - 1);
        }
        match ids.len() {
            0 => Ok(ids),
            tokens if tokens >= max_seq_len => Err(too_long((place, "source"), tokens + 1, max_seq_len).into()),
            _ => {
                ids.push(self.vocabulary.ends().source);
                Ok(ids)
            }
        }
    }

    /// Which token of the source each token of a translation looked at most: places of `(source, target)`, one for each
    /// token of the target. A line that was cut for the translation is cut here, too.
    ///
    /// It is the weights of the last layer but one (Garg et al. 2019), which are no proof of what a model relies on.
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    pub fn align(&self, line: &str, translation: &Translation) -> Result<Vec<(usize, usize)>, TaskError> {
        let source = self.source(1, line, true)?;
        if source.is_empty() || translation.ids.is_empty() {
            return Ok(Vec::new());
        }
        let (row, _) = right_padded(std::slice::from_ref(&source), &self.model.embedding.weight.device());
        let read = self.model.encode(row, None, &mut Pass::default());
        let weights = cross_attention(&self.model, read, &translation.ids).try_into_vec_as::<f32>();
        let weights = weights.map_err(TaskError::device("the weights of an alignment"))?;
        let nearest = |row: &[f32]| (0..row.len() - 1).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or_default();
        Ok(weights.chunks(source.len()).enumerate().map(|(t, row)| (nearest(row), t)).collect())
    }

    /// The tokens behind the places of [`align`](Self::align), for people to read.
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    pub fn align_tokens(&self, line: &str, translation: &Translation) -> Result<Vec<AlignedTokens>, TaskError> {
        let (ids, pairs) = (self.source(1, line, true)?, self.align(line, translation)?);
        let spelled = |tokenizer: &Tokenizer, id| tokenizer.token(id).unwrap_or_default();
        let named = |(source, target): (usize, usize)| AlignedTokens {
            source,
            target,
            source_token: spelled(self.vocabulary.source(), ids[source]),
            target_token: spelled(self.vocabulary.target(), translation.ids[target]),
        };
        Ok(pairs.into_iter().map(named).collect())
    }

    /// The hypotheses of every source, those of similar length searched together.
    fn search(
        &self,
        sources: &[Vec<u32>],
        options: &TranslateOptions,
        mut observe: impl FnMut(usize),
    ) -> Result<Vec<Vec<Hypothesis>>, TaskError> {
        let beams = self.beams(options)?;
        let mut found = vec![Vec::new(); sources.len()];
        let mut done = sources.iter().filter(|source| source.is_empty()).count();
        let max_tokens = Batching::TOKENS_TO_READ / options.beams.max(1);
        let together = if options.lookup.is_some() { 1 } else { options.batch };
        for batch in longest_first(sources.iter().map(Vec::len), max_tokens, together) {
            let prompt = batch.iter().map(|&index| sources[index].clone()).collect();
            for (&index, best) in batch.iter().zip(self.best(prompt, options.lookup, &beams)?) {
                found[index] = best;
            }
            done += batch.len();
            observe(done);
        }
        Ok(found)
    }

    /// The hypotheses of sources that are searched together.
    fn best(
        &self,
        sources: Vec<Vec<u32>>,
        lookup: Option<PromptLookup>,
        beams: &BeamOptions,
    ) -> Result<Vec<Vec<Hypothesis>>, GenerationError> {
        let size = self.vocabulary.target().vocab_size();
        let model = WithVocabulary::new(&self.model, size).with_defaults(&self.defaults);
        let Some(lookup) = lookup else { return beam_search(&model, sources, beams) };
        let alone = |source: Vec<u32>| {
            let known = if self.vocabulary.is_joint() { source.clone() } else { Vec::new() };
            Ok(vec![guessed(&model, source, SourceLookup { lookup, source: known }, beams)?])
        };
        sources.into_iter().map(alone).collect()
    }

    /// The options of the search.
    fn beams(&self, options: &TranslateOptions) -> Result<BeamOptions, TaskError> {
        let mut beams = BeamOptions::new(self.model.max_target_len() - usize::from(self.forced_first().is_some()))
            .with_beams(options.beams)
            .with_length_penalty(options.length_penalty)
            .with_n_best(options.n_best)
            .with_groups(options.groups, options.diversity_penalty)
            .with_early_stopping(options.early_stopping)
            .with_processing(options.processing.clone())
            .with_stop_tokens(self.stop_tokens());
        self.defaults.add_to(&mut beams.processing, self.vocabulary.target().vocab_size());
        beams.validate()?;
        if options.lookup.is_some() {
            require_guessable(options)?;
        }
        Ok(beams)
    }

    /// The first token that the makers of the model force, which takes a place of the target.
    pub(crate) fn forced_first(&self) -> Option<u32> {
        let size = self.vocabulary.target().vocab_size();
        self.defaults.forced_bos_token_id.filter(|&id| (id as usize) < size)
    }

    fn stop_tokens(&self) -> Vec<u32> {
        let ends = [self.vocabulary.ends().target].into_iter().chain(self.defaults.end_tokens().iter().copied());
        ends.collect::<BTreeSet<u32>>().into_iter().collect()
    }

    fn translation(&self, found: Hypothesis) -> Translation {
        Translation { text: self.vocabulary.target().decode(&found.ids), ids: found.ids, score: found.score }
    }
}

/// Guesses write one text, up to its first end token.
fn require_guessable(options: &TranslateOptions) -> Result<(), InputError> {
    let beams = format!("but {} beams are searched", options.beams);
    let refused = [
        (options.beams > 1, beams.as_str(), "search with one beam (--beams 1)"),
        (
            options.early_stopping == EarlyStopping::Never,
            "and end with it, but early stopping is `never`",
            "stop early (--early-stopping heuristic)",
        ),
        (options.processing.constraint.is_some(), "without a constraint, but there is one", "leave the constraint out"),
    ];
    let Some((_, problem, advice)) = refused.into_iter().find(|(refused, ..)| *refused) else { return Ok(()) };
    let problem = format!("guesses (--prompt-lookup) are for one text at a time, {problem}");
    Err(InputError::new(problem).advise(format!("{advice}, or translate without guesses")))
}

/// Files that lie in one folder must fit each other.
fn check_vocabulary(config: &Seq2SeqConfig, vocabulary: &Vocabulary, folder: &ModelFolder) -> Result<(), TaskError> {
    vocabulary.source().fits(config.source_vocab_size, &folder.config())?;
    Ok(vocabulary.target().fits(config.target_vocab_size, &folder.config())?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use firelight_core::ParamBuilder;
    use firelight_data::TokenizerConfig;
    use firelight_generation::{Constraint, Drafter, History};
    use firelight_kernels::assert_close;
    use firelight_storage::{Existing, save_weights};

    fn translator() -> Translator {
        translator_with(&[])
    }

    /// A model of random weights, whose tokenizer has these special tokens beside its ends.
    fn translator_with(special: &[&str]) -> Translator {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        let vocabulary = Vocabulary::new(None, tokenizer.ensure_special_tokens(special).unwrap()).unwrap();
        let model = config(&vocabulary).init_with(&ParamBuilder::new(&Device::default(), 0));
        Translator::new(model, vocabulary)
    }

    fn config(vocabulary: &Vocabulary) -> Seq2SeqConfig {
        let (size, start_token) = (vocabulary.target().vocab_size(), vocabulary.ends().start);
        let config = Seq2SeqConfig { start_token, ..Seq2SeqConfig::new(size, 16, 2, 1) }.with_max_seq_len(9);
        let wide =
            firelight_core::WeightInit { weight: firelight_core::Init::Normal { std: 0.5 }, scale_residual: false };
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

    fn texts(found: &[Vec<Translation>]) -> Vec<Vec<String>> {
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
    fn guesses_change_no_translation() {
        let (translator, lines) = (translator(), ["abc", "", "hgfedcba", "a", "cabc"]);
        let penalised = Processing { repetition_penalty: 1.7, min_new_tokens: 3, ..Processing::default() };
        for (processing, length_penalty) in
            [(Processing::default(), 1.0), (Processing::default(), 0.0), (penalised, 1.0)]
        {
            let plain = TranslateOptions { processing, length_penalty, ..TranslateOptions::greedy() };
            let guessing = TranslateOptions { lookup: Some(PromptLookup::default()), ..plain.clone() };
            let mut heard = Vec::new();
            let expected = translator.translate_with(&lines, &plain, |_| ()).unwrap();
            let found = translator.translate_with(&lines, &guessing, |done| heard.push(done)).unwrap();
            assert_eq!((texts(&found), heard), (texts(&expected), vec![2, 3, 4, 5]));
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert_eq!(found.ids, expected.ids);
                if plain.processing == Processing::default() {
                    assert_close(&[found.score], &[expected.score], 1e-4);
                }
            }
        }
    }

    #[test]
    fn what_guesses_cannot_keep_the_same_is_refused() {
        let (translator, lookup) = (translator(), Some(PromptLookup::default()));
        let greedy = TranslateOptions { lookup, ..TranslateOptions::greedy() };
        let constraint = Constraint::regex("[a-h ]+", translator.vocabulary().target()).unwrap();
        let processing = Processing { constraint: Some(constraint), ..Processing::default() };
        for (options, told) in [
            (
                TranslateOptions { beams: 5, ..greedy.clone() },
                "but 5 beams are searched; search with one beam (--beams 1)",
            ),
            (
                TranslateOptions { early_stopping: EarlyStopping::Never, ..greedy.clone() },
                "and end with it, but early stopping is `never`; stop early (--early-stopping heuristic)",
            ),
            (
                TranslateOptions { processing, ..greedy },
                "without a constraint, but there is one; leave the constraint out",
            ),
        ] {
            let error = translator.translate_with(&["abc"], &options, |_| ()).unwrap_err();
            let expected =
                format!("guesses (--prompt-lookup) are for one text at a time, {told}, or translate without guesses");
            assert_eq!((error.to_string(), error.is_user_error()), (expected, true));
        }
    }

    /// Guesses what follows in a text that it knows.
    struct Knowing {
        text: Vec<u32>,
        asked: Arc<AtomicUsize>,
    }

    impl Drafter for Knowing {
        fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Ok(self.text.iter().copied().skip(history.new_ids().len()).take(most).collect())
        }
    }

    #[test]
    fn right_guesses_are_read_at_once() {
        let translator = translator();
        let model = translator.model();
        let options = BeamOptions::new(8).with_beams(1);
        let plain = beam_search(model, vec![vec![3, 4, 5]], &options).unwrap().remove(0).remove(0);
        let asked = Arc::new(AtomicUsize::new(0));
        let knowing = Knowing { text: plain.ids.clone(), asked: asked.clone() };
        let found = guessed(model, vec![3, 4, 5], knowing, &options).unwrap();
        assert_eq!((found.ids, plain.ids.len()), (plain.ids, 8));
        assert!((1..4).contains(&asked.load(Ordering::Relaxed)), "asked {asked:?} times for 8 tokens");
    }

    #[test]
    fn a_line_that_is_too_long_is_named_or_cut_if_that_is_allowed() {
        let error = translator().translate(&["a", "abcdefgha"]).unwrap_err();
        assert!(error.is_user_error());
        assert!(error.to_string().starts_with("line 2 has 10 tokens, the end of the source included"), "{error}");
        let options = TranslateOptions { truncate: true, ..TranslateOptions::greedy() };
        let cut = translator().translate_with(&["abcdefgha"], &options, |_| ()).unwrap();
        assert_eq!(cut, translator().translate_with(&["abcdefgh"], &options, |_| ()).unwrap());
    }

    #[test]
    fn every_token_of_a_translation_is_aligned_with_one_of_the_line() {
        let translator = translator();
        let found =
            translator.translate_with(&["abc"], &TranslateOptions::greedy(), |_| ()).unwrap().remove(0).remove(0);
        let pairs = translator.align("abc", &found).unwrap();
        assert!(!pairs.is_empty() && pairs.len() == found.ids.len());
        assert!(pairs.iter().enumerate().all(|(t, pair)| pair.0 < 3 && pair.1 == t), "{pairs:?}");
        let named = translator.align_tokens("abc", &found).unwrap();
        assert_eq!(named.iter().map(|pair| (pair.source, pair.target)).collect::<Vec<_>>(), pairs);
        assert!(named.iter().all(|pair| pair.source_token == ["a", "b", "c"][pair.source]), "{named:?}");
        let spelled: String = named.iter().map(|pair| pair.target_token.as_str()).collect();
        assert_eq!(spelled, found.text);
        // By hand: the place of the largest mean weight, the end token left out.
        let source = translator.source(0, "abc", false).unwrap();
        let (row, _) = right_padded(&[source], &Device::default());
        let read = translator.model.encode(row, None, &mut Pass::default());
        let weights: Vec<f32> = cross_attention(&translator.model, read, &found.ids).try_into_vec_as().unwrap();
        let first = &weights[..3];
        assert!(first.iter().all(|weight| *weight <= first[pairs[0].0]), "{first:?}");
        assert_close(&[weights[..4].iter().sum::<f32>()], &[1.0_f32], 1e-5); // a mean of weights is a weight
        assert!(translator.align("", &found).unwrap().is_empty());
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
        assert_eq!(ids, [1, unknown, unknown, 2, translator.vocabulary().ends().source]);
        assert_eq!(translator.translate(&["a", "bz"]).unwrap().len(), 2);
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
}
