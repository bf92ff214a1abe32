//! What a user asks of a training: the arguments of `firelight train`, as a library takes them.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use firelight_storage::Existing;

/// What a user asks of a training.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The recipe, a file or the name of a built-in one; none is the first of those, or the folder's own when a run is resumed.
    pub recipe: Option<PathBuf>,
    /// Changes of the recipe: `("training.steps", "500")`. The last word on a key counts.
    pub overrides: Vec<(String, String)>,
    /// The data: one file or folder, or the files of source and target; none by a recipe that generates its own, or to resume.
    pub data: Vec<PathBuf>,
    /// The run folder; none is the next free `runs/<recipe>-<n>`.
    pub out: Option<PathBuf>,
    /// What to do when the folder holds a run already.
    pub existing: Existing,
    /// Where to compute.
    pub device: Device,
    /// The version of the program, which all ranks must have in common. Default: that of this library, which many commits share.
    pub version: String,
}

impl RunRequest {
    /// The first built-in recipe in a new folder on `device`.
    pub fn new(device: &Device) -> Self {
        let (recipe, data, out, device) = (None, Vec::new(), None, device.clone());
        let version = env!("CARGO_PKG_VERSION").to_string();
        Self { recipe, overrides: Vec::new(), data, out, existing: Existing::Refuse, device, version }
    }

    /// Sets the recipe: a file, or the name of a built-in one.
    pub fn with_recipe(mut self, recipe: impl Into<PathBuf>) -> Self {
        self.recipe = Some(recipe.into());
        self
    }

    /// Changes one key of the recipe: `("model.d_model", 64)`.
    pub fn with_override(mut self, key: &str, value: impl Display) -> Self {
        self.overrides.push((key.to_string(), value.to_string()));
        self
    }

    /// Sets the file or folder of the data.
    pub fn with_data(mut self, data: impl Into<PathBuf>) -> Self {
        self.data = vec![data.into()];
        self
    }

    /// Sets the files of source and target.
    pub fn with_parallel_data(mut self, source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        self.data = vec![source.into(), target.into()];
        self
    }

    /// Sets the run folder.
    pub fn with_out(mut self, out: impl Into<PathBuf>) -> Self {
        self.out = Some(out.into());
        self
    }

    /// Sets what to do when the folder holds a run already.
    pub fn with_existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Sets the version of the program, which all ranks must have in common: its commit, if it has one.
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Whether the request says what to train by or on.
    pub(super) fn names_a_source(&self) -> bool {
        self.recipe.is_some() || !self.data.is_empty()
    }

    /// What a run without a folder of its own is called: after the recipe, or after the data when there is none.
    pub(super) fn name<'a>(&'a self, built_in: &'a str) -> &'a str {
        let source = self.recipe.as_deref().or(self.data.first().map(PathBuf::as_path)).unwrap_or(Path::new(built_in));
        source.file_stem().and_then(|name| name.to_str()).unwrap_or("run")
    }
}
