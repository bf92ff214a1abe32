//! The affine layer.

use crate::adapter::Adapter;
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::{Init, ParamBuilder};
use crate::weight::Weight;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

fn yes() -> bool {
    true
}

/// Configuration of a [`Linear`] layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearConfig {
    /// Width of the input.
    pub d_in: usize,
    /// Width of the output.
    pub d_out: usize,
    /// Adds a trained offset, which begins at 0. Default: true.
    #[serde(default = "yes")]
    pub bias: bool,
    /// Distribution of the weight. Default: `N(0, 0.02)`.
    #[serde(default)]
    pub init: Init,
}

impl LinearConfig {
    /// A layer with bias.
    pub fn new(d_in: usize, d_out: usize) -> Self {
        Self { d_in, d_out, bias: true, init: Init::default() }
    }

    /// Sets whether there is a bias.
    pub fn with_bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Sets the distribution of the weight.
    pub fn with_init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Checks::default().size("d_in", self.d_in).size("d_out", self.d_out).include(self.init.validate()).finish()
    }

    /// Builds the layer; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> Linear {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the layer at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> Linear {
        expect_valid(self.validate());
        let layer = Linear {
            weight: Weight::of_map(params.param("weight", [self.d_in, self.d_out], self.init)),
            bias: self.bias.then(|| params.param("bias", [self.d_out], Init::Zeros)),
            adapter: None,
        };
        match params.adapter(self.d_in, self.d_out) {
            Some(adapter) => Linear { adapter: Some(adapter), ..layer.no_grad() },
            None => layer,
        }
    }
}

/// `x weight + bias` over the last dimension, and what an adapter adds.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[I, O]`.
    pub weight: Weight,
    /// `[O]`.
    pub bias: Option<Param<Tensor<1>>>,
    /// A low-rank change, in a model that is built with adapters; weight and bias are then not trained.
    pub adapter: Option<Adapter>,
}

impl Linear {
    /// # Shapes
    /// - `x`: `[..., I]`; output: `[..., O]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let bias = self.bias.as_ref().map(Param::val);
        let Some(adapter) = &self.adapter else { return self.weight.product(x, bias) };
        let change = adapter.forward(x.clone());
        match adapter.column_scale(&self.weight) {
            Some(scale) => scaled(self.weight.product(x, None) + change, scale, bias),
            None => self.weight.product(x, bias) + change,
        }
    }

    /// The map of the outputs `from .. to` alone, as a layer of its own would compute it.
    pub(crate) fn forward_columns<const D: usize>(&self, x: Tensor<D>, from: usize, to: usize) -> Tensor<D> {
        let bias = self.bias.as_ref().map(|bias| bias.val().narrow(0, from, to - from));
        let product = |x: Tensor<D>, bias: Option<Tensor<1>>| self.weight.product_of_columns(x, from..to, bias);
        let Some(adapter) = &self.adapter else { return product(x, bias) };
        let change = adapter.forward_columns(x.clone(), from, to);
        match adapter.column_scale(&self.weight) {
            Some(scale) => scaled(product(x, None) + change, scale.narrow(0, from, to - from), bias),
            None => product(x, bias) + change,
        }
    }

    /// Inputs and outputs, `[I, O]`.
    pub(crate) fn widths(&self) -> [usize; 2] {
        self.weight.dims()
    }

    /// The weight with the change of the adapter, as floats.
    pub(crate) fn merged_weight(&self) -> Tensor<2> {
        let Some(adapter) = &self.adapter else { return self.weight.val() };
        let (scale, change) = (adapter.column_scale(&self.weight), adapter.change());
        let changed = self.weight.val_for(&change) + change;
        match scale {
            Some(scale) => changed * scale.unsqueeze(),
            None => changed,
        }
    }
}

/// `y scale + bias` over the last dimension.
fn scaled<const D: usize>(y: Tensor<D>, scale: Tensor<1>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let y = y * scale.unsqueeze();
    match bias {
        Some(bias) => y + bias.unsqueeze(),
        None => y,
    }
}
