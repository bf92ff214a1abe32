//! What a compressed past saves and costs: a text is read in pieces through the KV cache of a trained run, with all tokens in it and with
//! means in the place of old ones.
//!
//! Source: Rae et al. 2020, Compressive Transformers, §3 (<https://arxiv.org/abs/1911.05507>), mean pooling; here without a training for it.
//!
//! Command: cargo run --release -p firelight-examples --example compressed_past -- runs/shakespeare text.txt
//! Time: half a minute for a model of a million parameters on two CPU cores, once it is built.
//! Expect: one line for each setting; the more is compressed, the less memory and the more nats a token.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use burn::tensor::{Device, Int, Tensor};
use firelight::data::read_text;
use firelight::language::{LanguageModel, TextGenerator};
use firelight::nn::{Cache, Compression, LossConfig, Pass, SequenceInput};

/// Tokens that are read at once, and tokens of the text that are read at most.
const PIECE: usize = 16;
const TOKENS: usize = 20_000;

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, text] = &arguments[..] else { bail!("expected a run folder and a text file") };
    let readings = measured(&TextGenerator::load(model)?, &read_text(text)?)?;
    readings.iter().for_each(|(name, reading)| println!("{name}: {}", reading.told()));
    Ok(())
}

/// What reading a text took.
struct Reading {
    /// The mean loss of a token.
    nats: f64,
    /// The largest size of the cache.
    bytes: usize,
    /// The mean time of a token.
    seconds: f64,
}

impl Reading {
    fn told(&self) -> String {
        let (kib, ms) = (self.bytes as f64 / 1024.0, 1e3 * self.seconds);
        format!("{:.4} nats a token, {kib:.0} KiB of cache, {ms:.3} ms a token", self.nats)
    }
}

/// The text read by each setting, with its name.
fn measured(generator: &TextGenerator, text: &str) -> Result<Vec<(String, Reading)>> {
    let (model, ids) = (generator.model(), generator.tokenizer().encode(text)?);
    ensure!(ids.len() > 1, "the text has {} tokens, expected 2 or more", ids.len());
    let ids = &ids[..ids.len().min(TOKENS)];
    let mut readings = vec![("all tokens".to_string(), read(model, ids, model.cache()))];
    for (part, rate) in [(2, 4), (4, 4), (4, 16), (8, 4)] {
        let recent = (model.max_seq_len() / part).max(1);
        let cache = model.compressed_cache(Compression { recent, rate })?;
        readings.push((format!("the last {recent}, and the mean of every {rate} before"), read(model, ids, cache)));
    }
    Ok(readings)
}

/// Reads a text, one context after the other, each from an empty cache.
fn read(model: &LanguageModel, ids: &[u32], mut cache: Cache) -> Reading {
    let (begun, last, context) = (Instant::now(), ids.len() - 1, model.max_seq_len());
    let (mut nats, mut bytes) = (0.0, 0);
    for start in (0..last).step_by(context) {
        let end = last.min(start + context);
        cache.clear();
        for (inputs, targets) in ids[start..end].chunks(PIECE).zip(ids[start + 1..=end].chunks(PIECE)) {
            nats += loss(model, inputs, targets, &mut cache);
            bytes = bytes.max(cache.bytes());
        }
    }
    Reading { nats: nats / last as f64, bytes, seconds: begun.elapsed().as_secs_f64() / last as f64 }
}

/// The sum of the losses of a piece that continues what the cache has read.
fn loss(model: &LanguageModel, inputs: &[u32], targets: &[u32], cache: &mut Cache) -> f64 {
    let device = model.embedding.weight.device();
    let hidden = model.hidden(row(inputs, &device), &SequenceInput::default(), &mut Pass::cached(cache));
    let criterion = LossConfig::new().init();
    let loss = criterion.forward_head(model.lazy_logits(hidden), row(targets, &device), None);
    f64::from(loss.total.into_scalar::<f32>())
}

/// `[1, T]`.
fn row(ids: &[u32], device: &Device) -> Tensor<2, Int> {
    Tensor::<1, Int>::from_ints(ids, device).unsqueeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight::data::{Tokenizer, TokenizerConfig, stories};
    use firelight::language::LanguageModelConfig;

    #[test]
    fn every_setting_reads_the_text_and_the_most_compressed_takes_the_least_memory() {
        let (text, device) = (stories(1, 300), Device::flex());
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &text).unwrap();
        device.seed(5);
        let model = LanguageModelConfig::new(tokenizer.vocab_size(), 16, 2, 1).with_max_seq_len(64).init(&device);
        let ids = tokenizer.encode(&text).unwrap();
        let whole = &ids[..65];
        let plain = model.forward(row(&whole[..64], &device));
        let expected = LossConfig::new().init().forward(plain, row(&whole[1..], &device), None).mean();
        let found = read(&model, whole, model.cache()).nats;
        assert!((found - f64::from(expected.into_scalar::<f32>())).abs() < 1e-4, "{found}");

        let readings = measured(&TextGenerator::new(model, tokenizer), &text).unwrap();
        assert_eq!(readings.len(), 5);
        assert!(readings.iter().all(|(_, reading)| reading.nats.is_finite() && reading.seconds > 0.0));
        assert!(readings[4].1.bytes < readings[0].1.bytes);
        assert_eq!(readings[2].0, "the last 16, and the mean of every 4 before");
        assert!(readings[0].1.told().contains(" KiB of cache, "));
    }
}
