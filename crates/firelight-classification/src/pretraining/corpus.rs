//! The texts of a pre-training with their tokenizer: read when the run begins, kept as text in its folder.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use firelight_data::{BatchPlan, MaskVocabulary, Split, StepLoader};
use firelight_storage::{ModelFolder, TaskError};
use firelight_training::{DataModule, Task};

use super::MaskedLanguage;
use super::examples::{ExampleDataset, Examples, PretrainingBatch, PretrainingBatcher};
use super::recipe::MaskedLanguageRecipe;
use super::texts::Texts;
use super::units::Units;
use crate::masking::Hiding;
use crate::objectives::PretrainingObjective;
use crate::vocabulary::TextVocabulary;

/// A loader of batches.
type Loader = Arc<dyn DataLoader<PretrainingBatch>>;

/// What a model is pre-trained and validated on.
#[derive(Debug, Clone)]
pub struct MaskedData {
    vocabulary: TextVocabulary,
    masks: Arc<MaskVocabulary>,
    objective: PretrainingObjective,
    texts: Texts,
    training: Units,
    validation: Units,
}

impl MaskedData {
    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// The texts to validate on, of documents their sentences.
    pub fn validation_texts(&self) -> Vec<&str> {
        let texts = self.texts.validation.iter().map(String::as_str);
        match self.objective.reads_documents() {
            true => texts.flat_map(str::lines).collect(),
            false => texts.collect(),
        }
    }

    /// What the model is trained by.
    pub fn objective(&self) -> PretrainingObjective {
        self.objective
    }

    fn new(recipe: &MaskedLanguageRecipe, vocabulary: TextVocabulary, texts: Texts) -> Result<Self, TaskError> {
        let training = units(recipe, &vocabulary, (Split::Training, &texts.training))?;
        let validation = units(recipe, &vocabulary, (Split::Validation, &texts.validation))?;
        let masks = Arc::new(MaskVocabulary::of(vocabulary.tokenizer())?);
        Ok(Self { vocabulary, masks, objective: recipe.data.objective, texts, training, validation })
    }

    /// Other texts, with the masks that a validation draws.
    pub(super) fn examples(
        recipe: &MaskedLanguageRecipe,
        vocabulary: &TextVocabulary,
        texts: &[String],
    ) -> Result<Examples, TaskError> {
        let texts: Vec<String> = texts.iter().filter(|text| !text.trim().is_empty()).cloned().collect();
        let units = units(recipe, vocabulary, (Split::Validation, &texts))?;
        let masks = Arc::new(MaskVocabulary::of(vocabulary.tokenizer())?);
        let hiding = Hiding { vocabulary: masks, masking: recipe.data.masking, seed: recipe.seed };
        Ok(Examples { units, hiding, objective: recipe.data.objective })
    }

    pub(super) fn training_plan(&self, recipe: &MaskedLanguageRecipe) -> Result<BatchPlan, TaskError> {
        Ok(BatchPlan::new(recipe.data.batching, recipe.training.batch_size, self.training.lengths())?)
    }

    /// The examples of the training.
    pub(super) fn training(&self, recipe: &MaskedLanguageRecipe) -> Examples {
        Examples { units: self.training.clone(), hiding: self.hiding(recipe), objective: self.objective }
    }

    /// The examples of the validation.
    pub(super) fn validation(&self, recipe: &MaskedLanguageRecipe) -> Examples {
        Examples { units: self.validation.clone(), hiding: self.hiding(recipe), objective: self.objective }
    }

    fn hiding(&self, recipe: &MaskedLanguageRecipe) -> Hiding {
        Hiding { vocabulary: self.masks.clone(), masking: recipe.data.masking, seed: recipe.seed }
    }
}

impl DataModule<MaskedLanguage> for MaskedData {
    fn read(recipe: &mut MaskedLanguageRecipe, source: &Path, paths: &[PathBuf]) -> Result<Self, TaskError> {
        let texts = match (paths, recipe.data.stories) {
            ([], Some(length)) => Texts::of_stories(&recipe.data, recipe.seed, length)?,
            _ => Texts::read(&recipe.data, source, paths)?,
        };
        let all = || texts.training.iter().flat_map(|text| [text.as_str(), "\n"]).collect();
        let vocabulary = TextVocabulary::begin(&recipe.init, &recipe.data.tokenizer, all)?;
        Self::new(recipe, vocabulary, texts)
    }

