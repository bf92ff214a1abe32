//! `firelight train`: a recipe and its data become a run folder, and samples show what was learned. Here are the arguments;
//! `course.rs` follows a training of any task, and each task has a file for what it shows of itself.

mod classification;
mod course;
mod language;
mod masked_language;
mod question_answering;
mod seq2seq;
mod token_classification;
mod vision;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use burn::tensor::Device;
use firelight::classification::{Classification, MaskedLanguage, QuestionAnswering, TokenClassification};
use firelight::device::{self, NamedDevice};
use firelight::language::Language;
use firelight::seq2seq::Seq2Seq;
use firelight::storage::Existing;
use firelight::training::{RunRequest, Task, built_in, task_of};
use firelight::vision::Vision;

use crate::failure::Mistake;
use course::{Course, Shown};

/// Why --source and --target are refused.
const PAIRS_ALONE: &str =
    "--source and --target are for pairs of texts: name a recipe of the task seq2seq, such as dates";

/// Why --from is refused.
const FROM_ALONE: &str = "--from is for classifiers: name a recipe of the task classification, such as texts, of \
                          token_classification, such as entities, or of question_answering, such as answers";

/// Train a model by a recipe; without one, a small GPT on generated stories
#[derive(clap::Args, Default)]
pub(crate) struct Train {
    /// Recipe file (TOML), or an embedded one by its name: stories, which is taken without one, dates, copy, reverse, addition,
    /// texts, entities, answers, masked or images
    recipe: Option<PathBuf>,
    /// What to train on: a text file (UTF-8); for seq2seq a folder of parallel files, a .tsv or a .jsonl file; for
    /// classification a folder with a file for each split, or one .tsv, .csv or .jsonl file; for token_classification the same of
    /// .conll, .txt, .tsv or .jsonl files; for question_answering of .jsonl files; for vision a folder of images
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// For seq2seq: file of the sources, one a line
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with = "data")]
    source: Option<PathBuf>,
    /// For seq2seq: file of the targets, one a line
    #[arg(long, value_name = "FILE", requires = "source")]
    target: Option<PathBuf>,
    /// For classification, token_classification and question_answering: a run of one of them or of the task masked_language, whose encoder and tokenizer are the beginning
    #[arg(long, value_name = "RUN_DIR")]
    from: Option<PathBuf>,
    /// Run folder to write; without one, the next free runs/RECIPE-N
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Stop after N steps; the learning rate schedule stays the recipe's
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Seed of the weights, the order of the data and dropout
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Device: cpu, flex, ndarray, wgpu, vulkan, metal, cuda or rocm, with an index such as cuda:1, or auto
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Override a value of the recipe, such as model.d_model=64; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<(String, String)>,
    /// Replace an existing run folder
    #[arg(long, conflicts_with = "resume")]
    force: bool,
    /// Continue the run in the folder --out from its newest checkpoint; a command with a recipe begins it if need be
    #[arg(long, requires = "out")]
    resume: bool,
    /// Check recipe and data, say what the training would cost, and stop
    #[arg(long)]
    dry_run: bool,
    /// First check that the model keeps the future out, ignores padding, begins at ln V and learns one batch by heart
    #[arg(long)]
    self_check: bool,
    /// Show Burn's dashboard in the place of the progress bar
    #[arg(long)]
    tui: bool,
    /// Write TensorBoard event files into the run folder too
    #[arg(long)]
    tensorboard: bool,
}

impl Train {
    pub(crate) fn run(self) -> Result<()> {
        let chosen = device::choose(self.device.as_deref())?;
        let task = self.task()?;
        let begins =
            [Classification::NAME, TokenClassification::NAME, QuestionAnswering::NAME].contains(&task.as_str());
        ensure!(self.from.is_none() || begins, Mistake(FROM_ALONE.into()));
        ensure!(self.source.is_none() || task == Seq2Seq::NAME, Mistake(PAIRS_ALONE.into()));
        match task.as_str() {
            Language::NAME => self.follow::<Language>(&chosen),
            Seq2Seq::NAME => self.follow::<Seq2Seq>(&chosen),
            Classification::NAME => self.follow::<Classification>(&chosen),
            TokenClassification::NAME => self.follow::<TokenClassification>(&chosen),
            QuestionAnswering::NAME => self.follow::<QuestionAnswering>(&chosen),
            MaskedLanguage::NAME => self.follow::<MaskedLanguage>(&chosen),
            Vision::NAME => self.follow::<Vision>(&chosen),
            other => bail!(Mistake(format!(
                "there is no task `{other}`: expected `{}`, `{}`, `{}`, `{}`, `{}`, `{}` or `{}`",
                Language::NAME,
                Seq2Seq::NAME,
                Classification::NAME,
                TokenClassification::NAME,
                QuestionAnswering::NAME,
                MaskedLanguage::NAME,
                Vision::NAME
            ))),
        }
    }

