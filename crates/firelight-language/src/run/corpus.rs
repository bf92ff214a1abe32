//! The tokens of a run, as one stream or as documents, and the loaders that read them. What the recipe's `[data]` section
//! says of documents, packing and batches is decided here, for training and evaluation alike.

use std::ops::Range;
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::tensor::Device;
use firelight_data::{
    BatchPlan, Batching, DataError, DocumentDataset, Documents, PackedDataset, Split, StepLoader, TokenFile, Tokenizer,
    Tokens, WindowDataset,
};
use firelight_storage::ModelFolder;

use super::{DataRecipe, LanguageRecipe, Packing};
use crate::data::{LmBatch, LmBatcher};

/// A loader of the batches of a part.
pub(super) type Loader = Arc<dyn DataLoader<LmBatch>>;

/// The tokens of a text or of a part of it.
#[derive(Debug, Clone)]
pub(super) enum Corpus {
    Stream(Tokens),
    Documents(Documents),
}

impl Corpus {
    pub(super) fn encode(tokenizer: &Tokenizer, data: &DataRecipe, text: &str) -> Result<Self, DataError> {
        match &data.documents {
            None => Ok(Self::Stream(tokenizer.encode(text)?.into())),
            Some(separator) => Documents::encode(tokenizer, separator, text).map(Self::Documents),
        }
    }

    /// Writes the corpus to the run folder.
    pub(super) fn save(&self, folder: &ModelFolder, vocab_size: usize) -> Result<(), DataError> {
        let tokens = self.tokens();
        TokenFile::create(folder.tokens(), vocab_size, tokens.get(0..tokens.len()))?;
        match self {
            Self::Stream(_) => Ok(()),
            Self::Documents(documents) => documents.save_lengths(folder.documents()),
        }
    }

    /// The corpus of the run folder, whose tokens are `tokens`.
    pub(super) fn open(folder: &ModelFolder, data: &DataRecipe, tokens: TokenFile) -> Result<Self, DataError> {
        let tokens = Tokens::from(tokens);
        match data.documents {
            None => Ok(Self::Stream(tokens)),
            Some(_) => Documents::open(tokens, folder.documents()).map(Self::Documents),
        }
    }

    pub(super) fn tokens(&self) -> &Tokens {
        match self {
            Self::Stream(tokens) => tokens,
            Self::Documents(documents) => documents.tokens(),
        }
    }

    /// Training and validation split, each with something to learn from or to predict.
    pub(super) fn parts(&self, recipe: &LanguageRecipe) -> Result<(Self, Self), DataError> {
        let (training, validation) = self.split(recipe.data.validation_fraction)?;
        training.items(Split::Training, recipe)?.plan(recipe.data.batching, recipe.training.batch_size)?;
        validation.items(Split::Validation, recipe)?;
        Ok((training, validation))
    }

    pub(super) fn split(&self, fraction: f64) -> Result<(Self, Self), DataError> {
        match self {
            Self::Stream(tokens) => tokens.split(fraction).map(|(a, b)| (Self::Stream(a), Self::Stream(b))),
            Self::Documents(all) => all.split(fraction).map(|(a, b)| (Self::Documents(a), Self::Documents(b))),
        }
    }

