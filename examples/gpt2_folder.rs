//! A published model, GPT-2 or another one that writes: from a folder as Hugging Face has it, from a GGUF file, or by its name on the
//! hub. What it is, what it says, and which tensor of the file is which parameter.
//!
//! Command: cargo run --release -p firelight-examples --example gpt2_folder -- gpt2/ "The meaning of life is"
//! (or `openai-community/gpt2`, which is downloaded once into the cache of Hugging Face)
//! Time: a second for a model of 124 million parameters, once it is built.
//! Expect: the sizes of the model, the first tensors, and for a language model with a tokenizer a continuation of the prompt.

use anyhow::Result;
use burn::tensor::Device;
use firelight::generation::GenerationOptions;
use firelight::language::TextGenerator;
use firelight::pretrained::{AutoModel, PublishedModel, locate};

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let [name, prompt] = firelight_examples::words("MODEL PROMPT")?;
    let device = firelight::device::select(None)?;

    // Model: the headers are read and fit before a weight is.
    let model = PublishedModel::open(locate(name, |line| eprintln!("{line}"))?)?;
    println!("{}", describe(&model));
    model.report().iter().take(5).for_each(|line| println!("{line}"));

    // Show.
    if let Some(text) = continued(&model, &prompt, &device)? {
        println!("{prompt}{text}");
    }
    Ok(())
}

/// What the headers say.
fn describe(model: &PublishedModel) -> String {
    let stack = model.structure().stacks()[0];
    let parameters: usize = model.plan().sources.values().map(|source| source.shape.iter().product::<usize>()).sum();
    let (layers, width) = (stack.n_layers, stack.d_model);
    format!("{}: {layers} layers of width {width}, {parameters} parameters", model.structure().task())
}

/// A continuation of the prompt; none by a model that does not write.
fn continued(checkpoint: &PublishedModel, prompt: &str, device: &Device) -> Result<Option<String>> {
    let (AutoModel::Language(model), Some(tokenizer)) = (checkpoint.load(device)?, checkpoint.tokenizer()?) else {
        return Ok(None);
    };
    let generator = TextGenerator::new(model, tokenizer).with_defaults(checkpoint.generation()?);
    Ok(Some(generator.generate(prompt, &GenerationOptions::new(20).greedy())?.text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_folder_says_what_it_is_and_goes_on_with_a_text() {
        let home = tempfile::tempdir().unwrap();
        firelight_examples::tiny_model("gpt2-plain", 48, &[], home.path()).unwrap();
        let model = PublishedModel::open(locate(home.path(), |_| ()).unwrap()).unwrap();
        assert_eq!(describe(&model), "language: 2 layers of width 16, 8000 parameters");
        let attention = "attention.projection.qkv";
        assert!(model.report().iter().any(|line| line.contains("attn.c_attn") && line.contains(attention)));
        let text = continued(&model, "a rose", &Device::flex()).unwrap().unwrap();
        assert!(text.chars().count() <= 20, "{text}"); // Its end token may come first.
        assert_eq!(continued(&model, "a rose", &Device::flex()).unwrap(), Some(text));
    }

    #[test]
    fn a_model_of_images_writes_nothing() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pretrained/vit-classes");
        let model = PublishedModel::open(fixture).unwrap();
        assert_eq!(continued(&model, "a", &Device::flex()).unwrap(), None);
    }
}
