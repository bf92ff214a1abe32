//! A trained model and its tokenizer, loaded from a run folder: all that a user of a model needs.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use burn::tensor::Device;
use firelight_core::ConfigError;
use firelight_data::{SpecialRole, TextStream, Tokenizer};
use firelight_generation::{
    Autoregressive, BeamOptions, DraftModel, GeneratedText, GenerationDefaults, GenerationOptions, Hypothesis, Prefix,
    Processing, PromptLookup, TokenStream, WithVocabulary, beam_search, generate_text_samples, write_texts,
};
use firelight_storage::{Checkpoint, InputError, ModelFolder, TaskError, load_weights};

use crate::inference::{LmState, Uncached};
use crate::model::{LanguageModel, LanguageModelConfig};

/// A trained model and its tokenizer: prompts in, text out.
#[derive(Debug)]
pub struct TextGenerator {
    model: LanguageModel,
    tokenizer: Tokenizer,
    /// Of a published model.
    defaults: Option<GenerationDefaults>,
    guesser: Option<Guesser>,
    cached: bool,
}

/// What a generator has read, so that a text that begins alike is read from where it differs.
pub type Past = Prefix<LmState>;

/// What guesses the next tokens, for the model to read several at once.
#[derive(Debug)]
enum Guesser {
    Lookup(PromptLookup),
    Draft { model: Box<LanguageModel>, tokens: usize },
}

impl TextGenerator {
    /// Puts a model and its tokenizer together.
    pub fn new(model: LanguageModel, tokenizer: Tokenizer) -> Self {
        Self { model, tokenizer, defaults: None, guesser: None, cached: true }
    }

