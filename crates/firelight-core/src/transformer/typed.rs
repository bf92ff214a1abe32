//! Caches that store keys and values in fewer bits than they are computed in.

use super::Transformer;
use crate::cache::Cache;
use crate::error::{Checks, ConfigError};
use crate::layer::Layer;
use crate::state::CacheType;
use burn::module::Module;
use burn::tensor::{DType, Device};
use std::collections::BTreeSet;

impl<L: Layer + 'static> Transformer<L> {
    /// A [`cache`](Self::cache) that stores keys and values as numbers of a type of its own: less memory, and nearly the same outputs.
    ///
    /// Keys and values are rounded once, when their token is read, and each token by itself; attention reads what is stored of all tokens, those
    /// of the pass included. So a text is the same however it is cut into passes. Rounding comes behind the rotation of the keys.
    ///
    /// Layers store so what they keep as keys and values, latents included. Sums of linear attention and the states of recurrences stay as
    /// they are, and so do the keys and values of an encoder's output: [`states`](Cache::states) of the cache tells what each layer keeps.
    ///
    /// On a CPU attention reads `Bf16` where it lies, but additive and linear scores, latents and differences. Elsewhere, and in `Q8_0`, each pass
    /// makes numbers of the type of the query of what it reads, of one layer at a time.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use firelight_core::{CacheType, ConfigError, Pass, PositionConfig, SequenceInput, TransformerConfig};
    ///
    /// let model = TransformerConfig::new(64, 2, 2).with_position(PositionConfig::rotary()).init(&Device::flex());
    /// let x = Tensor::<3>::ones([1, 100, 64], &Device::flex());
    /// let bytes = |cache_type| {
    ///     let mut cache = model.cache_in(100, cache_type)?;
    ///     model.forward(x.clone(), &SequenceInput::default(), &mut Pass::cached(&mut cache));
    ///     Ok::<_, ConfigError>(cache.bytes())
    /// };
    /// let full = bytes(CacheType::Computed)?;
    /// assert_eq!(2 * bytes(CacheType::Bf16)?, full);
    /// assert_eq!(32 * bytes(CacheType::Q8_0)?, 9 * full); // 9 bits of 32.
    /// # Ok::<(), ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If no layer keeps keys and values, or the device has no numbers of the type.
    pub fn cache_in(&self, capacity: usize, cache_type: CacheType) -> Result<Cache, ConfigError> {
        if cache_type == CacheType::Computed {
            return Ok(self.cache(capacity));
        }
        let mut states: Vec<_> = (0..self.n_layers).map(|layer| self.state(layer, capacity)).collect();
        let kept: BTreeSet<String> = states.iter().map(|state| state.keeps()).collect();
        let stored: usize = states.iter_mut().map(|state| usize::from(state.store_as(cache_type))).sum();
        let refusal = || {
            let kept = kept.into_iter().collect::<Vec<_>>().join(", or ");
            format!(
                "a cache of type {cache_type} needs a layer that keeps keys and values; this stack has none, its layers keep {kept}: \
                 leave the type out"
            )
        };
        let lacking = lacking(&self.devices(), cache_type);
        let checks = Checks::default().require(stored > 0, refusal);
        checks.require(lacking.is_none(), || lacking.unwrap_or_default()).finish()?;
        Ok(Cache::new(states, capacity))
    }
}

