//! Images become tokens; the rest is the same Transformer.
//!
//! Source: Dosovitskiy et al. 2021, §3.1 (<https://arxiv.org/abs/2010.11929>): patches, a class token, learned positions,
//! a pre-norm encoder, a head on the class token after the final norm; §3.2: images of another size. Differs from the
//! paper: the mean of the patches may stand in for the class token (Beyer et al. 2022,
//! <https://arxiv.org/abs/2205.01580>), with fixed two-dimensional positions. The mean is taken after the final norm, as in
//! their code; timm takes the norm of the mean.

mod config;
mod patches;
mod position;

pub use config::{ImagePooling, PatchCoordinates, PatchPosition, VisionTransformerConfig};
pub use patches::PatchEmbedding;
pub use position::resize_positions;

use crate::cost::Cost;
use crate::linear::Linear;
use crate::pass::Pass;
use crate::transformer::{SequenceInput, Transformer};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};

/// An image classifier.
///
/// Made for images of one size, it reads any other that is a whole number of patches: sinusoidal places and rotations are computed
/// for the new grid, learned places interpolated. [`resized`](Self::resized) makes the interpolation lasting, to train on at the
/// new size.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{TransformerConfig, VisionTransformerConfig};
///
/// let device = Device::flex();
/// let model = VisionTransformerConfig::new(32, 8, 10, TransformerConfig::encoder(64, 4, 2)).init(&device);
/// let logits = model.forward(Tensor::zeros([2, 3, 32, 32], &device)); // [B, C, H, W]
/// assert_eq!(logits.dims(), [2, 10]);
/// let logits = model.forward(Tensor::zeros([2, 3, 48, 64], &device));
/// assert_eq!(logits.dims(), [2, 10]);
/// ```
#[derive(Module, Debug)]
pub struct VisionTransformer {
    /// Pixels become vectors.
    pub patches: PatchEmbedding,
    /// `[1, 1, D]`, begins at 0. Weight decay applies to it, as to every parameter of two or more dimensions; DeiT exempts it.
    pub class_token: Option<Param<Tensor<3>>>,
    /// The second token and its head.
    pub distillation: Option<Distillation>,
    /// `[N + R S, D]`, the places of the `N` tokens before the patches first. Weight decay applies to it, too.
    pub position: Option<Param<Tensor<2>>>,
    /// The encoder, with its final norm.
    pub transformer: Transformer,
    /// `[D, classes]`, where there are classes.
    pub head: Option<Linear>,
    /// Rows and columns of the learned places.
    #[module(skip)]
    grid: [usize; 2],
    #[module(skip)]
    patch_position: PatchPosition,
    /// Whether the mean of the patches stands beside the class token.
    mean_beside: bool,
    /// How rows and columns are counted, where layers turn by them.
    #[module(skip)]
    coordinates: Option<PatchCoordinates>,
}

/// What learns from a teacher: a token behind the class token, and the head on it.
#[derive(Module, Debug)]
pub struct Distillation {
    /// `[1, 1, D]`, begins at 0. Weight decay applies to it, as to the class token.
    pub token: Param<Tensor<3>>,
    /// `[D, classes]`, where it learns from a teacher.
    pub head: Option<Linear>,
}

impl VisionTransformer {
    /// What a token costs, a patch or one before them; the heads, computed once for an image, count by its share of them.
    pub fn cost(&self) -> Cost {
        let before = usize::from(self.class_token.is_some()) + usize::from(self.distillation.is_some());
        let tokens = self.grid[0] * self.grid[1] + before;
        let patches = Cost::of(&self.patches).with_activations(self.patches.projection.widths()[0]).named("patches");
        let table = |name: &str, cost: Cost| cost.without_flops().named(name);
        let class_token = self.class_token.as_ref().map(|token| table("class_token", Cost::of(token)));
        let position = self.position.as_ref().map(|position| table("position", Cost::of(position)));
        let once = |name: &str, cost: Cost| cost.amortised_over(tokens).named(name);
        let distillation = self.distillation.as_ref().map(|part| once("distillation", Cost::of(part)));
        let stack = self.transformer.cost(tokens).named("transformer");
        let head = self.head.as_ref().map(|head| once("head", Cost::of(head)));
        let parts = [Some(patches), class_token, position, distillation, Some(stack), head];
        Cost::sum(parts.into_iter().flatten())
    }

