//! `firelight generate`: continues a prompt, on the terminal while it is written or as a line of JSON for each sample.

use std::io;
use std::ops::ControlFlow;

use anyhow::Result;
use firelight::generation::{GeneratedText, GenerationOptions, StopReason};
use firelight::language::TextGenerator;
use serde_json::json;

use super::opening;
use super::sampling::Sampling;
use super::texts::standard_input;
use super::trained_model::TrainedModel;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight generate runs/stories-1 --prompt \"Once upon a time\"
  firelight generate runs/stories-1 --num-samples 3 --temperature 0.7 --top-k 20 --seed 7
  firelight generate runs/stories-1 --temperature 1 --min-p 0.05 --repetition-penalty 1.1
  head -n 3 story.txt | firelight generate runs/stories-1 --prompt - --max-new-tokens 500";

/// Continue a prompt with a trained language model
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Generate {
    #[command(flatten)]
    model: TrainedModel,
    /// Text to continue, or - to read it from the standard input; by default a new paragraph begins
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Number of tokens to add
    #[arg(long, value_name = "N", default_value_t = 200)]
    max_new_tokens: usize,
    #[command(flatten)]
    sampling: Sampling,
    /// End the text before this one; may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Seed of the draws: the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Number of texts, each with draws of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with = "greedy")]
    num_samples: u32,
    /// Leave out the KV cache: slow, the text is the same
    #[arg(long)]
    no_cache: bool,
    /// Print one line of JSON for each text
    #[arg(long)]
    json: bool,
}

impl Generate {
    pub(crate) fn run(self) -> Result<()> {
        self.options(&self.sampling)?; // before anything is read
        self.model.is_for("generate")?;
        let given = self.given()?;
        let generator = self.generator()?;
        let sampling = self.sampling.clone();
        let options = self.options(&match generator.defaults() {
            Some(defaults) => sampling.with_defaults(defaults),
            None => sampling,
        })?;
        let prompt = given.unwrap_or_else(|| opening(generator.tokenizer()));
        match self.json || self.num_samples > 1 {
            true => self.samples(&generator, &prompt, &options),
            false => stream(&generator, &prompt, &options),
        }
    }

    fn options(&self, sampling: &Sampling) -> Result<GenerationOptions> {
        let options = sampling.options(self.max_new_tokens, self.seed).with_stop_strings(self.stop.clone());
        options.validate()?;
        Ok(options)
    }

    /// The prompt of the command line or of the standard input; none is the opening that the model knows.
    fn given(&self) -> Result<Option<String>> {
        match self.prompt.as_deref() {
            Some("-") => Ok(Some(standard_input("the prompt")?)),
            prompt => Ok(prompt.map(str::to_string)),
        }
    }

    /// Prints all texts, which are written together.
    fn samples(&self, generator: &TextGenerator, prompt: &str, options: &GenerationOptions) -> Result<()> {
        let found = generator.generate_samples(prompt, self.num_samples as usize, options)?;
        for (sample, generated) in (1..).zip(&found) {
            if self.json {
                output::print(&format!("{}\n", self.to_json(prompt, sample, generated)))?;
                continue;
            }
            output::note(format_args!("sample {sample} of {}:", self.num_samples));
            output::print(&format!("{prompt}{}\n", generated.text))?;
        }
        Ok(())
    }

    fn generator(&self) -> Result<TextGenerator> {
        let generator = self.model.load(TextGenerator::load_from)?;
        Ok(if self.no_cache { generator.without_cache() } else { generator })
    }

    fn to_json(&self, prompt: &str, sample: u32, generated: &GeneratedText) -> serde_json::Value {
        json!({
            "prompt": prompt,
            "text": generated.text,
            "tokens": generated.ids.len(),
            "stopped": stop_name(generated.stopped),
            "checkpoint": self.model.checkpoint,
            "seed": self.seed,
            "sample": sample,
        })
    }
}

/// Prints the prompt and every piece of its continuation as it comes.
fn stream(generator: &TextGenerator, prompt: &str, options: &GenerationOptions) -> Result<()> {
    let mut unprinted = Some(prompt); // goes with the first piece, when nothing can be refused any more
    let mut written: io::Result<()> = Ok(());
    generator.generate_streaming(prompt, options, |piece| {
        written = output::print(&format!("{}{piece}", unprinted.take().unwrap_or_default()));
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written?;
    output::print(&format!("{}\n", unprinted.take().unwrap_or_default()))?;
    Ok(())
}

fn stop_name(reason: StopReason) -> &'static str {
    match reason {
        StopReason::MaxNewTokens => "max_new_tokens",
        StopReason::StopToken(_) => "stop_token",
        StopReason::StopString(_) => "stop_string",
        _ => "caller",
    }
}
