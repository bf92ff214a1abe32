//! Weights that blocks drop: on a GPU by a seed of its own, on ndarray by the seed of the settings.

use super::*;
use crate::Difference;
use crate::recompute::{recomputed, replay::with_seeds};
use burn::module::Param;

/// Blocks of two queries, by a seed.
fn settings(options: &AttentionOptions, query: &Tensor<4>, seed: u64) -> extension::Settings {
    let block = SMALL.b * SMALL.h * SMALL.k * 2;
    extension::Settings { block, seed, ..extension::Settings::new(options, query) }
}

#[test]
fn blocks_drop_the_same_weights_in_both_passes() {
    for case in block_cases() {
        // With the identity for values and for the gradient, the output is the weights, and the gradient of the values
        // their transpose.
        let count = 6;
        let options = AttentionOptions::default().with_mask(AttentionMask::causal()).with_dropout(0.5);
        let identity = Tensor::<2>::eye(count, &case.device()).cast(case.dtype).reshape([1, 1, count, count]);
        let value = identity.clone().require_grad();
        let [query, key] = [0, 1].map(|seed| random(&case, [1, 1, count, 4], seed));
        let settings = extension::Settings { block: 2 * count, ..settings(&options, &query, 11) };
        let output = extension::attention([query, key, value.clone()], &options, settings);
        let grads = (output.clone() * identity).sum().backward();
        let weights = output.inner().swap_dims(2, 3).into_data();
        let kept = weights.iter::<f32>().filter(|&weight| weight > 0.0).count();
        assert!((1..count * (count + 1) / 2).contains(&kept), "{kept}");
        value.grad(&grads).expect("the value requires a gradient").into_data().assert_eq(&weights, true);
    }
}

/// `compare` checks the slopes of the loss, too.
#[cfg(feature = "ndarray")]
#[test]
fn blocks_with_dropout_equal_the_reference_that_drops_the_same_weights() {
    use crate::attention::blocks::dropped;
    let case = block_cases().pop().expect("ndarray is the last");
    let Sizes { b, h, q, k, .. } = SMALL;
    let place = extension::BlockDropout { queries: q, first_query: 0, first_key: 0, rate: 0.3 };
    let factors = dropped::factors(dropped::numbers(11), [b, h, q, k], place);
    let factors = TensorData::new(factors, [b, h, q, k]);
    let factors = Tensor::<4>::from_data(factors, (&case.device(), case.dtype));
    for plain in SMALL.options(&case).iter().chain(&SMALL.rules(&case)) {
        let options = plain.clone().with_dropout(place.rate);
        let fused = |inputs: [Tensor<4>; 3]| {
            let settings = settings(&options, &inputs[0], 11);
            extension::attention(inputs, &options, settings)
        };
        let slow = |[q, k, v]: [Tensor<4>; 3]| reference::mean(reference::weights(q, k, plain) * factors.clone(), v);
        compare(&case, SMALL.by_head(&case), fused, slow);
    }
}

/// The gradient that a step along itself agrees with: whoever drops other weights in the backward pass is found out.
#[test]
#[cfg_attr(not(feature = "cube"), ignore = "needs a GPU: cargo xtask test --device wgpu")]
fn blocks_with_dropout_have_the_slopes_of_their_loss() {
    alone(|| {
        let case = Case::gpu(&[1, 1]);
        let options = AttentionOptions::default().with_dropout(0.3);
        let [_, key, value] = SMALL.by_head(&case);
        let query = random(&case, [SMALL.b, SMALL.h, SMALL.q, SMALL.e], 5).require_grad();
        let loss = |query: Tensor<4>| {
            case.device().seed(17);
            let settings = settings(&options, &query, 0);
            extension::attention([query, key.clone(), value.clone()], &options, settings).square().sum()
        };
        let gradient = query.grad(&loss(query.clone()).backward()).expect("the query requires a gradient");
        let gradient = Tensor::<4>::from_inner(gradient);
        let size = gradient.clone().square().sum().into_scalar::<f32>();
        let at = |step: f32| loss(query.clone() + gradient.clone() * step).into_scalar::<f32>();
        let slope = (at(0.02) - at(-0.02)) / 0.04;
        assert!((slope / size - 1.0).abs() < 0.01, "{slope} for {size}");
    });
}

#[test]
fn blocks_that_run_again_drop_the_same_weights() {
    alone(|| block_cases().iter().for_each(assert_dropped_again));
}

/// Asserts that attention in a part that is computed twice has the output and the gradients of the part itself.
fn assert_dropped_again(case: &Case) {
    let [rows, width] = [SMALL.b * SMALL.h * SMALL.q, SMALL.e];
    let [_, key, value] = SMALL.by_head(case);
    let weight = Param::from_tensor(random(case, [width, width], 7));
    let forward = move |weight: &Param<Tensor<2>>, inputs: Vec<Tensor<1>>| {
        let options = AttentionOptions::default().with_mask(AttentionMask::causal()).with_dropout(0.4);
        let x = inputs[0].clone().reshape([rows as i64, -1]).matmul(weight.val());
        let query = x.reshape([SMALL.b, SMALL.h, SMALL.q, SMALL.e]);
        let settings = settings(&options, &query, crate::dropout::seed(&query.device()));
        vec![extension::attention([query, key.clone(), value.clone()], &options, settings).reshape([-1])]
    };
    let run = |again: bool, seed: u64| {
        let (forward, x) = (forward.clone(), random(case, [rows * width], 5).require_grad());
        // One for the settings, and one that the generator of a GPU is set to.
        let outputs = with_seeds(vec![seed, seed + 4], || match again {
            true => recomputed(&weight, vec![x.clone()], forward),
            false => forward(&weight, vec![x.clone()]),
        });
        let grads = outputs[0].clone().square().sum().backward();
        let weight = weight.val().grad(&grads).map(Tensor::into_data);
        [Some(outputs[0].to_data()), x.grad(&grads).map(Tensor::into_data), weight]
    };
    let (found, expected) = (run(true, 5), run(false, 5));
    let tolerance = if case.is_on_cpu() { 0.0 } else { 1e-4 }; // A GPU that tunes its kernels need not repeat the last bits.
    found.iter().zip(&expected).for_each(|(found, expected)| assert_close(found, expected, tolerance));
    let others = run(false, 6);
    assert!(found.iter().zip(&others).all(|(found, other)| Difference::between(found, other).absolute > 1e-3));
}
