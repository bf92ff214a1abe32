//! The texts of a masked language model with their tokenizer: read when the run begins, kept as text in its folder.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use firelight_data::labelled::{self, LabelledText};
use firelight_data::{BatchPlan, Batching, MaskVocabulary, StepLoader, Tokenizer, read_lines};
use firelight_storage::{ModelFolder, write_json_lines};

use super::recipe::{MaskedLanguageRecipe, TextsRecipe};
use crate::data::EncodedText;
use crate::error::ClassificationError;
use crate::masking::{MaskedBatch, MaskedBatcher, MaskedDataset};
use crate::run::{Held, Parts, files_in};
use crate::vocabulary::{MASK, TextVocabulary};

/// The endings of files of texts, in the order in which they are looked for.
const ENDINGS: [&str; 4] = ["txt", "tsv", "csv", "jsonl"];

/// A loader of batches.
type Loader = Arc<dyn DataLoader<MaskedBatch>>;

/// What a masked language model is trained and validated on.
#[derive(Debug, Clone)]
pub struct MaskedCorpus {
    vocabulary: TextVocabulary,
    masks: Arc<MaskVocabulary>,
    texts: Texts,
    training: Arc<Vec<EncodedText>>,
    validation: Arc<Vec<EncodedText>>,
}

/// Texts to train and to validate on.
#[derive(Debug, Clone, PartialEq)]
struct Texts {
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
        texts: Texts,
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
        write_json_lines(folder.training_pairs(), &self.texts.training)?;
        Ok(write_json_lines(folder.validation_pairs(), &self.texts.validation)?)
    }

    pub(super) fn open(recipe: &MaskedLanguageRecipe, folder: &ModelFolder) -> Result<Self, ClassificationError> {
        let [training, validation] = [stored(&folder.training_pairs())?, stored(&folder.validation_pairs())?];
        Self::new(recipe, TextVocabulary::load(folder)?, Texts { training, validation })
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
        let dataset = self.masked(recipe, false);
        let masks = dataset.clone();
        let loader = StepLoader::planned(dataset, MaskedBatcher, plan, device).shuffled(recipe.seed, batches);
        let loader = loader.with_change(move |example, epoch, index| masks.hide(&example.text, epoch, index));
        Ok(Arc::new(loader.with_workers(recipe.data.workers)))
    }

    /// The validation texts, from the short to the long; every time the same tokens are hidden.
    pub(super) fn validation_loader(
        &self,
        recipe: &MaskedLanguageRecipe,
        device: &Device,
    ) -> Result<Loader, ClassificationError> {
        let lengths = self.validation.iter().map(|text| text.ids.len());
        let plan = BatchPlan::new(Batching::to_read(lengths.clone().max().unwrap_or(1)), 1, lengths)?;
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

fn texts_of(data: &TextsRecipe, source: &Path, paths: &[PathBuf]) -> Result<Texts, ClassificationError> {
    let [path] = paths else { return Err(ClassificationError::NoData { path: source.into() }) };
    let (training, validation) = files_in(path, (&data.training, &data.validation), &ENDINGS)?;
    let parts = match validation {
        Some(validation) => [read(&training, data)?, read(&validation, data)?],
        None if is_table(&training) => {
            let parts =
                Parts::read((training, None), &data.validation, (&data.columns, &data.outcome), data.split_seed)?;
            [parts.training, parts.validation].map(without_labels)
        }
        None => last_lines(&training, &data.validation)?,
    };
    let [training, validation] = parts.map(|texts| texts.into_iter().filter(|text| !text.trim().is_empty()).collect());
    Ok(Texts { training, validation })
}

/// Whether a file has columns; a `.txt` has a text on every line.
fn is_table(file: &Path) -> bool {
    file.extension().is_none_or(|ending| ending != "txt")
}

/// The lines of a file, the last ones apart.
fn last_lines(file: &Path, held: &Held) -> Result<[Vec<String>; 2], ClassificationError> {
    let mut lines = read_lines(file)?;
    let Held::Texts(validation) = *held else { unreachable!("a split has its file") };
    if validation >= lines.len() {
        return Err(ClassificationError::NothingLeft { validation, texts: lines.len() });
    }
    let last = lines.split_off(lines.len() - validation);
    Ok([lines, last])
}

fn read(file: &Path, data: &TextsRecipe) -> Result<Vec<String>, ClassificationError> {
    match is_table(file) {
        true => Ok(without_labels(labelled::read_as(file, &data.columns, &data.outcome)?)),
        false => Ok(read_lines(file)?),
    }
}

/// The texts alone, of pairs both.
fn without_labels(texts: Vec<LabelledText>) -> Vec<String> {
    texts.into_iter().flat_map(|text| [Some(text.text), text.pair]).flatten().collect()
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
