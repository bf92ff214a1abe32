//! A past of which the old part is compressed: the keys of several tokens become one key, their mean, and so do the values.
//!
//! ```text
//! tokens    0 1 2 3   4 5 6 7   8  9  10  11  12  13      rate 4, recent 4: 14 - 4 = 10 are old, and 8 make two sets
//! keys         m         m      8  9  10  11  12  13
//! position     6         7      8  9  10  11  12  13
//! ```
//!
//! Source: Rae et al. 2020, Compressive Transformers for Long-Range Sequence Modelling, §3, mean pooling with the compression rate `c`
//! (<https://arxiv.org/abs/1911.05507>); our `rate` is their `c`. Differs from the paper: it pools the vectors that a layer reads, before
//! their projection, in a model that is trained with it; here the keys and values of any trained model are pooled, keys after their
//! rotation. Without a rotation and a norm of the keys both are the same, since projections are linear.

use crate::error::{Checks, ConfigError};
use burn::tensor::Tensor;

/// How the past of a text is compressed while it is read: see [`Transformer::compressed_cache`](crate::Transformer::compressed_cache).
///
/// ```
/// use firelight_core::Compression;
///
/// let compression = Compression { recent: 512, rate: 4 };
/// assert!(compression.validate().is_ok());
/// assert_eq!(compression.keys(512), 512);
/// assert_eq!(compression.keys(8192), 512 + (8192 - 512) / 4);
/// ```
#[doc(alias = "compressed memory")]
#[doc(alias = "Compressive Transformer")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// Number of the newest tokens whose keys and values stay as they are.
    pub recent: usize,
    /// Number of older tokens that become one key and one value, at least 1; with 1 nothing is compressed.
    pub rate: usize,
}

impl Compression {
    /// # Errors
    /// Lists each of the two numbers that is 0 or larger than any size.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Checks::default().size("compression.recent", self.recent).size("compression.rate", self.rate).finish()
    }

    /// How many keys a pass finds that begins behind `len` tokens: the means, and the tokens that are not old enough or make no whole set.
    pub fn keys(&self, len: usize) -> usize {
        len - self.first(len)
    }

    /// How many tokens behind `len` a single pass reads as it would one by one: before those that follow the past is compressed again.
    pub fn room(&self, len: usize) -> usize {
        self.sets(len) * self.rate + self.recent + self.rate - len
    }

    /// The position of the first key that a pass finds behind `len` tokens: each mean stands for `rate` tokens, and takes one position.
    pub(crate) fn first(&self, len: usize) -> usize {
        self.sets(len) * (self.rate - 1)
    }

    /// How many sets of `rate` tokens are old behind `len` tokens.
    fn sets(&self, len: usize) -> usize {
        len.saturating_sub(self.recent) / self.rate
    }

    /// Keys or values whose first position is `first`, `[B, G, K, E]`, as those whose first position is `later`: the means at their begin
    /// are followed by those of the oldest tokens, which give way to them. The rate is above 1.
    pub(crate) fn pooled(&self, x: Tensor<4>, [first, later]: [usize; 2]) -> Tensor<4> {
        let [batch, groups, held, width] = x.dims();
        let [old, new] = [first, later - first].map(|positions| positions / (self.rate - 1));
        let sets = x.clone().narrow(2, old, new * self.rate).reshape([batch, groups, new, self.rate, width]);
        let means = sets.mean_dim(3).squeeze_dim::<4>(3);
        let tokens = old + new * self.rate..held;
        let before = (old > 0).then(|| x.clone().narrow(2, 0, old));
        let behind = (!tokens.is_empty()).then(|| x.narrow(2, tokens.start, tokens.len()));
        Tensor::cat(before.into_iter().chain([means]).chain(behind).collect(), 2)
    }
}
