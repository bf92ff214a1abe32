use super::*;
use crate::linear::{Linear, LinearConfig};
use crate::{Pass, ProjectionKind, SequenceInput, TransformerConfig};
use burn::module::ModuleMapper;
use burn::tensor::{Distribution, TensorData};
use firelight_kernels::assert_close;
use proptest::prelude::*;

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// Gives every adapter a change.
struct Shake;

impl ModuleMapper for Shake {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| {
            let wave: Vec<f32> = (0..tensor.shape().num_elements()).map(|i| (1.3 * i as f32).sin()).collect();
            let tracked = tensor.is_require_grad();
            let wave = Tensor::from_data(TensorData::new(wave, tensor.shape()), &tensor.device());
            (tensor.detach() + wave * 0.3).detach().set_require_grad(tracked)
        })
    }
}

#[test]
fn the_change_by_hand() {
    // x = [1, 2], down = [1, 1]^T, up = [1, 10], scale 6 / 1: 3 [1, 10] 6 = [18, 180], beside x W = [1, 2].
    let device = Device::default();
    let params =
        ParamBuilder::new(&device, 0).with_adapters(&AdapterConfig::new(1).with_alpha(6.0).with_targets(["*"]));
    let mut layer = LinearConfig::new(2, 2).with_bias(false).init_with(&params.scope("layer"));
    layer.weight = Weight::of_map(Param::from_data([[1.0, 0.0], [0.0, 1.0]], &device));
    let x = Tensor::<2>::from_floats([[1.0, 2.0]], &device);
    layer.forward(x.clone()).into_data().assert_eq(&TensorData::from([[1.0f32, 2.0]]), false);
    let adapter = layer.adapter.as_mut().unwrap();
    adapter.down = Param::from_data([[1.0], [1.0]], &device);
    adapter.up = Param::from_data([[1.0, 10.0]], &device);
    layer.forward(x.clone()).into_data().assert_eq(&TensorData::from([[19.0f32, 182.0]]), false);
    layer.forward_columns(x, 1, 2).into_data().assert_eq(&TensorData::from([[182.0f32]]), false);
}

#[test]
fn a_rank_stabilized_change_is_scaled_by_the_root_of_the_rank() {
    // x = [1, 2], down = [[1, 0, 0, 0], [0, 0, 0, 1]], up the sum of what it reads: 3, scaled by 6 / sqrt(4), not by 6 / 4.
    let device = Device::default();
    let config = AdapterConfig::new(4).with_alpha(6.0).with_targets(["*"]);
    let forward = |config: &AdapterConfig| {
        let params = ParamBuilder::new(&device, 0).with_adapters(config);
        let mut layer = LinearConfig::new(2, 1).with_bias(false).init_with(&params.scope("layer"));
        layer.weight = Weight::of_map(Param::from_data([[0.0], [0.0]], &device));
        let adapter = layer.adapter.as_mut().unwrap();
        adapter.down = Param::from_data([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], &device);
        adapter.up = Param::from_data([[1.0], [1.0], [1.0], [1.0]], &device);
        layer.forward(Tensor::<2>::from_floats([[1.0, 2.0]], &device)).into_scalar::<f32>()
    };
    assert_eq!(forward(&config), 4.5);
    let stabilized = config.with_scaling(AdapterScaling::RankStabilized);
    assert_eq!(forward(&stabilized), 9.0);
    let written = serde_json::to_string(&stabilized).unwrap();
    assert!(written.contains("\"scaling\":\"rank_stabilized\""), "{written}");
    assert_eq!(AdapterConfig::new(9).with_scaling(AdapterScaling::RankStabilized).scale(), 3.0);
}

