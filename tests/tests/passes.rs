//! What a recipe says of a pass is what the passes of every task do: blocks that are computed again hold less memory, and half
//! precision rounds, in training and evaluation.

use std::ops::Range;

use burn::tensor::{DType, Device, Int, Tensor};
use burn::train::{InferenceStep, TrainStep};
use firelight::classification::{
    ClassifierTask, MaskedBatch, MaskedLanguageModelConfig, MaskedLanguageTask, SequenceLossConfig, SequenceTargets,
    TextBatch, TextClassifierConfig, TextEncoderConfig, TextInput,
};
use firelight::kernels::{
    AttentionMask, AttentionOptions, KernelPath, KeyRanges, MaskRule, PairRule, RandomBlocks, attention, kernel_path,
};
use firelight::language::{LanguageModelConfig, LmBatch, LmTask};
use firelight::nn::{LossConfig, ParamBuilder, TransformerConfig};
use firelight::seq2seq::{PairBatch, Seq2SeqConfig, Seq2SeqTask};
use firelight::training::{LossOutput, Objective, Precision, Recompute, TrainingModule};
use firelight::vision::{ImageBatch, VisionConfig, VisionTask, VitSize};

use crate::support::memory::most_held;

/// Layers of every model here, and its width.
const LAYERS: usize = 12;
const WIDTH: usize = 16;
/// Rows of a batch, and tokens of a row.
const SHAPE: [usize; 2] = [8, 32];

fn ids(shape: [usize; 2]) -> Tensor<2, Int> {
    Tensor::zeros(shape, &Device::flex().autodiff())
}

fn obeys<M: Objective>(task: TrainingModule<M>, batch: impl Fn() -> M::Batch) {
    holds_less_where_blocks_are_computed_again(&task, &batch);
    rounds_in_half_precision(&task, &batch);
}

/// Less than half of what another step holds.
fn holds_less_where_blocks_are_computed_again<M: Objective>(task: &TrainingModule<M>, batch: impl Fn() -> M::Batch) {
    let most = |recompute| {
        let (task, batch) = (task.clone().with_recompute(recompute), batch());
        most_held(|| drop(TrainStep::step(&task, batch))).1
    };
    let [plain, again] = [Recompute::None, Recompute::Blocks].map(most);
    assert!(2 * again < plain, "{again} and {plain} bytes");
}

fn rounds_in_half_precision<M: Objective>(task: &TrainingModule<M>, batch: impl Fn() -> M::Batch) {
    let mean = |output: LossOutput| output.mean().into_scalar::<f64>();
    let losses = |precision| {
        let task = task.clone().with_precision(precision);
        [mean(TrainStep::step(&task, batch()).item), mean(InferenceStep::step(&task, batch()).losses)]
    };
    let single = losses(Precision::F32);
    for precision in [Precision::Bf16, Precision::F16] {
        for (half, single) in losses(precision).into_iter().zip(single) {
            assert!(half != single && (half - single).abs() < 0.05, "{precision}: {half} and {single}");
        }
    }
}

#[test]
fn a_language_model_obeys() {
    let model = LanguageModelConfig::new(7, WIDTH, 2, LAYERS).with_max_seq_len(SHAPE[1]);
    let task = LmTask::new(model.init_with(&ParamBuilder::new(&Device::flex().autodiff(), 0)), LossConfig::default());
    obeys(task, || LmBatch { inputs: ids(SHAPE), targets: ids(SHAPE), padding: None, documents: None });
}

#[test]
fn an_encoder_decoder_obeys() {
    let model = Seq2SeqConfig::new(7, WIDTH, 2, LAYERS).with_max_seq_len(SHAPE[1]);
    let task =
        Seq2SeqTask::new(model.init_with(&ParamBuilder::new(&Device::flex().autodiff(), 0)), LossConfig::default());
    let [source, inputs, targets] = [(); 3].map(|()| ids(SHAPE));
    let batch = PairBatch { source, source_padding: None, inputs, targets, padding: None };
    obeys(task, || batch.clone());
}