    fn forget_generated(recipe: &mut MaskedLanguageRecipe) {
        recipe.data.stories = None;
    }

    fn save(&self, folder: &ModelFolder) -> Result<(), TaskError> {
        self.vocabulary.save(folder)?;
        self.texts.save(folder)
    }

    fn open(recipe: &MaskedLanguageRecipe, folder: &ModelFolder) -> Result<Self, TaskError> {
        let texts = Texts::open(folder)?;
        Self::new(recipe, TextVocabulary::load(folder)?, texts)
    }

    fn is_of(&self, recipe: &MaskedLanguageRecipe, paths: &[PathBuf]) -> Result<bool, TaskError> {
        Ok(Texts::read(&recipe.data, Path::new(""), paths)? == self.texts)
    }

    fn sizes(&self) -> String {
        Units::sizes(&self.training, &self.validation)
    }

    fn batches_per_epoch(&self, recipe: &MaskedLanguageRecipe) -> Result<usize, TaskError> {
        Ok(self.training_plan(recipe)?.num_batches())
    }

    fn training_loader(
        &self,
        recipe: &MaskedLanguageRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Loader, TaskError> {
        let plan = self.training_plan(recipe)?;
        let examples = self.training(recipe);
        let dataset = ExampleDataset { examples: examples.clone(), is_fixed: false };
        let loader = StepLoader::planned(dataset, PretrainingBatcher, plan, device).shuffled(recipe.seed, batches);
        let loader = loader.with_change(move |_, epoch, index| Some(examples.draw(epoch, index)));
        Ok(Arc::new(loader.with_workers(recipe.data.workers)))
    }

    fn validation_loader(&self, recipe: &MaskedLanguageRecipe, device: &Device) -> Result<Loader, TaskError> {
        validation_loader(&self.validation(recipe), device)
    }

    fn loss_unit(&self) -> String {
        loss_unit(self.objective)
    }
}

/// What the loss counts: of a generator and a discriminator that of the latter is reported.
pub(super) fn loss_unit(objective: PretrainingObjective) -> String {
    match objective {
        PretrainingObjective::Replaced(_) => "nats per token".into(),
        _ => format!("nats per {}", MaskedLanguage::TARGET),
    }
}

/// Texts, or pairs of sentences, as tokens.
fn units(
    recipe: &MaskedLanguageRecipe,
    vocabulary: &TextVocabulary,
    (split, texts): (Split, &[String]),
) -> Result<Units, TaskError> {
    let max_len = recipe.model.transformer.max_seq_len;
    match recipe.data.objective.reads_documents() {
        true => Units::pairs((split, texts), vocabulary, max_len),
        false => Units::texts(texts, vocabulary, max_len),
    }
}

/// The examples of a validation, from the short to the long; every time the same.
pub(super) fn validation_loader(examples: &Examples, device: &Device) -> Result<Loader, TaskError> {
    let dataset = ExampleDataset { examples: examples.clone(), is_fixed: true };
    Ok(Arc::new(StepLoader::to_read(dataset, PretrainingBatcher, &examples.units.lengths(), device)?))
}

#[cfg(test)]
mod tests {
    use super::super::MaskedLanguage;
    use super::*;
    use burn::data::dataset::Dataset;
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
        let made = MaskedData::read(&mut recipe.clone(), Path::new("x.toml"), &[home.path().into()]).unwrap();
        assert_eq!(made.sizes(), "3 texts of 15 tokens to train on, 2 of 8 to validate on");
        let folder = ModelFolder::create(path("run"), Existing::Refuse).unwrap();
        made.save(&folder).unwrap();
        let read = MaskedData::open(&recipe, &folder).unwrap();
        assert_eq!(read.texts, made.texts);
        let examples = |corpus: &MaskedData| (0..3).map(|i| corpus.training(&recipe).draw(1, i)).collect::<Vec<_>>();
        assert_eq!(examples(&read), examples(&made));
        assert!(read.is_of(&recipe, &[home.path().into()]).unwrap());
        let alone = MaskedData::read(&mut recipe.clone(), Path::new("x.toml"), &[path("train.txt")]).unwrap();
        assert_eq!(
            (alone.texts.training.len(), alone.texts.validation.len()),
            (2, 1),
            "a tenth of a file, but one at least"
        );
    }

