//! Low-rank adapters (LoRA): a trained weight stays as it is, and a product of two narrow matrices is learnt beside it.
//!
//! Source: Hu et al. 2021, LoRA, section 4.1, eq. 3 (<https://arxiv.org/abs/2106.09685>): `h = W0 x + B A x`, scaled by
//! `alpha / r`, with `A` normal and `B` zero, so that a new adapter changes nothing. Here rows are multiplied from the left,
//! so [`Adapter::down`] is `A` transposed and [`Adapter::up`] is `B` transposed. Dropout stands before `A`, as in the paper's
//! code. The change is computed as two narrow products: neither a matrix of the weight's size nor its gradient is formed.
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

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Tensor};
use firelight_kernels::linear;
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::dropout::drop;
use crate::error::{Checks, ConfigError};
use crate::init::{Init, ParamBuilder};

/// The name of an adapter in its layer: the parameters of adapters have `.adapter.` in their paths.
const NAME: &str = "adapter";

fn targets() -> Vec<String> {
    ["query", "value"].map(str::to_owned).into()
}

/// What the change of an adapter of the rank `r` is scaled by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AdapterScaling {
    /// `alpha / r`, as the paper of LoRA.
    #[default]
    Standard,
    /// `alpha / sqrt(r)`, which keeps the size of the change where the rank is large: Kalajdzievski 2023, rsLoRA, section 3, theorem
    /// 3.2 (<https://arxiv.org/abs/2312.03732>).
    RankStabilized,
}

impl AdapterScaling {
    fn is_standard(&self) -> bool {
        *self == Self::Standard
    }
}

/// Which layers have adapters, and of what size.
#[doc(alias = "LoRA")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterConfig {
    /// Width of the product, `r`. From 1; 4 to 64 is usual.
    pub rank: usize,
    /// The change is scaled by `alpha / rank`, or as `scaling` says. Above 0. Default: the rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// What the change is scaled by: `"standard"` or `"rank_stabilized"`. Default: standard.
    #[serde(default, skip_serializing_if = "AdapterScaling::is_standard")]
    pub scaling: AdapterScaling,
    /// Dropout of what the adapter reads, from 0 to below 1. Default: 0.
    #[serde(default)]
    pub dropout: f64,
    /// The linear layers, by the ends of their paths or by whole paths: `query`, `feed_forward.up`, `*.blocks.0.*`. `*` stands for
    /// any text, dots included, and `?` for one character. Default: those of the paper, queries and values; where they share
    /// one matrix it is `qkv`.
    #[serde(default = "targets")]
    pub targets: Vec<String>,
}

impl AdapterConfig {
    /// Adapters of queries and values.
    pub fn new(rank: usize) -> Self {
        Self { rank, alpha: None, scaling: AdapterScaling::Standard, dropout: 0.0, targets: targets() }
    }

    /// Sets what the change is scaled by, times the rank.
    pub fn with_alpha(mut self, alpha: f64) -> Self {
        self.alpha = Some(alpha);
        self
    }

    /// Sets what the change is scaled by.
    pub fn with_scaling(mut self, scaling: AdapterScaling) -> Self {
        self.scaling = scaling;
        self
    }

    /// Sets the dropout of what the adapters read.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// Sets the layers.
    pub fn with_targets<S: Into<String>>(mut self, targets: impl IntoIterator<Item = S>) -> Self {
        self.targets = targets.into_iter().map(Into::into).collect();
        self
    }

    /// What the change is scaled by.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        let divisor = match self.scaling {
            AdapterScaling::Standard => rank,
            AdapterScaling::RankStabilized => rank.sqrt(),
        };
        self.alpha.unwrap_or(rank) / divisor
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let alpha = self.alpha.unwrap_or(1.0);
        Checks::default()
            .size("adapters.rank", self.rank)
            .require(alpha > 0.0 && alpha.is_finite(), || format!("adapters.alpha = {alpha} must be above 0"))
            .rate("adapters.dropout", self.dropout)
            .require(!self.targets.is_empty(), || "adapters.targets = [] must name a layer, such as \"query\"".into())
            .finish()
    }
}

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

/// A change of a linear map: `scale * x down up`.
#[doc(alias = "LoRA")]
#[derive(Module, Debug)]
pub struct Adapter {
    /// `[I, r]`.
    pub down: Param<Tensor<2>>,
    /// `[r, O]`.
    pub up: Param<Tensor<2>>,
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

