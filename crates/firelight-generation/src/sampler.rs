//! From logits to one token per row, called once per step by [`TokenStream`](crate::TokenStream).
//!
//! Greedy choice without processors is an argmax on the device. A draw from the `k` most probable tokens needs these alone, which a GPU finds
//! (`shortlist.rs`). All else reads the logits `[B, V]` to the host, applies the processors to each row in f64, and takes the best token or draws
//! one. The random number of a draw depends on seed, sample and step alone.

mod shortlist;

use burn::tensor::{Device, Int, Tensor, TensorData};
use firelight_kernels::is_gpu;

pub(crate) use self::shortlist::Few;
use crate::distribution::softmax_into;
use crate::draw::Draw;
use crate::processors::{HIDDEN, Processors};
use crate::sequence::Sequence;
use crate::{GenerationError, GenerationOptions, Sampling, StopCriteria, TokenScore, row_indices};

/// Chooses the next token of every row.
#[derive(Clone, Debug)]
pub struct Sampler {
    pub(crate) processors: Processors,
    pub(crate) choice: Choice,
    pub(crate) seed: u64,
    pub(crate) logprobs: Option<usize>,
    pub(crate) criteria: StopCriteria,
    /// The most probable tokens that decide alone, where others do not count.
    pub(crate) few: Option<Few>,
}

/// How one of the processed logits is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Best,
    Draw,
}

impl Choice {
    pub(crate) fn new(sampling: &Sampling) -> Self {
        if *sampling == Sampling::Greedy { Self::Best } else { Self::Draw }
    }

    /// The place of the token that is chosen from processed logits: its id if these are the logits of all.
    pub(crate) fn of(self, logits: &[f64], draw: Draw) -> u32 {
        self.of_in(logits, draw, &mut Vec::new())
    }

    /// [`of`](Self::of), with memory for the probabilities that was used before.
    pub(crate) fn of_in(self, logits: &[f64], draw: Draw, probabilities: &mut Vec<f64>) -> u32 {
        match self {
            Self::Best => best(logits),
            Self::Draw => {
                softmax_into(logits, probabilities);
                pick(probabilities, draw.token())
            }
        }
    }
}

/// The sampled token of each row, on the host and on the device.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// The ids on the host, for stop criteria and text: `B` of them.
    pub ids: Vec<u32>,
    /// The same ids on the model's device, for the next step: `[B]`.
    pub tokens: Tensor<1, Int>,
    /// Their scores, if [`GenerationOptions::logprobs`] asks for them: `B` of them.
    pub scores: Vec<Option<TokenScore>>,
}

impl Sampler {
    /// The sampler that the options ask for.
    ///
    /// # Errors
    /// [`GenerationError::InvalidOptions`], see [`GenerationOptions::validate`].
    pub fn new(options: &GenerationOptions) -> Result<Self, GenerationError> {
        options.validate()?;
        let GenerationOptions { seed, logprobs, .. } = *options;
        let (processors, choice) = (options.processors(), Choice::new(&options.sampling));
        let (few, criteria) = (Few::of(options, &processors), StopCriteria::new(options));
        Ok(Self { processors, choice, seed, logprobs, criteria, few })
    }

    /// Chooses new token number `step` (0-based) for every row of `logits` `[B, V]`. Row `i` draws as sample `i`, and processors see an empty
    /// history.
    ///
    /// # Errors
    /// [`GenerationError::NonFiniteLogits`] if a row is no distribution: it holds NaN or plus infinity, or minus infinity
    /// only. [`GenerationError::NothingLeft`] if the processors hide all of a row. [`GenerationError::Device`] if the logits cannot be read.
    pub fn sample(&self, logits: Tensor<2>, step: usize) -> Result<Sampled, GenerationError> {
        let sequence = |number| Sequence::new(self, Vec::new(), number).behind(step);
        let mut sequences: Vec<Sequence> = (0..logits.dims()[0]).map(sequence).collect();
        choose(logits, &mut sequences)
    }
}

/// Chooses the next token of every row from `logits` `[B, V]`. [`Sequence::accept`] adds it.
pub(crate) fn choose(logits: Tensor<2>, sequences: &mut [Sequence]) -> Result<Sampled, GenerationError> {
    if sequences.iter().all(Sequence::is_greedy) {
        return greedy(logits, sequences);
    }
    // Where the host reads the memory of the device itself, a search there would cost more than it saves.
    let few = if is_gpu(&logits.device()) { few(sequences, logits.dims()[1]) } else { None };
    match few {
        Some(few) => by_shortlists(logits, sequences, &few),
        None => by_all(logits, sequences),
    }
}

