//! Several continuations of one prompt: samples, the best of them, and beam search.

use firelight_generation::{
    BeamOptions, GeneratedText, GenerationOptions, Hypothesis, StopReason, StopStrings, beam_search,
    generate_text_samples,
};
use firelight_storage::{InputError, TaskError};

use super::{TextGenerator, overflow};

impl TextGenerator {
    /// Continues `prompt` `samples` times. All samples use the same seed but different draws. The first is what
    /// [`generate`](Self::generate) returns; greedy choice gives the same text every time.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_samples(
        &self,
        prompt: &str,
        samples: usize,
        options: &GenerationOptions,
    ) -> Result<Vec<GeneratedText>, TaskError> {
        let (prompt, text) = self.read(prompt)?;
        let fitting = self.fitting(&self.until_end(options), prompt[0].len());
        let mut found = generate_text_samples(&self.real(&self.decoder()), prompt, samples, &text, &fitting)?;
        let reason = |text: &GeneratedText| overflow::reason(text.stop_reason, text.ids.len(), options.max_new_tokens);
        found.iter_mut().for_each(|text| text.stop_reason = reason(text));
        Ok(found)
    }

    /// Continues `prompt` `samples` times and returns the text whose tokens have the highest mean log-probability under the
    /// model. If several have the same, returns the first of them.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), and if `samples` is 0.
    pub fn generate_best(
        &self,
        prompt: &str,
        samples: usize,
        options: &GenerationOptions,
    ) -> Result<GeneratedText, TaskError> {
        let options = options.clone().with_logprobs(options.logprobs.unwrap_or(0));
        let texts = self.generate_samples(prompt, samples, &options)?;
        let better = |best: GeneratedText, text: GeneratedText| {
            if text.mean_log_probability() > best.mean_log_probability() { text } else { best }
        };
        let none = || InputError::new("samples is 0, expected 1 or more");
        Ok(texts.into_iter().reduce(better).ok_or_else(none)?)
    }

    /// Searches for the most probable continuations of `prompt` by [`beam_search`]. Returns at most
    /// [`n_best`](BeamOptions::n_best) texts with their hypotheses, best first.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), with the best text that was found before it.
    pub fn search(&self, prompt: &str, options: &BeamOptions) -> Result<Vec<(String, Hypothesis)>, TaskError> {
        let (mut options, (prompt, text)) = (options.clone(), self.read(prompt)?);
        self.end(&mut options.stop_tokens, &mut options.processing);
        StopStrings::add_to(&mut options.processing, &text, &options.stop_strings);
        let (asked, read) = (options.max_new_tokens, prompt[0].len());
        options.max_new_tokens = self.room(asked, read);
        if options.max_new_tokens == 0 && asked > 0 {
            return Err(overflow::full(read).into());
        }
        let read = |ids: &[u32]| StopStrings::cut(text.clone().read(ids), &options.stop_strings);
        let found = beam_search(&self.real(&self.decoder()), prompt, &options)
            .map_err(|error| error.with_texts(|ids| read(ids).0))?;
        let written = |mut hypothesis: Hypothesis| {
            let (text, stop) = read(&hypothesis.ids);
            let reason = overflow::reason(hypothesis.stop_reason, hypothesis.ids.len(), asked);
            hypothesis.stop_reason = stop.map_or(reason, StopReason::StopString);
            (text, hypothesis)
        };
        Ok(found.into_iter().flatten().map(written).collect())
    }
}

#[cfg(test)]
mod tests;
