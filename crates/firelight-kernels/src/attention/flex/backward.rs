//! The backward pass: every tile of scores is formed again, and its weights give parts of all gradients.
//!
//! With weights `P = softmax(S)`, dropped to `P'`, and `D = Σ_f grad output` for every query:
//! `dV = P'ᵀ grad`, `dP = grad Vᵀ` dropped alike, `dS = P (dP - D)`, `dQ = dS K`, `dK = dSᵀ Q`. Sinks have their gradient from
//! the blocks' operations.

use super::problem::{KeyTile, Problem, Tensors};
use super::{Inputs, PARALLEL, QUERIES};
use crate::flex::view::{Rows, View, into_tensor, is_by_token, readable};
use crate::flex::{Matrix, MatrixMut, Real, add_to, for_each_pair_of_blocks, product, sum, vectorised};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;
use std::ops::Range;

pub(super) fn backward<T: Real>(
    inputs: &Inputs<Flex>,
    outputs: [FlexTensor; 2],
    grad: FlexTensor,
    with_bias: bool,
) -> ([FlexTensor; 3], Option<FlexTensor>) {
    let tensors = Tensors::new(inputs);
    let problem = Problem::<T, T>::new(inputs, &tensors);
    let [output, statistics] = outputs;
    let grad = readable(&grad);
    let results = [&inputs.query, &inputs.key, &inputs.value].map(Gradient::<T>::new);
    let bias = inputs.bias.as_ref().filter(|_| with_bias).map(Gradient::<T>::in_rows);
    let parts = parts(&problem, bias.is_some());
    let zeros = |place: usize, parts: usize| (0..parts).map(|_| results[place].zeros()).collect::<Vec<_>>();
    let (mut query, mut key, mut value) = (results[0].zeros(), zeros(1, parts), zeros(2, parts));
    let mut bias_buffer = bias.as_ref().map(Gradient::zeros);
    let pass = Pass {
        problem: &problem,
        output: View::new(&output),
        statistics: View::new(&statistics),
        grad: View::new(&grad),
        d_query: results[0].rows(&mut query),
        d_key: key.iter_mut().map(|buffer| results[1].rows(buffer)).collect(),
        d_value: value.iter_mut().map(|buffer| results[2].rows(buffer)).collect(),
        d_bias: bias.as_ref().zip(bias_buffer.as_mut()).map(|(bias, buffer)| (bias.shape, bias.rows(buffer))),
    };
    pass.run();
    let [d_query, d_key, d_value] = results;
    let gradients = [d_query.into_tensor(query), d_key.into_tensor(joined(key)), d_value.into_tensor(joined(value))];
    (gradients, bias.zip(bias_buffer).map(|(bias, buffer)| bias.into_tensor(buffer)))
}

/// Tasks that a long backward pass is made of at least.
const TASKS: usize = 8;

/// How many tasks share a batch row and a key head, each with gradients of key and value of its own: as many as it takes
/// where there are few of both. The number of threads has no say, so that it decides no bit; and a bias, whose rows several
/// queries may share, is for one task alone.
fn parts<T: Real>(problem: &Problem<'_, T>, with_bias: bool) -> usize {
    let [batch, groups, ..] = problem.key.shape;
    let tiles = problem.heads_of_group() * problem.query_tiles().count();
    if with_bias || problem.work() < PARALLEL { 1 } else { TASKS.div_ceil(batch * groups).clamp(1, tiles) }
}

/// The sum of the gradients of all parts, in their order.
fn joined<T: Real>(parts: Vec<Vec<T>>) -> Vec<T> {
    let add = |mut sum: Vec<T>, mut part: Vec<T>| {
        for_each_pair_of_blocks(&mut sum, &mut part, 1, |_, sum, part| add_to(sum, part));
        sum
    };
    parts.into_iter().reduce(add).expect("there is a part")
}

/// Shape and order of a gradient: as the tensor that it belongs to.
struct Gradient<T> {
    shape: [usize; 4],
    by_token: bool,
    number: std::marker::PhantomData<T>,
}

impl<T: Real> Gradient<T> {
    fn new(tensor: &FlexTensor) -> Self {
        Self { by_token: is_by_token(tensor), ..Self::in_rows(tensor) }
    }

    fn in_rows(tensor: &FlexTensor) -> Self {
        let shape = std::array::from_fn(|d| tensor.layout().shape()[d]);
        Self { shape, by_token: false, number: std::marker::PhantomData }
    }

    fn zeros(&self) -> Vec<T> {
        vec![T::ZERO; self.shape.iter().product()]
    }

