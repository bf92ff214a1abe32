//! What becomes of the loss beyond the length of the training, by the way in which a model knows positions: small models learn from
//! windows of 64 characters and are measured on windows of 64 to 512.
//!
//! Source of the question: Press et al. 2022, Train short, test long, figure 1 (<https://arxiv.org/abs/2108.12409>).
//!
//! Command: cargo run --release -p firelight-examples --example longer_than_trained -- [TEXT] [--toy]
//! (TEXT: a file, such as tiny Shakespeare; without it stories are made up)
//! Time: about six minutes on one CPU core, seconds with --toy.
//! Expect: a line for each scheme, with the validation loss in nats per character at 1, 2, 4 and 8 times the length.

use anyhow::Result;
use burn::tensor::Device;
use firelight::language::{LanguageModelConfig, LmTask};
use firelight::nn::{LossConfig, ParamBuilder, PositionConfig};
use firelight::training::evaluate;
use firelight_examples::{Characters, fitted, toy_or_words};

/// Lengths that are measured, in lengths of the training.
const TIMES: [usize; 4] = [1, 2, 4, 8];

/// What is trained.
struct Sizes {
    width: usize,
    layers: usize,
    length: usize,
    steps: usize,
    /// Characters of the stories, where there is no text.
    generated: usize,
}

impl Sizes {
    fn full() -> Self {
        Self { width: 128, layers: 4, length: 64, steps: 500, generated: 400_000 }
    }

    fn toy() -> Self {
        Self { width: 16, layers: 1, length: 8, steps: 20, generated: 4_000 }
    }
}

/// The schemes by name. Learned positions have a table of the whole length, whose rows behind the first window nobody trains.
fn schemes() -> [(&'static str, PositionConfig); 7] {
    [
        ("none", PositionConfig::None),
        ("learned", PositionConfig::Learned),
        ("sinusoidal", PositionConfig::Sinusoidal),
        ("rotary", PositionConfig::rotary()),
        ("alibi", PositionConfig::Alibi),
        ("t5", PositionConfig::t5(false)),
        ("shaw", PositionConfig::shaw()),
    ]
}

/// The validation losses of a model with these positions at every length.
fn losses(text: &Characters, sizes: &Sizes, position: PositionConfig, device: &Device) -> Result<Vec<f64>> {
    let longest = TIMES[TIMES.len() - 1] * sizes.length;
    // Sines have a size of their own: embeddings are brought to it, as in the original Transformer.
    let is_sinusoidal = position == PositionConfig::Sinusoidal;
    let config = LanguageModelConfig::new(text.vocab_size, sizes.width, 4, sizes.layers)
        .with_max_seq_len(longest)
        .with_scale_embedding(is_sinusoidal)
        .with_transformer(|stack| stack.with_position(position));
    let model = config.init_with(&ParamBuilder::new(&device.clone().autodiff(), 1));
    let task = LmTask::new(model, LossConfig::default());
    let training = text.training(sizes.length, sizes.steps, device)?;
    let task = fitted(task, [training, text.validation(sizes.length, device)?], sizes.steps, 3e-3)?;
    let at = |times: usize| -> Result<f64> {
        let windows = text.validation(times * sizes.length, device)?;
        Ok(evaluate(&task, windows.as_ref())?.loss)
    };
    TIMES.into_iter().map(at).collect()
}

/// The losses of every scheme.
fn measure(text: &Characters, sizes: &Sizes) -> Result<Vec<(&'static str, Vec<f64>)>> {
    let device = firelight::device::select(None)?;
    let mut found = Vec::new();
    for (name, position) in schemes() {
        let losses = losses(text, sizes, position, &device)?;
        let shown: Vec<String> = losses.iter().map(|loss| format!("{loss:.4}")).collect();
        println!("{name:<10}  {}", shown.join("  "));
        found.push((name, losses));
    }
    Ok(found)
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let (toy, words) = toy_or_words();
    let sizes = if toy { Sizes::toy() } else { Sizes::full() };
    let lengths = TIMES.map(|times| (times * sizes.length).to_string());
    println!("trained on windows of {}, measured on {}", sizes.length, lengths.join(", "));
    measure(&Characters::read(words.first(), sizes.generated)?, &sizes)?;
    Ok(())
}

#[test]
fn every_scheme_is_measured_at_toy_size() {
    let text = Characters::read(None, Sizes::toy().generated).unwrap();
    let found = measure(&text, &Sizes::toy()).unwrap();
    let uniform = (text.vocab_size as f64).ln();
    assert_eq!(found.len(), schemes().len());
    for (name, losses) in &found {
        assert_eq!(losses.len(), TIMES.len());
        assert!(losses[0] < uniform && losses.iter().all(|loss| loss.is_finite()), "{name}: {losses:?}");
    }
    // Without positions and with sinusoids the models see other things.
    assert!((found[0].1[3] - found[2].1[3]).abs() > 1e-4, "{found:?}");
}
