//! `firelight generate`: continues a prompt, on the terminal while it is written or as a line of JSON for each sample.

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use firelight::data::lines_of;
use firelight::generation::{
    Autoregressive, BeamOptions, ContrastiveOptions, GeneratedText, GenerationDefaults, GenerationError,
    GenerationOptions, Processing, StopReason, TokenScore,
};
use firelight::language::TextGenerator;
use firelight::storage::TaskError;
use serde_json::{Value, json};

use super::cache_type::KvCache;
use super::compressing::CompressedPast;
use super::contrasting::Contrast;
use super::ending::{Ends, logprobs};
use super::guessing::Guesses;
use super::opening;
use super::overflowing::Overflow;
use super::precision::ComputeIn;
use super::restricting::Restrictions;
use super::sampling::Sampling;
use super::searching::Search;
use super::texts::{standard_input, whole_file};
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::interruption::{Breakable, INTERRUPTED};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight generate runs/stories-1 --prompt \"Once upon a time\"
  firelight generate runs/stories-1 --num-samples 3 --temperature 0.7 --top-k 20 --seed 7
  firelight generate runs/stories-1 --temperature 1 --min-p 0.05 --repetition-penalty 1.1
  firelight generate runs/stories-1 --beams 5 --n-best 3 --max-new-tokens 40
  firelight generate runs/stories-1 --batch-file prompts.txt --json --logprobs 3
  firelight generate runs/stories-1 --ban wolf --ban fox --prefix \"Once\"
  firelight generate runs/stories-1 --json-schema person.json --prompt \"The person: \"
  firelight generate runs/large --draft runs/small --prompt \"Once upon a time\"
  firelight generate runs/large --contrastive 0.6 --top-k 4
  firelight generate runs/large --amateur runs/small --greedy
  head -n 3 story.txt | firelight generate runs/stories-1 --prompt - --max-new-tokens 500";

/// Continue a prompt with a trained language model
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Generate {
    #[command(flatten)]
    model: TrainedModel,
    #[command(flatten)]
    compute: ComputeIn,
    /// Text to continue, or - to read it from the standard input; by default a new paragraph begins
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// File with the text to continue
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    prompt_file: Option<PathBuf>,
    /// File of prompts, one in each line, which are continued together
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["prompt", "prompt_file", "num_samples", "best_of", "draft", "prompt_lookup"])]
    batch_file: Option<PathBuf>,
    #[command(flatten)]
    ends: Ends,
    /// Number of texts, each with draws of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["greedy", "draft", "prompt_lookup"])]
    num_samples: u32,
    /// Draw N texts and print the one with the most probable tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["greedy", "num_samples", "draft", "prompt_lookup"])]
    best_of: Option<u32>,
    #[command(flatten)]
    guesses: Guesses,
    /// Whether the prompt is printed in front of the text: true or false [default: true, false for constrained texts]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true,
        conflicts_with = "json")]
    echo: Option<bool>,
    #[command(flatten)]
    restrictions: Restrictions,
    /// Leave out the KV cache: slow, the text is the same
    #[arg(long, conflicts_with = "cache_type")]
    no_cache: bool,
    #[command(flatten)]
    kv_cache: KvCache,
    #[command(flatten)]
    compressed_past: CompressedPast,
    #[command(flatten)]
    overflow: Overflow,
    /// Print one line of JSON for each text
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "How tokens are chosen")]
    sampling: Sampling,
    #[command(flatten, next_help_heading = "Beam search")]
    search: Search,
    #[command(flatten, next_help_heading = "Contrast")]
    contrast: Contrast,
}

impl Generate {
    pub(crate) fn run(self) -> Result<()> {
        self.check()?;
        self.options(&self.sampling)?; // before anything is read
        self.model.is_for("generate")?;
        self.compute.within(|| self.write())
    }

    fn write(&self) -> Result<()> {
        if let Some(file) = &self.batch_file {
            let prompts = lines_of(std::fs::read(file).map_err(|error| unreadable(file, &error))?, file)?;
            return self.continue_each(&self.generator()?, &prompts);
        }
        let given = self.given()?;
        let generator = self.generator()?;
        let prompt = given.unwrap_or_else(|| opening(generator.tokenizer()));
        match self.contrastive(&generator, &prompt)? {
            _ if self.search.is_wanted() => self.search(&generator, &prompt),
            Some(options) => {
                let found = self.kept(&generator, &prompt, "sample", generator.contrast(&prompt, &options))?;
                self.show(&generator, &prompt, &found, ("sample", 1))
            }
            None => self.draw(&generator, &prompt),
        }
    }

