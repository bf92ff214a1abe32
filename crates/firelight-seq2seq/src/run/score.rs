//! What a model is worth beside its loss: how many target tokens it predicts, and what its translations of some sources are worth
//! beside their targets. The same at the evaluations of a training, whose translations are few and greedy, and of a finished model.

use std::time::Instant;

use firelight_data::Pair;
use firelight_training::metrics::text::TextMetric;
use firelight_training::{Evaluator, Score, TrainingError, ValidOutput};

use super::{PairText, Seq2SeqRecipe};
use crate::error::Seq2SeqError;
use crate::training::{PairAnswers, Seq2SeqTask};
use crate::translator::{TranslateOptions, Translator};
use crate::vocabulary::Vocabulary;

/// Scores of predicted tokens and of translations.
pub(super) struct PairScores {
    /// Tokens that were predicted, and all.
    predicted: [i64; 2],
    /// None makes no translations.
    translations: Option<Translations>,
    /// How long the newest translations took.
    pub(super) seconds: f64,
}

/// What is translated at every evaluation.
pub(super) struct Translations {
    pub(super) pairs: Vec<Pair>,
    pub(super) vocabulary: Vocabulary,
    pub(super) options: TranslateOptions,
    pub(super) metrics: Vec<TextMetric>,
}

impl PairScores {
    pub(super) fn new(translations: Option<Translations>) -> Self {
        Self { predicted: [0, 0], translations, seconds: 0.0 }
    }

    /// Those of a training: greedy translations of as many pairs as the recipe says, and the scores that it names.
    pub(super) fn of_training(corpus: &PairText, recipe: &Seq2SeqRecipe) -> Self {
        let count = recipe.data.translated.min(corpus.validation().len());
        Self::new((count > 0).then(|| Translations {
            pairs: corpus.validation()[..count].to_vec(),
            vocabulary: corpus.vocabulary().clone(),
            options: TranslateOptions::greedy(),
            metrics: recipe.data.metrics.clone(),
        }))
    }
}

impl Evaluator<Seq2SeqTask> for PairScores {
    fn scores(&self) -> Vec<Score> {
        let translated = self.translations.iter().flat_map(|translations| &translations.metrics);
        let names = ["token_accuracy"].into_iter().chain(translated.map(|metric| metric.name()));
        names.map(Score::higher).collect()
    }

    fn observe(&mut self, output: &ValidOutput<PairAnswers>) -> Result<(), TrainingError> {
        let counts = output.answers.predicted.clone().try_into_vec_as::<i64>();
        let counts = counts.map_err(TrainingError::device("token accuracy"))?;
        self.predicted.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
        Ok(())
    }

    fn finish(&mut self, task: &Seq2SeqTask) -> Result<Vec<f64>, TrainingError> {
        let [right, all] = std::mem::take(&mut self.predicted);
        let mut scores = vec![right as f64 / all as f64];
        if let Some(translations) = &self.translations {
            let began = Instant::now();
            let failed =
                |error: Seq2SeqError| TrainingError::Metric { name: "translations", reason: error.to_string() };
            let found = translations.of(task).map_err(failed)?;
            self.seconds = began.elapsed().as_secs_f64();
            let targets: Vec<&str> = translations.pairs.iter().map(|pair| pair.target.as_str()).collect();
            for metric in &translations.metrics {
                scores.push(metric.corpus(&found, &targets)?);
            }
        }
        Ok(scores)
    }
}

impl Translations {
    fn of(&self, task: &Seq2SeqTask) -> Result<Vec<String>, Seq2SeqError> {
        let translator = Translator::new(task.model.clone(), self.vocabulary.clone());
        let sources: Vec<&str> = self.pairs.iter().map(|pair| pair.source.as_str()).collect();
        let found = translator.translate_with(&sources, &self.options, |_| ())?;
        Ok(found.into_iter().map(|best| best.into_iter().next().map_or(String::new(), |best| best.text)).collect())
    }
}
