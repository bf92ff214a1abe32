//! What a model is worth at an evaluation, beside its loss: how many target tokens it predicts, and what greedy translations of
//! some validation sources are worth beside their targets.

use std::sync::{Arc, Mutex, PoisonError};

use burn::module::Module;
use firelight_data::Pair;
use firelight_training::metrics::text::{Bleu, exact_match};
use firelight_training::{TrainingError, ValidationMetric};

use super::accuracy::token_accuracy;
use super::{PairRecipe, PairText, Seq2SeqRecipe};
use crate::error::Seq2SeqError;
use crate::training::Seq2SeqTask;
use crate::translator::{TranslateOptions, Translator};
use crate::vocabulary::Vocabulary;

/// How translations are compared with targets.
type Score = fn(&[String], &[String]) -> Result<f64, TrainingError>;

/// The metrics of a run, in the order in which they are measured; those of translations only if some are to be made.
pub(super) fn metrics(corpus: &PairText, recipe: &Seq2SeqRecipe) -> Vec<Box<dyn ValidationMetric<Seq2SeqTask>>> {
    let accuracy = Box::new(TokenAccuracy { corpus: corpus.to_validate(), recipe: recipe.clone() });
    let mut metrics: Vec<Box<dyn ValidationMetric<_>>> = vec![accuracy];
    if recipe.data.translated > 0 {
        metrics.extend(of_translations(corpus, &recipe.data));
    }
    metrics
}

fn of_translations(corpus: &PairText, recipe: &PairRecipe) -> Vec<Box<dyn ValidationMetric<Seq2SeqTask>>> {
    let some = &corpus.validation()[..recipe.translated.min(corpus.validation().len())];
    let [sources, targets] = [|pair: &Pair| pair.source.clone(), |pair: &Pair| pair.target.clone()]
        .map(|side| some.iter().map(side).collect());
    let translations =
        Translations { sources, targets, vocabulary: corpus.vocabulary().clone(), found: Mutex::default() };
    let translations = Arc::new(translations);
    let named: [(&'static str, Score); 2] = [
        ("bleu", |found, expected| Ok(Bleu::default().corpus(found, expected)?.score)),
        ("exact_match", |found, expected| Ok(exact_match(found, expected)?)),
    ];
    let metric = |(name, score)| {
        let translations = translations.clone();
        Box::new(Translated { name, score, translations }) as Box<dyn ValidationMetric<Seq2SeqTask>>
    };
    named.into_iter().map(metric).collect()
}

/// The share of the validation pairs' tokens that the model predicts.
struct TokenAccuracy {
    corpus: PairText,
    recipe: Seq2SeqRecipe,
}

impl ValidationMetric<Seq2SeqTask> for TokenAccuracy {
    fn name(&self) -> &str {
        "token_accuracy"
    }

    fn higher_is_better(&self) -> bool {
        true
    }

    fn measure(&mut self, task: &Seq2SeqTask) -> Result<f64, TrainingError> {
        let device = task.devices().into_iter().next().unwrap_or_default();
        let loader = self.corpus.validation_loader(&self.recipe, &device);
        let failed = |error: Seq2SeqError| TrainingError::Metric { name: "token_accuracy", reason: error.to_string() };
        token_accuracy(&task.model, &*loader.map_err(failed)?)
    }
}

/// What is translated at every evaluation, once for all metrics.
struct Translations {
    sources: Vec<String>,
    targets: Vec<String>,
    vocabulary: Vocabulary,
    /// What the first metric of an evaluation has left for the next.
    found: Mutex<Option<Vec<String>>>,
}

impl Translations {
    fn of(&self, task: &Seq2SeqTask) -> Result<Vec<String>, Seq2SeqError> {
        let translator = Translator::new(task.model.clone(), self.vocabulary.clone());
        let found = translator.translate_with(&self.sources, &TranslateOptions::greedy(), |_| ())?;
        Ok(found.into_iter().map(|best| best.into_iter().next().map_or(String::new(), |best| best.text)).collect())
    }

    /// Translates, or takes what was left.
    fn take(&self, task: &Seq2SeqTask) -> Result<Vec<String>, Seq2SeqError> {
        let mut left = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match left.take() {
            Some(found) => Ok(found),
            None => {
                let found = self.of(task)?;
                *left = Some(found.clone());
                Ok(found)
            }
        }
    }
}

/// A score of greedy translations.
struct Translated {
    name: &'static str,
    score: Score,
    translations: Arc<Translations>,
}

impl ValidationMetric<Seq2SeqTask> for Translated {
    fn name(&self) -> &str {
        self.name
    }

    fn higher_is_better(&self) -> bool {
        true
    }

    fn measure(&mut self, task: &Seq2SeqTask) -> Result<f64, TrainingError> {
        let found = self.translations.take(task);
        let found = found.map_err(|error| TrainingError::Metric { name: self.name, reason: error.to_string() })?;
        (self.score)(&found, &self.translations.targets)
    }
}
