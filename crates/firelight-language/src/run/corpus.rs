//! The tokens of a run, as one stream or as documents, and the loaders that read them. What the recipe's `[data]` section
//! says of documents, packing and batches is decided here, for training and evaluation alike.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::tensor::Device;
use firelight_data::{
    BatchPlan, Batching, DataError, DocumentDataset, Documents, Mixture, PackedDataset, Split, SplitConfig, StepLoader,
    Tokens, WindowDataset,
};

use super::{LanguageRecipe, Packing};
use crate::data::{LmBatch, LmBatcher};

/// A loader of the batches of a part.
pub(super) type Loader = Arc<dyn DataLoader<LmBatch>>;

/// The tokens of a source or of a part of it.
#[derive(Debug, Clone)]
pub(super) enum SourceTokens {
    Stream(Tokens),
    Documents(Documents),
}

impl SourceTokens {
    /// Tokens, with the ends of their documents where there are documents.
    pub(super) fn new(tokens: Tokens, ends: Option<Vec<usize>>) -> Self {
        match ends {
            None => Self::Stream(tokens),
            Some(ends) => Self::Documents(Documents::new(tokens, ends)),
        }
    }

    pub(super) fn tokens(&self) -> &Tokens {
        match self {
            Self::Stream(tokens) => tokens,
            Self::Documents(documents) => documents.tokens(),
        }
    }

    pub(super) fn documents(&self) -> Option<&Documents> {
        match self {
            Self::Stream(_) => None,
            Self::Documents(documents) => Some(documents),
        }
    }

    /// Some of the tokens; documents stay whole.
    pub(super) fn within(&self, range: Range<usize>) -> Self {
        match self {
            Self::Stream(tokens) => Self::Stream(tokens.slice(range)),
            Self::Documents(documents) => Self::Documents(documents.within(range)),
        }
    }

    /// What is trained on, and what is held out from it.
    pub(super) fn hold_out(&self, split: &SplitConfig) -> Result<[Self; 2], DataError> {
        let training = split.training_len(self.tokens().len(), "tokens")?;
        Ok(match self {
            Self::Stream(tokens) => <[_; 2]>::from(tokens.split(training)).map(Self::Stream),
            Self::Documents(documents) => <[_; 2]>::from(documents.split(training)).map(Self::Documents),
        })
    }
}

/// The tokens that are trained or validated on, of one source or of several.
#[derive(Debug, Clone)]
pub(super) struct Corpus {
    parts: Vec<SourceTokens>,
    /// Where each source was read, for errors; none are known of a text that was generated or kept in a run folder.
    files: Vec<PathBuf>,
}

impl Corpus {
    pub(super) fn new(parts: Vec<SourceTokens>) -> Self {
        Self { parts, files: Vec::new() }
    }

    /// The same, whose sources were read from these files.
    pub(super) fn read_from(self, files: Vec<PathBuf>) -> Self {
        Self { files, ..self }
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &SourceTokens> {
        self.parts.iter()
    }

    /// How many tokens there are.
    pub(super) fn len(&self) -> usize {
        self.parts().map(|part| part.tokens().len()).sum()
    }

    /// Whether both have the same ids in the same sources.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let lengths = |corpus: &Self| corpus.parts().map(|part| part.tokens().len()).collect::<Vec<_>>();
        lengths(self) == lengths(other) && self.ids().eq(other.ids())
    }

