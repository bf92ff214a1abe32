//! What a classifier of tokens is worth: the share of words with the right tag, and the entities that are found as a whole.

use firelight_data::tagged::{TaggedSentence, are_of_entities};
use firelight_training::ValidationMetric;
use firelight_training::metrics::classes::{PerClass, entity_report};

use super::batch::{TaggedExample, TokenClassifierTask};
use super::corpus::TaggedCorpus;
use crate::classifier::likeliest;
use crate::data::EncodedWords;
use crate::error::ClassificationError;
use crate::model::TokenClassifier;
use crate::run::{Score, scored};
use crate::tagger::word_answers;

/// What is said of the tags of some sentences.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TagReport {
    /// The share of words with the right tag.
    pub(super) accuracy: f64,
    /// Precision, recall and F1 of the entities of all types, where the tags are of entities.
    pub(super) entities: Option<PerClass>,
}

/// All scores. Those of entities are where the tags are of entities.
const SCORES: [Score<TagReport>; 4] = [
    Score::higher("accuracy", |report| Some(report.accuracy)),
    Score::higher("f1", |report| Some(report.entities?.f1)),
    Score::higher("precision", |report| Some(report.entities?.precision)),
    Score::higher("recall", |report| Some(report.entities?.recall)),
];

/// The metrics of a run, in the order in which they are measured.
pub(super) fn metrics(corpus: &TaggedCorpus) -> Vec<Box<dyn ValidationMetric<TokenClassifierTask>>> {
    let tags = corpus.tags().names().to_vec();
    let (examples, sentences) = (corpus.validation().to_vec(), corpus.validation_sentences().to_vec());
    let scores = SCORES.into_iter().take(if are_of_entities(&tags) { SCORES.len() } else { 1 });
    scored(scores, move |model| Ok(report(model, &tags, (&examples, &sentences))?.0))
}

/// The scores of a report by name, in their order.
pub(super) fn scores(report: &TagReport) -> Vec<(&'static str, f64)> {
    SCORES.iter().filter_map(|score| Some((score.name, (score.of)(report)?))).collect()
}

/// How the words of some sentences are tagged, with their mean loss; the examples are the sentences, or their parts.
pub(super) fn report(
    model: &TokenClassifier,
    tags: &[String],
    (examples, sentences): (&[TaggedExample], &[TaggedSentence]),
) -> Result<(TagReport, f64), ClassificationError> {
    let parts: Vec<EncodedWords> = examples.iter().map(|example| example.words.clone()).collect();
    let rows = word_answers(model, &parts)?;
    let truths: Vec<usize> = examples.iter().flat_map(|example| example.tags.iter().copied()).collect();
    let loss = -rows.iter().zip(&truths).map(|(row, &tag)| row[tag]).sum::<f64>() / truths.len() as f64;
    let found: Vec<usize> = rows.iter().map(|row| likeliest(row)).collect();
    let right = found.iter().zip(&truths).filter(|(found, truth)| found == truth).count();
    let entities = are_of_entities(tags).then(|| of_entities(&found, tags, sentences));
    Ok((TagReport { accuracy: right as f64 / truths.len() as f64, entities }, loss))
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
