//! From the vectors of a text's tokens to one vector of the text. Padding never counts.
//!
//! Sources: the class token with a dense layer and tanh, Devlin et al. 2019, §3.1 (<https://arxiv.org/abs/1810.04805>, the
//! pooler of its published code); mean and max Reimers and Gurevych 2019, §3 (<https://arxiv.org/abs/1908.10084>), and the other means and
//! the last token as `models/Pooling.py` of sentence-transformers has them; attention
//! Yang et al. 2016, eq. 5 to 7 (<https://aclanthology.org/N16-1174>): `u = tanh(W h + b)`, weights `softmax(u · q)`.

use burn::module::{Module, Param};
use burn::tensor::activation::{softmax, tanh};
use burn::tensor::{Bool, Tensor};
use firelight_core::{Init, Linear, LinearConfig, ParamBuilder};
use firelight_kernels::linear;
use serde::{Deserialize, Serialize};

use crate::heads::HeadActivation;

/// Where the vector of a text comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PoolingConfig {
    /// The vector of the first token, which is the class token.
    #[default]
    Class,
    /// The mean over the tokens.
    Mean,
    /// The largest value of each channel.
    Max,
    /// The sum over the tokens divided by the root of their number.
    MeanSqrtLen,
    /// The mean over the tokens, of which the n-th counts n times.
    WeightedMean,
    /// The vector of the last token, for models in which tokens see those before them alone.
    Last,
    /// A mean with trained weights.
    Attention,
}

impl PoolingConfig {
    /// Builds the layer at the builder's path.
    pub fn init_with(self, d_model: usize, init: Init, params: &ParamBuilder) -> Pooling {
        match self {
            Self::Class => Pooling::Class(ClassPooling {}),
            Self::Mean => Pooling::Mean(MeanPooling {}),
            Self::Max => Pooling::Max(MaxPooling {}),
            Self::MeanSqrtLen => Pooling::MeanSqrtLen(MeanSqrtLenPooling {}),
            Self::WeightedMean => Pooling::WeightedMean(WeightedMeanPooling {}),
            Self::Last => Pooling::Last(LastPooling {}),
            Self::Attention => Pooling::Attention(AttentionPooling {
                projection: LinearConfig::new(d_model, d_model).with_init(init).init_with(&params.scope("projection")),
                query: params.param("query", [d_model], init),
            }),
        }
    }
}

/// One vector out of many.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per model, and Burn's modules cannot be boxed")]
pub enum Pooling {
    /// The first.
    Class(ClassPooling),
    /// Their mean.
    Mean(MeanPooling),
    /// Their maximum.
    Max(MaxPooling),
    /// Their sum, divided by the root of their number.
    MeanSqrtLen(MeanSqrtLenPooling),
    /// Their mean, with weights that rise.
    WeightedMean(WeightedMeanPooling),
    /// The last.
    Last(LastPooling),
    /// Their mean with trained weights.
    Attention(AttentionPooling),
}

