//! The language-model head: vectors become logits, by a matrix of its own or by the embedding's.

use std::ops::Range;

use crate::cost::Cost;
use crate::embedding::{TokenEmbedding, TokenEmbeddingConfig};
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::{Init, ParamBuilder};
use crate::linear::{Linear, LinearConfig};
use crate::weight::{Weight, WeightLayout};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use firelight_kernels::LogitMap;
use serde::{Deserialize, Serialize};

fn yes() -> bool {
    true
}

/// What a head puts around its product with a matrix: logits are `cap(scale (x weight + bias))`, as [`LogitMap`] has it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeadOptions {
    /// Adds a trained bias, which begins at 0, as GPT-J and Phi do. Default: false.
    pub bias: bool,
    /// Multiplies the logits: Cohere's `logit_scale`, one over Granite's `logits_scaling`. Default: 1.
    #[doc(alias = "logit_scale")]
    pub scale: f64,
    /// Bounds the logits by `c tanh(logit / c)`, as Gemma 2 does with 30. Default: none.
    #[doc(alias = "final_logit_softcapping")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft_cap: Option<f64>,
}

impl Default for HeadOptions {
    fn default() -> Self {
        Self { bias: false, scale: 1.0, soft_cap: None }
    }
}

impl HeadOptions {
    /// Whether logits are the product alone, as GPT-2's.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Sets whether there is a bias.
    pub fn with_bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Sets the factor of the logits.
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }

    /// Sets the bound of the logits.
    pub fn with_soft_cap(mut self, soft_cap: Option<f64>) -> Self {
        self.soft_cap = soft_cap;
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let above_0 = |value: f64| value > 0.0 && value.is_finite();
        Checks::default()
            .require(above_0(self.scale), || format!("head.scale = {} must be above 0", self.scale))
            .require(self.soft_cap.is_none_or(above_0), || {
                format!("head.soft_cap = {:?} must be above 0, or left out", self.soft_cap.unwrap_or_default())
            })
            .finish()
    }
}

/// Configuration of an [`LmHead`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LmHeadConfig {
    /// Width `D` of a vector.
    pub d_model: usize,
    /// Number of tokens `V`.
    pub vocab_size: usize,
    /// Shares the embedding's matrix (Press and Wolf 2017). Default: true.
    #[serde(default = "yes")]
    pub tied: bool,
    /// Width `E` of that embedding, where it is another: then a linear layer without bias, `[D, E]`, leads back to it, as in
    /// OPT-350m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_embedding: Option<usize>,
    /// Bias, scale and soft cap of the logits. Default: none of them.
    #[serde(default, skip_serializing_if = "HeadOptions::is_plain")]
    pub options: HeadOptions,
    /// Distribution of a matrix of its own. Default: `N(0, 0.02)`.
    #[serde(default)]
    pub init: Init,
}

impl LmHeadConfig {
    /// A tied head.
    pub fn new(d_model: usize, vocab_size: usize) -> Self {
        let options = HeadOptions::default();
        Self { d_model, vocab_size, tied: true, d_embedding: None, options, init: Init::default() }
    }

    /// Sets whether the head shares the embedding's matrix.
    pub fn with_tied(mut self, tied: bool) -> Self {
        self.tied = tied;
        self
    }

    /// Sets the width of the embedding whose matrix a tied head reads.
    pub fn with_d_embedding(mut self, d_embedding: usize) -> Self {
        self.d_embedding = Some(d_embedding).filter(|width| *width != self.d_model);
        self
    }

    /// Sets bias, scale and soft cap of the logits.
    pub fn with_options(mut self, options: HeadOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the distribution of a matrix of its own.
    pub fn with_init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let matrix = TokenEmbeddingConfig::new(self.vocab_size, self.d_model).with_init(self.init);
        let checks = Checks::default().include(matrix.validate()).include(self.options.validate());
        checks.size("d_embedding", self.d_embedding.unwrap_or(1)).finish()
    }

