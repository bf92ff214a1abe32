//! The scores of a task as a table: what each is called, and where it stands in the report.

use firelight_training::Score;

/// A number of a report `R`.
#[derive(Debug)]
pub(crate) struct Judged<R> {
    pub(crate) score: Score,
    /// The number; none of a report of another kind, and where there is none, as of the area under a curve of one class.
    pub(crate) of: fn(&R) -> Option<f64>,
}

impl<R> Clone for Judged<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Judged<R> {}

impl<R> Judged<R> {
    pub(crate) const fn higher(name: &'static str, of: fn(&R) -> Option<f64>) -> Self {
        Self { score: Score::higher(name), of }
    }

    pub(crate) const fn lower(name: &'static str, of: fn(&R) -> Option<f64>) -> Self {
        Self { score: Score::lower(name), of }
    }
}

/// The numbers of a report, in the order of the table; 0 where the texts do not define one.
pub(crate) fn values<R>(table: &[Judged<R>], report: &R) -> Vec<f64> {
    table.iter().map(|judged| (judged.of)(report).unwrap_or_default()).collect()
}

/// What the numbers are.
pub(crate) fn scores<R>(table: &[Judged<R>]) -> Vec<Score> {
    table.iter().map(|judged| judged.score).collect()
}
