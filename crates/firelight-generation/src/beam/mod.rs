//! Beam search: the most probable continuations that following a few of them at a time can find.
//!
//! Each row of the prompt keeps its `beams` best unfinished hypotheses. A step reads their next tokens, ranks the
//! continuations of all of them by `log P`, and goes on with the best; those that stop leave the search with a score:
//!
//! ```text
//! prompt [B] -prefill-> logits [B, V] ---> per row: best 2 * beams continuations of its beams
//!                           ^                 |                          |
//!                           |                 | the best that stop       | the best that do not
//!                           |                 v                          v
//!                         step(last tokens)   Hypotheses, by score       beams: DecodeState::select_rows(parents)
//!                           ^                                            |
//!                           +--------------------------------------------+   until the row ends
//! ```
//!
//! All rows are decoded together, at most `B * beams` of them in a step; rows that have ended leave the batch. The logits are
//! read once a step, and all else is decided on the host in f64 (`candidates.rs`), the rows on all cores: equal logits give
//! equal results on every backend, and no row sees its batch mates. A model's cache follows the beams by [`DecodeState::select_rows`].
//!
//! # Source
//! Wu et al. 2016, Google's neural machine translation system (<https://arxiv.org/abs/1609.08144>), §7, eq. 14, divides
//! `log P` by `(5 + length)^α / (5 + 1)^α` and adds a coverage term. Here it is `length^p` and no coverage, with all rules as
//! in `generate` of the transformers package (5.23), so that results can be compared:
//!
//! - The length is the number of new tokens, the stop token included and the prompt not, for decoders alone as for those
//!   with an encoder (whose prompt is the start token).
//! - A row looks at `2 * beams` continuations, with `n > 1` stop tokens at `(1 + n) * beams`. A stop makes a hypothesis only
//!   if it is among the first `beams` of them.
//! - Hypotheses that reach the full length finish as they are, again if among the first `beams`.
//! - [`EarlyStopping`] says when a row that holds `beams` hypotheses ends.
//! - With [`BeamOptions::groups`] each group of beams is a search of its own, as in transformers 4.49.
//!
//! It differs on purpose in two ways. A continuation of probability 0 is none, and beams that do not exist yet are none: with
//! a vocabulary smaller than the number of beams that package fills up with copies. And one beam is a beam search too, where
//! that package decodes greedily: the results are the same, except with [`EarlyStopping::Never`] and a length penalty above 0,
//! where the search goes on after the first stop.

mod candidates;
mod hypotheses;
mod options;
mod search;

use burn::tensor::{Device, Tensor};

pub use hypotheses::Hypothesis;
pub use options::{BeamOptions, EarlyStopping, MAX_BEAMS};
use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use search::{Beam, Fault, Groups};

use crate::autoregressive::{prefill, step};
use crate::sampler::host;
use crate::{Autoregressive, DecodeState, GeneratedText, GenerationError, row_indices};

