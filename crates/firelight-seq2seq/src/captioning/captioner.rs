//! A trained model, loaded from a run folder: images in, captions out, and where each of their words came from.

use std::path::Path;

use burn::tensor::{Device, FloatDType, Tensor};
use firelight_core::{ConfigError, Pass, build_in_blocks, onto_device};
use firelight_data::{Image, ImageProcessor, ImageShape, Resizing, Tokenizer};
use firelight_generation::{BeamOptions, Hypothesis, WithVocabulary, beam_search};
use firelight_storage::{Checkpoint, ModelFolder, TaskError};

use super::CAPTIONING_TASK;
use super::model::{CaptionConfig, CaptionModel};
use crate::inference::cross_attention;
use crate::vocabulary::Vocabulary;

/// The longer side of an image in a picture, in pixels.
const SIDE: usize = 160;

/// What a model says of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Caption {
    /// The text.
    pub text: String,
    /// Its ids, without the tokens around them.
    pub ids: Vec<u32>,
    /// Its log-probability in nats, divided by its length.
    pub score: f64,
}

/// A word of a caption and where in the image it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptionWord {
    /// The word, without spaces around it.
    pub text: String,
    /// The attention to each patch, row by row: with that to the tokens before the patches it sums up to 1.
    pub shares: Vec<f64>,
}

/// A trained model and its tokenizer.
#[derive(Debug)]
pub struct Captioner {
    model: CaptionModel,
    config: CaptionConfig,
    vocabulary: Vocabulary,
}

impl Captioner {
    /// Images that are read at once by [`caption`](Self::caption): enough to keep the cores busy, few enough for small memories.
    pub const BATCH: usize = 32;

    /// Images in a row of a [`picture`](Self::picture).
    pub const COLUMNS: usize = 6;

    /// Puts a model, its configuration and its tokenizer together.
    pub fn new(model: CaptionModel, config: CaptionConfig, vocabulary: Vocabulary) -> Self {
        Self { model, config, vocabulary }
    }

    /// Loads the last weights of a run onto Burn's default device.
    ///
    /// # Errors
    /// If the folder is no run of this task, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, TaskError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(folder: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let folder = ModelFolder::open(folder)?;
        let config: CaptionConfig = folder.read_config(CAPTIONING_TASK)?;
        TaskError::in_config(&folder.config(), &ConfigError::list(config.validate()))?;
        let weights = folder.weights(checkpoint)?;
        let vocabulary = Vocabulary::load(&folder, true)?;
        vocabulary.target().fits(config.vocab_size, &folder.config())?;
        let build = |names: &_| build_in_blocks(names, device, |device| config.init(device));
        let place = |model| onto_device(model, device);
        let model = folder.load_model((weights.as_path(), FloatDType::F32), build, place)?;
        Ok(Self::new(model, config, vocabulary))
    }

    /// The model.
    pub fn model(&self) -> &CaptionModel {
        &self.model
    }

    /// Its configuration.
    pub fn config(&self) -> &CaptionConfig {
        &self.config
    }

    /// The tokenizer of the captions.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.vocabulary.target()
    }

    /// Channels, height and width of the images that the model is made for.
    pub fn shape(&self) -> ImageShape {
        ImageShape::new(self.config.vit.channels, self.config.vit.image_size)
    }

    /// The best caption of every image, brought to the size and the channels of the model, by a search with so many beams; 1 is
    /// greedy. Neither batch mates nor their order change a caption.
    ///
    /// # Errors
    /// If `beams` is out of its range, or the device fails.
    pub fn caption(&self, images: &[Image], beams: usize) -> Result<Vec<Caption>, TaskError> {
        let end = self.vocabulary.ends().target;
        let options = BeamOptions::new(self.model.max_len()).with_beams(beams).with_stop_tokens([end]);
        options.validate()?;
        let mut found = Vec::with_capacity(images.len());
        for batch in images.chunks(Self::BATCH) {
            let model = WithVocabulary::new(&self.model, self.tokenizer().vocab_size());
            let best = beam_search(&model, self.read(batch), &options)?.into_iter();
            found.extend(best.map(|mut hypotheses| self.to_caption(hypotheses.remove(0))));
        }
        Ok(found)
    }

    /// Where each word of a caption looked when it was written.
    ///
    /// It is the mean over the heads of the cross-attention in the last layer but one, which is no proof of what a model relies on;
    /// a word of several tokens has their mean.
    ///
    /// # Errors
    /// If the device fails.
    pub fn words(&self, image: &Image, caption: &Caption) -> Result<Vec<CaptionWord>, TaskError> {
        if caption.ids.is_empty() {
            return Ok(Vec::new());
        }
        let read = self.model.read(self.read(std::slice::from_ref(image)), &mut Pass::default());
        let weights = cross_attention(&self.model, read, &caption.ids).try_into_vec_as::<f64>();
        let weights = weights.map_err(TaskError::device("the attention of a caption"))?;
        let (tokens, first) = (self.config.image_tokens(), self.config.vit.pooling.tokens());
        let rows: Vec<&[f64]> = weights.chunks(tokens).map(|row| &row[first..]).collect();
        let word = |range: std::ops::Range<usize>| CaptionWord {
            text: self.tokenizer().decode(&caption.ids[range.clone()]).trim().to_string(),
            shares: mean(&rows[range]),
        };
        Ok(self.ranges(&caption.ids).into_iter().map(word).collect())
    }

    /// The image and, behind it in rows of six, the image as each of the words saw it: bright and reddish where it looked most.
    pub fn picture(&self, image: &Image, words: &[CaptionWord]) -> Image {
        let image = image.clone().with_channels(3).scaled_to(SIDE);
        let grid = self.config.vit.grid();
        let seen = words.iter().map(|word| image.highlighted(grid, &word.shares));
        Image::tiled(&std::iter::once(image.clone()).chain(seen).collect::<Vec<_>>(), Self::COLUMNS)
    }

    /// Images as the model reads them, `[B, C, H, W]`.
    pub fn read(&self, images: &[Image]) -> Tensor<4> {
        let (resizing, normalization) = (Resizing::default(), self.config.normalization.clone());
        let processor = ImageProcessor { resizing, normalization, model: self.shape() };
        processor.tensor(images, &self.model.embedding.weight.device())
    }

    fn to_caption(&self, found: Hypothesis) -> Caption {
        Caption { text: self.tokenizer().decode(&found.ids), ids: found.ids, score: found.score }
    }

    /// The tokens of each word.
    fn ranges(&self, ids: &[u32]) -> Vec<std::ops::Range<usize>> {
        let begins = |&place: &usize| place == 0 || !self.tokenizer().continues_word(ids[place]);
        let starts: Vec<usize> = (0..ids.len()).filter(begins).collect();
        let ends = starts.iter().skip(1).copied().chain([ids.len()]);
        starts.iter().zip(ends).map(|(&start, end)| start..end).collect()
    }
}

/// The mean of rows, column by column.
fn mean(rows: &[&[f64]]) -> Vec<f64> {
    let columns = rows.first().map_or(0, |row| row.len());
    (0..columns).map(|column| rows.iter().map(|row| row[column]).sum::<f64>() / rows.len() as f64).collect()
}
