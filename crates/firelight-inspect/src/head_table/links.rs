//! The weights of heads between words that are linked, beside what an offset of words would find.
//!
//! Source: Clark et al. 2019, §4.1 and §4.2 (<https://arxiv.org/abs/1906.04341>): the weight of a word is the sum over its tokens, that from a word
//! the mean over them; the baseline is the best fixed offset. Differs from them: they count how often the largest weight is that of the head,
//! here the weights themselves are averaged. A head that puts all its weight at the offset has the baseline as its mean weight.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use firelight_storage::TaskError;
use serde_json::{Value, json};

use super::measure::{by_head, weights_of};
use super::number;
use crate::annotated::AnnotatedText;
use crate::text_model::TextModel;

/// The most characters of a relation in a table.
const NAME: usize = 15;

/// Which word of a relation looks at the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LinkDirection {
    /// The dependent at its syntactic head.
    ToHead,
    /// The syntactic head at its dependent.
    FromHead,
}

impl LinkDirection {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::ToHead => "to_head",
            Self::FromHead => "from_head",
        }
    }
}

/// What heads find of a syntactic relation in one direction. Of language models the links to an earlier word alone are counted, for they see no
/// later one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RelationScore {
    /// The relation: `nsubj`.
    pub relation: String,
    /// Which word looks at which.
    pub direction: LinkDirection,
    /// How many links there are.
    pub count: usize,
    /// The head with the largest mean weight, as its layer and its place there.
    pub head: [usize; 2],
    /// Its mean weight.
    pub weight: f64,
    /// How many words behind the one that looks, or before it where that is negative, the other one stands most often.
    pub offset: isize,
    /// How many of all links have this offset, from 0 to 1.
    pub baseline: f64,
}

/// Two words of a text, the first of which looks at the second.
pub(super) struct Pair<'a> {
    relation: &'a str,
    direction: LinkDirection,
    from: usize,
    to: usize,
}

/// The links of a kind, and what each head gave them.
#[derive(Default)]
struct Tally {
    count: usize,
    offsets: BTreeMap<isize, usize>,
    sums: Vec<f64>,
}

/// The links of texts by relation and direction.
#[derive(Default)]
pub(super) struct Tallies(BTreeMap<(String, LinkDirection), Tally>);

impl Tallies {
    /// `pairs` says which words of a text are looked at, of a model that sees the past alone if it is told so.
    ///
    /// # Errors
    /// If a text does not fit the model, or one of its words cannot be found in its tokens.
    pub(super) fn of(
        model: &TextModel,
        texts: &[AnnotatedText],
        pairs: fn(&AnnotatedText, bool) -> Vec<Pair<'_>>,
    ) -> Result<Self, TaskError> {
        let mut tallies = Self::default();
        for text in texts {
            let pairs = pairs(text, model.language().is_some());
            tallies.add_text(model, text, &pairs).map_err(text.at_its_line())?;
        }
        Ok(tallies)
    }

    fn add_text(&mut self, model: &TextModel, text: &AnnotatedText, pairs: &[Pair<'_>]) -> Result<(), TaskError> {
        let read = model.read(&text.text)?;
        let tokens = |word: &Range<usize>| model.tokens_of(&read, &text.text, word);
        let words: Vec<Vec<usize>> = text.words.iter().map(tokens).collect::<Result<_, _>>()?;
        let mut heads = Vec::new();
        for (_, weights) in weights_of(model, &read)? {
            heads.extend(by_head(weights)?);
        }
        for pair in pairs {
            let ends = [&words[pair.from], &words[pair.to]];
            self.add(pair, heads.iter().map(|weights| between(weights, read.ids.len(), ends)));
        }
        Ok(())
    }

    /// Counts a link with the weight that each head gives it.
    fn add(&mut self, pair: &Pair<'_>, weights: impl ExactSizeIterator<Item = f64>) {
        let tally = self.0.entry((pair.relation.to_string(), pair.direction)).or_default();
        tally.count += 1;
        *tally.offsets.entry(pair.to as isize - pair.from as isize).or_default() += 1;
        tally.sums.resize(weights.len(), 0.0);
        tally.sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += weight);
    }

