//! Initial weights: drawn on the host, each parameter from its own stream keyed by (seed, path). Backends have generators of
//! their own; here one seed is one model everywhere. Without a seed the device's own generator draws one for the model.
//!
//! A parameter is drawn when it is first read, as Burn's are. Since every one has its own stream, the order does not matter; a
//! model whose weights come from a file draws none, and one that is only counted takes no memory.

use crate::adapter::{Adapter, AdapterConfig, AdapterPlan};
use crate::error::{Checks, ConfigError, expect_valid};
use burn::module::{Param, ParamId};
use burn::tensor::{Device, Tensor, TensorData};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};

/// The distribution a parameter is drawn from. `fan_in` and `fan_out` are the first and last dimension of its shape.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// All the same.
    Constant {
        /// That number.
        value: f64,
    },
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Normal with mean 0, redrawn beyond two standard deviations: `truncated_normal` of BERT's code (Devlin et al. 2019,
    /// <https://arxiv.org/abs/1810.04805>).
    TruncatedNormal {
        /// Standard deviation before the truncation.
        std: f64,
    },
    /// Uniform in `±sqrt(6 / (fan_in + fan_out))`; Glorot and Bengio 2010, eq. 16.
    XavierUniform,
    /// Normal with variance `2 / (fan_in + fan_out)`; Glorot and Bengio 2010, eq. 12.
    XavierNormal,
    /// Uniform in `±sqrt(6 / fan_in)`; He et al. 2015, eq. 10.
    KaimingUniform,
    /// Normal with variance `2 / fan_in`; He et al. 2015, eq. 10.
    KaimingNormal,
}

impl Init {
    /// # Errors
    /// If a width is not a positive number.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let width = match *self {
            Self::Normal { std } | Self::TruncatedNormal { std } => std,
            _ => 1.0,
        };
        Checks::default()
            .require(width > 0.0 && width.is_finite(), || format!("init.std = {width} must be above 0"))
            .require(!matches!(self, Self::Constant { value } if !value.is_finite()), || {
                "init.value must be a finite number".into()
            })
            .finish()
    }

    /// The same distribution, narrower or wider by `factor`, where its width is a setting; the others stay as they are.
    pub fn scaled(self, factor: f64) -> Self {
        match self {
            Self::Normal { std } => Self::Normal { std: std * factor },
            Self::TruncatedNormal { std } => Self::TruncatedNormal { std: std * factor },
            other => other,
        }
    }

    fn draw(self, [fan_in, fan_out]: [usize; 2], rng: &mut ChaCha8Rng) -> f32 {
        let (fan_in, fan_out) = (fan_in as f64, fan_out as f64);
        let value = match self {
            Self::Zeros => 0.0,
            Self::Ones => 1.0,
            Self::Constant { value } => value,
            Self::Normal { std } => std * normal(rng),
            Self::TruncatedNormal { std } => std * truncated_normal(rng),
            Self::XavierUniform => uniform((6.0 / (fan_in + fan_out)).sqrt(), rng),
            Self::XavierNormal => (2.0 / (fan_in + fan_out)).sqrt() * normal(rng),
            Self::KaimingUniform => uniform((6.0 / fan_in).sqrt(), rng),
            Self::KaimingNormal => (2.0 / fan_in).sqrt() * normal(rng),
        };
        value as f32
    }
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

fn truncated_normal(rng: &mut ChaCha8Rng) -> f64 {
    loop {
        let value = normal(rng);
        if value.abs() <= 2.0 {
            return value;
        }
    }
}

fn uniform(bound: f64, rng: &mut ChaCha8Rng) -> f64 {
    bound * (2.0 * unit(rng) - 1.0)
}

/// A uniform number in `[0, 1)` of 53 random bits, by the generator's definition and not by a library's.
fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The weight initialisation of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WeightInit {
    /// The distribution of every matrix and embedding.
    pub weight: Init,
    /// Scales the last projection of each residual branch by `1 / sqrt(branches)`, where `branches` is the number of residual additions in
    /// the stack (Radford et al. 2019, §2.3), so that the residual stream keeps its variance.
    pub scale_residual: bool,
}

impl WeightInit {
    /// GPT-2: `N(0, 0.02)` with residual scaling.
    pub fn gpt2() -> Self {
        Self { weight: Init::default(), scale_residual: true }
    }

    /// Xavier uniform for every matrix, as the original Transformer is usually built.
    pub fn xavier() -> Self {
        Self { weight: Init::XavierUniform, scale_residual: false }
    }

    /// The distribution of the last projection of a residual branch, one of `branches` in the stack.
    pub fn residual(&self, branches: usize) -> Init {
        if self.scale_residual { self.weight.scaled(1.0 / (branches as f64).sqrt()) } else { self.weight }
    }
}