fn encoder() -> TextEncoderConfig {
    TextEncoderConfig::new(7, WIDTH, 2, LAYERS).with_stack(|stack| stack.with_max_seq_len(SHAPE[1]))
}

#[test]
fn a_classifier_of_texts_obeys() {
    let model = TextClassifierConfig::new(encoder(), ["no", "yes"])
        .init_with(&ParamBuilder::new(&Device::flex().autodiff(), 0));
    let task = ClassifierTask::new(model, SequenceLossConfig::default());
    let targets = || SequenceTargets::Class(ids([1, SHAPE[0]]).squeeze_dim(0));
    obeys(task, || TextBatch { input: TextInput::new(ids(SHAPE)), targets: targets() });
}

#[test]
fn a_masked_language_model_obeys() {
    let model = MaskedLanguageModelConfig::new(encoder()).init_with(&ParamBuilder::new(&Device::flex().autodiff(), 0));
    let task = MaskedLanguageTask::new(model, LossConfig::default());
    let places = || ids([1, 4]).squeeze_dim(0);
    let batch =
        || MaskedBatch { input: TextInput::new(ids(SHAPE)), places: places(), targets: ids([1, 4]), ignored: None };
    obeys(task, batch);
}

#[test]
fn a_classifier_of_images_obeys() {
    let classes = ["no", "yes"].map(str::to_string).to_vec();
    let config = VisionConfig::of_small_images(VitSize::Tiny, classes, 1, [28, 28]);
    let model = config
        .with_stack(|_| TransformerConfig::encoder(WIDTH, 2, LAYERS))
        .init_with(&ParamBuilder::new(&Device::flex().autodiff(), 0));
    let task = VisionTask::new(model, LossConfig::default());
    let images = || Tensor::ones([SHAPE[0], 1, 28, 28], &Device::flex().autodiff());
    let targets = || ids([1, SHAPE[0]]).squeeze_dim(0);
    obeys(task, || ImageBatch { images: images(), targets: targets(), partners: None });
}

/// Queries, keys, values and their gradients, but no matrix of weights, which would take 128 MiB for 2 heads and 4,096 tokens. Tiles have
/// one size.
#[test]
fn attention_and_its_gradients_hold_no_matrix_of_all_pairs() {
    let device = Device::flex().autodiff();
    if kernel_path(&Device::flex(), DType::F32) != KernelPath::Fused {
        let switch = std::env::var("FIRELIGHT_KERNELS");
        assert_eq!(switch.as_deref(), Ok("reference"), "kernels are missing, and nobody turned them off");
        return; // The reference does hold it.
    }
    let most = |rule: &PairRule, length: usize| {
        let x = Tensor::<4>::ones([1, 2, length, WIDTH], &device).require_grad();
        let options = AttentionOptions::default().with_mask(AttentionMask::rule(rule.clone()));
        let work = || {
            let gradients = attention(x.clone(), x.clone(), x.clone(), &options).sum().backward();
            assert!(x.grad(&gradients).is_some());
        };
        most_held(work).1
    };
    let blocks = RandomBlocks { count: 2, size: 64, seed: 0 };
    let rules =
        [PairRule::Causal, PairRule::window(128, 128), PairRule::big_bird(64, 16, blocks), PairRule::custom(FirstHalf)];
    for rule in rules {
        let [short, long] = [1024, 4096].map(|length| most(&rule, length));
        assert!(long < 16 << 20, "{rule:?}: {long} bytes");
        assert!(long < 8 * short, "{rule:?}: {long} bytes, and {short} for a quarter of the tokens");
    }
}

/// A query sees the first half of what stands before it.
#[derive(Debug)]
struct FirstHalf;

impl MaskRule for FirstHalf {
    fn hidden(&self, _row: usize, query: usize, key: usize) -> bool {
        key > query / 2
    }

    fn visible_keys(&self, _row: usize, query: usize, keys: Range<usize>) -> KeyRanges {
        let seen = keys.start..keys.end.min(query / 2 + 1);
        Some(seen).filter(|seen| !seen.is_empty()).into_iter().collect()
    }
}
