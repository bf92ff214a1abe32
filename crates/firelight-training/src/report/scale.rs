//! Which validation metrics may share a chart: those of one scale.

/// Ends of the names of metrics that are shares.
const SHARES: [&str; 6] = ["accuracy", "f1", "precision", "recall", "exact_match", "auroc"];

/// Ends of the names of correlations.
const CORRELATIONS: [&str; 3] = ["matthews", "pearson", "spearman"];

/// Scores of generated text, which are counted in per cent.
const PER_CENT: [&str; 5] = ["bleu", "chrf", "rouge1", "rouge2", "rougeL"];

/// The scale of a metric.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scale {
    /// From 0 to 1.
    Share,
    /// From -1 to 1.
    Correlation,
    /// From 0 to 100.
    PerCent,
    /// Its own: the metric's name in words.
    Own(String),
}

impl Scale {
    /// The scale of the metric `name` of a run that measures `all` of these. Exact matches of generated text are counted in
    /// per cent, as its other scores are; those of classes are shares.
    pub(super) fn of(name: &str, all: &[&str]) -> Self {
        let ends_as_one_of = |ends: &[&str]| ends.iter().any(|end| name == *end || name.ends_with(&format!("_{end}")));
        let is_of_text = all.iter().any(|other| PER_CENT.contains(other));
        match name {
            _ if PER_CENT.contains(&name) || (is_of_text && name == "exact_match") => Self::PerCent,
            _ if ends_as_one_of(&SHARES) => Self::Share,
            _ if ends_as_one_of(&CORRELATIONS) => Self::Correlation,
            _ => Self::Own(crate::words::metric_in_words(name)),
        }
    }

    /// The heading of its chart.
    pub(super) fn heading(&self) -> String {
        match self {
            Self::Share => "Validation metrics".into(),
            Self::Correlation => "Validation metrics, -1 to 1".into(),
            Self::PerCent => "Validation metrics, 0 to 100".into(),
            Self::Own(name) => format!("Validation metric: {name}"),
        }
    }

    /// What stands beside the axis of its chart.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Share => "share".into(),
            Self::Correlation => "correlation".into(),
            Self::PerCent => "score".into(),
            Self::Own(name) => name.clone(),
        }
    }
}
