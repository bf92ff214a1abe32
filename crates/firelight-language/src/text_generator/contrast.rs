//! Text that contrasts with what was written before it (contrastive search), or with what a weaker model would write (contrastive decoding).

use std::ops::Range;
use std::slice;
use std::sync::Arc;

use firelight_data::TextStream;
use firelight_generation::processors::ContrastiveDecoding;
use firelight_generation::{
    ContrastiveOptions, Generated, GeneratedText, GenerationError, StopReason, StopStrings, contrastive_search_rows,
};
use firelight_storage::TaskError;

use super::batch::TOGETHER;
use super::{TextGenerator, overflow};
use crate::model::LanguageModel;

/// How much an amateur counts: see [`TextGenerator::with_amateur`].
///
/// ```
/// use firelight_language::AmateurOptions;
///
/// let error = AmateurOptions { strength: -1.0, ..AmateurOptions::default() }.validate().unwrap_err();
/// assert!(error.to_string().ends_with("amateur.strength is -1, expected a finite number of at least 0"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmateurOptions {
    /// How much its preferences count against tokens, `β`, at least 0. Default 0.5.
    pub strength: f64,
    /// Only tokens with this share of the best one's probability are chosen, `α`, from 0 to 1. Default 0.1.
    pub plausibility: f64,
}

impl Default for AmateurOptions {
    fn default() -> Self {
        type Decoding = ContrastiveDecoding<LanguageModel>;
        Self { strength: Decoding::STRENGTH, plausibility: Decoding::PLAUSIBILITY }
    }
}

impl AmateurOptions {
    /// Checks every field.
    ///
    /// # Errors
    /// [`GenerationError::InvalidOptions`] with one sentence for each field out of range.
    pub fn validate(&self) -> Result<(), GenerationError> {
        let Self { strength, plausibility } = *self;
        let mut problems = Vec::new();
        if !(strength.is_finite() && strength >= 0.0) {
            problems.push(format!("amateur.strength is {strength}, expected a finite number of at least 0"));
        }
        if !(0.0..=1.0).contains(&plausibility) {
            problems.push(format!("amateur.plausibility is {plausibility}, expected a number from 0 to 1"));
        }
        if problems.is_empty() { Ok(()) } else { Err(GenerationError::InvalidOptions { problems }) }
    }
}

/// A weaker model, and how it counts.
#[derive(Debug)]
pub(super) struct Amateur {
    model: Arc<LanguageModel>,
    options: AmateurOptions,
}

impl Amateur {
    pub(super) fn processor(&self) -> ContrastiveDecoding<LanguageModel> {
        let AmateurOptions { strength, plausibility } = self.options;
        ContrastiveDecoding::new(self.model.clone()).with_strength(strength).with_plausibility(plausibility)
    }
}

impl TextGenerator {
    /// Prefers what the model finds more probable than a weaker model does, by [`ContrastiveDecoding`] (Li et al. 2023). It applies to every
    /// way of continuing a prompt. Beside a draft it reads every guess, too, which costs more than guesses save.
    ///
    /// # Errors
    /// If an option is out of its range, or the vocabulary of the amateur is not that of the model.
    pub fn with_amateur(mut self, amateur: Self, options: AmateurOptions) -> Result<Self, TaskError> {
        options.validate()?;
        self.tokenizer.agrees_with("amateur", &amateur.tokenizer)?;
        self.amateur = Some(Amateur { model: Arc::new(amateur.model), options });
        Ok(self)
    }

    /// Continues `prompt` by [`contrastive_search`](firelight_generation::contrastive_search()) (Su et al. 2022): of the most probable tokens
    /// the one that is least like the text so far. It reads with the KV cache always, and nothing is drawn or guessed.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn contrast(&self, prompt: &str, options: &ContrastiveOptions) -> Result<GeneratedText, TaskError> {
        Ok(self.contrasted(vec![self.sliding(prompt)?], slice::from_ref(options))?.swap_remove(0))
    }

    /// Continues several prompts as [`contrast`](Self::contrast) does, with options for each, and reads as many of them together as fit. Each
    /// text, and each error, is the one that the prompt would get alone, up to rounding.
    ///
    /// # Panics
    /// If there are not as many options as prompts.
    pub fn contrast_each_with<S: AsRef<str>>(
        &self,
        prompts: &[S],
        options: &[ContrastiveOptions],
    ) -> Vec<Result<GeneratedText, TaskError>> {
        assert_eq!(prompts.len(), options.len(), "options for each prompt");
        let read: Vec<_> = prompts.iter().map(|prompt| self.sliding(prompt.as_ref())).collect();
        let lengths: Vec<usize> = read.iter().map(|read| read.as_ref().map_or(0, Vec::len)).collect();
        let most = |count: fn(&ContrastiveOptions) -> usize| options.iter().map(count).max().unwrap_or(0);
        let (candidates, new) = (most(|options| options.top_k), most(|options| options.max_new_tokens));
        let together = |group: Range<usize>| {
            let rows = read[group.clone()].iter().map(|read| read.as_ref().ok().cloned()).collect::<Option<Vec<_>>>();
            self.contrasted(rows.filter(|rows| rows.len() > 1)?, &options[group]).ok()
        };
        let alone = |row: usize| self.contrast(prompts[row].as_ref(), &options[row]);
        // Each candidate of each prompt needs a cache.
        self.in_groups(&lengths, ((TOGETHER / candidates.max(1)).max(1), new), together, alone)
    }

    /// The ids of a prompt whose text slides: of it none are kept.
    fn sliding(&self, prompt: &str) -> Result<Vec<u32>, TaskError> {
        Ok(self.readable(self.encode(prompt)?, 0))
    }

    /// Continues prompts together. An error has the text of a prompt that is alone.
    fn contrasted(
        &self,
        prompts: Vec<Vec<u32>>,
        options: &[ContrastiveOptions],
    ) -> Result<Vec<GeneratedText>, TaskError> {
        let streams: Vec<TextStream> = prompts.iter().map(|prompt| self.tokenizer.stream_after(prompt)).collect();
        let mut fitting: Vec<ContrastiveOptions> =
            prompts.iter().zip(options).map(|(prompt, options)| self.contrasting(options, prompt.len())).collect();
        for (options, stream) in fitting.iter_mut().zip(&streams) {
            StopStrings::add_to(&mut options.processing, stream, &options.stop_strings);
        }
        let found = contrastive_search_rows(&self.real(&self.model), prompts, &fitting)
            .map_err(|error| error.with_texts(|ids| streams[0].clone().read(ids)))?;
        let text = |(found, (stream, options)): (Generated, (TextStream, &ContrastiveOptions))| {
            let Generated { ids, scores, stop_reason } = found;
            let (text, stop) = StopStrings::cut(stream.read(&ids), &options.stop_strings);
            let reason = overflow::reason(stop_reason, ids.len(), options.max_new_tokens);
            GeneratedText { text, ids, scores, stop_reason: stop.map_or(reason, StopReason::StopString) }
        };
        Ok(found.into_iter().zip(streams.into_iter().zip(options)).map(text).collect())
    }

    /// The options of a text behind a prompt of so many tokens, with what the model's makers say.
    fn contrasting(&self, options: &ContrastiveOptions, prompt: usize) -> ContrastiveOptions {
        let mut options = options.clone();
        self.end(&mut options.stop_tokens, &mut options.processing);
        options.max_new_tokens = self.room(options.max_new_tokens, prompt);
        options
    }
}

#[cfg(test)]
mod tests;
