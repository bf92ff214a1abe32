//! Which validation metrics may share a chart: those of one scale.

/// Ends of the names of metrics that are shares, or correlations.
const SHARES: [&str; 9] =
    ["accuracy", "f1", "precision", "recall", "exact_match", "matthews", "auroc", "pearson", "spearman"];

/// Scores of generated text, which are counted in per cent.
const PER_CENT: [&str; 5] = ["bleu", "chrf", "rouge1", "rouge2", "rougeL"];

/// The scale of a metric.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scale {
    /// At most 1.
    Share,
    /// From 0 to 100.
    PerCent,
    /// Its own: the metric's name in words.
    Own(String),
}

impl Scale {
    /// The scale of the metric `name` of a run that measures `all` of these. Exact matches of generated text are counted in
    /// per cent, as its other scores are; those of classes are shares.
    pub(super) fn of(name: &str, all: &[&str]) -> Self {
        let is_of_text = all.iter().any(|other| PER_CENT.contains(other));
        match name {
            _ if PER_CENT.contains(&name) || (is_of_text && name == "exact_match") => Self::PerCent,
            _ if SHARES.iter().any(|share| name == *share || name.ends_with(&format!("_{share}"))) => Self::Share,
            _ => Self::Own(crate::words::metric_in_words(name)),
        }
    }

    /// The heading of its chart.
    pub(super) fn heading(&self) -> String {
        match self {
            Self::Share => "Validation metrics".into(),
            Self::PerCent => "Validation metrics, 0 to 100".into(),
            Self::Own(name) => format!("Validation metric: {name}"),
        }
    }

    /// What stands beside the axis of its chart.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Share => "share".into(),
            Self::PerCent => "score".into(),
            Self::Own(name) => name.clone(),
        }
    }
}
