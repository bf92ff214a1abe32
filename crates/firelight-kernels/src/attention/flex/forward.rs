//! The forward pass: for every tile of queries the tiles of keys go by, and maximum, sum and mean are kept up to date.

use super::problem::{Problem, Tensors};
use super::products::Products;
use super::{Inputs, PARALLEL, QUERIES};
use crate::flex::view::{Rows, into_tensor, is_by_token};
use crate::flex::{Number, Real, filled, maximum, sum, vectorised};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;
use std::ops::Range;

/// Queries are stored as numbers of type `Q`, keys and values of type `S`. Each task has its own `products`, for tiles of at most so many numbers
/// of a key or value.
pub(super) fn forward<T: Real, Q: Number<Sum = T>, S: Number<Sum = T>, P: Products<T, Q, S>>(
    inputs: &Inputs<Flex>,
    products: impl Fn(usize) -> P + Sync,
) -> [FlexTensor; 2] {
    let tensors = Tensors::new(inputs);
    let problem = Problem::<T, S, Q>::new(inputs, &tensors);
    let [batch, heads, queries] = problem.queries();
    let (shape, by_token) = ([batch, heads, queries, problem.value.shape[3]], is_by_token(&inputs.query));
    let mut statistics = Vec::new();
    let output = filled(shape.iter().product(), |output| {
        statistics = filled(batch * heads * queries * 2, |statistics| {
            let output = Rows::new(output, shape, by_token);
            let statistics = Rows::new(statistics, [batch, heads, queries, 2], false);
            all_tiles(&problem, products, &output, &statistics);
        });
    });
    [into_tensor(output, shape, by_token), into_tensor(statistics, [batch, heads, queries, 2], false)]
}

fn all_tiles<T: Real, Q: Number<Sum = T>, S: Number<Sum = T>, P: Products<T, Q, S>>(
    problem: &Problem<'_, T, S, Q>,
    products: impl Fn(usize) -> P + Sync,
    output: &Rows<'_, T>,
    statistics: &Rows<'_, T>,
) {
    let [batch, heads, _] = problem.queries();
    let heads = (0..batch).flat_map(|batch| (0..heads).map(move |head| [batch, head]));
    let tasks: Vec<_> = heads.flat_map(|head| problem.query_tiles().map(move |queries| (head, queries))).collect();
    let begin = || Scratch::new(problem, products(problem.numbers_of_tile()));
    let run = |scratch: &mut Scratch<T, P>, (head, queries): ([usize; 2], Range<usize>)| {
        scratch.attend(problem, head, &queries);
        scratch.store(head, &queries, output, statistics);
    };
    if problem.work() < PARALLEL {
        let mut scratch = begin();
        tasks.into_iter().for_each(|task| run(&mut scratch, task));
    } else {
        tasks.into_par_iter().for_each_init(begin, run);
    }
}

/// The state of a tile of queries.
struct Scratch<T, P> {
    products: P,
    scores: Vec<T>,
    factors: Vec<T>,
    means: Vec<T>,
    largest: [T; QUERIES],
    sums: [T; QUERIES],
    width: usize,
}

impl<T: Real, P> Scratch<T, P> {
    fn new<Q: Number<Sum = T>, S: Number<Sum = T>>(problem: &Problem<'_, T, S, Q>, products: P) -> Self {
        let ([queries, keys], width) = (problem.tile(), problem.value.shape[3]);
        let [scores, factors, means] = [queries * keys, keys, queries * width].map(|length| vec![T::ZERO; length]);
        Self { products, scores, factors, means, largest: [T::ZERO; QUERIES], sums: [T::ZERO; QUERIES], width }
    }

    fn attend<Q: Number<Sum = T>, S: Number<Sum = T>>(
        &mut self,
        problem: &Problem<'_, T, S, Q>,
        [batch, head]: [usize; 2],
        queries: &Range<usize>,
    ) where
        P: Products<T, Q, S>,
    {
        let group = problem.group(head);
        self.largest.fill(problem.sink(head));
        self.sums.fill(T::ONE); // The exponential of the sink; the first score is infinitely larger than none.
        self.means.fill(T::ZERO);
        let query = problem.query.matrix(batch, head, queries);
        self.products.begin(query);
        for tile in problem.key_tiles(batch, head, queries) {
            let keys = &tile.keys;
            #[cfg(test)]
            problem.visits.note(queries, keys);
            let [key, value] = [&problem.key, &problem.value].map(|view| view.matrix(batch, group, keys));
            let scores = &mut self.scores[..queries.len() * keys.len()];
            self.products.scores(scores, query, key, problem.scale);
            problem.finish_scores([batch, head], queries, tile, scores, None);
            self.update(problem, [batch, head], queries, keys);
            let weights = &self.scores[..queries.len() * keys.len()];
            self.products.add_means(&mut self.means[..queries.len() * self.width], weights, value);
        }
    }

    /// Scores become exponentials relative to the largest so far; what was summed before is made relative to it too.
    fn update<Q: Number<Sum = T>, S: Number<Sum = T>>(
        &mut self,
        problem: &Problem<'_, T, S, Q>,
        [batch, head]: [usize; 2],
        queries: &Range<usize>,
        keys: &Range<usize>,
    ) {
        let Self { scores, factors, means, largest, sums, width, products: _ } = self;
        let factors = &mut factors[..keys.len()];
        vectorised(
            #[inline(always)]
            || {
                for (i, query) in queries.clone().enumerate() {
                    let scores = &mut scores[i * keys.len()..(i + 1) * keys.len()];
                    let before = largest[i];
                    let highest = maximum(scores);
                    largest[i] = if highest <= before { before } else { highest };
                    if largest[i] == T::NEG_INFINITY {
                        scores.fill(T::ZERO);
                        continue;
                    }
                    for score in scores.iter_mut() {
                        *score = (*score - largest[i]).exp();
                    }
                    let shrink = (before - largest[i]).exp();
                    sums[i] = sums[i] * shrink + sum([scores], |[weight]| weight);
                    means[i * *width..(i + 1) * *width].iter_mut().for_each(|mean| *mean *= shrink);
                    if let Some(dropout) = &problem.dropout {
                        dropout.fill(problem.row(batch, head, query), keys.start, factors);
                        scores.iter_mut().zip(&*factors).for_each(|(weight, &factor)| *weight *= factor);
                    }
                }
            },
        );
    }

    /// A query that saw nothing gets zeros, and statistics that give its keys no weight.
    fn store(&self, [batch, head]: [usize; 2], queries: &Range<usize>, output: &Rows<'_, T>, statistics: &Rows<'_, T>) {
        for (i, query) in queries.clone().enumerate() {
            let blind = self.largest[i] == T::NEG_INFINITY;
            let (largest, share) = if blind { (T::ZERO, T::ZERO) } else { (self.largest[i], T::ONE / self.sums[i]) };
            // SAFETY: this task alone has the queries of this tile.
            let (out, kept) = unsafe { (output.row(batch, head, query), statistics.row(batch, head, query)) };
            let means = &self.means[i * self.width..(i + 1) * self.width];
            out.iter_mut().zip(means).for_each(|(out, &mean)| *out = mean * share);
            kept.copy_from_slice(&[largest, share]);
        }
    }
}
