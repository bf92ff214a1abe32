//! Text and token ids: tokenizers, memory-mapped token files, deterministic order, and generated toy data.
