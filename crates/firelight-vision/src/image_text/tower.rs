//! The tower of texts: tokens become vectors, of which that of the end token is the vector of the text.

use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor};
use firelight_core::{
    ParamBuilder, Pass, SequenceInput, TokenEmbedding, TokenEmbeddingConfig, Transformer, TransformerConfig,
};

use super::ImageTextConfig;

/// A causal stack that reads tokens.
#[derive(Module, Debug)]
pub struct TextTower {
    /// Tokens become vectors.
    pub embedding: TokenEmbedding,
    /// The stack, with its final norm.
    pub transformer: Transformer,
    max_seq_len: usize,
    end_token: Option<u32>,
}

impl TextTower {
    pub(super) fn new(config: &ImageTextConfig, params: &ParamBuilder) -> Self {
        let TransformerConfig { d_model, init, max_seq_len, .. } = config.text;
        let embedding = TokenEmbeddingConfig::new(config.vocab_size, d_model).with_init(init.weight);
        Self {
            embedding: embedding.init_with(&params.scope("embedding")),
            transformer: config.text.init_with(&params.scope("transformer")),
            max_seq_len,
            end_token: config.end_token,
        }
    }

    /// The vectors of all tokens after the final norm. Those behind the end of a text change nothing before it.
    ///
    /// # Shapes
    /// - `tokens`: `[B, T]`; `padding`: `[B, T]`, true where a text has ended; output: `[B, T, D]`
    ///
    /// # Panics
    /// If a text is longer than the table of positions.
    pub fn hidden(&self, tokens: Tensor<2, Int>, padding: Option<Tensor<2, Bool>>, pass: &mut Pass) -> Tensor<3> {
        let input = SequenceInput { padding, ..SequenceInput::default() };
        self.transformer.forward(self.embedding.forward(tokens), &input, pass)
    }

    /// The vector of the end of each text: of the first of its end tokens or, where nobody says which that is, of the first token with
    /// the highest id. Of a text without an end it is the vector of the first token.
    ///
    /// # Shapes
    /// - `tokens`: `[B, T]`; `hidden`: `[B, T, D]`; output: `[B, D]`
    pub fn pooled(&self, tokens: Tensor<2, Int>, hidden: Tensor<3>) -> Tensor<2> {
        let ([batch, length], width) = (tokens.dims(), hidden.dims()[2]);
        let rank = match self.end_token {
            Some(end) => tokens.equal_elem(end).int(),
            None => tokens,
        };
        // No two are equal, so that every backend finds the same one: the first of the highest.
        let from_behind = Tensor::arange(0..length as i64, &rank.device()).flip([0]).unsqueeze();
        let end = (rank * length as i64 + from_behind).argmax(1); // [B, 1]
        hidden.gather(1, end.unsqueeze_dim::<3>(2).expand([batch, 1, width])).squeeze_dim(1)
    }

    /// The longest text, in tokens.
    pub fn max_seq_len(&self) -> usize {
        self.max_seq_len
    }

    /// Number of tokens `V`.
    pub fn vocab_size(&self) -> usize {
        self.embedding.weight.shape()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use firelight_core::VisionTransformerConfig;
    use firelight_kernels::{Difference, assert_close};
    use proptest::prelude::*;

    fn tower(end_token: Option<u32>) -> TextTower {
        let vit = VisionTransformerConfig::new(8, 4, 0, TransformerConfig::encoder(4, 2, 1));
        let text = TransformerConfig::new(8, 2, 2).with_max_seq_len(12);
        let config = ImageTextConfig::new(20, vit, text).with_end_token(end_token);
        TextTower::new(&config, &ParamBuilder::new(&Device::default(), 3))
    }

    fn ints(rows: &[&[i32]]) -> Tensor<2, Int> {
        let flat: Vec<i32> = rows.concat();
        Tensor::<1, Int>::from_ints(flat.as_slice(), &Device::default()).reshape([rows.len(), rows[0].len()])
    }

    #[test]
    fn the_first_end_speaks_and_without_one_the_first_token() {
        let places = Tensor::<1>::from_floats([0.0, 1.0, 2.0, 3.0], &Device::default());
        let hidden = places.reshape([1, 4, 1]).expand([3, 4, 1]);
        let tokens = ints(&[&[5, 7, 9, 7], &[9, 9, 5, 7], &[1, 2, 3, 3]]);
        assert_close(&tower(Some(7)).pooled(tokens.clone(), hidden.clone()), &[1.0, 3.0, 0.0], 0.0);
        assert_close(&tower(None).pooled(tokens, hidden), &[2.0, 0.0, 2.0], 0.0);
    }

    proptest! {
        /// What stands behind the end of a text changes its vector no more than rounding does.
        #[test]
        fn what_follows_the_end_does_not_count(
            text in prop::collection::vec(0i32..18, 1..8), after in prop::collection::vec(0i32..20, 1..4),
        ) {
            let tower = tower(Some(19));
            let of = |row: &[i32]| {
                let tokens = ints(&[row]);
                tower.pooled(tokens.clone(), tower.hidden(tokens, None, &mut Pass::default()))
            };
            let ended = [&text[..], &[19]].concat();
            let difference = Difference::between(&of(&ended), &of(&[&ended[..], &after].concat())).absolute;
            prop_assert!(difference < 1e-5, "{difference}");
            let other = [&[18], &text[1..], &[19]].concat();
            prop_assert!(Difference::between(&of(&ended), &of(&other)).absolute > 1e-6, "the text counts");
        }
    }
}
