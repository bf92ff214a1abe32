//! How well a trained model finds what stands behind the masks of texts.

use firelight_core::LossConfig;
use firelight_storage::TaskError;
use firelight_training::{AskedData, DataModule, MeasuredTask, Measurement, OpenedRun, Shared, TaskEvaluation};

use super::MaskedLanguage;
use super::corpus::{MaskedData, loss_unit, validation_loader};
use super::examples::Examples;
use super::objective::PretrainingTask;
use super::recipe::MaskedLanguageRecipe;
use super::score::PretrainingScores;
use super::texts::{ENDINGS, of_file};
use crate::objectives::{PretrainingConfig, PretrainingObjective};
use crate::pretrained::load;
use crate::records::{Measured, measured, read_all};
use crate::vocabulary::TextVocabulary;

impl MeasuredTask for MaskedLanguage {
    type Options = ();
    type Report = TaskEvaluation;

    /// The file `DIR/split.txt` (or `.tsv`, `.csv`, `.jsonl`), with the masks that the validation draws; the tokenizer is that of the
    /// training. Which texts are measured without a split, [`Classification`](crate::Classification) says.
    ///
    /// # Errors
    /// If the folder is no run of this task, there is no such split, or a file is to have splits.
    fn measured(run: &OpenedRun<'_, Self>, asked: AskedData<'_>, (): &()) -> Result<Measurement<Self>, TaskError> {
        let (_, model, vocabulary) = load::<PretrainingConfig>(run.folder.path(), run.checkpoint, run.device)?;
        let (examples, objective) = (examples_of(run, &vocabulary, asked)?, run.recipe.data.objective);
        let count = examples.units.lengths().len();
        Ok(Measurement {
            task: PretrainingTask::new(model, LossConfig::default()),
            loader: validation_loader(&examples, run.device)?,
            evaluator: Box::new(Shared(PretrainingScores::of(objective))),
            loss_unit: loss_unit(objective),
            count,
            examples: Box::new(move |digest| {
                digest.extend((0..count).map(|index| format!("{:?}", examples.fixed(index))));
            }),
        })
    }

    /// Where the loss is that of hidden tokens, its perplexity is the first of the scores.
    fn report(mut found: TaskEvaluation, recipe: &MaskedLanguageRecipe) -> TaskEvaluation {
        if !matches!(recipe.data.objective, PretrainingObjective::Replaced(_)) {
            found.scores.insert(0, ("perplexity", found.loss.exp()));
        }
        found
    }
}

/// What is measured, with its masks.
fn examples_of(
    run: &OpenedRun<'_, MaskedLanguage>,
    vocabulary: &TextVocabulary,
    asked: AskedData<'_>,
) -> Result<Examples, TaskError> {
    let (folder, recipe) = (&run.folder, &run.recipe);
    match measured::<MaskedLanguage>(folder, recipe, asked, (&recipe.data.split, &ENDINGS))? {
        Measured::Files(files) => {
            let texts = read_all(&files, |file| of_file(file, &recipe.data))?;
            MaskedData::examples(recipe, vocabulary, &texts)
        }
        Measured::HeldOut => Ok(MaskedData::open(recipe, folder)?.validation(recipe)),
    }
}
