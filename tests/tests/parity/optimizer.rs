//! The optimiser against `torch.optim.AdamW`: decay on the matrix alone, three steps with given gradients.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use firelight::training::OptimizerConfig;

use crate::support::device;
use crate::support::golden::Golden;

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