    /// The logits of every class.
    ///
    /// # Shapes
    /// - `images`: `[B, C, H, W]`; output: `[B, classes]`
    ///
    /// # Panics
    /// If the channels differ, the images are no whole number of patches, or the model has no head.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.logits(self.hidden(images, &mut Pass::default()))
    }

    /// The vectors of all tokens after the final norm, those of the `N` tokens before the patches first. The pass brings back what it was asked for:
    /// the attention of every layer, the losses of experts.
    ///
    /// # Shapes
    /// - `images`: `[B, C, R P, S P]`; output: `[B, N + R S, D]`
    ///
    /// # Panics
    /// If the channels differ or the images are no whole number of patches.
    pub fn hidden(&self, images: Tensor<4>, pass: &mut Pass) -> Tensor<3> {
        let [_, _, height, width] = images.dims();
        let grid = self.grid_of([height, width]);
        let x = self.with_tokens(self.patches.forward(images)); // [B, N + R S, D]
        let input = self.input(grid, &x.device());
        let x = match self.places(grid, x.dims()[2], &x.device()) {
            Some(places) => x + places.unsqueeze(),
            None => x,
        };
        self.transformer.forward(x, &input, pass)
    }

    /// The head on the class token, on the mean of the patches, or on both; with a distillation token the mean of both heads' logits.
    ///
    /// # Shapes
    /// - `hidden`: `[B, N + R S, D]`; output: `[B, classes]`
    ///
    /// # Panics
    /// If the model has no head.
    pub fn logits(&self, hidden: Tensor<3>) -> Tensor<2> {
        let own = self.class_logits(hidden.clone());
        match self.distillation_logits(hidden) {
            Some(taught) => (own + taught) * 0.5,
            None => own,
        }
    }

    /// The head on the class token, or on the mean of the patches, alone: `[B, N + R S, D] -> [B, classes]`.
    ///
    /// # Panics
    /// If the model has no head.
    pub fn class_logits(&self, hidden: Tensor<3>) -> Tensor<2> {
        let head = self.head.as_ref().expect("a vision transformer of 0 classes has no head: take what `pooled` gives");
        head.forward(self.pooled(hidden))
    }

    /// One vector for each image, what the head reads: that of the class token, the mean of the patches, or one beside the other.
    ///
    /// # Shapes
    /// - `hidden`: `[B, N + R S, D]`; output: `[B, D]`, or `[B, 2 D]`
    pub fn pooled(&self, hidden: Tensor<3>) -> Tensor<2> {
        let patches = hidden.dims()[1] - 1;
        let pooled = match &self.class_token {
            Some(_) if self.mean_beside => {
                Tensor::cat(vec![hidden.clone().narrow(1, 0, 1), hidden.narrow(1, 1, patches).mean_dim(1)], 2)
            }
            Some(_) => hidden.narrow(1, 0, 1),
            None => hidden.mean_dim(1),
        };
        pooled.squeeze_dim(1)
    }

    /// The head on the distillation token, where it has one: `[B, N + R S, D] -> [B, classes]`.
    pub fn distillation_logits(&self, hidden: Tensor<3>) -> Option<Tensor<2>> {
        let head = self.distillation.as_ref()?.head.as_ref()?;
        Some(head.forward(hidden.narrow(1, 1, 1).squeeze_dim::<2>(1)))
    }

    /// The same model for images of `[height, width]` pixels: its learned places are interpolated once and trained from
    /// there. Its configuration is the old one with [`with_image_size`](VisionTransformerConfig::with_image_size).
    ///
    /// # Panics
    /// If the size is no whole number of patches.
    pub fn resized(mut self, image_size: [usize; 2]) -> Self {
        let grid = self.grid_of(image_size);
        // A parameter of its own: what an optimiser remembers of the old table has another shape.
        self.position = self.position.map(|table| {
            let table = table.val().set_require_grad(false);
            Param::from_tensor(position::resize_positions(table, self.grid, grid))
        });
        Self { grid, ..self }
    }

    fn grid_of(&self, image_size: [usize; 2]) -> [usize; 2] {
        self.patches.grid(image_size).unwrap_or_else(|| panic!("{image_size:?} pixels are no whole number of patches"))
    }

    /// The tokens before the patches.
    fn tokens(&self) -> Vec<Tensor<3>> {
        let taught = self.distillation.as_ref().map(|distillation| &distillation.token);
        self.class_token.iter().chain(taught).map(Param::val).collect()
    }

    fn with_tokens(&self, patches: Tensor<3>) -> Tensor<3> {
        let [batch, _, d_model] = patches.dims();
        let tokens = self.tokens();
        if tokens.is_empty() {
            return patches;
        }
        let tokens = tokens.into_iter().map(|token| token.expand([batch, 1, d_model]));
        Tensor::cat(tokens.chain([patches]).collect(), 1)
    }

    /// What is added to the tokens of a grid, `[N + R S, D]`, if anything is.
    fn places(&self, grid: [usize; 2], d_model: usize, device: &Device) -> Option<Tensor<2>> {
        match &self.position {
            Some(table) if grid == self.grid => Some(table.val()),
            Some(table) => Some(position::resize_positions(table.val(), self.grid, grid)),
            None if self.patch_position == PatchPosition::None => None,
            None => Some(position::sinusoidal(grid, self.tokens().len(), d_model, device)),
        }
    }

    /// Rows and columns, where layers turn by them.
    fn input(&self, grid: [usize; 2], device: &Device) -> SequenceInput {
        match self.coordinates {
            Some(kind) => {
                let places = position::coordinates(kind, grid, self.tokens().len(), device);
                SequenceInput::default().with_coordinates(places)
            }
            None => SequenceInput::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamBuilder;
    use crate::feed_forward::Activation;
    use crate::pass::Trace;
    use crate::position::{PositionConfig, RotaryAxes, RotaryConfig};
    use crate::transformer::TransformerConfig;
    use burn::tensor::Distribution;
    use firelight_kernels::{Difference, assert_close};

    fn config(pooling: ImagePooling, position: PatchPosition) -> VisionTransformerConfig {
        let stack = TransformerConfig::encoder(16, 2, 1);
        VisionTransformerConfig::new(8, 4, 3, stack).with_pooling(pooling).with_patch_position(position)
    }

    fn images(height: usize, width: usize) -> Tensor<4> {
        Tensor::random([2, 3, height, width], Distribution::Default, &Device::default())
    }

    #[test]
    fn published_models_are_counted_exactly() {
        let device = Device::default();
        let small = TransformerConfig::encoder(128, 8, 4).with_d_ff(512).with_activation(Activation::Gelu);
        assert_eq!(VisionTransformerConfig::new(32, 8, 10, small).init(&device).num_params(), 821_642);
        let base = TransformerConfig::encoder(768, 12, 12).with_activation(Activation::Gelu);
        assert_eq!(VisionTransformerConfig::new(224, 16, 1000, base).init(&device).num_params(), 86_567_656);
    }

    #[test]
    fn without_a_head_it_gives_the_vectors_that_a_head_reads() {
        let device = Device::default();
        for pooling in [ImagePooling::ClassToken, ImagePooling::Mean, ImagePooling::ClassAndMean] {
            let config = config(pooling, PatchPosition::Learned);
            let (whole, images) = (config.init_with(&ParamBuilder::new(&device, 0)), images(8, 8));
            let model = config.with_n_classes(0).init_with(&ParamBuilder::new(&device, 0));
            assert_eq!(model.num_params() + 16 * pooling.parts() * 3 + 3, whole.num_params());
            assert_eq!(model.cost().parameters, model.num_params());
            let vectors = model.pooled(model.hidden(images.clone(), &mut Pass::default()));
            let logits = whole.head.as_ref().expect("a head").forward(vectors);
            assert_close(&logits, &whole.forward(images), 1e-6);
        }
    }

    #[test]
    fn the_mean_of_the_patches_stands_beside_the_class_token() {
        let model = config(ImagePooling::ClassAndMean, PatchPosition::Learned);
        let model = model.init_with(&ParamBuilder::new(&Device::default(), 0));
        let hidden = Tensor::from_floats([[[9.0, 8.0], [1.0, 2.0], [3.0, 6.0]]], &Device::default());
        assert_close(&model.pooled(hidden), &[9.0, 8.0, 2.0, 4.0], 1e-6);
    }

    #[test]
    #[should_panic(expected = "has no head: take what `pooled` gives")]
    fn without_a_head_there_are_no_logits() {
        config(ImagePooling::Mean, PatchPosition::Learned)
            .with_n_classes(0)
            .init_with(&ParamBuilder::new(&Device::default(), 0))
            .forward(images(8, 8));
    }

    #[test]
    fn without_places_patches_may_change_theirs_and_with_them_not() {
        let device = Device::default();
        let images = images(8, 8);
        let flipped = Tensor::cat(vec![images.clone().narrow(2, 4, 4), images.clone().narrow(2, 0, 4)], 2);
        let moved = |model: &VisionTransformer| {
            let moved = Difference::between(&model.forward(images.clone()), &model.forward(flipped.clone())).absolute;
            assert!(moved.is_finite());
            moved
        };
        let mut model = config(ImagePooling::Mean, PatchPosition::Learned).init_with(&ParamBuilder::new(&device, 0));
        assert!(moved(&model) > 1e-6);
        model.position = Some(Param::from_tensor(Tensor::zeros([4, 16], &device)));
        assert!(moved(&model) < 1e-6);
        let fixed =
            config(ImagePooling::ClassToken, PatchPosition::Sinusoidal2d).init_with(&ParamBuilder::new(&device, 0));
        assert!(moved(&fixed) > 1e-6);
    }

    #[test]
    fn one_model_reads_images_of_any_whole_number_of_patches() {
        for pooling in
            [ImagePooling::ClassToken, ImagePooling::Mean, ImagePooling::Distilled, ImagePooling::ClassOfDistilled]
        {
            for position in [PatchPosition::Learned, PatchPosition::Sinusoidal2d] {
                let model = config(pooling, position).init_with(&ParamBuilder::new(&Device::default(), 0));
                for [height, width] in [[8, 8], [16, 4], [4, 4], [20, 12]] {
                    let mut trace = Trace::default();
                    let hidden = model.hidden(images(height, width), &mut Pass::default().with_trace(&mut trace));
                    let tokens = height * width / 16 + pooling.tokens();
                    assert_eq!(hidden.dims(), [2, tokens, 16]);
                    let weights = trace.layers[0].attention.as_ref().expect("weights");
                    assert_eq!(weights.dims(), [2, 2, tokens, tokens]);
                }
            }
        }
    }

    #[test]
    fn layers_that_turn_by_row_and_column_tell_patches_apart_at_any_size() {
        let rotary = RotaryConfig::default().with_theta(10.0).with_axes(RotaryAxes::axial());
        let stack = TransformerConfig::encoder(16, 2, 1).with_position(PositionConfig::Rotary(rotary));
        let wide = crate::WeightInit { weight: crate::Init::Normal { std: 0.5 }, scale_residual: false };
        for kind in [PatchCoordinates::Index, PatchCoordinates::Normalized] {
            let config = VisionTransformerConfig::new(8, 4, 3, stack.clone().with_init(wide));
            let config = config.with_patch_position(PatchPosition::None).with_patch_coordinates(kind);
            let config = config.with_pooling(ImagePooling::Mean);
            let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
            assert!(model.position.is_none());
            assert_eq!(model.forward(images(16, 4)).dims(), [2, 3]);
            let images = images(8, 8);
            let turned = images.clone().swap_dims(2, 3); // Rows become columns.
            let turned = turned.reshape([2, 3, 2, 4, 2, 4]).permute([0, 1, 2, 5, 4, 3]).reshape([2, 3, 8, 8]); // Not those of patches.
            let moved = Difference::between(&model.forward(images), &model.forward(turned)).absolute;
            assert!(moved.is_finite() && moved > 1e-4, "{kind:?}: {moved:e}");
        }
    }

    #[test]
    fn the_answer_of_a_distilled_model_is_the_mean_of_two_heads() {
        let model = config(ImagePooling::Distilled, PatchPosition::Learned)
            .init_with(&ParamBuilder::new(&Device::default(), 0));
        let hidden = model.hidden(images(8, 8), &mut Pass::default());
        let taught = model.distillation_logits(hidden.clone()).expect("a second head");
        let expected = ((model.class_logits(hidden.clone()) + taught.clone()) / 2.0).into_data();
        assert_close(&model.logits(hidden.clone()), &expected, 1e-6);
        let apart = Difference::between(&taught, &model.class_logits(hidden)).absolute;
        assert!(apart.is_finite() && apart > 1e-4, "the heads differ by {apart:e}");
        // The two tokens have places of their own, and begin alike.
        assert_eq!(model.position.as_ref().expect("a table").dims(), [6, 16]);
        assert!(
            config(ImagePooling::ClassToken, PatchPosition::Learned)
                .init_with(&ParamBuilder::new(&Device::default(), 0))
                .distillation
                .is_none()
        );
    }

    #[test]
    fn a_resized_model_says_what_the_old_one_says_of_the_new_size() {
        let model = config(ImagePooling::ClassToken, PatchPosition::Learned)
            .init_with(&ParamBuilder::new(&Device::default(), 0));
        let images = images(12, 16);
        let expected = model.forward(images.clone()).into_data();
        let resized = model.resized([12, 16]);
        assert_eq!(resized.position.as_ref().expect("a table").dims(), [13, 16]);
        assert_close(&resized.forward(images), &expected, 1e-6);
    }

    #[test]
    fn a_resized_table_is_trained_at_its_own_size() {
        let device = Device::default().autodiff();
        let images = Tensor::from_inner(images(12, 8));
        let model = config(ImagePooling::Mean, PatchPosition::Learned)
            .init_with(&ParamBuilder::new(&device, 0))
            .resized([12, 8]);
        let gradients = model.forward(images).square().sum().backward();
        let gradient = model.position.expect("a table").val().grad(&gradients).expect("a gradient");
        assert_eq!(gradient.dims(), [6, 16]);
    }

    #[test]
    #[should_panic(expected = "[12, 10] pixels are no whole number of patches")]
    fn a_size_that_cuts_a_patch_is_refused() {
        config(ImagePooling::Mean, PatchPosition::Learned)
            .init_with(&ParamBuilder::new(&Device::default(), 0))
            .resized([12, 10]);
    }
}