    fn rows<'a>(&self, buffer: &'a mut [T]) -> Rows<'a, T> {
        Rows::new(buffer, self.shape, self.by_token)
    }

    fn into_tensor(self, buffer: Vec<T>) -> FlexTensor {
        into_tensor(buffer, self.shape, self.by_token)
    }
}

struct Pass<'a, T> {
    problem: &'a Problem<'a, T>,
    output: View<'a, T>,
    statistics: View<'a, T>,
    grad: View<'a, T>,
    d_query: Rows<'a, T>,
    /// One for each part of the queries.
    d_key: Vec<Rows<'a, T>>,
    d_value: Vec<Rows<'a, T>>,
    d_bias: Option<([usize; 4], Rows<'a, T>)>,
}

impl<T: Real> Pass<'_, T> {
    /// A task has a part of the queries of a key head of a batch row, or all of several where they share a gradient of the
    /// bias: no two tasks write to one place, and each writes in one order.
    fn run(&self) {
        let [batch, groups, ..] = self.problem.key.shape;
        debug_assert!(self.d_bias.is_none() || self.d_key.len() == 1, "parts would share rows of the bias");
        let shared = |dimension: usize| self.d_bias.as_ref().is_some_and(|(shape, _)| shape[dimension] == 1);
        let batches: Vec<Vec<usize>> = split(batch, shared(0));
        let groups: Vec<Vec<usize>> = split(groups, shared(1));
        let tasks = batches.iter().flat_map(|batches| groups.iter().map(move |groups| (batches, groups)));
        let tasks: Vec<_> = tasks.flat_map(|task| (0..self.d_key.len()).map(move |part| (task, part))).collect();
        let run = |scratch: &mut Scratch<T>, ((batches, groups), part): ((&Vec<usize>, &Vec<usize>), usize)| {
            for &batch in batches {
                groups.iter().for_each(|&group| self.group(scratch, batch, group, part));
            }
        };
        if self.problem.work() < PARALLEL {
            let mut scratch = Scratch::new(self.problem);
            tasks.into_iter().for_each(|task| run(&mut scratch, task));
        } else {
            tasks.into_par_iter().for_each_init(|| Scratch::new(self.problem), run);
        }
    }

    /// Every so many tiles, the heads of a key head in turn: so causal parts have about as much to do as one another.
    fn group(&self, scratch: &mut Scratch<T>, batch: usize, group: usize, part: usize) {
        let heads = self.problem.heads_of_group();
        let heads = group * heads..(group + 1) * heads;
        let queries = self.problem.query_tiles();
        let tiles = queries.flat_map(|queries| heads.clone().map(move |head| (head, queries.clone())));
        for (head, queries) in tiles.skip(part).step_by(self.d_key.len()) {
            scratch.means(self, batch, head, &queries);
            for keys in self.problem.key_tiles(batch, head, &queries) {
                self.tile(scratch, [batch, head, group, part], &queries, keys);
            }
        }
    }

    fn tile(
        &self,
        scratch: &mut Scratch<T>,
        [batch, head, group, part]: [usize; 4],
        queries: &Range<usize>,
        tile: &KeyTile,
    ) {
        let (problem, keys) = (self.problem, &tile.keys);
        #[cfg(test)]
        problem.visits.note(queries, keys);
        let Scratch { weights, dropped, slopes, gradients, means, factors } = scratch;
        let size = queries.len() * keys.len();
        let (weights, gradients) = (&mut weights[..size], &mut gradients[..size]);
        let mut slopes = slopes.as_mut().map(|slopes| &mut slopes[..size]);
        let key = problem.key.matrix(batch, group, keys);
        let query = problem.query.matrix(batch, head, queries);
        product(MatrixMut::rows(weights, keys.len()), false, query, key.transposed(), problem.scale, false);
        problem.finish_scores([batch, head], queries, tile, weights, slopes.as_deref_mut());
        self.weigh([batch, head], queries, keys, weights);
        let grad = self.grad.matrix(batch, head, queries);
        let value = problem.value.matrix(batch, group, keys).transposed();
        product(MatrixMut::rows(gradients, keys.len()), false, grad, value, T::ONE, false);
        let mut kept = &*weights;
        if let (Some(dropout), Some(dropped)) = (&problem.dropout, dropped) {
            let (dropped, factors) = (&mut dropped[..size], &mut factors[..keys.len()]);
            vectorised(
                #[inline(always)]
                || {
                    for (i, query) in queries.clone().enumerate() {
                        dropout.fill(problem.row(batch, head, query), keys.start, factors);
                        for (k, &factor) in factors.iter().enumerate() {
                            dropped[i * keys.len() + k] = weights[i * keys.len() + k] * factor;
                            gradients[i * keys.len() + k] *= factor;
                        }
                    }
                },
            );
            kept = dropped;
        }
        // SAFETY: this task alone has these queries, and of this batch row and key head this part.
        let (d_query, d_key, d_value) = unsafe {
            (
                self.d_query.matrix(batch, head, queries),
                self.d_key[part].matrix(batch, group, keys),
                self.d_value[part].matrix(batch, group, keys),
            )
        };
        product(d_value, true, Matrix::rows(kept, keys.len()).transposed(), grad, T::ONE, false);
        vectorised(
            #[inline(always)]
            || {
                for (i, &mean) in means[..queries.len()].iter().enumerate() {
                    let row = i * keys.len()..(i + 1) * keys.len();
                    for (x, &weight) in gradients[row.clone()].iter_mut().zip(&weights[row]) {
                        *x = (*x - mean) * weight;
                    }
                }
            },
        );
        self.add_to_bias([batch, head], queries, keys, gradients);
        if let Some(slopes) = slopes {
            gradients.iter_mut().zip(slopes).for_each(|(gradient, slope)| *gradient *= *slope);
        }
        let gradients = Matrix::rows(gradients, keys.len());
        product(d_query, true, gradients, key, problem.scale, false);
        product(d_key, true, gradients.transposed(), query, problem.scale, false);
    }

    /// Scores become weights.
    fn weigh(&self, [batch, head]: [usize; 2], queries: &Range<usize>, keys: &Range<usize>, scores: &mut [T]) {
        vectorised(
            #[inline(always)]
            || {
                for (query, scores) in queries.clone().zip(scores.chunks_exact_mut(keys.len())) {
                    let kept = self.statistics.row(batch, head, query);
                    let (largest, share) = (kept[0], kept[1]);
                    for score in scores.iter_mut() {
                        *score = (*score - largest).exp() * share;
                    }
                }
            },
        );
    }

    /// The gradient of a bias that several weights share is the sum of theirs.
    fn add_to_bias(&self, [batch, head]: [usize; 2], queries: &Range<usize>, keys: &Range<usize>, gradients: &[T]) {
        let Some((shape, rows)) = &self.d_bias else { return };
        let place = |dimension: usize, index: usize| if shape[dimension] == 1 { 0 } else { index };
        let [_, _, all] = self.problem.queries();
        let first = |query: usize| if self.problem.by_distance { all - 1 - query } else { 0 };
        for (query, gradients) in queries.clone().zip(gradients.chunks_exact(keys.len())) {
            // SAFETY: tasks that share rows of this gradient were joined to one.
            let row = unsafe { rows.row(place(0, batch), place(1, head), place(2, query)) };
            if shape[3] == 1 {
                row[0] += sum([gradients], |[x]| x);
            } else {
                add_to(&mut row[first(query) + keys.start..][..keys.len()], gradients);
            }
        }
    }
}

