//! The pairs of a run with their tokenizers: read and filtered when the run begins, kept as text in its folder. A text that
//! pairs are to be made of is a pair with itself until a batch is read.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::data::dataset::InMemDataset;
use burn::tensor::Device;
use firelight_data::{
    BatchPlan, Denoising, Dropped, EncodedPair, LengthFilter, Noise, NoiseSeed, Pair, PairColumns, PairFiles,
    ParallelText, SplitFiles, StepLoader, Tokenizer, read_text,
};
use firelight_storage::{InputError, ModelFolder, TaskError, write_json_lines};
use firelight_training::DataModule;
use firelight_training::metrics::text::TextMetric;

use super::files::files_of;
use super::score::Written;
use super::{PairRecipe, Seq2Seq, Seq2SeqRecipe};
use crate::data::{PairBatch, PairBatcher};
use crate::model::Seq2SeqModel;
use crate::translator::{TranslateOptions, Translator};
use crate::vocabulary::Vocabulary;
use crate::vocabulary::too_long;

/// The noise of the validation is that of no epoch of the training.
const VALIDATION_EPOCH: u64 = u64::MAX;

/// A loader of batches.
type Loader = Arc<dyn DataLoader<PairBatch>>;

/// What an encoder-decoder is trained and validated on.
#[derive(Debug, Clone)]
pub struct PairText {
    vocabulary: Vocabulary,
    texts: Parts<Pair>,
    ids: Parts<EncodedPair>,
    dropped: Dropped,
    /// What makes pairs of texts, where the recipe asks for it.
    noise: Option<Noise>,
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

    fn new(recipe: &Seq2SeqRecipe, vocabulary: Vocabulary, texts: Parts<Pair>) -> Result<Self, TaskError> {
        let most = longest(recipe, &vocabulary);
        let whole = most[0].min(most[1]); // a text that both sides are made of
        let cut = |pairs| if recipe.data.objective.is_some() { pieces(whole, pairs) } else { pairs };
        let (training, dropped) = filter(recipe, most).apply(cut(vocabulary.encode_all(&texts.training, 0)?));
        let validation = cut(vocabulary.encode_all(&texts.validation, texts.before)?);
        check_lengths(recipe, &vocabulary, &validation, texts.before)?;
        let noise = |objective: &Denoising| objective.noise(vocabulary.target(), whole);
        let noise = recipe.data.objective.as_ref().map(noise).transpose()?;
        let empty = |problem| Err(InputError::new(problem).into());
        match (training.is_empty(), validation.is_empty()) {
            (true, _) => empty(format!("there is no pair to train on: {dropped}")),
            (_, true) => {
                let way_out = "give more pairs, or a larger data.split.validation";
                empty(format!("there is no pair to validate on: {way_out}"))
            }
            _ => Ok(Self { vocabulary, texts, ids: Parts { training, validation, before: 0 }, dropped, noise }),
        }
    }

    pub(super) fn training_plan(&self, recipe: &Seq2SeqRecipe) -> Result<BatchPlan, TaskError> {
        let lengths = self.ids.training.iter().map(|pair| length(pair, &self.vocabulary));
        Ok(BatchPlan::new(recipe.data.batching, recipe.training.batch_size, lengths)?)
    }

    /// Makes pairs of texts in every epoch anew, where the recipe asks for it.
    fn noisy(
        &self,
        loader: StepLoader<EncodedPair, PairBatch>,
        seed: impl Fn(u64) -> NoiseSeed + Send + Sync + 'static,
    ) -> StepLoader<EncodedPair, PairBatch> {
        let Some(noise) = self.noise.clone() else { return loader };
        let change = move |text: EncodedPair, epoch, number: usize| {
            noise.apply(&text.target, NoiseSeed { index: number as u64, ..seed(epoch) })
        };
        loader.with_change(change)
    }
}

impl DataModule<Seq2Seq> for PairText {
    fn read(recipe: &mut Seq2SeqRecipe, source: &Path, paths: &[PathBuf]) -> Result<Self, TaskError> {
        let texts = texts_of(recipe, source, paths)?;
        let vocabulary = match recipe.init.run_with_tokenizer(recipe.data.tokenizer.is_file())? {
            Some(run) => Vocabulary::load(&run, recipe.data.joint)?,
            None => train_tokenizers(recipe, &texts.training)?,
        };
        Self::new(recipe, vocabulary, texts)
    }

    fn forget_generated(recipe: &mut Seq2SeqRecipe) {
        recipe.data.toy = None;
    }

    fn save(&self, folder: &ModelFolder) -> Result<(), TaskError> {
        self.vocabulary.save(folder)?;
        write_json_lines(folder.training_pairs(), &self.texts.training)?;
        Ok(write_json_lines(folder.validation_pairs(), &self.texts.validation)?)
    }

    fn open(recipe: &Seq2SeqRecipe, folder: &ModelFolder) -> Result<Self, TaskError> {
        let [training, validation] = [stored(folder.training_pairs())?, stored(folder.validation_pairs())?];
        Self::new(recipe, Vocabulary::load(folder, recipe.data.joint)?, Parts { training, validation, before: 0 })
    }

