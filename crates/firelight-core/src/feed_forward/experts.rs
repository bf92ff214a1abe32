//! A mixture of experts: every token is read by the few feed-forward networks that a router chooses for it.
//!
//! Sources: top-k routing Shazeer et al. 2017, §2.1 (<https://arxiv.org/abs/1701.06538>); softmax over the chosen experts
//! Jiang et al. 2024, §2.1 (<https://arxiv.org/abs/2401.04088>); load-balance loss and capacity Fedus et al. 2022, §2.2,
//! eq. 3 to 6 (<https://arxiv.org/abs/2101.03961>); shared expert, sigmoid scores, correction of the choice and limit of groups
//! DeepSeek-AI 2024, §2.1.2, eq. 12 to 16 (<https://arxiv.org/abs/2412.19437>). Differs from them: no noise on the router, and a
//! capacity is kept in training alone, so that a text means the same in one pass, in parts and beside others. The correction is
//! read from weights and stays as it is: no rule of balance moves it yet.

use super::routes::{Routes, largest};
use super::{FeedForward, FeedForwardConfig};
use crate::cost::Cost;
use crate::dropout::is_training;
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::{Init, ParamBuilder};
use crate::linear::{Linear, LinearConfig};
use crate::pass::LayerPass;
use crate::precision::widened;
use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::activation::{log_sigmoid, sigmoid, softmax};
use burn::tensor::{Bool, IndexingUpdateOp, Tensor};
use serde::{Deserialize, Serialize};

fn top_k() -> usize {
    2
}

/// How the router turns its logits into scores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RouterScores {
    /// Probabilities, which sum to 1 over all experts.
    #[default]
    Softmax,
    /// Each expert's own between 0 and 1, as DeepSeek-V3.
    Sigmoid,
}

fn one() -> usize {
    1
}

fn one_fold() -> f64 {
    1.0
}

/// Configuration of a mixture of experts: the number of experts, and how the router chooses among them.
#[doc(alias = "MoE")]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertsConfig {
    /// Number of experts `X`.
    pub n_experts: usize,
    /// Experts that read a token. Default: 2.
    #[serde(default = "top_k")]
    pub top_k: usize,
    /// Divides the chosen probabilities by their sum, as Mixtral; Switch and OLMoE do not. Default: with two experts a
    /// token and more. With one the quotient would be 1, and the router would learn nothing from the task.
    #[serde(default)]
    pub renormalise: Option<bool>,
    /// Capacity factor in training: an expert takes at most this multiple of its even share of the tokens, and tokens beyond it are
    /// dropped. Default: no limit, no token is dropped.
    #[serde(default)]
    pub capacity: Option<f64>,
    /// A bias of the router, as gpt-oss. Default: false.
    #[serde(default)]
    pub router_bias: bool,
    /// How the router turns its logits into scores. Default: probabilities.
    #[serde(default)]
    pub scores: RouterScores,
    /// Adds a number of its own to each expert's score for the choice alone, not for its weight, as DeepSeek-V3. Default: false.
    #[serde(default)]
    pub correction: bool,
    /// Groups of neighbouring experts. A token chooses groups first, by the two best scores in each. Default: 1.
    #[serde(default = "one")]
    pub n_groups: usize,
    /// Groups whose experts a token may choose. Default: 1.
    #[serde(default = "one")]
    pub top_groups: usize,
    /// Number of shared experts, which read every token; they are one network with an inner width of so many experts. Default: 0.
    #[serde(default)]
    pub n_shared: usize,
    /// Factor of the chosen experts' weights. Default: 1.
    #[serde(default = "one_fold")]
    pub scale: f64,
}

impl ExpertsConfig {
    /// Two of `n_experts` for each token, as Mixtral.
    pub fn new(n_experts: usize) -> Self {
        Self {
            n_experts,
            top_k: top_k(),
            renormalise: None,
            capacity: None,
            router_bias: false,
            scores: RouterScores::default(),
            correction: false,
            n_groups: one(),
            top_groups: one(),
            n_shared: 0,
            scale: one_fold(),
        }
    }

