//! What of a model came from where.

use std::fmt;
use std::path::PathBuf;

use firelight_storage::LearntWeights;
use serde::Serialize;

use super::matching::{Change, Matching};
use crate::path::general;

/// How many parameters of a sort are named on one line.
const NAMED: usize = 4;

/// What a training began with: `init.json` of its run folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InitReport {
    /// The weights file.
    pub weights: PathBuf,
    /// The step after which they were written, where it is noted.
    pub step: Option<usize>,
    /// How many parameters were taken over.
    pub taken: usize,
    /// Those of them that changed their size.
    pub resized: Vec<String>,
    /// Parameters that begin anew.
    pub new: Vec<String>,
    /// Parameters of the weights that are left.
    pub unused: Vec<String>,
}

impl InitReport {
    pub(crate) fn new(source: &LearntWeights, matching: Matching) -> Self {
        let Matching { taken, new, unused } = matching;
        let resized = taken.iter().filter(|found| found.change != Change::None);
        let resized = resized.map(|found| found.path.clone()).collect();
        Self { weights: source.path.clone(), step: source.step, taken: taken.len(), resized, new, unused }
    }
}

/// On one line, with one entry for what repeats from layer to layer.
impl fmt::Display for InitReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let step = self.step.map_or(String::new(), |step| format!("step {step}, "));
        write!(f, "{step}{}: {} parameters taken over", self.weights.display(), self.taken)?;
        let sorts = [("resized", &self.resized), ("new", &self.new), ("not needed", &self.unused)];
        for (sort, paths) in sorts.into_iter().filter(|(_, paths)| !paths.is_empty()) {
            let names = general(paths);
            let more = names.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            write!(f, ", {} {sort} ({shown}{more})", paths.len())?;
        }
        Ok(())
    }
}
