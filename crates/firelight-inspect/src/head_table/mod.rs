//! All heads of a model beside each other: what they look at, and what is lost without them.

mod kinds;
mod links;
mod measure;
mod score;

pub use links::{LinkDirection, RelationScore};
pub(crate) use measure::layer_of;
pub use score::HeadScore;

use std::fmt::Write;

use firelight_storage::{InputError, TaskError};
use serde_json::{Map, Value, json};

use self::links::{Tallies, both_ways, relations_text, to_antecedents};
use self::measure::{of_texts, read_annotated, read_texts};
use crate::annotated::Annotations;
use crate::text_model::TextModel;

/// The most columns of eight characters beside each other, so that a row has at most 80 with the name of the head.
const TOGETHER: usize = 9;

/// A head and its scores.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScoredHead {
    /// The place of its layer in the stack, from 0.
    pub layer: usize,
    /// The place of the head in the layer, from 0.
    pub head: usize,
    scores: [Option<f64>; HeadScore::ALL.len()],
}

impl ScoredHead {
    /// A score; none where no token of the texts has a key of that kind, or the model is none that the score is of.
    pub fn score(&self, score: HeadScore) -> Option<f64> {
        self.scores[score as usize]
    }

    fn set(&mut self, score: HeadScore, number: f64) {
        self.scores[score as usize] = Some(number).filter(|number| !number.is_nan());
    }

    fn to_json(&self, columns: &[HeadScore]) -> Value {
        let scores = columns.iter().map(|score| (score.name().to_string(), json!(self.score(*score))));
        let mut object: Map<String, Value> = scores.collect();
        object.insert("layer".into(), json!(self.layer));
        object.insert("head".into(), json!(self.head));
        Value::Object(object)
    }
}

/// All heads of a model, in an order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeadTable {
    /// The heads.
    pub heads: Vec<ScoredHead>,
    /// The relations of the sentences whose syntax was given, the most frequent first.
    pub relations: Vec<RelationScore>,
    columns: Vec<HeadScore>,
}

