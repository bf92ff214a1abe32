//! What a run of this crate has learnt, read back: the encoder of any of its tasks, with its tokenizer.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use firelight_core::ConfigError;
use firelight_storage::{Checkpoint, ModelFolder, StorageError, load_weights};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::encoder::{TextEncoder, TextEncoderConfig};
use crate::error::ClassificationError;
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