    /// Loads the last weights of a run onto Burn's default device: the one that `BURN_DEVICE` names, else Burn's choice
    /// among the backends compiled in, which it does not probe. Programs that carry a GPU backend to machines without the
    /// GPU choose the device themselves and call [`load_from`](Self::load_from).
    ///
    /// # Errors
    /// If the folder is no language model, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, TaskError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(folder: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let folder = ModelFolder::open(folder)?;
        let config: LanguageModelConfig = folder.read_config(crate::TASK)?;
        TaskError::in_config(&folder.config(), &ConfigError::list(config.validate()))?;
        let weights = folder.weights(checkpoint)?;
        let tokenizer = Tokenizer::load(folder.tokenizer())?;
        tokenizer.fits(config.vocab_size, &folder.config())?;
        let mut model = config.init(device);
        load_weights(&mut model, weights)?;
        let generator = Self::new(model, tokenizer);
        match folder.generation() {
            path if path.is_file() => Ok(generator.with_defaults(GenerationDefaults::of_file(path)?)),
            _ => Ok(generator),
        }
    }

    /// What the makers of a published model say of its decoding: its end tokens end a text, and what they ban is not written. A prompt
    /// gets the tokens in front that the tokenizer's file puts there, such as LLaMA's `<s>`.
    pub fn with_defaults(mut self, defaults: GenerationDefaults) -> Self {
        self.defaults = Some(defaults);
        self
    }

    /// What the makers of a published model say of its decoding, where it is one. Of their samplers and penalties nothing is used unless it is
    /// in the options.
    pub fn defaults(&self) -> Option<&GenerationDefaults> {
        self.defaults.as_ref()
    }

    /// Recomputes the whole window at every step; the text stays the same.
    pub fn without_cache(mut self) -> Self {
        self.cached = false;
        self
    }

    /// Guesses what stood behind the last tokens when they were there before; the text stays the same.
    pub fn with_lookup(mut self, lookup: PromptLookup) -> Self {
        self.guesser = Some(Guesser::Lookup(lookup));
        self
    }

    /// Guesses up to `tokens` tokens by a smaller model; the text stays the same.
    ///
    /// # Errors
    /// If its tokenizer has other tokens.
    pub fn with_draft(mut self, draft: Self, tokens: usize) -> Result<Self, TaskError> {
        let sizes = [&self, &draft].map(|generator| generator.tokenizer.vocab_size());
        let other = (0..sizes[0].max(sizes[1]) as u32)
            .find(|&id| self.tokenizer.token(id) != draft.tokenizer.token(id))
            .map(|id| [&self, &draft].map(|generator| generator.tokenizer.token(id)));
        if let Some([token, other]) = other {
            return Err(other_vocabulary(token, other).into());
        }
        self.guesser = Some(Guesser::Draft { model: Box::new(draft.model), tokens });
        Ok(self)
    }

    /// The model.
    pub fn model(&self) -> &LanguageModel {
        &self.model
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Continues `prompt`.
    ///
    /// # Errors
    /// If the prompt is empty, longer than the context, or has a character that the tokenizer does not know, or if an
    /// option is out of range.
    pub fn generate(&self, prompt: &str, options: &GenerationOptions) -> Result<GeneratedText, TaskError> {
        self.generate_streaming(prompt, options, |_| ControlFlow::Continue(()))
    }

    /// Continues `prompt` `samples` times, each time with other draws of the same seed. The first is what
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
        let (options, (prompt, text)) = (&self.until_end(options), self.read(prompt)?);
        let (cached, uncached) = (self.real(&self.model), &Uncached(&self.model));
        let texts = match self.cached {
            true => generate_text_samples(&cached, prompt, samples, &text, options)?,
            false => generate_text_samples(&self.real(uncached), prompt, samples, &text, options)?,
        };
        Ok(texts)
    }

    /// Continues several prompts, as many together as fit. Each text, and each error, is that of its prompt alone; rounding apart, nothing
    /// depends on what is written beside it.
    pub fn generate_each<S: AsRef<str>>(
        &self,
        prompts: &[S],
        options: &GenerationOptions,
    ) -> Vec<Result<GeneratedText, TaskError>> {
        let read: Vec<_> = prompts.iter().map(|prompt| self.read(prompt.as_ref())).collect();
        let lengths = read.iter().map(|read| read.as_ref().map_or(0, |(prompt, _)| prompt[0].len()));
        let mut found = Vec::new();
        let (lengths, context) = (lengths.collect::<Vec<_>>(), self.model.max_seq_len());
        let continues = |past, len| self.model.continues(past, len);
        for group in groups(&lengths, options.max_new_tokens, context, continues) {
            let alone = |place: usize| self.generate(prompts[place].as_ref(), options);
            let together =
                read[group.clone()].iter().map(|read| read.as_ref().ok().cloned()).collect::<Option<Vec<_>>>();
            let together = together.filter(|together| together.len() > 1).and_then(|rows| self.together(rows, options));
            match together {
                Some(texts) => found.extend(texts.into_iter().map(Ok)),
                None => found.extend(group.map(alone)),
            }
        }
        found
    }

    /// None where one of the rows fails: which one, each tells by itself.
    fn together(
        &self,
        rows: Vec<(Vec<Vec<u32>>, TextStream)>,
        options: &GenerationOptions,
    ) -> Option<Vec<GeneratedText>> {
        let options = vec![self.until_end(options); rows.len()];
        let (prompts, streams): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let (prompts, uncached) = (prompts.concat(), &Uncached(&self.model));
        match self.cached {
            true => written(TokenStream::of_rows(&self.real(&self.model), prompts, &options).ok()?, streams),
            false => written(TokenStream::of_rows(&self.real(uncached), prompts, &options).ok()?, streams),
        }
    }

    /// Continues `prompt` `samples` times and returns the text whose tokens have the highest mean log-probability by the model, the first among
    /// equals.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), and if there are no samples.
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
        let none = || InputError::new("the best of 0 texts is wanted, expected 1 or more");
        Ok(texts.into_iter().reduce(better).ok_or_else(none)?)
    }

    /// Searches the most probable continuations of `prompt`: at most [`n_best`](BeamOptions::n_best) of them with their scores, best first.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn search(&self, prompt: &str, options: &BeamOptions) -> Result<Vec<(String, Hypothesis)>, TaskError> {
        let (mut options, (prompt, text)) = (options.clone(), self.read(prompt)?);
        self.end(&mut options.stop_tokens, &mut options.processing);
        let (cached, uncached) = (self.real(&self.model), &Uncached(&self.model));
        let found = match self.cached {
            true => beam_search(&cached, prompt, &options)?,
            false => beam_search(&self.real(uncached), prompt, &options)?,
        };
        let written = |hypothesis: Hypothesis| (text.clone().read(&hypothesis.ids), hypothesis);
        Ok(found.into_iter().flatten().map(written).collect())
    }

    /// Continues `prompt` and hands over every piece of the text as it comes; `observe` may break off.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_streaming(
        &self,
        prompt: &str,
        options: &GenerationOptions,
        observe: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GeneratedText, TaskError> {
        let mut prompt = self.read(prompt)?.0;
        self.generate_after(&mut Past::default(), prompt.swap_remove(0), options, observe)
    }

    /// Continues a text of ids, of which `past` may hold what was read before, and keeps there what it reads.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_after(
        &self,
        past: &mut Past,
        prompt: Vec<u32>,
        options: &GenerationOptions,
        observe: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GeneratedText, TaskError> {
        let (options, uncached) = (self.until_end(options), &Uncached(&self.model));
        match self.cached {
            true => self.write(&self.real(&self.model), past, prompt, &options, observe),
            false => self.write(&self.real(uncached), past, prompt, &options, observe),
        }
    }

    fn write<M: Autoregressive<Prompt = Vec<Vec<u32>>, State = LmState>>(
        &self,
        model: &M,
        past: &mut Past,
        prompt: Vec<u32>,
        options: &GenerationOptions,
        mut observe: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GeneratedText, TaskError> {
        let text = self.tokenizer.stream_after(&prompt);
        let tokens = TokenStream::after(model, past, prompt, options)?;
        let mut tokens = match &self.guesser {
            None => tokens,
            Some(Guesser::Lookup(lookup)) => tokens.with_drafter(*lookup),
            Some(Guesser::Draft { model, tokens: guesses }) => {
                tokens.with_drafter(DraftModel::new(model.as_ref(), options)?.with_tokens(*guesses))
            }
        };
        let mut written = write_texts(&mut tokens, vec![text], |_, piece| observe(piece))?;
        *past = tokens.into_prefix();
        Ok(written.swap_remove(0))
    }

    fn until_end(&self, options: &GenerationOptions) -> GenerationOptions {
        let mut options = options.clone();
        self.end(&mut options.stop_tokens, &mut options.processing);
        options
    }

    /// A text ends where the tokenizer has a token for its end, too, and where the model's makers say so.
    fn end(&self, stop_tokens: &mut Vec<u32>, processing: &mut Processing) {
        stop_tokens.extend(self.tokenizer.role(SpecialRole::End));
        if let Some(defaults) = &self.defaults {
            stop_tokens.extend(defaults.end_tokens());
            defaults.add_to(processing, self.tokenizer.vocab_size());
        }
    }

    /// The tokens in front of every text: those of its tokenizer, which a published model has learnt to read.
    pub(crate) fn front(&self) -> Vec<u32> {
        let frame = self.defaults.as_ref().and_then(|_| self.tokenizer.frame());
        frame.map_or_else(Vec::new, |frame| frame.front().to_vec())
    }

    /// The ids of a prompt, with the tokens in front, and what decodes the ids behind it.
    fn read(&self, prompt: &str) -> Result<(Vec<Vec<u32>>, TextStream), TaskError> {
        let prompt = [self.front(), self.tokenizer.encode(prompt)?].concat();
        let text = self.tokenizer.stream_after(&prompt);
        Ok((vec![prompt], text))
    }

    /// A model that chooses among the ids of the tokenizer.
    fn real<'m, M>(&self, model: &'m M) -> WithVocabulary<'m, M> {
        let real = WithVocabulary::new(model, self.tokenizer.vocab_size());
        self.defaults.iter().fold(real, WithVocabulary::with_defaults)
    }
}

