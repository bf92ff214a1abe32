//! The steps of one head, out of what hooks have read.

use burn::tensor::Tensor;
use firelight_core::{Activations, HookError, Hooks};
use firelight_storage::TaskError;

use super::{Step, Table};
use crate::text_model::rows;

/// The activations that are read of a layer.
const PARTS: [&str; 5] = ["query", "key", "value", "weights", "heads"];

/// How much smaller than the largest score of a row the smallest may be whose weight is 0 by rounding: `exp(-80)` is about the smallest
/// number in single precision.
const ROUNDED: f64 = 80.0;

/// How far the softmax of the plain scores may be from the weights of the model.
const TOLERANCE: f64 = 1e-3;

/// What an attention computed: queries `[1, H, T, E]`, keys and values `[1, G, T, E | W]`, weights `[1, H, T, T]`, heads `[1, H, T, W]`.
pub(super) struct Computed {
    parts: [Tensor<4>; 5],
}

impl Computed {
    /// Hooks that read it.
    pub(super) fn recorded(hooks: Hooks, layer: usize) -> Hooks {
        PARTS.iter().fold(hooks, |hooks, part| hooks.record(format!("blocks.{layer}.attention.{part}")))
    }

    /// What they have read.
    pub(super) fn of(found: &Activations, layer: usize) -> Result<Self, HookError> {
        let get = |part: &str| found.get::<4>(&format!("blocks.{layer}.attention.{part}"));
        let [query, key, value, weights, heads] = PARTS;
        Ok(Self { parts: [get(query)?, get(key)?, get(value)?, get(weights)?, get(heads)?] })
    }

    /// The number of heads `H`.
    pub(super) fn heads(&self) -> usize {
        self.parts[0].dims()[1]
    }

    /// The matrices of a head, `[T, E | W | T]` each; heads may share keys and values.
    fn of_head(&self, head: usize) -> Result<[Vec<Vec<f64>>; 5], TaskError> {
        let all = self.heads();
        let part = |place: usize| {
            let x = self.parts[place].clone();
            let groups = x.dims()[1];
            rows(x.narrow(1, head * groups / all, 1))
        };
        Ok([part(0)?, part(1)?, part(2)?, part(3)?, part(4)?])
    }

    /// The width of a head's queries `E`.
    fn width(&self) -> usize {
        self.parts[0].dims()[3]
    }

    /// The steps of a head, from queries to weighted sums; `place` stands before their titles.
    pub(super) fn steps(&self, tokens: &[String], head: usize, place: &str) -> Result<Vec<Step>, TaskError> {
        let [query, key, value, weights, heads] = self.of_head(head)?;
        let width = self.width();
        let plain = scores(&query, &key);
        let scaled = map(&plain, |score| score / (width as f64).sqrt());
        let masked = masked(&scaled, &weights);
        let is_plain = is_near(&softmax_rows(&masked), &weights);
        let pairs = |name: &str, values| Table::pairs(name, [tokens, tokens], values);
        let vectors = |name: &str, values| Table::vectors(name, tokens, values);
        let step = |title: &str, remark: String, tables| Step::new(format!("{place}{title}"), remark, tables);
        let channel = |place: usize| value.iter().map(|row| row[place]).collect::<Vec<f64>>();
        let channels: Vec<Vec<f64>> = (0..value.first().map_or(0, Vec::len)).map(channel).collect();
        let sum = if is_near(&scores(&weights, &channels), &heads) { SUM.into() } else { format!("{SUM}{GATED}") };
        Ok(vec![
            step("Q, K, V", projected(width), vec![vectors("Q", query), vectors("K", key), vectors("V", value)]),
            step("scores", SCORES.into(), vec![pairs("Q K^T", plain)]),
            step("scaling", scaling(width), vec![pairs("Q K^T / sqrt(d_k)", scaled)]),
            step("mask", mask_remark(&masked), vec![pairs("masked scores", masked).as_scores()]),
            step("softmax", softmax_remark(is_plain), vec![pairs("weights", weights)]),
            step("weighted sum", sum, vec![vectors("weights V", heads)]),
        ])
    }
}

const SCORES: &str = "The score of a query and a key is their dot product: the sum of the products of their channels.";

