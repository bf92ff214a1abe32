//! How a query weighs the keys: the choice, and the one place that tells its kinds apart.

use super::linear::LinearAttention;
use super::score::{AdditiveScore, BilinearScore};
use crate::init::{Init, ParamBuilder};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

fn features() -> usize {
    128
}

/// How a query weighs the keys.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{AttentionMechanism, Pass, PositionConfig, SequenceInput, TransformerConfig};
///
/// let config = TransformerConfig::new(16, 4, 2)
///     .with_position(PositionConfig::rotary())
///     .with_attention_mechanism(AttentionMechanism::Linear);
/// let model = config.init(&Device::flex());
/// let mut cache = model.cache(1_000_000);
/// let x = Tensor::<3>::zeros([1, 300, 16], &Device::flex());
/// model.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
/// // 2 layers of 4 heads: sums of 4 features times 4 values and a one, 4 bytes each.
/// assert_eq!((cache.len(), cache.bytes()), (300, 2 * 4 * 4 * 5 * 4));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum AttentionMechanism {
    /// The softmax of the dot products of query and keys, times [`ScoreScale`](crate::ScoreScale).
    #[default]
    DotProduct,
    /// The same with a trained matrix between query and key. See [`BilinearScore`].
    Bilinear,
    /// The softmax of the scores of a small network that reads the sum of query and key. See [`AdditiveScore`].
    Additive,
    /// The dot products of positive features of query and keys, over their sum: time and memory grow with the length, not
    /// with its square, and a causal decoder remembers sums of a constant size. See [`LinearAttention`].
    Linear,
    /// The same with random features, whose products are softmax attention in the mean: the more of them, the closer (Performer,
    /// Choromanski et al. 2021). They are drawn with the weights, saved beside them and never trained.
    #[doc(alias = "FAVOR+")]
    Performer {
        /// Number of features; the paper takes about `E log(E)` of heads of width `E`. Default: 128.
        #[serde(default = "features")]
        features: usize,
    },
}

/// The sizes that a mechanism is built for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) n_heads: usize,
    pub(super) n_kv_heads: usize,
    pub(super) d_head: usize,
}

impl AttentionMechanism {
    /// Whether it sums keys and values before a query is known, and has no scores.
    pub(crate) fn is_linear(self) -> bool {
        matches!(self, Self::Linear | Self::Performer { .. })
    }

    pub(super) fn init_with(self, heads: Heads, init: Init, params: &ParamBuilder) -> Mechanism {
        match self {
            Self::DotProduct => Mechanism::DotProduct(DotProduct {}),
            Self::Bilinear => Mechanism::Bilinear(BilinearScore::new(heads, init, params)),
            Self::Additive => Mechanism::Additive(AdditiveScore::new(heads, init, params)),
            Self::Linear => Mechanism::Linear(LinearAttention::new()),
            Self::Performer { features } => Mechanism::Linear(LinearAttention::random(heads.d_head, features, params)),
        }
    }
}

/// The mechanism of a layer, with its parameters where it has any.
#[derive(Module, Debug)]
pub enum Mechanism {
    /// Softmax over dot products.
    DotProduct(DotProduct),
    /// Softmax over products with a matrix between.
    Bilinear(BilinearScore),
    /// Softmax over the scores of a small network.
    Additive(AdditiveScore),
    /// Linear attention.
    Linear(LinearAttention),
}

/// Softmax over dot products, which has no parameters.
#[derive(Module, Debug)]
pub struct DotProduct {}

impl Mechanism {
    /// Floating point operations of one query, forward, for each of its heads: it meets `pairs` keys of `[key, value]` numbers.
    pub(super) fn flops(&self, pairs: f64, [key, value]: [usize; 2]) -> f64 {
        match self {
            Self::DotProduct(_) | Self::Bilinear(_) | Self::Additive(_) => 2.0 * pairs * (key + value) as f64,
            // It makes features of a query and a key, where they are random, adds to the sums and reads them.
            Self::Linear(linear) => {
                let features = linear.features(key);
                let made = if linear.projections.is_some() { key } else { 0 };
                4.0 * (features * (value + 1 + made)) as f64
            }
        }
    }

    /// Each head's query as it meets the keys, `[B, H, T, E]` as before.
    pub(super) fn query(&self, query: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Bilinear(score) => score.query(query),
            Self::Additive(score) => score.query(query),
            Self::DotProduct(_) | Self::Linear(_) => query,
        }
    }

    /// Each head's key as it meets the queries and as a cache keeps it, `[B, G, T, E]` as before.
    pub(super) fn key(&self, key: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Additive(score) => score.key(key),
            Self::DotProduct(_) | Self::Bilinear(_) | Self::Linear(_) => key,
        }
    }
}
