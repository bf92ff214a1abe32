//! The pairs of a run with their tokenizers: read and filtered when the run begins, kept as text in its folder.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::data::dataset::InMemDataset;
use burn::tensor::Device;
use firelight_data::{
    BatchPlan, Batching, Dropped, EncodedPair, LengthFilter, Pair, PairFiles, PairNames, ParallelText, StepLoader,
    Tokenizer,
};
use firelight_storage::{ModelFolder, write_atomic_with};

use super::Seq2SeqRecipe;
use super::files::files_of;
use crate::data::{PairBatch, PairBatcher};
use crate::error::Seq2SeqError;
use crate::vocabulary::Vocabulary;

/// Tokens of one validation batch: enough to keep the cores busy, few enough for small memories.
const BATCH_TOKENS: usize = 4096;

/// Batches that each worker thread may hold.
const BATCHES_AHEAD: usize = 2;

/// A loader of batches.
type Loader = Arc<dyn DataLoader<PairBatch>>;

/// What an encoder-decoder is trained and validated on.
#[derive(Debug, Clone)]
pub struct PairText {
    vocabulary: Vocabulary,
    texts: Parts<Pair>,
    ids: Parts<EncodedPair>,
    dropped: Dropped,
}

/// Pairs to train and to validate on.
#[derive(Debug, Clone)]
struct Parts<P> {
    training: Vec<P>,
    validation: Vec<P>,
    /// Pairs of the file before the first to validate on, so that errors name its line.
    before: usize,
}

impl PairText {
    /// The tokenizers.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The pairs to train on, before any is left out.
    pub fn training(&self) -> &[Pair] {
        &self.texts.training
    }

    /// The pairs to validate on.
    pub fn validation(&self) -> &[Pair] {
        &self.texts.validation
    }

    /// The ids of the pairs that are trained on.
    pub(super) fn training_ids(&self) -> &[EncodedPair] {
        &self.ids.training
    }

    pub(super) fn sizes(&self) -> String {
        let [training, validation] = [&self.ids.training, &self.ids.validation].map(Vec::len);
        let dropped = match self.dropped.count() {
            0 => String::new(),
            _ => format!(" ({})", self.dropped),
        };
        format!("{training} pairs to train on{dropped}, {validation} to validate on")
    }

    pub(super) fn read(recipe: &mut Seq2SeqRecipe, source: &Path, paths: &[PathBuf]) -> Result<Self, Seq2SeqError> {
        let texts = texts_of(recipe, source, paths)?;
        if !paths.is_empty() {
            recipe.data.toy = None; // so that the recipe in the folder does not promise generated pairs
        }
        let vocabulary = train_tokenizers(recipe, &texts.training)?;
        Self::new(recipe, vocabulary, texts)
    }

    fn new(recipe: &Seq2SeqRecipe, vocabulary: Vocabulary, texts: Parts<Pair>) -> Result<Self, Seq2SeqError> {
        let (training, dropped) = filter(recipe).apply(vocabulary.encode_all(&texts.training, 0)?);
        let validation = vocabulary.encode_all(&texts.validation, texts.before)?;
        check_lengths(recipe, &validation, texts.before)?;
        let empty = |purpose, reason| Err(Seq2SeqError::NothingLeft { purpose, reason });
        match (training.is_empty(), validation.is_empty()) {
            (true, _) => empty("train on", dropped.to_string()),
            (_, true) => empty("validate on", "give more pairs, or a larger data.validation_fraction".into()),
            _ => Ok(Self { vocabulary, texts, ids: Parts { training, validation, before: 0 }, dropped }),
        }
    }

    pub(super) fn save(&self, folder: &ModelFolder) -> Result<(), Seq2SeqError> {
        self.vocabulary.save(folder)?;
        write_pairs(&folder.training_pairs(), &self.texts.training)?;
        write_pairs(&folder.validation_pairs(), &self.texts.validation)
    }

    pub(super) fn open(recipe: &Seq2SeqRecipe, folder: &ModelFolder) -> Result<Self, Seq2SeqError> {
        let read = |path| PairFiles::Jsonl { path, keys: PairNames::default() }.read();
        let [training, validation] = [read(folder.training_pairs())?.pairs, read(folder.validation_pairs())?.pairs];
        Self::new(recipe, Vocabulary::load(folder)?, Parts { training, validation, before: 0 })
    }

    /// Whether the pairs at `paths` are these.
    pub(super) fn is_of(&self, recipe: &Seq2SeqRecipe, paths: &[PathBuf]) -> Result<bool, Seq2SeqError> {
        let other = texts_of(recipe, Path::new(""), paths)?;
        Ok(other.training == self.texts.training && other.validation == self.texts.validation)
    }

