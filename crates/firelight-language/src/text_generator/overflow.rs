//! What happens where a prompt, or a text, does not fit into the context of the model.

use firelight_generation::{GenerationOptions, StopReason};
use firelight_storage::{InputError, TaskError};

use super::TextGenerator;
use crate::inference::dropped;

/// What happens where a text, its prompt included, has more tokens than the context of the model.
///
/// A text slides by half a context: when the context is full, the oldest half of it is dropped, and what is left is read anew from position
/// 0. The first tokens may be kept ([`TextGenerator::with_kept`]). So each token is the one that the model chooses after the tokens that were
/// kept, read as a prompt of their own. No keys and values are shifted to other positions, which would be faster and only nearly the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContextOverflow {
    /// A text slides; a prompt that is too long is refused.
    #[default]
    SlideText,
    /// A text slides, and so does a prompt that is too long: of it the last tokens are read, as many as were left of a text of its length.
    Slide,
    /// A text ends where the context is full, by [`StopReason::ContextFull`]; a prompt that is too long is refused.
    Stop,
}

impl TextGenerator {
    /// Sets what happens where a text does not fit into the context.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    /// use firelight_generation::{GenerationOptions, StopReason};
    /// use firelight_language::{ContextOverflow, LanguageModelConfig, TextGenerator};
    ///
    /// let model = LanguageModelConfig::new(256, 16, 2, 1).with_max_seq_len(8).init(&Device::flex());
    /// let generator = TextGenerator::new(model, Tokenizer::train(&TokenizerConfig::Byte, "").unwrap());
    /// let generator = generator.with_context_overflow(ContextOverflow::Stop);
    /// let text = generator.generate("hen", &GenerationOptions::new(100))?;
    /// assert_eq!((text.ids.len(), text.stop_reason), (5, StopReason::ContextFull));
    /// # Ok::<(), firelight_storage::TaskError>(())
    /// ```
    pub fn with_context_overflow(mut self, overflow: ContextOverflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// Keeps the first `tokens` of a text that slides, at most half of the context: of the others half is dropped at a time. Default: the tokens that a
    /// published model's tokenizer puts in front of texts, such as LLaMA's `<s>`. A [`contrast`](Self::contrast) keeps none.
    ///
    /// # Source
    /// Xiao et al. 2024, Efficient streaming language models with attention sinks (<https://arxiv.org/abs/2309.17453>), §3.1, on why the first tokens
    /// matter. Unlike there, keys and values are computed anew at each move.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    /// use firelight_language::{LanguageModelConfig, TextGenerator};
    ///
    /// let model = LanguageModelConfig::new(256, 16, 2, 1).with_max_seq_len(8).init(&Device::flex());
    /// let generator = || TextGenerator::new(model.clone(), Tokenizer::train(&TokenizerConfig::Byte, "").unwrap());
    /// assert!(generator().with_kept(4).is_ok());
    /// let error = generator().with_kept(5).unwrap_err();
    /// assert!(error.to_string().starts_with("keep is 5, expected at most 4"));
    /// ```
    ///
    /// # Errors
    /// If that is more than half of the context.
    pub fn with_kept(mut self, tokens: usize) -> Result<Self, TaskError> {
        let context = self.model.max_seq_len();
        if tokens > context / 2 {
            let most = context / 2;
            let problem = format!("keep is {tokens}, expected at most {most}, half of the context of {context} tokens");
            return Err(InputError::new(problem).into());
        }
        self.keep = Some(tokens);
        Ok(self)
    }

    /// How many first tokens stay in a text that slides.
    pub(super) fn kept(&self) -> usize {
        self.keep.unwrap_or_else(|| self.front().len()).min(self.model.max_seq_len() / 2)
    }

    /// What is read of a prompt whose text keeps the first `keep` tokens.
    pub(super) fn readable(&self, mut prompt: Vec<u32>, keep: usize) -> Vec<u32> {
        if self.overflow == ContextOverflow::Slide {
            let gone = slid(prompt.len(), self.model.max_seq_len(), keep);
            if gone > 0 {
                prompt.drain(keep..keep + gone); // The prompt is longer than the context, and so than what is kept.
            }
        }
        prompt
    }

    /// How many tokens the model's makers force behind a prompt: they take places of the context, but are no new tokens.
    pub(super) fn forced(&self) -> usize {
        let first = self.defaults.as_ref().and_then(|defaults| defaults.first(self.tokenizer.vocab_size()));
        usize::from(first.is_some())
    }

    /// The most new tokens behind a prompt of so many tokens.
    pub(super) fn room(&self, max_new_tokens: usize, prompt: usize) -> usize {
        let read = prompt + self.forced();
        match self.overflow {
            ContextOverflow::Stop => max_new_tokens.min(self.model.max_seq_len().saturating_sub(read)),
            ContextOverflow::SlideText | ContextOverflow::Slide => max_new_tokens,
        }
    }

    /// The options with no more new tokens than there is room for.
    pub(super) fn fitting(&self, options: &GenerationOptions, prompt: usize) -> GenerationOptions {
        let mut options = options.clone();
        options.max_new_tokens = self.room(options.max_new_tokens, prompt);
        options
    }
}

/// Why a text of so many new tokens ended, of which more were asked for.
pub(super) fn reason(stopped: StopReason, new_tokens: usize, max_new_tokens: usize) -> StopReason {
    match stopped {
        StopReason::MaxNewTokens if new_tokens < max_new_tokens => StopReason::ContextFull,
        stopped => stopped,
    }
}

/// A search needs room for a token.
pub(super) fn full(prompt: usize) -> InputError {
    InputError::new(format!("the prompt has {prompt} tokens, which fill the context, so that no new token fits"))
        .advise("shorten the prompt, or let the text slide")
}

/// How many tokens are dropped of a text that has grown to so many, of which the first `keep` stay.
fn slid(tokens: usize, context: usize, keep: usize) -> usize {
    let stride = dropped(context, keep);
    tokens.saturating_sub(context).div_ceil(stride.max(1)) * stride
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use firelight_generation::{BeamOptions, ContrastiveOptions};

    use super::*;
    use crate::text_generator::Past;
    use crate::text_generator::tests::generator;

    /// Of the model of these tests, in tokens.
    const CONTEXT: usize = 12;

    fn greedy(generator: &TextGenerator, prompt: &str, tokens: usize) -> Vec<u32> {
        generator.generate(prompt, &GenerationOptions::new(tokens).greedy()).unwrap().ids
    }

    #[test]
    fn each_token_beyond_the_context_is_that_of_the_kept_tokens_read_afresh() {
        for keep in [0, 1, 3, 6] {
            for generator in [generator(), generator().without_cache()] {
                follows_what_is_kept(&generator.with_kept(keep).unwrap(), keep);
            }
        }
    }

    fn follows_what_is_kept(generator: &TextGenerator, keep: usize) {
        let prompt = generator.encode("abc").unwrap();
        let all = [&prompt[..], &greedy(generator, "abc", 40)].concat();
        let (mut gone, one) = (0, GenerationOptions::new(1).greedy());
        for len in prompt.len()..all.len() {
            if len - gone > CONTEXT {
                gone += (CONTEXT - keep) / 2;
            }
            assert_eq!(slid(len, CONTEXT, keep), gone, "{len}");
            let begin = if gone == 0 { 0 } else { keep };
            let kept = [&all[..begin], &all[begin + gone..len]].concat();
            let next = generator.generate_after(&mut Past::default(), kept, &one, |_| ControlFlow::Continue(()));
            assert_eq!(next.unwrap().ids, [all[len]], "token {len}, of which {keep} are kept");
        }
        assert!(gone > CONTEXT, "the window moved more than once");
    }

    #[test]
    fn a_prompt_that_slides_keeps_what_a_text_keeps() {
        let keeping = |overflow| generator().with_kept(2).unwrap().with_context_overflow(overflow);
        let whole = keeping(ContextOverflow::SlideText).generate("abc", &GenerationOptions::new(40).greedy()).unwrap();
        for written in [3, 9, 10, 14, 15, 30] {
            let prompt = format!("abc{}", &whole.text[..written]);
            let found = greedy(&keeping(ContextOverflow::Slide), &prompt, 10);
            assert_eq!(found, whole.ids[written..written + 10], "{written}");
        }
        let options = GenerationOptions::new(60).with_temperature(1.5).with_seed(3);
        let drawn = |generator: TextGenerator| generator.generate("abc", &options).unwrap().ids;
        let [plain, kept] = [drawn(generator()), drawn(keeping(ContextOverflow::SlideText))];
        assert_eq!(plain[..10], kept[..10]);
        assert_ne!(plain, kept, "what is kept changes the text");
    }

    #[test]
    fn a_prompt_slides_as_a_text_of_its_length_does() {
        let generator = generator();
        let whole = generator.generate("abc", &GenerationOptions::new(50).greedy()).unwrap();
        let sliding = crate::text_generator::tests::generator().with_context_overflow(ContextOverflow::Slide);
        for written in [3, 9, 10, 15, 16, 30] {
            let prompt = format!("abc{}", &whole.text[..written]); // a character is a token
            assert_eq!(greedy(&sliding, &prompt, 12), whole.ids[written..written + 12], "{written}");
        }
        let long = format!("abc{}", &whole.text[..20]);
        let stopping = crate::text_generator::tests::generator();
        for refusing in [generator, stopping.with_context_overflow(ContextOverflow::Stop)] {
            let error = refusing.generate(&long, &GenerationOptions::new(1)).unwrap_err();
            assert!(error.to_string().starts_with("the prompt has 23 tokens: the context"), "{error}");
        }
        let each = sliding.generate_each(&[long.as_str(), "abc"], &GenerationOptions::new(2).greedy());
        let each: Vec<Vec<u32>> = each.into_iter().map(|found| found.unwrap().ids).collect();
        assert_eq!(each, [&whole.ids[20..22], &whole.ids[..2]]);
    }

    #[test]
    fn a_text_ends_where_the_context_is_full() {
        let (sliding, stopping) = (generator(), generator().with_context_overflow(ContextOverflow::Stop));
        let options = GenerationOptions::new(40).greedy();
        let whole = sliding.generate("abc", &options).unwrap();
        let stopped = stopping.generate("abc", &options).unwrap();
        assert_eq!((&stopped.ids[..], stopped.stop_reason), (&whole.ids[..9], StopReason::ContextFull));
        let short = stopping.generate("abc", &GenerationOptions::new(9).greedy()).unwrap();
        assert_eq!((short.ids.len(), short.stop_reason), (9, StopReason::MaxNewTokens));
        assert_eq!(stopping.generate_samples("abc", 2, &options).unwrap(), [stopped.clone(), stopped.clone()]);
        let each = stopping.generate_each(&["abc", "ab"], &options);
        let each: Vec<_> =
            each.into_iter().map(|found| (found.as_ref().unwrap().ids.len(), found.unwrap().stop_reason)).collect();
        assert_eq!(each, [(9, StopReason::ContextFull), (10, StopReason::ContextFull)]);
        let contrasted = stopping.contrast("abc", &ContrastiveOptions::new(40)).unwrap();
        assert_eq!((contrasted.ids.len(), contrasted.stop_reason), (9, StopReason::ContextFull));
        let (_, found) = stopping.search("abc", &BeamOptions::new(40).with_beams(1)).unwrap().remove(0);
        assert_eq!((found.ids, found.stop_reason), (stopped.ids, StopReason::ContextFull));

        let forcing = |id: u32| {
            let defaults = serde_json::from_str(&format!(r#"{{"forced_bos_token_id": {id}}}"#)).unwrap();
            generator().with_context_overflow(ContextOverflow::Stop).with_defaults(defaults)
        };
        let lengths = [3, 999].map(|id| forcing(id).generate("abc", &options).unwrap().ids.len());
        assert_eq!(lengths, [8, 9], "a forced token takes a place, unless the vocabulary does not have it");

        let full = "abcdefghabcd";
        assert_eq!(stopping.generate(full, &options).unwrap().stop_reason, StopReason::ContextFull);
        let error = stopping.search(full, &BeamOptions::new(4)).unwrap_err();
        assert!(
            error.is_user_error() && error.to_string().starts_with("the prompt has 12 tokens, which fill"),
            "{error}"
        );
    }
}