/// A layer of two inputs with a decomposed adapter of rank 1.
fn decomposed(device: &Device) -> Linear {
    let config = AdapterConfig::new(1).with_decomposed(true).with_targets(["*"]);
    let params = ParamBuilder::new(device, 0).with_adapters(&config);
    let mut layer = LinearConfig::new(2, 2).init_with(&params.scope("layer"));
    layer.weight = Weight::of_map(Param::from_data([[3.0, 1.0], [4.0, 0.0]], device).no_grad());
    layer.bias = Some(Param::from_data([0.5, 0.0], device).no_grad());
    let adapter = layer.adapter.as_mut().unwrap();
    adapter.down = Param::from_data([[1.0], [2.0]], device);
    adapter.up = Param::from_data([[0.0, 2.0]], device);
    layer
}

#[test]
fn a_decomposed_change_turns_columns_and_learns_their_lengths_apart() {
    // W0 has the columns [3, 4] and [1, 0], of the lengths 5 and 1; the change adds [0, 0] and [2, 4]. [3, 4] is of length 5.
    // So the columns are m1 [3, 4] and m2 [3, 4] / 5, and x = [1, 1] gives 7 m1 + 0.5 and 1.4 m2.
    let device = Device::default();
    let mut layer = decomposed(&device);
    let x = Tensor::<2>::from_floats([[1.0, 1.0]], &device);
    assert_close(&layer.forward(x.clone()).try_into_vec_as::<f32>().unwrap(), &[7.5, 1.4], 1e-6);
    layer.adapter.as_mut().unwrap().magnitude = Some(Param::from_data([2.0, 10.0], &device));
    assert_close(&layer.forward(x.clone()).try_into_vec_as::<f32>().unwrap(), &[14.5, 14.0], 1e-6);
    assert_close(&layer.forward_columns(x.clone(), 1, 2).try_into_vec_as::<f32>().unwrap(), &[14.0], 1e-6);
    let merged = merge_adapters(layer.clone(), &AdapterConfig::new(1).with_decomposed(true));
    assert_close(&merged.weight.val().try_into_vec_as::<f32>().unwrap(), &[6.0, 6.0, 8.0, 8.0], 1e-6);
    assert_close(&merged.forward(x).try_into_vec_as::<f32>().unwrap(), &[14.5, 14.0], 1e-6);
    let adapter = merged.adapter.unwrap();
    assert_eq!(adapter.magnitude.unwrap().val().try_into_vec_as::<f32>().unwrap(), [1.0, 1.0]);
}

/// With the norm of the changed weight held constant, y = c (x W0 + x down up) + b with c = m l0 / l: dy / d up_j = c_j x down,
/// dy / d m_j = y_j / m_j, dy / d down = x^T (c up^T).
#[test]
fn the_gradient_of_a_decomposed_change_holds_the_norm_constant() {
    let device = Device::default().autodiff();
    let layer = decomposed(&device);
    let x = Tensor::<2>::from_floats([[1.0, 1.0]], &device);
    let gradients = layer.forward(x).sum().backward();
    let adapter = layer.adapter.as_ref().unwrap();
    let of = |gradient: Option<Tensor<2>>| gradient.unwrap().try_into_vec_as::<f32>().unwrap();
    assert_close(&of(adapter.up.val().grad(&gradients)), &[3.0, 0.6], 1e-6); // x down = 3, c = [1, 1 / 5]
    assert_close(&of(adapter.down.val().grad(&gradients)), &[0.4, 0.4], 1e-6); // c . up = 2 / 5
    let magnitude = adapter.magnitude.as_ref().unwrap().val().grad(&gradients).unwrap();
    assert_close(&magnitude.try_into_vec_as::<f32>().unwrap(), &[7.0, 1.4], 1e-6);
    assert!(layer.weight.val().grad(&gradients).is_none());
}