    /// The task of the recipe, or of the run that is resumed. The name of an embedded recipe gives way to a file.
    fn task(&self) -> Result<String> {
        if let Some(task) = self.recipe.as_deref().and_then(task_of_built_in) {
            return Ok(task.to_string());
        }
        let recipe = |folder: &Path| Some(folder.join("recipe.toml")).filter(|path| self.resume && path.is_file());
        match self.recipe.clone().or_else(|| self.out.as_deref().and_then(recipe)) {
            Some(path) => Ok(task_of(&path)?),
            None => Ok(Language::NAME.to_string()),
        }
    }

    fn follow<T: Shown>(self, chosen: &NamedDevice) -> Result<()> {
        let course =
            Course { dry_run: self.dry_run, self_check: self.self_check, tui: self.tui, tensorboard: self.tensorboard };
        course.follow::<T>(&self.request(&chosen.device), chosen)
    }

    fn request(self, device: &Device) -> RunRequest {
        let (existing, overrides) = (self.existing(), self.overrides());
        let data = self.data.into_iter().chain(self.source).chain(self.target).collect();
        RunRequest { recipe: self.recipe, overrides, data, out: self.out, existing, device: device.clone() }
    }

    fn existing(&self) -> Existing {
        match (self.force, self.resume) {
            (true, _) => Existing::Force,
            (_, true) => Existing::Resume,
            _ => Existing::Refuse,
        }
    }

    /// All overrides in the order of their weight: the short options are the last word.
    fn overrides(&self) -> Vec<(String, String)> {
        // Steps are the last word against epochs, too.
        let steps = self.steps.into_iter().flat_map(|steps| [("training.epochs", 0), ("training.steps", steps)]);
        let steps = steps.map(|(key, number)| (key.to_string(), number.to_string()));
        let seed = self.seed.map(|seed| ("seed".to_string(), seed.to_string()));
        let from = self.from.iter().map(|path| ("model.from".to_string(), format!("{:?}", path.display().to_string())));
        self.overrides.iter().cloned().chain(from).chain(steps).chain(seed).collect()
    }
}

pub(super) fn parse_override(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected SECTION.KEY=VALUE, such as model.d_model=64")?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}

/// The task of the embedded recipe of this name, if there is one.
fn task_of_built_in(recipe: &Path) -> Option<&'static str> {
    let is_language = built_in::<Language>(recipe).map(|_| Language::NAME);
    let is_seq2seq = built_in::<Seq2Seq>(recipe).map(|_| Seq2Seq::NAME);
    let is_classification = built_in::<Classification>(recipe).map(|_| Classification::NAME);
    let is_tokens = built_in::<TokenClassification>(recipe).map(|_| TokenClassification::NAME);
    let is_answers = built_in::<QuestionAnswering>(recipe).map(|_| QuestionAnswering::NAME);
    let is_masked = built_in::<MaskedLanguage>(recipe).map(|_| MaskedLanguage::NAME);
    let is_vision = built_in::<Vision>(recipe).map(|_| Vision::NAME);
    is_language.or(is_seq2seq).or(is_classification).or(is_tokens).or(is_answers).or(is_masked).or(is_vision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_split_at_the_first_equals_sign() {
        let parsed = parse_override("optimizer.kind = adamw=x").unwrap();
        assert_eq!(parsed, ("optimizer.kind".to_string(), "adamw=x".to_string()));
        assert!(parse_override("model.d_model").is_err());
    }

    #[test]
    fn the_short_options_come_last() {
        let overrides = vec![("seed".into(), "1".into())];
        let train = Train { steps: Some(5), seed: Some(7), overrides, ..Train::default() };
        let expected = [("seed", "1"), ("training.epochs", "0"), ("training.steps", "5"), ("seed", "7")];
        assert_eq!(train.overrides(), expected.map(|(key, value)| (key.to_string(), value.to_string())));
    }
}
