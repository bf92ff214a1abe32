//! Vision transformers against PyTorch, on images of the size that they are made for and of others.

use burn::tensor::Tensor;
use firelight::nn::{
    Activation, ImagePooling, NormConfig, ParamBuilder, PatchPosition, TransformerConfig, VisionTransformer,
    VisionTransformerConfig,
};

use crate::support::device;
use crate::support::golden::Golden;

use ImagePooling::{ClassToken, Distilled, Mean};
use PatchPosition::{Learned, Sinusoidal2d};

/// Patches of two pixels, five classes.
fn config(d_model: usize, n_layers: usize, grid: [usize; 2]) -> VisionTransformerConfig {
    let stack = TransformerConfig::encoder(d_model, 2, n_layers).with_d_ff(16).with_activation(Activation::Gelu);
    VisionTransformerConfig::new(2, 2, 5, stack).with_image_size(grid.map(|patches| 2 * patches))
}

#[test]
fn classifiers_agree() {
    let models = [
        config(8, 2, [2, 3]).with_pooling(ClassToken).with_patch_position(Learned),
        config(8, 1, [2, 3]).with_pooling(Mean).with_patch_position(Sinusoidal2d),
        config(8, 1, [2, 3]).with_pooling(ClassToken).with_patch_position(Sinusoidal2d),
        config(8, 1, [2, 3]).with_pooling(Mean).with_patch_position(Learned),
        config(8, 1, [3, 3]).with_pooling(ClassToken).with_patch_position(Learned), // images of 4 x 2 patches
        config(8, 1, [2, 3]).with_pooling(Mean).with_patch_position(Learned),       // images of 3 x 5 patches
    ];
    let golden = Golden::load("vit");
    assert_eq!(golden.cases().count(), models.len());
    for (golden, config) in golden.cases().zip(models) {
        let images = golden.input::<4>("images", &device());
        let model = golden.fill(config.init(&images.device()));
        golden.agrees(model.forward(images.clone()), [("images", &images)], &model);
    }
}

#[test]
fn the_models_of_hugging_face_agree() {
    // ViTForImageClassification, the same on larger images, and DeiTForImageClassificationWithTeacher.
    let models = [ClassToken, ClassToken, Distilled].map(|pooling| {
        let mut config = config(8, 2, [2, 2]).with_pooling(pooling);
        config.transformer = config.transformer.with_norm(NormConfig::Layer { epsilon: 1e-12, bias: true });
        config
    });
    let golden = Golden::load("hf_vit");
    assert_eq!(golden.cases().count(), models.len());
    for (golden, config) in golden.cases().zip(models) {
        let images = golden.input::<4>("images", &device());
        let model = golden.fill(config.init(&images.device()));
        golden.agrees(model.forward(images.clone()), [("images", &images)], &model);
    }
}

#[test]
fn fixed_places_follow_the_images() {
    // The sinusoidal cases, 1 and 2, with a model made for another size.
    assert_eq!(Golden::load("vit").cases().count(), 6);
    for (golden, pooling) in Golden::load("vit").cases().skip(1).zip([Mean, ClassToken]) {
        let config = config(8, 1, [7, 1]).with_pooling(pooling).with_patch_position(Sinusoidal2d);
        let model = golden.fill(config.init(&device().autodiff()));
        golden.check("output", model.forward(golden.floats("images", &device())));
    }
}

#[test]
fn resized_places_agree() {
    let mut cases = 0;
    for golden in Golden::load("position_resize").cases() {
        let sizes = |key: &str| -> [usize; 2] {
            let numbers: Vec<usize> = golden.data(key).iter::<i64>().map(|patches| patches as usize).collect();
            numbers.try_into().expect("rows and columns")
        };
        let mut model: VisionTransformer =
            config(4, 1, sizes("old")).with_pooling(Mean).init_with(&ParamBuilder::new(&device(), 0));
        model.position = Some(burn::module::Param::from_tensor(golden.floats("table", &device())));
        let resized = model.resized(sizes("new").map(|patches| 2 * patches));
        let table: Tensor<2> = resized.position.expect("learned places").val();
        golden.check("output", table);
        cases += 1;
    }
    assert_eq!(cases, 4);
}