    /// Refuses options that have no meaning together.
    fn check(&self) -> Result<()> {
        self.contrast.check(&self.sampling)?;
        let searches = self.search.is_wanted();
        let draws = self.sampling.given().or((self.num_samples > 1).then_some("--num-samples"));
        let draws = draws.or(self.sampling.has_seed().then_some("--seed"));
        let draws = draws.or(self.best_of.map(|_| "--best-of")).or(self.guesses.given());
        let draws = draws.or(self.batch_file.as_ref().map(|_| "--batch-file"));
        match (searches, draws, self.search.given()) {
            (true, Some(option), _) => {
                bail!(Mistake(format!("{option} cannot be used with --beams: remove one of the two")))
            }
            (false, _, Some(option)) => {
                bail!(Mistake(format!("{option} needs a beam search: add --beams N, or remove {option}")))
            }
            (true, ..) => Ok(self.search.options(BeamOptions::new(self.max_new_tokens())).validate()?),
            _ => Ok(()),
        }
    }

    fn options(&self, sampling: &Sampling) -> Result<GenerationOptions> {
        let mut options = sampling.options(self.max_new_tokens()).with_stop_strings(self.ends.stop.clone());
        options.logprobs = self.ends.logprobs;
        options.validate()?;
        Ok(options)
    }

    /// The options with what the model's makers say, and the restrictions of a text behind `before`.
    fn full_options(&self, generator: &TextGenerator, before: &str) -> Result<GenerationOptions> {
        let sampling = self.sampling.clone();
        let mut options = self.options(&match generator.defaults() {
            Some(defaults) => sampling.with_defaults(defaults),
            None => sampling,
        })?;
        self.restrict(&mut options.processing, generator, before)?;
        options.stop_tokens = self.ends.tokens(generator.tokenizer())?;
        options.validate()?;
        Ok(options)
    }

    /// The options of each prompt, where `options` are those of a text behind a prompt.
    fn of_each<O: Clone>(&self, prompts: &[String], options: impl Fn(&str) -> Result<O>) -> Result<Vec<O>> {
        let same = options("")?;
        if !self.restrictions.depend_on_prompts() {
            return Ok(vec![same; prompts.len()]);
        }
        let of_line = |(line, prompt): (usize, &String)| {
            options(prompt).map_err(|error| Mistake(format!("line {line}: {error}")).into())
        };
        (1..).zip(prompts).map(of_line).collect()
    }

    /// The options of a contrastive search, where one is asked for.
    fn contrastive(&self, generator: &TextGenerator, prompt: &str) -> Result<Option<ContrastiveOptions>> {
        let options = self.contrast.options(self.max_new_tokens(), &self.sampling);
        options.map(|options| self.contrasting(options, generator, prompt)).transpose()
    }

    /// The options of a contrastive search with what the model's makers say, and the restrictions of a text behind `before`.
    fn contrasting(
        &self,
        mut options: ContrastiveOptions,
        generator: &TextGenerator,
        before: &str,
    ) -> Result<ContrastiveOptions> {
        let (penalties, none) = (self.sampling.penalties(), GenerationDefaults::default());
        options.processing = penalties.with_defaults(generator.defaults().unwrap_or(&none)).processing();
        self.restrict(&mut options.processing, generator, before)?;
        options.logprobs = self.ends.logprobs;
        Ok(options.with_stop_strings(self.ends.stop.clone()).with_stop_tokens(self.ends.tokens(generator.tokenizer())?))
    }

    /// Adds what a text behind `before` may not hold, begins with and has to satisfy.
    fn restrict(&self, processing: &mut Processing, generator: &TextGenerator, before: &str) -> Result<()> {
        self.sampling.penalties().repetitions.add_breakers(processing, generator.tokenizer())?;
        self.restrictions.add_to(processing, generator.tokenizer(), before, self.max_new_tokens())
    }

    fn max_new_tokens(&self) -> usize {
        self.ends.max_new_tokens.unwrap_or(200)
    }

    /// Whether the prompt is printed.
    fn echoes(&self) -> bool {
        self.echo.unwrap_or(!self.restrictions.is_constrained())
    }

    /// The prompt of the command line, of a file or of the standard input; none is the opening that the model knows.
    fn given(&self) -> Result<Option<String>> {
        match (self.prompt.as_deref(), &self.prompt_file) {
            (_, Some(file)) => Ok(Some(whole_file(file)?)),
            (Some("-"), _) => Ok(Some(standard_input("the prompt")?)),
            (prompt, _) => Ok(prompt.map(str::to_string)),
        }
    }

