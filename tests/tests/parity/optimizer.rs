//! The update rules against those of `torch.optim`, a few steps with given gradients; decay on the matrix alone. Clipping
//! against a norm computed by hand.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use firelight::kernels::assert_close;
use firelight::training::{
    AdafactorConfig, AdamConfig, MuonConfig, OptimizerConfig, ParameterGroup, UpdateRule, UpdateScale, clip_global_norm,
};

use crate::support::golden::Golden;
use crate::support::{device, tolerance};

#[derive(Module, Debug)]
struct Parameters {
    matrix: Param<Tensor<2>>,
    vector: Param<Tensor<1>>,
}

#[derive(Module, Debug)]
struct Matrix {
    matrix: Param<Tensor<2>>,
}

/// Takes `steps` steps at a rate of 0.01 and compares both parameters after each.
fn agrees(config: OptimizerConfig, golden: &Golden, steps: usize) {
    let device = device().autodiff();
    let mut parameters = Parameters {
        matrix: Param::from_data(golden.data("initial.matrix"), &device),
        vector: Param::from_data(golden.data("initial.vector"), &device),
    };
    let mut optimizer = config.init(&parameters);
    for step in 1..=steps {
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
fn adamw_agrees() {
    let adamw = AdamConfig { beta_1: 0.9, beta_2: 0.99, epsilon: 1e-8 };
    let config = OptimizerConfig { weight_decay: 0.1, ..UpdateRule::AdamW(adamw).into() };
    agrees(config, &Golden::load("adamw"), 3);
}

#[test]
fn adam_agrees() {
    agrees(UpdateRule::Adam(AdamConfig::vaswani()).into(), &Golden::load("adam"), 3);
}

#[test]
fn adafactor_agrees() {
    let adafactor = UpdateRule::Adafactor(AdafactorConfig::default());
    let golden = Golden::load("adafactor");
    for case in ["case0.", "case1."] {
        agrees(OptimizerConfig { weight_decay: 0.1, ..adafactor.into() }, &golden.part(case), 4);
    }
}

#[test]
fn muon_agrees_on_the_transposed_matrix() {
    let golden = Golden::load("muon");
    for (case, update_scale) in [
        ("case0.", UpdateScale::AspectRatio),
        ("case1.", UpdateScale::AspectRatio),
        ("case2.", UpdateScale::AdamwRms),
        ("case3.", UpdateScale::AdamwRms),
    ] {
        let golden = golden.part(case);
        let device = device().autodiff();
        let mut model = Matrix { matrix: Param::from_data(golden.data("initial.matrix"), &device) };
        let all = ParameterGroup { parameters: "*".into(), muon: Some(true), ..ParameterGroup::default() };
        let muon = UpdateRule::Muon(MuonConfig { update_scale, ..MuonConfig::default() });
        let mut optimizer = OptimizerConfig { groups: vec![all], weight_decay: 0.1, ..muon.into() }.init(&model);
        for step in 1..=3 {
            let golden = golden.part(&format!("step{step}."));
            let mut gradients = GradientsParams::new();
            let gradient = golden.floats::<2>("grad.matrix", &device.clone().inner());
            gradients.register(model.matrix.id, gradient);
            model = optimizer.step(1e-2, model, gradients);
            golden.check("matrix", model.matrix.val().inner());
        }
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
        let ratios: Vec<f64> = found.iter().zip(expected).map(|(a, b)| a / b).collect();
        assert_eq!(found.len(), expected.len());
        assert_close(&ratios, &[1.0; 3], tolerance());
    }
}
