//! A few steps of three small models on the device under test; their losses and all gradients go to a file. `cargo xtask
//! agree` runs it in several ways and compares the files.
//!
//! ```sh
//! BURN_DEVICE=ndarray cargo run -p firelight-tests --features ndarray --example course -- FILE STEPS
//! ```

use std::collections::BTreeMap;
use std::error::Error;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use burn::train::TrainStep;
use firelight::kernels::{KernelPath, kernel_path};
use firelight::language::{LanguageModelConfig, LmBatch, LmTask};
use firelight::nn::{
    Activation, AttentionPattern, LossConfig, NormConfig, ParamBuilder, PositionConfig, TransformerConfig, WeightInit,
};
use firelight::seq2seq::{PairBatch, Seq2SeqConfig, Seq2SeqTask};
use firelight::training::{Objective, OptimizerConfig, ScheduleConfig, ScheduleKind, Trainer, TrainingModule};
use firelight_tests::ParameterPath;
use safetensors::tensor::{Dtype, TensorView};

/// Rows of a batch, and tokens of a row: several tiles of attention and work for several threads, and no round number.
const SHAPE: [usize; 2] = [2, 131];
const VOCAB_SIZE: usize = 61;

/// Numbers by name: `gpt/0001/loss`, `gpt/0001/embedding.weight`.
type Course = BTreeMap<String, Vec<f32>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, steps] = arguments.as_slice() else { return Err("give a FILE and a number of STEPS".into()) };
    let (steps, device) = (steps.parse()?, firelight::device::select(None)?.autodiff());
    let mut course = Course::new();
    language_model("gpt", gpt(), steps, &device, &mut course)?;
    language_model("llama", llama(), steps, &device, &mut course)?;
    encoder_decoder(steps, &device, &mut course)?;
    write(&course, kernel_path(&device, DType::F32), file)
}

/// Layer norms, GELU, learned positions, one matrix for tokens and head.
fn gpt() -> LanguageModelConfig {
    LanguageModelConfig::new(VOCAB_SIZE, 32, 4, 2).with_max_seq_len(SHAPE[1]).with_transformer(wide)
}

/// RMS norms, SwiGLU, rotary positions, two key heads, a window in every other layer.
fn llama() -> LanguageModelConfig {
    let window = AttentionPattern::SlidingWindow { left: 5, right: 0 };
    gpt().with_tied(false).with_transformer(|stack| {
        stack
            .with_n_kv_heads(2)
            .with_activation(Activation::SwiGlu)
            .with_norm(NormConfig::rms())
            .with_position(PositionConfig::rotary())
            .with_patterns(vec![window, AttentionPattern::Causal])
            .with_bias(false)
    })
}

/// Weights as wide as those of a trained model, so that no difference hides behind small numbers.
fn wide(stack: TransformerConfig) -> TransformerConfig {
    stack.with_init(WeightInit::xavier())
}

fn language_model(
    name: &str,
    config: LanguageModelConfig,
    steps: usize,
    device: &Device,
    course: &mut Course,
) -> Result<(), Box<dyn Error>> {
    let model = config.init_with(&ParamBuilder::new(device, 0));
    let batch = LmBatch { inputs: ids(1, device), targets: ids(2, device), padding: None, documents: None };
    follow(name, LmTask::new(model, LossConfig::default()), &batch, steps, course)
}

/// Cross-attention, padding on both sides, label smoothing.
fn encoder_decoder(steps: usize, device: &Device, course: &mut Course) -> Result<(), Box<dyn Error>> {
    let config = Seq2SeqConfig::new(VOCAB_SIZE, 32, 4, 1).with_max_seq_len(SHAPE[1]).with_both(wide);
    let model = config.init_with(&ParamBuilder::new(device, 0));
    let [source, inputs, targets] = [1, 2, 3].map(|seed| ids(seed, device));
    let [source_padding, padding] = [5, 9].map(|last| Some(padding(last, device)));
    let batch = PairBatch { source, source_padding, inputs, targets, padding };
    let loss = LossConfig::default().with_label_smoothing(0.1);
    follow("encoder-decoder", Seq2SeqTask::new(model, loss), &batch, steps, course)
}

/// Notes loss and gradients before each step of the trainer.
fn follow<M: Objective<Batch: Clone>>(
    name: &str,
    task: TrainingModule<M>,
    batch: &M::Batch,
    steps: usize,
    course: &mut Course,
) -> Result<(), Box<dyn Error>> {
    let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
    let mut trainer = Trainer::new(task, OptimizerConfig::default(), schedule, 0);
    for step in 1..=steps {
        let gradients = TrainStep::step(trainer.model(), batch.clone()).grads;
        let prefix = format!("{name}/{step:04}/");
        trainer.model().visit(&mut Note { prefix: &prefix, path: ParameterPath::default(), gradients, course });
        let report = trainer.step(batch.clone())?;
        course.insert(format!("{prefix}loss"), vec![report.loss as f32]);
    }
    Ok(())
}

/// Writes down the gradient of every parameter.
struct Note<'a> {
    prefix: &'a str,
    path: ParameterPath,
    gradients: GradientsParams,
    course: &'a mut Course,
}

impl ModuleVisitor for Note<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            let numbers = gradient.into_data().iter::<f32>().collect();
            self.course.insert(format!("{}{}", self.prefix, self.path.key()), numbers);
        }
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }
}

/// Tokens that are the same on every device.
fn ids(seed: usize, device: &Device) -> Tensor<2, Int> {
    let [rows, length] = SHAPE;
    let ids: Vec<i64> = (0..rows * length).map(|i| (i * (i + 7 * seed) * 31 % VOCAB_SIZE) as i64).collect();
    Tensor::from_data(TensorData::new(ids, SHAPE), device)
}

/// True for the `last` tokens of the second row.
fn padding(last: usize, device: &Device) -> Tensor<2, Bool> {
    let [rows, length] = SHAPE;
    let flags: Vec<bool> = (0..rows * length).map(|i| i % length + i / length * last >= length).collect();
    Tensor::from_data(TensorData::new(flags, SHAPE), device)
}

fn write(course: &Course, kernels: KernelPath, file: &str) -> Result<(), Box<dyn Error>> {
    let notes = [("kernels".to_owned(), kernels.to_string())].into();
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let course: Vec<_> = course.iter().map(|(name, numbers)| (name, numbers.len(), bytes(numbers))).collect();
    let views =
        course.iter().map(|(name, count, bytes)| Ok((*name, TensorView::new(Dtype::F32, vec![*count], bytes)?)));
    let views = views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    Ok(safetensors::serialize_to_file(views, Some(notes), file.as_ref())?)
}
