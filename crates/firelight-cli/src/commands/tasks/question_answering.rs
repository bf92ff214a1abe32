//! What a reader shows after its training: the answers that it gives to validation questions.

use anyhow::Result;
use firelight::classification::{FoundAnswer, QuestionAnswerer, QuestionAnswering};
use firelight::data::questions::Question;
use firelight::device::NamedDevice;
use firelight::nn::{Cost, ParamBuilder};
use firelight::storage::Checkpoint;
use firelight::training::{RecipeOf, Sample, TrainedRun};

use super::super::classify::Classify;
use super::{SAMPLES, Shown};

impl Shown for QuestionAnswering {
    const DATA: &'static str = "a folder with a .jsonl or .parquet file for each split; or one such file";
    const SHOWS: &'static str = "predictions for validation questions";
    const COMMANDS: &'static [&'static str] = &["classify", "embed"];

    fn next(folder: &str) -> String {
        format!(
            "answer a question with: firelight classify {folder} --file FILE, a question, a tab and its text a line"
        )
    }

    fn samples(run: &TrainedRun<Self>, chosen: &NamedDevice) -> Result<Vec<Sample>> {
        let reader = QuestionAnswerer::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let some: Vec<&Question> = run.corpus.validation_records().iter().take(SAMPLES).collect();
        let asked: Vec<(&str, &str)> =
            some.iter().map(|found| (found.question.as_str(), found.context.as_str())).collect();
        let sample = |(question, found): (&&Question, FoundAnswer)| {
            let in_words = |answer: &str| if answer.is_empty() { "no answer".to_string() } else { answer.to_string() };
            let output = format!("{} ({:.1} %)", in_words(&found.answer), 100.0 * found.score);
            let truth = question.answers.text.first().map_or("", String::as_str);
            Sample::new(format!("\"{}\"", question.question), output).expecting(in_words(truth))
        };
        Ok(some.iter().zip(reader.answer(&asked)?).map(sample).collect())
    }

    fn cost(_: &RecipeOf<Self>, config: &Self::Config, length: Option<usize>) -> (Cost, usize) {
        let length = length.unwrap_or(config.encoder.transformer.max_seq_len);
        (config.init_with(&ParamBuilder::counting()).cost(length), length)
    }

    fn classify(asked: &Classify) -> Result<()> {
        asked.questions()
    }
}