const SUM: &str = "Each token gets the sum of all values, each times its weight. The output projection reads these vectors of all heads side \
                   by side.";

const GATED: &str = " The numbers shown are not that sum alone: the layer multiplies it by a gate.";

fn projected(width: usize) -> String {
    format!(
        "The vectors that the layer reads, times three matrices: what a token looks for, what it is found by, and what it hands on. A head \
         has d_k = {width} channels."
    )
}

fn scaling(width: usize) -> String {
    let root = (width as f64).sqrt();
    format!(
        "Scores are divided by sqrt(d_k) = sqrt({width}) = {root:.3}, so that their spread does not grow with the width of a head."
    )
}

fn mask_remark(masked: &[Vec<f64>]) -> String {
    let hidden = masked.iter().flatten().filter(|score| score.is_infinite()).count();
    match hidden {
        0 => "Nothing is hidden: every token sees all of them.".into(),
        hidden => format!("{hidden} pairs are hidden: their scores become -inf, and their weights 0."),
    }
}

fn softmax_remark(is_plain: bool) -> String {
    let usual = "Each row becomes exp(score) by the sum of the row's exp(score): weights that sum to 1.";
    match is_plain {
        true => usual.into(),
        false => format!(
            "{usual} The weights of this model are not those of these scores alone: it has a scale of its own, positions that add to the \
             scores, a soft cap or sinks."
        ),
    }
}

/// `Q K^T`.
fn scores(query: &[Vec<f64>], key: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    query.iter().map(|query| key.iter().map(|key| dot(query, key)).collect()).collect()
}

fn map(values: &[Vec<f64>], change: impl Fn(f64) -> f64) -> Vec<Vec<f64>> {
    values.iter().map(|row| row.iter().map(|value| change(*value)).collect()).collect()
}

/// The scores with those at negative infinity that the model hides: where its weight is 0, and not because the score is so small.
fn masked(scores: &[Vec<f64>], weights: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let of_row = |(scores, weights): (&Vec<f64>, &Vec<f64>)| {
        let seen = scores.iter().zip(weights).filter(|(_, weight)| **weight != 0.0).map(|(score, _)| *score);
        let largest = seen.fold(f64::NEG_INFINITY, f64::max);
        let of_pair = |(score, weight): (&f64, &f64)| match *weight == 0.0 && *score > largest - ROUNDED {
            true => f64::NEG_INFINITY,
            false => *score,
        };
        scores.iter().zip(weights).map(of_pair).collect()
    };
    scores.iter().zip(weights).map(of_row).collect()
}

/// The softmax of each row, to compare with what the model computed.
fn softmax_rows(scores: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let of_row = |row: &Vec<f64>| {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = row.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().map(|power| power / sum).collect()
    };
    scores.iter().map(of_row).collect()
}

fn is_near(found: &[Vec<f64>], expected: &[Vec<f64>]) -> bool {
    found.iter().flatten().zip(expected.iter().flatten()).all(|(a, b)| (a - b).abs() <= TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_score_is_told_from_a_small_one() {
        let scores = vec![vec![0.0, 5.0, -100.0]];
        // The second is hidden, for its score is the largest; the third is 0 by rounding.
        let found = masked(&scores, &[vec![1.0, 0.0, 0.0]]);
        assert_eq!(found, [vec![0.0, f64::NEG_INFINITY, -100.0]]);
        assert!(is_near(&softmax_rows(&found), &[vec![1.0, 0.0, 0.0]]));
        assert!(mask_remark(&found).starts_with("1 pairs are hidden") && mask_remark(&scores).starts_with("Nothing"));
        assert!(!is_near(&softmax_rows(&scores), &[vec![1.0, 0.0, 0.0]]));
        assert!(softmax_remark(false).contains("sinks") && !softmax_remark(true).contains("sinks"));
    }

    #[test]
    fn scores_are_dot_products() {
        let found = scores(&[vec![1.0, 2.0]], &[vec![3.0, 4.0], vec![-2.0, 1.0]]);
        assert_eq!(found, [vec![11.0, 0.0]]);
        assert_eq!(map(&found, |score| score / 2.0), [vec![5.5, 0.0]]);
    }
}