/// All indices as one part, or each as its own.
fn split(count: usize, together: bool) -> Vec<Vec<usize>> {
    if together { vec![(0..count).collect()] } else { (0..count).map(|index| vec![index]).collect() }
}

/// Buffers of one tile after the other.
struct Scratch<T> {
    weights: Vec<T>,
    dropped: Option<Vec<T>>,
    slopes: Option<Vec<T>>,
    gradients: Vec<T>,
    means: [T; QUERIES],
    factors: Vec<T>,
}

impl<T: Real> Scratch<T> {
    fn new(problem: &Problem<'_, T>) -> Self {
        let [queries, keys] = problem.tile();
        let tile = || vec![T::ZERO; queries * keys];
        Self {
            weights: tile(),
            dropped: problem.dropout.map(|_| tile()),
            slopes: problem.soft_cap.map(|_| tile()),
            gradients: tile(),
            means: [T::ZERO; QUERIES],
            factors: vec![T::ZERO; keys],
        }
    }

    /// `Σ_f grad output`, which is also the mean of `dP` under the weights.
    fn means(&mut self, pass: &Pass<'_, T>, batch: usize, head: usize, queries: &Range<usize>) {
        for (mean, query) in self.means.iter_mut().zip(queries.clone()) {
            let (grad, output) = (pass.grad.row(batch, head, query), pass.output.row(batch, head, query));
            *mean = sum([grad, output], |[x, y]| x * y);
        }
    }
}
