//! What is measured: one step of each kind of work.

use anyhow::{Result, bail};
use burn::tensor::{Device, Distribution, Int, Tensor};
use firelight::classification::{
    ClassifierTask, PoolerConfig, PoolingConfig, SequenceHeadConfig, SequenceLossConfig, SequenceTargets, TextBatch,
    TextClassifierConfig, TextEncoderConfig, TextInput,
};
use firelight::core::{Activation, LossConfig, ParamBuilder, Pass, SequenceInput, TransformerConfig};
use firelight::kernels::{AttentionOptions, attention, awake};
use firelight::language::{LanguageModel, LanguageModelConfig, LmBatch, LmTask};
use firelight::seq2seq::{PairBatch, Seq2SeqConfig, Seq2SeqTask, Tying};
use firelight::training::{Objective, OptimizerConfig, Recompute, ScheduleConfig, ScheduleKind, Trainee, Trainer};
use firelight::vision::{ImageBatch, VisionConfig, VisionTask, VitSize};

use super::{Bench, Pattern, Shape, What};
use crate::failure::Mistake;

/// Tokens of a prompt that is only read.
const PREFILL: usize = 512;
/// Tokens of a prompt that is continued, and of its continuation.
const DECODE: [usize; 2] = [128, 64];
/// Pairs of a batch, and tokens of either side of a pair.
const PAIRS: [usize; 2] = [128, 16];
/// Texts of a batch, and tokens of a text with its class token.
const TEXTS: [usize; 2] = [32, 65];

/// Images of a batch.
const IMAGES: usize = 128;

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
            What::Train if shape == Shape::Seq2seq => pairs(bench.recompute, device)?,
            What::Train if shape == Shape::Bert => texts(bench.recompute, device)?,
            What::Train if shape == Shape::Vit => images(bench.recompute, device)?,
            What::Train => training(shape, bench.recompute, device)?,
            What::Prefill => (PREFILL, prefill(shape, device)?),
            What::Decode => (DECODE[1], decode(shape, device)?),
            What::Attention => {
                let length = bench.length[0] as usize;
                (length, attend(length, bench.pattern, device))
            }
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
        Shape::Seq2seq => "seq2seq",
        Shape::Bert => "bert",
        Shape::Vit => "vit",
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
    fn config(self) -> Result<LanguageModelConfig> {
        Ok(match self {
            Self::Baby => LanguageModelConfig::new(65, 128, 4, 4).with_max_seq_len(64),
            Self::Char6 => LanguageModelConfig::new(65, 384, 6, 6).with_max_seq_len(256),
            Self::Char12 => LanguageModelConfig::new(65, 384, 6, 12).with_max_seq_len(256),
            Self::Gpt2 => LanguageModelConfig::new(50_257, 768, 12, 12).with_max_seq_len(1024),
            Self::Seq2seq | Self::Bert | Self::Vit => {
                bail!(Mistake("the shapes seq2seq, bert and vit are those of `bench train`".into()))
            }
        })
    }

    fn batch_size(self) -> usize {
        match self {
            Self::Baby => 12,
            Self::Char6 | Self::Char12 | Self::Gpt2 => 8,
            Self::Seq2seq => PAIRS[0],
            Self::Bert => TEXTS[0],
            Self::Vit => IMAGES,
        }
    }
}

/// Forward, backward, clipping to norm 1 and AdamW, through the trainer that `firelight train` drives.
fn training(shape: Shape, recompute: Recompute, device: &Device) -> Result<(usize, Step)> {
    let (config, batch_size) = (shape.config()?, shape.batch_size());
    let device = training_device(recompute, device)?;
    let task = LmTask::new(config.init_with(&ParamBuilder::new(&device, 0)), LossConfig::default());
    let seq_len = config.transformer.max_seq_len;
    let ids = || ids([batch_size, seq_len], config.vocab_size, &device);
    let batch = LmBatch { inputs: ids(), targets: ids(), padding: None, documents: None };
    Ok((batch_size * seq_len, steps(task.with_recompute(recompute), batch)))
}

