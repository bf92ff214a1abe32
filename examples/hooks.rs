//! Activations of a trained model, read and changed by their paths: what it would say behind each layer (the logit lens), what it says
//! without the attention of one, and which token of which layer carries what makes two texts differ (activation patching).
//!
//! Sources: nostalgebraist 2020, "interpreting GPT: the logit lens"; Vig et al. 2020 (<https://arxiv.org/abs/2004.12265>).
//!
//! Command: cargo run --release -p firelight-examples --example hooks
//! Time: seconds on two CPU cores.
//! Expect: `meow` behind the last layer; a grid whose last row restores all at the last token and nothing at the first one; and in some
//! layer the answer moves from the column of the animal to that of the last token.

use anyhow::Result;
use burn::prelude::*;
use firelight::data::{Tokenizer, TokenizerConfig};
use firelight::language::{LanguageModel, LanguageModelConfig};
use firelight::nn::inspect::{Columns, Grid, logit_lens, patching_effects};
use firelight::nn::{Ablation, ActivationSlice, Hooks, LossConfig, ParamBuilder, Pass, SequenceInput};
use firelight_examples::train;

/// What the model learns by heart: the second word decides the last one.
const SENTENCES: [&str; 3] = ["the cat says meow", "the dog says woof", "the cow says moo"];

/// A trained model that reads words.
struct Reader {
    model: LanguageModel,
    tokenizer: Tokenizer,
}

impl Reader {
    fn learn(steps: usize, device: &Device) -> Result<Self> {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Word { min_frequency: 1 }, &SENTENCES.join("\n"))?;
        let device = device.clone().autodiff();
        let rows = SENTENCES.map(|sentence| tokenizer.encode(sentence)).into_iter().collect::<Result<Vec<_>, _>>()?;
        let rows = Tensor::<1, Int>::from_ints(rows.concat().as_slice(), &device).reshape([3, 4]);
        let config = LanguageModelConfig::new(tokenizer.vocab_size(), 32, 4, 3).with_max_seq_len(8);
        let (model, _) = train(config.init_with(&ParamBuilder::new(&device, 1)), steps, |model, _| {
            let logits = model.forward(rows.clone().narrow(1, 0, 3));
            LossConfig::new().init().forward(logits, rows.clone().narrow(1, 1, 3), None).mean()
        });
        Ok(Self { model: model.valid(), tokenizer })
    }

    /// The output of the stack, `[1, T, D]`.
    fn hidden(&self, text: &str, pass: &mut Pass) -> Tensor<3> {
        let ids = self.tokenizer.encode(text).unwrap_or_default(); // Words that it does not know are one token.
        let tokens = Tensor::<1, Int>::from_ints(ids.as_slice(), &self.model.devices()[0]).unsqueeze();
        self.model.hidden(tokens, &SequenceInput::default(), pass)
    }

    /// The likeliest word behind a text, by what its last token has become.
    fn said(&self, hidden: Tensor<3>) -> String {
        let [_, length, _] = hidden.dims();
        let best = self.model.logits(hidden.narrow(1, length - 1, 1)).argmax(2).into_scalar::<i64>();
        self.tokenizer.decode(&[best as u32])
    }

    /// What the model would say before the first layer and behind each one.
    fn lens(&self, text: &str) -> Result<Vec<String>> {
        Ok(logit_lens(&self.model.transformer, |pass| self.hidden(text, pass), |hidden| self.said(hidden))?)
    }

    /// What it says when the attention of a layer adds nothing.
    fn without(&self, layer: usize, text: &str) -> Result<String> {
        let path = format!("blocks.{layer}.attention.output");
        let mut hooks = Hooks::new().ablate(path, Ablation::Zero, ActivationSlice::all());
        Ok(self.said(hooks.run(|pass| self.hidden(text, pass))?.0))
    }

    /// The logit of one word above that of another, behind a text: `[1]`.
    fn difference(&self, text: &str, words: [usize; 2], pass: &mut Pass) -> Tensor<1> {
        let hidden = self.hidden(text, pass);
        let [_, length, _] = hidden.dims();
        let logits = self.model.logits(hidden.narrow(1, length - 1, 1)); // [1, 1, V]
        let [answer, wrong] = words.map(|word| logits.clone().narrow(2, word, 1).reshape([1]));
        answer - wrong
    }

    /// The share of the difference of two answers that comes back when one token behind one layer is carried from the first text into the
    /// second one.
    fn patched(&self, texts: [&'static str; 2], words: [&str; 2]) -> Result<Grid> {
        let ids = words.map(|word| self.tokenizer.encode(word)).into_iter().collect::<Result<Vec<_>, _>>()?.concat();
        let (words, [clean, corrupted]) = ([ids[0] as usize, ids[1] as usize], texts);
        let run = |text: &'static str| move |pass: &mut Pass| self.difference(text, words, pass);
        Ok(patching_effects("blocks.*.output", Columns::Positions, run(clean), run(corrupted))?)
    }
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let reader = Reader::learn(300, &firelight::device::select(None)?)?;
    println!("the cat says: {}", reader.lens("the cat says")?.join(" -> "));
    for layer in 0..3 {
        println!("without the attention of layer {layer}: {}", reader.without(layer, "the cat says")?);
    }
    println!("{:>15}{:>8}{:>9}{:>8}", "restored by", "the", "dog/cat", "says");
    let grid = reader.patched(["the cat says", "the dog says"], ["meow", "woof"])?;
    for (path, shares) in grid.paths.iter().zip(&grid.values) {
        println!("{path:>15}{}", shares.iter().map(|share| format!("{share:8.3}")).collect::<String>());
    }
    Ok(())
}

#[test]
fn a_small_model_says_what_it_learnt_and_patches_restore_it() {
    let reader = Reader::learn(200, &Device::flex()).unwrap();
    let said = reader.lens("the cat says").unwrap();
    assert_eq!((said.len(), said[3].as_str()), (4, "meow"));
    let says_one = |layer| SENTENCES.iter().any(|text| text.contains(&reader.without(layer, "the cat says").unwrap()));
    assert!((0..3).all(says_one));
    let grid = reader.patched(["the cat says", "the dog says"], ["meow", "woof"]).unwrap();
    assert!((grid.values[2][2] - 1.0).abs() < 1e-3, "{grid:?}");
    assert!(grid.values.iter().all(|shares| shares[0].abs() < 1e-3), "`the` is the same in both: {grid:?}");
    assert!(grid.values[2][1].abs() < 1e-3, "behind the last layer nothing reads `cat` any more: {grid:?}");
}
