//! `firelight classify`: what a trained classifier says of texts, of their words or of images, by the task of its run. Texts in,
//! labels with their probabilities, numbers or tags out, as many and in the same order; images are the business of
//! `classify_images.rs`.

use anyhow::{Result, bail, ensure};
use firelight::classification::{Classifier, FoundAnswer, Prediction, QuestionAnswerer, Tagger, Tagging};
use firelight::storage::ModelFolder;
use firelight::training::task_of;
use serde_json::{Map, Value, json};

use super::classify_images::ClassifyImages;
use super::long_texts::LongTexts;
use super::tasks::{Shown, untrained, with_task};
use super::text_input::TextInput;
use super::texts::Texts;
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::ranks;

const EXAMPLES: &str = "\
Examples:
  firelight classify runs/texts-1 --text \"a fine film\"
  firelight classify runs/texts-1 --file reviews.txt --json > labels.jsonl
  firelight classify runs/texts-1 --file articles.txt --long windows --stride 64
  firelight classify runs/entities-1 --text \"Ada Lovelace lived in London\"
  firelight classify runs/images-1 --image seven.png --rollout where.png
  firelight classify openai/clip-vit-base-patch32 --image pet.png --label \"a photo of a cat\" --label \"a photo of a dog\"

The task of the run decides what is printed: labels with probabilities or a number, tags of words, or answers. For a \
model of text pairs a line holds two texts with a tab between them; for a model that answers questions, a question and its \
text.

A classifier cuts off what the model cannot read of a text. With --long windows it reads the whole text in windows that overlap, with \
--long sentences by sentences, and gives the mean of their probabilities, weighted by their shares of the tokens.";

/// Classify texts, their words or images, or answer questions; without an option, the lines of the standard input
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(mut_arg("file", |arg| arg.help("File of texts, one per line; a tab separates the two texts of a pair, or a question from its text")))]
#[command(mut_arg("text", |arg| arg.help("Text to classify")))]
pub(crate) struct Classify {
    #[command(flatten)]
    model: TrainedModel,
    #[command(flatten)]
    input: TextInput,
    #[command(flatten)]
    long_texts: LongTexts,
    #[command(flatten)]
    images: ClassifyImages,
    /// Print one line of JSON for each text or image, with all probabilities
    #[arg(long)]
    json: bool,
}

impl Classify {
    pub(crate) fn run(self) -> Result<()> {
        self.model.is_for("classify")?;
        let folder = ModelFolder::open(self.model.run_dir()?)?;
        let task = folder.task().map_or_else(|| task_of(&folder.recipe()), Ok)?;
        with_task!(task.as_str(), |T| T::classify(&self), untrained::classify(&task, &self))
    }

    fn refuse_texts(&self) -> Result<()> {
        ensure!(!self.input.is_given(), Mistake("--text and --file are for classifiers of texts: give --image".into()));
        self.long_texts.refuse("an image is read as a whole")?;
        ranks::refuse_unshared("images are read by one process")
    }

    /// The texts that are asked about.
    fn read(&self) -> Result<Texts> {
        let problem = "--image, --label and --rollout are for classifiers of images and models of images and texts; \
                       `firelight embed --image` makes vectors of images";
        ensure!(self.images.is_empty(), Mistake(problem.into()));
        self.input.texts()
    }

    /// The classes of images.
    pub(super) fn of_images(&self) -> Result<()> {
        self.refuse_texts()?;
        self.images.run(&self.model, self.json)
    }

    /// Which of the given labels images show.
    pub(super) fn labels_of_images(&self) -> Result<()> {
        self.refuse_texts()?;
        self.images.run_with_labels(&self.model, self.json)
    }

    /// Answers to questions. A question and its text stand in a line, with a tab between them.
    pub(super) fn questions(&self) -> Result<()> {
        let mut texts = self.read()?;
        self.long_texts.refuse("for questions data.stride of the recipe says how long texts are read")?;
        let (reader, source) = (self.model.load(QuestionAnswerer::load_from)?, self.input.source());
        texts.answer(|before, lines| {
            let parted = |(line, text): (usize, &String)| match text.split_once('\t') {
                Some((question, context)) => Ok((question.to_string(), context.to_string())),
                None => bail!(Mistake(format!(
                    "line {line} of `{}` has no tab: give a question, a tab and the text that it is about",
                    source.display()
                ))),
            };
            let questions = (before + 1..).zip(lines).map(parted).collect::<Result<Vec<_>>>()?;
            let found = reader.answer_after(before, &questions)?;
            let shown = |(text, found): (&String, &FoundAnswer)| match self.json {
                true => {
                    let FoundAnswer { answer, score, start, end } = found;
                    let line = json!({"text": text, "answer": answer, "score": score, "start": start, "end": end});
                    format!("{line}\n")
                }
                false => format!("{}\t{:.4}\t{}\t{}\n", found.answer, found.score, found.start, found.end),
            };
            Ok(lines.iter().zip(&found).map(shown).collect())
        })
    }

    /// The tags of words.
    pub(super) fn words(&self) -> Result<()> {
        let mut texts = self.read()?;
        self.long_texts.refuse("the words of a long text are tagged in parts anyway")?;
        let tagger = self.model.load(Tagger::load_from)?;
        texts.answer(|before, texts| {
            let found = tagger.tag_after(before, texts)?;
            let shown = |(text, found): (&String, &Tagging)| match self.json {
                true => {
                    format!("{}\n", json!({"text": text, "tokens": found.tokens, "entities": found.entities}))
                }
                false => as_columns(found),
            };
            Ok(texts.iter().zip(&found).map(shown).collect())
        })
    }

    /// The labels of texts, or numbers.
    pub(super) fn texts(&self) -> Result<()> {
        let mut texts = self.read()?;
        let long_text = self.long_texts.long_text()?;
        let classifier = self.model.load(Classifier::load_from)?.with_long_text(long_text)?;
        texts.answer(|before, texts| {
            let found = classifier.classify_after(before, texts)?;
            let shown = |(text, found): (&String, &Prediction)| match self.json {
                true => as_json(text, found),
                false => as_line(found),
            };
            Ok(texts.iter().zip(&found).map(shown).collect())
        })
    }
}

fn as_json(text: &str, found: &Prediction) -> String {
    let probabilities: Map<String, Value> =
        found.probabilities().iter().map(|(label, value)| (label.clone(), json!(value))).collect();
    let line = match found {
        Prediction::Label { label, .. } => json!({"text": text, "label": label, "probabilities": probabilities}),
        Prediction::Labels { labels, .. } => json!({"text": text, "labels": labels, "probabilities": probabilities}),
        Prediction::Value(value) => json!({"text": text, "value": value}),
    };
    format!("{line}\n")
}

/// A line for each word, with its tag and the probability between tabs, and an empty one behind the text.
fn as_columns(found: &Tagging) -> String {
    let lines = found.tokens.iter().map(|found| format!("{}\t{}\t{:.4}\n", found.token, found.tag, found.probability));
    lines.chain(["\n".to_string()]).collect()
}

/// The labels, each with its probability behind it, between tabs; or the number.
fn as_line(found: &Prediction) -> String {
    if let Prediction::Value(value) = found {
        return format!("{value:.4}\n");
    }
    let named: Vec<_> = found.named().map(|(label, probability)| format!("{label}\t{probability:.4}")).collect();
    format!("{}\n", named.join("\t"))
}
