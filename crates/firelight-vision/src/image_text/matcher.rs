//! A model of images and texts, loaded from a run folder: vectors that can be compared, and classes that are named by texts.

use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use firelight_core::{ConfigError, Pass};
use firelight_data::{DataError, Frame, Image, ImageProcessor, Tokenizer};
use firelight_kernels::awake;
use firelight_storage::{Checkpoint, InputError, ModelFolder, TaskError, load_weights};

use super::{ImageTextConfig, ImageTextModel};
use crate::IMAGE_TEXT_TASK;
use crate::embedder::rows;
use crate::inference::{BATCH, Classification, likeliest, softmax};
use crate::model::processor;

/// A model of images and texts with its tokenizer.
///
/// ```no_run
/// use firelight_data::Image;
/// use firelight_vision::ImageTextMatcher;
///
/// let matcher = ImageTextMatcher::load("runs/clip")?;
/// let image = Image::open("photo.jpg")?;
/// let found = matcher.classify(&[image], &["a photo of a cat", "a photo of a dog"])?;
/// println!("{}", found[0].label);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ImageTextMatcher {
    model: ImageTextModel,
    config: ImageTextConfig,
    tokenizer: Tokenizer,
    frame: Frame,
    /// The token behind a text.
    end: u32,
}

impl ImageTextMatcher {
    /// Loads the last weights of a run onto Burn's default device.
    ///
    /// # Errors
    /// As [`load_from`](Self::load_from).
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, TaskError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// If the folder is no model of images and texts, there is no such checkpoint, one of its files is missing or damaged, or its tokenizer
    /// does not put the model's end token behind a text.
    pub fn load_from(folder: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let folder = ModelFolder::open(folder)?;
        let config: ImageTextConfig = folder.read_config(IMAGE_TEXT_TASK)?;
        TaskError::in_config(&folder.config(), &ConfigError::list(config.validate()))?;
        let tokenizer = Tokenizer::load(folder.tokenizer())?;
        tokenizer.fits(config.vocab_size, &folder.config())?;
        let (frame, end) = framed(&tokenizer, &config).map_err(|problem| {
            InputError::in_file(&folder.tokenizer(), problem)
                .advise("use the tokenizer.json that was published with the model")
        })?;
        let mut model = config.init(device);
        load_weights(&mut model, &folder.weights(checkpoint)?)?;
        Ok(Self { model, config, tokenizer, frame, end })
    }

    /// The model.
    pub fn model(&self) -> &ImageTextModel {
        &self.model
    }

    /// Its configuration.
    pub fn config(&self) -> &ImageTextConfig {
        &self.config
    }

    /// The tokenizer of texts.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What stands between image files and the tower of images.
    pub fn processor(&self) -> ImageProcessor {
        processor(&self.config.vit, self.config.resizing, &self.config.normalization)
    }

