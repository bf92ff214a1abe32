//! Which token stood where a mask stands: a dense layer with an activation and a norm, then a matrix and a bias.
//!
//! Source: Devlin et al. 2019, §3.1 (<https://arxiv.org/abs/1810.04805>) and its published code, whose matrix is that of the
//! embedding. A matrix of its own leaves the embedding free of what the head needs, how frequent a token is above all, and that is
//! better to begin other models from: Chung et al. 2021, Rethinking embedding coupling in pre-trained language models, §4
//! (<https://arxiv.org/abs/2010.12821>).

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use firelight_core::{
    Cost, HeadOptions, Init, Linear, LinearConfig, LmHead, LmHeadConfig, Norm, NormConfig, ParamBuilder, TokenEmbedding,
};
use serde::{Deserialize, Serialize};

use super::HeadActivation;

/// Configuration of a [`MaskedLanguageHead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaskedLanguageHeadConfig {
    /// The activation function of the dense layer. Default: the exact GELU.
    pub activation: HeadActivation,
    /// Whether the head ends in the embedding's matrix. Default: true.
    pub tied: bool,
    /// Whether the dense layer has a bias; ModernBERT's has none. Default: true.
    #[serde(skip_serializing_if = "is_true")]
    pub bias: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_true(flag: &bool) -> bool {
    *flag
}

impl Default for MaskedLanguageHeadConfig {
    fn default() -> Self {
        Self { activation: HeadActivation::Gelu, tied: true, bias: true }
    }
}

impl MaskedLanguageHeadConfig {
    /// Builds the head at the builder's path, with the encoder's norm, for vectors of width `D`, embeddings of width `E`, to which
    /// the dense layer leads, and `V` tokens.
    pub fn init_with(
        &self,
        [d_model, d_embedding, vocab_size]: [usize; 3],
        norm: NormConfig,
        init: Init,
        params: &ParamBuilder,
    ) -> MaskedLanguageHead {
        let dense = LinearConfig::new(d_model, d_embedding).with_bias(self.bias).with_init(init);
        let decoder = LmHeadConfig::new(d_embedding, vocab_size).with_tied(self.tied);
        let decoder = decoder.with_options(HeadOptions::default().with_bias(true));
        MaskedLanguageHead {
            dense: dense.init_with(&params.scope("dense")),
            norm: norm.init_with(d_embedding, &params.scope("norm")),
            decoder: decoder.with_init(init).init_with(&params.scope("decoder")),
            activation: self.activation,
        }
    }
}

/// Turns vectors into the logits of the tokens that were masked.
#[derive(Module, Debug)]
pub struct MaskedLanguageHead {
    /// `[D, E]`, to the width of the embedding.
    pub dense: Linear,
    /// The norm behind it.
    pub norm: Norm,
    /// The last matrix, `[E, V]`, or the embedding's, and a bias.
    pub decoder: LmHead,
    #[module(skip)]
    activation: HeadActivation,
}

impl MaskedLanguageHead {
    /// What each token costs whose logits are asked for.
    pub fn cost(&self, embedding: &TokenEmbedding) -> Cost {
        Cost::sum([
            Cost::of(&self.dense).named("dense"),
            Cost::of(&self.norm).named("norm"),
            self.decoder.cost(embedding).named("decoder"),
        ])
    }

    /// # Shapes
    /// - `hidden`: `[B, T, D]`; output: `[B, T, V]`
    pub fn forward(&self, hidden: Tensor<3>, embedding: &TokenEmbedding) -> Tensor<3> {
        let x = self.norm.forward(self.activation.forward(self.dense.forward(hidden)));
        self.decoder.forward(x, embedding)
    }

    /// The logits of some tokens alone. A training needs no others for its loss, and with a large vocabulary the head
    /// is most of the work.
    ///
    /// # Shapes
    /// - `hidden`: `[B, T, D]`, `places`: `[M]`, each `b T + t`; output: `[1, M, V]`
    pub fn forward_at(&self, hidden: Tensor<3>, places: Tensor<1, Int>, embedding: &TokenEmbedding) -> Tensor<3> {
        let hidden = hidden.flatten::<2>(0, 1); // [B T, D]
        let chosen = firelight_kernels::embedding(hidden, places.unsqueeze()); // [1, M, D]
        self.forward(chosen, embedding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;
    use burn::tensor::Device;
    use firelight_core::TokenEmbeddingConfig;
    use firelight_kernels::assert_close;

    #[test]
    fn a_matrix_of_its_own_is_what_the_head_ends_in() {
        let device = Device::default();
        let params = ParamBuilder::new(&device, 3);
        let embedding = TokenEmbeddingConfig::new(7, 4).init_with(&params);
        let init = Init::Normal { std: 0.5 };
        let head = |tied| {
            let config = MaskedLanguageHeadConfig { tied, ..MaskedLanguageHeadConfig::default() };
            config.init_with([4, 4, 7], NormConfig::default(), init, &params.scope("head"))
        };
        let hidden = Tensor::<3>::random([1, 3, 4], burn::tensor::Distribution::Default, &device);
        let (tied, mut own) = (head(true), head(false));
        assert!(tied.decoder.weight.is_none());
        let [expected, found] = [&tied, &own].map(|head| head.forward(hidden.clone(), &embedding).into_data());
        assert_ne!(expected, found);
        own.decoder.weight = Some(Param::from_tensor(embedding.weight.val().transpose()).into());
        let found = own.forward(hidden, &embedding).into_data();
        assert_close(&found, &expected, 1e-6);
    }
}
