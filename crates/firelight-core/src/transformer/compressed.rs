//! Caches whose past is compressed, and what has no place beside them.

use super::{SequenceInput, Transformer};
use crate::cache::Cache;
use crate::error::{Checks, ConfigError};
use crate::layer::Layer;
use crate::pass::Pass;
use crate::state::Compression;
use firelight_kernels::PairRule;
use std::collections::BTreeSet;

impl<L: Layer + 'static> Transformer<L> {
    /// A [`cache`](Self::cache) that compresses the past before each pass: of all tokens but the newest `recent` every `rate` become one
    /// key and one value, their means. It takes less memory and gives other outputs, which depend on how a text is cut into passes: a pass
    /// sees its own tokens one by one.
    ///
    /// Keys are turned by the true positions of their tokens, as queries are. To biases of distance, such as ALiBi's, a mean stands
    /// directly before what follows it, as a single token would.
    ///
    /// Layers compress their past whose pattern is causal and that keep the keys and values of all tokens, latents and those of
    /// differences included. The others keep what they kept, the last tokens or sums:
    /// [`states`](Cache::states) of the cache tells what each keeps. The cache refuses padding, documents, coordinates and rules of pairs, which are of single
    /// tokens; it can go back to the beginning of the last pass, and joins a cache of a text of the same length.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use firelight_core::{Compression, Pass, PositionConfig, SequenceInput, TransformerConfig};
    ///
    /// let config = TransformerConfig::new(16, 4, 2).with_position(PositionConfig::rotary());
    /// let model = config.init(&Device::flex());
    /// let compression = Compression { recent: 32, rate: 8 };
    /// let mut cache = model.compressed_cache(10_000, compression)?;
    /// for _ in 0..20 {
    ///     let x = Tensor::<3>::zeros([1, 50, 16], &Device::flex());
    ///     model.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
    /// }
    /// let mut full = model.cache(10_000);
    /// model.forward(Tensor::zeros([1, 1000, 16], &Device::flex()), &SequenceInput::default(), &mut Pass::cached(&mut full));
    /// assert_eq!((cache.len(), full.len()), (1000, 1000));
    /// assert!(4 * cache.bytes() < full.bytes());
    /// # Ok::<(), firelight_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a number of the compression is 0, or no layer can compress its past.
    pub fn compressed_cache(&self, capacity: usize, compression: Compression) -> Result<Cache, ConfigError> {
        compression.validate()?;
        let mut states: Vec<_> = (0..self.n_layers).map(|layer| self.state(layer, capacity)).collect();
        let kept: BTreeSet<String> = states.iter().map(|state| state.keeps()).collect();
        let mut compressed = 0;
        for (layer, state) in states.iter_mut().enumerate() {
            let sees_all = matches!(self.rule(layer), PairRule::Full | PairRule::Causal);
            compressed += usize::from(sees_all && state.compress(compression));
        }
        let refusal = || {
            let kept = kept.into_iter().collect::<Vec<_>>().join(", or ");
            format!(
                "compression needs a layer whose pattern is causal and hides nothing else, and that keeps all tokens; this stack \
                 has none, its layers keep {kept}: leave the compression out"
            )
        };
        Checks::default().require(compressed > 0, refusal).finish()?;
        Ok(Cache::new(states, capacity).compressed_by(compression))
    }
}