    /// The mean weight of a head over all links of that direction in which it is larger; not a number without a link.
    pub(super) fn score(&self, head: usize) -> f64 {
        let mean = |direction: LinkDirection| {
            let (mut count, mut sum) = (0, 0.0);
            for (_, tally) in self.0.iter().filter(|((_, own), _)| *own == direction) {
                count += tally.count;
                sum += tally.sums.get(head).copied().unwrap_or(f64::NAN);
            }
            sum / count as f64
        };
        mean(LinkDirection::ToHead).max(mean(LinkDirection::FromHead))
    }

    /// Each relation with its best head, the most frequent first.
    pub(super) fn relations(&self, places: &[[usize; 2]]) -> Vec<RelationScore> {
        let relation = |((relation, direction), tally): (&(String, LinkDirection), &Tally)| {
            let count = tally.count as f64;
            let (place, sum) = first_largest(tally.sums.iter().copied().enumerate())?;
            let (offset, most) = first_largest(tally.offsets.iter().map(|(offset, count)| (*offset, *count as f64)))?;
            Some(RelationScore {
                relation: relation.clone(),
                direction: *direction,
                count: tally.count,
                head: *places.get(place)?,
                weight: sum / count,
                offset,
                baseline: most / count,
            })
        };
        let mut found: Vec<RelationScore> = self.0.iter().filter_map(relation).collect();
        found.sort_by_key(|relation| Reverse(relation.count));
        found
    }
}

/// The first of those with the largest number.
fn first_largest<T>(mut of: impl Iterator<Item = (T, f64)>) -> Option<(T, f64)> {
    let first = of.next()?;
    Some(of.fold(first, |best, next| if next.1 > best.1 { next } else { best }))
}

/// The weight from a word to another one, of a head's `[T, T]`.
fn between(weights: &[f32], tokens: usize, [from, to]: [&Vec<usize>; 2]) -> f64 {
    let of_row = |query: &usize| to.iter().map(|key| f64::from(weights[query * tokens + key])).sum::<f64>();
    from.iter().map(of_row).sum::<f64>() / from.len() as f64
}

/// All links of syntax, in both directions.
pub(super) fn both_ways(text: &AnnotatedText, is_causal: bool) -> Vec<Pair<'_>> {
    let ways = text.links.iter().flat_map(|link| {
        let relation = link.relation.as_str();
        let there = Pair { relation, direction: LinkDirection::ToHead, from: link.from, to: link.to };
        [there, Pair { relation, direction: LinkDirection::FromHead, from: link.to, to: link.from }]
    });
    ways.filter(|pair| is_seen(text, pair, is_causal)).collect()
}

/// All mentions, towards what they refer to; a causal model sees the earlier stretch from the later one, whichever is the mention.
pub(super) fn to_antecedents(text: &AnnotatedText, is_causal: bool) -> Vec<Pair<'_>> {
    let pairs = text.links.iter().map(|link| {
        let is_turned = is_causal && text.words[link.from].start < text.words[link.to].start;
        let [from, to] = if is_turned { [link.to, link.from] } else { [link.from, link.to] };
        Pair { relation: &link.relation, direction: LinkDirection::ToHead, from, to }
    });
    pairs.filter(|pair| is_seen(text, pair, is_causal)).collect()
}

/// Whether a model could look there: at another stretch, and a causal one at an earlier one.
fn is_seen(text: &AnnotatedText, pair: &Pair<'_>, is_causal: bool) -> bool {
    let [from, to] = [pair.from, pair.to].map(|word| &text.words[word]);
    from != to && (!is_causal || to.end <= from.start)
}

impl RelationScore {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "relation": self.relation,
            "direction": self.direction.name(),
            "count": self.count,
            "layer": self.head[0],
            "head": self.head[1],
            "weight": self.weight,
            "offset": self.offset,
            "baseline": self.baseline,
        })
    }
}