    /// The change as a matrix, `[I, O]`.
    pub(crate) fn change(&self) -> Tensor<2> {
        self.down.val().matmul(self.up.val()) * self.scale
    }
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

/// Adds the adapters of a model into the weights beside them, and makes the adapters zero, so that it computes the same. Its
/// weights without those of the adapters are then a model of their own.
///
/// `config` is the one that the adapters were built with.
pub fn merge_adapters<M: Module>(model: M, config: &AdapterConfig) -> M {
    let mut factors = Factors::default();
    model.visit(&mut factors);
    model.map(&mut Merge { factors: factors.found, scale: config.scale(), path: Vec::new() })
}

/// Both matrices of each adapter, by the path of their layer.
#[derive(Default)]
struct Factors {
    found: HashMap<String, [Option<Tensor<2>>; 2]>,
    path: Vec<String>,
}

/// The layer's path and which of its two matrices, for the path of an adapter's matrix.
fn factor(path: &[String]) -> Option<(String, usize)> {
    let [layer @ .., adapter, name] = path else { return None };
    let place = ["down", "up"].iter().position(|other| other == name)?;
    (adapter == NAME).then(|| (layer.join("."), place))
}

impl ModuleVisitor for Factors {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some((layer, place)) = factor(&self.path) {
            let dims = param.val().dims();
            let matrix = param.val().without_autodiff().reshape([dims[0], dims[D - 1]]);
            self.found.entry(layer).or_default()[place] = Some(matrix);
        }
    }
}

struct Merge {
    factors: HashMap<String, [Option<Tensor<2>>; 2]>,
    scale: f64,
    path: Vec<String>,
}

impl Merge {
    /// The change of the weight at the present path, if it has an adapter.
    fn change(&self) -> Option<Tensor<2>> {
        let [layer @ .., name] = &self.path[..] else { return None };
        match (name.as_str(), self.factors.get(&layer.join("."))) {
            ("weight", Some([Some(down), Some(up)])) => Some(down.clone().matmul(up.clone()) * self.scale),
            _ => None,
        }
    }
}

impl ModuleMapper for Merge {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let written = |tensor: Tensor<D>, new: Tensor<D>| {
            let tracked = tensor.is_require_grad();
            Tensor::from_data(new.into_data(), &tensor.device()).set_require_grad(tracked)
        };
        if let Some(change) = self.change() {
            return param.map(|weight| {
                let sum = weight.clone().without_autodiff() + change.reshape(weight.dims());
                written(weight, sum)
            });
        }
        match factor(&self.path) {
            Some((_, 1)) => param.map(|up| written(up.clone(), up.without_autodiff().zeros_like())),
            _ => param,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::{Linear, LinearConfig};
    use crate::{Pass, ProjectionKind, SequenceInput, TransformerConfig};
    use burn::tensor::{Distribution, TensorData};
    use firelight_kernels::assert_close;
    use proptest::prelude::*;

    fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
    }

    /// Gives every adapter a change.
    struct Shake;

