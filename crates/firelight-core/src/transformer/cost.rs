//! What a stack costs per token, without building it.
//!
//! Source of the arithmetic: Chowdhery et al. 2022, PaLM, appendix B (<https://arxiv.org/abs/2204.02311>): `6 N + 12 L H E T`
//! floating point operations per token in forward and backward pass. The memory is counted from what this library's own
//! operations keep for the backward pass.

use super::{LayerConfig, TransformerConfig};

impl TransformerConfig {
    /// Floating point operations of one training token in sequences of full length, forward and backward.
    pub fn train_flops_per_token(&self) -> usize {
        let scores = |layer: &LayerConfig| {
            let attentions = if layer.block.cross_attention { 2 } else { 1 };
            let attention = &layer.block.attention;
            attentions * 12 * attention.n_heads * attention.d_head() * self.max_seq_len
        };
        // Every turn of a shared layer is computed.
        6 * Self { share_layers: false, ..self.clone() }.num_params()
            + self.turns().map(|(layer, times)| times * scores(layer)).sum::<usize>()
    }

    /// Floats that the layers keep of one token for the backward pass: in each two norms with their inputs (4 d), queries, keys
    /// and values (3 d or less), the output of the attention (d), and the inner activations before and after the nonlinearity (2 or
    /// 3 d_ff). A cross-attention is one more norm and one more attention.
    pub fn floats_kept_per_token(&self) -> usize {
        let kept = |layer: &LayerConfig| {
            let (attention, feed_forward) = (&layer.block.attention, &layer.block.feed_forward);
            let heads = 2 * (attention.n_heads + attention.n_kv_heads()) * attention.d_head();
            let inner = if feed_forward.activation.is_gated() { 3 } else { 2 };
            let cross = if layer.block.cross_attention { 2 * self.d_model + heads } else { 0 };
            4 * self.d_model + heads + cross + inner * feed_forward.d_ff()
        };
        self.turns().map(|(layer, times)| times * kept(layer)).sum::<usize>() + 2 * self.d_model
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PositionConfig;

    #[test]
    fn a_small_stack_is_counted_by_hand() {
        let stack = TransformerConfig::new(8, 2, 1).with_d_ff(32);
        let stack = stack.with_max_seq_len(4).with_position(PositionConfig::None);
        // Attention 4 (64 + 8), feed-forward 2 * 256 + 32 + 8, three norms of 16.
        assert_eq!(stack.train_flops_per_token(), 6 * 888 + 12 * 8 * 4);
        assert_eq!(stack.floats_kept_per_token(), 4 * 8 + 4 * 8 + 2 * 32 + 16);
        let [twice, shared] = [false, true].map(|share| {
            let stack = TransformerConfig { n_layers: 2, ..stack.clone() }.with_share_layers(share);
            (stack.train_flops_per_token(), stack.floats_kept_per_token())
        });
        assert_eq!(shared, twice);
        let decoder = stack.with_cross_attention(true);
        // One more attention and one more norm.
        assert_eq!(decoder.train_flops_per_token(), 6 * (888 + 288 + 16) + 2 * 12 * 8 * 4);
        assert_eq!(decoder.floats_kept_per_token(), 144 + 16 + 32);
    }
}
