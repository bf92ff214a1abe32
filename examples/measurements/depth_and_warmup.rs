//! What a warm-up and the place of the norms are worth in a deep stack: the same language model with pre-norm and post-norm, with a warm-up
//! and without, and the norm of the gradient of every layer before the first step and at the last one.
//!
//! Source of the question: Xiong et al. 2020, On layer normalization in the Transformer architecture, §3
//! (<https://arxiv.org/abs/2002.04745>); weights are drawn by Xavier's rule.
//!
//! Command: cargo run --release -p firelight-examples --example depth_and_warmup -- [TEXT] [--toy]
//! (TEXT: a file, such as tiny Shakespeare; without it stories are made up)
//! Time: about four minutes on one CPU core, seconds with --toy.
//! Expect: for each of four trainings the validation loss, and two lines with a number for each layer, the lowest layer first.

use anyhow::Result;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use burn::train::{TrainOutput, TrainStep};
use firelight::language::{LanguageModelConfig, LmBatch, LmTask};
use firelight::nn::{LossConfig, NormPlacement, ParamBuilder, WeightInit};
use firelight::training::{OptimizerConfig, ScheduleConfig, ScheduleKind, Trainer, evaluate};
use firelight_examples::{Characters, toy_or_words};

/// The learning rate behind the warm-up.
const LEARNING_RATE: f64 = 3e-3;

/// What is trained: the width, the layers, the length of a window, and steps, of which a third may be the warm-up.
type Sizes = [usize; 4];
const FULL: Sizes = [64, 12, 64, 300];
const TOY: Sizes = [8, 3, 8, 6];

/// How a training went.
struct Course {
    /// The norms of the gradients of every layer, before the first step and at the last.
    norms: Vec<Vec<f64>>,
    /// The validation loss in nats per character, or why there is none.
    end: Result<f64, String>,
}

/// The sums of the squared gradients of each layer.
struct Squares<'a> {
    gradients: &'a GradientsParams,
    path: Vec<String>,
    of_layers: Vec<f64>,
}

impl ModuleVisitor for Squares<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let behind = self.path.iter().skip_while(|name| name.as_str() != "blocks").nth(1);
        let layer = behind.and_then(|name| name.parse::<usize>().ok());
        if let (Some(layer), Some(gradient)) = (layer, self.gradients.get::<D>(param.id)) {
            self.of_layers[layer] += gradient.square().sum().into_scalar::<f64>();
        }
    }
}

/// The norm of the gradient of each layer for a batch.
fn norms(task: &LmTask, batch: LmBatch, layers: usize) -> Vec<f64> {
    let TrainOutput { grads, .. } = TrainStep::step(task, batch);
    let mut squares = Squares { gradients: &grads, path: Vec::new(), of_layers: vec![0.0; layers] };
    task.visit(&mut squares);
    squares.of_layers.into_iter().map(f64::sqrt).collect()
}

fn train(
    text: &Characters,
    [width, layers, length, steps]: Sizes,
    norm: NormPlacement,
    warmup: usize,
) -> Result<Course> {
    let device: Device = firelight::device::select(None)?.autodiff();
    let config = LanguageModelConfig::new(text.vocab_size, width, 4, layers)
        .with_max_seq_len(length)
        .with_transformer(|stack| stack.with_norm_placement(norm).with_init(WeightInit::xavier()));
    let task = LmTask::new(config.init_with(&ParamBuilder::new(&device, 1)), LossConfig::default());
    let optimizer = OptimizerConfig { learning_rate: LEARNING_RATE, ..OptimizerConfig::default() };
    let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: warmup, ..ScheduleConfig::default() };
    let (mut trainer, mut found) = (Trainer::new(task, optimizer, schedule, 1), Vec::new());
    for (step, batch) in text.training(length, steps, &device)?.iter().enumerate() {
        let batch = batch?;
        if step == 0 || step + 1 == steps {
            found.push(norms(trainer.model(), batch.clone(), layers));
        }
        if let Err(error) = trainer.step(batch) {
            return Ok(Course { norms: found, end: Err(error.to_string()) });
        }
    }
    let end = evaluate(trainer.model(), text.validation(length, &device)?.as_ref());
    Ok(Course { norms: found, end: end.map(|end| end.loss).map_err(|error| error.to_string()) })
}

/// All four trainings.
fn measure(text: &Characters, sizes: Sizes) -> Result<Vec<Course>> {
    let mut courses = Vec::new();
    for (placement, name) in [(NormPlacement::Pre, "pre-norm"), (NormPlacement::Post, "post-norm")] {
        for warmup in [sizes[3] / 3, 0] {
            let course = train(text, sizes, placement, warmup)?;
            let end = course.end.as_ref().map_or_else(Clone::clone, |loss| format!("{loss:.4} nats per character"));
            println!("{name}, {warmup} steps of warm-up: {end}");
            for norms in &course.norms {
                println!("  {}", norms.iter().map(|norm| format!("{norm:.4}")).collect::<Vec<_>>().join(" "));
            }
            courses.push(course);
        }
    }
    Ok(courses)
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(|| {
        let (toy, words) = toy_or_words();
        let text = Characters::read(words.first(), if toy { 4_000 } else { 400_000 })?;
        measure(&text, if toy { TOY } else { FULL }).map(drop)
    })
}

#[test]
fn every_layer_has_a_gradient_at_toy_size() {
    let courses = measure(&Characters::read(None, 4_000).unwrap(), TOY).unwrap();
    for course in &courses {
        let is_whole = |norms: &Vec<f64>| norms.len() == TOY[1] && norms.iter().all(|norm| *norm > 0.0);
        assert!(course.norms.len() == 2 && course.norms.iter().all(is_whole), "{:?}", course.norms);
        assert!(course.end.as_ref().is_ok_and(|loss| loss.is_finite()), "{:?}", course.end);
    }
    // Before the first step the warm-up has done nothing, and the place of the norms all.
    assert_eq!(courses[0].norms[0], courses[1].norms[0]);
    assert!(courses[0].norms[0] != courses[2].norms[0]);
}
