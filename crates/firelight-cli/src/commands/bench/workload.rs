//! What is measured: one step of each kind of work.

use anyhow::Result;
use burn::tensor::{Device, Distribution, FloatDType, Int, Tensor};
use clap::ValueEnum;
use firelight::classification::{
    ClassifierTask, PoolerConfig, PoolingConfig, SequenceHeadConfig, SequenceLossConfig, SequenceTargets, TextBatch,
    TextClassifierConfig, TextEncoderConfig, TextInput,
};
use firelight::kernels::{AttentionMask, AttentionOptions, MatmulPrecision, attention, awake};
use firelight::language::{LmBatch, LmTask};
use firelight::nn::{
    Activation, AttentionConfig, AttentionContext, Cache, GatedDelta, GatedDeltaConfig, LayerContext, LayerPass,
    LossConfig, PairRule, ParamBuilder, Pass, TokenMixer, TransformerConfig,
};
use firelight::seq2seq::{PairBatch, Seq2SeqConfig, Seq2SeqTask, Tying};
use firelight::training::{
    Objective, OptimizerConfig, Recompute, ScheduleConfig, ScheduleKind, Trainer, TrainingModule,
};
use firelight::vision::{ImageBatch, VisionConfig, VisionTask, VitSize};

use super::inference::{decode, prefill};
use super::kind::Kind;
use super::shape::Shape;
use super::{Bench, HEADS, What};

/// Pairs of a batch, and tokens of either side of a pair.
pub(super) const PAIRS: [usize; 2] = [128, 16];
/// Texts of a batch, and tokens of a text with its class token.
pub(super) const TEXTS: [usize; 2] = [32, 65];

/// Images of a batch.
pub(super) const IMAGES: usize = 128;

/// What is done again and again.
pub(super) type Step = Box<dyn FnMut() -> Result<()> + Send>;

/// A step that can be repeated.
pub(super) struct Workload {
    /// What and at which shape.
    pub(super) name: String,
    /// Tokens that a step works on.
    pub(super) tokens: usize,
    step: Step,
    precision: MatmulPrecision,
    device: Device,
}

impl Workload {
    pub(super) fn new(bench: &Bench, device: &Device) -> Result<Self> {
        let shape = bench.shape();
        let (tokens, step): (usize, Step) = match bench.what {
            What::Train if shape == Shape::Seq2seq => pairs(bench, device)?,
            What::Train if shape == Shape::Bert => texts(bench, device)?,
            What::Train if shape == Shape::Vit => images(bench, device)?,
            What::Train => training(bench, device)?,
            What::Prefill => prefill(bench, device)?,
            What::Decode => decode(bench, device)?,
            What::Attention => match bench.kind {
                Some(kind) => (bench.length[0] as usize, mix(kind, bench, device)),
                None => (bench.length[0] as usize, attend(bench, device)),
            },
            What::GatedDelta => (bench.length[0] as usize, recur(bench, device)),
            What::GatedDeltaStep => (1, recur_once(bench, device)),
        };
        let precision = bench.dtype.floats().matmul_precision();
        Ok(Self { name: name(bench), tokens, step, precision, device: device.clone() })
    }

    /// Once, until the device has finished.
    pub(super) fn step(&mut self) -> Result<()> {
        self.precision.within(|| (self.step)())?;
        Ok(self.device.sync()?)
    }
}

fn name(bench: &Bench) -> String {
    let (what, shape) = (called(bench.what), called(bench.shape()));
    match bench.what {
        What::Train if bench.recompute != Recompute::None => format!("{what}-{shape}-recompute-{}", bench.recompute),
        What::Train | What::Prefill | What::Decode => format!("{what}-{shape}"),
        What::Attention | What::GatedDelta | What::GatedDeltaStep => {
            let what = bench.kind.map_or(what, |kind| kind.to_string());
            format!("{what}-{}", bench.length[0])
        }
    }
}

/// The name of a choice on the command line.
fn called(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
}

