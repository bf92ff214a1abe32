//! What a run of this crate has learnt, taken over by another one: the encoder of a masked language model or of a classifier,
//! with its tokenizer.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use firelight_core::ConfigError;
#[cfg(feature = "train")]
use firelight_storage::take_base;
use firelight_storage::{Checkpoint, ModelFolder, StorageError, load_weights};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::encoder::{TextEncoder, TextEncoderConfig};
use crate::error::ClassificationError;
#[cfg(feature = "train")]
use crate::model::TextClassifier;
use crate::model::{SpanReaderConfig, TextClassifierConfig, TokenClassifierConfig};
use crate::objectives::PretrainingConfig;
use crate::vocabulary::TextVocabulary;

/// A run with an encoder.
pub(crate) struct Pretrained {
    folder: ModelFolder,
    model: Structure,
}

/// What the run trained.
enum Structure {
    Classifier(TextClassifierConfig),
    Pretraining(PretrainingConfig),
    Tokens(TokenClassifierConfig),
    Spans(SpanReaderConfig),
}

impl Structure {
    /// Reads the structure of a run, of whichever task it is.
    fn read(folder: &ModelFolder) -> Result<Self, StorageError> {
        let or = |found: Result<Self, StorageError>, next: &dyn Fn() -> Result<Self, StorageError>| match found {
            Err(StorageError::ConfigTask { .. }) => next(),
            found => found,
        };
        let found = folder.read_config(crate::TASK).map(Self::Classifier);
        let found = or(found, &|| folder.read_config(crate::TOKEN_CLASSIFICATION_TASK).map(Self::Tokens));
        let found = or(found, &|| folder.read_config(crate::QUESTION_ANSWERING_TASK).map(Self::Spans));
        or(found, &|| folder.read_config(crate::MASKED_LANGUAGE_TASK).map(Self::Pretraining))
    }
}

impl Pretrained {
    /// Opens the folder of a run.
    pub(crate) fn open(path: &Path) -> Result<Self, ClassificationError> {
        let folder = ModelFolder::open(path)?;
        let model = Structure::read(&folder)?;
        let pretrained = Self { folder, model };
        let valid = pretrained.encoder_config().validate();
        valid.map_err(|error| ClassificationError::Config { path: pretrained.folder.config(), error })?;
        Ok(pretrained)
    }

    /// The structure of the encoder.
    pub(crate) fn encoder_config(&self) -> &TextEncoderConfig {
        match &self.model {
            Structure::Classifier(config) => &config.encoder,
            Structure::Pretraining(config) => &config.encoder,
            Structure::Tokens(config) => &config.encoder,
            Structure::Spans(config) => &config.encoder,
        }
    }

    /// The tokenizer.
    pub(crate) fn vocabulary(&self) -> Result<TextVocabulary, ClassificationError> {
        TextVocabulary::load(&self.folder)?.fits(self.encoder_config().vocab_size, &self.folder)
    }

    /// The encoder with the weights of a checkpoint.
    pub(crate) fn encoder(&self, checkpoint: &Checkpoint, device: &Device) -> Result<TextEncoder, ClassificationError> {
        let weights = self.folder.weights(checkpoint)?;
        match &self.model {
            Structure::Classifier(config) => Ok(learnt(config.init(device), weights)?.encoder),
            Structure::Pretraining(config) => Ok(learnt(config.init(device), weights)?.encoder().clone()),
            Structure::Tokens(config) => Ok(learnt(config.init(device), weights)?.encoder),
            Structure::Spans(config) => Ok(learnt(config.init(device), weights)?.encoder),
        }
    }
}

#[cfg(feature = "train")]
impl Pretrained {
    /// The tokenizer of the run at `path`, where there is one to begin from.
    pub(crate) fn vocabulary_of(path: Option<&Path>) -> Result<Option<TextVocabulary>, ClassificationError> {
        path.map(|path| Self::open(path)?.vocabulary()).transpose()
    }

    /// Makes sure that a model with this encoder can begin from the run at `path`, where there is one.
    pub(crate) fn check_encoder_of(path: Option<&Path>, config: &TextEncoderConfig) -> Result<(), ClassificationError> {
        path.map_or(Ok(()), |path| Self::open(path)?.check_encoder(config))
    }

    /// Makes sure that a classifier of this structure can begin from the run.
    pub(crate) fn check(&self, config: &TextClassifierConfig, new_head: bool) -> Result<(), ClassificationError> {
        self.check_encoder(&config.encoder)?;
        let path = || self.folder.path().to_path_buf();
        match &self.model {
            Structure::Classifier(found) if !new_head && found.problem_type != config.problem_type => {
                let [found, expected] = [found, config].map(|config| config.problem_type.name());
                Err(ClassificationError::OtherOutcome { path: path(), found, expected })
            }
            Structure::Classifier(found) if !new_head && found.labels != config.labels => {
                Err(ClassificationError::OtherHead {
                    path: path(),
                    found: found.labels.clone(),
                    expected: config.labels.clone(),
                })
            }
            Structure::Classifier(found) if !new_head && found.head.pooler != config.head.pooler => {
                let differing = vec!["model.pooling or model.pooler".into()];
                Err(ClassificationError::OtherEncoder { path: path(), differing })
            }
            _ => Ok(()),
        }
    }

