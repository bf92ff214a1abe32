//! One prompt, continued in several ways: the samplers, penalties, and a rule of one's own.
//!
//! Command: cargo run --release -p firelight-examples --example generate -- runs/shakespeare "ROMEO:"
//! Time: a second each, once it is built.
//! Expect: a text for every way, under its name; greedy choice repeats itself, the others less.

use std::process::ExitCode;

use firelight::generation::processors::{Dry, HIDDEN, MirostatOptions};
use firelight::generation::{GenerationOptions, History, LogitsProcessor, Processing};
use firelight::language::TextGenerator;
use firelight::storage::TaskError;

const TOKENS: usize = 120;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, prompt] = &arguments[..] else {
        eprintln!("usage: generate RUN PROMPT");
        return ExitCode::from(2);
    };
    match TextGenerator::load(model).and_then(|generator| written(&generator, prompt, TOKENS)) {
        Ok(texts) => {
            texts.iter().for_each(|(name, text)| println!("== {name}\n{prompt}{text}\n"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            firelight::problems(&error).iter().for_each(|problem| eprintln!("error: {problem}"));
            ExitCode::FAILURE
        }
    }
}

/// The continuations of a prompt, with the names of the ways.
fn written(generator: &TextGenerator, prompt: &str, tokens: usize) -> Result<Vec<(&'static str, String)>, TaskError> {
    let drawn = || GenerationOptions::new(tokens).with_temperature(0.8).with_seed(7);
    let penalised = Processing { repetition_penalty: 1.3, ..Processing::default() };
    let dry = Processing { dry: Some(Dry { allowed: 4, ..Dry::default() }), ..Processing::default() };
    let ways = [
        ("greedy", drawn().greedy()),
        ("greedy, repetition penalty 1.3", drawn().greedy().with_processing(penalised)),
        ("greedy, DRY", drawn().greedy().with_processing(dry)),
        ("temperature 0.8", drawn()),
        ("top-k 20", drawn().with_top_k(20)),
        ("top-p 0.9", drawn().with_top_p(0.9)),
        ("min-p 0.1", drawn().with_random(|random| random.min_p = Some(0.1))),
        ("typical 0.9", drawn().with_random(|random| random.typical_p = Some(0.9))),
        (
            "Mirostat, 3 bits",
            drawn().with_random(|random| random.mirostat = Some(MirostatOptions { tau: 3.0, eta: 0.1 })),
        ),
        ("until a full stop", drawn().with_stop_strings(["."])),
        ("every token once", drawn().with_processor(Once)),
    ];
    let text = |(name, options)| Ok((name, generator.generate(prompt, &options)?.text));
    ways.into_iter().map(text).collect()
}

/// No new token is written twice, as long as there are others.
#[derive(Clone, Debug)]
struct Once;

impl LogitsProcessor for Once {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        let mut without = logits.to_vec();
        history.new_ids().iter().for_each(|&id| without[id as usize] = HIDDEN);
        if without.iter().any(|logit| logit.is_finite()) {
            logits.copy_from_slice(&without);
        }
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use firelight::data::{Tokenizer, TokenizerConfig};
    use firelight::language::LanguageModelConfig;

    #[test]
    fn every_way_writes_a_text_of_its_own() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefghijklmnopqrstuvwxyz .").unwrap();
        let device = Device::flex();
        device.seed(5);
        let config = LanguageModelConfig::new(tokenizer.vocab_size(), 16, 2, 1).with_max_seq_len(64);
        let model = config.init(&device);
        let texts = written(&TextGenerator::new(model, tokenizer), "once ", 20).unwrap();
        assert_eq!(texts.len(), 11);
        assert!(
            texts.iter().filter(|(name, _)| *name != "until a full stop").all(|(_, text)| text.chars().count() == 20)
        );
        let once = &texts[10].1;
        assert!(once.char_indices().all(|(at, c)| !once[..at].contains(c)), "{once}");
        assert_ne!(texts[0].1, texts[3].1);
    }
}