/// Forward, backward, clipping to norm 1 and AdamW, through the trainer that `firelight train` drives.
fn training(bench: &Bench, device: &Device) -> Result<(usize, Step)> {
    let (config, batch_size) = (bench.shape().config()?, bench.shape().batch_size());
    let device = training_device(bench.recompute, device)?;
    let task = LmTask::new(config.init_with(&ParamBuilder::new(&device, 0)), LossConfig::default());
    let seq_len = config.transformer.max_seq_len;
    let ids = || ids([batch_size, seq_len], config.vocab_size, &device);
    let batch = LmBatch { inputs: ids(), targets: ids(), padding: None, documents: None };
    Ok((batch_size * seq_len, steps(bench, task, batch)))
}

/// The same of an encoder-decoder of 3 layers each, 8 heads and width 256, three matrices over 8,000 tokens, with label
/// smoothing. Source and target tokens count.
fn pairs(bench: &Bench, device: &Device) -> Result<(usize, Step)> {
    let device = training_device(bench.recompute, device)?;
    let config = Seq2SeqConfig::new(8000, 256, 8, 3).with_tying(Tying::None).with_max_seq_len(128);
    let model = config.with_both(|stack| stack.with_d_ff(512)).init_with(&ParamBuilder::new(&device, 0));
    let task = Seq2SeqTask::new(model, LossConfig::default().with_label_smoothing(0.1));
    let ids = || ids(PAIRS, 8000, &device);
    let batch = PairBatch { source: ids(), source_padding: None, inputs: ids(), targets: ids(), padding: None };
    Ok((2 * PAIRS[0] * PAIRS[1], steps(bench, task, batch)))
}

/// The same of a classifier: a pre-norm encoder of 4 layers, 4 heads and width 256 over 8,000 tokens, whose class token's vector
/// is read by a linear layer for 2 classes. All tokens count.
fn texts(bench: &Bench, device: &Device) -> Result<(usize, Step)> {
    let device = training_device(bench.recompute, device)?;
    let encoder = TextEncoderConfig::new(8000, 256, 4, 4).with_stack(|stack| stack.with_max_seq_len(TEXTS[1]));
    let head = SequenceHeadConfig::new(PoolerConfig::plain(PoolingConfig::Class));
    let config = TextClassifierConfig::new(encoder, ["no", "yes"]).with_head(head);
    let task = ClassifierTask::new(config.init_with(&ParamBuilder::new(&device, 0)), SequenceLossConfig::default());
    let targets = SequenceTargets::Class(ids([1, TEXTS[0]], 2, &device).squeeze_dim(0));
    let batch = TextBatch { input: TextInput::new(ids(TEXTS, 8000, &device)), targets };
    Ok((TEXTS[0] * TEXTS[1], steps(bench, task, batch)))
}

/// The same of a vision transformer of 6 layers, 4 heads and width 128, with a class token, on images of 28 x 28 shades of grey.
/// The patches and the class token count.
fn images(bench: &Bench, device: &Device) -> Result<(usize, Step)> {
    let device = training_device(bench.recompute, device)?;
    let classes = (0..10).map(|class| class.to_string()).collect();
    let stack = TransformerConfig::encoder(128, 4, 6).with_d_ff(512).with_activation(Activation::Gelu);
    let config = VisionConfig::of_small_images(VitSize::Tiny, classes, 1, [28, 28]).with_stack(|_| stack);
    let task = VisionTask::new(config.init_with(&ParamBuilder::new(&device, 0)), LossConfig::default());
    let pixels = Tensor::random([IMAGES, 1, 28, 28], Distribution::Uniform(0.0, 1.0), &device);
    let targets = ids([1, IMAGES], 10, &device).squeeze_dim(0);
    let batch = ImageBatch { images: pixels, targets, partners: None };
    Ok((IMAGES * config.tokens(), steps(bench, task, batch)))
}

fn training_device(recompute: Recompute, device: &Device) -> Result<Device> {
    recompute.check(device)?;
    Ok(match recompute {
        Recompute::Burn => device.clone().autodiff().gradient_checkpointing(),
        _ => device.clone().autodiff(),
    })
}

