//! What training adds to a model against code that was written from the papers (`fixtures/stacks/training.py`): low-rank
//! adapters, stochastic depth and mixed images.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Gradients, Int, Tensor, TensorData};
use firelight::kernels::Difference;
use firelight::language::{LanguageModel, LanguageModelConfig};
use firelight::nn::{
    Activation, AdapterConfig, ImagePooling, LossConfig, ParamBuilder, Pass, PatchPosition, SequenceInput, Transformer,
    TransformerConfig, VisionTransformerConfig,
};
use firelight::training::{Objective, Switches};
use firelight::vision::{ImageBatch, Partners, VisionConfig};

use super::described::{assert_felt, config, paths};
use super::models;
use crate::support::golden::Golden;
use crate::support::{ParameterPath, device, tolerance};

#[test]
fn adapters_in_language_models_agree_and_freeze_their_layers() {
    let mut found = Vec::new();
    for golden in Golden::load("adapters").cases() {
        let model = adapted(&golden);
        models::check(&golden, &model);
        let paths = paths(&model);
        let layer = |path: &str| path.rsplit_once('.').map(|(layer, _)| format!("{layer}.adapter.down"));
        let is_frozen = |path: &String| layer(path).is_some_and(|adapter| paths.contains(&adapter));
        let (frozen, trained): (Vec<_>, Vec<_>) = paths.iter().cloned().partition(is_frozen);
        for path in &frozen {
            assert!(golden.data(&format!("grad.{path}")).iter::<f64>().all(|number| number == 0.0), "{path}");
        }
        assert_felt(&golden, &trained);
        found.push((frozen.len(), trained.len()));
    }
    assert_eq!(found, [(8, 36), (8, 27), (24, 36)]);
}

/// The model of a case, its layers with their adapters.
fn adapted(golden: &Golden) -> LanguageModel {
    let (model, adapters): (LanguageModelConfig, AdapterConfig) =
        (config(golden, "config"), config(golden, "adapters"));
    let params = ParamBuilder::new(&device().autodiff(), 0).with_adapters(&adapters);
    let model = model.init_with(&params);
    params.check_adapters().expect("every target is a layer");
    golden.fill(model)
}

/// Rows of one pass, so many that every way to drop branches is drawn.
const ROWS: usize = 128;

#[test]
fn rows_that_go_without_branches_agree() {
    let mut parameters = 0;
    for golden in Golden::load("stochastic_depth").cases() {
        let config: TransformerConfig = config(&golden, "config");
        let stack = golden.fill(config.init(&device().autodiff()));
        let ways: Vec<Tensor<3>> = golden.floats::<3>("output", &device()).split(1, 0);
        let mut drawn = vec![0; ways.len()];
        for seed in 0..4 {
            let x = repeated(golden.floats::<2>("x", &device()).unsqueeze::<3>());
            let cotangent = repeated(golden.floats::<2>("cotangent", &device()).unsqueeze::<3>());
            let x = Tensor::from_inner(x).require_grad();
            x.device().seed(seed);
            let output = stack.forward(x.clone(), &SequenceInput::default(), &mut Pass::default());
            let chosen = chosen(output.clone().inner(), &ways);
            chosen.iter().for_each(|way| drawn[*way] += 1);
            let gradients = (output * Tensor::from_inner(cotangent)).sum().backward();
            parameters += check_rows(&golden, &stack, &x, &chosen, &gradients);
        }
        assert!(drawn.iter().all(|rows| *rows > 0), "{drawn:?}");
    }
    assert_eq!(parameters, 4 * (34 + 16 + 16));
}

fn repeated(row: Tensor<3>) -> Tensor<3> {
    row.repeat_dim(0, ROWS)
}

