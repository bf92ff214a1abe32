//! What a model costs: parameters, arithmetic and memory, counted from the modules that were built. A parameter that was not read
//! yet is not drawn for it, so that a model of any size is counted at once.
//!
//! Arithmetic is that of the products alone, a multiplication and an addition each, as is usual: two floating point operations
//! of one token for every number of a matrix, and what a mixer computes for every pair that its rule shows. A backward pass takes
//! twice as much. Source of the convention: Chowdhery et al. 2022, PaLM, appendix B (<https://arxiv.org/abs/2204.02311>), whose
//! `6 N + 12 L H E T` counts all pairs, hidden ones too.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Int, Shape, Tensor};
use firelight_kernels::{BlockFormat, PairRule};
use serde::{Serialize, Serializer};

use crate::state::{FLOAT, State};
use crate::weight::format_in;

fn in_bytes<S: Serializer>(numbers: &usize, serializer: S) -> Result<S::Ok, S::Error> {
    numbers.saturating_mul(FLOAT).serialize(serializer)
}

/// Queries whose pairs are counted one by one; of longer sequences so many are, evenly spaced.
const COUNTED: usize = 4096;

/// What a module costs, with the same of its parts.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::TransformerConfig;
///
/// // Of a model that no laptop holds.
/// let stack = TransformerConfig::new(12_288, 96, 96).init(&Device::flex());
/// let cost = stack.cost(2048);
/// assert_eq!(cost.parameters / 1_000_000_000, 173);
/// assert_eq!(cost.parts.last().map(|part| part.name.as_str()), Some("norm"));
/// ```
#[doc(alias = "FLOPs")]
#[doc(alias = "model summary")]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Its name in the module that it is a part of.
    pub name: String,
    /// How many equal modules it stands for.
    pub modules: usize,
    /// Numbers that it has.
    pub parameters: usize,
    /// Those that one token is computed with: all, but for experts.
    pub active_parameters: usize,
    /// Floating point operations of one token, forward.
    pub flops_per_token: f64,
    /// Activations that one token keeps for the backward pass, in numbers; serialised as bytes, in single precision.
    #[serde(rename = "activation_bytes_per_token", serialize_with = "in_bytes")]
    pub activations_per_token: usize,
    /// Memory of one sequence in a cache of the whole context, in single precision.
    pub cache_bytes: usize,
    /// Memory of the attention scores of one sequence, of all heads and layers, hidden pairs included, in single precision: where they are
    /// formed as a whole, which attention in tiles never does.
    pub score_bytes: usize,
    /// What it consists of.
    pub parts: Vec<Cost>,
}

impl Cost {
    /// A module whose matrices each token is multiplied by once, without activations and without a cache.
    pub fn of(module: &impl Module) -> Self {
        let mut count = Count::default();
        module.visit(&mut count);
        Self {
            modules: 1,
            parameters: count.parameters,
            active_parameters: count.parameters,
            flops_per_token: 2.0 * count.in_matrices as f64,
            ..Self::default()
        }
    }

    /// A module that consists of these parts.
    pub fn sum(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut whole = Self { modules: 1, parts: parts.into_iter().collect(), ..Self::default() };
        for part in &whole.parts {
            whole.parameters = whole.parameters.saturating_add(part.parameters);
            whole.active_parameters = whole.active_parameters.saturating_add(part.active_parameters);
            whole.flops_per_token += part.flops_per_token;
            whole.activations_per_token = whole.activations_per_token.saturating_add(part.activations_per_token);
            whole.cache_bytes = whole.cache_bytes.saturating_add(part.cache_bytes);
            whole.score_bytes = whole.score_bytes.saturating_add(part.score_bytes);
        }
        whole
    }

    /// `modules` equal ones, each with parameters of its own, which compute a token `turns` times together: experts of which a few are
    /// chosen, or a layer that stands in several places.
    pub fn repeated(self, modules: usize, turns: usize) -> Self {
        let times = |number: usize, count: usize| number.saturating_mul(count);
        Self {
            modules: times(self.modules, modules),
            parameters: times(self.parameters, modules),
            active_parameters: times(self.active_parameters, modules.min(turns)),
            flops_per_token: self.flops_per_token * turns as f64,
            activations_per_token: times(self.activations_per_token, turns),
            cache_bytes: times(self.cache_bytes, turns),
            score_bytes: times(self.score_bytes, turns),
            parts: self.parts.into_iter().map(|part| part.repeated(modules, turns)).collect(),
            ..self
        }
    }

    /// Sets the name.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Adds floating point operations of one token, forward.
    pub fn with_flops(self, flops: f64) -> Self {
        Self { flops_per_token: self.flops_per_token + flops, ..self }
    }

    /// Removes the arithmetic: a table in which tokens are looked up has parameters alone.
    pub fn without_flops(self) -> Self {
        Self { flops_per_token: 0.0, ..self }
    }

