//! Low-rank adapters (LoRA): a trained weight stays as it is, and a product of two narrow matrices is learnt beside it.
//!
//! Source: Hu et al. 2021, LoRA, section 4.1, eq. 3 (<https://arxiv.org/abs/2106.09685>): `h = W0 x + B A x`, scaled by
//! `alpha / r`, with `A` normal and `B` zero, so that a new adapter changes nothing. Here rows are multiplied from the left,
//! so [`Adapter::down`] is `A` transposed and [`Adapter::up`] is `B` transposed. Dropout stands before `A`, as in the paper's
//! code. The change is computed as two narrow products: neither a matrix of the weight's size nor its gradient is formed.
//!
//! Decomposed (DoRA: Liu et al. 2024, section 4.1, eq. 5, <https://arxiv.org/abs/2402.09353>), only the direction of each column of the
//! weight changes by `B A`, and its length is learnt beside it: `W' = m (W0 + B A) / ||W0 + B A||`, the norm of each column. Here
//! [`Adapter::magnitude`] is `m` as a multiple of the length in `W0`, so that it begins at 1, whatever weight is loaded later. The norm of
//! the changed weight is a constant to the gradient (section 4.3). A matrix of the weight's size is formed for it.
//!
//! Any model has adapters that is built with a [`ParamBuilder`](crate::ParamBuilder) that asks for them: every
//! [`Linear`](crate::Linear) at a path that fits gets one.
//!
//! ```
//! use burn::tensor::Device;
//! use firelight_core::{AdapterConfig, ParamBuilder, TransformerConfig, merge_adapters};
//!
//! let device = Device::default();
//! let adapters = AdapterConfig::new(4).with_targets(["query", "value"]);
//! let params = ParamBuilder::new(&device, 0).with_adapters(&adapters);
//! let model = TransformerConfig::new(16, 2, 2).init_with(&params);
//! params.check_adapters()?; // every target was there
//! let merged = merge_adapters(model, &adapters); // computes the same without its adapters
//! # drop(merged);
//! # Ok::<(), firelight_core::ConfigError>(())
//! ```

mod config;
mod merge;

pub use config::{AdapterConfig, AdapterScaling};
pub use merge::merge_adapters;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Tensor};
use firelight_kernels::linear;
use wildmatch::WildMatch;

use crate::dropout::drop;
use crate::error::{Checks, ConfigError};
use crate::init::{Init, ParamBuilder};
use crate::weight::Weight;

/// The name of an adapter in its layer: the parameters of adapters have `.adapter.` in their paths.
const NAME: &str = "adapter";

/// What a model under construction knows of its adapters: which it asks for, and which layers there were.
#[derive(Clone, Debug)]
pub(crate) struct AdapterPlan {
    config: AdapterConfig,
    layers: Arc<Mutex<BTreeSet<String>>>,
}

impl AdapterPlan {
    pub(crate) fn new(config: &AdapterConfig) -> Self {
        Self { config: config.clone(), layers: Arc::default() }
    }

    /// The adapter of the layer that is built at `params`, if it is a target.
    pub(crate) fn adapter(&self, d_in: usize, d_out: usize, params: &ParamBuilder) -> Option<Adapter> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner).insert(params.path().into());
        let is_target = self.config.targets.iter().any(|target| fits(target, params.path()));
        is_target.then(|| Adapter::new(&self.config, d_in, d_out, &params.scope(NAME)))
    }

    /// Refuses targets that no layer fitted.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |target: &&String| !layers.iter().any(|path| fits(target, path));
        let problem = |target| format!("adapters.targets names `{target}`, but there are {}", listed(&layers));
        let problems: Vec<String> = self.config.targets.iter().filter(missing).map(problem).collect();
        problems.into_iter().fold(Checks::default(), |checks, problem| checks.require(false, || problem)).finish()
    }
}

/// Whether a target names a path, as a whole or by its end.
fn fits(target: &str, path: &str) -> bool {
    let matches = |pattern: &str| WildMatch::new(pattern).matches(path);
    matches(target) || matches(&format!("*.{target}"))
}

