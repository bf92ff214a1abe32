//! Violations that the checks must find, and what they must let pass.

use burn::tensor::{Bool, Int};

use super::*;
use crate::position::{PositionScheme, Positions, Sinusoidal};

fn x() -> Tensor<3> {
    noise([1, 4, 2], 0, &Device::default())
}

#[test]
fn a_leak_is_found() {
    assert_eq!(causality(|x| x.cumsum(1), x(), 1e-5), Ok(()));
    let leak = causality(|x| x.clone() + x.mean_dim(1), x(), 1e-5).expect_err("the mean sees the future");
    assert_eq!(leak.location, "token 1");
}

#[test]
fn a_step_that_forgets_is_found() {
    let forgets = |part: Tensor<3>| part.cumsum(1);
    assert!(parts_equal_whole(|x| x.cumsum(1), forgets, x(), 2, 1e-5).is_err());
    assert_eq!(parts_equal_whole(|x| x * 2.0, |part| part * 2.0, x(), 3, 1e-6), Ok(()));
}

#[test]
fn padding_that_is_seen_or_counted_is_found() {
    let mask = |x: Tensor<3>, flags: Tensor<2, Bool>| x.mask_fill(flags.unsqueeze_dim::<3>(2).expand([1, 7, 2]), 0);
    let seen = |x: Tensor<3>, _: Tensor<2, Bool>| x.cumsum(1);
    let unseen = |x: Tensor<3>, flags: Tensor<2, Bool>| {
        if x.dims()[1] == 4 { x.cumsum(1) } else { mask(x, flags).cumsum(1) }
    };
    let counted =
        |x: Tensor<3>, _: Tensor<2, Bool>| Sinusoidal::new(2).embed(x.clone(), &Positions::contiguous(0, x.dims()[1]));
    assert_eq!(padding(unseen, x(), [1, 2], 1e-5), Ok(()));
    assert_eq!(padding(seen, x(), [0, 2], 1e-5), Ok(()));
    assert!(padding(seen, x(), [1, 0], 1e-5).is_err());
    assert_eq!(padding(counted, x(), [0, 3], 1e-5), Ok(()));
    assert!(padding(counted, x(), [3, 0], 1e-5).is_err());
}

/// Each token with that `reach` tokens before it, where both are of one document.
fn with_the_token_before(x: Tensor<3>, names: Tensor<2, Int>, reach: usize) -> Tensor<3> {
    let length = x.dims()[1];
    let others = (reach..length).map(|t| {
        let [here, there] = [t, t - reach].map(|t| names.clone().narrow(1, t, 1));
        let before = x.clone().narrow(1, t - reach, 1);
        let is_other = here.not_equal(there).unsqueeze_dim::<3>(2).expand(before.dims());
        before.mask_fill(is_other, 0.0)
    });
    let first = x.clone().narrow(1, 0, reach.min(length)).zeros_like();
    let before = Tensor::cat(std::iter::once(first).chain(others).collect(), 1);
    x + before
}

#[test]
fn documents_that_see_each_other_are_found() {
    let blind = |x: Tensor<3>, names: Tensor<2, Int>| with_the_token_before(x, names.zeros_like(), 1);
    let all = [2, 1, 1];
    assert_eq!(documents(|x, names| with_the_token_before(x, names, 1), x(), &all, 1e-5), Ok(()));
    assert_eq!(documents(|x, names| with_the_token_before(x, names, 2), x(), &all, 1e-5), Ok(()));
    assert_eq!(documents(blind, x(), &all, 1e-5).expect_err("the token before").location, "document 1");
    assert_eq!(documents(blind, x(), &[4], 1e-5), Ok(()));
}

#[test]
#[should_panic(expected = "documents of [2, 1] tokens are not the 4 tokens of a row")]
fn documents_of_other_lengths_are_refused() {
    let _ = documents(|x, _| x, x(), &[2, 1], 1e-5);
}