fn written<M: Autoregressive>(mut tokens: TokenStream<'_, M>, streams: Vec<TextStream>) -> Option<Vec<GeneratedText>> {
    write_texts(&mut tokens, streams, |_, _| ControlFlow::Continue(())).ok()
}

/// Prompts that are continued together, at most: each needs a cache of its own.
const TOGETHER: usize = 16;

/// Which prompts of such lengths are continued together: neighbours, as long as no text outgrows the context beside another, or frequencies that
/// depend on the length.
fn groups(
    lengths: &[usize],
    new: usize,
    context: usize,
    continues: impl Fn(usize, usize) -> bool,
) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (place, &length) in lengths.iter().enumerate() {
        let fits = |group: &Range<usize>| {
            let all = || lengths[group.clone()].iter().copied().chain([length]);
            let (shortest, longest) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
            let end = longest.saturating_add(new);
            group.len() < TOGETHER && end <= context && continues(shortest, end)
        };
        match groups.last_mut().filter(|group| fits(group)) {
            Some(group) => group.end = place + 1,
            None => groups.push(place..place + 1),
        }
    }
    groups
}

/// The draft's tokenizer has another token where the model's has one.
fn other_vocabulary(token: Option<String>, other: Option<String>) -> InputError {
    let name = |token: Option<String>| token.map_or("no token".to_string(), |token| format!("`{token}`"));
    InputError::new(format!(
        "the draft has another vocabulary: it has {}, where the model has {}",
        name(other),
        name(token)
    ))
    .advise("take a draft with the model's own tokenizer")
}