    /// Builds the head; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> LmHead {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the head at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> LmHead {
        expect_valid(self.validate());
        let HeadOptions { bias, scale, soft_cap } = self.options;
        let back = |width| LinearConfig::new(self.d_model, width).with_bias(false).with_init(self.init);
        LmHead {
            projection: self
                .d_embedding
                .filter(|_| self.tied)
                .map(|width| back(width).init_with(&params.scope("projection"))),
            weight: (!self.tied)
                .then(|| Weight::of_map(params.param("weight", [self.d_model, self.vocab_size], self.init))),
            bias: bias.then(|| params.param("bias", [self.vocab_size], Init::Zeros)),
            scale,
            soft_cap,
        }
    }
}

/// Turns vectors into logits.
///
/// A tied head holds no matrix: it exists once, in the embedding, so it cannot come untied when trained, saved or loaded.
#[doc(alias = "unembedding")]
#[derive(Module, Debug)]
pub struct LmHead {
    /// `[D, E]`, from the width of the vectors to that of the embedding, where a tied head needs it.
    #[doc(alias = "project_out")]
    pub projection: Option<Linear>,
    /// `[D, V]`, where the matrix is not the embedding's.
    pub weight: Option<Weight>,
    /// `[V]`.
    pub bias: Option<Param<Tensor<1>>>,
    scale: f64,
    soft_cap: Option<f64>,
}

impl LmHead {
    /// What it costs a token: its products, also those with the matrix of the embedding, whose numbers are the embedding's. It keeps
    /// what its projection gives.
    pub fn cost(&self, embedding: &TokenEmbedding) -> Cost {
        let tied = if self.weight.is_none() { Cost::of(embedding).flops_per_token } else { 0.0 };
        let kept = self.projection.as_ref().map_or(0, |projection| projection.widths()[1]);
        Cost::of(self).with_flops(tied).with_activations(kept)
    }

    /// # Shapes
    /// - `hidden`: `[B, T, D]`; output: `[B, T, V]`
    pub fn forward(&self, hidden: Tensor<3>, embedding: &TokenEmbedding) -> Tensor<3> {
        self.lazy(hidden, embedding).form()
    }

    /// The same logits, to be formed later, or some at a time by [`TokenCriterion::forward_head`](crate::TokenCriterion::forward_head).
    ///
    /// # Shapes
    /// - `hidden`: `[B, T, D]`
    pub fn lazy(&self, hidden: Tensor<3>, embedding: &TokenEmbedding) -> LazyLogits {
        let hidden = match &self.projection {
            Some(projection) => projection.forward(hidden),
            None => hidden,
        };
        let (weight, role) = match &self.weight {
            Some(weight) => (weight, WeightLayout::Columns),
            None => (&embedding.weight, WeightLayout::Rows),
        };
        weight.note_input(&hidden);
        let map = weight.logit_map(role).with_bias(self.bias.as_ref().map(Param::val));
        LazyLogits::new(hidden, map.with_scale(self.scale).with_soft_cap(self.soft_cap))
    }
}

/// Logits that are not formed yet. With a large vocabulary they are the largest tensor of a training.
#[derive(Debug, Clone)]
pub struct LazyLogits {
    /// `[B, T, D]`; `[B, T, E]` where they are projected to the width of the embedding.
    pub hidden: Tensor<3>,
    /// What they are multiplied by, and what is put around the product.
    pub map: LogitMap,
}

impl LazyLogits {
    /// The logits of vectors that the map fits.
    pub fn new(hidden: Tensor<3>, map: LogitMap) -> Self {
        Self { hidden, map }
    }

    /// Those of some tokens of every row alone.
    pub fn narrow(&self, tokens: Range<usize>) -> Self {
        Self::new(self.hidden.clone().narrow(1, tokens.start, tokens.len()), self.map.clone())
    }

