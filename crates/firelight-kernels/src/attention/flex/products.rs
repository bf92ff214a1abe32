//! The two products of the forward pass, of queries with keys and of weights with values, in two ways.

use crate::flex::halves::{Packed, Units};
use crate::flex::{Matrix, MatrixMut, Number, Real, product};
use burn::tensor::bf16;

/// What a task forms its products with, from queries of type `Q` and keys and values of type `S`.
pub(super) trait Products<T, Q, S> {
    /// Takes the queries of a tile.
    fn begin(&mut self, query: Matrix<'_, Q>);
    /// `scores = scale * query keyᵀ`, in whole rows.
    fn scores(&mut self, scores: &mut [T], query: Matrix<'_, Q>, key: Matrix<'_, S>, scale: T);
    /// `means += weights value`, both in whole rows.
    fn add_means(&mut self, means: &mut [T], weights: &[T], value: Matrix<'_, S>);
}

/// Products of `f32` or `f64`. Keys and values that are stored as another type are widened tile by tile.
pub(super) struct Widened<T> {
    room: Vec<T>,
}

impl<T: Real> Widened<T> {
    /// Room for the numbers of a tile of keys or values; none where they are read as they lie.
    pub(super) fn new<S: Number>(numbers: usize) -> Self {
        Self { room: vec![T::ZERO; if S::IS_SUM { 0 } else { numbers }] }
    }
}

impl<T: Real, S: Number<Sum = T>> Products<T, T, S> for Widened<T> {
    fn begin(&mut self, _query: Matrix<'_, T>) {}

    fn scores(&mut self, scores: &mut [T], query: Matrix<'_, T>, key: Matrix<'_, S>, scale: T) {
        let scores = MatrixMut::rows(scores, key.shape()[0]);
        let key = S::in_sums(key, &mut self.room);
        product(scores, false, query, key.transposed(), scale, false);
    }

    fn add_means(&mut self, means: &mut [T], weights: &[T], value: Matrix<'_, S>) {
        let [keys, width] = value.shape();
        let value = S::in_sums(value, &mut self.room);
        product(MatrixMut::rows(means, width), true, Matrix::rows(weights, keys), value, T::ONE, false);
    }
}

/// Products of `bf16` in tile registers. Queries, keys and values are multiplied as they are, weights as two parts of `bf16`: they miss at most
/// `2^-17` of a weight, which is far less than the rounding of the output.
pub(super) struct Tiled {
    queries: Packed<bf16>,
    weights: Packed<f32>,
    /// The keys of a tile, or the values.
    right: Packed<bf16>,
}

impl Tiled {
    pub(super) fn new(units: Units) -> Self {
        Self { queries: Packed::new(units), weights: Packed::new(units), right: Packed::new(units) }
    }
}

impl Products<f32, bf16, bf16> for Tiled {
    fn begin(&mut self, query: Matrix<'_, bf16>) {
        self.queries.pack_rows(query);
    }

    fn scores(&mut self, scores: &mut [f32], _query: Matrix<'_, bf16>, key: Matrix<'_, bf16>, scale: f32) {
        let keys = self.right.pack_columns(key.transposed());
        self.queries.multiply_into(
            scores,
            keys,
            #[inline(always)]
            |_, sum| scale * sum,
        );
    }

    fn add_means(&mut self, means: &mut [f32], weights: &[f32], value: Matrix<'_, bf16>) {
        let weights = self.weights.pack_rows(Matrix::rows(weights, value.shape()[0]));
        weights.multiply_into(
            means,
            self.right.pack_columns(value),
            #[inline(always)]
            |mean, sum| mean + sum,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::forward::forward;
    use super::super::{Inputs, in_tiles};
    use super::*;
    use crate::attention::AttentionMask;
    use crate::attention::extension::Settings;
    use crate::flex::{rounded, values, widened};
    use crate::rule::PairRule;
    use crate::testing::{Case, random};
    use crate::{AttentionOptions, Difference, assert_same_bits};
    use burn::backend::Flex;
    use burn::backend::flex::FlexTensor;
    use burn::tensor::TensorData;

    /// Tensors of several tiles that are not whole ones, in `bf16`.
    fn inputs(rule: PairRule) -> Inputs<Flex> {
        let case = Case::plain();
        let numbers = |shape: [usize; 4], seed| random::<4>(&case, shape, seed);
        let [query, key, value] = [([2, 4, 130, 40], 1), ([2, 2, 530, 40], 2), ([2, 2, 530, 33], 3)]
            .map(|(shape, seed)| numbers(shape, seed));
        let options = AttentionOptions::default().with_mask(AttentionMask::rule(rule)).with_soft_cap(Some(3.0));
        let settings = Settings::new(&options, &query);
        let [query, key, value] = [query, key, value].map(|tensor| rounded(FlexTensor::from_data(tensor.into_data())));
        Inputs { query, key, value, bias: None, sinks: None, padding: None, hidden: None, settings, seed: None }
    }

    fn data(tensor: &FlexTensor) -> TensorData {
        TensorData::new(values::<f32>(&tensor.to_contiguous()).to_vec(), tensor.layout().shape().clone())
    }

    #[test]
    fn every_unit_attends_as_products_of_f32_do() {
        for rule in [PairRule::Full, PairRule::Causal, PairRule::window(50, 20)] {
            let halves = inputs(rule);
            let found: Vec<_> = Units::all().into_iter().map(|units| in_tiles(&halves, units)).collect();
            let mut wide = inputs(halves.settings.rule.clone());
            [&mut wide.query, &mut wide.key, &mut wide.value]
                .into_iter()
                .for_each(|tensor| *tensor = widened(tensor.clone()));
            let expected = forward::<f32, f32, f32, _>(&wide, Widened::new::<f32>);
            for found in &found {
                for (found, expected) in found.iter().zip(&expected) {
                    let difference = Difference::between(&data(found), &data(expected));
                    assert!(difference.relative(1.0) < 2e-5, "{difference:?}");
                }
            }
            let bits = |outputs: &[FlexTensor; 2]| values::<f32>(&outputs[0].to_contiguous()).to_vec();
            found[1..].iter().for_each(|other| assert_same_bits(&bits(&found[0]), &bits(other)));
        }
    }
}
