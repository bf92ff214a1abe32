use super::*;
use crate::feed_forward::Activation;
use crate::pass::{AuxiliaryLosses, Pass};
use burn::tensor::{Device, Distribution};
use firelight_kernels::{Difference, assert_close};

fn layer(config: ExpertsConfig, device: &Device) -> MixtureOfExperts {
    let wide = Init::Normal { std: 1.0 };
    let expert = FeedForwardConfig::new(6, Activation::SwiGlu).with_init(wide, wide);
    config.init_with(&expert, &ParamBuilder::new(device, 3))
}

fn random(device: &Device) -> Tensor<3> {
    Tensor::random([2, 5, 6], Distribution::Normal(0.0, 1.0), device)
}

fn run(layer: &MixtureOfExperts, x: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> (Tensor<3>, Tensor<1>) {
    let mut losses = AuxiliaryLosses::default();
    let output = layer.forward(x, padding, &mut Pass::default().with_losses(&mut losses).layer(0));
    (output, losses.load_balance().expect("a loss"))
}

/// Every expert reads every token, and the gates leave out what was not chosen.
fn oracle(layer: &MixtureOfExperts, x: Tensor<3>) -> Tensor<3> {
    let top_k = layer.config.top_k;
    let probabilities = softmax(layer.router.forward(x.clone()), 2);
    let last = probabilities.clone().topk(top_k, 2).narrow(2, top_k - 1, 1).expand(probabilities.dims());
    let gates = probabilities.clone().mask_fill(probabilities.lower(last), 0.0);
    let gates = if top_k > 1 { gates.clone() / gates.sum_dim(2) } else { gates };
    let gated = |(e, expert): (usize, &FeedForward)| expert.forward(x.clone()) * gates.clone().narrow(2, e, 1);
    layer.experts.iter().enumerate().map(gated).reduce(|sum, read| sum + read).expect("an expert")
}

#[test]
fn the_chosen_experts_alone_give_what_all_of_them_gated_give() {
    let device = Device::default();
    for top_k in [1, 2, 4] {
        let layer = layer(ExpertsConfig::new(4).with_top_k(top_k), &device);
        let x = random(&device);
        let difference = Difference::between(&run(&layer, x.clone(), None).0, &oracle(&layer, x));
        assert!(difference.relative(0.0) <= 1e-6, "{difference:?}");
    }
}

#[test]
fn gradients_of_the_sparse_form_are_those_of_the_dense_one() {
    let device = Device::default().autodiff();
    let layer = layer(ExpertsConfig::new(3), &device);
    let x = random(&device).require_grad();
    let weights = random(&device);
    let gradients = |output: Tensor<3>| {
        let grads = (output * weights.clone()).sum().backward();
        [
            x.grad(&grads).expect("read by experts").flatten::<1>(0, 2),
            layer.router.weight.val().grad(&grads).expect("routed").flatten(0, 1),
        ]
    };
    let (found, expected) = (gradients(run(&layer, x.clone(), None).0), gradients(oracle(&layer, x.clone())));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.into_iter().zip(expected) {
        let difference = Difference::between(&found, &expected);
        assert!(difference.relative(0.0) <= 1e-5, "{difference:?}");
    }
}

#[test]
fn padding_goes_to_no_expert() {
    let device = Device::default();
    let layer = layer(ExpertsConfig::new(3), &device);
    let x = random(&device);
    let padding = Tensor::<2, Bool>::from_bool([[true, false, false, false, false], [false; 5]], &device);
    let (output, balance) = run(&layer, x.clone(), Some(&padding));
    assert_close(&output.clone().slice([0..1, 0..1]), &[0.0; 6], 0.0);
    let (alone, other) = run(&layer, x.clone().slice([0..1, 1..5]), None);
    let rest = output.slice([0..1, 1..5]).into_data();
    assert_close(&rest, &alone, 1e-5);
    // Junk in the padding does not move the loss.
    let junk = x.clone().slice_assign([0..1, 0..1, 0..6], Tensor::full([1, 1, 6], 9.0, &device));
    let again = run(&layer, junk, Some(&padding)).1;
    assert_eq!(again.into_scalar::<f32>(), balance.into_scalar::<f32>());
    assert!(other.into_scalar::<f32>() > 0.0);
}

#[test]
fn the_balance_by_hand() {
    // Two tokens with probabilities (.75, .25) and (.75, .25), one expert each: f = (1, 0), P = (.75, .25), loss 1.5;
    // with both experts for each token f = (1, 1): loss 2.
    let mut routes = Routes::new(2);
    let probabilities = Tensor::<2>::from_floats([[0.75, 0.25], [0.75, 0.25]], &Device::default());
    for _ in 0..2 {
        routes.push(largest(&[0.75, 0.25], 1));
    }
    assert_eq!(routes.load_balance(&probabilities).into_scalar::<f32>(), 1.5);
    let mut both = Routes::new(2);
    (0..2).for_each(|_| both.push(largest(&[0.75, 0.25], 2)));
    assert_eq!(both.load_balance(&probabilities).into_scalar::<f32>(), 2.0);
}

#[test]
fn a_capacity_is_kept_in_training_alone_and_the_first_tokens_have_the_places() {
    let config = ExpertsConfig::new(2).with_top_k(1).with_capacity(0.5);
    let kept = |device: &Device| -> Vec<bool> {
        let mut layer = layer(config, device);
        // All tokens choose expert 0: of 10 its even share is 5, half of it 3 places.
        layer.router.weight = Param::from_tensor(Tensor::<2>::from_data([[1.0f32, 0.0]; 6], device)).into();
        let output = run(&layer, Tensor::ones([2, 5, 6], device), None).0;
        output.abs().sum_dim(2).into_data().iter::<f32>().map(|size| size > 0.0).collect()
    };
    assert_eq!(kept(&Device::default()), [true; 10]);
    let trained = kept(&Device::default().autodiff());
    assert_eq!(trained, [true, true, true, false, false, false, false, false, false, false]);
}

#[test]
fn ties_go_to_the_first() {
    assert_eq!(largest(&[0.2, 0.4, 0.4], 1), [1]);
    assert_eq!(largest(&[0.25; 4], 2), [0, 1]);
}

#[test]
fn more_experts_a_token_than_experts_are_refused_with_everything_else() {
    let config = ExpertsConfig::new(2).with_top_k(3).with_capacity(0.0);
    assert_eq!(
        config.validate().expect_err("two problems").problems(),
        [
            "experts.top_k = 3 must be at most n_experts = 2: a token has no more to choose",
            "experts.capacity = 0 must be above 0, or left out",
        ]
    );
    let single = ExpertsConfig::new(2).with_top_k(1).with_renormalise(true);
    assert!(single.validate().expect_err("one problem").to_string().contains("top_k = 2 or more"));
}

#[test]
fn groups_limit_the_choice_and_corrections_move_it_by_hand() {
    let config = ExpertsConfig::new(6).with_top_k(2).with_groups(3, 1);
    // Groups of two: .9 + .1, .6 + .5, .2 + .8: the second has the best pair, though neither of its experts is the best.
    assert_eq!(config.choose(&[0.9, 0.1, 0.6, 0.5, 0.2, 0.8]), [2, 3]);
    assert_eq!(config.with_groups(3, 2).choose(&[0.9, 0.1, 0.6, 0.5, 0.2, 0.8]), [0, 2]);
    let device = Device::default();
    let mut layer = layer(ExpertsConfig::new(3).with_top_k(1).with_correction(true), &device);
    let tokens = Tensor::<2>::from_floats([[0.5, 0.3, 0.2]], &device);
    assert_eq!(layer.routes(&tokens, None).experts, [[0]]);
    layer.correction = Some(Param::from_tensor(Tensor::from_floats([0.0, 0.0, 0.4], &device)));
    let routes = layer.routes(&tokens, None);
    assert_eq!(routes.experts, [[2]]);
    // The weight is the score without the correction.
    assert_close(&layer.gates(tokens, &routes), &[0.0, 0.0, 0.2], 1e-6);
}

#[test]
fn a_shared_expert_reads_every_token_and_a_scale_all_others() {
    let device = Device::default();
    let config = ExpertsConfig::new(3).with_scores(RouterScores::Sigmoid);
    let (plain, both) = (layer(config, &device), layer(config.with_shared(2).with_scale(3.0), &device));
    let x = random(&device);
    let shared = both.shared.as_ref().expect("one for all").forward(x.clone());
    assert_close(&run(&both, x.clone(), None).0, &(run(&plain, x, None).0 * 3.0 + shared), 1e-3); // of 129
}

#[test]
fn groups_without_room_are_refused() {
    for (config, expected) in [
        (ExpertsConfig::new(6).with_groups(4, 1), "experts.n_experts = 6 must be a multiple of n_groups = 4"),
        (ExpertsConfig::new(6).with_groups(3, 4), "experts.top_groups = 4 of n_groups = 3 must have room"),
        (ExpertsConfig::new(6).with_groups(6, 1), "must have room for top_k = 2 experts"),
        (ExpertsConfig::new(6).with_scale(0.0), "experts.scale = 0 must be above 0"),
    ] {
        let error = config.validate().expect_err("no room").to_string();
        assert!(error.contains(expected), "{error}");
    }
}
