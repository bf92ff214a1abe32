//! A recurrent network beside a Transformer of the same number of parameters: Burn's LSTM in a language model, trained by `fit` on the
//! same batches by the same optimiser.
//!
//! Command: cargo run --release -p firelight-examples --example recurrent_baseline -- [TEXT] [--toy]
//! (TEXT: a file, such as tiny Shakespeare; without it stories are made up)
//! Time: about five minutes on one CPU core, seconds with --toy.
//! Expect: two lines with parameters, the validation loss in nats per character, and the time of the training.

use std::time::Instant;

use anyhow::Result;
use burn::nn::{Lstm, LstmConfig};
use burn::prelude::*;
use firelight::language::{LanguageModelConfig, LmBatch, LmTask};
use firelight::nn::{LmHead, LmHeadConfig, LossConfig, ParamBuilder, TokenEmbedding, TokenEmbeddingConfig, TokenLoss};
use firelight::training::{Objective, Switches, TrainLoss, TrainingModule, ValidOutput, evaluate};
use firelight_examples::{Characters, fitted, measured, minimised, toy_or_words};

/// Layers of the LSTM.
const LAYERS: usize = 2;

/// A language model with LSTMs where a Transformer would stand.
#[derive(Module, Debug)]
struct Recurrent {
    embedding: TokenEmbedding,
    layers: Vec<Lstm>,
    head: LmHead,
}

impl Recurrent {
    fn new(vocab_size: usize, width: usize, device: &Device) -> Self {
        device.seed(1);
        let params = ParamBuilder::new(device, 1);
        let embedding = TokenEmbeddingConfig::new(vocab_size, width).with_scale(true);
        Self {
            embedding: embedding.init_with(&params.scope("embedding")),
            layers: (0..LAYERS).map(|_| LstmConfig::new(width, width, true).init(device)).collect(),
            head: LmHeadConfig::new(width, vocab_size).init_with(&params.scope("head")),
        }
    }

    fn loss(&self, batch: LmBatch) -> TokenLoss {
        let x = self.embedding.forward(batch.inputs); // [B, T, D]
        let hidden = self.layers.iter().fold(x, |x, layer| layer.forward(x, None).0);
        LossConfig::new().init().forward_head(self.head.lazy(hidden, &self.embedding), batch.targets, batch.padding)
    }
}

impl Objective for Recurrent {
    type Batch = LmBatch;
    type Loss = LossConfig;
    type Answers = ();

    fn train_loss(&self, batch: LmBatch, _: &LossConfig, _: Switches) -> TrainLoss {
        minimised(self.loss(batch))
    }

    fn valid_step(&self, batch: LmBatch, _: Switches) -> ValidOutput<()> {
        measured(self.loss(batch))
    }
}

/// The parameters of a [`Recurrent`]: four gates a layer, each with two matrices and two biases, and the embedding, which is the head.
fn parameters(vocab_size: usize, width: usize) -> usize {
    LAYERS * 8 * width * (width + 1) + vocab_size * width
}

/// What is trained: the width and the layers of the Transformer, the length of a window, and steps.
type Sizes = [usize; 4];
const FULL: Sizes = [128, 4, 64, 1_000];
const TOY: Sizes = [16, 1, 8, 20];

/// Trains a model, prints a line, and returns the validation loss.
fn trained<O: Objective<Batch = LmBatch>>(
    name: &str,
    task: TrainingModule<O>,
    text: &Characters,
    [length, steps]: [usize; 2],
    device: &Device,
) -> Result<f64> {
    let (parameters, begun) = (task.num_params(), Instant::now());
    let loaders = [text.training(length, steps, device)?, text.validation(length, device)?];
    let task = fitted(task, loaders, steps, 3e-3)?;
    let seconds = begun.elapsed().as_secs_f64();
    let loss = evaluate(&task, text.validation(length, device)?.as_ref())?.loss;
    println!("{name}: {parameters} parameters, {loss:.4} nats per character, {seconds:.1} s");
    Ok(loss)
}

fn measure(text: &Characters, [width, layers, length, steps]: Sizes) -> Result<[f64; 2]> {
    let (device, loss) = (firelight::device::select(None)?, LossConfig::default());
    let autodiff = device.clone().autodiff();
    let config = LanguageModelConfig::new(text.vocab_size, width, 4, layers).with_max_seq_len(length);
    let transformer = LmTask::new(config.init_with(&ParamBuilder::new(&autodiff, 1)), loss);
    let most = transformer.num_params();
    let widest = (1..).take_while(|&width| parameters(text.vocab_size, width) <= most).last().unwrap_or(1);
    let recurrent = TrainingModule::new(Recurrent::new(text.vocab_size, widest, &autodiff), loss);
    Ok([
        trained("Transformer", transformer, text, [length, steps], &device)?,
        trained("LSTM", recurrent, text, [length, steps], &device)?,
    ])
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let (toy, words) = toy_or_words();
    let text = Characters::read(words.first(), if toy { 4_000 } else { 400_000 })?;
    measure(&text, if toy { TOY } else { FULL }).map(drop)
}

#[test]
fn both_learn_at_toy_size_and_the_parameters_are_counted() {
    let text = Characters::read(None, 4_000).unwrap();
    assert_eq!(Recurrent::new(text.vocab_size, 6, &Device::flex()).num_params(), parameters(text.vocab_size, 6));
    let losses = measure(&text, TOY).unwrap();
    assert!(losses.iter().all(|loss| *loss < (text.vocab_size as f64).ln()), "{losses:?}");
}