    /// Sets whether the router has a bias.
    pub fn with_router_bias(mut self, router_bias: bool) -> Self {
        self.router_bias = router_bias;
        self
    }

    /// Sets how the router turns its logits into scores.
    pub fn with_scores(mut self, scores: RouterScores) -> Self {
        self.scores = scores;
        self
    }

    /// Sets whether the choice has a correction bias for each expert.
    pub fn with_correction(mut self, correction: bool) -> Self {
        self.correction = correction;
        self
    }

    /// Sets how many groups there are, and of how many a token may choose.
    pub fn with_groups(mut self, n_groups: usize, top_groups: usize) -> Self {
        (self.n_groups, self.top_groups) = (n_groups, top_groups);
        self
    }

    /// Sets the number of shared experts.
    pub fn with_shared(mut self, n_shared: usize) -> Self {
        self.n_shared = n_shared;
        self
    }

    /// Sets the factor of the chosen experts' weights.
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }

    /// Sets how many experts read a token.
    pub fn with_top_k(mut self, top_k: usize) -> Self {
        self.top_k = top_k;
        self
    }

    /// Sets whether the weights of the chosen experts sum to 1.
    pub fn with_renormalise(mut self, renormalise: bool) -> Self {
        self.renormalise = Some(renormalise);
        self
    }

    /// Sets the capacity factor.
    pub fn with_capacity(mut self, capacity: f64) -> Self {
        self.capacity = Some(capacity);
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { n_experts, top_k, renormalise, capacity, n_groups, top_groups, scale, .. } = *self;
        let in_reach = top_groups.saturating_mul(n_experts / n_groups.max(1));
        Checks::default()
            .size("experts.n_experts", n_experts)
            .size("experts.top_k", top_k)
            .require(top_k <= n_experts, || {
                format!(
                    "experts.top_k = {top_k} must be at most n_experts = {n_experts}: a token has no more to choose"
                )
            })
            .size("experts.n_groups", n_groups)
            .size("experts.top_groups", top_groups)
            .require(n_groups == 0 || n_experts.is_multiple_of(n_groups), || {
                format!("experts.n_experts = {n_experts} must be a multiple of n_groups = {n_groups}")
            })
            .require(top_groups <= n_groups.max(1) && top_k.min(n_experts) <= in_reach, || {
                format!(
                    "experts.top_groups = {top_groups} of n_groups = {n_groups} must have room for top_k = {top_k} experts"
                )
            })
            .require(scale > 0.0 && scale.is_finite(), || format!("experts.scale = {scale} must be above 0"))
            .require(renormalise != Some(true) || top_k != 1, || {
                "experts.renormalise = true needs top_k = 2 or more: a single weight would always be 1".into()
            })
            .require(capacity.is_none_or(|capacity| capacity > 0.0 && capacity.is_finite()), || {
                format!("experts.capacity = {} must be above 0, or left out", capacity.unwrap_or_default())
            })
            .finish()
    }

    /// The one that reads every token.
    fn shared(&self, expert: &FeedForwardConfig) -> FeedForwardConfig {
        expert.clone().with_d_ff(expert.d_ff().saturating_mul(self.n_shared))
    }

    /// Builds the experts, each as `expert` says, at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, expert: &FeedForwardConfig, params: &ParamBuilder) -> MixtureOfExperts {
        expect_valid(self.validate());
        let router = LinearConfig::new(expert.d_model, self.n_experts).with_bias(self.router_bias);
        let router = router.with_init(expert.init);
        let experts = params.scope("experts");
        MixtureOfExperts {
            router: router.init_with(&params.scope("router")),
            experts: (0..params.built(self.n_experts, 1)).map(|i| expert.init_with(&experts.scope(i))).collect(),
            correction: self
                .correction
                .then(|| params.param("correction", [self.n_experts], Init::Zeros).set_require_grad(false)),
            shared: (self.n_shared > 0).then(|| self.shared(expert).init_with(&params.scope("shared"))),
            training: DropoutConfig::new(0.0).init(),
            config: *self,
        }
    }
}