    /// Makes sure that a model with this encoder can begin from the run.
    pub(crate) fn check_encoder(&self, config: &TextEncoderConfig) -> Result<(), ClassificationError> {
        match differing(self.encoder_config(), config) {
            differing if differing.is_empty() => Ok(()),
            differing => Err(ClassificationError::OtherEncoder { path: self.folder.path().into(), differing }),
        }
    }

    /// Gives the weights of the last checkpoint to a new classifier of a structure that was [checked](Self::check): those of the
    /// encoder, into which its adapters are merged, and, where no new head is asked for, those of the head: a classifier's whole, and
    /// the pooler that a pre-training has learnt where the classifier's is of the same kind. The adapters of the new classifier stay
    /// as they begin.
    pub(crate) fn give(
        &self,
        mut model: TextClassifier,
        new_head: bool,
        device: &Device,
    ) -> Result<TextClassifier, ClassificationError> {
        match &self.model {
            Structure::Classifier(found) if !new_head => {
                let weights = self.folder.weights(&Checkpoint::Last)?;
                let taken = found.encoder.merge(learnt(found.init(device), weights)?);
                take_base(&mut model.encoder, &taken.encoder);
                take_base(&mut model.head, &taken.head);
            }
            Structure::Pretraining(found) if !new_head => {
                let weights = self.folder.weights(&Checkpoint::Last)?;
                let taken = found.encoder.merge(learnt(found.init(device), weights)?);
                take_base(&mut model.encoder, taken.encoder());
                if let Some(pooler) = taken.pooler().filter(|pooler| pooler.is_like(&model.head.pooler)) {
                    take_base(&mut model.head.pooler, pooler);
                }
            }
            _ => self.give_encoder(&mut model.encoder, device)?,
        }
        Ok(model)
    }

    /// Gives the weights of the last checkpoint to a new encoder that was [checked](Self::check_encoder); adapters are merged.
    pub(crate) fn give_encoder(&self, encoder: &mut TextEncoder, device: &Device) -> Result<(), ClassificationError> {
        let weights = self.folder.weights(&Checkpoint::Last)?;
        let config = self.encoder_config();
        let taken = match &self.model {
            Structure::Classifier(found) => config.merge(learnt(found.init(device), weights)?).encoder,
            Structure::Pretraining(found) => config.merge(learnt(found.init(device), weights)?).encoder().clone(),
            Structure::Tokens(found) => config.merge(learnt(found.init(device), weights)?).encoder,
            Structure::Spans(found) => config.merge(learnt(found.init(device), weights)?).encoder,
        };
        take_base(encoder, &taken);
        Ok(())
    }
}

/// The structure, the weights of a checkpoint and the tokenizer of a run of this task: `checked` tells what is wrong with the
/// structure or which encoder it has, `init` builds the model.
pub(crate) fn load_model<C: Serialize + DeserializeOwned, M: Module>(
    folder: &Path,
    (task, checkpoint): (&str, &Checkpoint),
    checked: impl FnOnce(&C) -> Result<&TextEncoderConfig, ConfigError>,
    init: impl FnOnce(&C) -> M,
) -> Result<(C, M, TextVocabulary), ClassificationError> {
    let folder = ModelFolder::open(folder)?;
    let config: C = folder.read_config(task)?;
    let encoder = checked(&config).map_err(|error| ClassificationError::Config { path: folder.config(), error })?;
    let weights = folder.weights(checkpoint)?;
    let vocabulary = TextVocabulary::load(&folder)?.fits(encoder.vocab_size, &folder)?;
    let model = learnt(init(&config), weights)?;
    Ok((config, model, vocabulary))
}

/// A model with the weights of a file.
fn learnt<M: Module>(mut model: M, weights: PathBuf) -> Result<M, ClassificationError> {
    load_weights(&mut model, weights)?;
    Ok(model)
}

/// The keys in which two encoders differ, but for those that no weight depends on: rates of dropout and how weights begin. Adapters
/// may differ, too: those of the one are merged, those of the other begin anew.
#[cfg(feature = "train")]
fn differing(one: &TextEncoderConfig, other: &TextEncoderConfig) -> Vec<String> {
    let quiet = |config: &TextEncoderConfig| {
        let init = firelight_core::WeightInit::default();
        serde_json::to_value(config.quiet().with_stack(|stack| stack.with_init(init))).unwrap_or_default()
    };
    let (one, other) = (quiet(one), quiet(other));
    let fields = |value: &serde_json::Value| -> Vec<(String, serde_json::Value)> {
        let own = value.as_object().into_iter().flatten();
        let stack = value["transformer"].as_object().into_iter().flatten();
        own.chain(stack)
            .filter(|(key, _)| *key != "transformer")
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let pairs = fields(&one).into_iter().zip(fields(&other));
    pairs
        .filter(|(one, other)| one != other)
        .map(|(one, other)| format!("{} = {} for {}", one.0, one.1, other.1))
        .collect()
}
