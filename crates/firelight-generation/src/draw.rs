//! Random numbers by place: ChaCha8 (Bernstein 2008) keyed by the seed, with a stream for each sample. A draw depends neither on the backend, nor
//! on the row of the batch, nor on earlier draws.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Where a number is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Draw {
    pub(crate) seed: u64,
    /// Number of the sample of a prompt. Rows that draw by one seed and one sample draw alike.
    pub(crate) sample: usize,
    /// Index of the new token.
    pub(crate) step: usize,
}

impl Draw {
    /// The number in `[0, 1)` that chooses a token.
    pub(crate) fn token(self) -> f64 {
        self.uniform(0)
    }

    /// The number in `[0, 1)` for processors, independent of [`token`](Self::token).
    pub(crate) fn aside(self) -> f64 {
        self.uniform(1)
    }

    /// 53 random bits: two words of the stream of this sample, at the place of this step.
    fn uniform(self, purpose: u8) -> f64 {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8] = purpose;
        let mut stream = ChaCha8Rng::from_seed(key);
        stream.set_stream(self.sample as u64);
        stream.set_word_pos(2 * self.step as u128);
        (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_draws_never_changes() {
        // Computed by an independent ChaCha8 (key seed, counter and nonce from step and sample): a change here would change
        // every text that users generated with a seed.
        let token = |seed, step, sample| Draw { seed, sample, step }.token();
        assert_eq!(token(0, 0, 0), 0.8369197568826472);
        assert_eq!(token(7, 0, 0), 0.764109042047738);
        assert_eq!(token(7, 9, 0), 0.9525841410603305);
        assert_eq!(token(7, 0, 1), 0.934366023437627);
        assert_ne!(token(7, 0, 1), Draw { seed: 7, sample: 1, step: 0 }.aside());
    }
}
