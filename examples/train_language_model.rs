//! Trains a language model on a text of yours, or on generated stories, and lets the best checkpoint write.
//!
//! Command: cargo run --release -p firelight-examples --example train_language_model -- [TEXT] [RECIPE.toml] [--toy]
//! For instance: ... -- input.txt recipes/shakespeare-char-cpu.toml
//! Time: about two minutes on two CPU cores without arguments, seconds with --toy; a recipe says its own.
//! Expect: a progress bar, an evaluation now and then, the path of the run folder, and a sample in the style of the text.

use std::path::PathBuf;

use anyhow::{Result, bail};
use burn::tensor::Device;
use firelight::generation::GenerationOptions;
use firelight::language::{Interrupter, Run, RunRequest, TextGenerator};
use firelight::storage::Checkpoint;
use firelight::training::{Observer, ProgressBar};

/// What `--toy` makes of a recipe: the same route in a few seconds.
const TOY: [(&str, &str); 10] = [
    ("data.stories", "20000"),
    ("model.d_model", "32"),
    ("model.n_heads", "2"),
    ("model.n_layers", "1"),
    ("model.max_seq_len", "32"),
    ("training.batch_size", "4"),
    ("training.steps", "200"),
    ("training.evaluate_every", "100"),
    ("schedule.warmup_steps", "20"),
    ("schedule.steps", "200"),
];

/// What the user asks for.
#[derive(Default)]
struct Arguments {
    text: Option<PathBuf>,
    recipe: Option<PathBuf>,
    out: Option<PathBuf>,
    toy: bool,
}

impl Arguments {
    /// A recipe is known by its `.toml`; the other path is the text.
    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut arguments = Self::default();
        for word in words {
            match word.as_str() {
                "--toy" => arguments.toy = true,
                flag if flag.starts_with('-') => bail!("unknown option {flag}; expected [TEXT] [RECIPE.toml] [--toy]"),
                path if path.ends_with(".toml") => arguments.recipe = Some(path.into()),
                path => arguments.text = Some(path.into()),
            }
        }
        Ok(arguments)
    }

    /// Without an `out` the run goes to the next free `runs/<recipe>-<n>`.
    fn request(self, device: &Device) -> RunRequest {
        let changes: &[(&str, &str)] = if self.toy { &TOY } else { &[] };
        RunRequest {
            recipe: self.recipe,
            data: self.text.into_iter().collect(),
            out: self.out,
            overrides: changes.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            ..RunRequest::new(device)
        }
    }
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let sample = train(arguments, vec![Box::new(ProgressBar::new())])?;
    println!("{sample}");
    Ok(())
}

fn train(arguments: Arguments, observers: Vec<Box<dyn Observer>>) -> Result<String> {
    // Config and data: the recipe and the text are read and checked before anything is written.
    let device = firelight::device::select(None)?;
    let run = Run::prepare(&arguments.request(&device))?;
    let prompt = run.corpus.tokenizer.decode(&run.corpus.first_tokens(8)); // what a model of this text can surely read

    // Model.
    println!("training {} parameters in {}", run.cost().parameters, run.folder.path().display());

    // Fit: Burn's Learner under an observer; the folder fills on the way.
    let trained = run.fit_with(observers, Interrupter::new(), None)?;
    if let Some(best) = &trained.best {
        println!("best validation loss {:.4} nats per token, at step {}", best.loss, best.step);
    }

    // Show: load the model as any other program would.
    let generator = TextGenerator::load_from(trained.folder.path(), &Checkpoint::Best, &device)?;
    let options = GenerationOptions::new(300).with_temperature(0.7).with_top_k(20).with_seed(1);
    Ok(format!("{prompt}{}", generator.generate(&prompt, &options)?.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_ones_own_becomes_a_model_that_writes() {
        let home = tempfile::tempdir().unwrap();
        let text = home.path().join("text.txt");
        std::fs::write(&text, "a rose is a rose is a rose. ".repeat(200)).unwrap();
        let words = [text.display().to_string(), "--toy".to_string()];
        let arguments =
            Arguments { out: Some(home.path().join("run")), ..Arguments::parse(words.into_iter()).unwrap() };
        let sample = train(arguments, Vec::new()).unwrap();
        assert_eq!((sample.chars().count(), &sample[..8]), (308, "a rose i"));
        assert!(Arguments::parse(["--tiny".to_string()].into_iter()).is_err());
    }
}