/// A mixture of experts: several feed-forward networks, of which each token is routed to a few.
///
/// `y = shared(x) + scale Σ g_e(x) expert_e(x)` over the `top_k` experts with the largest `p = softmax(router(x))`, where `g` is
/// `p`, or `p` divided by the sum over the chosen. Only the chosen experts are computed.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{Activation, AuxiliaryLosses, ExpertsConfig, FeedForwardConfig, ParamBuilder, Pass};
///
/// let expert = FeedForwardConfig::new(8, Activation::SwiGlu);
/// let layer = ExpertsConfig::new(4).init_with(&expert, &ParamBuilder::new(&Device::flex(), 0));
/// let mut losses = AuxiliaryLosses::default();
/// let mut pass = Pass::default().with_losses(&mut losses);
/// let y = layer.forward(Tensor::<3>::ones([2, 5, 8], &Device::flex()), None, &mut pass.layer(0));
/// assert_eq!(y.dims(), [2, 5, 8]);
/// assert!(losses.load_balance().is_some());
/// ```
#[doc(alias = "MoE")]
#[derive(Module, Debug)]
pub struct MixtureOfExperts {
    /// `[D, X]`.
    pub router: Linear,
    /// The experts.
    pub experts: Vec<FeedForward>,
    /// `[X]`, added to the scores for the choice alone; it has no gradient.
    pub correction: Option<Param<Tensor<1>>>,
    /// Reads every token.
    pub shared: Option<FeedForward>,
    /// Knows whether the module is being trained.
    training: Dropout,
    #[module(skip)]
    config: ExpertsConfig,
}

impl MixtureOfExperts {
    /// Padding, `[B, T]`, is routed to no expert, takes no capacity and gives 0.
    ///
    /// The choice is made on the host, ties to the first, so that every backend makes the same: one copy of `[B T, X]`
    /// numbers a layer.
    ///
    /// # Shapes
    /// - `x`: `[B, T, D]`; output: the same
    pub fn forward(&self, x: Tensor<3>, padding: Option<&Tensor<2, Bool>>, pass: &mut LayerPass) -> Tensor<3> {
        let [batch, length, d_model] = x.dims();
        let tokens = x.reshape([batch * length, d_model]); // [N, D]
        let logits = widened(self.router.forward(tokens.clone())); // [N, X]
        let probabilities = match self.config.scores {
            RouterScores::Softmax => softmax(logits.clone(), 1),
            RouterScores::Sigmoid => sigmoid(logits.clone()),
        };
        let routes = self.routes(&probabilities, padding);
        if let Some(losses) = pass.losses() {
            losses.add_load_balance(routes.load_balance(&match self.config.scores {
                RouterScores::Softmax => probabilities.clone(),
                // DeepSeek-AI 2024, eq. 19: scores that do not sum to 1 count by their share, σ(l) / Σ σ(l).
                RouterScores::Sigmoid => softmax(log_sigmoid(logits), 1),
            }));
        }
        let gates = self.gates(probabilities, &routes).cast(tokens.dtype());
        let mixed = self.mix(tokens.clone(), gates, &routes);
        let output = match &self.shared {
            Some(shared) => shared.forward(tokens) + mixed,
            None => mixed,
        };
        output.reshape([batch, length, d_model])
    }

    /// What it costs a token: the router, `top_k` of the experts, and what reads every token.
    pub(crate) fn cost(&self) -> Cost {
        let router = Cost::of(&self.router).with_activations(self.config.n_experts).named("router");
        // Each keeps its tokens, which are copied out of the sequence, and what it makes of them, which is weighed.
        let kept = self.router.widths()[0].saturating_mul(2);
        let experts = self.experts.first().map(|expert| expert.cost().with_activations(kept));
        let experts = experts.map(|expert| expert.repeated(self.config.n_experts, self.config.top_k));
        let correction = self.correction.as_ref().map(|correction| Cost::of(correction).named("correction"));
        let shared = self.shared.as_ref().map(|shared| shared.cost().named("shared"));
        let experts = experts.map(|experts| experts.named("experts"));
        Cost::sum([Some(router), experts, correction, shared].into_iter().flatten())
    }

