//! BERT, DistilBERT and ELECTRA of the transformers package: vectors, pooled vectors, logits of every head, losses, and the gradient
//! of every parameter; texts of unequal length and of two segments.

use burn::module::Module;
use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Int, Tensor};
use firelight::classification::{
    MaskedBatch, MaskedLanguageModelConfig, NextSentenceBatch, PoolerConfig, PretrainingConfig, PretrainingModel,
    PretrainingObjective, ReplacedTokenHead, ReplacedTokens, SequenceHeadConfig, SequenceLossConfig, SequenceTargets,
    SpanReaderConfig, TextClassifierConfig, TextEncoder, TextEncoderConfig, TextInput, TokenClassifierConfig,
};
use firelight::kernels::assert_close;
use firelight::nn::{LossConfig, ParamBuilder, Pass};
use firelight::training::{Objective, Switches};

use crate::support::device;
use crate::support::golden::Golden;

const LABELS: [&str; 3] = ["a", "b", "c"];

fn encoder(n_segments: usize) -> TextEncoderConfig {
    let config = TextEncoderConfig::bert(11, 16, 4, 2).with_n_segments(n_segments);
    config.with_stack(|stack| stack.with_d_ff(32).with_max_seq_len(8).with_dropout(0.0))
}

fn input(golden: &Golden) -> TextInput {
    let device = device().autodiff();
    let input = TextInput::new(golden.ints("tokens", &device)).with_padding(golden.flags("padding", &device));
    if golden.has("segments") { input.with_segments(golden.ints("segments", &device)) } else { input }
}

fn agrees<M: Module>(golden: &Golden, model: &M, loss: Tensor<1>) {
    golden.check("loss", loss.clone());
    golden.check_gradients(model, &loss.backward());
}

fn case(name: &str, number: usize) -> Golden {
    Golden::load(name).cases().nth(number).expect("a case")
}

#[test]
fn classifiers_agree() {
    for (name, n_segments, pooler) in
        [("bert_tiny", 2, PoolerConfig::bert()), ("distilbert_tiny", 0, PoolerConfig::distilbert())]
    {
        let golden = case(name, 0);
        let config = TextClassifierConfig::new(encoder(n_segments), LABELS).with_head(SequenceHeadConfig::new(pooler));
        let model = golden.fill(config.init(&device().autodiff()));
        let logits = model.forward(&input(&golden), &mut Pass::default());
        golden.check("logits", logits.clone());
        let targets = SequenceTargets::Class(golden.ints("targets", &logits.device()));
        agrees(&golden, &model, SequenceLossConfig::default().init().forward(logits, targets).mean());
    }
}

#[test]
fn vectors_of_tokens_and_texts_agree() {
    let golden = case("bert_tiny", 0);
    let model = golden.fill(TextClassifierConfig::new(encoder(2), LABELS).init(&device().autodiff()));
    let input = input(&golden);
    let hidden = model.encoder.forward(&input, &mut Pass::default());
    golden.check("pooled", model.head.pooler.forward(hidden.clone(), input.padding.as_ref()));
    // The second text ends after four tokens.
    let expected: Tensor<3> = golden.floats("hidden", &hidden.device());
    for (row, length) in [(0, 7), (1, 4)] {
        let part = |x: &Tensor<3>| x.clone().slice([row..row + 1, 0..length]);
        assert_close(&part(&hidden), &part(&expected), 1e-5);
    }
}

#[test]
fn masked_language_models_agree() {
    for (name, n_segments) in [("bert_tiny", 2), ("distilbert_tiny", 0)] {
        let golden = case(name, 1);
        let model = golden.fill(MaskedLanguageModelConfig::new(encoder(n_segments)).init(&device().autodiff()));
        let input = input(&golden);
        let places: Tensor<1, Int> = golden.ints("places", &input.tokens.device());
        let targets: Tensor<1, Int> = golden.ints("targets", &input.tokens.device());
        let logits = model.forward_at(&input, places.clone(), &mut Pass::default());
        let whole: Tensor<3> = golden.floats("logits", &logits.device());
        let expected = whole.flatten::<2>(0, 1).select(0, places).unsqueeze::<3>();
        assert_close(&logits, &expected, 1e-5);
        agrees(&golden, &model, LossConfig::default().init().forward(logits, targets.unsqueeze(), None).mean());
    }
}