impl SequenceInput {
    /// # Panics
    /// If the past of the pass is compressed and something is said of single tokens.
    pub(super) fn check_compressed(&self, pass: &Pass) {
        if pass.compression().is_none() {
            return;
        }
        let rule = !matches!(self.rule, PairRule::Full | PairRule::Causal);
        let said = [
            ("padding", self.padding.is_some()),
            ("documents", self.documents.is_some()),
            ("coordinates", self.coordinates.is_some()),
            ("a rule of pairs", rule),
        ];
        if let Some((name, _)) = said.into_iter().find(|(_, said)| *said) {
            panic!(
                "{name} has no place beside a compressed past, which has means of several tokens: read texts of one length, or \
                 take a cache that keeps all tokens"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{AttentionPattern, DifferentialConfig, LatentConfig};
    use crate::gated_delta::GatedDeltaConfig;
    use crate::mixer::MixerConfig;
    use crate::position::PositionConfig;
    use crate::transformer::TransformerConfig;
    use crate::{Init, ParamBuilder, WeightInit};
    use burn::tensor::{Device, Int, Tensor};
    use firelight_kernels::{Difference, assert_close, assert_same_bits};

    const COMPRESSION: Compression = Compression { recent: 5, rate: 3 };

    fn config() -> TransformerConfig {
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        TransformerConfig::new(8, 2, 2).with_max_seq_len(24).with_init(wide)
    }

    fn built(config: TransformerConfig) -> Transformer {
        config.init_with(&ParamBuilder::new(&Device::default(), 3))
    }

    /// `[1, length, 8]`.
    fn text(length: usize) -> Tensor<3> {
        let numbers: Vec<f32> = (0..8 * length).map(|i| (i as f32 * 0.7).sin()).collect();
        Tensor::<1>::from_floats(numbers.as_slice(), &Device::default()).reshape([1, length, 8])
    }

    /// The outputs of a text that is read in parts.
    fn read(model: &Transformer, mut cache: Cache, parts: &[usize]) -> (Tensor<3>, Cache) {
        let (x, mut start) = (text(parts.iter().sum()), 0);
        let mut outputs = Vec::new();
        for &part in parts {
            let x = x.clone().narrow(1, start, part);
            outputs.push(model.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache)));
            start += part;
        }
        (Tensor::cat(outputs, 1), cache)
    }

    fn stacks() -> Vec<TransformerConfig> {
        let positions = [
            PositionConfig::None,
            PositionConfig::Learned,
            PositionConfig::Sinusoidal,
            PositionConfig::rotary(),
            PositionConfig::Alibi,
            PositionConfig::t5(false),
            PositionConfig::shaw(),
        ];
        let latent = MixerConfig::Latent(LatentConfig::new(6, 2));
        let latent = config().with_position(PositionConfig::rotary()).with_mixer(latent);
        let differential = config().with_mixer(MixerConfig::Differential(DifferentialConfig::default()));
        positions.into_iter().map(|position| config().with_position(position)).chain([latent, differential]).collect()
    }

    #[test]
    fn a_text_is_what_it_was_until_its_past_is_compressed_and_goes_on_then() {
        for config in stacks() {
            let model = built(config.clone());
            let parts = [&[4][..], &[1; 16]].concat();
            let (expected, _) = read(&model, model.cache(24), &parts);
            let compressed = model.compressed_cache(24, COMPRESSION).expect("a causal stack");
            let (found, cache) = read(&model, compressed, &parts);
            // The first pass with a compressed past is the one behind 8 tokens.
            assert_same_bits(&found.clone().narrow(1, 0, 8), &expected.clone().narrow(1, 0, 8));
            let difference = Difference::between(&found.narrow(1, 8, 12), &expected.narrow(1, 8, 12));
            assert!(difference.absolute > 1e-4 && difference.absolute.is_finite(), "{config:?}: {difference:?}");
            // 15 of 20 tokens are old and make 5 sets.
            assert!(cache.states().all(|state| state.keys(0) == (10..20)), "{config:?}");
        }
    }

    #[test]
    fn many_recent_tokens_or_a_rate_of_one_compress_nothing() {
        for config in stacks() {
            let model = built(config);
            let parts = [7, 1, 1, 6, 1, 1];
            let (expected, _) = read(&model, model.cache(24), &parts);
            for (compression, tolerance) in
                [(Compression { recent: 17, rate: 4 }, 0.0), (Compression { recent: 2, rate: 1 }, 1e-5)]
            {
                let (found, _) = read(&model, model.compressed_cache(24, compression).expect("causal"), &parts);
                assert_close(&found, &expected, tolerance);
            }
        }
    }

    #[test]
    fn what_is_taken_back_leaves_no_trace() {
        let model = built(config().with_position(PositionConfig::rotary()));
        let compressed = model.compressed_cache(24, COMPRESSION).expect("causal");
        let (_, mut cache) = read(&model, compressed, &[12, 2]);
        let mut guess = cache.clone();
        let step = |cache: &mut Cache, length| {
            model.forward(text(length), &SequenceInput::default(), &mut Pass::cached(cache))
        };
        step(&mut guess, 5);
        assert!(guess.can_truncate(14) && guess.can_truncate(0) && !guess.can_truncate(10));
        guess.truncate(14);
        for length in [1, 3] {
            assert_same_bits(&step(&mut guess, length), &step(&mut cache, length));
        }
        assert!(guess.states().all(|state| state.keys(1) == (8..19)), "13 of 18 tokens are old and make 4 sets");
    }

    #[test]
    fn rows_are_selected_and_joined_as_they_would_go_on_alone() {
        let model = built(config().with_position(PositionConfig::Alibi));
        let step = |cache: &mut Cache, rows: usize| {
            model.forward(text(1).repeat_dim(0, rows), &SequenceInput::default(), &mut Pass::cached(cache))
        };
        let compressed = || model.compressed_cache(24, COMPRESSION).expect("causal");
        let (_, mut one) = read(&model, compressed(), &[12, 1, 1]);
        let (_, mut other) = read(&model, compressed(), &[14]);
        let mut joined = one.clone();
        joined.join(other.clone());
        let found = step(&mut joined, 2);
        assert_close(&found.clone().narrow(0, 0, 1), &step(&mut one, 1), 1e-5);
        assert_close(&found.narrow(0, 1, 1), &step(&mut other, 1), 1e-5);
        joined.select_rows(&Tensor::<1, Int>::from_ints([1, 1, 0], &Device::default()));
        let found = step(&mut joined, 3);
        assert_close(&found.clone().narrow(0, 0, 1), &step(&mut other, 1), 1e-5);
        assert_close(&found.narrow(0, 2, 1), &step(&mut one, 1), 1e-5);
        joined.clear();
        let again = read(&model, joined, &[9, 1]).0;
        assert_same_bits(&again, &read(&model, compressed(), &[9, 1]).0);
    }

    #[test]
    fn layers_that_cannot_keep_what_they_kept_and_a_stack_of_them_is_refused() {
        let window = AttentionPattern::SlidingWindow { left: 2, right: 0 };
        let strided = AttentionPattern::Strided { stride: 2, causal: true };
        let patterns = |patterns: Vec<AttentionPattern>| built(config().with_patterns(patterns));
        let cache = patterns(vec![window, AttentionPattern::Causal]).compressed_cache(24, COMPRESSION).expect("one");
        let kept: Vec<String> = cache.states().map(|state| state.keeps()).collect();
        assert_eq!(kept, ["the last 2 tokens", "the last 5 tokens and the mean of every 3 before them"]);
        assert_eq!(cache.compression(), Some(COMPRESSION));
        let refused = |model: Transformer| model.compressed_cache(24, COMPRESSION).expect_err("refused").to_string();
        assert!(refused(patterns(vec![window, strided])).contains("its layers keep all tokens, or the last 2 tokens:"));
        let delta = MixerConfig::GatedDelta(GatedDeltaConfig::default());
        let delta = built(config().with_position(PositionConfig::None).with_mixer(delta));
        assert!(refused(delta).starts_with("compression needs a layer whose pattern is causal"));
        let zero = Compression { recent: 0, rate: 0 };
        let error = patterns(vec![AttentionPattern::Causal]).compressed_cache(24, zero).expect_err("zeros");
        let expected = ["compression.recent = 0 must be at least 1", "compression.rate = 0 must be at least 1"];
        assert_eq!(error.problems(), expected);
    }

    #[test]
    #[should_panic(expected = "padding has no place beside a compressed past")]
    fn padding_is_refused() {
        let model = built(config());
        let mut cache = model.compressed_cache(24, COMPRESSION).expect("causal");
        let input = SequenceInput::default().with_padding(Tensor::<2, Int>::zeros([1, 2], &Device::default()).bool());
        model.forward(text(2), &input, &mut Pass::cached(&mut cache));
    }
}
