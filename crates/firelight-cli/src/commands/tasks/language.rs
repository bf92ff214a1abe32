//! What a language model shows after its training: a text of its own.

use std::path::PathBuf;

use anyhow::Result;
use firelight::device::NamedDevice;
use firelight::generation::GenerationOptions;
use firelight::language::{Evaluation, Language, TextGenerator, TrainedRun};
use firelight::nn::{Cost, ParamBuilder};
use firelight::storage::{Checkpoint, ModelFolder};
use firelight::training::{RecipeOf, Sample};

use super::super::evaluate::{Found, to_table};
use super::super::opening;
use super::Shown;

/// Length of the sample, in tokens.
const SAMPLE_TOKENS: usize = 400;

impl Shown for Language {
    const DATA: &'static str =
        "a text (UTF-8), records with a column of texts, or a folder of splits; several, each after a --data";
    const SHOWS: &'static str = "a sample";
    const COMMANDS: &'static [&'static str] = &["generate", "chat", "score", "quantize"];
    const WRITES: bool = true;

    fn next(folder: &str) -> String {
        format!("continue a text with: firelight generate {folder} --prompt TEXT")
    }

    fn samples(run: &TrainedRun, chosen: &NamedDevice) -> Result<Vec<Sample>> {
        let generator = TextGenerator::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let prompt = opening(generator.tokenizer());
        let text = generator.generate(&prompt, &GenerationOptions::new(SAMPLE_TOKENS))?.text;
        let input = match prompt.trim() {
            "" => "empty prompt".to_string(),
            prompt => format!("prompt \"{prompt}\""),
        };
        Ok(vec![Sample::new(input, text)])
    }

    fn cost(_: &RecipeOf<Self>, config: &Self::Config, length: Option<usize>) -> (Cost, usize) {
        let length = length.unwrap_or(config.transformer.max_seq_len);
        (config.init_with(&ParamBuilder::counting()).cost(length), length)
    }

    fn kept(folder: &ModelFolder) -> PathBuf {
        folder.tokens()
    }
}

impl Found for Evaluation {
    fn in_words(&self) -> String {
        to_table(&[
            ("loss".into(), format!("{:.4} nats per token", self.loss)),
            ("perplexity".into(), format!("{:.3}", self.perplexity)),
            ("bits per character".into(), format!("{:.4}", self.bits_per_character)),
            ("tokens".into(), self.tokens.to_string()),
        ])
    }
}
