//! A published model, from a folder as Hugging Face writes it: what it is, what it says, and how far it is from what
//! `transformers` computes.
//!
//! Command: cargo run --release -p firelight-examples --example published_model -- gpt2/ "The meaning of life is"
//! Time: a second for a model of 124 million parameters, once it is built.
//! Expect: the sizes of the model, and for a language model with a tokenizer a continuation of the prompt.

use std::path::Path;
use std::process::ExitCode;

use burn::tensor::Device;
use firelight::generation::GenerationOptions;
use firelight::language::TextGenerator;
use firelight::pretrained::{AutoModel, PublishedModel};
use firelight::storage::TaskError;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, prompt] = &arguments[..] else {
        eprintln!("usage: published_model FOLDER PROMPT");
        return ExitCode::from(2);
    };
    match describe(Path::new(folder)).and_then(|text| Ok(text + &continued(Path::new(folder), prompt)?)) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            firelight::problems(&error).iter().for_each(|problem| eprintln!("error: {problem}"));
            ExitCode::FAILURE
        }
    }
}

/// What the headers say, before a weight is read.
fn describe(folder: &Path) -> Result<String, TaskError> {
    let model = PublishedModel::open(folder)?;
    let stack = model.structure().stacks()[0];
    let parameters: usize = model.plan().sources.values().map(|source| source.shape.iter().product::<usize>()).sum();
    let (layers, width) = (stack.n_layers, stack.d_model);
    Ok(format!("{}: {layers} layers of width {width}, {parameters} parameters\n", model.structure().task()))
}

/// A continuation of the prompt; of other models nothing.
fn continued(folder: &Path, prompt: &str) -> Result<String, TaskError> {
    let checkpoint = PublishedModel::open(folder)?;
    let (AutoModel::Language(model), Some(tokenizer)) = (checkpoint.load(&Device::default())?, checkpoint.tokenizer()?)
    else {
        return Ok(String::new());
    };
    let options = GenerationOptions::new(40).greedy();
    let generator = TextGenerator::new(model, tokenizer).with_defaults(checkpoint.generation()?);
    let text = generator.generate(prompt, &options)?.text;
    Ok(format!("{prompt}{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pretrained").join(name)
    }

    #[test]
    fn a_folder_says_what_it_is() {
        let text = describe(&fixture("gpt2-plain")).unwrap();
        assert_eq!(text, "language: 2 layers of width 16, 8000 parameters\n");
        assert_eq!(continued(&fixture("vit-classes"), "a").unwrap(), "", "it writes nothing");
    }
}
