//! A trained model and its tokenizers, loaded from a run folder: lines in, translations out, as many and in the same order.

mod alignment;
mod draft;
mod guessed;
mod guesser;
#[cfg(feature = "train")]
mod on_ranks;
mod options;
mod search;
mod sentences;

use std::fmt::Display;
use std::path::Path;

use burn::tensor::{Device, FloatDType};
use firelight_core::{ConfigError, build_in_blocks, onto_device};
use firelight_data::DataError;
use firelight_generation::{GenerationDefaults, Hypothesis, StopStrings, TokenScore};
use firelight_storage::{Checkpoint, ModelFolder, TaskError};

use self::guesser::Guesser;
use self::search::Found;
use self::sentences::{Lines, joined, parts};
use crate::model::{Seq2SeqConfig, Seq2SeqModel};
use crate::vocabulary::{Vocabulary, too_long};

pub use self::alignment::AlignedTokens;
pub use self::options::{Draws, TranslateOptions};

/// One translation of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// The text.
    pub text: String,
    /// Its ids, without the tokens around them.
    pub ids: Vec<u32>,
    /// Its log-probability in nats, divided by the power of its length.
    pub score: f64,
    /// The scores of the ids, if [`TranslateOptions::logprobs`] asks for them; else empty.
    pub scores: Vec<TokenScore>,
}

/// A trained model and its tokenizers.
#[derive(Debug)]
pub struct Translator {
    model: Seq2SeqModel,
    vocabulary: Vocabulary,
    defaults: GenerationDefaults,
    guesser: Option<Guesser>,
}

/// The ids of the parts of a line that are translated by themselves, or why the line cannot be read.
type ReadLine = Result<Vec<Vec<u32>>, TaskError>;

impl Translator {
    /// Puts a model and its tokenizers together.
    pub fn new(model: Seq2SeqModel, vocabulary: Vocabulary) -> Self {
        Self { model, vocabulary, defaults: GenerationDefaults::default(), guesser: None }
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
        let build = |names: &_| build_in_blocks(names, device, |device| config.init(device));
        let place = |model| onto_device(model, device);
        let model = folder.load_model((weights.as_path(), FloatDType::F32), build, place)?;
        Ok(Self::new(model, vocabulary).with_defaults(GenerationDefaults::of_file(folder.generation())?))
    }

