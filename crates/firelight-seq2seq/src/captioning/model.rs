//! The model: a vision transformer reads the patches of an image, and a decoder with cross-attention writes what they show.
//!
//! Source: the encoder of Dosovitskiy et al. 2021, §3.1 (<https://arxiv.org/abs/2010.11929>), whose patches, after the final norm,
//! are what the decoder of Vaswani et al. 2017, §3.1 (<https://arxiv.org/abs/1706.03762>), reads; together as in Li et al. 2022,
//! BLIP, §3.1, the image-grounded text decoder (<https://arxiv.org/abs/2201.12086>).

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use firelight_core::{
    AdapterConfig, Cache, ConfigError, Cost, EncoderOutput, LazyLogits, LmHead, LmHeadConfig, ParamBuilder,
    ParameterReport, Pass, SequenceInput, TokenEmbedding, TokenEmbeddingConfig, Transformer, TransformerConfig,
    VisionTransformer, VisionTransformerConfig,
};
use firelight_data::Normalization;
use firelight_generation::{Autoregressive, GenerationError};
use serde::{Deserialize, Serialize};

use crate::inference::{Seq2SeqState, TargetDecoder, extend, step};

/// The stacks in the paths of a model's parameters.
pub(super) const STACKS: [&str; 2] = ["vit", "decoder"];

/// Configuration of a [`CaptionModel`], as it stands in `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptionConfig {
    /// Number of tokens `V` of the captions.
    pub vocab_size: usize,
    /// The token that every caption begins with.
    pub start_token: u32,
    /// How pixels become numbers.
    pub normalization: Normalization,
    /// Low-rank adapters of layers of the stacks. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterConfig>,
    /// What reads the image; it has no head.
    pub vit: VisionTransformerConfig,
    /// What writes the caption; it has cross-attention, and the embedding is its head.
    pub decoder: TransformerConfig,
}

impl Config for CaptionConfig {}

impl CaptionConfig {
    /// A model of two stacks as wide as each other. Pixels are taken as from -1 to 1 until the statistics of a training are known.
    ///
    /// ```
    /// use burn::tensor::{Device, Int, Tensor};
    /// use firelight_core::{TransformerConfig, VisionTransformerConfig};
    /// use firelight_seq2seq::CaptionConfig;
    ///
    /// let device = Device::flex();
    /// let vit = VisionTransformerConfig::new(16, 8, 0, TransformerConfig::encoder(32, 4, 2));
    /// let model = CaptionConfig::new(100, vit, TransformerConfig::decoder(32, 4, 2)).init(&device);
    /// let (images, caption) = (Tensor::zeros([2, 3, 16, 16], &device), Tensor::<2, Int>::ones([2, 5], &device));
    /// assert_eq!(model.forward(images, caption).dims(), [2, 5, 100]); // [B, T, V]
    /// ```
    pub fn new(vocab_size: usize, vit: VisionTransformerConfig, decoder: TransformerConfig) -> Self {
        let halves = vec![0.5; vit.channels];
        let normalization = Normalization { mean: halves.clone(), std: halves };
        Self { vocab_size, start_token: 0, normalization, adapters: None, vit, decoder }
    }

    /// Sets the adapters of layers of the stacks.
    #[must_use]
    pub fn with_adapters(mut self, adapters: Option<AdapterConfig>) -> Self {
        self.adapters = adapters;
        self
    }

    /// Makes the same change in both stacks.
    #[must_use]
    pub fn with_both(mut self, change: impl Fn(TransformerConfig) -> TransformerConfig) -> Self {
        self.vit.transformer = change(self.vit.transformer);
        self.decoder = change(self.decoder);
        self
    }

