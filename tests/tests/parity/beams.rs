//! Beam search against `generate` of the transformers package: ids, reasons to stop and scores of every setting, for a
//! decoder with a cache and for an encoder-decoder.

use burn::tensor::{Device, Int, Tensor};
use firelight::generation::{
    Autoregressive, BeamOptions, DecodeState, EarlyStopping, GenerationError, Hypothesis, StopReason, beam_search,
    row_indices,
};

use super::models::gpt;
use crate::support::device;
use crate::support::golden::Golden;

/// Two computations in single precision: the largest scores are near 20.
const SCORES: f64 = 2e-5;

/// Settings of each model: numbers of beams, penalties, ways to stop early, numbers of results.
const SETTINGS: usize = 36;

/// An encoder-decoder without weights: its logits are the entry of a table `[S, T, V, V]` for the source, the step and the
/// last token.
struct Translator(Tensor<4>);

/// The source of every row.
struct Sources {
    sources: Tensor<1, Int>,
    len: usize,
}

impl DecodeState for Sources {
    fn len(&self) -> usize {
        self.len
    }

    fn select_rows(&mut self, rows: &[usize]) {
        self.sources = self.sources.clone().select(0, row_indices(rows, &device()));
    }
}

impl Autoregressive for Translator {
    /// A source for each row; all begin with token 0.
    type Prompt = Tensor<1, Int>;
    type State = Sources;

    fn device(&self) -> Device {
        self.0.device()
    }

    fn prefill(&self, sources: Tensor<1, Int>) -> Result<(Tensor<2>, Sources), GenerationError> {
        let start = sources.zeros_like();
        let mut state = Sources { sources, len: 0 };
        Ok((self.step(start, &mut state), state))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Sources) -> Tensor<2> {
        let [n_sources, _, vocab_size, _] = self.0.dims();
        let table = self.0.clone().narrow(1, state.len, 1); // [S, 1, V, V]
        state.len += 1;
        let rows = state.sources.clone() * vocab_size as i32 + token;
        table.reshape([n_sources * vocab_size, vocab_size]).select(0, rows)
    }
}

/// One setting of the file: where its results stand, and what was asked for.
fn options(golden: &Golden, setting: &[f32], max_new_tokens: usize) -> BeamOptions {
    let early_stopping = [EarlyStopping::Heuristic, EarlyStopping::Full, EarlyStopping::Never][setting[2] as usize];
    BeamOptions::new(max_new_tokens)
        .with_beams(setting[0] as usize)
        .with_length_penalty(f64::from(setting[1]))
        // One beam is greedy search to that package, which ends at the first stop.
        .with_early_stopping(if setting[0] == 1.0 { EarlyStopping::Full } else { early_stopping })
        .with_n_best(setting[3] as usize)
        .with_stop_tokens(golden.data("stop").iter::<u32>().collect::<Vec<_>>())
}

/// The ids as the package writes them: with the stop token, and -1 after the end.
fn written(found: &Hypothesis, max_new_tokens: usize) -> Vec<i64> {
    let stop = if let StopReason::StopToken(id) = found.stop_reason { Some(id) } else { None };
    let ids = found.ids.iter().copied().chain(stop).map(i64::from);
    ids.chain(std::iter::repeat(-1)).take(max_new_tokens).collect()
}

fn agree<M: Autoregressive>(golden: &Golden, model: &M, prompt: impl Fn() -> M::Prompt) {
    let ids = golden.data("ids");
    let [n_settings, batch_size, n_best, max_new_tokens] = ids.shape().to_vec()[..] else { panic!("rank 4") };
    let (ids, scores): (Vec<i64>, Vec<f64>) = (ids.iter().collect(), golden.data("scores").iter().collect());
    let settings: Vec<f32> = golden.data("settings").iter().collect();
    assert_eq!((n_settings, settings.len()), (SETTINGS, 4 * SETTINGS));
    for (i, setting) in settings.chunks_exact(4).enumerate() {
        let rows = beam_search(model, prompt(), &options(golden, setting, max_new_tokens)).expect("sound logits");
        assert_eq!(rows.len(), batch_size);
        for (row, found) in rows.iter().enumerate() {
            assert_eq!(found.len(), setting[3] as usize);
            for (rank, found) in found.iter().enumerate() {
                let place = (i * batch_size + row) * n_best + rank;
                let expected = &ids[place * max_new_tokens..][..max_new_tokens];
                assert_eq!(written(found, max_new_tokens), expected, "{setting:?}, row {row}, rank {rank}");
                let difference = (found.score - scores[place]).abs();
                assert!(difference < SCORES, "{setting:?}, row {row}, rank {rank}: {} {}", found.score, scores[place]);
            }
        }
    }
}

#[test]
fn a_decoder_with_a_cache_agrees() {
    let golden = Golden::load("beam_search").part("case0.");
    let model = Golden::load("gpt_tiny").fill(gpt().init(&device()));
    let prompt = || -> Vec<Vec<u32>> {
        let ids: Vec<u32> = golden.data("prompt").iter().collect();
        ids.chunks_exact(2).map(<[u32]>::to_vec).collect()
    };
    agree(&golden, &model, prompt);
}

#[test]
fn an_encoder_decoder_agrees_with_one_stop_token_and_with_three() {
    let golden = Golden::load("beam_search");
    let stop_tokens = golden.cases().skip(1).map(|golden| golden.data("stop").num_elements());
    assert_eq!(stop_tokens.collect::<Vec<_>>(), [1, 3]);
    for golden in Golden::load("beam_search").cases().skip(1) {
        agree(&golden, &Translator(golden.floats("table", &device())), || golden.ints("prompt", &device()));
    }
}