    /// All ids.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.parts().flat_map(|part| part.tokens().iter())
    }

    /// Each document, or each source where there are no documents.
    pub(super) fn examples(&self) -> impl Iterator<Item = Example> {
        self.parts().flat_map(|part| {
            let ranges: Vec<Range<usize>> = match part.documents() {
                Some(documents) => documents.ranges().collect(),
                None => std::iter::once(0..part.tokens().len()).collect(),
            };
            ranges.into_iter().map(move |range| Example(part.tokens().slice(range)))
        })
    }

    /// Makes sure that there is something to learn from or to predict, and that batches can be made of it.
    pub(super) fn check(&self, split: Split, recipe: &LanguageRecipe) -> Result<(), DataError> {
        let items = self.items(split, recipe)?;
        match split {
            Split::Training => items.plan(recipe.data.batching, recipe.training.batch_size).map(drop),
            Split::Validation => Ok(()),
        }
    }

    /// Batches in which a training sees the whole once: documents each, a stream as windows side by side.
    pub(super) fn batches_per_epoch(&self, recipe: &LanguageRecipe) -> Result<usize, DataError> {
        let (batching, batch_size) = (recipe.data.batching, recipe.training.batch_size);
        let items = self.items(Split::Training, recipe)?;
        let plan = match &items.rows {
            Rows::Windows(_) => {
                let windows = |part: &SourceTokens| part.tokens().len() / items.row_len;
                let lengths: Vec<usize> = self.parts().map(windows).collect();
                let windows = Mixture::<()>::shares(&lengths, &recipe.data.weights).into_iter().sum();
                BatchPlan::uniform(batching, batch_size, windows, items.row_len)?
            }
            _ => items.plan(batching, batch_size)?,
        };
        Ok(plan.num_batches())
    }

    /// The batches of training steps.
    pub(super) fn training_loader(
        &self,
        recipe: &LanguageRecipe,
        steps: Range<usize>,
        device: &Device,
    ) -> Result<Loader, DataError> {
        let items = self.items(Split::Training, recipe)?;
        let plan = items.plan(recipe.data.batching, recipe.training.batch_size)?;
        Ok(items.loader(Reading { plan, shuffled: Some((recipe.seed, steps)), workers: recipe.data.workers, device }))
    }

    /// The batches of the validation split, in order, those of documents from the short to the long.
    pub(super) fn validation_loader(&self, recipe: &LanguageRecipe, device: &Device) -> Result<Loader, DataError> {
        let items = self.items(Split::Validation, recipe)?;
        let plan = items.plan(Batching::to_read(items.row_len), 1)?;
        Ok(items.loader(Reading { plan, shuffled: None, workers: recipe.data.workers, device }))
    }

    fn items(&self, split: Split, recipe: &LanguageRecipe) -> Result<Items, DataError> {
        let row_len = recipe.model.transformer.max_seq_len;
        let weights = if split == Split::Training { recipe.data.weights.as_slice() } else { &[] };
        let windows = |tokens: &Tokens| match split {
            Split::Training => WindowDataset::for_training(tokens.clone(), row_len),
            Split::Validation => WindowDataset::for_evaluation(tokens.clone(), row_len),
        };
        let (mut streams, mut documents) = (Vec::new(), Vec::new());
        for (source, part) in self.parts().enumerate() {
            let of_source = in_file(self.files.get(source));
            match part {
                SourceTokens::Stream(tokens) => streams.push(windows(tokens).map_err(of_source)?),
                SourceTokens::Documents(part) => {
                    documents.push(DocumentDataset::new(part, row_len, split).map_err(of_source)?)
                }
            }
        }
        let packed = |documents| PackedDataset::new(documents, row_len, recipe.seed);
        let rows = match recipe.data.packing {
            _ if documents.is_empty() => Rows::Windows(Mixture::new(streams, weights)),
            Packing::None => Rows::Documents(Mixture::new(documents, weights)),
            Packing::BestFit => Rows::Packed(Mixture::new(documents.into_iter().map(packed).collect(), weights)),
        };
        Ok(Items { rows, row_len })
    }
}

/// A converter to an error that names the file of its source, where one is known, for `map_err`.
pub(super) fn in_file(file: Option<&PathBuf>) -> impl FnOnce(DataError) -> DataError {
    move |error| match (error, file) {
        (DataError::Input(mut error), Some(file)) => {
            error.problem = format!("in `{}` {}", file.display(), error.problem);
            error.into()
        }
        (error, _) => error,
    }
}

/// Ids that are hashed together: a source without documents may be longer than memory.
const PIECE: usize = 1 << 16;

/// What ranks compare a checksum of.
pub(super) struct Example(Tokens);

impl Hash for Example {
    /// As a `Vec` of the ids: how many there are, then the ids.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let length = self.0.len();
        state.write_usize(length);
        for begin in (0..length).step_by(PIECE) {
            u32::hash_slice(&self.0.get(begin..length.min(begin + PIECE)), state);
        }
    }
}

/// What there is, row by row of a batch.
struct Items {
    rows: Rows,
    /// The longest a row can be, in tokens.
    row_len: usize,
}

enum Rows {
    Windows(Mixture<WindowDataset>),
    Documents(Mixture<DocumentDataset>),
    Packed(Mixture<PackedDataset>),
}

impl Items {
    fn plan(&self, batching: Batching, batch_size: usize) -> Result<BatchPlan, DataError> {
        match &self.rows {
            Rows::Windows(windows) => BatchPlan::uniform(batching, batch_size, windows.len(), self.row_len),
            Rows::Documents(all) => BatchPlan::new(batching, batch_size, all.values(DocumentDataset::lengths)),
            Rows::Packed(all) => BatchPlan::new(batching, batch_size, all.values(PackedDataset::lengths)),
        }
    }

    fn loader(self, reading: Reading) -> Loader {
        match self.rows {
            Rows::Windows(windows) => reading.loader(windows),
            Rows::Documents(documents) => reading.loader(documents),
            Rows::Packed(rows) => reading.loader(rows),
        }
    }
}

