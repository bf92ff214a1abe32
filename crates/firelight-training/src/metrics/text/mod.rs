//! What generated text is worth beside a reference: [`Bleu`], [`Chrf`], [`Rouge`] and [`exact_match`], each by its name as a
//! [`TextMetric`], and answers to questions beside the
//! true ones: [`AnswerScore`]. Text in, numbers out: no
//! tensor, no device, no task.
//!
//! Scores of this kind can be compared only if everything around the formula is equal, the tokens first of all, so the rules
//! are those of sacrebleu 2.6 (Post 2018, A call for clarity in reporting BLEU scores,
//! <https://aclanthology.org/W18-6319>), to the second decimal that is reported. Both metrics print a *signature* of the
//! choices made in its notation. Its last field, `version`, names who computed: `firelight-0.1.0`, where sacrebleu writes its
//! own version. Hypotheses and references are plain text as people read it, one reference for each hypothesis.
//!
//! ```
//! use firelight_training::metrics::text::{Bleu, Chrf, exact_match};
//!
//! let hypotheses = ["The cat sat on the mat.", "A dog barks."];
//! let references = ["The cat sat on a mat.", "A dog barks."];
//! let bleu = Bleu::default().corpus(&hypotheses, &references)?;
//! assert_eq!(format!("{:.2}", bleu.score), "63.40");
//! assert!(Bleu::default().signature().starts_with("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:firelight-"));
//! assert!(Chrf::default().corpus(&hypotheses, &references)? > 80.0);
//! assert_eq!(exact_match(&hypotheses, &references)?, 50.0);
//! # Ok::<(), firelight_storage::InputError>(())
//! ```

mod answers;
mod bleu;
mod chrf;
mod named;
mod ngrams;
mod rouge;
mod tokenize;

use std::fmt::Display;

use firelight_storage::InputError;

pub use answers::AnswerScore;
pub use bleu::{Bleu, BleuScore, Smoothing};
pub use chrf::Chrf;
pub use named::TextMetric;
pub use rouge::{Rouge, RougeScore};
pub use tokenize::BleuTokenizer;

/// The percentage of hypotheses that equal their reference, character by character.
///
/// # Errors
/// Unequal numbers of hypotheses and references, or none.
pub fn exact_match<H: AsRef<str>, R: AsRef<str>>(hypotheses: &[H], references: &[R]) -> Result<f64, InputError> {
    let equal = pairs(hypotheses, references)?.filter(|(hypothesis, reference)| hypothesis == reference).count();
    Ok(100.0 * equal as f64 / hypotheses.len() as f64)
}

/// Each hypothesis with its reference.
fn pairs<'a, H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &'a [H],
    references: &'a [R],
) -> Result<impl Iterator<Item = (&'a str, &'a str)>, InputError> {
    if hypotheses.len() != references.len() {
        let (hypotheses, references) = (hypotheses.len(), references.len());
        let problem =
            format!("{hypotheses} hypotheses were given with {references} references: expected one reference for each");
        return Err(InputError::new(problem).advise("an empty text counts, too, so keep empty lines"));
    }
    if hypotheses.is_empty() {
        let problem = "the corpus is empty: expected at least one hypothesis with its reference";
        return Err(InputError::new(problem));
    }
    Ok(hypotheses.iter().map(AsRef::as_ref).zip(references.iter().map(AsRef::as_ref)))
}

/// A setting of a metric that is out of range.
fn setting(field: &str, found: impl Display, expected: &str) -> InputError {
    InputError::new(format!("{field} is {found}, expected {expected}"))
}

/// The last field of every signature.
fn version() -> String {
    format!("version:firelight-{}", env!("CARGO_PKG_VERSION"))
}

/// `lc` or `mixed`, as signatures call it.
fn case(lowercase: bool) -> &'static str {
    if lowercase { "lc" } else { "mixed" }
}

/// The text as it is compared.
fn cased(text: &str, lowercase: bool) -> std::borrow::Cow<'_, str> {
    if lowercase { text.to_lowercase().into() } else { text.into() }
}

#[cfg(test)]
mod tests;
