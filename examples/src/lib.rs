//! Short programs that show Firelight as a library; run one with `cargo run --release -p firelight-examples --example quickstart`.

mod comparison;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use firelight::data::{Tokenizer, TokenizerConfig, stories};
use firelight::generation::{GenerationOptions, Sampler};
use firelight::nn::{
    Layer, LmHead, LmHeadConfig, LossConfig, ParamBuilder, Pass, SequenceInput, TokenEmbedding, TokenEmbeddingConfig,
    Transformer,
};

pub use comparison::{Batches, Characters, fitted, measured, minimised, right, toy_or_words};

/// Runs a program and prints its error as the command does: a line for each problem that says what to do, and an exit code that is not
/// 0. A `main` that returns a `Result` would print the error's fields instead.
pub fn report(program: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            firelight::problems(error.as_ref()).iter().for_each(|problem| eprintln!("error: {problem}"));
            ExitCode::FAILURE
        }
    }
}

/// The words behind the name of the program, as many as `usage` names.
///
/// # Errors
/// If there are others, with the usage.
pub fn words<const N: usize>(usage: &str) -> anyhow::Result<[String; N]> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    words.try_into().map_err(|found: Vec<String>| {
        anyhow::anyhow!("expected {usage} behind the `--`, but found {} arguments: give {N}", found.len())
    })
}

/// Whether `--toy` is behind the name of the program, and the words beside it, `most` of them.
///
/// # Errors
/// If there are more, or another option, with the usage.
pub fn toy_and_words(most: usize, usage: &str) -> anyhow::Result<(bool, Vec<String>)> {
    parted(std::env::args().skip(1), most, usage)
}

fn parted(words: impl Iterator<Item = String>, most: usize, usage: &str) -> anyhow::Result<(bool, Vec<String>)> {
    let (toy, others): (Vec<String>, Vec<String>) = words.partition(|word| word == "--toy");
    let unknown = others.iter().enumerate().find(|(index, word)| *index >= most || word.starts_with('-'));
    if let Some((_, word)) = unknown {
        anyhow::bail!("unknown argument `{word}`: expected {usage} behind the `--`");
    }
    Ok((!toy.is_empty(), others))
}

/// Takes `steps` steps of AdamW by the loss that a model has in each. Returns the model and the losses, and prints every sixth part of
/// them.
pub fn train<M: Module>(mut model: M, steps: usize, loss: impl Fn(&M, usize) -> Tensor<1>) -> (M, Vec<f32>) {
    let (mut optimizer, mut losses) = (AdamWConfig::new().init(), Vec::new());
    for step in 0..steps {
        let loss = loss(&model, step);
        losses.push(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(3e-3, model, gradients);
    }
    println!("loss {:?}", losses.iter().step_by((steps / 6).max(1)).chain(losses.last()).collect::<Vec<_>>());
    (model, losses)
}

/// Writes `length` tokens behind a prompt and prints them. `read` gives the logits of the tokens that the model has not read yet,
/// `[1, T] -> [1, T, V]`: the prompt at once, then one token at a time.
///
/// # Errors
/// If the prompt has characters that the tokenizer does not know, or the logits are no distribution.
pub fn write(
    prompt: &str,
    length: usize,
    (tokenizer, device): (&Tokenizer, &Device),
    mut read: impl FnMut(Tensor<2, Int>) -> Tensor<3>,
) -> anyhow::Result<()> {
    let sampler = Sampler::new(&GenerationOptions::new(1).with_temperature(0.5))?;
    let (mut unread, mut written) = (tokenizer.encode(prompt)?, Vec::new());
    for step in 0..length {
        let tokens = Tensor::<1, Int>::from_ints(unread.as_slice(), device).unsqueeze();
        let last = read(tokens).narrow(1, unread.len() - 1, 1).squeeze_dim(1); // [1, V]
        unread = sampler.sample(last, step)?.ids;
        written.extend(unread.clone());
    }
    println!("{prompt}{}", tokenizer.decode(&written));
    Ok(())
}

/// A language model of width 64 around a stack of any layers.
#[derive(Module, Debug)]
struct Decoder<L: Layer> {
    embedding: TokenEmbedding,
    head: LmHead,
    stack: Transformer<L>,
}

impl<L: Layer + 'static> Decoder<L> {
    fn new(vocab_size: usize, stack: Transformer<L>, params: &ParamBuilder) -> Self {
        let embedding = TokenEmbeddingConfig::new(vocab_size, 64).init_with(&params.scope("embedding"));
        let head = LmHeadConfig::new(64, vocab_size).init_with(&params.scope("head"));
        Self { embedding, head, stack }
    }

    /// `[B, T] -> [B, T, V]`; with a cache the tokens continue where it ends.
    fn forward(&self, tokens: Tensor<2, Int>, mut pass: Pass) -> Tensor<3> {
        let hidden = self.stack.forward(self.embedding.forward(tokens), &SequenceInput::default(), &mut pass);
        self.head.forward(hidden, &self.embedding)
    }
}