impl HeadTable {
    /// Reads texts, each by itself, and takes the mean of their scores. For a language model on a device with autodiff there is the gradient as
    /// well, and on any device the rise of the loss without each head: a pass for each head and text.
    ///
    /// # Errors
    /// If there is no text, one does not fit the model or is of a single token where the loss is measured, or no layer has attention weights.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    /// use firelight_inspect::{HeadScore, HeadTable, TextModel};
    /// use firelight_language::{LanguageModelConfig, TextGenerator};
    ///
    /// let model = LanguageModelConfig::new(256, 16, 2, 1).init(&Device::flex().autodiff());
    /// let model = TextModel::from(TextGenerator::new(model, Tokenizer::train(&TokenizerConfig::Byte, "")?));
    /// let table = HeadTable::measure(&model, &["a fox, a hen"])?.ranked(HeadScore::Gradient);
    /// assert_eq!(table.heads.len(), 2);
    /// assert!(table.heads[0].score(HeadScore::Gradient) >= table.heads[1].score(HeadScore::Gradient));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn measure<S: AsRef<str>>(model: &TextModel, texts: &[S]) -> Result<Self, TaskError> {
        Self::measure_with(model, texts, &Annotations::default())
    }

    /// The same, and of annotated texts the scores [`Syntactic`](HeadScore::Syntactic), by relation as well, and
    /// [`Coreference`](HeadScore::Coreference). Without `texts` these are the texts of all scores.
    ///
    /// # Errors
    /// As [`measure`](Self::measure), and if an annotated text does not fit the model.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    /// use firelight_inspect::{Annotations, HeadScore, HeadTable, TextModel, read_pairs};
    /// use firelight_language::{LanguageModelConfig, TextGenerator};
    ///
    /// let file = tempfile::NamedTempFile::new()?;
    /// std::fs::write(file.path(), "a hen that sat\tthat\then\n")?;
    /// let annotations = Annotations { pairs: read_pairs(file.path())?, ..Annotations::default() };
    /// let model = LanguageModelConfig::new(256, 16, 2, 1).init(&Device::flex());
    /// let model = TextModel::from(TextGenerator::new(model, Tokenizer::train(&TokenizerConfig::Byte, "")?));
    /// let table = HeadTable::measure_with(&model, &[] as &[&str], &annotations)?;
    /// assert!(table.heads[0].score(HeadScore::Coreference) > Some(0.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn measure_with<S: AsRef<str>>(
        model: &TextModel,
        texts: &[S],
        annotations: &Annotations,
    ) -> Result<Self, TaskError> {
        let reads = if texts.is_empty() { read_annotated(model, annotations)? } else { read_texts(model, texts)? };
        let mut heads = of_texts(model, &reads)?;
        if heads.is_empty() {
            return Err(InputError::new("there is no text to read").advise("give at least one").into());
        }
        let syntax = Tallies::of(model, &annotations.syntax, both_ways)?;
        let pairs = Tallies::of(model, &annotations.pairs, to_antecedents)?;
        for (place, head) in heads.iter_mut().enumerate() {
            head.set(HeadScore::Syntactic, syntax.score(place));
            head.set(HeadScore::Coreference, pairs.score(place));
        }
        let places: Vec<[usize; 2]> = heads.iter().map(|head| [head.layer, head.head]).collect();
        Ok(Self { relations: syntax.relations(&places), heads, columns: columns(annotations) })
    }

    /// Shows these scores alone, as text and as JSON.
    pub fn with_scores(mut self, scores: &[HeadScore]) -> Self {
        self.columns = scores.to_vec();
        self
    }

    /// The heads by a score: the largest first, of the entropy the smallest, for such a head is the surest. Those without it come last.
    pub fn ranked(mut self, by: HeadScore) -> Self {
        let key = |head: &ScoredHead| {
            let score = head.score(by).map(|score| if by == HeadScore::Entropy { -score } else { score });
            score.unwrap_or(f64::NEG_INFINITY)
        };
        self.heads.sort_by(|a, b| key(b).total_cmp(&key(a)));
        self
    }

    /// Keeps the first heads of the order.
    pub fn first(mut self, count: usize) -> Self {
        self.heads.truncate(count);
        self
    }

    /// As text of at most 80 columns: a row for each head, called as `layer:head`. Scores that do not fit beside each other follow below, and
    /// then the relations.
    pub fn to_text(&self) -> String {
        let mut parts: Vec<String> = self.columns.chunks(TOGETHER).map(|columns| self.part(columns)).collect();
        if !self.relations.is_empty() {
            parts.push(relations_text(&self.relations));
        }
        parts.join("\n")
    }

    /// Some columns of the table.
    fn part(&self, columns: &[HeadScore]) -> String {
        let headings: String = columns.iter().map(|score| format!("{:>8}", score.heading())).collect();
        let mut found = format!("{:<7}{headings}\n", "head");
        for head in &self.heads {
            let cell = |score: &HeadScore| format!("{:>8}", head.score(*score).map_or("-".into(), number));
            let cells: String = columns.iter().map(cell).collect();
            let place = format!("{}:{}", head.layer, head.head);
            // Writing into a string cannot fail.
            let _ = writeln!(found, "{place:<7}{cells}");
        }
        found
    }

    /// As a list of objects, one for each head; a score that there is not is null. With relations an object of both lists, `heads` and
    /// `relations`.
    pub fn to_json(&self) -> Value {
        let heads: Vec<Value> = self.heads.iter().map(|head| head.to_json(&self.columns)).collect();
        match self.relations.is_empty() {
            true => Value::Array(heads),
            false => {
                let relations: Vec<Value> = self.relations.iter().map(RelationScore::to_json).collect();
                json!({ "heads": heads, "relations": relations })
            }
        }
    }

    /// The heads to prune so that the first `kept` of this order stay, and the first one of each layer.
    ///
    /// # Errors
    /// If fewer are to stay than there are layers, or more than there are heads.
    pub fn all_but_first(&self, kept: usize) -> Result<Vec<[usize; 2]>, InputError> {
        let places = || self.heads.iter().map(|head| [head.layer, head.head]);
        let mut stays: Vec<[usize; 2]> = Vec::new();
        for place in places() {
            if stays.iter().all(|[layer, _]| *layer != place[0]) {
                stays.push(place);
            }
        }
        let (layers, all) = (stays.len(), self.heads.len());
        if !(layers..=all).contains(&kept) {
            let problem = format!("{kept} of {all} heads in {layers} layers cannot be kept, for each layer keeps one");
            return Err(InputError::new(problem).advise(format!("keep {layers} to {all}")));
        }
        for place in places() {
            if stays.len() < kept && !stays.contains(&place) {
                stays.push(place);
            }
        }
        Ok(places().filter(|place| !stays.contains(place)).collect())
    }
}