#[test]
fn a_decomposed_adapter_changes_nothing_at_first_and_merges_in_a_stack() {
    let device = Device::default();
    let config = TransformerConfig::new(16, 2, 2);
    let adapters = AdapterConfig::new(4).with_decomposed(true).with_targets(["query", "value", "feed_forward.up"]);
    let plain = config.init_with(&ParamBuilder::new(&device, 3));
    let adapted = config.init_with(&ParamBuilder::new(&device, 3).with_adapters(&adapters));
    let x = random([1, 5, 16], &device);
    let run = |model: &crate::Transformer| {
        model.forward(x.clone(), &SequenceInput::default(), &mut Pass::default()).try_into_vec_as::<f32>().unwrap()
    };
    assert_close(&run(&adapted), &run(&plain), 1e-5);
    let adapted = adapted.map(&mut Shake);
    let merged = merge_adapters(adapted.clone(), &adapters);
    assert_close(&run(&merged), &run(&adapted), 1e-4);
    let is_far = run(&adapted).iter().zip(&run(&plain)).any(|(one, other)| (one - other).abs() > 0.1);
    assert!(is_far, "the adapters changed something");
    let written = serde_json::to_string(&adapters).unwrap();
    assert!(written.contains("\"decomposed\":true"), "{written}");
    assert!(!serde_json::to_string(&AdapterConfig::new(1)).unwrap().contains("decomposed"));
}

#[test]
fn a_new_adapter_changes_nothing_and_the_weights_are_those_without_it() {
    let device = Device::default();
    let config = TransformerConfig::new(16, 2, 2);
    let plain = config.init_with(&ParamBuilder::new(&device, 3));
    let params = ParamBuilder::new(&device, 3).with_adapters(&AdapterConfig::new(4));
    let adapted = config.init_with(&params);
    params.check_adapters().unwrap();
    // Two blocks, queries and values, each 16 x 4 and 4 x 16.
    assert_eq!(adapted.num_params(), plain.num_params() + 2 * 2 * 128);
    let x = random([1, 5, 16], &device);
    let run = |model: &crate::Transformer| model.forward(x.clone(), &SequenceInput::default(), &mut Pass::default());
    run(&adapted).into_data().assert_eq(&run(&plain).into_data(), true);
}

#[test]
fn merged_computes_what_was_applied() {
    let device = Device::default();
    for projection in [ProjectionKind::Separate, ProjectionKind::Fused] {
        let adapters = AdapterConfig::new(3).with_alpha(6.0).with_targets(["query", "qkv", "output", "feed_forward.*"]);
        let config = TransformerConfig::new(16, 2, 2).with_projection(projection);
        let model = config.init_with(&ParamBuilder::new(&device, 1).with_adapters(&adapters)).map(&mut Shake);
        let x = random([2, 5, 16], &device);
        let run = |model: &crate::Transformer| {
            model.forward(x.clone(), &SequenceInput::default(), &mut Pass::default()).into_data()
        };
        let (applied, merged) = (run(&model), merge_adapters(model, &adapters));
        assert_close(&run(&merged), &applied, 1e-5);
        // Without its adapters it is the same model.
        let mut bare = merged.clone();
        bare.blocks.iter_mut().for_each(|block| {
            if let crate::Mixer::Attention(attention) = &mut block.attention {
                attention.output.adapter = None;
            }
            if let crate::FeedForwardLayer::Dense(network) = &mut block.feed_forward {
                (network.up.adapter, network.down.adapter) = (None, None);
            }
        });
        assert!(bare.num_params() < merged.num_params());
        assert_close(&run(&bare), &applied, 1e-5);
    }
}

#[test]
fn only_the_adapter_has_gradients_and_they_are_those_of_finite_differences() {
    let device = Device::default().autodiff();
    let params =
        ParamBuilder::new(&device, 2).with_adapters(&AdapterConfig::new(2).with_alpha(3.0).with_targets(["*"]));
    let layer = LinearConfig::new(4, 3).init_with(&params.scope("layer")).map(&mut Shake);
    let x = random([5, 4], &device);
    let loss = |layer: &Linear| layer.forward(x.clone()).powi_scalar(2).sum();
    let grads = loss(&layer).backward();
    assert!(layer.weight.val().grad(&grads).is_none() && layer.bias.as_ref().unwrap().val().grad(&grads).is_none());
    let adapter = layer.adapter.as_ref().unwrap();
    for up in [false, true] {
        let of = |layer: &Linear| {
            let adapter = layer.adapter.clone().unwrap();
            if up { adapter.up } else { adapter.down }
        };
        let gradient = of(&layer).val().grad(&grads).expect("trained").into_data().try_to_vec::<f32>().unwrap();
        let (shape, values) = (of(&layer).shape(), of(&layer).val().into_data().try_to_vec::<f32>().unwrap());
        for place in 0..values.len() {
            let at = |step: f32| {
                let mut values = values.clone();
                values[place] += step;
                let matrix = Param::from_data(TensorData::new(values, shape.clone()), &device);
                let mut adapter = adapter.clone();
                if up {
                    adapter.up = matrix
                } else {
                    adapter.down = matrix
                }
                loss(&Linear { adapter: Some(adapter), ..layer.clone() }).into_scalar::<f32>()
            };
            let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((slope - gradient[place]).abs() < 2e-2 * (1.0 + slope.abs()), "{slope}, not {}", gradient[place]);
        }
    }
}