    fn routes(&self, probabilities: &Tensor<2>, padding: Option<&Tensor<2, Bool>>) -> Routes {
        let host: Vec<f32> = probabilities.to_data().iter::<f32>().collect();
        let padding: Option<Vec<bool>> = padding.map(|padding| padding.to_data().iter::<bool>().collect());
        let counted = |token: usize| padding.as_ref().is_none_or(|padding| !padding[token]);
        let mut routes = Routes::new(self.config.n_experts);
        let correction = self.correction.as_ref().map(|correction| correction.val().into_data());
        let correction = correction.map_or(vec![0.0; self.config.n_experts], |data| data.iter::<f32>().collect());
        for (token, row) in host.chunks(self.config.n_experts).enumerate() {
            let scores: Vec<f32> = row.iter().zip(&correction).map(|(score, correction)| score + correction).collect();
            routes.push(if counted(token) { self.config.choose(&scores) } else { Vec::new() });
        }
        if let (Some(capacity), true) = (self.config.capacity, is_training(&self.training, &probabilities.device())) {
            routes.truncate(capacity);
        }
        routes
    }

    /// The weight of every expert for every token, 0 where it is not chosen: `[N, X]`.
    fn gates(&self, probabilities: Tensor<2>, routes: &Routes) -> Tensor<2> {
        let gates = probabilities.clone()
            * Tensor::from_data(routes.chosen(), (&probabilities.device(), probabilities.dtype()));
        let ExpertsConfig { n_experts, top_k, renormalise, scores, scale, .. } = self.config;
        if !renormalise.unwrap_or(top_k > 1) {
            return gates * scale;
        }
        // The largest k of X probabilities sum to k / X at least: the bound only keeps padding from dividing 0 by 0.
        let bound = match scores {
            RouterScores::Softmax => 0.5 * top_k as f64 / n_experts as f64,
            RouterScores::Sigmoid => 1e-20,
        };
        let sum = gates.clone().sum_dim(1).clamp_min(bound);
        gates / sum * scale
    }

    /// Every expert reads its own tokens, in the order of the experts, so that the sum is always taken alike.
    fn mix(&self, tokens: Tensor<2>, gates: Tensor<2>, routes: &Routes) -> Tensor<2> {
        let mut output = tokens.zeros_like();
        for (e, (expert, rows)) in self.experts.iter().zip(&routes.tokens).enumerate() {
            if rows.is_empty() {
                continue;
            }
            let rows = Tensor::from_ints(rows.as_slice(), &tokens.device());
            let gate = gates.clone().narrow(1, e, 1).select(0, rows.clone()); // [n, 1]
            let read = expert.forward(tokens.clone().select(0, rows.clone())) * gate; // [n, D]
            output = output.select_assign(0, rows, read, IndexingUpdateOp::Add);
        }
        output
    }
}

impl ExpertsConfig {
    /// The experts with the largest scores, those of the best groups alone where there are several.
    fn choose(&self, scores: &[f32]) -> Vec<usize> {
        if self.n_groups == 1 {
            return largest(scores, self.top_k);
        }
        let size = self.n_experts / self.n_groups;
        let worth = |group: &[f32]| largest(group, 2).into_iter().map(|expert| group[expert]).sum();
        let worths: Vec<f32> = scores.chunks(size).map(worth).collect();
        let groups = largest(&worths, self.top_groups);
        let allowed = |expert: usize| groups.contains(&(expert / size));
        let reachable = |(expert, score): (usize, &f32)| if allowed(expert) { *score } else { f32::NEG_INFINITY };
        largest(&scores.iter().enumerate().map(reachable).collect::<Vec<_>>(), self.top_k)
    }
}

#[cfg(test)]
mod tests;