/// Which way every row went.
fn chosen(output: Tensor<3>, ways: &[Tensor<3>]) -> Vec<usize> {
    let way = |row: Tensor<3>| {
        let is_same = |way: &Tensor<3>| Difference::between(&row, way).relative(0.0) <= tolerance();
        ways.iter().position(is_same).expect("a row goes one of the ways")
    };
    output.split(1, 0).into_iter().map(way).collect()
}

/// The gradients of the rows, and of all parameters, which are the sums over the rows. The number of parameters.
fn check_rows(golden: &Golden, stack: &Transformer, x: &Tensor<3>, chosen: &[usize], gradients: &Gradients) -> usize {
    let chosen: Vec<i32> = chosen.iter().map(|way| *way as i32).collect();
    let chosen = Tensor::<1, Int>::from_ints(chosen.as_slice(), &device());
    let expected = golden.floats::<3>("grad.x", &device()).select(0, chosen.clone());
    assert_near("grad.x", x.grad(gradients), &expected, 0.0);
    let mut rows = Rows { golden, path: ParameterPath::default(), chosen, gradients, compared: 0 };
    stack.visit(&mut rows);
    rows.compared
}

fn assert_near<const D: usize>(key: &str, found: Option<Tensor<D>>, expected: &Tensor<D>, floor: f64) {
    let difference = Difference::between(&found, &Some(expected.clone()));
    assert!(difference.relative(floor) <= tolerance(), "{key}: {difference:?}");
}

struct Rows<'a> {
    golden: &'a Golden,
    path: ParameterPath,
    chosen: Tensor<1, Int>,
    gradients: &'a Gradients,
    compared: usize,
}

impl ModuleVisitor for Rows<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let key = format!("grad.{}", self.path.key());
        let shape = param.val().dims();
        let ways: Vec<f32> = self.golden.data(&key).iter::<f32>().collect();
        let size = shape.iter().product::<usize>();
        let shape_of_all = [ways.len() / size, size];
        let ways = Tensor::<2>::from_data(TensorData::new(ways, shape_of_all), &device());
        let expected: Tensor<D> = ways.select(0, self.chosen.clone()).sum_dim(0).reshape(shape);
        // The gradient of a key's bias is zero but for the rounding of as many rows.
        let floor = if key.ends_with("key.bias") { ROWS as f64 } else { 0.0 };
        assert_near(&key, param.val().grad(self.gradients), &expected, floor);
        self.compared += 1;
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }
}

#[test]
fn mixed_images_agree() {
    let mut cases = 0;
    for golden in Golden::load("mixup").cases() {
        let images = golden.input::<4>("images", &device());
        let tracked = images.device();
        let model = golden.fill(images_config().init(&tracked));
        let partners = Partners { targets: golden.ints("partners", &tracked), share: golden.number("share") };
        let batch =
            ImageBatch { images: images.clone(), targets: golden.ints("targets", &tracked), partners: Some(partners) };
        let loss = LossConfig::default().with_label_smoothing(golden.number("smoothing"));
        let loss = model.train_loss(batch, &loss, Switches::default());
        golden.check("loss", loss.minimised.clone());
        golden.check("plain", loss.reported.total);
        let gradients = loss.minimised.backward();
        golden.check_gradient("images", &images, &gradients);
        golden.check_gradients(&model, &gradients);
        let paths = paths(&model);
        assert_felt(&golden, &paths);
        assert_eq!(paths.len(), 23);
        cases += 1;
    }
    assert_eq!(cases, 3);
}

/// Patches of two pixels of 4 x 6, five classes.
fn images_config() -> VisionConfig {
    let stack = TransformerConfig::encoder(8, 2, 1).with_d_ff(8).with_activation(Activation::Gelu);
    let vit = VisionTransformerConfig::new(4, 2, 5, stack).with_channels(2).with_image_size([4, 6]);
    let vit = vit.with_pooling(ImagePooling::Mean).with_patch_position(PatchPosition::Learned);
    VisionConfig::new((0..5).map(|class| class.to_string()).collect(), vit)
}
