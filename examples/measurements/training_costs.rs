//! Measures what a training costs beside its arithmetic: the share of a step that the loop itself takes, the memory after many
//! steps, and how long a checkpoint holds the training up.
//!
//! Command: MIMALLOC_PURGE_DELAY=-1 cargo run --release -p firelight-examples --example training_costs -- [--toy]
//! Time: about six minutes on two CPU cores and 6 GB of memory, seconds with --toy.
//! Expect: three lines; docs/results.md has those of our machines.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use burn::data::dataloader::DataLoader;
use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use burn::train::{TrainOutput, TrainStep};
use firelight::data::{StepLoader, Tokenizer, TokenizerConfig, Tokens, WindowDataset, stories};
use firelight::kernels::awake;
use firelight::language::{LanguageModelConfig, LmBatch, LmBatcher, LmTask};
use firelight::storage::{Existing, ModelFolder};
use firelight::training::{
    FitInput, MetricsLog, Observer, OptimizerConfig, StepReport, TrainingConfig, TrainingError, clip_global_norm, fit,
};

/// The allocator of the command; the variable above keeps freed pages as the command does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is trained, and for how long.
struct Sizes {
    /// Steps of one measured stretch, and how many stretches of each kind are measured in turn.
    loop_steps: usize,
    rounds: usize,
    /// Steps over which memory is watched.
    memory_steps: usize,
    /// The model whose checkpoint is timed.
    checkpointed: LanguageModelConfig,
}

impl Sizes {
    fn full() -> Self {
        let gpt2 = LanguageModelConfig::new(50_257, 768, 12, 12).with_max_seq_len(1024);
        Self { loop_steps: 100, rounds: 7, memory_steps: 10_000, checkpointed: gpt2 }
    }

    fn toy() -> Self {
        let small = LanguageModelConfig::new(65, 32, 2, 2).with_max_seq_len(32);
        Self { loop_steps: 3, rounds: 1, memory_steps: 100, checkpointed: small }
    }
}

/// nanoGPT's model for a CPU.
fn baby() -> LanguageModelConfig {
    LanguageModelConfig::new(65, 128, 4, 4).with_max_seq_len(64)
}

/// Shuffled batches of generated stories.
fn loader(
    config: &LanguageModelConfig,
    batch_size: usize,
    steps: usize,
    device: &Device,
) -> Result<StepLoader<firelight::data::Window, LmBatch>> {
    let text = stories(1, 100_000);
    let tokens = Tokenizer::train(&TokenizerConfig::Char, &text)?.encode(&text)?;
    let windows = WindowDataset::for_training(Tokens::from(tokens), config.transformer.max_seq_len.min(64))?;
    Ok(StepLoader::new(windows, LmBatcher, batch_size, device).shuffled(1, 0..steps))
}

fn task(config: &LanguageModelConfig, device: &Device) -> LmTask {
    LmTask::new(config.init(&device.clone().autodiff()), Default::default())
}

/// A whole training with a run folder and metrics, reported to `observer`.
fn train(
    config: &LanguageModelConfig,
    training: TrainingConfig,
    observer: Box<dyn Observer>,
    device: &Device,
) -> Result<()> {
    let home = tempfile::tempdir()?;
    let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse)?;
    let train = loader(config, training.batch_size, training.steps, device)?;
    let valid = loader(config, 1, 1, device)?;
    let observers: Vec<Box<dyn Observer>> = vec![Box::new(MetricsLog::create(folder.metrics())?), observer];
    let input =
        FitInput { training, observers, folder: Some(folder), ..FitInput::new(Arc::new(train), Arc::new(valid)) };
    fit(task(config, device), input)?;
    Ok(())
}

/// Notes when each step was done and how much memory the process held.
#[derive(Clone, Default)]
struct Watch {
    steps: Arc<Mutex<Vec<(Instant, usize)>>>,
}

impl Observer for Watch {
    fn step(&mut self, _report: &StepReport) -> Result<(), TrainingError> {
        self.steps.lock().unwrap().push((Instant::now(), resident_mebibytes()));
        Ok(())
    }
}

impl Watch {
    /// The time from each step to the next.
    fn gaps(&self) -> Vec<Duration> {
        self.steps.lock().unwrap().windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
    }
}