    impl ModuleMapper for Shake {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|tensor| {
                let wave: Vec<f32> = (0..tensor.shape().num_elements()).map(|i| (1.3 * i as f32).sin()).collect();
                let tracked = tensor.is_require_grad();
                let wave = Tensor::from_data(TensorData::new(wave, tensor.shape()), &tensor.device());
                (tensor.detach() + wave * 0.3).detach().set_require_grad(tracked)
            })
        }
    }

    #[test]
    fn the_change_by_hand() {
        // x = [1, 2], down = [1, 1]^T, up = [1, 10], scale 6 / 1: 3 [1, 10] 6 = [18, 180], beside x W = [1, 2].
        let device = Device::default();
        let params =
            ParamBuilder::new(&device, 0).with_adapters(&AdapterConfig::new(1).with_alpha(6.0).with_targets(["*"]));
        let mut layer = LinearConfig::new(2, 2).with_bias(false).init_with(&params.scope("layer"));
        layer.weight = Param::from_data([[1.0, 0.0], [0.0, 1.0]], &device);
        let x = Tensor::<2>::from_floats([[1.0, 2.0]], &device);
        layer.forward(x.clone()).into_data().assert_eq(&TensorData::from([[1.0f32, 2.0]]), false);
        let adapter = layer.adapter.as_mut().unwrap();
        adapter.down = Param::from_data([[1.0], [1.0]], &device);
        adapter.up = Param::from_data([[1.0, 10.0]], &device);
        layer.forward(x.clone()).into_data().assert_eq(&TensorData::from([[19.0f32, 182.0]]), false);
        layer.forward_columns(x, 1, 2).into_data().assert_eq(&TensorData::from([[182.0f32]]), false);
    }

    #[test]
    fn a_rank_stabilized_change_is_scaled_by_the_root_of_the_rank() {
        // x = [1, 2], down = [[1, 0, 0, 0], [0, 0, 0, 1]], up the sum of what it reads: 3, scaled by 6 / sqrt(4), not by 6 / 4.
        let device = Device::default();
        let config = AdapterConfig::new(4).with_alpha(6.0).with_targets(["*"]);
        let forward = |config: &AdapterConfig| {
            let params = ParamBuilder::new(&device, 0).with_adapters(config);
            let mut layer = LinearConfig::new(2, 1).with_bias(false).init_with(&params.scope("layer"));
            layer.weight = Param::from_data([[0.0], [0.0]], &device);
            let adapter = layer.adapter.as_mut().unwrap();
            adapter.down = Param::from_data([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], &device);
            adapter.up = Param::from_data([[1.0], [1.0], [1.0], [1.0]], &device);
            layer.forward(Tensor::<2>::from_floats([[1.0, 2.0]], &device)).into_scalar::<f32>()
        };
        assert_eq!(forward(&config), 4.5);
        let stabilized = config.with_scaling(AdapterScaling::RankStabilized);
        assert_eq!(forward(&stabilized), 9.0);
        let written = serde_json::to_string(&stabilized).unwrap();
        assert!(written.contains("\"scaling\":\"rank_stabilized\""), "{written}");
        assert_eq!(AdapterConfig::new(9).with_scaling(AdapterScaling::RankStabilized).scale(), 3.0);
    }

    #[test]
    fn a_new_adapter_changes_nothing_and_the_weights_are_those_without_it() {
        let device = Device::default();
        let config = TransformerConfig::new(16, 2, 2);
        let plain = config.init_with(&ParamBuilder::new(&device, 3));
        let params = ParamBuilder::new(&device, 3).with_adapters(&AdapterConfig::new(4));
        let adapted = config.init_with(&params);
        params.check_adapters().unwrap();
        // Two blocks, queries and values, each 16 x 4 and 4 x 16.
        assert_eq!(adapted.num_params(), plain.num_params() + 2 * 2 * 128);
        let x = random([1, 5, 16], &device);
        let run =
            |model: &crate::Transformer| model.forward(x.clone(), &SequenceInput::default(), &mut Pass::default());
        run(&adapted).into_data().assert_eq(&run(&plain).into_data(), true);
    }

    #[test]
    fn merged_computes_what_was_applied() {
        let device = Device::default();
        for projection in [ProjectionKind::Separate, ProjectionKind::Fused] {
            let adapters =
                AdapterConfig::new(3).with_alpha(6.0).with_targets(["query", "qkv", "output", "feed_forward.*"]);
            let config = TransformerConfig::new(16, 2, 2).with_projection(projection);
            let model = config.init_with(&ParamBuilder::new(&device, 1).with_adapters(&adapters)).map(&mut Shake);
            let x = random([2, 5, 16], &device);
            let run = |model: &crate::Transformer| {
                model.forward(x.clone(), &SequenceInput::default(), &mut Pass::default()).into_data()
            };
            let (applied, merged) = (run(&model), merge_adapters(model, &adapters));
            assert_close(&run(&merged), &applied, 1e-5);
            // Without its adapters it is the same model.
            let mut bare = merged.clone();
            bare.blocks.iter_mut().for_each(|block| {
                if let crate::Mixer::Attention(attention) = &mut block.attention {
                    attention.output.adapter = None;
                }
                if let crate::FeedForwardLayer::Dense(network) = &mut block.feed_forward {
                    (network.up.adapter, network.down.adapter) = (None, None);
                }
            });
            assert!(bare.num_params() < merged.num_params());
            assert_close(&run(&bare), &applied, 1e-5);
        }
    }

    #[test]
    fn only_the_adapter_has_gradients_and_they_are_those_of_finite_differences() {
        let device = Device::default().autodiff();
        let params =
            ParamBuilder::new(&device, 2).with_adapters(&AdapterConfig::new(2).with_alpha(3.0).with_targets(["*"]));
        let layer = LinearConfig::new(4, 3).init_with(&params.scope("layer")).map(&mut Shake);
        let x = random([5, 4], &device);
        let loss = |layer: &Linear| layer.forward(x.clone()).powi_scalar(2).sum();
        let grads = loss(&layer).backward();
        assert!(layer.weight.val().grad(&grads).is_none() && layer.bias.as_ref().unwrap().val().grad(&grads).is_none());
        let adapter = layer.adapter.as_ref().unwrap();
        for up in [false, true] {
            let of = |layer: &Linear| {
                let adapter = layer.adapter.clone().unwrap();
                if up { adapter.up } else { adapter.down }
            };
            let gradient = of(&layer).val().grad(&grads).expect("trained").into_data().try_to_vec::<f32>().unwrap();
            let (shape, values) = (of(&layer).shape(), of(&layer).val().into_data().try_to_vec::<f32>().unwrap());
            for place in 0..values.len() {
                let at = |step: f32| {
                    let mut values = values.clone();
                    values[place] += step;
                    let matrix = Param::from_data(TensorData::new(values, shape.clone()), &device);
                    let mut adapter = adapter.clone();
                    if up {
                        adapter.up = matrix
                    } else {
                        adapter.down = matrix
                    }
                    loss(&Linear { adapter: Some(adapter), ..layer.clone() }).into_scalar::<f32>()
                };
                let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
                assert!(
                    (slope - gradient[place]).abs() < 2e-2 * (1.0 + slope.abs()),
                    "{slope}, not {}",
                    gradient[place]
                );
            }
        }
    }

    #[test]
    fn dropout_is_of_the_low_rank_path_alone() {
        let device = Device::default().autodiff();
        let params =
            ParamBuilder::new(&device, 2).with_adapters(&AdapterConfig::new(2).with_dropout(0.5).with_targets(["*"]));
        let layer = LinearConfig::new(4, 3).init_with(&params.scope("layer"));
        let x = random([50, 4], &device);
        let plain = Linear { adapter: None, ..layer.clone() };
        layer.forward(x.clone()).into_data().assert_eq(&plain.forward(x.clone()).into_data(), true);
        let shaken = layer.map(&mut Shake);
        assert_ne!(shaken.forward(x.clone()).into_data(), shaken.forward(x).into_data());
    }

    #[test]
    fn what_does_not_fit_is_reported() {
        let wrong = AdapterConfig::new(0).with_alpha(-1.0).with_dropout(1.0).with_targets::<&str>([]);
        assert_eq!(
            wrong.validate().unwrap_err().to_string(),
            "adapters.rank = 0 must be at least 1; adapters.alpha = -1 must be above 0; adapters.dropout = 1 must be in [0, 1); \
             adapters.targets = [] must name a layer, such as \"query\""
        );
        let adapters = AdapterConfig::new(2).with_targets(["query", "kernel"]);
        let params = ParamBuilder::new(&Device::default(), 0).with_adapters(&adapters);
        let _model = TransformerConfig::new(8, 2, 2).init_with(&params);
        let error = params.check_adapters().unwrap_err().to_string();
        let expected =
            "adapters.targets names `kernel`, but there are `blocks.*.attention.key`, `blocks.*.attention.output`, ";
        assert!(error.starts_with(expected), "{error}");
        let read: AdapterConfig = serde_json::from_str(r#"{"rank": 8}"#).unwrap();
        assert_eq!((read.scale(), read), (1.0, AdapterConfig::new(8)));
    }

    #[test]
    fn targets_are_ends_of_paths_or_patterns() {
        let path = "encoder.blocks.11.feed_forward.up";
        for target in ["up", "feed_forward.up", "*.blocks.11.*", path, "encoder.blocks.1?.*", "feed_forward.*"] {
            assert!(fits(target, path), "{target}");
        }
        for target in ["p", "blocks.1.*", "forward.up", "encoder"] {
            assert!(!fits(target, path), "{target}");
        }
    }

    proptest! {
        #[test]
        fn an_adapter_is_the_product_of_its_matrices(rows in 1_usize..5, d_in in 1_usize..6, d_out in 1_usize..6, rank in 1_usize..4) {
            let device = Device::default();
            let adapters = AdapterConfig::new(rank).with_alpha(2.0).with_targets(["*"]);
            let params = ParamBuilder::new(&device, 2).with_adapters(&adapters);
            let layer = LinearConfig::new(d_in, d_out).init_with(&params.scope("layer")).map(&mut Shake);
            let x = random([rows, d_in], &device);
            let plain = Linear { adapter: None, ..layer.clone() };
            let change = x.clone().matmul(layer.adapter.as_ref().unwrap().change());
            let expected = (plain.forward(x.clone()) + change).into_data();
            assert_close(&layer.forward(x), &expected, 1e-4);
        }
    }
}
