//! What heads do with tokens by what they are: rare ones, similar ones, and whether they raise the logit of the one that they see.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use firelight_classification::cosine_similarities;
use firelight_core::inspect::{copying, heads};
use firelight_core::{Pass, SequenceInput};
use firelight_data::right_padded;
use firelight_storage::TaskError;

use super::measure::{by_head, numbers};
use crate::text_model::{ReadText, TextModel};

/// A head copies a token that is among so many highest logits, as Wang et al. 2022, §3.3 count it.
const HIGHEST: usize = 5;

/// So many distinct tokens of a text are tried for copying: their logits are held in memory together.
const TRIED: usize = 256;

/// The mean square of numbers that are alike but for rounding.
const FLAT: f64 = 1e-12;

/// The distinct tokens of all texts.
pub(super) struct Kinds {
    specials: Vec<u32>,
    /// How often each stands in the texts, special ones left out.
    counts: BTreeMap<u32, usize>,
}

/// What is known of the distinct tokens of one text.
pub(super) struct TextKinds<'a> {
    pub(super) specials: &'a [u32],
    /// Those that are no special tokens, each once.
    own: Vec<u32>,
    ids: &'a [u32],
    /// Of each token: whether it is one of the rarest.
    are_rare: Vec<bool>,
    /// The cosines of the embeddings of every two tokens.
    cosines: Vec<Vec<f64>>,
    /// Whether a query sees no key behind it.
    is_causal: bool,
}

impl Kinds {
    pub(super) fn of(model: &TextModel, reads: &[ReadText]) -> Self {
        let specials: Vec<u32> = model.tokenizer().special_tokens().into_iter().map(|(id, _)| id).collect();
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for id in reads.iter().flat_map(|read| &read.ids).filter(|id| !specials.contains(id)) {
            *counts.entry(*id).or_default() += 1;
        }
        Self { specials, counts }
    }

    pub(super) fn of_text<'a>(&'a self, model: &TextModel, read: &'a ReadText) -> Result<TextKinds<'a>, TaskError> {
        let mut own: Vec<u32> = read.ids.iter().copied().filter(|id| self.counts.contains_key(id)).collect();
        own.sort_unstable();
        own.dedup();
        let embeddings = model.embeddings(read)?;
        Ok(TextKinds {
            specials: &self.specials,
            are_rare: self.are_rare(&read.ids, &own),
            own,
            ids: &read.ids,
            cosines: cosine_similarities(&embeddings, &embeddings),
            is_causal: model.language().is_some(),
        })
    }

    /// Which tokens are the rarest of `own` by the counts; none where all are equally frequent.
    fn are_rare(&self, ids: &[u32], own: &[u32]) -> Vec<bool> {
        let counts = || own.iter().filter_map(|id| self.counts.get(id));
        let (least, most) = (counts().min(), counts().max());
        ids.iter().map(|id| least != most && self.counts.get(id) == least).collect()
    }
}

impl TextKinds<'_> {
    /// The scores `Rare`, `Copying` and `Semantic` of the heads of a layer; of copying there may be none.
    pub(super) fn scores(
        &self,
        model: &TextModel,
        layer: usize,
        weights: Tensor<4>,
    ) -> Result<[Vec<f64>; 3], TaskError> {
        let is_rare = |_: usize, query: usize, key: usize| query != key && self.sees(query, key) && self.are_rare[key];
        let rare = numbers(heads::on_pairs(weights.clone(), is_rare))?;
        let similar = by_head(weights)?.iter().map(|weights| self.correlation(weights)).collect();
        Ok([rare, self.copied(model, layer), similar])
    }

    fn sees(&self, query: usize, key: usize) -> bool {
        !self.is_causal || key <= query
    }

    /// Of encoders, and of mixers that do not say which layer reads their heads, nothing.
    fn copied(&self, model: &TextModel, layer: usize) -> Vec<f64> {
        let own: Vec<u32> = self.own.iter().copied().step_by(self.own.len().div_ceil(TRIED).max(1)).collect();
        let Some(language) = model.language().filter(|_| !own.is_empty()) else { return Vec::new() };
        let rows: Vec<Vec<u32>> = own.iter().map(|id| vec![*id]).collect();
        let (tokens, _) = right_padded(&rows, &language.embedding.weight.device()); // [N, 1]
        let forward = |pass: &mut Pass| language.hidden(tokens.clone(), &SequenceInput::default(), pass);
        let head = |x: Tensor<3>| language.logits(x);
        copying(&language.transformer, layer, forward, head, (own.as_slice(), HIGHEST)).unwrap_or_default()
    }

    /// The correlation of the weights of a head, `[T, T]`, with the cosines, within the rows. Not a number where either are alike.
    fn correlation(&self, weights: &[f32]) -> f64 {
        let pairs: Vec<[f64; 2]> = (0..self.ids.len()).flat_map(|query| self.compared(weights, query)).collect();
        let sum = |of: fn(&[f64; 2]) -> f64| pairs.iter().map(of).sum::<f64>();
        let (weights, cosines) = (sum(|[weight, _]| weight * weight), sum(|[_, cosine]| cosine * cosine));
        let least = FLAT * pairs.len() as f64;
        match weights <= least || cosines <= least {
            true => f64::NAN,
            false => sum(|[weight, cosine]| weight * cosine) / (weights * cosines).sqrt(),
        }
    }

    /// The weights of a query with the cosines, both without their mean.
    fn compared(&self, weights: &[f32], query: usize) -> Vec<[f64; 2]> {
        let width = self.ids.len();
        let keys = (0..width).filter(|key| self.is_compared(query, *key));
        let both = keys.map(|key| (f64::from(weights[query * width + key]), self.cosines[query][key]));
        let (weights, cosines): (Vec<f64>, Vec<f64>) = both.unzip();
        centred(weights).into_iter().zip(centred(cosines)).map(|(weight, cosine)| [weight, cosine]).collect()
    }

    /// Whether a weight says something of meaning: neither token is special, nor is it the same one.
    fn is_compared(&self, query: usize, key: usize) -> bool {
        let [one, other] = [query, key].map(|place| self.ids[place]);
        one != other && self.sees(query, key) && [one, other].iter().all(|id| self.own.binary_search(id).is_ok())
    }
}

