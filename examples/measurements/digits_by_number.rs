//! A vision transformer beside a small convolutional network by the number of images that they learn from. Both have about as many
//! parameters, and `fit` trains both on the same batches.
//!
//! Source of the question: Dosovitskiy et al. 2021, An image is worth 16x16 words, §4.3 (<https://arxiv.org/abs/2010.11929>).
//!
//! Command: cargo run --release -p firelight-examples --example digits_by_number -- [DIR] [--toy]
//! (DIR: the files of MNIST, of which the training images are taken where they are there; without it digits are drawn)
//! Time: about five minutes on one CPU core, seconds with --toy.
//! Expect: a line for each number of images, with the accuracy of both on images that neither was trained on.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d, conv::Conv2d, conv::Conv2dConfig, pool::MaxPool2dConfig};
use burn::prelude::*;
use burn::tensor::activation::relu;
use firelight::data::{
    Augmentation, ImageDataset, ImageFiles, ImageSet, Normalization, ReadOptions, StepLoader, drawn_digits,
};
use firelight::nn::{LossConfig, ParamBuilder, TokenLoss, TransformerConfig};
use firelight::training::{Objective, Switches, TrainLoss, TrainingModule, ValidOutput};
use firelight::vision::{ImageBatch, ImageBatcher, VisionConfig, VisionModel, VitSize};
use firelight_examples::{Batches, fitted, measured, minimised, right, toy_or_words};

/// How many images are learnt from, and the steps of 32 images each.
const FULL: ([usize; 4], usize) = ([100, 400, 1600, 6400], 600);
const TOY: ([usize; 4], usize) = ([4, 8, 16, 32], 2);

/// Two convolutions with pooling, and two linear layers behind them.
#[derive(Module, Debug)]
struct Convolutions {
    convolutions: Vec<Conv2d>,
    inner: Linear,
    output: Linear,
}

/// What is compared.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "Burn's modules cannot be boxed")]
enum Network {
    Transformer(VisionModel),
    Convolutions(Convolutions),
}

impl Network {
    fn transformer(images: &ImageSet, device: &Device) -> Self {
        let (shape, classes) = (images.shape(), images.classes().to_vec());
        let size = [shape.height, shape.width];
        let config = VisionConfig::of_small_images(VitSize::Tiny, classes, shape.channels, size);
        let config = config.with_stack(|_| TransformerConfig::encoder(64, 4, 2));
        Self::Transformer(config.init_with(&ParamBuilder::new(device, 1)))
    }

    fn convolutions(images: &ImageSet, device: &Device) -> Self {
        device.seed(1);
        let layer = |channels| Conv2dConfig::new(channels, [3, 3]).with_padding(PaddingConfig2d::Same).init(device);
        let (shape, classes) = (images.shape(), images.classes().len());
        let pooled = 32 * (shape.height / 4) * (shape.width / 4);
        Self::Convolutions(Convolutions {
            convolutions: vec![layer([shape.channels, 16]), layer([16, 32])],
            inner: LinearConfig::new(pooled, 64).init(device),
            output: LinearConfig::new(64, classes).init(device),
        })
    }

    /// `[B, C, H, W] -> [B, classes]`.
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let network = match self {
            Self::Transformer(model) => return model.forward(images),
            Self::Convolutions(network) => network,
        };
        let pool = MaxPool2dConfig::new([2, 2]).init();
        let convolutions = network.convolutions.iter();
        let maps = convolutions.fold(images, |maps, layer| pool.forward(relu(layer.forward(maps))));
        network.output.forward(relu(network.inner.forward(maps.flatten::<2>(1, 3))))
    }

    fn loss(&self, batch: ImageBatch) -> TokenLoss {
        let logits = self.forward(batch.images).unsqueeze_dim::<3>(1); // [B, 1, classes]
        LossConfig::new().init().forward(logits, batch.targets.unsqueeze_dim::<2>(1), None)
    }
}

impl Objective for Network {
    type Batch = ImageBatch;
    type Loss = LossConfig;
    type Answers = ();

    fn train_loss(&self, batch: ImageBatch, _: &LossConfig, _: Switches) -> TrainLoss {
        minimised(self.loss(batch))
    }

    fn valid_step(&self, batch: ImageBatch, _: Switches) -> ValidOutput<()> {
        measured(self.loss(batch))
    }
}

/// The share of the `unseen` images that a network names rightly once it has learnt from the others.
fn accuracy(network: Network, [learnt, unseen]: [&ImageSet; 2], steps: usize, device: &Device) -> Result<f64> {
    let (normalization, batcher) = (Normalization::of(learnt), ImageBatcher::new(learnt.shape()));
    let (count, augmentation) = (unseen.len(), Augmentation::default());
    let images = ImageDataset::for_training(learnt.clone(), normalization.clone(), augmentation, 1, [32, steps]);
    let training: Batches<ImageBatch> = Arc::new(StepLoader::new(images, batcher, 32, device));
    let unseen = ImageDataset::for_evaluation(unseen.clone(), normalization);
    let unseen: Batches<ImageBatch> = Arc::new(StepLoader::new(unseen, batcher, 128, device));
    let task = TrainingModule::new(network, LossConfig::default());
    let network = fitted(task, [training, unseen.clone()], steps, 1e-3)?.model;
    let mut found = 0;
    for batch in unseen.iter() {
        let ImageBatch { images, targets, .. } = batch?;
        found += right(network.forward(images), targets);
    }
    Ok(found as f64 / count as f64)
}

/// The accuracies of both by the number of images.
fn measure(images: &ImageSet, (counts, steps): ([usize; 4], usize)) -> Result<Vec<[f64; 2]>> {
    let device = firelight::device::select(None)?;
    let (learnt, unseen) = images.split(images.len() / 5)?;
    let most = counts[counts.len() - 1];
    ensure!(most < learnt.len(), "{} images are too few: {most} are to be learnt from", images.len());
    let autodiff = device.clone().autodiff();
    let networks = [Network::transformer(images, &autodiff), Network::convolutions(images, &autodiff)];
    println!("parameters: {} and {}", networks[0].num_params(), networks[1].num_params());
    let of_count = |count: usize| -> Result<[f64; 2]> {
        let (few, _) = learnt.split(learnt.len() - count)?;
        let of = |network: &Network| accuracy(network.clone(), [&few, &unseen], steps, &device);
        let found = [of(&networks[0])?, of(&networks[1])?];
        println!("{count} images: transformer {:.3}, convolutions {:.3}", found[0], found[1]);
        Ok(found)
    };
    counts.into_iter().map(of_count).collect()
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(|| {
        let (toy, words) = toy_or_words();
        let images = match words.first() {
            Some(folder) => {
                let mut splits = ImageFiles::splits(Path::new(folder))?;
                let files = splits.remove("train").or_else(|| splits.into_values().next());
                files.with_context(|| format!("`{folder}` holds no images"))?.read(&ReadOptions::default())?.set
            }
            None => drawn_digits(1, if toy { 60 } else { 10_000 }),
        };
        measure(&images, if toy { TOY } else { FULL }).map(drop)
    })
}

#[test]
fn both_networks_are_measured_at_toy_size() {
    let found = measure(&drawn_digits(1, 60), TOY).unwrap();
    assert_eq!(found.len(), 4);
    assert!(found.iter().flatten().all(|accuracy| (0.0..=1.0).contains(accuracy)), "{found:?}");
    assert!(measure(&drawn_digits(1, 30), TOY).unwrap_err().to_string().contains("30 images are too few"));
}
