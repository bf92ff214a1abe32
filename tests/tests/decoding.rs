//! Choosing tokens on the device under test: what a backend's argmax, gather and reading to the host do to equal, hidden
//! and broken logits.

use std::collections::BTreeSet;

use burn::tensor::{Device, Tensor, TensorData};
use firelight::generation::processors::Xtc;
use firelight::generation::{
    BeamOptions, ContrastiveOptions, GenerationError, GenerationOptions, Processing, PromptLookup, Sampler,
    TokenStream, beam_search, contrastive_search,
};
use firelight::language::{LanguageModel, LanguageModelConfig};
use firelight::nn::{Init, ParamBuilder, WeightInit};

use crate::support::device;

fn logits<const B: usize, const V: usize>(rows: [[f32; V]; B]) -> Tensor<2> {
    Tensor::from_data(TensorData::from(rows), &device())
}

fn sampler(options: &GenerationOptions) -> Sampler {
    Sampler::new(options).expect("options in range")
}

#[test]
fn greedy_takes_the_lowest_id_among_equals() {
    let sampler = sampler(&GenerationOptions::new(1).greedy());
    let hidden = f32::NEG_INFINITY;
    let short = [[0.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0], [hidden, -1.0, hidden, -1.0]];
    let sampled = sampler.sample(logits(short), 0).expect("sound logits");
    assert_eq!(sampled.ids, [1, 0, 1]);
    assert_eq!(sampled.tokens.into_data().iter::<u32>().collect::<Vec<_>>(), [1, 0, 1]);

    // A vocabulary that a GPU searches in several parts.
    let mut long = [[0.0; 5000]; 2];
    for (row, ids) in long.iter_mut().zip([[300_usize, 301, 4999], [31, 2048, 4096]]) {
        for id in ids {
            row[id] = 1.0;
        }
    }
    assert_eq!(sampler.sample(logits(long), 0).expect("sound logits").ids, [300, 31]);
}

#[test]
fn the_processed_distribution_is_drawn_from() {
    // Seed 7 draws 0.764 for row 0 and 0.934 for row 1 of step 0.
    let rows = [[0.5f32, 0.25, 0.1, 0.15].map(f32::ln); 2];
    let draw = |options: &GenerationOptions, step| sampler(options).sample(logits(rows), step).expect("sound").ids;
    let plain = GenerationOptions::new(1).with_temperature(1.0).with_seed(7);
    let sharp = plain.clone().with_temperature(0.5);

    assert_eq!(draw(&plain, 0), [2, 3]); // running sums 0.5, 0.75, 0.85, 1
    assert_eq!(draw(&sharp, 0), [1, 2]); // 100, 25, 4 and 9 of 138: 0.725, 0.906, 0.935, 1
    assert_eq!(draw(&plain.clone().with_top_k(2), 0), [1, 1]); // 2/3, 1
    assert_eq!(draw(&plain.clone().with_top_k(1), 0), [0, 0]);
    assert_eq!(draw(&plain.clone().with_top_p(0.7), 0), [1, 1]); // the first two hold 0.75
    assert_eq!(draw(&plain.with_top_p(0.8), 0), [1, 3]); // ids 0, 1, 3: 0.556, 0.833, 1

    // Of 100, 25 and 9 of 134 the first two hold 0.933, the first alone 0.746.
    let filtered = sharp.with_top_k(3).with_top_p(0.9);
    let drawn: BTreeSet<u32> = (0..50).flat_map(|step| draw(&filtered, step)).collect();
    assert_eq!(drawn, BTreeSet::from([0, 1]));
}

#[test]
fn logits_that_are_no_distribution_are_refused() {
    let broken = [[0.0, f32::NAN, 1.0], [0.0, f32::INFINITY, 0.0], [f32::NEG_INFINITY; 3]];
    for options in [GenerationOptions::new(1), GenerationOptions::new(1).greedy()] {
        for row in broken {
            let error = sampler(&options).sample(logits([[0.0; 3], row]), 4).expect_err("a broken row");
            assert!(matches!(error, GenerationError::NonFiniteLogits { step: 4, row: 1 }), "{row:?}: {error}");
        }
    }
}

/// Of one set of weights, on any device.
fn model(device: &Device) -> LanguageModel {
    let wide = WeightInit { weight: Init::Normal { std: 0.4 }, scale_residual: false };
    let config = LanguageModelConfig::new(40, 16, 2, 2).with_max_seq_len(64);
    config.with_transformer(|stack| stack.with_init(wide)).init_with(&ParamBuilder::new(device, 3))
}

fn written(stream: Result<TokenStream<'_, LanguageModel>, GenerationError>) -> Vec<u32> {
    stream.expect("a prompt that fits").flat_map(|step| step.expect("sound logits")).flatten().collect()
}

/// What one seed writes, in each of several ways.
fn texts(device: &Device) -> Vec<Vec<u32>> {
    let (model, prompt) = (model(device), || vec![vec![3, 1, 4, 1, 5], vec![9, 2, 6]]);
    let drawn = GenerationOptions::new(30).with_temperature(1.1).with_seed(11);
    let filtered = drawn.clone().with_top_p(0.9).with_random(|random| {
        (random.min_p, random.typical_p, random.top_n_sigma) = (Some(0.01), Some(0.95), Some(3.0));
        random.xtc = Some(Xtc::default());
    });
    let penalties = Processing { repetition_penalty: 1.3, no_repeat_ngram_size: 3, ..Processing::default() };
    let penalised = filtered.clone().with_processing(penalties);
    let ways = [drawn.clone().greedy(), drawn.clone(), filtered, penalised];
    let mut texts: Vec<_> = ways.iter().map(|way| written(TokenStream::new(&model, prompt(), way))).collect();
    let guessed = TokenStream::new(&model, vec![prompt().remove(0)], &drawn);
    texts.push(written(guessed.map(|stream| stream.with_drafter(PromptLookup::default()))));
    let beams = beam_search(&model, prompt(), &BeamOptions::new(12).with_beams(3)).expect("beams");
    texts.extend(beams.into_iter().map(|mut row| row.remove(0).ids));
    let contrastive = contrastive_search(&model, prompt(), &ContrastiveOptions::new(12)).expect("a search");
    texts.extend(contrastive.into_iter().map(|row| row.ids));
    texts
}

#[cfg(feature = "flex")]
#[test]
fn one_seed_writes_one_text_on_every_backend() {
    let (here, flex) = (texts(&device()), texts(&Device::flex()));
    assert_eq!(here, flex);
    let different: BTreeSet<_> = here.iter().collect();
    assert_eq!(different.len(), here.len(), "every way writes a text of its own: {here:?}");
}