/// How many of the best logits of each row decide; none if a row needs more than the device finds.
fn few(sequences: &[Sequence], vocab_size: usize) -> Option<Vec<Few>> {
    let few = sequences.iter().map(Sequence::few).collect::<Option<Vec<Few>>>()?;
    few.iter().all(|few| few.fits(vocab_size)).then_some(few)
}

/// Chooses by the best logits of each row. Rows that they do not decide are read whole.
fn by_shortlists(logits: Tensor<2>, sequences: &mut [Sequence], few: &[Few]) -> Result<Sampled, GenerationError> {
    let ([_, vocab_size], device) = (logits.dims(), logits.device());
    let shortlists = shortlist::read(logits.clone(), few)?;
    let open: Vec<usize> = (0..sequences.len()).filter(|&place| shortlists[place].is_none()).collect();
    let whole = if open.is_empty() { Vec::new() } else { host(logits.select(0, row_indices(&open, &device)))? };
    let mut whole = whole.chunks_exact(vocab_size);
    let mut ids = Vec::with_capacity(sequences.len());
    for (place, (sequence, shortlist)) in sequences.iter_mut().zip(&shortlists).enumerate() {
        let id = match shortlist {
            Some(shortlist) => sequence.choose_from(shortlist),
            None => sequence.choose(whole.next().unwrap_or_default()),
        };
        ids.push(id.map_err(|error| error.of_row(|_| place))?);
    }
    Ok(Sampled { tokens: on_device(&ids, &device), scores: vec![None; ids.len()], ids })
}

/// Chooses by the logits of all tokens.
fn by_all(logits: Tensor<2>, sequences: &mut [Sequence]) -> Result<Sampled, GenerationError> {
    let ([_, vocab_size], device) = (logits.dims(), logits.device());
    let logits = host(logits)?;
    let each = || logits.chunks_exact(vocab_size);
    let mut ids = Vec::with_capacity(sequences.len());
    for (place, (logits, sequence)) in each().zip(sequences.iter_mut()).enumerate() {
        ids.push(sequence.choose(logits).map_err(|error| error.of_row(|_| place))?);
    }
    let scores = each().zip(sequences).zip(&ids).map(|((logits, sequence), &id)| sequence.score(logits, id)).collect();
    Ok(Sampled { tokens: on_device(&ids, &device), ids, scores })
}

fn on_device(ids: &[u32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(ids.to_vec(), [ids.len()]), device)
}

fn greedy(logits: Tensor<2>, sequences: &[Sequence]) -> Result<Sampled, GenerationError> {
    let [batch_size, _] = logits.dims();
    let best = logits.clone().argmax(1); // [B, 1]
    // Burn's argmax prefers NaN to any number, so the chosen logits tell whether the whole rows are sound.
    let chosen = host(logits.gather(1, best.clone()))?;
    if let Some(row) = chosen.iter().position(|logit| !logit.is_finite()) {
        return Err(GenerationError::NonFiniteLogits { step: sequences[row].step(), row });
    }
    let tokens = best.reshape([batch_size]);
    let ids = tokens.clone().try_into_vec_as::<u32>().map_err(unreadable)?;
    Ok(Sampled { ids, tokens, scores: vec![None; batch_size] })
}

/// The most probable token, the lowest id among equals.
fn best(logits: &[f64]) -> u32 {
    let better = |best: (usize, f64), (id, &logit): (usize, &f64)| if logit > best.1 { (id, logit) } else { best };
    logits.iter().enumerate().fold((0, HIDDEN), better).0 as u32
}

/// Reads the logits `[R, V]` from their device.
pub(crate) fn host(logits: Tensor<2>) -> Result<Vec<f32>, GenerationError> {
    logits.try_into_vec_as::<f32>().map_err(unreadable)
}

fn unreadable(error: impl std::fmt::Display) -> GenerationError {
    // Backends append stack traces to their first line.
    let reason = error.to_string().lines().next().unwrap_or("no reason given").to_string();
    GenerationError::Device { reason }
}

/// The token at which the running sum of the probabilities passes `draw`; never one of probability 0.
fn pick(probabilities: &[f64], draw: f64) -> u32 {
    let mut total = 0.0;
    let mut last = 0;
    for (id, &probability) in probabilities.iter().enumerate().filter(|(_, probability)| **probability > 0.0) {
        total += probability;
        last = id;
        if draw < total {
            break;
        }
    }
    // If rounding left the sum below the draw, `last` is the last token that can be drawn.
    last as u32
}

#[cfg(test)]
mod tests;
