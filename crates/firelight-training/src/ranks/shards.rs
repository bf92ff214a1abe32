//! Which rank updates which parameters, where each keeps the optimiser's state of its share alone, and how the others get what it has updated.
//!
//! Source: Rajbhandari et al. 2020, ZeRO, section 5.1, stage 1 (<https://arxiv.org/abs/1910.02054>). Shares here are whole parameters: the
//! state of some rules, such as Adafactor's rows and columns, is not one of single numbers.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Tensor;

use super::Ranks;
use super::buckets::{BUCKET, Take};
use super::gradients::host;
use super::incoming::Incoming;
use crate::{CommunicatorError, TrainingError};

/// Which rank updates which of the trained parameters. Every rank finds the same, for it depends on their sizes and the world alone.
#[derive(Debug)]
pub(crate) struct Shards {
    rank: usize,
    owners: HashMap<ParamId, usize>,
    /// How many numbers each rank updates.
    elements: Vec<usize>,
}

impl Shards {
    /// The shares of the trained parameters of `model`; none where one rank has them all.
    pub(crate) fn of<M: Module>(model: &M, ranks: &Ranks) -> Option<Self> {
        if ranks.are_one() {
            return None;
        }
        let (rank, world) = (ranks.0.rank(), ranks.0.world());
        let mut sizes = Sizes::default();
        model.visit(&mut sizes);
        let (ids, sizes): (Vec<_>, Vec<_>) = sizes.found.into_iter().unzip();
        let (owners, elements) = balanced(&sizes, world);
        Some(Self { rank, owners: ids.into_iter().zip(owners).collect(), elements })
    }

    /// Whether this rank updates the parameter.
    pub(crate) fn is_own(&self, id: ParamId) -> bool {
        self.owners.get(&id) == Some(&self.rank)
    }

    /// The gradients of the parameters that this rank updates.
    pub(crate) fn own<M: Module>(&self, model: &M, mut gradients: GradientsParams) -> GradientsParams {
        model.visit(&mut Leave { shards: self, gradients: &mut gradients });
        gradients
    }
}

/// The owner of each parameter, and how many numbers each rank has: the largest parameter first, each to the rank that has the fewest numbers so
/// far, the first one of several. No rank has more than the mean and one parameter.
///
/// Source: Graham 1969, Bounds on multiprocessing timing anomalies, the rule LPT.
fn balanced(sizes: &[usize], world: usize) -> (Vec<usize>, Vec<usize>) {
    let (mut owners, mut held) = (vec![0; sizes.len()], vec![0; world]);
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&index| Reverse(sizes[index])); // stable: equal ones stay in the order of the model
    for index in order {
        let rank = (0..world).min_by_key(|&rank| held[rank]).unwrap_or(0);
        owners[index] = rank;
        held[rank] += sizes[index];
    }
    (owners, held)
}

/// Knows the trained parameters that it has not met yet.
#[derive(Default)]
pub(super) struct Trained(HashSet<ParamId>);

impl Trained {
    /// Whether the parameter is trained, and has no place before this one.
    pub(super) fn is_new<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> bool {
        param.val().is_require_grad() && self.0.insert(param.id)
    }
}

#[derive(Default)]
struct Sizes {
    trained: Trained,
    found: Vec<(ParamId, usize)>,
}

impl ModuleVisitor for Sizes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.trained.is_new(param) {
            self.found.push((param.id, param.val().shape().num_elements()));
        }
    }
}

/// Leaves the gradients out that other ranks need.
struct Leave<'a> {
    shards: &'a Shards,
    gradients: &'a mut GradientsParams,
}

impl ModuleVisitor for Leave<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.shards.is_own(param.id) {
            self.gradients.remove::<D>(param.id);
        }
    }
}

impl Ranks {
    /// `model`, of which this rank has updated its share, with all parameters as their ranks have updated them.
    pub(crate) fn all_updated<M: Module>(&self, model: M, shards: &Shards) -> Result<M, TrainingError> {
        self.all_updated_in(BUCKET, model, shards)
    }

    /// The same, with so many numbers of all ranks at a time.
    fn all_updated_in<M: Module>(&self, bucket: usize, model: M, shards: &Shards) -> Result<M, TrainingError> {
        let mut expect = Expect { shards, trained: Trained::default(), incoming: Vec::new() };
        expect.incoming.resize_with(self.0.world(), Incoming::default);
        model.visit(&mut expect);
        let mut pieces = Pieces::new(self, bucket, expect);
        let mut hand_over = HandOver { shards, trained: Trained::default(), pieces: &mut pieces, failure: None };
        model.visit(&mut hand_over);
        hand_over.failure.map_or(Ok(()), Err)?;
        let complete = pieces.finish()?;
        Ok(model.map(&mut Replace { complete }))
    }

    /// The optimiser's states of the other ranks, in Burn's format, on the first one; nothing on the others.
    pub(crate) fn states_of_others(&self, optimizer: &ModuleOptimizer) -> Result<Vec<Vec<u8>>, TrainingError> {
        let own = match self.is_first() {
            true => Vec::new(),
            false => optimizer
                .to_record()
                .into_bytes()
                .map_err(TrainingError::file("write", "optimizer.bpk".as_ref()))?
                .to_vec(),
        };
        let all = self.at_first(size_of::<f32>() * BUCKET, &own)?;
        Ok(all.into_iter().skip(1).collect())
    }