/// The same of an encoder-decoder of 3 layers each, 8 heads and width 256, three matrices over 8,000 tokens, with label
/// smoothing. Source and target tokens count.
fn pairs(recompute: Recompute, device: &Device) -> Result<(usize, Step)> {
    let device = training_device(recompute, device)?;
    let config = Seq2SeqConfig::new(8000, 256, 8, 3).with_tying(Tying::None).with_max_seq_len(128);
    let model = config.with_both(|stack| stack.with_d_ff(512)).init_with(&ParamBuilder::new(&device, 0));
    let task = Seq2SeqTask::new(model, LossConfig::default().with_label_smoothing(0.1));
    let ids = || ids(PAIRS, 8000, &device);
    let batch = PairBatch { source: ids(), source_padding: None, inputs: ids(), targets: ids(), padding: None };
    Ok((2 * PAIRS[0] * PAIRS[1], steps(task.with_recompute(recompute), batch)))
}

/// The same of a classifier: a pre-norm encoder of 4 layers, 4 heads and width 256 over 8,000 tokens, whose class token's vector
/// is read by a linear layer for 2 classes. All tokens count.
fn texts(recompute: Recompute, device: &Device) -> Result<(usize, Step)> {
    let device = training_device(recompute, device)?;
    let encoder = TextEncoderConfig::new(8000, 256, 4, 4).with_stack(|stack| stack.with_max_seq_len(TEXTS[1]));
    let head = SequenceHeadConfig::new(PoolerConfig::plain(PoolingConfig::Class));
    let config = TextClassifierConfig::new(encoder, ["no", "yes"]).with_head(head);
    let task = ClassifierTask::new(config.init_with(&ParamBuilder::new(&device, 0)), SequenceLossConfig::default());
    let targets = SequenceTargets::Class(ids([1, TEXTS[0]], 2, &device).squeeze_dim(0));
    let batch = TextBatch { input: TextInput::new(ids(TEXTS, 8000, &device)), targets };
    Ok((TEXTS[0] * TEXTS[1], steps(task.with_recompute(recompute), batch)))
}

/// The same of a vision transformer of 6 layers, 4 heads and width 128, with a class token, on images of 28 x 28 shades of grey.
/// The patches and the class token count.
fn images(recompute: Recompute, device: &Device) -> Result<(usize, Step)> {
    let device = training_device(recompute, device)?;
    let classes = (0..10).map(|class| class.to_string()).collect();
    let stack = TransformerConfig::encoder(128, 4, 6).with_d_ff(512).with_activation(Activation::Gelu);
    let config = VisionConfig::of_small_images(VitSize::Tiny, classes, 1, [28, 28]).with_stack(|_| stack);
    let task = VisionTask::new(config.init_with(&ParamBuilder::new(&device, 0)), LossConfig::default());
    let pixels = Tensor::random([IMAGES, 1, 28, 28], Distribution::Uniform(0.0, 1.0), &device);
    let targets = ids([1, IMAGES], 10, &device).squeeze_dim(0);
    let batch = ImageBatch { images: pixels, targets, partners: None };
    Ok((IMAGES * config.tokens(), steps(task.with_recompute(recompute), batch)))
}

fn training_device(recompute: Recompute, device: &Device) -> Result<Device> {
    recompute.check(device)?;
    Ok(match recompute {
        Recompute::Burn => device.clone().autodiff().gradient_checkpointing(),
        _ => device.clone().autodiff(),
    })
}

/// The step of a training, on one batch again and again.
fn steps<M: Objective<Batch: Clone>>(task: Trainee<M>, batch: M::Batch) -> Step {
    let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
    let mut trainer = Trainer::new(task, OptimizerConfig::default(), schedule, 0);
    Box::new(move || Ok(trainer.step(batch.clone()).map(drop)?))
}

fn prefill(shape: Shape, device: &Device) -> Result<Step> {
    let model = shape.config()?.init(device);
    let prompt = ids([1, PREFILL], model.vocab_size(), device);
    Ok(Box::new(move || read(next(&model, prompt.clone(), &mut Pass::cached(&mut model.cache())))))
}

fn decode(shape: Shape, device: &Device) -> Result<Step> {
    let model = shape.config()?.init(device);
    let [prompt, length] = DECODE;
    let prompt = ids([1, prompt], model.vocab_size(), device);
    Ok(Box::new(move || {
        let mut cache = model.cache();
        let mut token = next(&model, prompt.clone(), &mut Pass::cached(&mut cache));
        for _ in 1..length {
            token = next(&model, token, &mut Pass::cached(&mut cache));
        }
        read(token)
    }))
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