    /// Tokens of an image: its patches, and the class token where there is one.
    pub fn image_tokens(&self) -> usize {
        self.vit.grid().iter().product::<usize>() + self.vit.pooling.tokens()
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (start, size, classes) = (self.start_token, self.vocab_size, self.vit.n_classes);
        let [image, text] = [self.vit.transformer.d_model, self.decoder.d_model];
        let channels = self.vit.channels;
        let own = [
            (start as usize >= size.max(1)).then(|| format!("start_token = {start} must be below vocab_size = {size}")),
            (classes > 0).then(|| format!("vit.n_classes = {classes} must be 0: the decoder reads the image, no head")),
            (image != text).then(|| {
                format!("decoder.d_model = {text} must equal vit.transformer.d_model = {image}, which it reads")
            }),
            (!self.decoder.has_cross_attention())
                .then(|| "decoder.cross_attention = false leaves the image unseen: set it to true".into()),
            self.decoder.patterns().iter().any(|pattern| !pattern.is_causal()).then(|| {
                "patterns of the decoder must be causal: a decoder that sees its next token learns nothing".into()
            }),
            (!self.normalization.fits(channels)).then(|| {
                format!("normalization must have a mean and a std above 0 for each of the {channels} channels")
            }),
        ];
        let embedding = TokenEmbeddingConfig::new(size, self.decoder.d_embedding()).validate();
        let adapters = self.adapters.as_ref().map_or(Ok(()), AdapterConfig::validate);
        ConfigError::collect([self.vit.validate(), self.decoder.validate(), embedding, adapters], own)
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init(&self, device: &Device) -> CaptionModel {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> CaptionModel {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let (init, width) = (self.decoder.init.weight, self.decoder.d_embedding());
        let head = LmHeadConfig::new(self.decoder.d_model, self.vocab_size).with_tied(true).with_d_embedding(width);
        let adapted = params.adapted(self.adapters.as_ref());
        let [vit, decoder] = STACKS.map(|name| adapted.scope(name));
        CaptionModel {
            vit: self.vit.init_with(&vit),
            embedding: TokenEmbeddingConfig::new(self.vocab_size, width)
                .with_init(init)
                .init_with(&params.scope("embedding")),
            decoder: self.decoder.init_with(&decoder),
            head: head.with_init(init).init_with(&params.scope("head")),
            max_len: self.decoder.max_seq_len,
            start_token: self.start_token as usize,
        }
    }
}

/// A model that describes images.
#[derive(Module, Debug)]
pub struct CaptionModel {
    /// Patches become vectors.
    pub vit: VisionTransformer,
    /// Tokens become vectors, and the head is tied to it.
    pub embedding: TokenEmbedding,
    /// Writes, reading the patches.
    pub decoder: Transformer,
    /// Vectors become logits.
    pub head: LmHead,
    max_len: usize,
    start_token: usize,
}

impl CaptionModel {
    /// Logits of every next token of a caption, in plain passes, as in training.
    ///
    /// # Shapes
    /// - `images`: `[B, C, H, W]`, normalised, `captions`: `[B, T]`, the start token in front; output: `[B, T, V]`
    ///
    /// # Panics
    /// If the images do not fit the patches, or a caption is longer than the decoder's position scheme allows.
    pub fn forward(&self, images: Tensor<4>, captions: Tensor<2, Int>) -> Tensor<3> {
        let read = self.read(images, &mut Pass::default());
        self.logits(self.decode(captions, read, &SequenceInput::default(), &mut Pass::default()))
    }

    /// What the decoder reads of images.
    ///
    /// # Shapes
    /// - `images`: `[B, C, H, W]`; `hidden` of the output: `[B, S, D]`, the tokens before the patches first
    pub fn read(&self, images: Tensor<4>, pass: &mut Pass) -> EncoderOutput {
        EncoderOutput::new(self.vit.hidden(images, pass))
    }

    /// The logits of vectors for a loss that never holds all of them.
    ///
    /// # Shapes
    /// - `hidden`: `[B, T, D]`
    pub fn lazy_logits(&self, hidden: Tensor<3>) -> LazyLogits {
        self.head.lazy(hidden, &self.embedding)
    }

    /// The longest caption, in tokens, its first one included.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// An empty cache for one caption.
    pub fn cache(&self) -> Cache {
        self.decoder.cache(self.max_len)
    }

    /// What a token of an image and one of a caption of this length cost together.
    pub fn cost(&self, length: usize) -> Cost {
        Cost::sum([
            self.vit.cost().named("vit"),
            self.embedding.cost().named("embedding"),
            self.decoder.cost(length).named("decoder"),
            self.head.cost(&self.embedding).named("head"),
        ])
    }

    /// The parameters by part.
    pub fn report(&self) -> ParameterReport {
        ParameterReport::of(self)
    }
}

impl TargetDecoder for CaptionModel {
    fn embedding(&self) -> &TokenEmbedding {
        &self.embedding
    }

    fn decoder(&self) -> &Transformer {
        &self.decoder
    }

    fn head(&self) -> &LmHead {
        &self.head
    }

    fn start_token(&self) -> u32 {
        self.start_token as u32
    }

    fn max_len(&self) -> usize {
        self.max_len
    }
}

/// Decodes with a cache. A prompt is images, `[B, C, H, W]`.
impl Autoregressive for CaptionModel {
    type Prompt = Tensor<4>;
    type State = Seq2SeqState;

    fn device(&self) -> Device {
        self.embedding.weight.device()
    }

    fn history(&self, images: &Tensor<4>) -> Vec<Vec<u32>> {
        vec![vec![self.start_token as u32]; images.dims()[0]]
    }

    fn prefill(&self, images: Tensor<4>) -> Result<(Tensor<2>, Seq2SeqState), GenerationError> {
        Ok(Seq2SeqState::begin(self, self.read(images, &mut Pass::default()), Some(self.cache())))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Seq2SeqState) -> Tensor<2> {
        step(self, token, state)
    }

    fn extend(&self, tokens: Tensor<2, Int>, state: &mut Seq2SeqState) -> Tensor<3> {
        extend(self, tokens, state)
    }

    fn room(&self, state: &Seq2SeqState) -> usize {
        state.room(self)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use burn::tensor::Distribution;
    use firelight_core::{Init, WeightInit};
    use firelight_kernels::{Difference, assert_close};

    pub(in crate::captioning) fn config() -> CaptionConfig {
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let vit = VisionTransformerConfig::new(8, 4, 0, TransformerConfig::encoder(16, 2, 2)).with_channels(1);
        let config = CaptionConfig::new(11, vit, TransformerConfig::decoder(16, 2, 2).with_max_seq_len(8));
        config.with_both(|stack| stack.with_init(wide))
    }

    fn images(count: usize) -> Tensor<4> {
        Tensor::random([count, 1, 8, 8], Distribution::Normal(0.0, 1.0), &Device::default())
    }

    #[test]
    fn steps_with_a_cache_give_the_logits_of_the_whole_caption() {
        let model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
        let (images, caption) = (images(2), [[0, 3, 5, 7], [0, 2, 2, 9]]);
        let whole = model.forward(images.clone(), Tensor::from_ints(caption, &Device::default()));
        let (first, mut state) = model.prefill(images).unwrap();
        let steps = [1, 2, 3].map(|step| [caption[0][step], caption[1][step]]);
        let steps = steps.map(|tokens| model.step(Tensor::from_ints(tokens, &Device::default()), &mut state));
        let found = std::iter::once(first).chain(steps).collect();
        assert_close(&Tensor::stack::<3>(found, 1), &whole, 1e-4);
    }

    #[test]
    fn a_caption_depends_on_its_image_and_on_no_other() {
        let model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
        let captions = |rows| Tensor::<2, Int>::ones([rows, 3], &Device::default());
        let images = images(2);
        let both = model.forward(images.clone(), captions(2));
        let alone = model.forward(images.narrow(0, 0, 1), captions(1));
        assert_close(&both.clone().narrow(0, 0, 1), &alone, 1e-5);
        let apart = Difference::between(&both.clone().narrow(0, 0, 1), &both.narrow(0, 1, 1)).absolute;
        assert!(apart.is_finite() && apart > 1e-2, "{apart:e}");
    }

    #[test]
    fn the_parts_of_the_costs_are_all_parameters() {
        let model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
        assert_eq!(model.cost(8).parameters, model.num_params());
    }

    #[test]
    fn all_problems_are_listed() {
        let mut config = config();
        (config.start_token, config.vit.n_classes) = (11, 3);
        config.decoder = config.decoder.with_cross_attention(false);
        config.normalization.std[0] = 0.0;
        let error = config.validate().expect_err("four problems");
        assert_eq!(error.problems().len(), 4, "{error}");
        assert!(error.to_string().contains("start_token = 11 must be below vocab_size = 11"), "{error}");
    }
}
