//! Text that contrasts with what was written before it, or with what a weaker model would write: options of `generate`.

use std::path::PathBuf;

use firelight::generation::{ContrastiveOptions, GenerationError};
use firelight::language::AmateurOptions;

use super::sampling::Sampling;

#[derive(clap::Args, Clone)]
pub(super) struct Contrast {
    /// Contrastive search: how much likeness to the text so far counts, from 0 to 1; --top-k candidates, or 4
    #[arg(long, value_name = "ALPHA", conflicts_with_all = ["beams", "greedy", "temperature", "top_h", "top_p", "min_p",
        "typical_p", "epsilon_cutoff", "eta_cutoff", "top_n_sigma", "xtc_probability", "mirostat", "seed", "num_samples",
        "best_of", "draft", "prompt_lookup", "no_cache", "cache_type", "keep"])]
    contrastive: Option<f64>,
    /// Weaker model with the same tokenizer: prefer what it finds less probable (contrastive decoding)
    #[arg(long, value_name = "MODEL", conflicts_with = "draft")]
    pub(super) amateur: Option<PathBuf>,
    /// How much the amateur counts
    #[arg(long, value_name = "F", default_value_t = AmateurOptions::default().strength, requires = "amateur")]
    amateur_strength: f64,
    /// Share of the best token's probability that a token needs beside an amateur
    #[arg(long, value_name = "F", default_value_t = AmateurOptions::default().plausibility, requires = "amateur")]
    amateur_plausibility: f64,
}

impl Contrast {
    /// Refuses numbers out of their range.
    pub(super) fn check(&self, sampling: &Sampling) -> Result<(), GenerationError> {
        self.amateur_options().validate()?;
        self.options(0, sampling).map_or(Ok(()), |options| options.validate())
    }

    /// The options of a contrastive search of so many tokens, where one is asked for.
    pub(super) fn options(&self, max_new_tokens: usize, sampling: &Sampling) -> Option<ContrastiveOptions> {
        let options = ContrastiveOptions::new(max_new_tokens);
        let top_k = sampling.top_k().unwrap_or(options.top_k);
        Some(options.with_contrast(top_k, self.contrastive?))
    }

    /// How the amateur counts.
    pub(super) fn amateur_options(&self) -> AmateurOptions {
        AmateurOptions { strength: self.amateur_strength, plausibility: self.amateur_plausibility }
    }
}