/// The scores that there are with these annotations.
fn columns(annotations: &Annotations) -> Vec<HeadScore> {
    let has = |score: &HeadScore| match score {
        HeadScore::Syntactic => !annotations.syntax.is_empty(),
        HeadScore::Coreference => !annotations.pairs.is_empty(),
        _ => true,
    };
    HeadScore::ALL.into_iter().filter(has).collect()
}

/// A number in at most seven characters.
fn number(value: f64) -> String {
    let rounded = format!("{value:.3}");
    let is_lost = value != 0.0 && value.abs() < 5e-4;
    match is_lost || rounded.len() > 7 {
        true => format!("{value:.0e}"),
        false => rounded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(layer: usize, head: usize, entropy: f64, gradient: Option<f64>) -> ScoredHead {
        let mut scores = [None; HeadScore::ALL.len()];
        scores[HeadScore::Entropy as usize] = Some(entropy);
        scores[HeadScore::Gradient as usize] = gradient;
        ScoredHead { layer, head, scores }
    }

    fn table() -> HeadTable {
        let heads = vec![
            head(0, 0, 0.5, Some(3.0)),
            head(0, 1, 1.5, Some(4.0)),
            head(1, 0, 0.0, None),
            head(1, 1, 2.0, Some(-1.0)),
        ];
        HeadTable { heads, relations: Vec::new(), columns: columns(&Annotations::default()) }
    }

    fn places(table: &HeadTable) -> Vec<[usize; 2]> {
        table.heads.iter().map(|head| [head.layer, head.head]).collect()
    }

    #[test]
    fn heads_are_ranked_and_those_without_a_score_come_last() {
        assert_eq!(places(&table().ranked(HeadScore::Gradient)), [[0, 1], [0, 0], [1, 1], [1, 0]]);
        assert_eq!(places(&table().ranked(HeadScore::Entropy).first(2)), [[1, 0], [0, 0]]);
    }

    #[test]
    fn the_best_head_of_each_layer_stays() {
        let ranked = table().ranked(HeadScore::Gradient);
        assert_eq!(ranked.all_but_first(2).unwrap(), [[0, 0], [1, 0]]);
        assert_eq!(ranked.all_but_first(3).unwrap(), [[1, 0]]);
        assert!(ranked.all_but_first(4).unwrap().is_empty());
        for count in [1, 5] {
            let problem = ranked.all_but_first(count).unwrap_err().to_string();
            assert!(problem.contains("keep 2 to 4"), "{problem}");
        }
    }

    #[test]
    fn a_row_is_a_head_and_what_there_is_not_is_a_dash_and_null() {
        let found = table().to_text();
        let lines: Vec<&str> = found.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 80) && lines.len() == 2 * 5 + 1, "{found}");
        assert_eq!(lines[3], format!("{:<7}{:>8}{}", "1:0", "0.000", format!("{:>8}", "-").repeat(8)));
        // What does not fit stands below; scores that nothing was given for are not shown.
        assert_eq!(
            (lines[5], lines[6]),
            ("", format!("{:<7}{:>8}{:>8}{:>8}", "head", "rare", "copy", "semant").as_str())
        );
        let json = table().to_json();
        assert_eq!((&json[0]["layer"], &json[0]["entropy"], &json[0]["next"]), (&json!(0), &json!(0.5), &Value::Null));
        assert_eq!(json[2].as_object().map(Map::len), Some(2 + 12));
    }

    #[test]
    fn chosen_scores_are_shown_alone_and_in_their_order() {
        let table = table().with_scores(&[HeadScore::Gradient, HeadScore::Entropy]);
        let expected =
            format!("{:<7}{:>8}{:>8}\n{:<7}{:>8}{:>8}\n", "head", "grad", "entropy", "0:0", "3.000", "0.500");
        assert!(table.to_text().starts_with(&expected), "{}", table.to_text());
        assert_eq!(table.to_json()[0], json!({ "layer": 0, "head": 0, "gradient": 3.0, "entropy": 0.5 }));
    }

    #[test]
    fn numbers_have_at_most_seven_characters() {
        let shown = [0.0, 0.1234, -0.25, 0.00012, -123.456, 4567.0].map(number);
        assert_eq!(shown, ["0.000", "0.123", "-0.250", "1e-4", "-1e2", "5e3"]);
    }
}