/// Numbers without their mean.
fn centred(numbers: Vec<f64>) -> Vec<f64> {
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    numbers.into_iter().map(|number| number - mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of ids, of which 6 is special.
    fn kinds(ids: &[u32], is_causal: bool, cosines: Vec<Vec<f64>>) -> TextKinds<'_> {
        TextKinds { specials: &[6], own: vec![5, 7, 8], ids, are_rare: Vec::new(), cosines, is_causal }
    }

    #[test]
    fn the_rarest_tokens_of_a_text_are_so_in_all_texts() {
        let kinds = Kinds { specials: vec![9], counts: BTreeMap::from([(1, 5), (2, 2), (3, 2), (4, 1)]) };
        assert_eq!(kinds.are_rare(&[9, 1, 2, 3, 2], &[1, 2, 3]), [false, false, true, true, true]);
        assert_eq!(kinds.are_rare(&[2, 3], &[2, 3]), [false, false], "equally frequent");
        assert_eq!(kinds.are_rare(&[9], &[]), [false]);
    }

    #[test]
    fn the_correlation_is_within_rows_and_of_different_tokens() {
        // Row 0 has the keys 1 and 2, of which the more similar one has more weight, and row 1 likewise.
        let cosines = vec![vec![1.0, 0.2, 0.8], vec![0.2, 1.0, 0.6], vec![0.8, 0.6, 1.0]];
        let found = |weights: [f32; 9], is_causal| kinds(&[5, 7, 8], is_causal, cosines.clone()).correlation(&weights);
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
        // Of two keys each differs from the mean by half their difference: weights by 0.3, 0.2 and 0.1, cosines by 0.3, 0.2 and 0.1.
        close(found([0.0, 0.2, 0.8, 0.3, 0.0, 0.7, 0.6, 0.4, 0.0], false), 1.0);
        close(found([0.0, 0.8, 0.2, 0.7, 0.0, 0.3, 0.4, 0.6, 0.0], false), -1.0);
        // (0.3 * 0.3 + 0.2 * 0.2 - 0.1 * 0.1) / (0.3^2 + 0.2^2 + 0.1^2).
        close(found([0.0, 0.2, 0.8, 0.3, 0.0, 0.7, 0.4, 0.6, 0.0], false), 0.12 / 0.14);
        // A row with a single key says nothing, so that of a causal model the last one alone counts.
        close(found([1.0, 0.0, 0.0, 0.3, 0.7, 0.0, 0.6, 0.4, 0.0], true), 1.0);
        assert!(found([0.5; 9], false).is_nan(), "weights that are alike");
    }

    #[test]
    fn special_tokens_and_the_same_ones_are_not_compared() {
        let ids = [5, 6, 7, 5];
        let kinds = kinds(&ids, false, Vec::new());
        let of_first: Vec<usize> = (0..4).filter(|key| kinds.is_compared(0, *key)).collect();
        assert_eq!(of_first, [2]);
        assert!((0..4).all(|key| !kinds.is_compared(1, key)));
    }
}