    pub(super) fn training_plan(&self, recipe: &Seq2SeqRecipe) -> Result<BatchPlan, Seq2SeqError> {
        let lengths = self.ids.training.iter().map(length);
        Ok(BatchPlan::new(recipe.data.batching, recipe.training.batch_size, lengths)?)
    }

    pub(super) fn training_loader(
        &self,
        recipe: &Seq2SeqRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Loader, Seq2SeqError> {
        let plan = self.training_plan(recipe)?;
        let loader = self.loader(self.ids.training.clone(), plan, device).shuffled(recipe.seed, batches);
        let workers = recipe.data.workers;
        Ok(Arc::new(loader.prefetch(workers, workers * BATCHES_AHEAD)))
    }

    /// The validation pairs, from the short to the long.
    pub(super) fn validation_loader(&self, device: &Device) -> Result<Loader, Seq2SeqError> {
        loader_of(&self.vocabulary, self.ids.validation.clone(), device)
    }

    fn loader(&self, pairs: Vec<EncodedPair>, plan: BatchPlan, device: &Device) -> StepLoader<EncodedPair, PairBatch> {
        StepLoader::planned(InMemDataset::new(pairs), batcher(&self.vocabulary), plan, device)
    }
}

/// A loader that reads every pair once.
pub(super) fn loader_of(
    vocabulary: &Vocabulary,
    pairs: Vec<EncodedPair>,
    device: &Device,
) -> Result<Loader, Seq2SeqError> {
    let budget = pairs.iter().map(length).max().unwrap_or(1).max(BATCH_TOKENS);
    let plan = BatchPlan::new(Batching::Tokens { budget, buckets: 16 }, 1, pairs.iter().map(length))?;
    Ok(Arc::new(StepLoader::planned(InMemDataset::new(pairs), batcher(vocabulary), plan, device)))
}

fn batcher(vocabulary: &Vocabulary) -> PairBatcher {
    let ends = vocabulary.ends();
    PairBatcher::new(ends.start, ends.source, ends.target)
}

/// Tokens of the longer side, the end included.
fn length(pair: &EncodedPair) -> usize {
    pair.source.len().max(pair.target.len()) + 1
}

/// The filter of the recipe, which lets nothing pass that the model cannot read.
fn filter(recipe: &Seq2SeqRecipe) -> LengthFilter {
    let most = recipe.model.transformer.max_seq_len - 1;
    let bounded = |max: Option<usize>| Some(max.map_or(most, |max| max.min(most)));
    let filter = recipe.data.filter;
    LengthFilter { max_source: bounded(filter.max_source), max_target: bounded(filter.max_target), ..filter }
}

/// A model is judged on every pair, so none may be too long.
pub(super) fn check_lengths(recipe: &Seq2SeqRecipe, pairs: &[EncodedPair], before: usize) -> Result<(), Seq2SeqError> {
    let max_seq_len = recipe.model.transformer.max_seq_len;
    let sides = |pair: &EncodedPair| [("source", pair.source.len() + 1), ("target", pair.target.len() + 1)];
    let all = pairs
        .iter()
        .enumerate()
        .flat_map(|(index, pair)| sides(pair).map(|(side, tokens)| (before + index + 1, side, tokens)));
    match all.into_iter().find(|(_, _, tokens)| *tokens > max_seq_len) {
        Some((line, side, tokens)) => Err(Seq2SeqError::TooLong { line, side, tokens, max_seq_len }),
        None => Ok(()),
    }
}

fn texts_of(recipe: &Seq2SeqRecipe, source: &Path, paths: &[PathBuf]) -> Result<Parts<Pair>, Seq2SeqError> {
    let data = &recipe.data;
    let share = |pairs: usize| ((pairs as f64 * data.validation_fraction).round() as usize).clamp(1, pairs.max(2) - 1);
    if let (true, Some(toy)) = (paths.is_empty(), data.toy) {
        let validation = share(data.toy_pairs);
        let splits = toy.splits(recipe.seed, data.toy_pairs - validation, validation, 0)?;
        return Ok(Parts { training: splits.training, validation: splits.validation, before: 0 });
    }
    if paths.is_empty() {
        return Err(Seq2SeqError::NoData { path: source.into() });
    }
    let (training, validation) = files_of(data, paths)?;
    let mut training = training.read()?.pairs;
    let (validation, before) = match validation {
        Some(files) => (files.read()?.pairs, 0),
        None => {
            let before = training.len() - share(training.len()).min(training.len());
            (training.split_off(before), before)
        }
    };
    if training.is_empty() {
        let reason = "there are too few pairs to share them with the validation".to_string();
        return Err(Seq2SeqError::NothingLeft { purpose: "train on", reason });
    }
    Ok(Parts { training, validation, before })
}

/// Tokenizers know the training part alone.
fn train_tokenizers(recipe: &Seq2SeqRecipe, training: &[Pair]) -> Result<Vocabulary, Seq2SeqError> {
    let train = |text: &str| Tokenizer::train(&recipe.data.tokenizer, text);
    let text = ParallelText { pairs: training.to_vec() };
    if recipe.data.joint {
        return Ok(Vocabulary::new(None, train(&text.joined())?)?);
    }
    let side = |text: fn(&Pair) -> &str| training.iter().flat_map(|pair| [text(pair), "\n"]).collect::<String>();
    let [source, target] = [side(|pair| &pair.source), side(|pair| &pair.target)];
    Ok(Vocabulary::new(Some(train(&source)?), train(&target)?)?)
}

fn write_pairs(path: &Path, pairs: &[Pair]) -> Result<(), Seq2SeqError> {
    write_atomic_with(path, |writer| {
        for pair in pairs {
            serde_json::to_writer(&mut *writer, pair)?;
            writer.write_all(b"\n")?;
        }
        Ok(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Seq2Seq;
    use super::*;
    use firelight_storage::Existing;
    use firelight_training::read_recipe;

    fn recipe(overrides: &[(&str, &str)]) -> Seq2SeqRecipe {
        let overrides: Vec<_> = overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let mut recipe = read_recipe::<Seq2Seq>(None, &overrides).unwrap();
        recipe.data.toy_pairs = 40;
        recipe
    }

    #[test]
    fn generated_pairs_come_back_from_the_folder_with_one_tokenizer_or_two() {
        let home = tempfile::tempdir().unwrap();
        for joint in ["true", "false"] {
            let mut recipe = recipe(&[("data.joint", joint), ("model.tying", "\"target\"")]);
            let made = PairText::read(&mut recipe, Path::new("dates.toml"), &[]).unwrap();
            assert_eq!((made.training().len(), made.validation().len()), (38, 2));
            let folder = ModelFolder::create(home.path().join(joint), Existing::Refuse).unwrap();
            made.save(&folder).unwrap();
            let read = PairText::open(&recipe, &folder).unwrap();
            assert_eq!((read.training_ids(), read.validation()), (made.training_ids(), made.validation()));
            assert_eq!(read.vocabulary().is_joint(), joint == "true");
        }
    }

    #[test]
    fn what_the_model_cannot_read_is_not_trained_on_but_must_not_be_validated_on() {
        let home = tempfile::tempdir().unwrap();
        let [source, target] = ["s", "t"].map(|name| home.path().join(name));
        std::fs::write(&source, format!("ab\n{}\n\nba\n", "ab".repeat(40))).unwrap();
        std::fs::write(&target, "b\nb\na\na\n").unwrap();
        let mut recipe = recipe(&[("data.validation_fraction", "0.25")]);
        let paths = [source.clone(), target.clone()];
        let pairs = PairText::read(&mut recipe, Path::new("x.toml"), &paths).unwrap();
        assert_eq!((pairs.training_ids().len(), pairs.training().len(), pairs.validation().len()), (1, 3, 1));
        assert!(pairs.sizes().starts_with("1 pairs to train on (dropped 2 of 3 pairs"), "{}", pairs.sizes());
        assert!(pairs.is_of(&recipe, &paths).unwrap());

        std::fs::write(&source, format!("ab\nb\na\n{}\n", "ab".repeat(40))).unwrap();
        assert!(!pairs.is_of(&recipe, &paths).unwrap());
        let error = PairText::read(&mut recipe, Path::new("x.toml"), &paths).unwrap_err();
        assert!(error.to_string().starts_with("line 4 has 81 tokens, the end of the source included"), "{error}");
    }

    #[test]
    fn all_pairs_dropped_and_no_pairs_at_all_are_told() {
        let mut filtered = recipe(&[]);
        filtered.data.filter.max_target = Some(3);
        let error = PairText::read(&mut filtered, Path::new("x.toml"), &[]).unwrap_err();
        assert!(error.to_string().starts_with("there is no pair to train on: dropped 38 of 38 pairs"), "{error}");
        let mut without = recipe(&[]);
        without.data.toy = None;
        let error = PairText::read(&mut without, Path::new("x.toml"), &[]).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("`x.toml` needs pairs"), "{error}");
    }
}
