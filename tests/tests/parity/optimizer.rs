//! The optimiser against `torch.optim.AdamW`: decay on the matrix alone, three steps with given gradients. Clipping
//! against a norm computed by hand.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use firelight::training::{OptimizerConfig, clip_global_norm};

use crate::support::golden::Golden;
use crate::support::{device, tolerance};

#[derive(Module, Debug)]
struct Parameters {
    matrix: Param<Tensor<2>>,
    vector: Param<Tensor<1>>,
}

#[test]
fn adamw_agrees() {
    let golden = Golden::load("adamw");
    let device = device().autodiff();
    let mut parameters = Parameters {
        matrix: Param::from_data(golden.data("initial.matrix"), &device),
        vector: Param::from_data(golden.data("initial.vector"), &device),
    };
    let config = OptimizerConfig { beta_2: 0.99, epsilon: 1e-8, weight_decay: 0.1, ..OptimizerConfig::default() };
    let mut optimizer = config.init(&parameters);
    for step in 1..=3 {
        let golden = golden.part(&format!("step{step}."));
        let inner = device.clone().inner();
        let mut gradients = GradientsParams::new();
        gradients.register(parameters.matrix.id, golden.floats::<2>("grad.matrix", &inner));
        gradients.register(parameters.vector.id, golden.floats::<1>("grad.vector", &inner));
        parameters = optimizer.step(1e-2, parameters, gradients);
        golden.check("matrix", parameters.matrix.val().inner());
        golden.check("vector", parameters.vector.val().inner());
    }
}

#[test]
fn clipping_scales_every_gradient_by_the_same_factor() {
    let device = device();
    let parameters = Parameters {
        matrix: Param::from_data(TensorData::from([[0.0f32, 0.0]]), &device),
        vector: Param::from_data(TensorData::from([0.0f32]), &device),
    };
    let given = || {
        let mut gradients = GradientsParams::new();
        gradients.register(parameters.matrix.id, Tensor::<2>::from_floats([[2.0, -3.0]], &device));
        gradients.register(parameters.vector.id, Tensor::<1>::from_floats([6.0], &device));
        gradients
    };
    // sqrt(2^2 + 3^2 + 6^2) = 7: twice the bound of 3.5, and below the bound of 8.
    for (bound, expected) in [(3.5, [1.0, -1.5, 3.0]), (8.0, [2.0, -3.0, 6.0])] {
        let (clipped, norm) = clip_global_norm(&parameters, given(), bound).expect("a norm");
        assert!((norm / 7.0 - 1.0).abs() <= tolerance(), "{norm}");
        let matrix = clipped.get::<2>(parameters.matrix.id).expect("a gradient").into_data();
        let vector = clipped.get::<1>(parameters.vector.id).expect("a gradient").into_data();
        let found: Vec<f64> = matrix.iter::<f64>().chain(vector.iter::<f64>()).collect();
        assert!(found.iter().zip(expected).all(|(a, b)| (a / b - 1.0).abs() <= tolerance()), "{bound}: {found:?}");
    }
}
