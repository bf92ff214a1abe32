//! How well a trained reader answers the questions of a split.

use std::path::Path;
use std::time::Instant;

use burn::tensor::Device;
use firelight_data::questions::{self, Question};
use firelight_storage::{Checkpoint, ModelFolder};
use firelight_training::read_recipe;

use super::batch::{SpanLossConfig, SpanTask};
use super::corpus::{ENDINGS, examples, reading};
use super::score::AnswerScores;
use super::{QuestionAnswering, QuestionAnsweringRecipe};
use crate::error::ClassificationError;
use crate::question_answerer::QuestionAnswerer;
use crate::run::{Asked, Evaluation, Measured, measured};

/// What the loss counts.
pub(super) const UNIT: &str = "nats per window";

/// Evaluates a run on the file `DIR/split.jsonl`; the tokenizer and the windows are those of its training. Which questions are measured
/// without a split, [`evaluate`](crate::evaluate) says.
///
/// # Errors
/// If the folder is no run of this task, there is no such split, a file is to have splits, or an answer does not stand where its
/// line says.
pub fn evaluate_answers(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
) -> Result<Evaluation, ClassificationError> {
    let reader = QuestionAnswerer::load_from(folder.as_ref(), checkpoint, device)?;
    let folder = ModelFolder::open(folder)?;
    let recipe = read_recipe::<QuestionAnswering>(Some(&folder.recipe()), &[])?;
    let questions = questions_of(&folder, &recipe, data)?;
    let began = Instant::now();
    let max_len = reader.model().encoder.max_seq_len();
    let examples = examples(reader.vocabulary(), &questions, max_len, reader.reading().stride)?;
    let task = SpanTask::new(reader.model().clone(), SpanLossConfig::default());
    let mut scores = AnswerScores::on(reader.reading(), &examples, &questions);
    Evaluation::of(&task, reading(&examples, device)?.as_ref(), &mut scores, (UNIT, questions.len(), began))
}

/// The questions to measure on.
fn questions_of(
    folder: &ModelFolder,
    recipe: &QuestionAnsweringRecipe,
    data: Asked<'_>,
) -> Result<Vec<Question>, ClassificationError> {
    let splits = (recipe.data.training.as_str(), &recipe.data.validation);
    let file = match measured::<QuestionAnswering>(folder, recipe, data, (splits, &ENDINGS))? {
        Measured::File(file) => file,
        Measured::HeldBack => folder.validation_pairs(),
    };
    Ok(questions::read(&file)?)
}
