//! The most probable tokens of every row, which a GPU finds, so that the host reads them alone and not the whole vocabulary.

use std::cmp::Ordering;

use burn::tensor::{DType, Tensor};

use super::{host, unreadable};
use crate::processors::Processors;
use crate::{GenerationError, GenerationOptions, Processing, Sampling};

/// The most logits of a row that a device is asked for. Each takes 8 bytes of shared memory for each of its threads, up to 32 of them, and 16 KiB
/// is what every GPU has.
const MOST: usize = 64;

/// Tokens in the order of their ids, with their logits.
pub(super) type Shortlist = Vec<(u32, f64)>;

/// A choice that depends on so many of the most probable tokens alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Few {
    count: usize,
    /// What the logits are divided by before the most probable tokens are taken.
    temperature: f64,
}

impl Few {
    /// None if options may look at any token: those with penalties, log-probabilities, no top-k, top-H, which comes before top-k, or one of
    /// `processors` that sees ids or takes precedence, for which the logits of all tokens are remembered.
    pub(crate) fn of(options: &GenerationOptions, processors: &Processors) -> Option<Self> {
        let (count, temperature) = match &options.sampling {
            Sampling::Greedy => (1, 1.0),
            Sampling::Random(random) => (random.top_k.filter(|_| random.top_h.is_none())?, random.temperature),
        };
        let looks_at_all = options.processing != Processing::default() || options.logprobs.is_some();
        let looks_at_all = looks_at_all || !processors.ignore_ids() || processors.takes_precedence();
        (!looks_at_all).then_some(Self { count, temperature })
    }

    /// Whether a device can find them, and the next one.
    pub(super) fn fits(self, vocab_size: usize) -> bool {
        self.count < vocab_size.min(MOST)
    }

    /// The tokens that decide, of the `best` logits of a row, their ids, and the sum of all its logits. None if the whole row must be looked at:
    /// the last one that counts is as probable as the next, and the device does not promise which of them it found; or the row may be no
    /// distribution.
    fn shortlist(self, best: &[f32], ids: &[i64], sum: f32, vocab_size: usize) -> Option<Shortlist> {
        if sum.is_nan() || sum == f32::INFINITY {
            return None;
        }
        // Places that a device could not fill have ids that are none.
        let is_token = |(logit, id): &(&f32, &i64)| **logit > f32::NEG_INFINITY && (0..vocab_size as i64).contains(*id);
        let tokens = best.iter().zip(ids).filter(is_token);
        let mut tokens: Shortlist = tokens.map(|(&logit, &id)| (id as u32, f64::from(logit))).collect();
        tokens.sort_unstable_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0)));
        let max = tokens.first()?.1;
        // As `processors::Temperature` does it: what it rounds to the same number is equally probable.
        let divided = |place: usize| tokens.get(place).map(|(_, logit)| (logit - max) / self.temperature);
        if divided(self.count).is_some_and(|next| divided(self.count - 1) <= Some(next)) {
            return None;
        }
        tokens.truncate(self.count);
        tokens.sort_unstable_by_key(|(id, _)| *id);
        Some(tokens)
    }
}

/// The tokens that decide in each row of `logits` `[B, V]`; none for a row that has to be read whole. One for each of `few`, all of which
/// [fit](Few::fits).
pub(super) fn read(logits: Tensor<2>, few: &[Few]) -> Result<Vec<Option<Shortlist>>, GenerationError> {
    let [_, vocab_size] = logits.dims();
    let count = few.iter().map(|few| few.count).max().unwrap_or(0) + 1;
    let logits = logits.cast(DType::F32);
    let sums = logits.clone().sum_dim(1); // [B, 1]
    let (best, ids) = logits.topk_with_indices(count, 1); // [B, K] each
    let numbers = host(Tensor::cat(vec![best, sums], 1))?;
    let ids = ids.try_into_vec_as::<i64>().map_err(unreadable)?;
    let rows = numbers.chunks_exact(count + 1).zip(ids.chunks_exact(count)).zip(few);
    let shortlist = |((numbers, ids), few): ((&[f32], &[i64]), &Few)| {
        few.shortlist(&numbers[..count], ids, numbers[count], vocab_size)
    };
    Ok(rows.map(shortlist).collect())
}

#[cfg(test)]
mod tests;
