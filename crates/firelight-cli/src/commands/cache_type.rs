//! How the KV cache is stored: an option of `generate` and `chat`.

use firelight::language::TextGenerator;
use firelight::nn::CacheType;
use firelight::storage::TaskError;

#[derive(clap::Args, Clone)]
pub(super) struct KvCache {
    /// Store keys and values of the KV cache as f32, bf16 or q8_0 [default: as they are computed]
    #[arg(long, value_name = "TYPE", value_parser = parse)]
    cache_type: Option<CacheType>,
}

impl KvCache {
    /// The generator with a cache of this type.
    pub(super) fn apply(&self, generator: TextGenerator) -> Result<TextGenerator, TaskError> {
        match self.cache_type {
            Some(cache_type) => generator.with_cache_type(cache_type),
            None => Ok(generator),
        }
    }
}

/// # Errors
/// Lists the names.
fn parse(name: &str) -> Result<CacheType, String> {
    let known = [CacheType::F32, CacheType::Bf16, CacheType::Q8_0];
    known.into_iter().find(|known| known.name() == name).ok_or_else(|| "expected f32, bf16 or q8_0".into())
}