/// Trains a decoder around a stack of width 64 on generated stories, for `steps` steps of eight windows, and lets it write `length`
/// characters through its cache. Returns the losses.
///
/// # Errors
/// If no device can be found.
pub fn try_on_stories<L: Layer + 'static>(
    stack: impl FnOnce(&ParamBuilder) -> Transformer<L>,
    steps: usize,
    length: usize,
) -> anyhow::Result<Vec<f32>> {
    let device = firelight::device::select(None)?;
    let text = stories(1, steps * 520);
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &text)?;
    let ids = Tensor::<1, Int>::from_ints(tokenizer.encode(&text)?.as_slice(), &device.clone().autodiff());
    let params = ParamBuilder::new(&ids.device(), 1);
    let model = Decoder::new(tokenizer.vocab_size(), stack(&params.scope("stack")), &params);
    let (model, losses) = train(model, steps, |model, step| {
        let windows = ids.clone().narrow(0, step * 520, 520).reshape([8, 65]);
        let logits = model.forward(windows.clone().narrow(1, 0, 64), Pass::default());
        LossConfig::new().init().forward(logits, windows.narrow(1, 1, 64), None).mean()
    });
    let (mut cache, model) = (model.stack.cache(8 + length), model.valid());
    write("One day ", length, (&tokenizer, &device), |tokens| model.forward(tokens, Pass::cached(&mut cache)))?;
    Ok(losses)
}

/// A published model in small, for the tests of the examples: random weights, with a tokenizer of characters that has as many tokens as
/// the model. `special` tokens are the last of them.
///
/// # Errors
/// If a file cannot be copied, or the tokenizer has another size than the model's vocabulary.
pub fn tiny_model(name: &str, size: usize, special: &[&str], folder: &Path) -> anyhow::Result<()> {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pretrained").join(name);
    fs::create_dir_all(folder)?;
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture.join(file), folder.join(file))?;
    }
    let characters = ('a'..='z').chain([' ', '.']).chain('A'..='Z').chain('0'..='9');
    let characters: String = characters.take(size - special.len()).collect();
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &characters)?.with_special_tokens(special)?;
    anyhow::ensure!(tokenizer.vocab_size() == size, "the tokenizer has {} tokens", tokenizer.vocab_size());
    Ok(tokenizer.save(folder.join("tokenizer.json"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_example_and_none_is_long() {
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        let [table, manifest] = ["README.md", "Cargo.toml"].map(|name| fs::read_to_string(home.join(name)).unwrap());
        let paths = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
        let programs: Vec<_> = paths.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect();
        assert!(programs.len() >= 18, "{programs:?}");
        for path in programs {
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(table.contains(&format!("| [{name}]({name}.rs) |")), "README.md does not show {name}");
            assert!(manifest.contains(&format!("name = \"{name}\"")), "Cargo.toml does not build {name}");
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines <= 120, "{name} has {lines} lines: expected at most 120");
        }
    }

    #[test]
    fn what_is_neither_toy_nor_a_word_that_is_asked_for_is_refused() {
        let parted = |line: &str| parted(line.split_whitespace().map(str::to_string), 1, "[DIR] [--toy]");
        assert_eq!(parted("").unwrap(), (false, Vec::new()));
        assert_eq!(parted("images --toy").unwrap(), (true, vec!["images".to_string()]));
        for (line, word) in [("--toys", "--toys"), ("images more", "more"), ("images --force", "--force")] {
            let error = parted(line).unwrap_err().to_string();
            assert_eq!(error, format!("unknown argument `{word}`: expected [DIR] [--toy] behind the `--`"));
        }
    }

    #[test]
    fn a_few_steps_are_taken_and_printed() {
        let device = Device::flex().autodiff();
        let model = TokenEmbeddingConfig::new(3, 2).init_with(&ParamBuilder::new(&device, 1));
        let tokens = Tensor::<2, Int>::from_ints([[0, 1]], &device);
        let (_, losses) = train(model, 2, |model, _| model.forward(tokens.clone()).sum());
        assert!(losses.len() == 2 && losses[1] < losses[0], "{losses:?}");
    }

    #[test]
    fn other_numbers_of_words_are_refused_with_the_usage() {
        let error = words::<77>("MODEL TEXT").unwrap_err().to_string();
        assert!(error.starts_with("expected MODEL TEXT behind the `--`, but found ") && error.ends_with("give 77"));
    }
}
