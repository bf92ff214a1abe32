//! One prompt, continued in several ways: samplers, penalties, a rule of one's own, searches, a regular expression, and guesses.
//!
//! Command: cargo run --release -p firelight-examples --example generate -- runs/shakespeare "ROMEO:"
//! Time: a second each, once it is built.
//! Expect: a text for every way, under its name; greedy choice repeats itself, the others less; with guesses it is the same text sooner.

use anyhow::Result;
use firelight::generation::processors::{Dry, HIDDEN, MirostatOptions};
use firelight::generation::{
    BeamOptions, Constraint, ContrastiveOptions, GenerationOptions, History, LogitsProcessor, Processing, PromptLookup,
};
use firelight::language::TextGenerator;

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let [model, prompt] = firelight_examples::words("RUN PROMPT")?;
    let texts = written(TextGenerator::load(model)?, &prompt, 120)?;
    texts.iter().for_each(|(name, text)| println!("== {name}\n{prompt}{text}\n"));
    Ok(())
}

/// The continuations of a prompt in all ways, with the names of these.
fn written(generator: TextGenerator, prompt: &str, tokens: usize) -> Result<Vec<(&'static str, String)>> {
    let mut ways = token_by_token(&generator, prompt, tokens)?;
    ways.extend(searched(&generator, prompt, tokens)?);
    let constraint = Some(Constraint::regex(r"[a-z ]+\.", generator.tokenizer())?);
    let words = Processing { constraint, ..Processing::default() };
    let words = GenerationOptions::new(tokens).with_seed(7).with_processing(words);
    ways.push(("a regular expression", generator.generate(prompt, &words)?.text));
    let guessing = generator.with_lookup(PromptLookup::default());
    let greedy = GenerationOptions::new(tokens).greedy();
    ways.push(("greedy, with guesses from the text", guessing.generate(prompt, &greedy)?.text));
    Ok(ways)
}

/// The ways that choose one token after the other.
fn token_by_token(generator: &TextGenerator, prompt: &str, tokens: usize) -> Result<Vec<(&'static str, String)>> {
    let drawn = || GenerationOptions::new(tokens).with_temperature(0.8).with_seed(7);
    let penalised = Processing { repetition_penalty: 1.3, ..Processing::default() };
    let dry = Processing { dry: Some(Dry { allowed: 4, ..Dry::default() }), ..Processing::default() };
    let mirostat = MirostatOptions { tau: 3.0, eta: 0.1 };
    let ways = [
        ("greedy", drawn().greedy()),
        ("greedy, repetition penalty 1.3", drawn().greedy().with_processing(penalised)),
        ("greedy, DRY", drawn().greedy().with_processing(dry)),
        ("temperature 0.8", drawn()),
        ("top-k 20", drawn().with_top_k(20)),
        ("top-p 0.9", drawn().with_top_p(0.9)),
        ("min-p 0.1", drawn().with_random(|random| random.min_p = Some(0.1))),
        ("typical 0.9", drawn().with_random(|random| random.typical_p = Some(0.9))),
        ("Mirostat, 3 bits", drawn().with_random(|random| random.mirostat = Some(mirostat))),
        ("until a full stop", drawn().with_stop_strings(["."])),
        ("every token once", drawn().with_processor(Once)),
    ];
    let text = |(name, options)| Ok((name, generator.generate(prompt, &options)?.text));
    ways.into_iter().map(text).collect()
}

/// The ways that compare several texts, or several tokens.
fn searched(generator: &TextGenerator, prompt: &str, tokens: usize) -> Result<Vec<(&'static str, String)>> {
    let beams = BeamOptions::new(tokens).with_beams(4);
    let groups = beams.clone().with_groups(4, 2.0).with_n_best(4);
    let last = |options: &BeamOptions| anyhow::Ok(generator.search(prompt, options)?.pop().map(|found| found.0));
    let contrastive = ContrastiveOptions::new(tokens).with_contrast(4, 0.6);
    let drawn = GenerationOptions::new(tokens).with_temperature(0.8).with_seed(7);
    Ok(vec![
        ("4 beams", last(&beams)?.unwrap_or_default()),
        ("4 groups of beams, the least probable", last(&groups)?.unwrap_or_default()),
        ("the best of 5 draws", generator.generate_best(prompt, 5, &drawn)?.text),
        ("contrastive search", generator.contrast(prompt, &contrastive)?.text),
    ])
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
    use firelight::data::{Tokenizer, TokenizerConfig};
    use firelight::language::LanguageModelConfig;

    #[test]
    fn every_way_writes_a_text_of_its_own() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefghijklmnopqrstuvwxyz .").unwrap();
        let device = burn::tensor::Device::flex();
        device.seed(5);
        let model = LanguageModelConfig::new(tokenizer.vocab_size(), 16, 2, 1).with_max_seq_len(64).init(&device);
        let texts = written(TextGenerator::new(model, tokenizer), "once ", 20).unwrap();
        assert_eq!(texts.len(), 17);
        let of = |way: &str| texts.iter().find(|(name, _)| *name == way).unwrap().1.as_str();
        let shorter = ["until a full stop", "a regular expression"];
        let whole = texts.iter().filter(|(name, _)| !shorter.contains(name));
        assert!(whole.clone().count() == 15 && whole.map(|(_, text)| text).all(|text| text.chars().count() == 20));
        let once = of("every token once");
        assert!(once.char_indices().all(|(at, c)| !once[..at].contains(c)), "{once}");
        assert_ne!(of("greedy"), of("temperature 0.8"));
        assert_ne!(of("4 beams"), of("4 groups of beams, the least probable"));
        assert!(of("a regular expression").ends_with('.'), "{}", of("a regular expression"));
        assert_eq!(of("greedy, with guesses from the text"), of("greedy"));
    }
}