/// The step of a training, on one batch again and again.
fn steps<M: Objective<Batch: Clone>>(bench: &Bench, task: TrainingModule<M>, batch: M::Batch) -> Step {
    let task = task.with_recompute(bench.recompute).with_precision(bench.dtype.floats());
    let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
    let scale = task.loss_scale();
    let mut trainer = Trainer::new(task, OptimizerConfig::default(), schedule, 0).with_loss_scale(scale);
    Box::new(move || Ok(trainer.step(batch.clone()).map(drop)?))
}

/// One attention of 8 heads of 64, and the gradients of the sum of its output; in half precision with the casts there and back.
fn attend(bench: &Bench, device: &Device) -> Step {
    let (device, length) = (device.clone().autodiff(), bench.length[0] as usize);
    let random = |heads: usize| {
        Tensor::<4>::random([1, heads, length, 64], Distribution::Normal(0.0, 1.0), &device).require_grad()
    };
    let [query, key, value] = [HEADS, bench.kv_heads, bench.kv_heads].map(random);
    let dtype = bench.dtype.floats().dtype().unwrap_or(FloatDType::F32);
    let options = AttentionOptions::default().with_mask(AttentionMask::rule(bench.pattern.rule.clone()));
    Box::new(move || {
        let [query, key, value] = [&query, &key, &value].map(|x| x.clone().cast(dtype));
        awake(&device, || attention(query, key, value, &options).cast(FloatDType::F32).sum().backward());
        Ok(())
    })
}

/// A layer of one kind with its projections, and the gradients of the sum of its output.
fn mix(kind: Kind, bench: &Bench, device: &Device) -> Step {
    let device = device.clone().autodiff();
    let layer = kind.layer(&device);
    drop(layer(tokens(1, &device))); // Draws the parameters, which are no memory of a step.
    let x = tokens(bench.length[0] as usize, &device).require_grad();
    Box::new(move || {
        awake(&device, || layer(x.clone()).sum().backward());
        Ok(())
    })
}

/// One Gated DeltaNet with its projections, and the gradients of the sum of its output.
fn recur(bench: &Bench, device: &Device) -> Step {
    let device = device.clone().autodiff();
    let (mixer, x) = (gated_delta(&device), tokens(bench.length[0] as usize, &device).require_grad());
    Box::new(move || {
        let forward = || mixer.forward(x.clone(), &causal(), &mut LayerPass::default());
        awake(&device, || forward().sum().backward());
        Ok(())
    })
}

/// The next token of a text that such a mixer has read.
fn recur_once(bench: &Bench, device: &Device) -> Step {
    let (device, length) = (device.clone(), bench.length[0] as usize);
    let mixer = gated_delta(&device);
    let mut text = Cache::new([mixer.state(&PairRule::Causal, length + 1)], length + 1);
    mixer.forward(tokens(length, &device), &causal(), &mut Pass::cached(&mut text).layer(0));
    let x = tokens(1, &device);
    Box::new(move || {
        let mut cache = text.clone();
        let mut step = || mixer.forward(x.clone(), &causal(), &mut Pass::cached(&mut cache).layer(0));
        awake(&device, || step().try_into_data())?;
        Ok(())
    })
}

/// With heads of 64, as many as `attention` has.
fn gated_delta(device: &Device) -> GatedDelta {
    GatedDeltaConfig::default().init_with(&AttentionConfig::new(64 * HEADS, HEADS), &ParamBuilder::new(device, 0))
}

fn tokens(length: usize, device: &Device) -> Tensor<3> {
    Tensor::random([1, length, 64 * HEADS], Distribution::Normal(0.0, 1.0), device)
}

fn causal() -> LayerContext {
    let attention = AttentionContext::masked(AttentionMask::causal());
    LayerContext { attention, ..LayerContext::default() }
}

pub(super) fn ids(shape: [usize; 2], vocab_size: usize, device: &Device) -> Tensor<2, Int> {
    Tensor::<2>::random(shape, Distribution::Uniform(0.0, vocab_size as f64), device).int()
}