/// `N(0, 0.02)`, as GPT-2.
impl Default for Init {
    fn default() -> Self {
        Self::Normal { std: 0.02 }
    }
}

impl Default for WeightInit {
    fn default() -> Self {
        Self::gpt2()
    }
}

/// Draws the parameters of a module: device, seed, and the path of the module under construction.
///
/// Equal seeds and paths give equal weights. Two modules side by side need paths of their own, or they begin alike.
#[derive(Debug, Clone)]
pub struct ParamBuilder {
    device: Device,
    seed: Seed,
    path: String,
    adapters: Option<AdapterPlan>,
    counts: bool,
}

impl ParamBuilder {
    /// Starts at the root of a model.
    pub fn new(device: &Device, seed: u64) -> Self {
        Self::seeded(device, Seed::Given(seed))
    }

    /// Starts at the root of a model whose seed the device's generator draws with the first parameter, as `init(&device)` of every
    /// configuration does: two models in turn differ, and after [`Device::seed`] they are the same again.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_core::LinearConfig;
    ///
    /// let device = Device::flex();
    /// let [first, second] = [(), ()].map(|()| LinearConfig::new(4, 4).init(&device).weight.val());
    /// assert!(!first.equal(second).all().into_scalar::<bool>());
    /// ```
    pub fn random(device: &Device) -> Self {
        Self::seeded(device, Seed::Random(Arc::default()))
    }

    fn seeded(device: &Device, seed: Seed) -> Self {
        Self { device: device.clone(), seed, path: String::new(), adapters: None, counts: false }
    }

    /// A builder for modules whose [`Cost`](crate::Cost) alone is needed: of equal layers and experts only one is built, and it is counted
    /// as often as it would occur. So a model of a million layers takes no time.
    pub fn counting() -> Self {
        Self { counts: true, ..Self::new(&Device::flex(), 0) }
    }

    /// How many of `number` equal modules are to be built, of which every `kinds` are different.
    pub(crate) fn built(&self, number: usize, kinds: usize) -> usize {
        if self.counts { number.min(kinds) } else { number }
    }

    /// The builder of the part called `name`.
    pub fn scope(&self, name: impl std::fmt::Display) -> Self {
        let path = if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) };
        Self { path, ..self.clone() }
    }

    /// Builds every linear layer that `config` names with an adapter, and its own weights not to be trained. All other weights are
    /// what they are without adapters.
    ///
    /// # Panics
    /// With the text of [`AdapterConfig::validate`].
    pub fn with_adapters(self, config: &AdapterConfig) -> Self {
        expect_valid(config.validate());
        Self { adapters: Some(AdapterPlan::new(config)), ..self }
    }

    /// The same where the structure asks for adapters; those that were asked for from outside stay.
    pub fn adapted(&self, config: Option<&AdapterConfig>) -> Self {
        match config.filter(|_| self.adapters.is_none()) {
            Some(config) => self.clone().with_adapters(config),
            None => self.clone(),
        }
    }

    /// The same place of a part that takes no adapters.
    pub fn without_adapters(&self) -> Self {
        Self { adapters: None, ..self.clone() }
    }

    /// Makes sure, when the model is built, that every target of the adapters is a layer.
    ///
    /// # Errors
    /// Lists the targets that fit no layer, with the layers that there are.
    pub fn check_adapters(&self) -> Result<(), ConfigError> {
        self.adapters.as_ref().map_or(Ok(()), AdapterPlan::check)
    }

    /// The adapter of the linear layer that is built here, if it is to have one.
    pub(crate) fn adapter(&self, d_in: usize, d_out: usize) -> Option<Adapter> {
        self.adapters.as_ref().and_then(|plan| plan.adapter(d_in, d_out, self))
    }

    /// The path of the module under construction.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The device that parameters are made on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A trainable parameter of this `shape`, drawn when it is first read.
    pub fn param<const D: usize>(&self, name: &str, shape: [usize; D], init: Init) -> Param<Tensor<D>> {
        self.each(name, shape, move |rng| init.draw([shape[0], shape[D - 1]], rng))
    }

    /// A trainable parameter of this `shape`, each number `map` of one drawn uniformly from `[0, 1)`: what no [`Init`] is.
    pub(crate) fn mapped<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        map: impl Fn(f64) -> f64 + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        self.each(name, shape, move |rng| map(unit(rng)) as f32)
    }

    /// A trainable parameter of which each number is drawn by itself.
    fn each<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        number: impl Fn(&mut ChaCha8Rng) -> f32 + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        self.drawn(name, shape, move |rng| (0..shape.iter().product()).map(|_| number(rng)).collect())
    }

    /// A trainable parameter of the numbers that `draw` gives, all of them.
    pub(crate) fn drawn<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        draw: impl Fn(&mut ChaCha8Rng) -> Vec<f32> + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        let (seed, path) = (self.seed.clone(), self.scope(name).path);
        let draw = move |device: &Device, require_grad| {
            let values = draw(&mut ChaCha8Rng::from_seed(key(seed.get(device), &path)));
            Tensor::from_data(TensorData::new(values, shape), device).set_require_grad(require_grad)
        };
        Param::uninitialized(ParamId::new(), draw, self.device.clone(), true, shape.into())
    }
}