/// How the items are read, whatever they are.
struct Reading<'a> {
    plan: BatchPlan,
    /// The seed and the training steps; none reads all once, in order.
    shuffled: Option<(u64, Range<usize>)>,
    workers: usize,
    device: &'a Device,
}

impl Reading<'_> {
    fn loader<I: Send + 'static>(self, dataset: impl Dataset<I> + 'static) -> Loader
    where
        LmBatcher: Batcher<I, LmBatch>,
    {
        let loader = StepLoader::planned(dataset, LmBatcher, self.plan, self.device);
        let loader = match self.shuffled {
            Some((seed, steps)) => loader.shuffled(seed, steps),
            None => loader,
        };
        Arc::new(loader.with_workers(self.workers))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::thread;

    use super::super::sources::Sources;
    use super::super::{Language, Run};
    use super::*;
    use crate::training::LmTask;
    use firelight_core::{LossConfig, ParamBuilder};
    use firelight_storage::{Checkpoint, Existing};
    use firelight_training::{ExampleDigest, RunRequest, Threads, ThreadsOptions, evaluate_run, evaluate_run_on};

    const RECIPE: &str = "task = \"language\"\n\n[data]\nsplit.validation = 0.2\n\n\
        [model]\nd_model = 8\nn_heads = 2\nn_layers = 1\nmax_seq_len = 24\n\n[training]\nsteps = 4\nbatch_size = 3\n";

    fn recipe(overrides: &[(&str, &str)]) -> LanguageRecipe {
        let overrides: Vec<_> = overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        LanguageRecipe::parse(RECIPE, "small.toml", &overrides).unwrap()
    }

    const PACKED: [(&str, &str); 2] = [("data.documents", "line"), ("data.packing", "best_fit")];
    const BUDGET: [(&str, &str); 2] =
        [("data.documents", "line"), ("data.batching", "{ kind = \"tokens\", max_tokens = 60, buckets = 3 }")];

    /// Documents of 1 to 31 letters.
    fn text() -> String {
        (0..60).map(|line| format!("{}\n", &"abcdefghijklmnopqrstuvwxyzabcde"[line * 13 % 31..])).collect()
    }

    fn corpus(recipe: &LanguageRecipe) -> [Corpus; 2] {
        let sources = Sources::Generated(text());
        sources.encode(&sources.tokenizer(&recipe.data).unwrap(), &recipe.data).unwrap()
    }

    #[test]
    fn evaluation_counts_every_token_once_packed_or_not() {
        let device = Device::default();
        let [alone, packed] = [&PACKED[..1], &PACKED[..]].map(recipe);
        let task = LmTask::new(alone.model.config(27).init_with(&ParamBuilder::new(&device, 0)), LossConfig::default());
        let [alone, packed] = [alone, packed].map(|recipe| {
            let [_, validation] = corpus(&recipe);
            let loader = validation.validation_loader(&recipe, &device).unwrap();
            (validation.len(), firelight_training::evaluate(&task, loader.as_ref()).unwrap())
        });
        assert_eq!((alone.1.tokens, packed.1.tokens), (alone.0 as u64 - 1, packed.0 as u64 - 1));
        assert!((alone.1.loss - packed.1.loss).abs() < 1e-5, "{alone:?} and {packed:?}");
    }

    #[test]
    fn a_budget_bounds_the_padded_batch() {
        let recipe = recipe(&BUDGET);
        let loader = corpus(&recipe)[0].training_loader(&recipe, 0..40, &Device::default()).unwrap();
        let sizes: Vec<[usize; 2]> = loader.iter().map(|batch| batch.unwrap().inputs.dims()).collect();
        assert!(sizes.len() == 40 && sizes.iter().all(|[rows, length]| rows * length <= 60), "{sizes:?}");
        assert!(sizes.iter().any(|size| size[0] > 5) && sizes.iter().any(|size| size[1] == 24), "{sizes:?}");
    }

    #[test]
    fn the_source_that_is_too_short_is_named() {
        let home = tempfile::tempdir().unwrap();
        let paths = ["long.txt", "short.txt"].map(|name| home.path().join(name));
        fs::write(&paths[0], text()).unwrap();
        fs::write(&paths[1], "abcde").unwrap();
        for documents in [&PACKED[..0], &PACKED[..]] {
            let recipe = recipe(documents);
            let sources = Sources::at(&recipe.data, &paths).unwrap();
            let tokenizer = sources.tokenizer(&recipe.data).unwrap();
            let found = sources.encode(&tokenizer, &recipe.data).and_then(|[training, validation]| {
                training.check(Split::Training, &recipe)?;
                validation.check(Split::Validation, &recipe)
            });
            let (error, place) = (found.unwrap_err().to_string(), format!("in `{}` ", paths[1].display()));
            assert!(error.starts_with(&place) && !error.contains("long.txt"), "{error}");
        }
    }

    #[test]
    fn a_budget_below_the_context_is_refused() {
        for documents in [&BUDGET[..1], &[]] {
            let mut recipe = recipe(documents);
            recipe.data.batching = Batching::Tokens { max_tokens: 23, buckets: 3 };
            let error = corpus(&recipe)[0].check(Split::Training, &recipe).unwrap_err();
            assert!(error.to_string().contains("give batching.max_tokens = 24 or more"), "{error}");
        }
    }

    /// Trains to `steps` and returns the weights.
    fn train(folder: &Path, overrides: &[(&str, &str)], steps: usize, existing: Existing) -> Vec<u8> {
        let home = folder.parent().unwrap();
        fs::write(home.join("small.toml"), RECIPE).unwrap();
        fs::write(home.join("text.txt"), text()).unwrap();
        let request = RunRequest::new(&Device::default().autodiff()).with_out(folder).with_existing(existing);
        let request = request.with_recipe(home.join("small.toml")).with_override("training.steps", steps);
        let request = overrides.iter().fold(request, |request, (key, value)| request.with_override(key, value));
        let run = Run::prepare(&request.with_data(home.join("text.txt"))).unwrap();
        let folder = run.fit().unwrap().folder;
        fs::read(folder.weights(&Checkpoint::Last).unwrap()).unwrap()
    }

    #[test]
    fn ranks_that_read_other_texts_are_told() {
        let home = tempfile::tempdir().unwrap();
        let run = home.path().join("run");
        train(&run, &[], 1, Existing::Refuse);
        let [text, other] = ["text.txt", "other.txt"].map(|name| home.path().join(name));
        fs::write(&other, self::text().chars().rev().collect::<String>()).unwrap();
        thread::scope(|scope| {
            for (rank, data) in Threads::ranks(2, ThreadsOptions::default()).into_iter().zip([&text, &other]) {
                let run = &run;
                scope.spawn(move || {
                    let (asked, device) = (Some((data.as_path(), None)), Device::default());
                    let (last, rank) = (Checkpoint::Last, Arc::new(rank));
                    let error = evaluate_run_on::<Language>(run, &last, asked, &(), &device, rank).unwrap_err();
                    assert!(error.is_user_error() && error.to_string().contains("its validation data is `"), "{error}");
                });
            }
        });
    }

    #[test]
    fn an_example_is_a_document_or_a_source_without_documents() {
        let part = |ends: Option<Vec<usize>>| SourceTokens::new(Tokens::from(vec![7, 8, 9]), ends);
        let corpus = Corpus::new(vec![part(None), part(Some(vec![1, 3]))]);
        let expected = [vec![7, 8, 9], vec![7], vec![8, 9]];
        let found: Vec<Vec<u32>> = corpus.examples().map(|example| example.0.iter().collect()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn examples_of_any_length_are_hashed_as_their_ids() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 3] {
            let ids: Vec<u32> = (0..length as u32).map(|id| id % 251).collect();
            let digest = |examples: &mut dyn Iterator<Item = Example>| {
                let mut digest = ExampleDigest::default();
                digest.extend(examples);
                digest.to_string()
            };
            let part = |ids: &[u32]| SourceTokens::new(Tokens::from(ids.to_vec()), None);
            let found = digest(&mut Corpus::new(vec![part(&ids)]).examples());
            let mut whole = ExampleDigest::default();
            whole.extend([&ids]);
            assert_eq!(found, whole.to_string(), "{length}");
            let two = [part(&ids), part(&[7])];
            assert_ne!(digest(&mut Corpus::new(two.into()).examples()), found);
        }
    }

    #[test]
    fn a_run_on_documents_resumes_to_the_bit_with_and_without_workers() {
        for overrides in [PACKED, BUDGET] {
            let home = tempfile::tempdir().unwrap();
            let [whole, parts] = ["whole", "parts"].map(|name| home.path().join(name));
            let weights = train(&whole, &overrides, 5, Existing::Refuse);
            train(&parts, &overrides, 2, Existing::Refuse);
            let ahead = [&overrides[..], &[("data.workers", "2")]].concat();
            assert_eq!(train(&parts, &ahead, 5, Existing::Resume), weights);

            let (path, device) = (home.path().join("text.txt"), Device::default());
            let asked = Some((path.as_path(), None));
            let found = evaluate_run::<Language>(&parts, &Checkpoint::Last, asked, &(), &device).unwrap();
            assert_eq!(found.tokens, corpus(&recipe(&overrides))[1].len() as u64 - 1);
            assert!(found.bits_per_character.is_finite());
        }
    }
}