/// The model after the last step, with its tokenizer.
#[cfg(feature = "train")]
impl From<crate::TrainedRun> for TextGenerator {
    fn from(run: crate::TrainedRun) -> Self {
        Self::new(run.model, run.corpus.tokenizer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::{Init, ParamBuilder, WeightInit};
    use firelight_data::TokenizerConfig;
    use firelight_generation::StopReason;
    use firelight_storage::{Existing, save_weights};

    fn config() -> LanguageModelConfig {
        let wide = WeightInit { weight: Init::Normal { std: 0.4 }, scale_residual: false };
        let config = LanguageModelConfig::new(9, 16, 2, 2).with_max_seq_len(12);
        config.with_transformer(|stack| stack.with_init(wide))
    }

    fn generator() -> TextGenerator {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        TextGenerator::new(config().init_with(&ParamBuilder::new(&Device::default(), 0)), tokenizer)
    }

    fn texts(found: &[GeneratedText]) -> Vec<&str> {
        found.iter().map(|sample| sample.text.as_str()).collect()
    }

    #[test]
    fn samples_of_one_seed_differ_and_the_first_is_the_text_of_the_seed() {
        let (generator, options) = (generator(), GenerationOptions::new(20).with_temperature(1.0).with_seed(3));
        let found = generator.generate_samples("abc", 5, &options).unwrap();
        assert_eq!(found[0], generator.generate("abc", &options).unwrap());
        let distinct: std::collections::BTreeSet<&str> = texts(&found).into_iter().collect();
        assert_eq!((found.len(), distinct.len()), (5, 5), "{distinct:?}");
        assert_eq!(texts(&generator.generate_samples("abc", 2, &options).unwrap()), texts(&found)[..2]);
        let other = generator.generate_samples("abc", 5, &options.clone().with_seed(4)).unwrap();
        assert_ne!(texts(&other), texts(&found));
        // Beyond the context the window moves, with a cache and without.
        assert_eq!(texts(&generator.without_cache().generate_samples("abc", 5, &options).unwrap()), texts(&found));
    }

    #[test]
    fn a_text_comes_in_pieces_until_the_caller_has_enough() {
        let (generator, options) = (generator(), GenerationOptions::new(20).with_seed(3));
        let whole = generator.generate("abc", &options).unwrap();
        let streamed = |most: usize| {
            let mut pieces = Vec::new();
            let found = generator.generate_streaming("abc", &options, |piece| {
                pieces.push(piece.to_string());
                if pieces.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            (found.unwrap(), pieces)
        };
        let (found, pieces) = streamed(usize::MAX);
        assert_eq!((pieces.len(), pieces.concat(), &found), (20, whole.text.clone(), &whole));
        let (found, pieces) = streamed(4);
        assert_eq!((found.stopped, &found.ids[..]), (StopReason::Caller, &whole.ids[..4]));
        assert_eq!(pieces.concat(), found.text);
    }

    #[test]
    fn prompts_are_continued_together_as_they_are_alone() {
        let options = GenerationOptions::new(5).with_temperature(1.5).with_seed(3);
        let prompts = ["abc", "d", "az", "hgfed cb", "", "fe", "gab", "abcdefgh abcdef"];
        for generator in [generator(), generator().without_cache()] {
            for (prompt, found) in prompts.iter().zip(generator.generate_each(&prompts, &options)) {
                let alone = generator.generate(prompt, &options).map_err(|error| error.to_string());
                assert_eq!(found.map_err(|error| error.to_string()), alone, "{prompt:?}");
            }
        }
        assert!(generator().generate_each(&["a"; 0], &options).is_empty());
    }

    #[test]
    fn groups_hold_what_fits_into_the_context() {
        let always = |_, _| true;
        assert_eq!(groups(&[3, 1, 4, 9, 2, 2], 5, 12, always), [0..3, 3..4, 4..6]);
        assert_eq!(groups(&[1; 40], 5, 12, always), [0..16, 16..32, 32..40]);
        assert_eq!(groups(&[1, 1], 50, 12, always), [0..1, 1..2]);
        assert_eq!(groups(&[1, 2, 7, 8], 1, 12, |past, len| (past < 6) == (len < 6)), [0..2, 2..4]);
    }

    #[test]
    fn guesses_change_no_text_even_far_beyond_the_context() {
        let draft =
            || TextGenerator::new(config().init_with(&ParamBuilder::new(&Device::default(), 1)), generator().tokenizer);
        let lookup = PromptLookup::default();
        for options in
            [GenerationOptions::new(40).greedy(), GenerationOptions::new(40).with_temperature(1.0).with_seed(5)]
        {
            let expected = generator().generate("abcabc", &options).unwrap();
            let guessing = [
                generator().with_lookup(lookup),
                generator().without_cache().with_lookup(lookup),
                generator().with_draft(draft(), 4).unwrap(),
                generator().with_draft(generator(), 3).unwrap(),
            ];
            for generator in guessing {
                assert_eq!(generator.generate("abcabc", &options).unwrap(), expected);
            }
        }
        let other =
            TextGenerator::new(generator().model, Tokenizer::train(&TokenizerConfig::Char, "abcdefgz ").unwrap());
        let error = generator().with_draft(other, 4).unwrap_err();
        assert!(error.is_user_error());
        assert_eq!(
            error.to_string(),
            "the draft has another vocabulary: it has `z`, where the model has `h`; take a draft with the model's own \
             tokenizer"
        );
    }

    #[test]
    fn a_text_that_goes_on_is_read_from_where_it_differs() {
        let (generator, options) = (generator(), GenerationOptions::new(4).with_temperature(1.0).with_seed(5));
        let mut past = Past::default();
        for prompt in ["abc", "abcd", "ab", "hgf"] {
            let ids = generator.tokenizer().encode(prompt).unwrap();
            let again = generator.generate_after(&mut past, ids, &options, |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(again, generator.generate(prompt, &options).unwrap());
            assert_eq!(past.ids().len(), prompt.len() + 3);
        }
        assert!(generator.generate_after(&mut past, vec![99], &options, |_| ControlFlow::Continue(())).is_err());
        assert!(past.ids().is_empty(), "what failed is not kept");
    }

    #[test]
    fn the_best_of_several_texts_has_the_most_probable_tokens() {
        let (generator, options) = (generator(), GenerationOptions::new(6).with_temperature(2.0).with_seed(1));
        let all = generator.generate_samples("abc", 7, &options.clone().with_logprobs(0)).unwrap();
        let mean = GeneratedText::mean_log_probability;
        let best = generator.generate_best("abc", 7, &options).unwrap();
        assert!(all.iter().all(|text| mean(text) <= mean(&best)) && all.contains(&best));
        assert!(mean(&best) > mean(&all[0]), "the first of these draws is not the best");
        // The text is scored as a given one is.
        let given = generator.score(&format!("abc{}", best.text), &crate::ScoreOptions::default()).unwrap();
        let last: Vec<f64> =
            given.tokens[3..].iter().map(|token| token.score.as_ref().unwrap().log_probability).collect();
        firelight_kernels::assert_close(
            &best.scores.iter().map(|score| score.log_probability).collect::<Vec<_>>(),
            &last,
            1e-4,
        );
        assert!(
            generator.generate_best("abc", 0, &options).unwrap_err().to_string().starts_with("the best of 0 texts")
        );
    }

    #[test]
    fn one_beam_is_greedy_and_more_find_no_less_probable_texts() {
        let generator = generator();
        let greedy = generator.generate("abc", &GenerationOptions::new(6).greedy()).unwrap();
        let search = |beams: usize| {
            let options = BeamOptions::new(6).with_beams(beams).with_n_best(beams).with_length_penalty(0.0);
            generator.search("abc", &options).unwrap()
        };
        assert_eq!((&search(1)[0].0, &search(1)[0].1.ids), (&greedy.text, &greedy.ids));
        let five = search(5);
        assert_eq!(five.len(), 5);
        assert!(five[0].1.score >= search(1)[0].1.score && five.is_sorted_by(|a, b| a.1.score >= b.1.score));
    }

    #[test]
    fn a_model_may_know_more_ids_than_its_tokenizer() {
        let model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap();
        let (generator, options) =
            (TextGenerator::new(model, tokenizer), GenerationOptions::new(20).with_temperature(2.0));
        let found = generator.generate_samples("ab", 3, &options).unwrap();
        assert!(found.iter().all(|sample| sample.text.len() == 20 && sample.ids.iter().all(|&id| id < 3)), "{found:?}");
        assert_eq!(generator.without_cache().generate("ab", &options).unwrap(), found[0]);
    }

    #[test]
    fn a_text_ends_with_the_token_for_its_end() {
        let model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh").unwrap();
        let tokenizer = tokenizer.with_special_tokens(&["</s>"]).unwrap();
        let (generator, options) =
            (TextGenerator::new(model, tokenizer), GenerationOptions::new(99).with_temperature(2.0));
        let found = generator.generate("ab", &options).unwrap();
        assert_eq!((found.stopped, found.ids.contains(&8)), (StopReason::StopToken(8), false));
    }

    #[test]
    fn a_published_model_ends_where_its_makers_say_and_begins_with_the_frame() {
        let tokenizer =
            Tokenizer::train(&TokenizerConfig::Char, "abcdef").unwrap().with_special_tokens(&["<s>", "</s>"]);
        let tokenizer = tokenizer.unwrap().with_frame(6, 7).unwrap().0;
        let model = || config().init_with(&ParamBuilder::new(&Device::default(), 0));
        let options = GenerationOptions::new(99).with_temperature(2.0);
        let generated = |generator: &TextGenerator, prompt| generator.generate(prompt, &options).unwrap();
        let (plain, published) = (
            TextGenerator::new(model(), tokenizer.clone()),
            TextGenerator::new(model(), tokenizer)
                .with_defaults(serde_json::from_str(r#"{"eos_token_id": [0, 1, 2], "suppress_tokens": [3]}"#).unwrap()),
        );
        let found = generated(&published, "ab");
        assert!(matches!(found.stopped, StopReason::StopToken(id) if [0, 1, 2, 7].contains(&id)), "{found:?}");
        assert!(found.ids.iter().all(|id| [4, 5, 6].contains(id)), "{found:?}");
        let fronts = [&plain, &published].map(|generator| generator.read("ab").unwrap().0.remove(0));
        assert_eq!(fronts, [vec![0, 1], vec![6, 0, 1]]);
    }

    #[test]
    fn a_prompt_that_cannot_be_read_is_refused() {
        let (generator, options) = (generator(), GenerationOptions::new(3));
        for (prompt, expected) in [("", "the prompt is empty"), ("abz", "the character 'z' at position 2")] {
            let error = generator.generate_samples(prompt, 2, &options).unwrap_err();
            assert!(error.is_user_error() && error.to_string().starts_with(expected), "{error}");
            assert_eq!(generator.generate(prompt, &options).unwrap_err().to_string(), error.to_string());
        }
    }

    #[test]
    fn a_model_comes_back_from_its_folder_and_lacks_nothing_that_changes_a_text() {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        let (before, options) = (generator(), GenerationOptions::new(20).greedy());
        before.tokenizer().save(folder.tokenizer()).unwrap();
        folder.write_config(crate::TASK, &config()).unwrap();
        save_weights(before.model(), folder.weights_path(&Checkpoint::Last)).unwrap();
        let load = || TextGenerator::load_from(folder.path(), &Checkpoint::Last, &Device::default());
        assert_eq!(load().unwrap().generate("abc", &options).unwrap(), before.generate("abc", &options).unwrap());

        let whole: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.config()).unwrap()).unwrap();
        for (part, key) in [("", "tied"), ("/transformer", "norm"), ("/transformer", "position")] {
            let mut fields = whole.clone();
            fields.pointer_mut(part).and_then(|part| part.as_object_mut()).unwrap().remove(key).unwrap();
            std::fs::write(folder.config(), fields.to_string()).unwrap();
            let text = load().unwrap_err().to_string();
            let path = format!("{part}/{key}")[1..].replace('/', ".");
            assert!(text.contains("config.json`") && text.contains(&format!("missing field `{path}`")), "{text}");
        }
    }
}
