use std::collections::BTreeMap;

use super::*;
use crate::{
    AdapterConfig, Cost, Linear, LinearConfig, LmHeadConfig, ParamBuilder, ParameterReport, Pass, ProjectionKind,
    SequenceInput, TokenEmbeddingConfig, Transformer, TransformerConfig, merge_adapters,
};
use burn::module::{Module, ModuleDisplay, ModuleMapper, ModuleVisitor};
use burn::tensor::{DType, Distribution, TensorData};
use firelight_kernels::{Difference, assert_close};

fn device() -> Device {
    Device::default()
}

fn linear(d_in: usize, d_out: usize) -> Linear {
    LinearConfig::new(d_in, d_out)
        .with_init(crate::Init::Normal { std: 0.3 })
        .init_with(&ParamBuilder::new(&device(), 5))
}

fn stack(change: impl FnOnce(TransformerConfig) -> TransformerConfig) -> Transformer {
    let config = TransformerConfig::new(64, 4, 2).with_max_seq_len(8);
    change(config).init_with(&ParamBuilder::new(&device(), 1))
}

fn in_blocks<M: Module>(module: M, format: BlockFormat) -> M {
    quantize(module, |_| Some(format))
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &device())
}

#[test]
fn eight_bits_are_off_by_half_a_step_of_their_block_at_most() {
    let floats = linear(64, 3);
    let blocks = in_blocks(floats.clone(), BlockFormat::Q8_0);
    assert_eq!(blocks.weight.dims(), [64, 3]);
    let rows = |layer: &Linear| layer.weight.val().transpose().try_into_vec_as::<f32>().unwrap();
    for (found, expected) in rows(&blocks).chunks(32).zip(rows(&floats).chunks(32)) {
        let largest = expected.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        // Half of largest / 127, and what the scale of half precision is off by.
        let step = f64::from(largest) * (0.5 / 127.0 + 1.0 / 2048.0) * 1.01;
        let apart = Difference::between(found, expected).absolute;
        assert!(apart > 0.0 && apart <= step, "{apart} of {step}");
    }
}

#[test]
fn a_layer_multiplies_by_the_numbers_of_its_blocks() {
    for format in [BlockFormat::Q8_0, BlockFormat::Q4_0] {
        let layer = in_blocks(linear(64, 6), format);
        let dense = Linear { weight: Param::from_tensor(layer.weight.val()).into(), ..layer.clone() };
        let x = random([2, 3, 64]);
        let expected = dense.forward(x.clone());
        let near = |found: Tensor<3>, expected: Tensor<3>| {
            let apart = Difference::between(&found.into_data(), &expected.into_data());
            assert!(apart.relative(0.0) < 0.02, "{apart:?} with {format:?}");
        };
        near(layer.forward(x.clone()), expected.clone());
        near(layer.forward_columns(x, 1, 5), expected.narrow(2, 1, 4));
    }
}

#[test]
fn a_table_and_a_tied_head_read_the_same_blocks() {
    let embedding = TokenEmbeddingConfig::new(7, 64).with_scale(true).init_with(&ParamBuilder::new(&device(), 2));
    let embedding = in_blocks(embedding, BlockFormat::Q8_0);
    assert_eq!(embedding.weight.dims(), [7, 64]);
    let tokens = Tensor::<2, Int>::from_ints([[6, 0, 3]], &device());
    let rows = firelight_kernels::embedding(embedding.weight.val(), tokens.clone()) * 8.0;
    assert_close(&embedding.forward(tokens), &rows.into_data(), 1e-5);

    let head = LmHeadConfig::new(64, 7).init_with(&ParamBuilder::new(&device(), 2));
    let hidden = random([2, 3, 64]);
    let product = |weight: Tensor<2>| hidden.clone().matmul(weight.unsqueeze()).into_data();
    let relative =
        |found: Tensor<3>, expected: TensorData| Difference::between(&found.into_data(), &expected).relative(0.0);
    let found = head.forward(hidden.clone(), &embedding);
    assert!(relative(found, product(embedding.weight.val().transpose())) < 0.02);
    let own = LmHeadConfig::new(64, 7).with_tied(false).init_with(&ParamBuilder::new(&device(), 2));
    let own = in_blocks(own, BlockFormat::Q8_0);
    let weight = own.weight.as_ref().unwrap();
    assert_eq!((weight.format(), weight.dims()), (Some(BlockFormat::Q8_0), [64, 7]));
    assert!(relative(own.forward(hidden.clone(), &embedding), product(weight.val())) < 0.02);
}

