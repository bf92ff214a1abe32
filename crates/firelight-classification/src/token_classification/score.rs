//! What a classifier of tokens is worth: the share of words with the right tag, and the entities that are found as a whole.

use std::iter;

use firelight_data::tagged::{TaggedSentence, are_of_entities};
use firelight_training::metrics::classes::{PerClass, entity_report};
use firelight_training::{Communicator, Score, SharedEvaluator, TrainingError, ValidOutput};

use super::batch::{TagAnswers, TaggedExample, TokenClassifierTask};
use crate::records::{Judged, scores, values};

/// What is said of the tags of some sentences.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TagReport {
    /// The share of words with the right tag.
    accuracy: f64,
    /// Precision, recall and F1 of the entities of all types, where the tags are of entities.
    entities: Option<PerClass>,
}

/// All scores. Those of entities are where the tags are of entities.
const SCORES: [Judged<TagReport>; 4] = [
    Judged::higher("accuracy", |report| Some(report.accuracy)),
    Judged::higher("f1", |report| Some(report.entities?.f1)),
    Judged::higher("precision", |report| Some(report.entities?.precision)),
    Judged::higher("recall", |report| Some(report.entities?.recall)),
];

/// The scores of sentences: at the evaluations of a training and of a finished model.
#[derive(Debug)]
pub(super) struct TagScores {
    tags: Vec<String>,
    sentences: Vec<TaggedSentence>,
    /// The sentences, or their parts.
    examples: Vec<TaggedExample>,
    /// The tags that were found for the words of each.
    found: Vec<Vec<usize>>,
}

impl TagScores {
    pub(super) fn on(tags: &[String], examples: &[TaggedExample], sentences: &[TaggedSentence]) -> Self {
        let found = vec![Vec::new(); examples.len()];
        Self { tags: tags.to_vec(), sentences: sentences.to_vec(), examples: examples.to_vec(), found }
    }

    fn table(&self) -> &'static [Judged<TagReport>] {
        if are_of_entities(&self.tags) { &SCORES } else { &SCORES[..1] }
    }
}

impl SharedEvaluator<TokenClassifierTask> for TagScores {
    fn scores(&self) -> Vec<Score> {
        scores(self.table())
    }

    /// A row for each sentence: its number, and the tags of its words.
    fn batch_statistics(&self, output: &ValidOutput<TagAnswers>) -> Result<Vec<Vec<f64>>, TrainingError> {
        let TagAnswers { numbers, tags } = output.answers.clone();
        let length = tags.dims()[1];
        let tags: Vec<i64> = tags.try_into_vec_as().map_err(TrainingError::device("tags"))?;
        let row = |(number, row): (usize, &[i64])| {
            let found = self.examples[number].words.places.iter().map(|&place| row[place] as f64);
            iter::once(number as f64).chain(found).collect::<Vec<f64>>()
        };
        Ok(numbers.into_iter().zip(tags.chunks(length)).map(row).collect())
    }

    fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
        for row in statistics {
            self.found[row[0] as usize] = row[1..].iter().map(|&tag| tag as usize).collect();
        }
        Ok(())
    }

    fn finish(&mut self, _task: &TokenClassifierTask, _ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
        let found: Vec<usize> = self.found.iter_mut().flat_map(std::mem::take).collect();
        let truths = self.examples.iter().flat_map(|example| &example.tags);
        let right = found.iter().zip(truths).filter(|(found, truth)| found == truth).count();
        let entities = are_of_entities(&self.tags).then(|| of_entities(&found, &self.tags, &self.sentences));
        Ok(values(self.table(), &TagReport { accuracy: right as f64 / found.len() as f64, entities }))
    }
}

/// The entities that the tags of all words spell, beside those of the sentences.
fn of_entities(found: &[usize], tags: &[String], sentences: &[TaggedSentence]) -> PerClass {
    let mut found = found.iter().map(|&tag| tags[tag].as_str());
    let predicted: Vec<Vec<&str>> =
        sentences.iter().map(|sentence| found.by_ref().take(sentence.tags.len()).collect()).collect();
    let expected: Vec<Vec<&str>> =
        sentences.iter().map(|sentence| sentence.tags.iter().map(String::as_str).collect()).collect();
    // Every word has a tag, and all tags were looked at.
    entity_report(&predicted, &expected).map_or_else(|error| unreachable!("{error}"), |report| report.all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::tagged::entities;
    use proptest::prelude::*;

    fn sentences(tags: &[&str]) -> Vec<TaggedSentence> {
        let sentence = |tags: &&str| {
            let tags: Vec<String> = tags.split(' ').map(str::to_owned).collect();
            TaggedSentence { tokens: tags.clone(), tags, line: 1 }
        };
        tags.iter().map(sentence).collect()
    }

    #[test]
    fn entities_end_with_their_sentence_and_not_with_a_part_of_it() {
        let tags = ["B-A", "I-A", "O"].map(str::to_owned);
        let all = of_entities(&[0, 1, 1, 0], &tags, &sentences(&["B-A I-A", "O B-A"]));
        assert_eq!((all.precision, all.recall), (2.0 / 3.0, 1.0), "the third word begins an entity that is none");
    }

    proptest! {
        #[test]
        fn entities_are_those_that_the_metric_counts(
            tags in prop::collection::vec(prop::sample::select(vec!["O", "B-A", "I-A", "B-B", "I-B"]), 1..12)
        ) {
            let report = entity_report(std::slice::from_ref(&tags), std::slice::from_ref(&tags)).unwrap();
            prop_assert_eq!(entities(&tags).len(), report.all.support);
        }
    }
}
