//! Goes on with the training of a language model on a text of yours, by low-rank adapters alone (LoRA). With a format of blocks the
//! weights beside them lie in 8 or 4 bits (QLoRA). At the end the adapters are merged into the weights.
//!
//! Command: cargo run --release -p firelight-examples --example lora -- MODEL TEXT none
//! For instance: ... -- openai-community/gpt2 chapter.txt q4_k
//! (MODEL: a run, a folder as Hugging Face has it, or a name on its hub; in the place of `none` q8_0, q4_0, q4_k or q6_k)
//! Source: Hu et al. 2021 (<https://arxiv.org/abs/2106.09685>), Dettmers et al. 2023 (<https://arxiv.org/abs/2305.14314>).
//! Time: on two CPU cores a few minutes for a model of ten million parameters; a GPU is the place for more, without blocks.
//! Expect: how few of the parameters are trained, a loss that falls, and a continuation of the text before and after.

use std::path::{Path, PathBuf};

use anyhow::Result;
use burn::tensor::Device;
use firelight::generation::GenerationOptions;
use firelight::language::{Interrupter, Language, Run, RunRequest, TextGenerator};
use firelight::pretrained::{import_cache, run_folder_of_floats};
use firelight::storage::Checkpoint;
use firelight::training::{Observer, ProgressBar, merge};

/// The settings of the built-in recipe `stories` that differ: adapters of all layers of the stack, and their learning rate.
const SETTINGS: [(&str, &str); 8] = [
    ("model.adapters", "{ rank = 8, alpha = 16, targets = [\"*\"] }"),
    ("training.steps", "200"),
    ("training.batch_size", "4"),
    ("training.evaluate_every", "50"),
    ("optimizer.learning_rate", "5e-4"),
    ("schedule.min_learning_rate", "0"),
    ("schedule.warmup_steps", "10"),
    ("schedule.steps", "200"),
];

/// What a training begins with.
fn request(base: &Path, text: &Path, quantize: Option<&str>, device: &Device) -> RunRequest {
    let request = RunRequest::new(device).with_recipe("stories").with_data(text);
    let request = request.with_override("init.from", format!("{:?}", base.display().to_string()));
    let request = quantize.into_iter().fold(request, |request, format| request.with_override("init.quantize", format));
    SETTINGS.iter().fold(request, |request, (key, value)| request.with_override(key, value))
}

/// Trains adapters on `base`, merges them into the folder beside the run, and returns that.
fn train(request: &RunRequest, observers: Vec<Box<dyn Observer>>) -> Result<PathBuf> {
    // Config and data: structure and tokenizer are those of the base; the text is read before anything is written.
    let run = Run::prepare(request)?;

    // Model.
    let cost = run.cost();
    println!("training {} of {} parameters in {}", cost.trained, cost.parameters, run.folder.path().display());

    // Fit: Burn's Learner under an observer; the folder fills on the way, and keeps the adapters in adapters.safetensors.
    let trained = run.fit_with(observers, Interrupter::new(), None)?;
    if let Some(last) = &trained.evaluation {
        println!("validation loss {:.4} nats per token", last.loss);
    }
    let merged = trained.folder.path().with_added_extension("merged");
    merge::<Language>(trained.folder.path(), &Checkpoint::Last, &merged, &request.device)?;
    Ok(merged)
}

/// What a model writes behind a prompt.
fn continued(folder: &Path, prompt: &str, device: &Device) -> Result<String> {
    let generator = TextGenerator::load_from(folder, &Checkpoint::Last, device)?;
    Ok(generator.generate(prompt, &GenerationOptions::new(20).greedy())?.text)
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let [model, text, format] = firelight_examples::words("MODEL TEXT FORMAT")?;
    let device = firelight::device::select(None)?;
    let base = run_folder_of_floats(model, &import_cache(), |line| eprintln!("{line}"))?;
    let quantize = Some(format.as_str()).filter(|format| *format != "none");
    let merged = train(&request(&base, Path::new(&text), quantize, &device), vec![Box::new(ProgressBar::new())])?;

    // Show.
    let prompt: String = firelight::data::read_text(&text)?.chars().take(40).collect();
    for (name, folder) in [("before", &base), ("after", &merged)] {
        println!("== {name}\n{prompt}{}\n", continued(folder, &prompt, &device)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_gpt_2_learns_a_text_beside_floats_and_beside_blocks() {
        let (home, device) = (tempfile::tempdir().unwrap(), Device::flex());
        let [model, text] = ["gpt2", "text.txt"].map(|name| home.path().join(name));
        firelight_examples::tiny_model("gpt2-plain", 48, &[], &model).unwrap();
        std::fs::write(&text, "a rose is a rose is a rose. ".repeat(60)).unwrap();
        let base = run_folder_of_floats(&model, &home.path().join("cache"), |_| ()).unwrap();
        for quantize in [None, Some("q8_0")] {
            let out = home.path().join(quantize.unwrap_or("floats"));
            let request = request(&base, &text, quantize, &device).with_out(&out);
            let request = request.with_override("training.steps", 30).with_override("schedule.steps", 30);
            let merged = train(&request.with_override("optimizer.learning_rate", 0.02), Vec::new()).unwrap();
            assert_eq!(out.join("quantization.json").exists(), quantize.is_some());
            assert!(out.join("adapters.safetensors").exists() && !merged.join("adapters.safetensors").exists());
            let weights = |folder: &Path| std::fs::read(folder.join("model.safetensors")).unwrap();
            assert!(weights(&base) != weights(&merged), "the adapters changed nothing");
            assert!(continued(&merged, "a rose", &device).unwrap().chars().count() <= 20);
        }
    }
}
