//! ROUGE: the words, pairs of words, or subsequence that a summary shares with its reference. Source: Lin 2004, ROUGE: A
//! Package for Automatic Evaluation of Summaries, §2 and §3.1 (<https://aclanthology.org/W04-1013>). Different there: recall is
//! the score. The rules are those of the package rouge-score 0.1.2, whose scores are the published ones today: precision and
//! recall joined to F1, of words of ASCII letters and digits, without stemming.

use firelight_storage::InputError;

use super::ngrams::NGrams;
use super::{pairs, setting};

/// ROUGE by what is compared.
///
/// ```
/// use firelight_training::metrics::text::Rouge;
///
/// let score = Rouge::L.pair("the cat was on the mat", "the cat sat on a mat")?;
/// assert_eq!((score.precision, score.recall), (4.0 / 6.0, 4.0 / 6.0)); // the cat on mat
/// # Ok::<(), firelight_storage::InputError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rouge {
    /// ROUGE-N: runs of so many words, at least 1.
    N(usize),
    /// ROUGE-L: the longest common subsequence of words.
    L,
}

/// The score of a summary, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RougeScore {
    /// The share of the summary that stands in the reference.
    pub precision: f64,
    /// The share of the reference that stands in the summary.
    pub recall: f64,
    /// The harmonic mean of both, 0 where they are.
    pub f1: f64,
}

impl Rouge {
    /// The mean of the pairs' F1, from 0 to 100.
    ///
    /// # Errors
    /// Unequal numbers of hypotheses and references, or none, or runs of no words.
    pub fn corpus<H: AsRef<str>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[R]) -> Result<f64, InputError> {
        let scores = pairs(hypotheses, references)?.map(|(hypothesis, reference)| self.pair(hypothesis, reference));
        let sum: f64 = scores.map(|score| score.map(|score| score.f1)).sum::<Result<_, _>>()?;
        Ok(100.0 * sum / hypotheses.len() as f64)
    }

    /// The score of one summary.
    ///
    /// # Errors
    /// Runs of no words.
    pub fn pair(&self, hypothesis: &str, reference: &str) -> Result<RougeScore, InputError> {
        let texts = [hypothesis, reference].map(str::to_lowercase);
        let [hypothesis, reference] = texts.each_ref().map(|text| words(text));
        Ok(match *self {
            Self::N(0) => return Err(setting("the n of ROUGE-N", 0, "at least 1")),
            Self::N(n) => {
                let [found, expected] = [&hypothesis, &reference].map(|words| NGrams::new(words, n));
                RougeScore::new(found.matches(&expected), found.total(), expected.total())
            }
            Self::L => {
                let [found, expected] = [&hypothesis, &reference].map(|words| words.len() as u64);
                RougeScore::new(common_subsequence(&hypothesis, &reference), found, expected)
            }
        })
    }
}

impl RougeScore {
    fn new(common: u64, found: u64, expected: u64) -> Self {
        let [precision, recall] = [found, expected].map(|all| common as f64 / all.max(1) as f64);
        let f1 = if common == 0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) };
        Self { precision, recall, f1 }
    }
}

/// The runs of ASCII letters and digits of a text in lower case.
fn words(text: &str) -> Vec<&str> {
    let is_between = |letter: char| !matches!(letter, 'a'..='z' | '0'..='9');
    text.split(is_between).filter(|word| !word.is_empty()).collect()
}

/// The length of the longest common subsequence, row by row of the table of all prefixes.
fn common_subsequence(one: &[&str], other: &[&str]) -> u64 {
    let mut above = vec![0; other.len() + 1];
    for word in one {
        let mut row = vec![0; above.len()];
        for (at, found) in other.iter().enumerate() {
            row[at + 1] = if word == found { above[at] + 1 } else { row[at].max(above[at + 1]) };
        }
        above = row;
    }
    above[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_paper() {
        // Lin 2004, §3.1: both candidates share `the` and `gunman`; in order S2 shares three of four words and S3 two.
        let reference = "police killed the gunman";
        let pair = |rouge: Rouge, text| rouge.pair(text, reference).unwrap();
        let [s2, s3] = ["police kill the gunman", "the gunman kill police"];
        assert_eq!([s2, s3].map(|text| pair(Rouge::L, text).f1), [0.75, 0.5]);
        assert_eq!([s2, s3].map(|text| pair(Rouge::N(2), text).recall), [1.0 / 3.0; 2]);
        assert_eq!(pair(Rouge::N(1), s2), RougeScore { precision: 0.75, recall: 0.75, f1: 0.75 });
    }

    #[test]
    fn precision_and_recall_by_hand() {
        // Of the pairs `a b` and `b a`, one is among `a b`, `b c`, `c d` and `d a`.
        let score = Rouge::N(2).pair("A b, a", "a B-c D a!").unwrap();
        assert_eq!((score.precision, score.recall), (0.5, 0.25));
        assert!((score.f1 - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(Rouge::L.pair("a b a", "a b c d a").unwrap().recall, 0.6);
        assert_eq!(Rouge::L.corpus(&["a b a", "x"], &["a b a", "y"]).unwrap(), 50.0);
    }

    #[test]
    fn texts_without_words_score_nothing_and_runs_of_none_are_refused() {
        for rouge in [Rouge::N(1), Rouge::N(2), Rouge::L] {
            for (hypothesis, reference) in [("", ""), ("...", "a"), ("a", "ä ö")] {
                assert_eq!(rouge.pair(hypothesis, reference).unwrap(), RougeScore::default());
            }
        }
        assert_eq!(Rouge::N(0).pair("a", "a").unwrap_err().to_string(), "the n of ROUGE-N is 0, expected at least 1");
    }
}