    fn is_of(&self, recipe: &Seq2SeqRecipe, paths: &[PathBuf]) -> Result<bool, TaskError> {
        let other = texts_of(recipe, Path::new(""), paths)?;
        Ok(other.training == self.texts.training && other.validation == self.texts.validation)
    }

    fn sizes(&self) -> String {
        let [training, validation] = [&self.ids.training, &self.ids.validation].map(Vec::len);
        let dropped = match self.dropped.count() {
            0 => String::new(),
            _ => format!(" ({})", self.dropped),
        };
        format!("{training} pairs to train on{dropped}, {validation} to validate on")
    }

    fn batches_per_epoch(&self, recipe: &Seq2SeqRecipe) -> Result<usize, TaskError> {
        Ok(self.training_plan(recipe)?.num_batches())
    }

    fn training_loader(
        &self,
        recipe: &Seq2SeqRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Loader, TaskError> {
        let plan = self.training_plan(recipe)?;
        let pairs = InMemDataset::new(self.ids.training.clone());
        let loader = StepLoader::planned(pairs, PairBatcher::of(&self.vocabulary), plan, device);
        let seed = recipe.seed;
        let loader = self.noisy(loader, move |epoch| NoiseSeed { seed, epoch, index: 0 });
        Ok(Arc::new(loader.shuffled(recipe.seed, batches).with_workers(recipe.data.workers)))
    }

    /// The validation pairs, from the short to the long, with noise that is the same at every evaluation.
    fn validation_loader(&self, recipe: &Seq2SeqRecipe, device: &Device) -> Result<Loader, TaskError> {
        let loader = loader_of(&self.vocabulary, self.ids.validation.clone(), device)?;
        let seed = NoiseSeed { seed: recipe.seed, epoch: VALIDATION_EPOCH, index: 0 };
        Ok(Arc::new(self.noisy(loader, move |_| seed)))
    }
}

/// The translations of pairs at every evaluation.
pub(super) fn translations(
    vocabulary: Vocabulary,
    pairs: &[Pair],
    options: TranslateOptions,
    metrics: Vec<TextMetric>,
) -> Written<Seq2SeqModel> {
    let (sources, targets): (Vec<String>, _) = pairs.iter().cloned().map(|pair| (pair.source, pair.target)).unzip();
    Written::new(targets, metrics, move |model: &Seq2SeqModel, ranks| {
        Translator::new(model.clone(), vocabulary.clone()).translate_on(&sources, &options, ranks)
    })
}

/// The pairs that a run folder keeps.
pub(super) fn stored(path: PathBuf) -> Result<Vec<Pair>, TaskError> {
    let columns = PairColumns::usual(&path)?;
    Ok(PairFiles::Records { path, columns }.read()?.pairs)
}

/// A loader that reads every pair once.
pub(super) fn loader_of(
    vocabulary: &Vocabulary,
    pairs: Vec<EncodedPair>,
    device: &Device,
) -> Result<StepLoader<EncodedPair, PairBatch>, TaskError> {
    let lengths: Vec<usize> = pairs.iter().map(|pair| length(pair, vocabulary)).collect();
    Ok(StepLoader::to_read(InMemDataset::new(pairs), PairBatcher::of(vocabulary), &lengths, device)?)
}

/// Tokens of the longer side, those around it included.
fn length(pair: &EncodedPair, vocabulary: &Vocabulary) -> usize {
    let [source, target] = lengths(pair, vocabulary);
    source.max(target)
}

/// Tokens of the source and of the target, those around them included.
fn lengths(pair: &EncodedPair, vocabulary: &Vocabulary) -> [usize; 2] {
    [pair.source.len() + vocabulary.ends().source.size(false), pair.target.len() + 1]
}

/// The most tokens of a source and of a target, beside those around them.
fn longest(recipe: &Seq2SeqRecipe, vocabulary: &Vocabulary) -> [usize; 2] {
    let max_seq_len = recipe.model.transformer.max_seq_len;
    [vocabulary.ends().source.size(false), 1].map(|around| max_seq_len.saturating_sub(around))
}

/// Texts that pairs are to be made of are cut into as many as the model can read.
fn pieces(longest: usize, pairs: Vec<EncodedPair>) -> Vec<EncodedPair> {
    let cut = |text: &EncodedPair| text.target.chunks(longest.max(1)).map(<[u32]>::to_vec).collect::<Vec<_>>();
    let ids = pairs.iter().flat_map(cut);
    ids.map(|ids| EncodedPair { source: ids.clone(), target: ids }).collect()
}

/// The filter of the recipe, which lets nothing pass that the model cannot read.
fn filter(recipe: &Seq2SeqRecipe, [source, target]: [usize; 2]) -> LengthFilter {
    let bounded = |max: Option<usize>, most: usize| Some(max.map_or(most, |max| max.min(most)));
    let filter = recipe.data.filter;
    let (max_source, max_target) = (bounded(filter.max_source, source), bounded(filter.max_target, target));
    LengthFilter { max_source, max_target, ..filter }
}

/// A model is judged on every pair, so none may be too long.
pub(super) fn check_lengths(
    recipe: &Seq2SeqRecipe,
    vocabulary: &Vocabulary,
    pairs: &[EncodedPair],
    before: usize,
) -> Result<(), TaskError> {
    let max_seq_len = recipe.model.transformer.max_seq_len;
    let sides = |pair: &EncodedPair| {
        let [source, target] = lengths(pair, vocabulary);
        [("source", source), ("target", target)]
    };
    let all = pairs
        .iter()
        .enumerate()
        .flat_map(|(index, pair)| sides(pair).map(|(side, tokens)| (before + index + 1, side, tokens)));
    match all.into_iter().find(|(_, _, tokens)| *tokens > max_seq_len) {
        Some((line, side, tokens)) => Err(too_long((line, side), tokens, max_seq_len).into()),
        None => Ok(()),
    }
}

fn texts_of(recipe: &Seq2SeqRecipe, source: &Path, paths: &[PathBuf]) -> Result<Parts<Pair>, TaskError> {
    let data = &recipe.data;
    if let (true, Some(toy)) = (paths.is_empty(), data.toy) {
        let training = data.split.of_generated().training_len(data.toy_pairs, "pairs")?;
        let splits = toy.splits(recipe.seed, training, data.toy_pairs - training, 0)?;
        return Ok(Parts { training: splits.training, validation: splits.validation, before: 0 });
    }
    if paths.is_empty() && data.objective.is_none() {
        let advice = "give a folder or a file of records with --data, or two files with --source and --target";
        let problem = format!("the recipe `{}` needs pairs to train on", source.display());
        return Err(InputError::new(problem).advise(advice).into());
    }
    let (mut training, validation) = match data.objective {
        Some(_) => plain_texts(data, source, paths)?,
        None => {
            let (training, validation) = files_of(data, paths)?;
            (read_all(&training)?, validation.as_deref().map(read_all).transpose()?)
        }
    };
    let (validation, before) = match validation {
        Some(pairs) => (pairs, 0),
        None => {
            let before = data.split.training_len(training.len(), "pairs")?;
            (training.split_off(before), before)
        }
    };
    Ok(Parts { training, validation, before })
}

/// The pairs of the files of a split.
pub(super) fn read_all(files: &[PairFiles]) -> Result<Vec<Pair>, TaskError> {
    files.iter().try_fold(Vec::new(), |mut pairs, files| {
        pairs.extend(files.read()?.pairs);
        Ok(pairs)
    })
}

/// Pairs to train on and, where they have files of their own, to validate on.
type BothPairs = (Vec<Pair>, Option<Vec<Pair>>);

/// The texts of files that are not blank, each a pair with itself.
fn plain_texts(data: &PairRecipe, source: &Path, paths: &[PathBuf]) -> Result<BothPairs, TaskError> {
    let [path] = paths else {
        let problem = "makes pairs out of a plain text (data.objective)";
        return Err(InputError::in_file(source, problem).advise("give one text file with --data").into());
    };
    let SplitFiles { training, validation } = data.split.files(path, &["txt"])?;
    let validation = (!validation.is_empty()).then(|| texts_in(data, &validation)).transpose()?;
    Ok((texts_in(data, &training)?, validation))
}

fn texts_in(data: &PairRecipe, files: &[PathBuf]) -> Result<Vec<Pair>, TaskError> {
    files.iter().try_fold(Vec::new(), |mut pairs, file| {
        let text = read_text(file)?;
        let texts = data.documents.split(&text).into_iter().map(str::trim_end).filter(|text| !text.is_empty());
        pairs.extend(texts.map(|text| Pair::new(text, text)));
        Ok(pairs)
    })
}

/// Tokenizers know the training split alone.
fn train_tokenizers(recipe: &Seq2SeqRecipe, training: &[Pair]) -> Result<Vocabulary, TaskError> {
    let train = |text: &str| Tokenizer::train(&recipe.data.tokenizer, text);
    if let Some(objective) = &recipe.data.objective {
        let text: String = training.iter().flat_map(|pair| [pair.target.as_str(), "\n"]).collect();
        let special = objective.special_tokens(recipe.model.transformer.max_seq_len - 1); // beside the end
        let special: Vec<&str> = special.iter().map(String::as_str).collect();
        return Ok(Vocabulary::new(None, train(&text)?.ensure_special_tokens(&special)?)?);
    }
    let text = ParallelText { pairs: training.to_vec() };
    if recipe.data.joint {
        return Ok(Vocabulary::new(None, train(&text.joined())?)?);
    }
    let side = |text: fn(&Pair) -> &str| training.iter().flat_map(|pair| [text(pair), "\n"]).collect::<String>();
    let [source, target] = [side(|pair| &pair.source), side(|pair| &pair.target)];
    Ok(Vocabulary::new(Some(train(&source)?), train(&target)?)?)
}

#[cfg(test)]
mod tests;