/// A row of at most 80 columns for each relation.
pub(super) fn relations_text(relations: &[RelationScore]) -> String {
    let mut found = format!(
        "{:<16}{:<11}{:>7}{:>8}{:>9}{:>8}{:>10}\n",
        "relation", "direction", "count", "head", "weight", "offset", "baseline"
    );
    for relation in relations {
        let name: String = relation.relation.chars().take(NAME).collect();
        let direction = relation.direction.name().replace('_', " ");
        let place = format!("{}:{}", relation.head[0], relation.head[1]);
        let [weight, baseline] = [relation.weight, relation.baseline].map(number);
        let (count, offset) = (relation.count, relation.offset);
        // Writing into a string cannot fail.
        let _ = writeln!(found, "{name:<16}{direction:<11}{count:>7}{place:>8}{weight:>9}{offset:>+8}{baseline:>10}");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotated::Link;

    /// Four words of a letter each, of which the last one is the syntactic head of the others.
    fn text() -> AnnotatedText {
        let link = |from: usize, relation: &str| Link { relation: relation.into(), from, to: 3 };
        AnnotatedText {
            path: "a.conllu".into(),
            line: 1,
            text: "a b c d".into(),
            words: (0..4).map(|word| 2 * word..2 * word + 1).collect(),
            links: vec![link(0, "nsubj"), link(1, "nsubj"), link(2, "obj")],
        }
    }

    fn pairs(found: Vec<Pair<'_>>) -> Vec<(&str, usize, usize)> {
        found.iter().map(|pair| (pair.direction.name(), pair.from, pair.to)).collect()
    }

    #[test]
    fn the_weight_of_a_word_is_a_sum_and_from_a_word_a_mean() {
        let weights = [0.5, 0.25, 0.25, 0.125, 0.375, 0.5, 0.0, 0.0, 1.0];
        assert_eq!(between(&weights, 3, [&vec![0], &vec![1, 2]]), 0.5);
        assert_eq!(between(&weights, 3, [&vec![0, 1], &vec![1, 2]]), (0.5 + 0.875) / 2.0);
    }

    #[test]
    fn a_causal_model_is_asked_about_earlier_words_alone() {
        let text = text();
        let all = pairs(both_ways(&text, false));
        assert_eq!((all.len(), all[0], all[1]), (6, ("to_head", 0, 3), ("from_head", 3, 0)));
        assert_eq!(pairs(both_ways(&text, true)), [("from_head", 3, 0), ("from_head", 3, 1), ("from_head", 3, 2)]);
        assert_eq!(pairs(to_antecedents(&text, false))[0], ("to_head", 0, 3));
        assert_eq!(pairs(to_antecedents(&text, true))[0], ("to_head", 3, 0));
    }

    #[test]
    fn the_best_head_of_a_relation_stands_beside_the_best_offset() {
        let text = text();
        let mut tallies = Tallies::default();
        // Of two heads, the weights of the six links in the order of `both_ways`.
        let weights = [[0.5, 0.0], [0.0, 0.25], [0.25, 0.0], [0.0, 0.25], [0.0, 1.0], [0.0, 1.0]];
        for (pair, weights) in both_ways(&text, false).iter().zip(weights) {
            tallies.add(pair, weights.into_iter());
        }
        // To the head (0.5 + 0.25 + 0) / 3 and (0 + 0 + 1) / 3; from it 0 and (0.25 + 0.25 + 1) / 3.
        assert_eq!([tallies.score(0), tallies.score(1)], [0.25, 0.5]);
        let found = tallies.relations(&[[0, 0], [2, 7]]);
        let rows: Vec<_> = found.iter().map(|row| (row.relation.as_str(), row.head, row.weight, row.offset)).collect();
        assert_eq!(
            rows,
            [
                ("nsubj", [0, 0], 0.375, 2),
                ("nsubj", [2, 7], 0.25, -3),
                ("obj", [2, 7], 1.0, 1),
                ("obj", [2, 7], 1.0, -1)
            ]
        );
        assert_eq!((found[0].count, found[0].baseline, found[2].baseline), (2, 0.5, 1.0));
        assert!(Tallies::default().score(0).is_nan() && Tallies::default().relations(&[]).is_empty());
        let told = relations_text(&found);
        assert!(told.lines().all(|line| line.len() <= 80) && told.lines().count() == 5, "{told}");
        let expected =
            format!("{:<16}to head    {:>7}{:>8}{:>9}{:>8}{:>10}", "nsubj", 2, "0:0", "0.375", "+2", "0.500");
        assert_eq!(told.lines().nth(1), Some(expected.as_str()));
        assert_eq!(found[1].to_json()["direction"], "from_head");
    }
}
