//! Where a training begins that does not begin anew: the `[init]` section of a recipe names the weights that another run has learnt,
//! what of them is taken over, and what may begin anew.

mod block_format;
mod matching;
mod report;
mod resize;
mod taking;

use std::path::PathBuf;

use firelight_kernels::BlockFormat;
use firelight_storage::{LearntWeights, ModelFolder, StorageError};
use serde::{Deserialize, Serialize};

pub(crate) use matching::{Match, Matching, Other, TaskRules, matched};
pub use report::InitReport;
pub(crate) use resize::Regrid;
pub use resize::{PositionGrid, ResizeGrid};
pub(crate) use taking::take;

use crate::Problem;
use crate::path::fits;

/// The `[init]` section of a recipe. Patterns name parameters, or modules with all that is in them, as those of
/// `training.freeze` do: `"encoder.embedding"`, `"*.blocks.0"`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InitConfig {
    /// The run that the first step begins from: its folder, that of one of its checkpoints, or a folder or file of weights.
    /// Default: none, every parameter is drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// What is taken over. Default: all that both models have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// What begins anew all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// What the weights may lack; it begins anew.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_missing: Vec<String>,
    /// What the weights may have beside the model's parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_unused: Vec<String>,
    /// Which parameters may have another size: `true` for embeddings and positions, or patterns. Rows in common are taken over, a
    /// grid of image patches is interpolated. Default: none.
    #[serde(skip_serializing_if = "Resize::is_none")]
    pub resize: Resize,
    /// The blocks of few bits that the weights beside low-rank adapters go into (QLoRA): `q8_0`, `q4_0`, `q4_k` or `q6_k`. Only
    /// matrices that are not trained do. Default: none, all weights are floats.
    ///
    /// Source: Dettmers et al. 2023, QLoRA, section 3 (<https://arxiv.org/abs/2305.14314>). Differs in the formats, which are those of GGUF
    /// in the place of NF4 with double quantisation; and what is multiplied with blocks is rounded to eight bits.
    #[doc(alias = "QLoRA")]
    #[serde(with = "block_format", skip_serializing_if = "Option::is_none")]
    pub quantize: Option<BlockFormat>,
}

/// Which parameters may have another size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected true, false or a list of patterns")]
pub enum Resize {
    /// Those that the task knows to have a row for each token or position, or none.
    Known(bool),
    /// Those that fit one of these patterns.
    Of(Vec<String>),
}

impl Default for Resize {
    fn default() -> Self {
        Self::Known(false)
    }
}

impl Resize {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl InitConfig {
    /// Whether every parameter is drawn: a section that is left out.
    pub fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// The weights to begin from.
    ///
    /// # Errors
    /// If there are none at `from`.
    pub fn source(&self) -> Result<Option<LearntWeights>, StorageError> {
        self.from.as_ref().map(LearntWeights::find).transpose()
    }

    /// The run to begin from; none of weights that lie in no run.
    ///
    /// # Errors
    /// If there are no weights at `from`.
    pub fn run(&self) -> Result<Option<ModelFolder>, StorageError> {
        Ok(self.source()?.and_then(|source| source.run))
    }

    /// The run whose tokenizer is that of the new one, too: the one to begin from, unless the recipe names a tokenizer's file.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with_tokenizer(&self, names_a_file: bool) -> Result<Option<ModelFolder>, StorageError> {
        Ok(self.run()?.filter(|_| !names_a_file))
    }

    /// Lists the keys that say nothing, because no weights are named.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        if self.from.is_some() {
            return Vec::new();
        }
        let lists = [
            ("include", !self.include.is_empty()),
            ("exclude", !self.exclude.is_empty()),
            ("allow_missing", !self.allow_missing.is_empty()),
            ("allow_unused", !self.allow_unused.is_empty()),
            ("resize", !self.resize.is_none()),
            ("quantize", self.quantize.is_some()),
        ];
        let problem = |key: &str| Problem {
            key: format!("init.{key}"),
            text: format!("init.{key} needs init.from, or --from: the run to begin from"),
        };
        lists.iter().filter(|(_, is_given)| *is_given).map(|(key, _)| problem(key)).collect()
    }

    /// Whether a parameter is to be taken over.
    pub(crate) fn selects(&self, path: &str) -> bool {
        let is_included = self.include.is_empty() || fit(&self.include, path);
        is_included && !fit(&self.exclude, path)
    }
}

/// Whether one of the patterns fits.
fn fit(patterns: &[String], path: &str) -> bool {
    patterns.iter().any(|pattern| fits(pattern, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_read_and_written_as_short_as_it_is() {
        let read = |text: &str| toml::from_str::<InitConfig>(text);
        let section = read("from = \"runs/a\"\nexclude = [\"head\"]\nresize = true\n").unwrap();
        assert_eq!(toml::to_string(&section).unwrap(), "from = \"runs/a\"\nexclude = [\"head\"]\nresize = true\n");
        assert_eq!(read("resize = [\"embedding\"]").unwrap().resize, Resize::Of(vec!["embedding".into()]));
        assert!(toml::to_string(&InitConfig::default()).unwrap().is_empty());
        let section = read("from = \"runs/a\"\nquantize = \"q4_k\"\n").unwrap();
        assert_eq!(section.quantize, Some(BlockFormat::Q4K));
        assert_eq!(toml::to_string(&section).unwrap(), "from = \"runs/a\"\nquantize = \"q4_k\"\n");
        let error = read("quantize = \"nf4\"").unwrap_err();
        assert!(error.message().contains("`nf4`: expected one of q8_0, q4_0, q4_k, q6_k"), "{error}");
        assert!(read("resize = 3").unwrap_err().message().contains("expected true, false or a list of patterns"));
    }

    #[test]
    fn patterns_without_weights_are_refused_by_name() {
        let section = InitConfig { exclude: vec!["head".into()], resize: Resize::Known(true), ..InitConfig::default() };
        let keys: Vec<_> = section.problems().into_iter().map(|problem| problem.key).collect();
        assert_eq!(keys, ["init.exclude", "init.resize"]);
        assert!(InitConfig { from: Some("a".into()), ..section }.problems().is_empty());
    }

    #[test]
    fn what_is_excluded_is_not_selected_whatever_is_included() {
        let list = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (include, exclude) = (list(&["encoder"]), list(&["*.blocks.1"]));
        let section = InitConfig { include, exclude, ..InitConfig::default() };
        assert!(section.selects("encoder.blocks.0.weight") && !section.selects("encoder.blocks.1.weight"));
        assert!(!section.selects("head.weight") && InitConfig::default().selects("head.weight"));
    }
}