/// A matrix that is put where another role is expected is read as floats.
#[test]
fn blocks_that_lie_the_other_way_are_read_as_well() {
    let mut embedding = TokenEmbeddingConfig::new(64, 3).init_with(&ParamBuilder::new(&device(), 2));
    embedding.weight = in_blocks(linear(64, 3), BlockFormat::Q8_0).weight;
    let tokens = Tensor::<2, Int>::from_ints([[63, 5]], &device());
    let rows = firelight_kernels::embedding(embedding.weight.val(), tokens.clone());
    assert_close(&embedding.forward(tokens), &rows.into_data(), 1e-6);
    let head = LmHeadConfig::new(3, 64).init_with(&ParamBuilder::new(&device(), 2));
    let hidden = random([1, 2, 3]);
    let expected = hidden.clone().matmul(embedding.weight.val().transpose().unsqueeze());
    assert_close(&head.forward(hidden, &embedding), &expected.into_data(), 1e-5);
}

/// Paths as the weight file has them, and the kind of each parameter.
#[derive(Default)]
struct Paths(Vec<String>, Vec<(String, bool)>);

impl ModuleVisitor for Paths {
    fn enter_module(&mut self, name: &str, container: &str) {
        if !container.starts_with("Enum:") {
            self.0.push(name.into());
        }
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        if !container.starts_with("Enum:") {
            self.0.pop();
        }
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
        self.1.push((self.0.join("."), true));
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        assert_eq!(param.val().dtype(), DType::U8);
        self.1.push((self.0.join("."), false));
    }
}

fn paths<M: Module>(module: &M) -> Vec<(String, bool)> {
    let mut paths = Paths::default();
    module.visit(&mut paths);
    paths.1
}

#[test]
fn paths_and_counts_are_those_of_floats() {
    for projection in [ProjectionKind::Separate, ProjectionKind::Fused] {
        let floats = stack(|config| config.with_projection(projection));
        let blocks = in_blocks(floats.clone(), BlockFormat::Q4_0);
        let (expected, found) = (paths(&floats), paths(&blocks));
        let names = |paths: &[(String, bool)]| paths.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert_eq!(names(&found), names(&expected));
        let matrices: Vec<String> = weights_of(&floats).into_iter().map(|weight| weight.path).collect();
        let in_bytes: Vec<String> = found.into_iter().filter(|(_, is_float)| !is_float).map(|(path, _)| path).collect();
        assert_eq!(in_bytes, matrices);
        assert!(matrices.contains(&"blocks.1.attention.output.weight".to_string()), "{matrices:?}");

        assert_eq!(blocks.num_params(), floats.num_params());
        let totals = [&floats, &blocks].map(|module| (ParameterReport::of(module).total(), Cost::of(module)));
        assert_eq!(totals[0], totals[1]);
        assert_eq!(blocks.cost(8), floats.cost(8));
    }
}

#[test]
fn a_stack_in_blocks_is_near_the_stack_of_floats() {
    let floats = stack(|config| config);
    let x = random([2, 5, 64]);
    let run =
        |model: &Transformer| model.forward(x.clone(), &SequenceInput::default(), &mut Pass::default()).into_data();
    let apart = Difference::between(&run(&in_blocks(floats.clone(), BlockFormat::Q8_0)), &run(&floats));
    assert!(apart.absolute > 0.0 && apart.relative(0.0) < 0.05, "{apart:?}");
}

#[test]
fn what_is_not_chosen_or_does_not_fit_stays() {
    let model = stack(|config| config.with_d_ff(48));
    let entry = |path: &str| {
        let entries = weights_of(&model);
        entries.into_iter().find(|entry| entry.path == path).unwrap()
    };
    let (up, down) = (entry("blocks.0.feed_forward.up.weight"), entry("blocks.0.feed_forward.down.weight"));
    assert_eq!(((up.rows, up.width), (down.rows, down.width)), ((48, 64), (64, 48)));
    assert!(up.fits(BlockFormat::Q8_0) && !down.fits(BlockFormat::Q8_0) && !up.fits(BlockFormat::Q6K));
    assert_eq!((up.bytes(), down.bytes()), (48 * 64 * 4, 64 * 48 * 4));

    let first = |path: &str| path.starts_with("blocks.0.");
    let choose = |weight: &WeightEntry| first(&weight.path).then_some(BlockFormat::Q8_0);
    let found = quantize(model, choose);
    for weight in weights_of(&found) {
        let is_chosen = first(&weight.path) && weight.width == 64;
        assert_eq!(weight.format, is_chosen.then_some(BlockFormat::Q8_0), "{}", weight.path);
        assert_eq!(weight.bytes(), weight.rows * if is_chosen { 68 } else { weight.width * 4 });
    }
    // Blocks stay what they are.
    let again = in_blocks(found.clone(), BlockFormat::Q4_0);
    let first = |model: &Transformer| weights_of(model).swap_remove(0).format;
    assert_eq!((first(&again), first(&found)), (Some(BlockFormat::Q8_0), Some(BlockFormat::Q8_0)));
}