    /// The bytes of each rank on the first one, about `bucket` of all ranks at a time; none on the others.
    fn at_first(&self, bucket: usize, own: &[u8]) -> Result<Vec<Vec<u8>>, CommunicatorError> {
        let lengths = self.0.gather("checkpoint", (own.len() as u64).to_le_bytes().to_vec())?;
        let lengths = lengths.iter().filter_map(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?) as usize));
        let piece = (bucket / self.0.world()).max(1);
        let pieces = lengths.max().unwrap_or(0).div_ceil(piece);
        let mut all = vec![Vec::new(); if self.is_first() { self.0.world() } else { 0 }];
        for number in 0..pieces {
            let part = own.chunks(piece).nth(number).unwrap_or_default();
            let given = self.0.gather("checkpoint", part.to_vec())?;
            all.iter_mut().zip(given.iter()).for_each(|(all, given)| all.extend_from_slice(given));
        }
        Ok(all)
    }
}

/// Expects the parameters that other ranks update, in the order in which each of them hands its own over.
struct Expect<'a> {
    shards: &'a Shards,
    trained: Trained,
    /// Of each rank.
    incoming: Vec<Incoming>,
}

impl ModuleVisitor for Expect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.trained.is_new(param) {
            return;
        }
        match self.shards.owners.get(&param.id) {
            Some(&owner) if owner != self.shards.rank => self.incoming[owner].expect(param),
            _ => {}
        }
    }
}

/// Numbers of all ranks, which each hands over in pieces of its own at the same time.
struct Pieces<'a> {
    ranks: &'a Ranks,
    size: usize,
    filling: Vec<f32>,
    /// How many pieces are to come; a rank that has fewer numbers than another hands empty ones over in the end.
    left: usize,
    incoming: Vec<Incoming>,
}

impl<'a> Pieces<'a> {
    fn new(ranks: &'a Ranks, bucket: usize, Expect { shards, incoming, .. }: Expect) -> Self {
        let size = (bucket / incoming.len()).max(1);
        let left = shards.elements.iter().max().map_or(0, |most| most.div_ceil(size));
        Self { ranks, size, filling: Vec::new(), left, incoming }
    }

    fn push(&mut self, mut numbers: &[f32]) -> Result<(), CommunicatorError> {
        while !numbers.is_empty() {
            let (now, later) = numbers.split_at(numbers.len().min(self.size - self.filling.len()));
            self.filling.extend_from_slice(now);
            numbers = later;
            if self.filling.len() == self.size {
                self.hand_over()?;
            }
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), CommunicatorError> {
        let (own, numbers) = (self.ranks.0.rank(), self.filling.drain(..));
        let all = self.ranks.0.gather("parameters", numbers.flat_map(f32::to_le_bytes).collect())?;
        for (rank, bytes) in all.iter().enumerate().filter(|(rank, _)| *rank != own) {
            let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            self.incoming[rank].take(&numbers);
        }
        self.left -= 1;
        Ok(())
    }

    /// Waits for the last pieces, and returns the parameters of all other ranks.
    fn finish(mut self) -> Result<Vec<GradientsParams>, CommunicatorError> {
        while self.left > 0 {
            self.hand_over()?;
        }
        if let Some(rank) = self.incoming.iter().position(|incoming| !incoming.is_complete()) {
            let problem = "it hands over fewer numbers than the parameters of its share have".into();
            return Err(CommunicatorError::Mismatch { rank, operation: "parameters", problem });
        }
        Ok(self.incoming.into_iter().map(Incoming::into_complete).collect())
    }
}

/// Hands the parameters of its own over.
struct HandOver<'a, 'b> {
    shards: &'a Shards,
    trained: Trained,
    pieces: &'a mut Pieces<'b>,
    failure: Option<TrainingError>,
}

impl HandOver<'_, '_> {
    fn hand_over<const D: usize>(&mut self, value: Tensor<D>) -> Result<(), TrainingError> {
        Ok(self.pieces.push(&host(value)?)?)
    }
}

impl ModuleVisitor for HandOver<'_, '_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.failure.is_none() && self.trained.is_new(param) && self.shards.is_own(param.id) {
            self.failure = self.hand_over(param.val()).err();
        }
    }
}

/// Puts parameters in the place of those of a model; of several places with one id into the first, as Burn's optimisers do.
struct Replace {
    /// Of each rank.
    complete: Vec<GradientsParams>,
}

impl ModuleMapper for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let id = param.id;
        match self.complete.iter_mut().find_map(|complete| complete.remove::<D>(id)) {
            Some(updated) => param.map(|old| in_place_of(&old, updated)),
            None => param,
        }
    }
}

/// The new numbers of a parameter, tracked as the old ones were.
fn in_place_of<const D: usize>(old: &Tensor<D>, new: Tensor<D>) -> Tensor<D> {
    let new = Tensor::from_inner(new);
    let new = match old.gradient_checkpointing_strategy() {
        Some(strategy) => new.with_gradient_checkpointing_strategy(strategy),
        None => new,
    };
    new.set_require_grad(old.is_require_grad())
}

#[cfg(test)]
mod tests;