    /// All logits, `[B, T, V]`.
    pub fn form(self) -> Tensor<3> {
        self.map.forward(self.hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Distribution;
    use firelight_kernels::assert_close;

    #[test]
    fn a_head_is_its_product_with_what_stands_around_it() {
        let device = Device::default();
        let options = HeadOptions::default().with_bias(true).with_scale(0.5).with_soft_cap(Some(2.0));
        let embedding = TokenEmbeddingConfig::new(7, 5).init_with(&ParamBuilder::new(&device, 0));
        let hidden = Tensor::<3>::random([2, 3, 5], Distribution::Default, &device);
        let bias = Tensor::<1>::random([7], Distribution::Default, &device);
        for tied in [true, false] {
            let mut head =
                LmHeadConfig::new(5, 7).with_tied(tied).with_options(options).init_with(&ParamBuilder::new(&device, 0));
            head.bias = Some(Param::from_tensor(bias.clone()));
            let weight = head.weight.as_ref().map_or_else(|| embedding.weight.val().transpose(), Weight::val);
            let product = hidden.clone().matmul(weight.unsqueeze()) + bias.clone().unsqueeze();
            let expected = (product * 0.5 / 2.0).tanh() * 2.0;
            assert_close(&head.forward(hidden.clone(), &embedding), &expected, 1e-5);
            assert_close(&head.lazy(hidden.clone(), &embedding).narrow(1..3).form(), &expected.narrow(1, 1, 2), 1e-5);
        }
    }

    #[test]
    fn a_tied_head_leads_back_to_the_width_of_the_embedding() {
        let device = Device::default();
        let embedding = TokenEmbeddingConfig::new(7, 3).init_with(&ParamBuilder::new(&device, 0));
        let hidden = Tensor::<3>::random([2, 3, 5], Distribution::Default, &device);
        let head = LmHeadConfig::new(5, 7).with_d_embedding(3).init_with(&ParamBuilder::new(&device, 0));
        let back = head.projection.as_ref().expect("a projection").weight.val();
        let expected = hidden.clone().matmul(back.matmul(embedding.weight.val().transpose()).unsqueeze());
        assert_close(&head.forward(hidden.clone(), &embedding), &expected, 1e-5);
        let own =
            LmHeadConfig::new(5, 7).with_d_embedding(3).with_tied(false).init_with(&ParamBuilder::new(&device, 0));
        assert!(own.projection.is_none() && own.forward(hidden, &embedding).dims() == [2, 3, 7]);
        assert!(
            LmHeadConfig::new(5, 7).with_d_embedding(5).init_with(&ParamBuilder::new(&device, 0)).projection.is_none(),
            "of one width"
        );
    }

    #[test]
    fn a_tied_head_costs_its_products_and_no_numbers() {
        let device = Device::default();
        let found = |config: LmHeadConfig, d_embedding: usize| {
            let embedding = TokenEmbeddingConfig::new(7, d_embedding).init_with(&ParamBuilder::new(&device, 0));
            let Cost { parameters, flops_per_token, activations_per_token, .. } =
                config.init_with(&ParamBuilder::new(&device, 0)).cost(&embedding);
            (parameters, flops_per_token, activations_per_token)
        };
        let (tied, biased) = (LmHeadConfig::new(5, 7), HeadOptions::default().with_bias(true));
        assert_eq!(found(tied.clone(), 5), (0, 70.0, 0));
        assert_eq!(found(tied.clone().with_tied(false), 5), (35, 70.0, 0));
        assert_eq!(found(tied.clone().with_options(biased), 5), (7, 70.0, 0));
        assert_eq!(found(tied.with_d_embedding(3), 3), (15, 2.0 * (15.0 + 21.0), 3));
    }

    #[test]
    fn a_plain_head_is_not_written() {
        let plain = LmHeadConfig::new(5, 7);
        assert!(!serde_json::to_string(&plain).expect("text").contains("options"));
        let text = r#"{"d_model": 5, "vocab_size": 7, "options": {"soft_cap": 30.0, "bias": true}}"#;
        let read: LmHeadConfig = serde_json::from_str(text).expect("a configuration");
        assert_eq!(read.options, HeadOptions::default().with_bias(true).with_soft_cap(Some(30.0)));
        let written = serde_json::to_string(&read).expect("text");
        assert_eq!(serde_json::from_str::<LmHeadConfig>(&written).expect("a configuration"), read);
    }

    #[test]
    fn options_are_judged() {
        let problems = |options: HeadOptions| {
            let error = LmHeadConfig::new(5, 7).with_options(options).validate().expect_err("problems");
            error.problems().to_vec()
        };
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let options = HeadOptions::default().with_scale(bad).with_soft_cap(Some(bad));
            assert_eq!(
                problems(options),
                [
                    format!("head.scale = {bad} must be above 0"),
                    format!("head.soft_cap = {bad:?} must be above 0, or left out"),
                ]
            );
        }
    }
}
