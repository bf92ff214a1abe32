//! Trained models of this crate, read back from the folder of a run: a model with its tokenizer, or the encoder of a model of any task.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, FloatDType};
use firelight_core::{ConfigError, build_in_blocks, onto_device};
use firelight_storage::{Checkpoint, ModelFolder, TaskError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::encoder::{TextEncoder, TextEncoderConfig};
use crate::model::{
    SpanReader, SpanReaderConfig, TextClassifier, TextClassifierConfig, TokenClassifier, TokenClassifierConfig,
};
use crate::objectives::{PretrainingConfig, PretrainingModel};
use crate::sentence_encoder::{SentenceEncoder, SentenceEncoderConfig};
use crate::vocabulary::TextVocabulary;

/// The structure of a model with an encoder, as `config.json` has it.
pub(crate) trait Pretrained: Serialize + DeserializeOwned {
    /// The task of its run.
    const TASK: &'static str;

    /// The model.
    type Model: Module;

    /// Lists what is wrong with it.
    fn problems(&self) -> Vec<String>;

    /// The structure of the encoder.
    fn encoder(&self) -> &TextEncoderConfig;

    /// A model of this structure, whose weights are to be read.
    fn model(&self, device: &Device) -> Self::Model;

    /// The encoder of a model.
    fn encoder_of(model: Self::Model) -> TextEncoder;
}

macro_rules! pretrained {
    ($($Config:ty, $Model:ty, $TASK:ident, |$model:ident| $encoder:expr;)*) => {$(
        impl Pretrained for $Config {
            const TASK: &'static str = crate::$TASK;

            type Model = $Model;

            fn problems(&self) -> Vec<String> {
                ConfigError::list(self.validate())
            }

            fn encoder(&self) -> &TextEncoderConfig {
                &self.encoder
            }

            fn model(&self, device: &Device) -> $Model {
                self.init(device)
            }

            fn encoder_of($model: $Model) -> TextEncoder {
                $encoder
            }
        }
    )*};
}

pretrained! {
    TextClassifierConfig, TextClassifier, TASK, |model| model.encoder;
    TokenClassifierConfig, TokenClassifier, TOKEN_CLASSIFICATION_TASK, |model| model.encoder;
    SpanReaderConfig, SpanReader, QUESTION_ANSWERING_TASK, |model| model.encoder;
    PretrainingConfig, PretrainingModel, MASKED_LANGUAGE_TASK, |model| model.encoder().clone();
    SentenceEncoderConfig, SentenceEncoder, TEXT_ENCODER_TASK, |model| model.encoder;
}

/// The structure, the model with the weights of a checkpoint, and the tokenizer of a run.
pub(crate) fn load<C: Pretrained>(
    folder: &Path,
    checkpoint: &Checkpoint,
    device: &Device,
) -> Result<(C, C::Model, TextVocabulary), TaskError> {
    let folder = ModelFolder::open(folder)?;
    let config: C = folder.read_config(C::TASK)?;
    TaskError::in_config(&folder.config(), &config.problems())?;
    let weights = folder.weights(checkpoint)?;
    let vocabulary = TextVocabulary::load(&folder)?.fits(config.encoder().vocab_size, &folder)?;
    let build = |names: &_| build_in_blocks(names, device, |device| config.model(device));
    let place = |model| onto_device(model, device);
    let model = folder.load_model((weights.as_path(), FloatDType::F32), build, place)?;
    Ok((config, model, vocabulary))
}

/// What a published model puts in front of texts.
#[derive(Debug, Default)]
pub(crate) struct Prompts {
    pub(crate) by_name: BTreeMap<String, String>,
    pub(crate) default: Option<String>,
}

/// The encoder and the tokenizer of a run of any of these tasks, which makes vectors of texts as it says, or else as usual.
pub(crate) fn load_encoder(
    folder: &Path,
    checkpoint: &Checkpoint,
    device: &Device,
) -> Result<(SentenceEncoder, TextVocabulary, Prompts), TaskError> {
    let load = match ModelFolder::open(folder)?.task().as_deref() {
        Some(crate::TEXT_ENCODER_TASK) => {
            let (config, model, vocabulary) = load::<SentenceEncoderConfig>(folder, checkpoint, device)?;
            let prompts = Prompts { by_name: config.prompts, default: config.default_prompt };
            return Ok((model, vocabulary, prompts));
        }
        Some(crate::TASK) => encoder_of::<TextClassifierConfig>,
        Some(crate::TOKEN_CLASSIFICATION_TASK) => encoder_of::<TokenClassifierConfig>,
        Some(crate::QUESTION_ANSWERING_TASK) => encoder_of::<SpanReaderConfig>,
        _ => encoder_of::<PretrainingConfig>,
    };
    load(folder, checkpoint, device)
}

fn encoder_of<C: Pretrained>(
    folder: &Path,
    checkpoint: &Checkpoint,
    device: &Device,
) -> Result<(SentenceEncoder, TextVocabulary, Prompts), TaskError> {
    let (_, model, vocabulary) = load::<C>(folder, checkpoint, device)?;
    Ok((SentenceEncoder::of(C::encoder_of(model)), vocabulary, Prompts::default()))
}
