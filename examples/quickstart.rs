//! Quickstart: compose a decoder from parts, train a tiny GPT on generated stories, let it write.
//!
//! Command: cargo run --release -p firelight-examples --example quickstart
//! Time: about ten seconds once it is built, on two CPU cores.
//! Expect: logits [2, 16, 65], a table of 96,640 parameters, a validation loss of about 1.26 nats per character, and words
//! that begin to make sense side by side.

use std::path::Path;

use anyhow::Result;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use firelight::generation::GenerationOptions;
use firelight::language::{Run, RunRequest, TextGenerator, TrainedRun};
use firelight::nn::{
    Activation, LmHead, LmHeadConfig, NormConfig, ParamBuilder, ParameterReport, Pass, PositionConfig, SequenceInput,
    TokenEmbedding, TokenEmbeddingConfig, Transformer, TransformerConfig,
};
use firelight::storage::Existing;

/// The settings of the built-in recipe that are changed, so that the training takes seconds.
const SMALL: [(&str, &str); 9] = [
    ("data.stories", "200000"),
    ("model.d_model", "64"),
    ("model.n_layers", "2"),
    ("model.max_seq_len", "64"),
    ("training.batch_size", "8"),
    ("training.steps", "500"),
    ("training.evaluate_every", "250"),
    ("schedule.warmup_steps", "25"),
    ("schedule.steps", "500"),
];

/// A decoder by hand: the three parts that every language model has.
#[derive(Module, Debug)]
struct Decoder {
    embedding: TokenEmbedding,
    stack: Transformer,
    head: LmHead,
}

impl Decoder {
    /// Every part draws its weights from a stream of its own, so each needs a name.
    fn new(vocab_size: usize, stack: &TransformerConfig, params: &ParamBuilder) -> Self {
        Self {
            embedding: TokenEmbeddingConfig::new(vocab_size, stack.d_model).init_with(&params.scope("embedding")),
            stack: stack.init_with(&params.scope("stack")),
            head: LmHeadConfig::new(stack.d_model, vocab_size).init_with(&params.scope("head")),
        }
    }

    /// `[B, T] -> [B, T, V]`.
    fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let x = self.embedding.forward(tokens); // [B, T, D]
        let x = self.stack.forward(x, &SequenceInput::default(), &mut Pass::default());
        self.head.forward(x, &self.embedding)
    }
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let device = firelight::device::select(None)?;
    compose(&device);
    let run = train(&device, Path::new("runs/quickstart"))?;
    show(run)
}

/// A LLaMA in small: rotary positions, RMSNorm, SwiGLU, two query heads for each key and value head, no biases.
fn compose(device: &Device) {
    let config = TransformerConfig::new(64, 4, 2)
        .with_n_kv_heads(2)
        .with_position(PositionConfig::rotary())
        .with_norm(NormConfig::rms())
        .with_activation(Activation::SwiGlu)
        .with_bias(false);
    let decoder = Decoder::new(65, &config, &ParamBuilder::new(device, 7));
    let logits = decoder.forward(Tensor::zeros([2, 16], device));
    println!("logits {:?}\n{}\n", logits.dims(), ParameterReport::of(&decoder));
}

/// The language task from recipe to run folder: text, tokenizer, batches, training, evaluation.
fn train(device: &Device, out: &Path) -> Result<TrainedRun> {
    let request = RunRequest::new(device).with_out(out).with_existing(Existing::Force);
    let request = SMALL.iter().fold(request, |request, (key, value)| request.with_override(key, value));
    let run = Run::prepare(&request)?;
    println!("{} parameters on {} tokens", run.cost().parameters, run.corpus.training_len());
    Ok(run.fit()?)
}

fn show(run: TrainedRun) -> Result<()> {
    if let Some(evaluation) = run.evaluation {
        println!("validation loss {:.3} after {} steps", evaluation.loss, run.steps);
    }
    let generator = TextGenerator::from(run);
    let options = GenerationOptions::new(160).with_temperature(0.5).with_seed(1);
    println!("One day {}", generator.generate("One day ", &options)?.text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_learns() {
        let device = firelight::device::select(None).unwrap();
        let home = tempfile::tempdir().unwrap();
        compose(&device);
        let run = train(&device, &home.path().join("run")).unwrap();
        assert!(run.evaluation.unwrap().loss < 1.6, "words are learnt, not stories");
        show(run).unwrap();
    }
}
