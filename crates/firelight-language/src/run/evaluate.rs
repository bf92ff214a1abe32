//! How well a trained model predicts a text: its loss, and the scores of its training.

use firelight_core::LossConfig;
use firelight_data::Tokenizer;
use firelight_storage::TaskError;
use firelight_training::{AskedData, DataModule, MeasuredTask, Measurement, OpenedRun, Task, TaskEvaluation};
use serde::Serialize;

use super::sources::Sources;
use super::{Language, LmText};
use crate::text_generator::TextGenerator;
use crate::training::LmTask;

/// How well a model predicts a text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Evaluation {
    /// Mean loss in nats per token.
    pub loss: f64,
    /// `exp(loss)`.
    pub perplexity: f64,
    /// The loss of the whole text in bits over its number of characters, which does not depend on the tokenizer.
    pub bits_per_character: f64,
    /// Tokens predicted, each once.
    pub tokens: u64,
}

/// A score that was not measured is NaN.
impl From<TaskEvaluation> for Evaluation {
    fn from(found: TaskEvaluation) -> Self {
        let of = |name: &str| found.score(name).unwrap_or(f64::NAN);
        let [perplexity, bits_per_character] = ["perplexity", "bits_per_character"].map(of);
        Self { loss: found.loss, perplexity, bits_per_character, tokens: found.targets }
    }
}

impl MeasuredTask for Language {
    type Options = ();
    type Report = Evaluation;

    /// The validation part of the data at a path, split off as in the training, or a split of that folder, or, without either, what the
    /// run's folder keeps: every token but the first of a source is predicted once, from windows of the context side by side, or from
    /// its document where the run tells documents apart.
    ///
    /// # Errors
    /// If the folder is no trained language model, keeps no text where none is given, or the text has unknown characters or is too short.
    fn measured(run: &OpenedRun<'_, Self>, asked: AskedData<'_>, (): &()) -> Result<Measurement<Self>, TaskError> {
        let generator = TextGenerator::load_from(run.folder.path(), run.checkpoint, run.device)?;
        let text = text_of(run, generator.tokenizer().clone(), asked)?;
        Ok(Measurement {
            task: LmTask::new(generator.model().clone(), LossConfig::default()),
            loader: text.validation_loader(&run.recipe, run.device)?,
            evaluator: Self::evaluator(&text, &run.recipe),
            loss_unit: text.loss_unit(),
            count: text.validation_len(),
            examples: Box::new(move |digest| digest.extend(text.parts[1].examples())),
        })
    }
}

/// What is measured, as the second of the parts.
fn text_of(run: &OpenedRun<'_, Language>, tokenizer: Tokenizer, asked: AskedData<'_>) -> Result<LmText, TaskError> {
    let recipe = &run.recipe.data;
    let parts = match asked {
        None => LmText::open(&run.recipe, &run.folder)?.parts,
        Some((data, None)) => Sources::at(recipe, &[data.into()])?.encode(&tokenizer, recipe)?,
        Some((data, Some(split))) => {
            let all = Sources::of_split(data, split)?.encode_all(&tokenizer, recipe)?;
            [all.clone(), all]
        }
    };
    Ok(LmText { tokenizer, parts })
}
