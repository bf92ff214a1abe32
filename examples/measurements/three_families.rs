//! One task of texts and labels for an encoder, a decoder, and both with cross-attention between them. The encoder answers by the mean of
//! its tokens, the decoder by its last token, and the decoder behind an encoder by the one token that it begins with.
//!
//! Command: cargo run --release -p firelight-examples --example three_families -- TRAIN DEV [--toy]
//! (files with a text, a tab, and 0 or 1 a line, such as those of SST-2)
//! Time: about three minutes on one CPU core, seconds with --toy.
//! Expect: three lines with parameters, the accuracy on the texts of DEV, and the time of the training.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::prelude::*;
use firelight::classification::{Pooling, PoolingConfig};
use firelight::data::{StepLoader, Tokenizer, TokenizerConfig, read_text, right_padded};
use firelight::nn::*;
use firelight::training::{Objective, Switches, TrainLoss, TrainingModule, ValidOutput};
use firelight_examples::{Batches, fitted, measured, minimised, right, toy_or_words};

/// What is trained: the width, layers, and steps of 32 texts each. Longer texts are cut.
const FULL: [usize; 3] = [128, 2, 650];
const TOY: [usize; 3] = [16, 1, 3];
const LONGEST: usize = 64;

/// A text as ids, and its label.
type Item = (Vec<u32>, i32);

/// Texts beside their labels.
struct Batch {
    tokens: Tensor<2, Int>,
    padding: Option<Tensor<2, Bool>>,
    labels: Tensor<1, Int>,
}

struct Texts;

impl Batcher<Item, Batch> for Texts {
    fn batch(&self, items: Vec<Item>, device: &Device) -> Batch {
        let (rows, labels): (Vec<Vec<u32>>, Vec<i32>) = items.into_iter().unzip();
        let (tokens, padding) = right_padded(&rows, device);
        Batch { tokens, padding, labels: Tensor::from_ints(labels.as_slice(), device) }
    }
}

/// An encoder, a decoder, or both.
#[derive(Module, Debug)]
struct Labeller {
    embedding: TokenEmbedding,
    encoder: Option<Transformer>,
    decoder: Option<Transformer>,
    pooling: Pooling,
    head: Linear,
}

impl Labeller {
    fn new(vocab_size: usize, [width, layers]: [usize; 2], name: &str, device: &Device) -> Self {
        let params = ParamBuilder::new(device, 1);
        let has_encoder = name != "decoder";
        let encoder = has_encoder.then(|| TransformerConfig::encoder(width, 4, layers));
        let decoder = match name {
            "encoder" => None,
            "decoder" => Some(TransformerConfig::new(width, 4, layers)),
            _ => Some(TransformerConfig::decoder(width, 4, layers)),
        };
        let stack = |config: Option<TransformerConfig>, name: &str| -> Option<Transformer> {
            let config = config?.with_position(PositionConfig::rotary()).with_dropout(0.1);
            Some(config.init_with(&params.scope(name)))
        };
        let pooling = if decoder.is_some() { PoolingConfig::Last } else { PoolingConfig::Mean };
        Self {
            embedding: TokenEmbeddingConfig::new(vocab_size, width).init_with(&params.scope("embedding")),
            encoder: stack(encoder, "encoder"),
            decoder: stack(decoder, "decoder"),
            pooling: pooling.init_with(width, Init::default(), &params.scope("pooling")),
            head: LinearConfig::new(width, 2).init_with(&params.scope("head")),
        }
    }

    /// `[B, T] -> [B, labels]`. The token 0 begins what a decoder behind an encoder writes.
    fn forward(&self, tokens: Tensor<2, Int>, padding: Option<Tensor<2, Bool>>) -> Tensor<2> {
        let read = |stack: &Transformer, tokens: Tensor<2, Int>, input: SequenceInput| {
            stack.forward(self.embedding.forward(tokens), &input, &mut Pass::default())
        };
        let input = SequenceInput { padding: padding.clone(), ..SequenceInput::default() };
        let memory = self.encoder.as_ref().map(|encoder| read(encoder, tokens.clone(), input.clone()));
        let (hidden, padding) = match (&self.decoder, memory) {
            (Some(decoder), Some(memory)) => {
                let memory = EncoderOutput::new(memory).with_padding(padding);
                let first = tokens.narrow(1, 0, 1).zeros_like();
                (read(decoder, first, SequenceInput::default().with_encoder_output(memory)), None)
            }
            (Some(decoder), None) => (read(decoder, tokens, input), padding),
            (None, memory) => (memory.expect("one of both is there"), padding),
        };
        self.head.forward(self.pooling.forward(hidden, padding.as_ref()))
    }