    fn draw(&self, generator: &TextGenerator, prompt: &str) -> Result<()> {
        let options = self.full_options(generator, prompt)?;
        if let Some(samples) = self.best_of {
            let best = generator.generate_best(prompt, samples as usize, &options);
            let best = self.kept(generator, prompt, "sample", best)?;
            return self.show(generator, prompt, &best, ("sample", 1));
        }
        match self.json || self.num_samples > 1 {
            true => self.samples(generator, prompt, &options),
            false => self.stream(generator, prompt, &options),
        }
    }

    /// Prints the prompt and every piece of its continuation as it comes. Ctrl-C ends the program, and before that it ends a constrained text
    /// as the constraint wants it.
    fn stream(&self, generator: &TextGenerator, prompt: &str, options: &GenerationOptions) -> Result<()> {
        let signal = self.restrictions.is_constrained().then(Breakable::listen).transpose()?;
        signal.iter().for_each(Breakable::begin);
        let is_asked = || signal.as_ref().is_some_and(Breakable::is_asked);
        stream(generator, prompt, options, self.echoes(), is_asked)?;
        if is_asked() {
            std::process::exit(INTERRUPTED);
        }
        Ok(())
    }

    /// Prints all texts, which are written together.
    fn samples(&self, generator: &TextGenerator, prompt: &str, options: &GenerationOptions) -> Result<()> {
        let found = match self.num_samples {
            1 => generator.generate(prompt, options).map(|only| vec![only]), // The only way to guess.
            samples => generator.generate_samples(prompt, samples as usize, options),
        };
        let found = self.kept(generator, prompt, "sample", found)?;
        for (sample, generated) in (1..).zip(&found) {
            if !self.json {
                output::note(format_args!("sample {sample} of {}:", self.num_samples));
            }
            self.show(generator, prompt, generated, ("sample", sample))?;
        }
        Ok(())
    }

    /// What was found; of an error, prints what was written before it.
    fn kept<T>(&self, generator: &TextGenerator, prompt: &str, what: &str, found: Result<T, TaskError>) -> Result<T> {
        if let Err(error) = &found {
            for (number, text) in (1..).zip(GenerationError::texts_before(error)) {
                self.show(generator, prompt, text, (what, number))?;
            }
        }
        Ok(found?)
    }

    /// Continues each prompt; what fails is told, and the others are written.
    fn continue_each(&self, generator: &TextGenerator, prompts: &[String]) -> Result<()> {
        match self.contrast.options(self.max_new_tokens(), &self.sampling) {
            Some(options) => {
                let options = self.of_each(prompts, |before| self.contrasting(options.clone(), generator, before))?;
                self.tell_each(generator, prompts, |part| {
                    generator.contrast_each_with(&prompts[part.clone()], &options[part])
                })
            }
            None => {
                let options = self.of_each(prompts, |before| self.full_options(generator, before))?;
                self.tell_each(generator, prompts, |part| {
                    generator.generate_each_with(&prompts[part.clone()], &options[part])
                })
            }
        }
    }

    /// Tells what is `written` of some prompts after the other.
    fn tell_each(
        &self,
        generator: &TextGenerator,
        prompts: &[String],
        written: impl Fn(Range<usize>) -> Vec<Result<GeneratedText, TaskError>>,
    ) -> Result<()> {
        let mut failed = 0;
        for first in (0..prompts.len()).step_by(TOLD) {
            let part = first..prompts.len().min(first + TOLD);
            for (index, found) in part.clone().zip(written(part)) {
                let (prompt, line) = (&prompts[index], index as u32 + 1);
                match found {
                    Ok(generated) => self.show(generator, prompt, &generated, ("line", line))?,
                    Err(error) => {
                        failed += 1;
                        output::print(&self.failed(prompt, line, &error))?;
                        output::note(format_args!("error: line {line}: {error}"));
                    }
                }
            }
        }
        ensure!(
            failed == 0,
            Mistake(format!("{failed} of {} prompts could not be continued, see above", prompts.len()))
        );
        Ok(())
    }

    /// The line of a prompt that failed, with what was written of it.
    fn failed(&self, prompt: &str, line: u32, error: &TaskError) -> String {
        let written = GenerationError::texts_before(error).first();
        let mut told = json!({"prompt": prompt, "line": line, "error": error.to_string()});
        match written {
            Some(written) if !self.json => return self.line(prompt, &written.text),
            Some(written) => told["text"] = json!(written.text),
            None if !self.json => return "\n".to_string(),
            None => {}
        }
        format!("{told}\n")
    }