impl Pooling {
    /// # Shapes
    /// - `hidden`: `[B, T, D]`, `padding`: `[B, T]`, true where a text has ended; output: `[B, D]`
    pub fn forward(&self, hidden: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> Tensor<2> {
        match self {
            Self::Class(_) => hidden.narrow(1, 0, 1).squeeze_dim(1),
            Self::Mean(_) => mean(hidden, padding),
            Self::Max(_) => filled(hidden, padding, f32::MIN).max_dim(1).squeeze_dim(1),
            Self::MeanSqrtLen(_) => {
                let length = real(&hidden, padding).sum_dim(1).squeeze_dim::<2>(1).sqrt(); // [B, 1]
                mean(hidden, padding) * length
            }
            Self::WeightedMean(_) => {
                let real = real(&hidden, padding); // [B, T, 1]
                weighted(hidden, padding, real.clone().cumsum(1) * real)
            }
            Self::Last(_) => {
                let real = real(&hidden, padding);
                let place = real.clone().cumsum(1) * real; // 1, 2, ... and 0 where there is no token
                let most = place.clone().max_dim(1).clamp_min(1.0); // [B, 1, 1]
                weighted(hidden, padding, place.clone().equal(most.expand(place.dims())).float())
            }
            Self::Attention(attention) => attention.forward(hidden, padding),
        }
    }
}

/// The vector of the first token.
#[derive(Module, Debug)]
pub struct ClassPooling {}

/// The mean over the tokens that are no padding.
#[derive(Module, Debug)]
pub struct MeanPooling {}

/// The maximum over the tokens that are no padding.
#[derive(Module, Debug)]
pub struct MaxPooling {}

/// The sum over the tokens that are no padding, divided by the root of their number.
#[derive(Module, Debug)]
pub struct MeanSqrtLenPooling {}

/// The mean over the tokens that are no padding, of which the n-th counts n times.
#[derive(Module, Debug)]
pub struct WeightedMeanPooling {}

/// The vector of the last token that is no padding.
#[derive(Module, Debug)]
pub struct LastPooling {}

/// The mean over the tokens with trained weights.
#[derive(Module, Debug)]
pub struct AttentionPooling {
    /// `[D, D]`.
    pub projection: Linear,
    /// `[D]`, what a token is compared with.
    pub query: Param<Tensor<1>>,
}

impl AttentionPooling {
    fn forward(&self, hidden: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> Tensor<2> {
        let keys = tanh(self.projection.forward(hidden.clone()));
        let query = self.query.val().unsqueeze_dim::<2>(1); // [D, 1]
        let weights = softmax(filled(linear(keys, query, None), padding, f32::MIN), 1); // [B, T, 1]
        (hidden * weights).sum_dim(1).squeeze_dim(1)
    }
}

/// The mean over the tokens that are no padding.
///
/// # Shapes
/// - `hidden`: `[B, T, D]`, `padding`: `[B, T]`; output: `[B, D]`
pub(crate) fn mean(hidden: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> Tensor<2> {
    let Some(padding) = padding else { return hidden.mean_dim(1).squeeze_dim(1) };
    let count = padding.clone().bool_not().float().sum_dim(1).clamp_min(1.0); // [B, 1]
    let sum: Tensor<2> = filled(hidden, Some(padding), 0.0).sum_dim(1).squeeze_dim(1);
    sum / count
}

/// 1 for every token and 0 for padding, `[B, T, 1]`.
fn real(hidden: &Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> Tensor<3> {
    let [rows, tokens, _] = hidden.dims();
    match padding {
        Some(padding) => padding.clone().bool_not().float().unsqueeze_dim(2),
        None => Tensor::ones([rows, tokens, 1], &hidden.device()),
    }
}

/// The mean with these weights, `[B, T, 1]`, which are 0 for padding.
fn weighted(hidden: Tensor<3>, padding: Option<&Tensor<2, Bool>>, weights: Tensor<3>) -> Tensor<2> {
    let total = weights.clone().sum_dim(1).squeeze_dim::<2>(1).clamp_min(1e-9); // [B, 1]
    // What stands where padding is may be anything, infinite numbers too.
    let sum: Tensor<2> = (filled(hidden, padding, 0.0) * weights).sum_dim(1).squeeze_dim(1);
    sum / total
}

/// `x`, `[B, T, C]`, with `value` where a token is padding.
fn filled(x: Tensor<3>, padding: Option<&Tensor<2, Bool>>, value: f32) -> Tensor<3> {
    match padding {
        Some(padding) => {
            let shape = x.dims();
            x.mask_fill(padding.clone().unsqueeze_dim::<3>(2).expand(shape), value)
        }
        None => x,
    }
}

/// Configuration of a [`Pooler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolerConfig {
    /// Where the vector comes from. Default: the class token.
    #[serde(default)]
    pub pooling: PoolingConfig,
    /// The activation function of a dense layer behind it; none leaves the vector as it is.
    #[serde(default)]
    pub dense: Option<HeadActivation>,
}

impl PoolerConfig {
    /// The class token through a dense layer and tanh, as BERT.
    pub fn bert() -> Self {
        Self { pooling: PoolingConfig::Class, dense: Some(HeadActivation::Tanh) }
    }

    /// The class token through a dense layer and ReLU, as DistilBERT.
    pub fn distilbert() -> Self {
        Self { pooling: PoolingConfig::Class, dense: Some(HeadActivation::Relu) }
    }

    /// The pooled vector as it is.
    pub fn plain(pooling: PoolingConfig) -> Self {
        Self { pooling, dense: None }
    }

    /// Builds the layer at the builder's path.
    pub fn init_with(&self, d_model: usize, init: Init, params: &ParamBuilder) -> Pooler {
        let dense = || LinearConfig::new(d_model, d_model).with_init(init).init_with(&params.scope("dense"));
        Pooler {
            pooling: self.pooling.init_with(d_model, init, &params.scope("pooling")),
            dense: self.dense.map(|_| dense()),
            activation: self.dense.unwrap_or_default(),
        }
    }
}

/// One vector of a text, through a dense layer where there is one.
#[derive(Module, Debug)]
pub struct Pooler {
    /// One vector out of many.
    pub pooling: Pooling,
    /// `[D, D]`.
    pub dense: Option<Linear>,
    #[module(skip)]
    activation: HeadActivation,
}

impl Pooler {
    /// # Shapes
    /// - `hidden`: `[B, T, D]`, `padding`: `[B, T]`, true where a text has ended; output: `[B, D]`
    pub fn forward(&self, hidden: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> Tensor<2> {
        let pooled = self.pooling.forward(hidden, padding);
        match &self.dense {
            Some(dense) => self.activation.forward(dense.forward(pooled)),
            None => pooled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, TensorData};
    use firelight_kernels::assert_close;

    const ALL: [PoolingConfig; 7] = [
        PoolingConfig::Class,
        PoolingConfig::Mean,
        PoolingConfig::Max,
        PoolingConfig::MeanSqrtLen,
        PoolingConfig::WeightedMean,
        PoolingConfig::Last,
        PoolingConfig::Attention,
    ];

    fn pooling(config: PoolingConfig, device: &Device) -> Pooling {
        config.init_with(2, Init::Normal { std: 1.0 }, &ParamBuilder::new(device, 3))
    }

    #[test]
    fn three_tokens_by_hand() {
        let device = Device::default();
        let hidden = || Tensor::<3>::from_floats([[[1.0, -4.0], [3.0, -2.0], [9.0, 9.0]]], &device);
        let padding = Tensor::<2, Bool>::from_bool(TensorData::from([[false, false, true]]), &device);
        for (config, expected) in [
            (PoolingConfig::Class, [1.0f32, -4.0]),
            (PoolingConfig::Mean, [2.0, -3.0]),
            (PoolingConfig::Max, [3.0, -2.0]),
            (PoolingConfig::MeanSqrtLen, [4.0 / 2f32.sqrt(), -6.0 / 2f32.sqrt()]),
            (PoolingConfig::WeightedMean, [7.0 / 3.0, -8.0 / 3.0]),
            (PoolingConfig::Last, [3.0, -2.0]),
        ] {
            let found = pooling(config, &device).forward(hidden(), Some(&padding)).into_data();
            assert_close(&found, &TensorData::from([expected]), 1e-6);
        }
        // The identity for W and q = (0.5, 0): scores 0.5 tanh(1) and 0.5 tanh(3), whose softmax is 0.470851 and 0.529149.
        let attention = AttentionPooling {
            projection: Linear {
                weight: Param::from_tensor(Tensor::<2>::eye(2, &device)).into(),
                bias: None,
                adapter: None,
            },
            query: Param::from_data([0.5, 0.0], &device),
        };
        let found = Pooling::Attention(attention).forward(hidden(), Some(&padding)).into_data();
        assert_close(&found, &TensorData::from([[2.058_299f32, -2.941_701]]), 1e-5);
    }

    #[test]
    fn padding_changes_nothing_whatever_stands_there() {
        let device = Device::default();
        let hidden = Tensor::<3>::random([2, 3, 2], Distribution::Default, &device);
        let noise = Tensor::<3>::full([2, 2, 2], 1e6, &device);
        let longer = Tensor::cat(vec![hidden.clone(), noise], 1);
        let padding = TensorData::from([[false, false, false, true, true]; 2]);
        let padding = Tensor::<2, Bool>::from_bool(padding, &device);
        for config in ALL {
            let pooling = pooling(config, &device);
            let expected = pooling.forward(hidden.clone(), None).into_data();
            let found = pooling.forward(longer.clone(), Some(&padding)).into_data();
            assert_close(&found, &expected, 1e-5);
        }
    }

    #[test]
    fn padding_learns_nothing() {
        let device = Device::default().autodiff();
        let padding = Tensor::<2, Bool>::from_bool(TensorData::from([[false, true]]), &device);
        for config in ALL {
            let hidden = Tensor::<3>::random([1, 2, 2], Distribution::Default, &device).require_grad();
            let gradients = pooling(config, &device).forward(hidden.clone(), Some(&padding)).sum().backward();
            let gradient = hidden.grad(&gradients).expect("a gradient");
            assert_eq!(gradient.narrow(1, 1, 1).abs().max().into_scalar::<f32>(), 0.0, "{config:?}");
        }
    }
}