    #[test]
    fn documents_come_back_from_the_folder_and_a_lack_of_pairs_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let text = "a fine film\nso dull\n\na day\na fine day\na night\n";
        fs::write(path("train.txt"), text).unwrap();
        fs::write(path("dev.txt"), text).unwrap();
        let mut recipe = read_recipe::<MaskedLanguage>(None, &[]).unwrap();
        recipe.data.objective = PretrainingObjective::MaskedAndNextSentence;
        let read = || MaskedData::read(&mut recipe.clone(), Path::new("x.toml"), &[home.path().into()]);
        let made = read().unwrap();
        assert_eq!(made.sizes(), "2 documents with 3 pairs of sentences to train on, 2 with 3 to validate on");
        assert_eq!(made.validation_texts(), ["a fine film", "so dull", "a day", "a fine day", "a night"]);
        let folder = ModelFolder::create(path("run"), Existing::Refuse).unwrap();
        made.save(&folder).unwrap();
        assert_eq!(MaskedData::open(&recipe, &folder).unwrap().texts, made.texts);
        fs::write(path("dev.txt"), "a day\na night\n").unwrap();
        let error = read().unwrap_err();
        assert!(
            error.is_user_error() && error.to_string().contains("validation split: there is 1 document with 1"),
            "{error}"
        );
    }

    #[test]
    fn without_data_stories_are_told_of_which_the_last_are_validated_on() {
        let short = |more: &[(&str, &str)]| {
            let change = [&[("data.stories", "20000")], more].concat().into_iter();
            let change: Vec<(String, String)> = change.map(|(key, value)| (key.into(), value.into())).collect();
            let recipe = read_recipe::<MaskedLanguage>(None, &change).unwrap();
            MaskedData::read(&mut recipe.clone(), Path::new("x.toml"), &[]).unwrap()
        };
        let made = short(&[]);
        let all = firelight_data::stories(1, 20_000);
        let all: Vec<&str> = all.split_terminator("\n\n").collect();
        assert_eq!([&made.texts.training[..], &made.texts.validation].concat(), all);
        assert_eq!(made.texts.validation.len(), all.len().div_ceil(20));
        assert_eq!(short(&[("data.split.validation", "7")]).texts.validation.len(), 7);
        let pairs = short(&[("data.objective", "masked_and_next_sentence"), ("model.n_segments", "2")]);
        assert!(pairs.texts.training[0].lines().count() > 3 && pairs.sizes().contains("pairs of sentences"));
        let mut recipe = read_recipe::<MaskedLanguage>(None, &[]).unwrap();
        recipe.data.stories = None;
        let error = MaskedData::read(&mut recipe.clone(), Path::new("x.toml"), &[]).unwrap_err();
        assert!(error.to_string().contains("--data"), "{error}");
    }

    #[test]
    fn epochs_draw_other_examples_and_a_validation_always_the_same() {
        let home = tempfile::tempdir().unwrap();
        for name in ["train.txt", "dev.txt"] {
            fs::write(home.path().join(name), "a b c d\na b\n\nc d\nd c b a\n").unwrap();
        }
        let replaced = PretrainingObjective::Replaced(crate::ReplacedTokens::default());
        for objective in [PretrainingObjective::Masked, PretrainingObjective::MaskedAndNextSentence, replaced] {
            let mut recipe = read_recipe::<MaskedLanguage>(None, &[]).unwrap();
            recipe.data.objective = objective;
            let corpus = MaskedData::read(&mut recipe.clone(), Path::new("x.toml"), &[home.path().into()]).unwrap();
            let dataset = |is_fixed| ExampleDataset { examples: corpus.validation(&recipe), is_fixed };
            assert_eq!(dataset(true).get(0).unwrap(), Some(corpus.validation(&recipe).fixed(0)));
            assert_eq!(dataset(false).get(0).unwrap(), None, "the loader draws");
            let drawn = |epoch| corpus.training(&recipe).draw(epoch, 0);
            assert!(drawn(3) == drawn(3) && (1..20).any(|epoch| drawn(epoch) != drawn(0)), "{objective:?}");
        }
    }
}
