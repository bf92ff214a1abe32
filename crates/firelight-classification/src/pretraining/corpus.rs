//! The texts of a masked language model with their tokenizer: read when the run begins, kept as text in its folder.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use firelight_data::{BatchPlan, Batching, MaskVocabulary, StepLoader, Tokenizer, labelled, read_lines};
use firelight_storage::{ModelFolder, write_atomic_with};

use super::recipe::{MaskedLanguageRecipe, TextsRecipe};
use crate::data::EncodedText;
use crate::error::ClassificationError;
use crate::masking::{MaskedBatch, MaskedBatcher, MaskedDataset};
use crate::run::{Held, files_in};
use crate::vocabulary::{MASK, TextVocabulary};

/// Tokens of one validation batch: enough to keep the cores busy, few enough for small memories.
const BATCH_TOKENS: usize = 4096;

/// Batches that each worker thread may hold.
const BATCHES_AHEAD: usize = 2;

/// The endings of files of texts, in the order in which they are looked for.
const ENDINGS: [&str; 4] = ["txt", "tsv", "csv", "jsonl"];

/// A loader of batches.
type Loader = Arc<dyn DataLoader<MaskedBatch>>;

/// What a masked language model is trained and validated on.
#[derive(Debug, Clone)]
pub struct MaskedCorpus {
    vocabulary: TextVocabulary,
    masks: Arc<MaskVocabulary>,
    texts: Parts,
    training: Arc<Vec<EncodedText>>,
    validation: Arc<Vec<EncodedText>>,
}

/// Texts to train and to validate on.
#[derive(Debug, Clone, PartialEq)]
struct Parts {
    training: Vec<String>,
    validation: Vec<String>,
}

impl MaskedCorpus {
    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// The texts to validate on.
    pub fn validation_texts(&self) -> &[String] {
        &self.texts.validation
    }

    pub(super) fn training(&self) -> &[EncodedText] {
        &self.training
    }

    pub(super) fn sizes(&self) -> String {
        let tokens = |texts: &[EncodedText]| texts.iter().map(|text| text.ids.len()).sum::<usize>();
        let (training, validation) = (&self.training, &self.validation);
        format!(
            "{} texts of {} tokens to train on, {} of {} to validate on",
            training.len(),
            tokens(training),
            validation.len(),
            tokens(validation)
        )
    }

    pub(super) fn read(
        recipe: &MaskedLanguageRecipe,
        source: &Path,
        paths: &[PathBuf],
    ) -> Result<Self, ClassificationError> {
        let texts = texts_of(&recipe.data, source, paths)?;
        let all: String = texts.training.iter().flat_map(|text| [text.as_str(), "\n"]).collect();
        let vocabulary = TextVocabulary::new(Tokenizer::train(&recipe.data.tokenizer, &all)?)?;
        Self::new(recipe, vocabulary, texts)
    }

    fn new(
        recipe: &MaskedLanguageRecipe,
        vocabulary: TextVocabulary,
        texts: Parts,
    ) -> Result<Self, ClassificationError> {
        let max_len = recipe.model.transformer.max_seq_len;
        let encode = |texts: &[String]| -> Result<Arc<Vec<EncodedText>>, ClassificationError> {
            let pieces = (1..).zip(texts).map(|(line, text)| {
                vocabulary.pieces(text, max_len).map_err(|error| ClassificationError::Line { line, error })
            });
            Ok(Arc::new(pieces.collect::<Result<Vec<_>, _>>()?.concat()))
        };
        let (training, validation) = (encode(&texts.training)?, encode(&texts.validation)?);
        if training.is_empty() || validation.is_empty() {
            return Err(ClassificationError::NoTokens);
        }
        let masks = Arc::new(MaskVocabulary::of(vocabulary.tokenizer(), MASK)?);
        Ok(Self { vocabulary, masks, texts, training, validation })
    }

    pub(super) fn save(&self, folder: &ModelFolder) -> Result<(), ClassificationError> {
        self.vocabulary.save(folder)?;
        write_texts(&folder.training_pairs(), &self.texts.training)?;
        write_texts(&folder.validation_pairs(), &self.texts.validation)
    }

    pub(super) fn open(recipe: &MaskedLanguageRecipe, folder: &ModelFolder) -> Result<Self, ClassificationError> {
        let [training, validation] = [stored(&folder.training_pairs())?, stored(&folder.validation_pairs())?];
        Self::new(recipe, TextVocabulary::load(folder)?, Parts { training, validation })
    }

    /// Whether the texts at `paths` are these.
    pub(super) fn is_of(&self, recipe: &MaskedLanguageRecipe, paths: &[PathBuf]) -> Result<bool, ClassificationError> {
        Ok(texts_of(&recipe.data, Path::new(""), paths)? == self.texts)
    }

    pub(super) fn training_plan(&self, recipe: &MaskedLanguageRecipe) -> Result<BatchPlan, ClassificationError> {
        let lengths = self.training.iter().map(|text| text.ids.len());
        Ok(BatchPlan::new(recipe.data.batching, recipe.training.batch_size, lengths)?)
    }

