//! How the past of a text is compressed: options of `generate`.

use firelight::nn::Compression;

#[derive(clap::Args, Clone)]
pub(super) struct CompressedPast {
    /// Keep the KV cache of the newest RECENT tokens and compress what is older: less memory, another text
    #[arg(long, value_name = "RECENT", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["no_cache", "contrastive", "cache_type"])]
    compress_past: Option<u32>,
    /// Tokens of the compressed past that become one, the mean of their keys and values
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..),
        requires = "compress_past")]
    compress_rate: u32,
}

impl CompressedPast {
    /// The compression, where one is asked for.
    pub(super) fn compression(&self) -> Option<Compression> {
        Some(Compression { recent: self.compress_past? as usize, rate: self.compress_rate as usize })
    }
}