    /// Prints the most probable texts.
    fn search(&self, generator: &TextGenerator, prompt: &str) -> Result<()> {
        let (none, usual) = (GenerationDefaults::default(), BeamOptions::new(self.max_new_tokens()));
        let defaults = generator.defaults().unwrap_or(&none);
        let mut options = self.search.with_defaults(usual, self.sampling.penalties(), defaults);
        self.restrict(&mut options.processing, generator, prompt)?;
        options = options.with_stop_strings(self.ends.stop.clone());
        (options.stop_tokens, options.logprobs) = (self.ends.tokens(generator.tokenizer())?, self.ends.logprobs);
        let found = self.kept(generator, prompt, "rank", generator.search(prompt, &options))?;
        for (rank, (text, found)) in (1..).zip(found) {
            let (tokens, stopped) = (found.ids.len(), stop_name(found.stop_reason));
            let mut line = json!({"prompt": prompt, "text": text, "tokens": tokens, "stopped": stopped,
                "checkpoint": self.model.checkpoint, "score": found.score, "rank": rank});
            self.add_logprobs(&mut line, generator, &found.scores);
            output::print(&if self.json { format!("{line}\n") } else { self.line(prompt, &text) })?;
        }
        Ok(())
    }

    fn line(&self, prompt: &str, text: &str) -> String {
        format!("{}{text}\n", if self.echoes() { prompt } else { "" })
    }

    fn show(
        &self,
        generator: &TextGenerator,
        prompt: &str,
        generated: &GeneratedText,
        (what, number): (&str, u32),
    ) -> Result<()> {
        let mut line = self.to_json(prompt, generated);
        line[what] = json!(number);
        self.add_logprobs(&mut line, generator, &generated.scores);
        Ok(output::print(&if self.json { format!("{line}\n") } else { self.line(prompt, &generated.text) })?)
    }

    /// Adds the log-probabilities of tokens to a line of JSON, where they are asked for.
    fn add_logprobs(&self, line: &mut Value, generator: &TextGenerator, scores: &[TokenScore]) {
        if self.ends.logprobs.is_some() {
            line["logprobs"] = logprobs(generator.tokenizer(), scores);
        }
    }

    fn generator(&self) -> Result<TextGenerator> {
        let mut generator = self.compute.load(&self.model)?;
        let device = generator.model().device();
        if let Some(draft) = &self.guesses.draft {
            let draft = self.compute.load_beside(draft, &device)?;
            generator = generator.with_draft(draft, self.guesses.draft_tokens())?;
        }
        if let Some(amateur) = &self.contrast.amateur {
            let amateur = self.compute.load_beside(amateur, &device)?;
            generator = generator.with_amateur(amateur, self.contrast.amateur_options())?;
        }
        if let Some(lookup) = self.guesses.lookup() {
            generator = generator.with_lookup(lookup);
        }
        generator = self.overflow.apply(self.kv_cache.apply(generator)?)?;
        if let Some(compression) = self.compressed_past.compression() {
            generator = generator.with_compression(compression)?;
        }
        Ok(if self.no_cache { generator.without_cache() } else { generator })
    }

    fn to_json(&self, prompt: &str, generated: &GeneratedText) -> Value {
        json!({
            "prompt": prompt,
            "text": generated.text,
            "tokens": generated.ids.len(),
            "stopped": stop_name(generated.stop_reason),
            "checkpoint": self.model.checkpoint,
            "seed": self.sampling.seed(),
        })
    }
}

/// Prompts whose texts are printed as soon as they are there.
const TOLD: usize = 64;

fn unreadable(file: &Path, error: &io::Error) -> Mistake {
    Mistake(format!("cannot read `{}`: {error}", file.display()))
}

/// Prints the prompt and every piece of its continuation as it comes, until the user has asked to end it.
fn stream(
    generator: &TextGenerator,
    prompt: &str,
    options: &GenerationOptions,
    echo: bool,
    is_asked: impl Fn() -> bool,
) -> Result<()> {
    let mut unprinted = Some(prompt).filter(|_| echo); // goes with the first piece, when nothing can be refused any more
    let (mut written, mut has_begun): (io::Result<()>, bool) = (Ok(()), false);
    let found = generator.generate_streaming(prompt, options, |piece| {
        has_begun = true;
        // What completes a constrained text comes behind the piece that was broken off.
        let before = std::mem::replace(&mut written, Ok(()));
        written = before.and_then(|()| output::print(&format!("{}{piece}", unprinted.take().unwrap_or_default())));
        if written.is_ok() && !is_asked() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    written?;
    if found.is_ok() || has_begun {
        output::print(&format!("{}\n", unprinted.take().unwrap_or_default()))?;
    }
    found?;
    Ok(())
}

fn stop_name(reason: StopReason) -> &'static str {
    match reason {
        StopReason::MaxNewTokens => "max_new_tokens",
        StopReason::StopToken(_) => "stop_token",
        StopReason::StopString(_) => "stop_string",
        StopReason::Complete => "complete",
        StopReason::ContextFull => "context_full",
        StopReason::Failed => "error",
        _ => "caller",
    }
}