#[test]
fn token_classifiers_agree() {
    let golden = case("bert_tiny", 2);
    let model = golden.fill(TokenClassifierConfig::new(encoder(2), LABELS).init(&device().autodiff()));
    let input = input(&golden);
    let logits = model.forward(&input, &mut Pass::default());
    let targets = golden.ints("targets", &logits.device());
    agrees(&golden, &model, LossConfig::default().init().forward(logits, targets, input.padding).mean());
}

#[test]
fn readers_of_spans_agree() {
    let golden = case("bert_tiny", 3);
    let model = golden.fill(SpanReaderConfig::new(encoder(2)).init(&device().autodiff()));
    let input = input(&golden);
    let logits = model.forward(&input, &mut Pass::default());
    golden.check("start_logits", logits.start.clone());
    golden.check("end_logits", logits.end.clone());
    let [starts, ends] = ["starts", "ends"].map(|key| golden.ints(key, &input.tokens.device()));
    golden.check("loss", logits.loss(starts, ends));
    let scores: Tensor<3> = Tensor::stack(vec![logits.start, logits.end], 2); // [B, T, 2]
    golden.check_gradients(&model, &golden.backward(scores));
}

#[test]
fn next_sentence_predictions_agree() {
    let golden = case("pretraining_tiny", 0);
    let config = PretrainingConfig::new(encoder(2), PretrainingObjective::MaskedAndNextSentence);
    let PretrainingModel::NextSentence(model) = config.init_with(&ParamBuilder::new(&device().autodiff(), 0)) else {
        panic!("pairs")
    };
    let model = golden.fill(model);
    let input = input(&golden);
    let device = input.tokens.device();
    let places: Tensor<1, Int> = golden.ints("places", &device);
    let logits = model.forward_at(&input, places.clone(), &mut Pass::default());
    golden.check("seq_relationship_logits", logits.order);
    let whole: Tensor<3> = golden.floats("prediction_logits", &device);
    let expected = whole.flatten::<2>(0, 1).select(0, places.clone()).unsqueeze::<3>();
    assert_close(&logits.tokens, &expected, 1e-5);
    let targets = golden.ints::<1>("targets", &device).unsqueeze();
    let masked = MaskedBatch { input, places, targets, ignored: None };
    let batch = NextSentenceBatch { masked, order: golden.ints("order", &device) };
    agrees(&golden, &model, model.train_loss(batch, &LossConfig::default(), Switches::default()).minimised);
}

/// The part of ELECTRA that is kept.
#[derive(Module, Debug)]
struct Discriminator {
    encoder: TextEncoder,
    head: ReplacedTokenHead,
}

#[test]
fn discriminators_agree() {
    let golden = case("pretraining_tiny", 1);
    let config = PretrainingConfig::new(encoder(2), PretrainingObjective::Replaced(ReplacedTokens::default()));
    let PretrainingModel::Replaced(mut model) = config.init_with(&ParamBuilder::new(&device().autodiff(), 0)) else {
        panic!("a discriminator")
    };
    let filled = golden.fill(Discriminator { encoder: model.encoder, head: model.head });
    (model.encoder, model.head) = (filled.encoder.clone(), filled.head.clone());
    let input = input(&golden);
    let logits = model.forward(&input, &mut Pass::default());
    let is_padding = input.padding.expect("texts of unequal length");
    let expected: Tensor<2> = golden.floats("logits", &logits.device());
    let [found, expected] = [logits.clone(), expected].map(|x| x.mask_fill(is_padding.clone(), 0.0));
    assert_close(&found, &expected, 1e-5);
    let is_replaced = golden.ints::<2>("replaced", &logits.device()).float();
    let own = is_replaced.clone().neg() + 1.0;
    let losses = log_sigmoid(logits.clone()) * is_replaced + log_sigmoid(logits.neg()) * own;
    let counted = is_padding.clone().bool_not().float().sum();
    agrees(&golden, &filled, losses.mask_fill(is_padding, 0.0).sum().neg() / counted);
}
