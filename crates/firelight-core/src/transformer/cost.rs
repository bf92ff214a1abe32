//! What a stack costs per token, without building it.
//!
//! Source of the arithmetic: Chowdhery et al. 2022, PaLM, appendix B (<https://arxiv.org/abs/2204.02311>): `6 N + 12 L H E T`
//! floating point operations per token in forward and backward pass. The memory is counted from what this library's own
//! operations keep for the backward pass.

use super::TransformerConfig;

impl TransformerConfig {
    /// Floating point operations of one training token in sequences of full length, forward and backward.
    pub fn train_flops_per_token(&self) -> usize {
        let attentions = if self.cross_attention { 2 } else { 1 };
        6 * self.num_params() + attentions * 12 * self.n_layers * self.n_heads * self.d_head() * self.max_seq_len
    }

    /// Floats that the layers keep of one token for the backward pass: in each two norms with their inputs (4 d), queries, keys
    /// and values (3 d or less), the output of the attention (d), and the inner activations before and after the nonlinearity (2 or
    /// 3 d_ff). A cross-attention is one more norm and one more attention.
    pub fn floats_kept_per_token(&self) -> usize {
        let heads = 2 * self.n_heads + 2 * self.n_kv_heads.unwrap_or(self.n_heads);
        let inner = if self.activation.is_gated() { 3 } else { 2 };
        let cross = if self.cross_attention { 2 * self.d_model + heads * self.d_head() } else { 0 };
        let layer = 4 * self.d_model
            + heads * self.d_head()
            + cross
            + inner * self.d_ff.unwrap_or_else(|| self.activation.default_d_ff(self.d_model));
        self.n_layers * layer + 2 * self.d_model
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PositionConfig;

    #[test]
    fn a_small_stack_is_counted_by_hand() {
        let stack = TransformerConfig { d_ff: Some(32), ..TransformerConfig::new(8, 2, 1) };
        let stack = stack.with_max_seq_len(4).with_position(PositionConfig::None);
        // Attention 4 (64 + 8), feed-forward 2 * 256 + 32 + 8, three norms of 16.
        assert_eq!(stack.train_flops_per_token(), 6 * 888 + 12 * 8 * 4);
        assert_eq!(stack.floats_kept_per_token(), 4 * 8 + 4 * 8 + 2 * 32 + 16);
        let decoder = TransformerConfig { cross_attention: true, ..stack };
        // One more attention and one more norm.
        assert_eq!(decoder.train_flops_per_token(), 6 * (888 + 288 + 16) + 2 * 12 * 8 * 4);
        assert_eq!(decoder.floats_kept_per_token(), 144 + 16 + 32);
    }
}