    /// A vector of length 1 for every image, as many and in the same order.
    ///
    /// # Errors
    /// If the device fails.
    pub fn embed_images(&self, images: &[Image]) -> Result<Vec<Vec<f32>>, TaskError> {
        let device = self.model.device();
        let processor = self.processor();
        let vectors = images.chunks(BATCH).map(|images| {
            let pixels = processor.tensor(images, &device);
            rows(awake(&device, || self.model.of_images(self.model.vit.hidden(pixels, &mut Pass::default()))))
        });
        Ok(vectors.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// A vector of length 1 for every text, as many and in the same order. A text that is too long is cut.
    ///
    /// # Errors
    /// If a text has something that the tokenizer does not know, with its line, or the device fails.
    pub fn embed_texts<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Vec<f32>>, TaskError> {
        self.embed_texts_after(0, texts)
    }

    /// As [`embed_texts`](Self::embed_texts), of texts before which so many others stand in their file: errors name the line.
    ///
    /// # Errors
    /// As [`embed_texts`](Self::embed_texts).
    pub fn embed_texts_after<S: AsRef<str>>(&self, before: usize, texts: &[S]) -> Result<Vec<Vec<f32>>, TaskError> {
        let encode = |(line, text): (usize, &S)| self.encode(text.as_ref()).map_err(TaskError::in_line(line));
        let encoded: Vec<Vec<u32>> = (before + 1..).zip(texts).map(encode).collect::<Result<_, _>>()?;
        let device = self.model.device();
        let vectors = encoded.chunks(BATCH).map(|texts| {
            let tokens = self.padded(texts, &device);
            rows(awake(&device, || {
                let hidden = self.model.text.hidden(tokens.clone(), None, &mut Pass::default());
                self.model.of_texts(tokens, hidden)
            }))
        });
        Ok(vectors.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Which of several texts, such as `a photo of a cat`, says best what each image shows.
    ///
    /// # Errors
    /// As [`embed_texts`](Self::embed_texts).
    ///
    /// # Panics
    /// If there is no label.
    pub fn classify<S: AsRef<str>>(&self, images: &[Image], labels: &[S]) -> Result<Vec<Classification>, TaskError> {
        assert!(!labels.is_empty(), "an image is one of several labels, and there is none");
        let scale = self.model.log_scale.val().exp().try_into_vec_as::<f64>();
        let scale = scale.map_err(TaskError::device("the scale of the model"))?[0];
        TaskError::require_finite(scale.is_finite())?;
        let (images, texts) = (self.embed_images(images)?, self.embed_texts(labels)?);
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let classified = images.iter().map(|image| {
            let logits: Vec<f64> = texts.iter().map(|text| scale * product(image, text)).collect();
            let probabilities = softmax(&logits);
            Classification { label: labels[likeliest(&probabilities)].as_ref().to_string(), probabilities }
        });
        Ok(classified.collect())
    }

    /// The ids of a text with the tokens around it, cut to what the model reads.
    ///
    /// # Errors
    /// If the text has something that the tokenizer does not know.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let mut ids = self.tokenizer.encode(text)?;
        ids.truncate(self.model.text.max_seq_len() - self.frame.size(false));
        Ok(self.frame.put(&ids, None).0)
    }

    /// `[B, T]`; shorter texts end several times.
    fn padded(&self, texts: &[Vec<u32>], device: &Device) -> Tensor<2, Int> {
        let longest = texts.iter().map(Vec::len).max().unwrap_or_default();
        let row =
            |text: &Vec<u32>| text.iter().copied().chain(std::iter::repeat(self.end)).take(longest).collect::<Vec<_>>();
        let ids: Vec<i64> = texts.iter().flat_map(row).map(i64::from).collect();
        Tensor::from_data(TensorData::new(ids, [texts.len(), longest]), device)
    }
}

/// What the tokenizer puts around a text, and its end; or what is wrong with that.
fn framed(tokenizer: &Tokenizer, config: &ImageTextConfig) -> Result<(Frame, u32), String> {
    let frame = tokenizer.frame().and_then(|frame| frame.end().map(|end| (frame, end)));
    let (frame, end) = frame.ok_or("puts no end behind a text, whose vector is that of its end")?;
    let (around, most) = (frame.size(false), config.text.max_seq_len);
    match config.end_token {
        Some(read) if read != end => {
            Err(format!("ends a text with the token {end}, but the model reads that of {read}"))
        }
        _ if around >= most => Err(format!("puts {around} tokens around a text, and the model reads {most} in all")),
        _ => Ok((frame, end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::{ParamBuilder, TransformerConfig, VisionTransformerConfig};
    use firelight_data::{ImageShape, ResizeTo, TokenizerConfig};
    use firelight_kernels::assert_close;
    use firelight_storage::{Existing, save_weights};

    /// A run folder with random weights and a tokenizer of characters.
    fn folder(home: &Path, framed: bool) -> ModelFolder {
        let folder = ModelFolder::create(home.join("run"), Existing::Refuse).unwrap();
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        let tokenizer = tokenizer.with_special_tokens(&["<s>", "</s>"]).unwrap();
        let [begin, end] = ["<s>", "</s>"].map(|token| tokenizer.special(token).unwrap());
        let vocab_size = tokenizer.vocab_size();
        let tokenizer = if framed { tokenizer.with_frame(begin, end).unwrap().0 } else { tokenizer };
        tokenizer.save(folder.tokenizer()).unwrap();
        let vit = VisionTransformerConfig::new(8, 4, 0, TransformerConfig::encoder(16, 2, 1));
        let text = TransformerConfig::new(8, 2, 1).with_max_seq_len(6);
        let config = ImageTextConfig::new(vocab_size, vit, text).with_end_token(Some(end));
        folder.write_config(IMAGE_TEXT_TASK, &config).unwrap();
        let model = config.init_with(&ParamBuilder::new(&Device::default(), 5));
        save_weights(&model, folder.weights_path(&Checkpoint::Last)).unwrap();
        folder
    }

    fn image(seed: usize, size: [usize; 2]) -> Image {
        let shape = ImageShape::new(3, size);
        Image::new(shape, (0..shape.volume()).map(|p| (p * (seed + 7) % 256) as u8).collect())
    }

    #[test]
    fn company_changes_no_vector_and_each_has_length_one() {
        let home = tempfile::tempdir().unwrap();
        let matcher = ImageTextMatcher::load(folder(home.path(), true).path()).unwrap();
        let texts = ["abc", "h", "", "abcdefgh"]; // the last one is cut
        let together = matcher.embed_texts(&texts).unwrap();
        assert_eq!(together.len(), 4);
        for (text, vector) in texts.iter().zip(&together) {
            assert_close(&matcher.embed_texts(&[text]).unwrap()[0], vector, 1e-5);
            assert_close(&[vector.iter().map(|number| number * number).sum::<f32>()], &[1.0], 1e-5);
        }
        assert_close(&together[3], &matcher.embed_texts(&["abcd"]).unwrap()[0], 1e-6);
        let images = [image(1, [8, 8]), image(2, [8, 8])];
        let vectors = matcher.embed_images(&images).unwrap();
        assert_close(&matcher.embed_images(&images[1..]).unwrap()[0], &vectors[1], 1e-5);
        assert!(vectors[0].iter().zip(&vectors[1]).any(|(a, b)| (a - b).abs() > 1e-4));
        let error = matcher.embed_texts_after(3, &["a", "z"]).unwrap_err().to_string();
        assert!(error.starts_with("line 5: the character 'z'"), "{error}");
    }

    #[test]
    fn a_wide_image_is_seen_at_its_middle() {
        let home = tempfile::tempdir().unwrap();
        let mut matcher = ImageTextMatcher::load(folder(home.path(), true).path()).unwrap();
        matcher.config.resizing.size = Some(ResizeTo::ShortestEdge(8));
        let wide = image(3, [8, 20]);
        let found = matcher.embed_images(&[wide.clone(), wide.center_crop([8, 8])]).unwrap();
        assert_close(&found[0], &found[1], 1e-6);
    }

    #[test]
    fn the_label_is_the_text_that_is_closest() {
        let home = tempfile::tempdir().unwrap();
        let matcher = ImageTextMatcher::load(folder(home.path(), true).path()).unwrap();
        let (images, labels) = ([image(1, [8, 8]), image(2, [9, 8])], ["abc", "h", "gg"]);
        let found = matcher.classify(&images, &labels).unwrap();
        let (vectors, texts) = (matcher.embed_images(&images).unwrap(), matcher.embed_texts(&labels).unwrap());
        assert_eq!([found.len(), vectors.len(), texts.len()], [2, 2, 3]);
        for (vector, found) in vectors.iter().zip(&found) {
            let cosines: Vec<f64> =
                texts.iter().map(|text| vector.iter().zip(text).map(|(a, b)| f64::from(a * b)).sum()).collect();
            assert_eq!(found.label, labels[likeliest(&cosines)]);
            // exp(log_scale) = 1 / 0.07.
            let expected = softmax(&cosines.iter().map(|cosine| cosine / 0.07).collect::<Vec<_>>());
            assert_close(&found.probabilities, &expected, 1e-5);
        }
    }

    #[test]
    fn a_tokenizer_without_an_end_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let error = ImageTextMatcher::load(folder(home.path(), false).path()).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("puts no end behind a text"), "{error}");
    }
}