#[test]
fn dropout_is_of_the_low_rank_path_alone() {
    let device = Device::default().autodiff();
    let params =
        ParamBuilder::new(&device, 2).with_adapters(&AdapterConfig::new(2).with_dropout(0.5).with_targets(["*"]));
    let layer = LinearConfig::new(4, 3).init_with(&params.scope("layer"));
    let x = random([50, 4], &device);
    let plain = Linear { adapter: None, ..layer.clone() };
    layer.forward(x.clone()).into_data().assert_eq(&plain.forward(x.clone()).into_data(), true);
    let shaken = layer.map(&mut Shake);
    assert_ne!(shaken.forward(x.clone()).into_data(), shaken.forward(x).into_data());
}

#[test]
fn what_does_not_fit_is_reported() {
    let wrong = AdapterConfig::new(0).with_alpha(-1.0).with_dropout(1.0).with_targets::<&str>([]);
    assert_eq!(
        wrong.validate().unwrap_err().to_string(),
        "adapters.rank = 0 must be at least 1; adapters.alpha = -1 must be above 0; adapters.dropout = 1 must be in [0, 1); \
         adapters.targets = [] must name a layer, such as \"query\""
    );
    let adapters = AdapterConfig::new(2).with_targets(["query", "kernel"]);
    let params = ParamBuilder::new(&Device::default(), 0).with_adapters(&adapters);
    let _model = TransformerConfig::new(8, 2, 2).init_with(&params);
    let error = params.check_adapters().unwrap_err().to_string();
    let expected =
        "adapters.targets names `kernel`, but there are `blocks.*.attention.key`, `blocks.*.attention.output`, ";
    assert!(error.starts_with(expected), "{error}");
    let read: AdapterConfig = serde_json::from_str(r#"{"rank": 8}"#).unwrap();
    assert_eq!((read.scale(), read), (1.0, AdapterConfig::new(8)));
}

#[test]
fn targets_are_ends_of_paths_or_patterns() {
    let path = "encoder.blocks.11.feed_forward.up";
    for target in ["up", "feed_forward.up", "*.blocks.11.*", path, "encoder.blocks.1?.*", "feed_forward.*"] {
        assert!(fits(target, path), "{target}");
    }
    for target in ["p", "blocks.1.*", "forward.up", "encoder"] {
        assert!(!fits(target, path), "{target}");
    }
}

proptest! {
    #[test]
    fn an_adapter_is_the_product_of_its_matrices(rows in 1_usize..5, d_in in 1_usize..6, d_out in 1_usize..6, rank in 1_usize..4) {
        let device = Device::default();
        let adapters = AdapterConfig::new(rank).with_alpha(2.0).with_targets(["*"]);
        let params = ParamBuilder::new(&device, 2).with_adapters(&adapters);
        let layer = LinearConfig::new(d_in, d_out).init_with(&params.scope("layer")).map(&mut Shake);
        let x = random([rows, d_in], &device);
        let plain = Linear { adapter: None, ..layer.clone() };
        let change = x.clone().matmul(layer.adapter.as_ref().unwrap().change());
        let expected = (plain.forward(x.clone()) + change).into_data();
        assert_close(&layer.forward(x), &expected, 1e-4);
    }
}