/// What is wrong with the type on the first device that cannot hold it.
fn lacking(devices: &[Device], cache_type: CacheType) -> Option<String> {
    let dtype = DType::from(cache_type.float()?);
    let device = devices.iter().find(|device| !device.supports_dtype(dtype))?;
    Some(format!(
        "the device {device:?} has no numbers of type {cache_type}: take a cache of type q8_0, or leave the type out"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamBuilder;
    use crate::attention::{AttentionPattern, DifferentialConfig, LatentConfig};
    use crate::gated_delta::GatedDeltaConfig;
    use crate::mixer::MixerConfig;
    use crate::pass::Pass;
    use crate::position::PositionConfig;
    use crate::transformer::{SequenceInput, TransformerConfig};
    use burn::tensor::Tensor;
    use firelight_kernels::{Difference, assert_same_bits};

    fn config() -> TransformerConfig {
        TransformerConfig::new(8, 2, 2).with_max_seq_len(24)
    }

    fn built(config: TransformerConfig) -> Transformer {
        config.init_with(&ParamBuilder::new(&Device::default(), 3))
    }

    /// Keys that are turned, latents, and differences.
    fn stacks() -> Vec<TransformerConfig> {
        let rotary = || config().with_position(PositionConfig::rotary());
        let latent = rotary().with_mixer(MixerConfig::Latent(LatentConfig::new(6, 2)));
        let differential = config().with_mixer(MixerConfig::Differential(DifferentialConfig::default()));
        vec![rotary(), latent, differential]
    }

    /// Those that the device can hold.
    fn types() -> impl Iterator<Item = CacheType> {
        let can = |cache_type: &CacheType| lacking(&[Device::default()], *cache_type).is_none();
        CacheType::ALL.into_iter().filter(can)
    }

    /// The outputs of a text that is read in parts.
    fn read(model: &Transformer, cache: &mut Cache, parts: &[usize]) -> Tensor<3> {
        let read = |part: &usize| {
            let (start, length) = (cache.len(), *part);
            let numbers: Vec<f32> = (8 * start..8 * (start + length)).map(|i| (i as f32 * 0.7).sin()).collect();
            let x = Tensor::<1>::from_floats(numbers.as_slice(), &Device::default()).reshape([1, length, 8]);
            model.forward(x, &SequenceInput::default(), &mut Pass::cached(cache))
        };
        Tensor::cat(parts.iter().map(read).collect(), 1)
    }

    fn kept(cache: &Cache) -> Vec<String> {
        cache.states().map(|state| state.keeps()).collect()
    }

    #[test]
    fn outputs_are_nearly_those_of_a_plain_cache_however_a_text_is_cut() {
        for config in stacks() {
            let model = built(config.clone());
            for parts in [&[20][..], &[7, 1, 12], &[1; 20]] {
                let expected = read(&model, &mut model.cache(24), parts);
                for cache_type in types() {
                    let mut cache = model.cache_in(24, cache_type).expect("keys and values");
                    let found = read(&model, &mut cache, parts);
                    let difference = Difference::between(&found, &expected);
                    match cache_type {
                        CacheType::Computed | CacheType::F32 => assert_same_bits(&found, &expected),
                        _ => assert!(
                            difference.absolute > 0.0 && difference.absolute < 0.05 * difference.largest,
                            "{cache_type} {config:?}: {difference:?}"
                        ),
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_taken_back_leaves_no_trace() {
        for cache_type in types() {
            let model = built(config());
            let mut cache = model.cache_in(24, cache_type).expect("keys and values");
            read(&model, &mut cache, &[9, 2]);
            let mut guess = cache.clone();
            read(&model, &mut guess, &[4]);
            guess.truncate(11);
            assert_same_bits(&read(&model, &mut guess, &[1, 3]), &read(&model, &mut cache, &[1, 3]));
        }
    }

    #[test]
    fn layers_tell_what_they_store_and_a_stack_without_keys_is_refused() {
        let patterns = vec![AttentionPattern::SlidingWindow { left: 2, right: 0 }, AttentionPattern::Causal];
        let cache = built(config().with_patterns(patterns)).cache_in(24, CacheType::Q8_0).expect("keys and values");
        assert_eq!(kept(&cache), ["the last 2 tokens in q8_0", "all tokens in q8_0"]);
        let delta = MixerConfig::GatedDelta(GatedDeltaConfig::default());
        let delta = built(config().with_position(PositionConfig::None).with_mixer(delta));
        let error = delta.cache_in(24, CacheType::Q8_0).expect_err("sums alone").to_string();
        assert!(error.contains("its layers keep a matrix of all tokens: leave the type out"), "{error}");
        assert_eq!(kept(&delta.cache_in(24, CacheType::Computed).expect("any")), kept(&delta.cache(24)));
    }

    #[cfg(feature = "ndarray")]
    #[test]
    #[allow(deprecated)]
    fn a_type_that_the_device_lacks_is_refused() {
        let model = config().init_with(&ParamBuilder::new(&Device::ndarray(), 3));
        let error = model.cache_in(24, CacheType::Bf16).expect_err("no bf16").to_string();
        assert!(error.contains("has no numbers of type bf16: take a cache of type q8_0"), "{error}");
        let mut cache = model.cache_in(24, CacheType::Q8_0).expect("integers of 32 bits");
        let x = Tensor::<3>::ones([1, 3, 8], &Device::ndarray());
        let y = model.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
        assert!(y.into_data().iter::<f32>().all(f32::is_finite));
    }
}