/// The resident size; 0 where the system does not tell.
fn resident_mebibytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096 / (1 << 20)
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations[durations.len() / 2]
}

/// Forward, backward, clipping and update on batches that lie ready: the arithmetic of a step and nothing else.
fn bare_steps(steps: usize, device: &Device) -> Result<Vec<Duration>> {
    let config = OptimizerConfig::default();
    let mut model = task(&baby(), device);
    let mut optimizer: ModuleOptimizer = config.init(&model);
    let batches: Vec<LmBatch> =
        loader(&baby(), 12, steps, &device.clone().autodiff())?.iter().collect::<Result<_, _>>()?;
    let mut step = |batch| -> Result<()> {
        let TrainOutput { grads, .. } = TrainStep::step(&model, batch);
        let (gradients, _) = clip_global_norm(&model, grads, config.clip_norm)?;
        model = optimizer.step(config.learning_rate, model.clone(), gradients);
        Ok(())
    };
    let timed = batches.into_iter().map(|batch| {
        let began = Instant::now();
        awake(device, || step(batch))?;
        Ok(began.elapsed())
    });
    timed.collect()
}

/// The share of a step's time that is not its arithmetic.
fn loop_share(sizes: &Sizes, device: &Device) -> Result<()> {
    let (mut whole, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..sizes.rounds {
        let watch = Watch::default();
        let training = TrainingConfig { steps: sizes.loop_steps, evaluate_every: 0, ..TrainingConfig::default() };
        train(&baby(), training, Box::new(watch.clone()), device)?;
        whole.extend(watch.gaps());
        bare.extend(bare_steps(sizes.loop_steps, device)?);
    }
    let [whole, bare] = [whole, bare].map(|times| median(times).as_secs_f64() * 1e3);
    println!(
        "loop: a step takes {whole:.2} ms, its arithmetic {bare:.2} ms: {:.1} % more",
        (whole / bare - 1.0) * 100.0
    );
    Ok(())
}

/// The memory of the process while a small model is trained on and on.
fn memory(sizes: &Sizes, device: &Device) -> Result<()> {
    let watch = Watch::default();
    let (steps, small) = (sizes.memory_steps, LanguageModelConfig::new(65, 32, 2, 2).with_max_seq_len(32));
    let training = TrainingConfig {
        steps,
        batch_size: 4,
        evaluate_every: steps / 10,
        checkpoint_every: steps / 10,
        ..TrainingConfig::default()
    };
    train(&small, training, Box::new(watch.clone()), device)?;
    let held = watch.steps.lock().unwrap();
    println!(
        "memory: {} MiB after {} steps, {} MiB after {steps}",
        held[steps / 5 - 1].1,
        steps / 5,
        held[steps - 1].1
    );
    Ok(())
}

/// How much longer than the others the longest step took, and all steps together, when a checkpoint was written half-way.
fn checkpoint(sizes: &Sizes, device: &Device) -> Result<()> {
    let watch = Watch::default();
    let training = TrainingConfig {
        steps: 30,
        batch_size: 1,
        evaluate_every: 0,
        checkpoint_every: 15,
        ..TrainingConfig::default()
    };
    train(&sizes.checkpointed, training, Box::new(watch.clone()), device)?;
    let gaps = watch.gaps();
    let (before, after) = gaps.split_at(14);
    let seconds = |gaps: &[Duration]| gaps.iter().sum::<Duration>().as_secs_f64();
    let typical = median(before.to_vec()).as_secs_f64();
    println!(
        "checkpoint: {:.0} million parameters, a step takes {typical:.2} s; with a checkpoint to write the longest takes {:.2} s \
         more and {} steps together {:.2} s",
        sizes.checkpointed.init(device).num_params() as f64 / 1e6,
        after.iter().max().copied().unwrap_or_default().as_secs_f64() - typical,
        after.len(),
        seconds(after) - typical * after.len() as f64
    );
    Ok(())
}

fn measure(sizes: &Sizes) -> Result<()> {
    let device = Device::default();
    loop_share(sizes, &device)?;
    memory(sizes, &device)?;
    checkpoint(sizes, &device)
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let toy = std::env::args().any(|word| word == "--toy");
    measure(&if toy { Sizes::toy() } else { Sizes::full() })
}

#[test]
fn all_three_are_measured_at_toy_size() {
    measure(&Sizes::toy()).unwrap();
}
