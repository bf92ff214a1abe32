//! What translations are worth at an evaluation: some validation sources are translated greedily and compared with their
//! targets.

use firelight_training::metrics::text::{Bleu, exact_match};
use firelight_training::{TrainingError, ValidationMetric};

use super::{PairRecipe, PairText};
use crate::training::Seq2SeqTask;
use crate::translator::{TranslateOptions, Translator};
use crate::vocabulary::Vocabulary;

/// How translations are compared with targets.
type Score = fn(&[String], &[String]) -> Result<f64, TrainingError>;

/// The metrics of a run: none if nothing is to be translated.
pub(super) fn metrics(corpus: &PairText, recipe: &PairRecipe) -> Vec<Box<dyn ValidationMetric<Seq2SeqTask>>> {
    if recipe.translated == 0 {
        return Vec::new();
    }
    let some = &corpus.validation()[..recipe.translated.min(corpus.validation().len())];
    let named: [(&'static str, Score); 2] = [
        ("bleu", |found, expected| Ok(Bleu::default().corpus(found, expected)?.score)),
        ("exact_match", |found, expected| Ok(exact_match(found, expected)?)),
    ];
    let metric = |(name, score)| {
        Box::new(Translated {
            name,
            score,
            sources: some.iter().map(|pair| pair.source.clone()).collect(),
            targets: some.iter().map(|pair| pair.target.clone()).collect(),
            vocabulary: corpus.vocabulary().clone(),
        }) as Box<dyn ValidationMetric<Seq2SeqTask>>
    };
    named.into_iter().map(metric).collect()
}

/// A score of greedy translations.
struct Translated {
    name: &'static str,
    score: Score,
    sources: Vec<String>,
    targets: Vec<String>,
    vocabulary: Vocabulary,
}

impl ValidationMetric<Seq2SeqTask> for Translated {
    fn name(&self) -> &str {
        self.name
    }

    fn higher_is_better(&self) -> bool {
        true
    }

    fn measure(&mut self, task: &Seq2SeqTask) -> Result<f64, TrainingError> {
        let translator = Translator::new(task.model.clone(), self.vocabulary.clone());
        let found = translator.translate_with(&self.sources, &TranslateOptions::greedy(), |_| ());
        let found = found.map_err(|error| TrainingError::Metric { name: self.name, reason: error.to_string() })?;
        let texts = found.into_iter().map(|best| best.into_iter().next().map_or(String::new(), |best| best.text));
        (self.score)(&texts.collect::<Vec<_>>(), &self.targets)
    }
}
