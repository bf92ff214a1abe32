//! What is measured: one step of each kind of work.

use anyhow::{Result, bail};
use burn::tensor::{Device, Distribution, FloatDType, Int, Tensor};
use clap::ValueEnum;
use firelight::classification::{
    ClassifierTask, PoolerConfig, PoolingConfig, SequenceHeadConfig, SequenceLossConfig, SequenceTargets, TextBatch,
    TextClassifierConfig, TextEncoderConfig, TextInput,
};
use firelight::kernels::{AttentionMask, AttentionOptions, attention, awake};
use firelight::language::{LanguageModel, LanguageModelConfig, LmBatch, LmTask};
use firelight::nn::{
    Activation, AttentionConfig, AttentionContext, Cache, GatedDelta, GatedDeltaConfig, LayerContext, LayerPass,
    LossConfig, PairRule, ParamBuilder, Pass, SequenceInput, TokenMixer, TransformerConfig,
};
use firelight::seq2seq::{PairBatch, Seq2SeqConfig, Seq2SeqTask, Tying};
use firelight::training::{
    Objective, OptimizerConfig, Recompute, ScheduleConfig, ScheduleKind, Trainer, TrainingModule,
};
use firelight::vision::{ImageBatch, VisionConfig, VisionTask, VitSize};

use super::{Bench, HEADS, Shape, What};
use crate::failure::Mistake;

/// Tokens of a prompt that is only read, where the context holds as many.
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
            What::Train if shape == Shape::Seq2seq => pairs(bench, device)?,
            What::Train if shape == Shape::Bert => texts(bench, device)?,
            What::Train if shape == Shape::Vit => images(bench, device)?,
            What::Train => training(bench, device)?,
            What::Prefill => prefill(bench, device)?,
            What::Decode => decode(bench, device)?,
            What::Attention => (bench.length[0] as usize, attend(bench, device)),
            What::GatedDelta => (bench.length[0] as usize, recur(bench, device)),
            What::GatedDeltaStep => (1, recur_once(bench, device)),
        };
        Ok(Self { name: name(bench), tokens, step, device: device.clone() })
    }

    /// Once, until the device has finished.
    pub(super) fn step(&mut self) -> Result<()> {
        (self.step)()?;
        Ok(self.device.sync()?)
    }
}

fn name(bench: &Bench) -> String {
    let (what, shape) = (called(bench.what), called(bench.shape()));
    match bench.what {
        What::Train if bench.recompute != Recompute::None => format!("{what}-{shape}-recompute-{}", bench.recompute),
        What::Train | What::Prefill | What::Decode => format!("{what}-{shape}"),
        What::Attention | What::GatedDelta | What::GatedDeltaStep => format!("{what}-{}", bench.length[0]),
    }
}

/// The name of a choice on the command line.
fn called(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
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
    let task = task.with_recompute(bench.recompute).with_precision(bench.dtype);
    let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
    let scale = task.loss_scale();
    let mut trainer = Trainer::new(task, OptimizerConfig::default(), schedule, 0).with_loss_scale(scale);
    Box::new(move || Ok(trainer.step(batch.clone()).map(drop)?))
}

fn prefill(bench: &Bench, device: &Device) -> Result<(usize, Step)> {
    let inference = Inference::new(bench, device)?;
    let length = PREFILL.min(inference.model.max_seq_len());
    let prompt = ids([1, length], inference.model.vocab_size(), device);
    Ok((length, Box::new(move || read(inference.next(prompt.clone(), &mut inference.model.cache())))))
}

fn decode(bench: &Bench, device: &Device) -> Result<(usize, Step)> {
    let inference = Inference::new(bench, device)?;
    let ([prompt, length], context) = (DECODE, inference.model.max_seq_len());
    if prompt + length > context {
        let needed = prompt + length;
        bail!(Mistake(format!(
            "`bench decode` takes {needed} tokens, and the context of this shape is {context}: take gpt2"
        )));
    }
    let prompt = ids([1, prompt], inference.model.vocab_size(), device);
    let step: Step = Box::new(move || {
        let mut cache = inference.model.cache();
        let mut token = inference.next(prompt.clone(), &mut cache);
        for _ in 1..length {
            token = inference.next(token, &mut cache);
        }
        read(token)
    });
    Ok((length, step))
}

/// A language model whose parameters lie in the type that it computes in.
struct Inference {
    model: LanguageModel,
}

impl Inference {
    fn new(bench: &Bench, device: &Device) -> Result<Self> {
        let model = bench.shape().config()?.init_with(&ParamBuilder::new(device, 0));
        Ok(Self { model: bench.dtype.dtype().into_iter().fold(model, LanguageModel::cast) })
    }

    /// The most probable token after the last of `tokens`, `[1, T] -> [1, 1]`.
    fn next(&self, tokens: Tensor<2, Int>, cache: &mut Cache) -> Tensor<2, Int> {
        let (last, mut pass) = (tokens.dims()[1] - 1, Pass::cached(cache));
        awake(&tokens.device(), || {
            let hidden = self.model.hidden(tokens, &SequenceInput::default(), &mut pass).narrow(1, last, 1);
            self.model.logits(hidden).argmax(2).squeeze_dim(2)
        })
    }
}

/// One attention of 8 heads of 64, and the gradients of the sum of its output; in half precision with the casts there and back.
fn attend(bench: &Bench, device: &Device) -> Step {
    let (device, length) = (device.clone().autodiff(), bench.length[0] as usize);
    let random = |heads: usize| {
        Tensor::<4>::random([1, heads, length, 64], Distribution::Normal(0.0, 1.0), &device).require_grad()
    };
    let [query, key, value] = [HEADS, bench.kv_heads, bench.kv_heads].map(random);
    let dtype = bench.dtype.dtype().unwrap_or(FloatDType::F32);
    let options = AttentionOptions::default().with_mask(AttentionMask::rule(bench.pattern.rule.clone()));
    Box::new(move || {
        let [query, key, value] = [&query, &key, &value].map(|x| x.clone().cast(dtype));
        awake(&device, || attention(query, key, value, &options).cast(FloatDType::F32).sum().backward());
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

fn ids(shape: [usize; 2], vocab_size: usize, device: &Device) -> Tensor<2, Int> {
    Tensor::<2>::random(shape, Distribution::Uniform(0.0, vocab_size as f64), device).int()
}

/// Waits for a result, which a lazy backend might else never compute.
fn read(result: Tensor<2, Int>) -> Result<()> {
    result.try_into_data()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::{Module, ModuleVisitor, Param};
    use burn::tensor::DType;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    struct Types(Vec<DType>);

    impl ModuleVisitor for Types {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.val().dtype());
        }
    }

    #[test]
    fn parameters_lie_in_the_type_that_is_asked_for() {
        for (name, dtype) in [("f32", DType::F32), ("bf16", DType::BF16), ("f16", DType::F16)] {
            let bench = Line::parse_from(["firelight", "decode", "--config", "baby", "--dtype", name]).bench;
            let inference = Inference::new(&bench, &Device::flex()).unwrap();
            let mut types = Types(Vec::new());
            inference.model.visit(&mut types);
            assert!(types.0.len() > 8 && types.0.iter().all(|found| *found == dtype), "{name}: {:?}", types.0);
        }
    }
}