#[test]
fn weights_that_are_none_are_found() {
    let device = Device::default();
    let weights = |row: [f32; 2]| rows_sum_to_one(Tensor::from_floats([[[[0.5, 0.5], row]]], &device), 1e-5);
    assert_eq!(weights([0.25, 0.75]), Ok(()));
    assert_eq!(weights([0.25, 0.25]).expect_err("a half").property, "rows of weights sum to 1");
    assert_eq!(weights([-0.25, 1.25]).expect_err("a negative").property, "weights are not negative");
    assert!(weights([f32::NAN, 1.0]).is_err());
}

#[test]
fn what_cannot_be_compared_is_a_violation() {
    let nan = |x: Tensor<3>| x * f64::NAN;
    let other_shape = |x: Tensor<3>| if x.dims()[0] == 1 { x.mean_dim(2) } else { x };
    let two = || noise([2, 4, 2], 0, &Device::default());
    let empty = |shape| Tensor::<3>::zeros(shape, &Device::default());
    let at = |result: Result<(), Violation>| result.expect_err("nothing to compare").location;
    assert_eq!(at(causality(nan, x(), 1e-5)), "token 1");
    assert_eq!(at(causality(|x| x, empty([1, 1, 2]), 1e-5)), "no tokens after the first");
    assert_eq!(at(causality(|x| x, empty([0, 4, 2]), 1e-5)), "token 1");
    assert_eq!(at(parts_equal_whole(nan, nan, x(), 2, 1e-5)), "token 0");
    assert_eq!(at(parts_equal_whole(|x| x, |x| x, empty([1, 0, 2]), 2, 1e-5)), "no tokens");
    assert_eq!(at(batch_independence(nan, two(), 1e-5)), "row 0");
    assert_eq!(at(batch_independence(other_shape, two(), 1e-5)), "row 0");
    assert_eq!(at(batch_independence(|x| x, empty([0, 4, 2]), 1e-5)), "no rows");
    assert_eq!(at(padding(|x, _| x * f64::NAN, two(), [1, 0], 1e-5)), "row 0");
    assert_eq!(at(padding(|x, _| x, empty([0, 4, 2]), [0, 0], 1e-5)), "no rows");
    assert_eq!(at(documents(|x, _| x * f64::NAN, x(), &[3, 1], 1e-5)), "document 0");
    assert_eq!(at(documents(|x, _| x, empty([1, 0, 2]), &[], 1e-5)), "no documents");
    assert_eq!(at(permutation(nan, x(), 1e-5)), "order [3, 2, 1, 0]");
    assert_eq!(at(permutation(|x| x, empty([1, 1, 2]), 1e-5)), "no tokens after the first");
    assert_eq!(at(shift(|x, _| x * f64::NAN, x(), 1e-5)), "position 1");
    assert_eq!(at(shift(|x, _| x, empty([1, 0, 2]), 1e-5)), "position 1");
    assert_eq!(at(rows_sum_to_one(Tensor::zeros([1, 0, 2, 2], &Device::default()), 1e-5)), "no heads");
}

#[test]
#[cfg(feature = "autodiff")]
fn a_wrong_gradient_is_found() {
    assert_eq!(gradients(|x: Tensor<3>| x.powi_scalar(3).sum(), x(), 1e-2), Ok(()));
    assert!(gradients(|x: Tensor<3>| x.clone().detach().mul(x).sum(), x(), 1e-2).is_err());
}

#[test]
#[cfg(feature = "autodiff")]
fn one_direction_without_a_slope_is_a_violation() {
    // One call for the gradient, and ten for each direction.
    let calls = std::cell::Cell::new(0);
    let sum = |x: Tensor<3>| {
        calls.set(calls.get() + 1);
        if (12..22).contains(&calls.get()) { x.sum() * f64::NAN } else { x.sum() }
    };
    let violation = gradients(sum, x(), 1e-2).expect_err("the second direction has no slope");
    assert!(violation.difference.is_nan() && violation.location == "direction 1", "{violation}");
    assert_eq!(gradients(|x: Tensor<3>| x.sum(), x(), 1e-2), Ok(()));
}
