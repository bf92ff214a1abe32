//! What can be wrong with a corpus of hypotheses and references.

/// Why a metric of text has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextMetricError {
    /// Some text has no counterpart.
    #[error(
        "{hypotheses} hypotheses were given with {references} references: expected one reference for each; \
         an empty text counts, too, so keep empty lines"
    )]
    Counts {
        /// Hypotheses found.
        hypotheses: usize,
        /// References found.
        references: usize,
    },
    /// There is nothing to compare.
    #[error("the corpus is empty: expected at least one hypothesis with its reference")]
    Empty,
    /// A setting of a metric is out of range.
    #[error("{field} is {found}, expected {expected}")]
    Setting {
        /// Name of the setting.
        field: &'static str,
        /// Its value.
        found: String,
        /// The values that it may have.
        expected: &'static str,
    },
}