    fn loss(&self, Batch { tokens, padding, labels }: Batch) -> TokenLoss {
        let logits = self.forward(tokens, padding).unsqueeze_dim::<3>(1); // [B, 1, labels]
        LossConfig::new().init().forward(logits, labels.unsqueeze_dim::<2>(1), None)
    }
}

impl Objective for Labeller {
    type Batch = Batch;
    type Loss = ();
    type Answers = ();

    fn train_loss(&self, batch: Batch, _: &(), _: Switches) -> TrainLoss {
        minimised(self.loss(batch))
    }

    fn valid_step(&self, batch: Batch, _: Switches) -> ValidOutput<()> {
        measured(self.loss(batch))
    }
}

/// The texts of a file, and the label of each.
fn read(path: &str) -> Result<Vec<(String, i32)>> {
    let line = |(number, line): (usize, &str)| -> Result<(String, i32)> {
        let expected = || format!("`{path}`, line {}: expected a text, a tab, and 0 or 1", number + 1);
        let (text, label) = line.rsplit_once('\t').with_context(expected)?;
        let label = ["0", "1"].iter().position(|name| *name == label.trim()).with_context(expected)?;
        Ok((text.to_string(), label as i32))
    };
    read_text(path)?.lines().enumerate().map(line).collect()
}

/// A data set of the first tokens of texts.
fn encoded(texts: &[(String, i32)], tokenizer: &Tokenizer) -> Result<InMemDataset<Item>> {
    let item = |(text, label): &(String, i32)| -> Result<Item> {
        let mut ids = tokenizer.encode(text)?;
        ids.truncate(LONGEST);
        Ok((ids, *label))
    };
    Ok(InMemDataset::new(texts.iter().map(item).collect::<Result<Vec<Item>>>()?))
}

/// Trains all three on the same batches; the accuracy of each.
fn measure([learnt, unseen]: [&str; 2], [width, layers, steps]: [usize; 3]) -> Result<Vec<f64>> {
    let (device, learnt, unseen) = (firelight::device::select(None)?, read(learnt)?, read(unseen)?);
    let all: Vec<&str> = learnt.iter().map(|(text, _)| text.as_str()).collect();
    let tokenizer = Tokenizer::train(&TokenizerConfig::Word { min_frequency: 2 }, &all.join("\n"))?;
    let mut found = Vec::new();
    for name in ["encoder", "decoder", "encoder and decoder"] {
        let training = StepLoader::new(encoded(&learnt, &tokenizer)?, Texts, 32, &device).shuffled(1, 0..steps);
        let training: Batches<Batch> = Arc::new(training);
        let validation: Batches<Batch> = Arc::new(StepLoader::new(encoded(&unseen, &tokenizer)?, Texts, 64, &device));
        let model = Labeller::new(tokenizer.vocab_size(), [width, layers], name, &device.clone().autodiff());
        let (parameters, begun) = (model.num_params(), Instant::now());
        let model = fitted(TrainingModule::new(model, ()), [training, validation.clone()], steps, 1e-3)?.model;
        let (seconds, mut named) = (begun.elapsed().as_secs_f64(), 0);
        for batch in validation.iter() {
            let Batch { tokens, padding, labels } = batch?;
            named += right(model.forward(tokens, padding), labels);
        }
        let accuracy = named as f64 / unseen.len() as f64;
        println!("{name}: {parameters} parameters, accuracy {accuracy:.4}, {seconds:.1} s");
        found.push(accuracy);
    }
    Ok(found)
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(|| {
        let (toy, words) = toy_or_words();
        let [train, dev] = words.as_slice() else {
            bail!("expected TRAIN and DEV behind the `--`: two files of texts")
        };
        measure([train, dev], if toy { TOY } else { FULL }).map(drop)
    })
}

#[test]
fn all_three_are_measured_at_toy_size() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("texts.tsv").display().to_string();
    std::fs::write(&path, "a good film\t1\na bad film, and long\t0\n".repeat(20)).unwrap();
    let found = measure([&path, &path], TOY).unwrap();
    assert!(found.len() == 3 && found.iter().all(|accuracy| (0.0..=1.0).contains(accuracy)), "{found:?}");
    std::fs::write(&path, "a good film\t2\n").unwrap();
    assert!(
        measure([&path, &path], TOY).unwrap_err().to_string().ends_with("line 1: expected a text, a tab, and 0 or 1")
    );
}