    /// Batches in which a training sees the whole part once: documents each, a stream as windows side by side.
    pub(super) fn batches_per_epoch(&self, recipe: &LanguageRecipe) -> Result<usize, DataError> {
        let items = self.items(Split::Training, recipe)?;
        let (batching, batch_size) = (recipe.data.batching, recipe.training.batch_size);
        let plan = match self {
            Self::Stream(tokens) => {
                BatchPlan::uniform(batching, batch_size, tokens.len() / items.row_len, items.row_len)?
            }
            Self::Documents(_) => items.plan(batching, batch_size)?,
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
        let rows = match (self, split) {
            (Self::Stream(tokens), Split::Training) => {
                Rows::Windows(WindowDataset::for_training(tokens.clone(), row_len)?)
            }
            (Self::Stream(tokens), Split::Validation) => {
                Rows::Windows(WindowDataset::for_evaluation(tokens.clone(), row_len)?)
            }
            (Self::Documents(documents), _) => {
                let documents = DocumentDataset::new(documents, row_len, split)?;
                match recipe.data.packing {
                    Packing::None => Rows::Documents(documents),
                    Packing::BestFit => Rows::Packed(PackedDataset::new(documents, row_len, recipe.seed)),
                }
            }
        };
        Ok(Items { rows, row_len })
    }
}

/// What a part holds, row by row of a batch.
struct Items {
    rows: Rows,
    /// The longest a row can be, in tokens.
    row_len: usize,
}

enum Rows {
    Windows(WindowDataset),
    Documents(DocumentDataset),
    Packed(PackedDataset),
}

impl Items {
    fn plan(&self, batching: Batching, batch_size: usize) -> Result<BatchPlan, DataError> {
        match &self.rows {
            Rows::Windows(windows) => BatchPlan::uniform(batching, batch_size, windows.len(), self.row_len),
            Rows::Documents(documents) => BatchPlan::new(batching, batch_size, documents.lengths()),
            Rows::Packed(rows) => BatchPlan::new(batching, batch_size, rows.lengths()),
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

    use super::super::{Run, evaluate};
    use super::*;
    use crate::training::LmTask;
    use firelight_core::{LossConfig, ParamBuilder};
    use firelight_storage::{Checkpoint, Existing};
    use firelight_training::RunRequest;

    const RECIPE: &str = "task = \"language\"\n\n[data]\nvalidation_fraction = 0.2\n\n\
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

    fn corpus(recipe: &LanguageRecipe) -> (Corpus, Corpus) {
        let tokenizer = Tokenizer::train(&recipe.data.tokenizer, &text()).unwrap();
        Corpus::encode(&tokenizer, &recipe.data, &text()).unwrap().parts(recipe).unwrap()
    }

    #[test]
    fn evaluation_counts_every_token_once_packed_or_not() {
        let device = Device::default();
        let [alone, packed] = [&PACKED[..1], &PACKED[..]].map(recipe);
        let task = LmTask::new(alone.model.config(27).init_with(&ParamBuilder::new(&device, 0)), LossConfig::default());
        let [alone, packed] = [alone, packed].map(|recipe| {
            let (_, validation) = corpus(&recipe);
            let loader = validation.validation_loader(&recipe, &device).unwrap();
            (validation.tokens().len(), firelight_training::evaluate(&task, loader.as_ref()).unwrap())
        });
        assert_eq!((alone.1.tokens, packed.1.tokens), (alone.0 as u64 - 1, packed.0 as u64 - 1));
        assert!((alone.1.loss - packed.1.loss).abs() < 1e-5, "{alone:?} and {packed:?}");
    }

    #[test]
    fn a_budget_bounds_the_padded_batch() {
        let recipe = recipe(&BUDGET);
        let loader = corpus(&recipe).0.training_loader(&recipe, 0..40, &Device::default()).unwrap();
        let sizes: Vec<[usize; 2]> = loader.iter().map(|batch| batch.unwrap().inputs.dims()).collect();
        assert!(sizes.len() == 40 && sizes.iter().all(|[rows, length]| rows * length <= 60), "{sizes:?}");
        assert!(sizes.iter().any(|size| size[0] > 5) && sizes.iter().any(|size| size[1] == 24), "{sizes:?}");
    }

    #[test]
    fn a_budget_below_the_context_is_refused() {
        let tokenizer = Tokenizer::train(&firelight_data::TokenizerConfig::Char, &text()).unwrap();
        for documents in [&BUDGET[..1], &[]] {
            let mut recipe = recipe(documents);
            recipe.data.batching = Batching::Tokens { max_tokens: 23, buckets: 3 };
            let error = Corpus::encode(&tokenizer, &recipe.data, &text()).unwrap().parts(&recipe).unwrap_err();
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
    fn a_run_on_documents_resumes_to_the_bit_with_and_without_workers() {
        for overrides in [PACKED, BUDGET] {
            let home = tempfile::tempdir().unwrap();
            let [whole, parts] = ["whole", "parts"].map(|name| home.path().join(name));
            let weights = train(&whole, &overrides, 5, Existing::Refuse);
            train(&parts, &overrides, 2, Existing::Refuse);
            let ahead = [&overrides[..], &[("data.workers", "2")]].concat();
            assert_eq!(train(&parts, &ahead, 5, Existing::Resume), weights);

            let found = evaluate(&parts, &Checkpoint::Last, Some(&text()), &Device::default()).unwrap();
            assert_eq!(found.tokens, corpus(&recipe(&overrides)).1.tokens().len() as u64 - 1);
            assert!(found.bits_per_character.is_finite());
        }
    }
}