/// Searches the best continuations of every row of the prompt: for each row at most
/// [`n_best`](BeamOptions::n_best) of them, best first. There are fewer only if the model gives every other continuation
/// the probability 0.
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use firelight_generation::{Autoregressive, BeamOptions, DecodeState, GenerationError, beam_search};
///
/// /// A coin that was tossed `0` times, and falls on 1 (heads) with a probability of 3/4. Id 0 is tails.
/// struct Coin;
/// struct Tosses(usize);
///
/// impl DecodeState for Tosses {
///     fn len(&self) -> usize {
///         self.0
///     }
///     fn select_rows(&mut self, _rows: &[usize]) {} // a coin has no memory
/// }
///
/// impl Autoregressive for Coin {
///     type Prompt = usize;
///     type State = Tosses;
///
///     fn device(&self) -> Device {
///         Device::default()
///     }
///     fn prefill(&self, coins: usize) -> Result<(Tensor<2>, Tosses), GenerationError> {
///         Ok((Tensor::<2>::from_floats([[0.25, 0.75]], &Device::default()).log().repeat(&[coins, 1]), Tosses(0)))
///     }
///     fn step(&self, token: Tensor<1, Int>, tosses: &mut Tosses) -> Tensor<2> {
///         tosses.0 += 1;
///         let [coins] = token.dims();
///         Tensor::<2>::from_floats([[0.25, 0.75]], &token.device()).log().repeat(&[coins, 1])
///     }
/// }
///
/// let options = BeamOptions::new(3).with_beams(2).with_n_best(2).with_length_penalty(0.0);
/// let coin = &beam_search(&Coin, 1, &options)?[0];
/// assert_eq!(coin[0].ids, [1, 1, 1]);
/// assert!((coin[0].score - (0.75f64 * 0.75 * 0.75).ln()).abs() < 1e-6);
/// assert!((coin[1].score - (0.75f64 * 0.75 * 0.25).ln()).abs() < 1e-6);
/// # Ok::<(), GenerationError>(())
/// ```
///
/// # Errors
/// Options out of range, a prompt that the model refuses, logits that are no distribution, or processors that fail or leave a row nothing.
/// An error after the first token is [`GenerationError::Unfinished`], with one text for each row: its best finished hypothesis so far, or else its best
/// unfinished one.
pub fn beam_search<M: Autoregressive>(
    model: &M,
    prompt: M::Prompt,
    options: &BeamOptions,
) -> Result<Vec<Vec<Hypothesis>>, GenerationError> {
    options.validate()?;
    let mut histories = model.history(&prompt);
    let (mut logits, mut state) = prefill(model, prompt)?;
    histories.resize(logits.dims()[0], Vec::new());
    let mut searches: Vec<Groups> = histories.iter().map(|ids| Groups::new(options, ids)).collect();
    let rows = searches.iter().enumerate().flat_map(|(row, groups)| vec![row; groups.beams().count()]);
    let rows: Vec<usize> = rows.collect();
    if !rows.is_empty() && !rows.iter().copied().eq(0..searches.len()) {
        logits = logits.clone().select(0, row_indices(&rows, &logits.device()));
        state.select_rows(&rows);
    }
    for length in (1..).take_while(|_| !rows.is_empty()) {
        let device = logits.device();
        let branches = match advance(&mut searches, logits, length) {
            Ok(branches) => branches,
            Err(error) => return Err(error.after(unfinished(searches))),
        };
        if branches.tokens.is_empty() {
            break;
        }
        logits = branches.follow(model, &mut state, &device);
    }
    Ok(searches.into_iter().map(|groups| groups.into_best(options.n_best)).collect())
}

/// What was found of each row before an error.
fn unfinished(searches: Vec<Groups<'_>>) -> Vec<GeneratedText> {
    searches.into_iter().map(Groups::into_written).map(GeneratedText::without_text).collect()
}

/// The beams of all rows that go on, one after the other.
#[derive(Default)]
struct Branches {
    /// The row of the model that each of them continues.
    parents: Vec<usize>,
    /// The token that it continues with.
    tokens: Vec<u32>,
    /// How many rows the model holds.
    held: usize,
}

/// Gives all hypotheses their token number `length` by the `logits` of their beams, `[R, V]`.
fn advance(searches: &mut [Groups], logits: Tensor<2>, length: usize) -> Result<Branches, GenerationError> {
    let [held, vocab_size] = logits.dims();
    let logits = host(logits)?;
    let beams: Vec<usize> = searches.iter().map(|groups| groups.beams().count()).collect();
    let mut rest = &logits[..];
    let rows = beams.iter().map(|beams| rest.split_off(..beams * vocab_size).unwrap_or_default());
    let rows: Vec<&[f32]> = rows.collect();
    let advanced = searches.par_iter_mut().zip(rows).map(|(search, logits)| search.advance(logits, length));
    let advanced: Vec<Result<(), Fault>> = advanced.collect();
    for (row, advanced) in advanced.into_iter().enumerate() {
        advanced.map_err(|fault| match fault {
            Fault::NotFinite => GenerationError::NonFiniteLogits { step: length - 1, row },
            Fault::NothingLeft => GenerationError::NothingLeft { step: length - 1, row },
            Fault::Processor(error) => (*error).of_row(|_| row),
        })?;
    }
    let mut branches = Branches { held, ..Branches::default() };
    let mut first = 0;
    for (groups, beams) in searches.iter().zip(beams) {
        branches.parents.extend(groups.beams().map(|beam| first + beam.parent()));
        branches.tokens.extend(groups.beams().filter_map(Beam::last));
        first += beams;
    }
    Ok(branches)
}

impl Branches {
    /// The logits after the tokens of all beams, `[R', V]`; the state's rows become their parents.
    fn follow<M: Autoregressive>(self, model: &M, state: &mut M::State, device: &Device) -> Tensor<2> {
        if !self.keeps_rows() {
            state.select_rows(&self.parents);
        }
        let tokens: Vec<i32> = self.tokens.iter().map(|&token| token as i32).collect();
        step(model, Tensor::from_ints(tokens.as_slice(), device), state)
    }

    /// A selection of all rows in their order would copy the whole cache for nothing.
    fn keeps_rows(&self) -> bool {
        self.parents.iter().copied().eq(0..self.held)
    }
}

#[cfg(test)]
mod tests;
