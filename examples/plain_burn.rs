//! Trains Firelight's language model in Burn's own loop, without Firelight's: `SupervisedTraining` with Burn's metrics, our
//! optimiser and our schedule, epochs and all.
//!
//! Command: cargo run --release -p firelight-examples --example plain_burn
//! Time: about half a minute on two CPU cores.
//! Expect: Burn's progress and a table of metrics at the end, and a validation loss below 1 nat per character.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use burn::train::metric::LossMetric;
use burn::train::{Learner, SupervisedTraining};
use firelight::data::{StepLoader, Tokenizer, TokenizerConfig, Tokens, WindowDataset, stories};
use firelight::language::{LanguageModelConfig, LmBatch, LmBatcher, LmTask};
use firelight::nn::{LossConfig, ParamBuilder};
use firelight::training::metrics::Perplexity;
use firelight::training::{Evaluation, OptimizerConfig, ScheduleConfig, evaluate};

/// The size of the whole thing.
struct Sizes {
    characters: usize,
    steps: usize,
    epochs: usize,
}

/// The loader of a part of the text: shuffled batches for `steps` steps, or all of it in order.
fn loader(tokens: Tokens, steps: Option<usize>, device: &Device) -> Result<Arc<dyn DataLoader<LmBatch>>> {
    Ok(match steps {
        Some(steps) => {
            let windows = WindowDataset::for_training(tokens, 64)?;
            Arc::new(StepLoader::new(windows, LmBatcher, 16, device).shuffled(1, 0..steps))
        }
        None => Arc::new(StepLoader::new(WindowDataset::for_evaluation(tokens, 64)?, LmBatcher, 64, device)),
    })
}

fn train(sizes: &Sizes, directory: &Path) -> Result<Evaluation> {
    // Data.
    let device = Device::default();
    let text = stories(1, sizes.characters);
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &text)?;
    let (training, validation) = Tokens::from(tokenizer.encode(&text)?).split(text.len() * 9 / 10);
    let train = loader(training, Some(sizes.steps), &device)?;
    let valid = loader(validation, None, &device)?;

    // Model.
    let config = LanguageModelConfig::new(tokenizer.vocab_size(), 64, 4, 2).with_max_seq_len(64);
    let model = LmTask::new(config.init_with(&ParamBuilder::new(&device.clone().autodiff(), 0)), LossConfig::default());
    let optimizer = OptimizerConfig { learning_rate: 4e-3, ..OptimizerConfig::default() };
    let all = sizes.steps * sizes.epochs;
    let schedule = ScheduleConfig { warmup_steps: all / 20, steps: Some(all), ..ScheduleConfig::default() };

    // Fit.
    let learner = Learner::new(model.clone(), optimizer.init(&model), schedule.init(optimizer.learning_rate));
    let result = SupervisedTraining::new(directory, train, valid.clone())
        .metrics((LossMetric::new(), Perplexity::new()))
        .num_epochs(sizes.epochs)
        .summary()
        .launch(learner);

    // Show.
    Ok(evaluate(&result.model, valid.as_ref())?)
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let evaluation = train(&Sizes { characters: 200_000, steps: 250, epochs: 2 }, Path::new("runs/plain-burn"))?;
    println!("validation loss {:.4} nats per character", evaluation.loss);
    Ok(())
}

#[test]
fn burns_own_loop_learns_at_toy_size() {
    let home = tempfile::tempdir().unwrap();
    let evaluation = train(&Sizes { characters: 8_000, steps: 30, epochs: 2 }, home.path()).unwrap();
    assert!(evaluation.loss < 2.8, "{}", evaluation.loss);
}