    pub(super) fn training_loader(
        &self,
        recipe: &MaskedLanguageRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Loader, ClassificationError> {
        let plan = self.training_plan(recipe)?;
        let (dataset, workers) = (self.masked(recipe, false), recipe.data.workers);
        let masks = dataset.clone();
        let loader = StepLoader::planned(dataset, MaskedBatcher, plan, device).shuffled(recipe.seed, batches);
        let loader = loader.with_change(move |example, epoch, index| masks.hide(&example.text, epoch, index));
        Ok(Arc::new(loader.prefetch(workers, workers * BATCHES_AHEAD)))
    }

    /// The validation texts, from the short to the long; every time the same tokens are hidden.
    pub(super) fn validation_loader(
        &self,
        recipe: &MaskedLanguageRecipe,
        device: &Device,
    ) -> Result<Loader, ClassificationError> {
        let lengths = || self.validation.iter().map(|text| text.ids.len());
        let budget = lengths().max().unwrap_or(1).max(BATCH_TOKENS);
        let plan = BatchPlan::new(Batching::Tokens { budget, buckets: 16 }, 1, lengths())?;
        Ok(Arc::new(StepLoader::planned(self.masked(recipe, true), MaskedBatcher, plan, device)))
    }

    pub(super) fn masked(&self, recipe: &MaskedLanguageRecipe, is_validation: bool) -> MaskedDataset {
        MaskedDataset {
            texts: if is_validation { self.validation.clone() } else { self.training.clone() },
            vocabulary: self.masks.clone(),
            masking: recipe.data.masking,
            seed: recipe.seed,
            is_fixed: is_validation,
        }
    }
}

fn texts_of(data: &TextsRecipe, source: &Path, paths: &[PathBuf]) -> Result<Parts, ClassificationError> {
    let [path] = paths else { return Err(ClassificationError::NoData { path: source.into() }) };
    let (training_file, validation_file) = files_in(path, (&data.training, &data.validation), &ENDINGS)?;
    let mut training = read(&training_file, data)?;
    let validation = match (validation_file, &data.validation) {
        (Some(file), _) => read(&file, data)?,
        (None, Held::Texts(validation)) if *validation < training.len() => {
            training.split_off(training.len() - validation)
        }
        (None, Held::Texts(validation)) => {
            return Err(ClassificationError::NothingLeft { validation: *validation, texts: training.len() });
        }
        (None, Held::Split(_)) => unreachable!("a split has its file"),
    };
    Ok(Parts { training, validation })
}

/// The texts of a file, of pairs both, without the empty ones.
fn read(file: &Path, data: &TextsRecipe) -> Result<Vec<String>, ClassificationError> {
    let texts = match file.extension().is_some_and(|ending| ending == "txt") {
        true => read_lines(file)?,
        false => {
            let texts = labelled::read(file, &data.columns)?.into_iter();
            texts.flat_map(|text| [Some(text.text), text.pair]).flatten().collect()
        }
    };
    Ok(texts.into_iter().filter(|text| !text.trim().is_empty()).collect())
}

/// The texts of a run folder: a JSON string a line.
fn stored(path: &Path) -> Result<Vec<String>, ClassificationError> {
    let damaged = |_| ClassificationError::Damaged { path: path.into() };
    read_lines(path)?
        .iter()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).map_err(damaged))
        .collect()
}

fn write_texts(path: &Path, texts: &[String]) -> Result<(), ClassificationError> {
    write_atomic_with(path, |writer| {
        for text in texts {
            serde_json::to_writer(&mut *writer, text)?;
            writer.write_all(b"\n")?;
        }
        Ok(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::MaskedLanguage;
    use super::*;
    use firelight_storage::Existing;
    use firelight_training::read_recipe;
    use std::fs;

    #[test]
    fn texts_come_from_lines_and_tables_and_back_from_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        fs::write(path("train.txt"), "a fine film\n\na fine day\na fine film\n").unwrap();
        fs::write(path("dev.tsv"), "a day\tgood\na film\tbad\n").unwrap();
        let recipe = read_recipe::<MaskedLanguage>(None, &[]).unwrap();
        let made = MaskedCorpus::read(&recipe, Path::new("x.toml"), &[home.path().into()]).unwrap();
        assert_eq!(made.sizes(), "3 texts of 15 tokens to train on, 2 of 8 to validate on");
        let folder = ModelFolder::create(path("run"), Existing::Refuse).unwrap();
        made.save(&folder).unwrap();
        let read = MaskedCorpus::open(&recipe, &folder).unwrap();
        assert_eq!((read.training(), &read.texts), (made.training(), &made.texts));
        assert!(read.is_of(&recipe, &[home.path().into()]).unwrap());
        let error = MaskedCorpus::read(&recipe, Path::new("x.toml"), &[path("train.txt")]).unwrap_err();
        assert!(error.to_string().contains("train.txt` is one file"), "{error}");
    }
}