    /// Removes the parameters: those of a layer that is shared were counted where it stood before.
    pub(crate) fn without_parameters(self) -> Self {
        let parts = self.parts.into_iter().map(Self::without_parameters).collect();
        Self { parameters: 0, active_parameters: 0, parts, ..self }
    }

    /// Divides arithmetic and activations by `tokens`: the module is computed once for so many of them.
    pub fn amortised_over(self, tokens: usize) -> Self {
        let tokens = tokens.max(1);
        let (flops, kept) = (self.flops_per_token / tokens as f64, self.activations_per_token.div_ceil(tokens));
        let parts = self.parts.into_iter().map(|part| part.amortised_over(tokens)).collect();
        Self { flops_per_token: flops, activations_per_token: kept, parts, ..self }
    }

    /// Scales arithmetic and activations by `share`: the module is computed for that share of the tokens alone.
    pub fn scaled_by(self, share: f64) -> Self {
        let kept = (self.activations_per_token as f64 * share).ceil() as usize;
        let parts = self.parts.into_iter().map(|part| part.scaled_by(share)).collect();
        Self { flops_per_token: self.flops_per_token * share, activations_per_token: kept, parts, ..self }
    }

    /// Adds activations of one token that are kept for the backward pass, in numbers.
    pub fn with_activations(self, numbers: usize) -> Self {
        Self { activations_per_token: self.activations_per_token.saturating_add(numbers), ..self }
    }

    /// Sets the memory of one sequence in a cache.
    pub fn with_cache(self, bytes: usize) -> Self {
        Self { cache_bytes: bytes, ..self }
    }

    /// Sets the memory of one sequence in a cache to that of a full `state`, 0 where the state does not know it.
    pub fn with_cache_of(self, state: &dyn State) -> Self {
        self.with_cache(state.full_bytes().unwrap_or_default())
    }

    /// Sets the memory of the scores of `heads` heads, each a number for every query and key of `length` tokens.
    pub fn with_scores(self, heads: usize, length: usize) -> Self {
        let numbers = heads.saturating_mul(length).saturating_mul(length);
        Self { score_bytes: numbers.saturating_mul(FLOAT), ..self }
    }

    /// Floating point operations of one training token: backward, every product has two.
    pub fn training_flops_per_token(&self) -> f64 {
        3.0 * self.flops_per_token
    }
}

/// Modules by what they cost and the places in which each stands, those of equal cost as one part, whose name is its places. A module
/// in several places is one, or where it is not `shared` stands for as many.
pub(crate) fn grouped(modules: impl IntoIterator<Item = (Cost, Vec<usize>)>, shared: bool) -> Vec<Cost> {
    let mut kinds: Vec<(Cost, usize, Vec<usize>)> = Vec::new();
    for (cost, places) in modules {
        match kinds.iter_mut().find(|(kind, ..)| *kind == cost) {
            Some((_, modules, all)) => (*modules, *all) = (*modules + 1, [std::mem::take(all), places].concat()),
            None => kinds.push((cost, 1, places)),
        }
    }
    let group = |(cost, modules, mut places): (Cost, usize, Vec<usize>)| {
        places.sort_unstable();
        cost.repeated(if shared { modules } else { places.len() }, places.len()).named(ranges(&places))
    };
    kinds.into_iter().map(group).collect()
}

/// `[0, 1, 2, 4]` as `0-2, 4`.
fn ranges(places: &[usize]) -> String {
    let runs = places.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(", ")
}

/// Pairs of a query and a key that it sees, for each query of a sequence of `length` tokens, on average.
pub(crate) fn pairs_per_query(rule: &PairRule, length: usize) -> f64 {
    let step = length.div_ceil(COUNTED).max(1);
    let counted: Vec<usize> = (step / 2..length).step_by(step).collect();
    let seen = |query: &usize| rule.visible_keys(0, *query, 0..length).count() as f64;
    counted.iter().map(seen).sum::<f64>() / counted.len().max(1) as f64
}

/// Numbers of a shape.
fn numbers(shape: &Shape) -> usize {
    shape.iter().fold(1, |product, size| product.saturating_mul(*size))
}

#[derive(Default)]
struct Count {
    /// Of the blocks that are visited.
    format: Option<BlockFormat>,
    parameters: usize,
    in_matrices: usize,
}

impl ModuleVisitor for Count {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.format = format_in(name, container);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        let Some(format) = self.format else { return };
        let numbers = numbers(&param.lazy_shape()) / format.bytes() * format.numbers();
        self.parameters = self.parameters.saturating_add(numbers);
        self.in_matrices = self.in_matrices.saturating_add(numbers);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let numbers = numbers(&param.lazy_shape());
        self.parameters = self.parameters.saturating_add(numbers);
        if D > 1 {
            self.in_matrices = self.in_matrices.saturating_add(numbers);
        }
    }
}