/// The generator's key: the seed and the FNV-1a hash of the path.
fn key(seed: u64, path: &str) -> [u8; 32] {
    let hash = path
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&hash.to_le_bytes());
    key
}

/// What a model is drawn by.
#[derive(Debug, Clone)]
enum Seed {
    Given(u64),
    /// Of the device's generator, drawn with the first parameter: a model whose weights come from a file leaves the generator as
    /// it is.
    Random(Arc<OnceLock<u64>>),
}

impl Seed {
    fn get(&self, device: &Device) -> u64 {
        match self {
            Self::Given(seed) => *seed,
            Self::Random(seed) => *seed.get_or_init(|| draw_seed(device)),
        }
    }
}

/// Eight bytes, each a number of the device's generator, which draws no integers on every backend.
fn draw_seed(device: &Device) -> u64 {
    let numbers = Tensor::<1>::random([8], burn::tensor::Distribution::Uniform(0.0, 256.0), device);
    let bytes = numbers.try_into_vec_as::<f32>().expect("numbers of the device");
    bytes.iter().fold(0, |seed, byte| seed << 8 | (*byte as u64).min(255))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u64, name: &str, init: Init) -> Vec<f32> {
        let param = ParamBuilder::new(&Device::default(), seed).scope("blocks").scope(0).param(name, [64, 32], init);
        param.val().try_to_vec_as::<f32>().expect("a host copy")
    }

    #[test]
    fn seed_and_path_make_the_weights() {
        let init = Init::Normal { std: 0.02 };
        assert_eq!(draw(1, "weight", init), draw(1, "weight", init));
        assert_ne!(draw(1, "weight", init), draw(2, "weight", init));
        assert_ne!(draw(1, "weight", init), draw(1, "other", init));
    }

    #[test]
    fn the_device_draws_a_seed_where_none_is_given() {
        let device = Device::default();
        let weights = |params: &ParamBuilder| {
            let param =
                |name| params.param(name, [4, 4], Init::default()).val().try_to_vec_as::<f32>().expect("a host copy");
            [param("query"), param("key")]
        };
        let siblings = [(), ()].map(|()| ParamBuilder::random(&device));
        let [first, second] = [&siblings[0], &siblings[1]].map(weights);
        assert!(first != second && first[0] != first[1]);
        assert_eq!(weights(&siblings[0]), first, "one builder is one model");
        let bytes = (0..64).map(|_| draw_seed(&device).to_le_bytes()).collect::<Vec<_>>();
        for place in 0..8 {
            let values: std::collections::BTreeSet<u8> = bytes.iter().map(|bytes| bytes[place]).collect();
            assert!(values.len() > 32, "64 bytes have {} values", values.len());
        }
    }

    #[test]
    fn the_stream_is_pinned() {
        // A new release must not change the model that a seed stands for.
        let first = |init| draw(42, "weight", init)[..3].to_vec();
        assert_eq!(first(Init::XavierUniform), [-0.209_266_19, -0.031_097_852, -0.010_425_37]);
        // None of these three lies beyond two deviations, where the two distributions part.
        for init in [Init::Normal { std: 1.0 }, Init::TruncatedNormal { std: 1.0 }] {
            assert_eq!(first(init), [-0.564_600_05, -0.185_944_45, -0.080_756_225]);
        }
    }

    #[test]
    fn moments_are_those_of_the_distribution() {
        let deviation = |values: &[f32]| {
            let n = values.len() as f64;
            (values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n).sqrt()
        };
        // Xavier: sqrt(2 / 96) = .1443; Kaiming: sqrt(2 / 64) = .1768; a normal cut at two deviations keeps .8796 of its own.
        for (init, expected) in [
            (Init::Normal { std: 0.02 }, 0.02),
            (Init::TruncatedNormal { std: 0.02 }, 0.02 * 0.8796),
            (Init::XavierUniform, 0.1443),
            (Init::XavierNormal, 0.1443),
            (Init::KaimingUniform, 0.1768),
            (Init::KaimingNormal, 0.1768),
        ] {
            let found = deviation(&draw(7, "weight", init));
            assert!((found / expected - 1.0).abs() < 0.06, "{init:?}: {found} for {expected}");
        }
        let cut = draw(7, "weight", Init::TruncatedNormal { std: 0.02 });
        assert!(cut.iter().all(|value| value.abs() <= 0.04));
    }
}