#[test]
fn blocks_of_zeros_wait_for_a_file() {
    let formats = BTreeMap::from([("weight".to_string(), BlockFormat::Q8_0)]);
    let layer = with_blocks(linear(64, 3), &formats).unwrap();
    assert_eq!(layer.weight.format(), Some(BlockFormat::Q8_0));
    assert_eq!(layer.weight.val().try_into_vec_as::<f32>().unwrap(), [0.0; 192]);

    let formats = [("weight", BlockFormat::Q6K), ("bias", BlockFormat::Q8_0), ("other.weight", BlockFormat::Q8_0)];
    let formats = formats.into_iter().map(|(path, format)| (path.to_string(), format)).collect();
    let error = with_blocks(linear(64, 3), &formats).unwrap_err();
    assert_eq!(
        error.problems(),
        [
            "`bias` is no matrix of a linear layer, an embedding or a head of the model",
            "`other.weight` is no matrix of a linear layer, an embedding or a head of the model",
            "`weight` has rows of 64 numbers: blocks of q6_k hold 256",
        ]
    );
    let formats = BTreeMap::from([("weight".to_string(), BlockFormat::Q4_0)]);
    let error = with_blocks(layer, &formats).unwrap_err();
    assert_eq!(error.problems(), ["`weight` is in blocks already (q8_0)"]);
}

/// Gives every trained number another value.
struct Shake;

impl ModuleMapper for Shake {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| {
            let tracked = tensor.is_require_grad();
            (tensor.detach() + 0.125).detach().set_require_grad(tracked)
        })
    }
}

#[test]
fn an_adapter_beside_blocks_learns_and_is_not_merged() {
    let device = device().autodiff();
    for decomposed in [false, true] {
        let adapters = AdapterConfig::new(2).with_targets(["*"]).with_decomposed(decomposed);
        let params = ParamBuilder::new(&device, 5).with_adapters(&adapters);
        let layer =
            in_blocks(LinearConfig::new(64, 3).init_with(&params.scope("layer")), BlockFormat::Q8_0).map(&mut Shake);
        assert!(layer.weight.floats().is_none());
        let x = Tensor::<2>::random([4, 64], Distribution::Default, &device).require_grad();
        let gradients = layer.forward(x.clone()).square().sum().backward();
        let adapter = layer.adapter.as_ref().unwrap();
        for gradient in [x.grad(&gradients), adapter.down.val().grad(&gradients), adapter.up.val().grad(&gradients)] {
            let size = gradient.expect("a gradient").square().sum().into_scalar::<f32>();
            assert!(size > 0.0 && size.is_finite(), "{size}");
        }
        let up = |layer: &Linear| layer.adapter.as_ref().unwrap().up.val().into_data();
        let merged = merge_adapters(layer.clone(), &adapters);
        assert_eq!((merged.weight.format(), up(&merged)), (Some(BlockFormat::Q8_0), up(&layer)));
    }
}

#[test]
fn modes_devices_and_copies_keep_blocks() {
    let device = device().autodiff();
    let layer = LinearConfig::new(64, 3).init_with(&ParamBuilder::new(&device, 5));
    let layer = in_blocks(layer, BlockFormat::Q8_0);
    let expected = layer.weight.val().into_data();
    let moved = layer.valid().train().no_grad().fork(&device).to_device(&device).materialize();
    assert_eq!(moved.weight.val().into_data(), expected);
    assert_eq!((moved.weight.id(), moved.weight.format()), (layer.weight.id(), Some(BlockFormat::Q8_0)));
    assert_eq!(moved.devices().len(), 1);
    let floats = moved.weight.map(|matrix| matrix * 2.0);
    assert_eq!((floats.format(), floats.dims()), (None, [64, 3]));
    let shown = ModuleDisplay::format(&layer.weight, burn::module::DisplaySettings::default());
    assert_eq!(shown, "Blocks {shape: [64, 3], format: q8_0}");
}

fn entry(path: &str, width: usize) -> WeightEntry {
    let layout = if path.ends_with("embedding.weight") { WeightLayout::Rows } else { WeightLayout::Columns };
    WeightEntry { path: path.into(), rows: 3, width, layout, format: None }
}

#[test]
fn ends_have_more_bits_and_routers_stay() {
    let (layers, ends) = (BlockFormat::Q4K, BlockFormat::Q4K.of_ends());
    let blocks = |path: &str, width| entry(path, width).mixed(layers, ends).ok();
    assert_eq!(blocks("encoder.embedding.weight", 256), Some(BlockFormat::Q6K));
    assert_eq!(blocks("head.weight", 256), Some(BlockFormat::Q6K));
    assert_eq!(blocks("encoder.blocks.0.feed_forward.up.weight", 256), Some(BlockFormat::Q4K));
    assert_eq!(blocks("encoder.blocks.0.feed_forward.up.weight", 64), None);
    assert_eq!(blocks("encoder.blocks.0.feed_forward.router.weight", 256), None);
    let already = WeightEntry { format: Some(BlockFormat::Q8_0), ..entry("head.weight", 256) };
    assert_eq!(already.mixed(layers, ends), Ok(BlockFormat::Q8_0));
}