    /// What the makers of a published model say of its decoding: which tokens end a translation, begin it, or are not in it.
    pub fn with_defaults(mut self, defaults: GenerationDefaults) -> Self {
        self.guesser = self.guesser.map(|guesser| guesser.without_banned(&defaults));
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

    /// The ids of a line as the encoder reads it, with the tokens that stand around it; none for an empty line.
    ///
    /// # Errors
    /// If the line is too long, or has a character that the tokenizer does not know.
    pub fn encode(&self, line: &str) -> Result<Vec<u32>, TaskError> {
        self.source(1, line, false)
    }

    /// The best translation of every line, by five beams; where tokens are guessed, by one.
    ///
    /// # Errors
    /// If a line is too long, or has a character that the tokenizer does not know.
    pub fn translate<S: AsRef<str>>(&self, lines: &[S]) -> Result<Vec<String>, TaskError> {
        let options = if self.guesser.is_some() { TranslateOptions::greedy() } else { TranslateOptions::default() };
        Ok(texts(self.translate_with(lines, &options, |_| ())?))
    }

    /// The best translations of every line; `observe` hears after every batch how many lines are done: lines that were translated,
    /// with all of their sentences, and lines that need no translation. An empty line has none: its list is empty. Neither batch mates nor
    /// their order change a translation.
    ///
    /// # Errors
    /// As [`translate`](Self::translate), and if an option is out of its range.
    pub fn translate_with<S: AsRef<str>>(
        &self,
        lines: &[S],
        options: &TranslateOptions,
        observe: impl FnMut(usize),
    ) -> Result<Vec<Vec<Translation>>, TaskError> {
        let read = self.read(0, lines, options).into_iter().collect::<Result<Vec<_>, _>>()?;
        let found = self.translate_read(0, read.into_iter().map(Ok).collect(), options, observe)?;
        found.into_iter().collect()
    }

    /// As [`translate_with`](Self::translate_with), but a line that cannot be read, or for which the options leave no token, is an error in
    /// its own place and counts as done, and the others are translated. Before the first line stand `before` others in its file: errors name
    /// the line.
    ///
    /// ```no_run
    /// use firelight_seq2seq::{TranslateOptions, Translator};
    ///
    /// let translator = Translator::load("runs/de-en")?;
    /// let lines = ["Der Hund rennt. Zwei Kinder spielen."]; // two sentences
    /// let options = TranslateOptions { sentences: true, ..TranslateOptions::default() };
    /// for found in translator.translate_each(0, &lines, &options, |_| ())? {
    ///     println!("{}", found?[0].text);
    /// }
    /// # Ok::<(), firelight_storage::TaskError>(())
    /// ```
    ///
    /// If the model or the device fails, that is the error of each line that was not finished before; it is not a user error.
    ///
    /// # Errors
    /// If an option is out of its range.
    pub fn translate_each<S: AsRef<str>>(
        &self,
        before: usize,
        lines: &[S],
        options: &TranslateOptions,
        observe: impl FnMut(usize),
    ) -> Result<Vec<Result<Vec<Translation>, TaskError>>, TaskError> {
        self.translate_read(before, self.read(before, lines, options), options, observe)
    }

    /// Translates the lines that could be read, behind `before` others.
    fn translate_read(
        &self,
        before: usize,
        lines: Vec<ReadLine>,
        options: &TranslateOptions,
        mut observe: impl FnMut(usize),
    ) -> Result<Vec<Result<Vec<Translation>, TaskError>>, TaskError> {
        let mut open = Lines::new(lines.iter().map(|line| line.as_deref().unwrap_or_default()));
        let sources: Vec<Vec<u32>> = lines.iter().flatten().flatten().cloned().collect();
        let mut found = self.search(&sources, options, |batch| observe(open.without(batch)))?.into_iter();
        let mut of_line = |parts: Vec<Vec<u32>>| -> Result<Vec<Translation>, TaskError> {
            let found: Vec<Found> = found.by_ref().take(parts.len()).collect(); // all of them, also where one failed
            let found: Result<Vec<Vec<Hypothesis>>, TaskError> = found.into_iter().collect();
            Ok(joined(found?.into_iter().map(|best| self.translations(best, options)).collect()))
        };
        let numbered = (before + 1..).zip(lines);
        Ok(numbered.map(|(number, line)| of_line(line?).map_err(|error| named(number, error))).collect())
    }

    /// Reads lines, before the first of which stand `before` others.
    fn read<S: AsRef<str>>(&self, before: usize, lines: &[S], options: &TranslateOptions) -> Vec<ReadLine> {
        let source = |(place, text): (String, &str)| self.source(place, text, options.truncate);
        let numbered = (before + 1..).zip(lines);
        numbered.map(|(number, line)| parts(number, line.as_ref(), options).into_iter().map(source).collect()).collect()
    }

    /// The ids of a line, or of a sentence of one, with the tokens around it, which no cut takes away; nothing for an empty one.
    fn source(&self, place: impl Display, line: &str, truncate: bool) -> Result<Vec<u32>, TaskError> {
        let text = line.trim_end_matches(['\r', '\n']);
        let in_place = |error: DataError| TaskError::new(error.is_user_error(), format!("line {place}: {error}"));
        let mut ids = self.vocabulary.encode_source(text).map_err(in_place)?;
        let (frame, max_seq_len) = (&self.vocabulary.ends().source, self.model.max_source_len());
        if truncate {
            ids.truncate(max_seq_len.saturating_sub(frame.size(false)));
        }
        match ids.len() + frame.size(false) {
            _ if ids.is_empty() => Ok(ids),
            tokens if tokens > max_seq_len => Err(too_long((place, "source"), tokens, max_seq_len).into()),
            _ => Ok(frame.put(&ids, None).0),
        }
    }

    fn translations(&self, found: Vec<Hypothesis>, options: &TranslateOptions) -> Vec<Translation> {
        let translation = |Hypothesis { ids, score, scores, .. }: Hypothesis| {
            let (text, _) = StopStrings::cut(self.vocabulary.target().decode(&ids), &options.stop_strings);
            let scores = if options.logprobs.is_some() { scores } else { Vec::new() };
            Translation { text, ids, score, scores }
        };
        found.into_iter().map(translation).collect()
    }
}

/// The error of a line, with its number where the line is to blame.
fn named(number: usize, error: TaskError) -> TaskError {
    if error.is_user_error() { TaskError::in_line(number)(error) } else { error }
}

/// The best translation of each line, which is empty for an empty line.
fn texts(found: Vec<Vec<Translation>>) -> Vec<String> {
    found.into_iter().map(|best| best.into_iter().next().map_or(String::new(), |best| best.text)).collect()
}

/// Files that lie in one folder must fit each other.
fn check_vocabulary(config: &Seq2SeqConfig, vocabulary: &Vocabulary, folder: &ModelFolder) -> Result<(), TaskError> {
    vocabulary.source().fits(config.source_vocab_size, &folder.config())?;
    Ok(vocabulary.target().fits(config.target_vocab_size, &folder.config())?)
}

#[cfg(test)]
mod tests;
