//! What is measured: one step of each kind of work.

use anyhow::Result;
use burn::tensor::{Device, Distribution, Int, Tensor};
use firelight::core::{ParamBuilder, Pass, SequenceInput};
use firelight::kernels::{AttentionOptions, attention, awake};
use firelight::language::{LanguageModel, LanguageModelConfig, LmBatch, LmTask};
use firelight::training::{OptimizerConfig, Recompute, ScheduleConfig, ScheduleKind, Trainer};

use super::{Bench, Pattern, Shape, What};

/// Tokens of a prompt that is only read.
const PREFILL: usize = 512;
/// Tokens of a prompt that is continued, and of its continuation.
const DECODE: [usize; 2] = [128, 64];

/// What is done again and again.
type Step = Box<dyn FnMut() -> Result<()> + Send>;

/// A step that can be repeated.
pub(super) struct Workload {
    /// What and at which shape.
    pub(super) name: String,
    /// Tokens that a step works on.
    pub(super) tokens: usize,
    step: Step,
    device: Device,
}

impl Workload {
    pub(super) fn new(bench: &Bench, device: &Device) -> Result<Self> {
        let shape = bench.shape();
        let (tokens, step): (usize, Step) = match bench.what {
            What::Train => training(shape, bench.recompute, device)?,
            What::Prefill => (PREFILL, prefill(shape, device)),
            What::Decode => (DECODE[1], decode(shape, device)),
            What::Attention => (bench.length[0], attend(bench.length[0], bench.pattern, device)),
        };
        Ok(Self { name: name(bench), tokens, step, device: device.clone() })
    }

    /// Once, until the device has finished.
    pub(super) fn step(&mut self) -> Result<()> {
        awake(&self.device, &mut self.step)?;
        Ok(self.device.sync()?)
    }
}

fn name(bench: &Bench) -> String {
    let shape = match bench.shape() {
        Shape::Baby => "baby",
        Shape::Char6 => "char6",
        Shape::Char12 => "char12",
        Shape::Gpt2 => "gpt2",
    };
    match bench.what {
        What::Train if bench.recompute != Recompute::None => format!("train-{shape}-recompute-{}", bench.recompute),
        What::Train => format!("train-{shape}"),
        What::Prefill => format!("prefill-{shape}"),
        What::Decode => format!("decode-{shape}"),
        What::Attention => format!("attention-{}", bench.length[0]),
    }
}

impl Shape {
    fn config(self) -> LanguageModelConfig {
        match self {
            Self::Baby => LanguageModelConfig::new(65, 128, 4, 4).with_max_seq_len(64),
            Self::Char6 => LanguageModelConfig::new(65, 384, 6, 6).with_max_seq_len(256),
            Self::Char12 => LanguageModelConfig::new(65, 384, 6, 12).with_max_seq_len(256),
            Self::Gpt2 => LanguageModelConfig::new(50_257, 768, 12, 12).with_max_seq_len(1024),
        }
    }

    fn batch_size(self) -> usize {
        match self {
            Self::Baby => 12,
            Self::Char6 | Self::Char12 | Self::Gpt2 => 8,
        }
    }
}

/// Forward, backward, clipping to norm 1 and AdamW, through the trainer that `firelight train` drives.
fn training(shape: Shape, recompute: Recompute, device: &Device) -> Result<(usize, Step)> {
    let (config, batch_size) = (shape.config(), shape.batch_size());
    recompute.check(device)?;
    let device = match recompute {
        Recompute::Burn => device.clone().autodiff().gradient_checkpointing(),
        _ => device.clone().autodiff(),
    };
    let model = config.init_with(&ParamBuilder::new(&device, 0));
    let task = LmTask::new(model, Default::default()).with_recompute(recompute);
    let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
    let mut trainer = Trainer::new(task, OptimizerConfig::default(), schedule, 0);
    let seq_len = config.transformer.max_seq_len;
    let ids = || ids([batch_size, seq_len], config.vocab_size, &device);
    let batch = LmBatch { inputs: ids(), targets: ids(), padding: None, documents: None };
    let step = move || Ok(trainer.step(batch.clone()).map(drop)?);
    Ok((batch_size * seq_len, Box::new(step)))
}

fn prefill(shape: Shape, device: &Device) -> Step {
    let model = shape.config().init(device);
    let prompt = ids([1, PREFILL], model.vocab_size(), device);
    Box::new(move || read(next(&model, prompt.clone(), &mut Pass::cached(&mut model.cache()))))
}

fn decode(shape: Shape, device: &Device) -> Step {
    let model = shape.config().init(device);
    let [prompt, length] = DECODE;
    let prompt = ids([1, prompt], model.vocab_size(), device);
    Box::new(move || {
        let mut cache = model.cache();
        let mut token = next(&model, prompt.clone(), &mut Pass::cached(&mut cache));
        for _ in 1..length {
            token = next(&model, token, &mut Pass::cached(&mut cache));
        }
        read(token)
    })
}

/// The most probable token after the last of `tokens`, `[1, T] -> [1, 1]`.
fn next(model: &LanguageModel, tokens: Tensor<2, Int>, pass: &mut Pass) -> Tensor<2, Int> {
    let length = tokens.dims()[1];
    let hidden = model.hidden(tokens, &SequenceInput::default(), pass).narrow(1, length - 1, 1);
    model.logits(hidden).argmax(2).squeeze_dim(2)
}

/// One attention of 8 heads of 64 over `length` tokens, and the gradients of the sum of its output.
fn attend(length: usize, pattern: Pattern, device: &Device) -> Step {
    let device = device.clone().autodiff();
    let random = || Tensor::<4>::random([1, 8, length, 64], Distribution::Normal(0.0, 1.0), &device).require_grad();
    let [query, key, value] = [random(), random(), random()];
    let options = match pattern {
        Pattern::Causal => AttentionOptions::default().with_causal(true),
        Pattern::Window(left) => AttentionOptions::default().with_causal(true).with_window(Some(left)),
    };
    Box::new(move || {
        attention(query.clone(), key.clone(), value.clone(), &options).sum().backward();
        Ok(())
    })
}

fn ids(shape: [usize; 2], vocab_size: usize, device: &Device) -> Tensor<2, Int> {
    Tensor::<2>::random(shape, Distribution::Uniform(0.0, vocab_size as f64), device).int()
}

/// Waits for a result, which a lazy backend might else never compute.
fn read(result: Tensor<2, Int>) -> Result<()> {
    result.try_into_data()?;
    Ok(())
}