/// The paths, with one entry for what repeats from layer to layer.
fn listed(paths: &BTreeSet<String>) -> String {
    let general = |path: &String| {
        let names = path.split('.').map(|name| if name.parse::<usize>().is_ok() { "*" } else { name });
        format!("`{}`", names.collect::<Vec<_>>().join("."))
    };
    let general: BTreeSet<String> = paths.iter().map(general).collect();
    if general.is_empty() { "no linear layers".into() } else { Vec::from_iter(general).join(", ") }
}

/// A low-rank adapter (LoRA) of a linear map: it adds `scale * x down up`.
#[doc(alias = "LoRA")]
#[derive(Module, Debug)]
pub struct Adapter {
    /// `[I, r]`.
    pub down: Param<Tensor<2>>,
    /// `[r, O]`.
    pub up: Param<Tensor<2>>,
    /// `[O]`: the length of each column of the weight, as a multiple of that of the weight that is not trained. None without
    /// decomposition.
    pub magnitude: Option<Param<Tensor<1>>>,
    dropout: Dropout,
    scale: f64,
}

impl Adapter {
    /// An adapter that changes nothing yet.
    fn new(config: &AdapterConfig, d_in: usize, d_out: usize, params: &ParamBuilder) -> Self {
        let init = Init::Normal { std: 1.0 / (d_in as f64).sqrt() };
        Self {
            down: params.param("down", [d_in, config.rank], init),
            up: params.param("up", [config.rank, d_out], Init::Zeros),
            magnitude: config.decomposed.then(|| params.param("magnitude", [d_out], Init::Ones)),
            dropout: DropoutConfig::new(config.dropout).init(),
            scale: config.scale(),
        }
    }

    /// # Shapes
    /// - `x`: `[..., I]`; output: `[..., O]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        linear(self.narrow(x), self.up.val(), None)
    }

    /// The change of the outputs `from .. to` alone.
    pub(crate) fn forward_columns<const D: usize>(&self, x: Tensor<D>, from: usize, to: usize) -> Tensor<D> {
        linear(self.narrow(x), self.up.val().narrow(1, from, to - from), None)
    }

    /// `[..., I] -> [..., r]`, scaled here, where there is least to scale.
    fn narrow<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        linear(drop(&self.dropout, x), self.down.val(), None) * self.scale
    }

    /// What the outputs, before their bias, are multiplied by beside `weight`; none without decomposition. Shape `[O]`.
    pub(crate) fn column_scale(&self, weight: &Weight) -> Option<Tensor<1>> {
        let magnitude = self.magnitude.as_ref()?.val();
        let change = self.change();
        Some(column_scale(weight.val_for(&change), change, magnitude))
    }

    /// The change as a matrix, `[I, O]`.
    pub(crate) fn change(&self) -> Tensor<2> {
        self.down.val().matmul(self.up.val()) * self.scale
    }
}

/// By how much the columns of `weight + change` are longer than they are to be. A column without length stays as it is.
pub(crate) fn column_scale(weight: Tensor<2>, change: Tensor<2>, magnitude: Tensor<1>) -> Tensor<1> {
    let length = |matrix: Tensor<2>| matrix.square().sum_dim(0).sqrt().squeeze_dim::<1>(0);
    let [before, after] = [length(weight.clone()), length(weight + change)].map(Tensor::detach);
    let is_nothing = after.clone().equal_elem(0.0);
    magnitude * (before / after).mask_fill(is_nothing, 1.0)
}

/// Makes sure that every target of the adapters is a layer of the part of a model that `build` makes.
///
/// # Errors
/// Lists the targets that fit no layer, with the layers that there are.
pub fn check_adapters<M>(
    adapters: Option<&AdapterConfig>,
    build: impl FnOnce(&ParamBuilder) -> M,
) -> Result<(), ConfigError> {
    let Some(adapters) = adapters else { return Ok(()) };
    let params = ParamBuilder::new(&Device::flex(), 0).with_adapters(adapters);
    build(&params);
    params.check_adapters()
}

#[cfg(test)]
mod tests;
