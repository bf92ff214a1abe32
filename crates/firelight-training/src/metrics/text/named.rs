//! The scores of generated text by the names that recipes and logs give them.

use firelight_storage::InputError;
use serde::{Deserialize, Serialize};

use super::{Bleu, Chrf, Rouge, exact_match};

/// A score of generated text beside its references, from 0 to 100 and the higher the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TextMetric {
    /// [`Bleu`] of the whole corpus, for translations.
    Bleu,
    /// [`Chrf`] of the whole corpus, for translations.
    Chrf,
    /// [`exact_match`], where there is one right answer.
    ExactMatch,
    /// [`Rouge`] of words, for summaries.
    Rouge1,
    /// [`Rouge`] of pairs of words.
    Rouge2,
    /// [`Rouge`] of the longest common subsequence.
    #[serde(rename = "rougeL")]
    RougeL,
}

impl TextMetric {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Bleu, Self::Chrf, Self::ExactMatch, Self::Rouge1, Self::Rouge2, Self::RougeL];

    /// The name in recipes and logs; that of rouge-score where the score is its own.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bleu => "bleu",
            Self::Chrf => "chrf",
            Self::ExactMatch => "exact_match",
            Self::Rouge1 => "rouge1",
            Self::Rouge2 => "rouge2",
            Self::RougeL => "rougeL",
        }
    }

    /// The score of a corpus.
    ///
    /// # Errors
    /// Unequal numbers of hypotheses and references, or none.
    pub fn corpus<H: AsRef<str>, R: AsRef<str>>(self, hypotheses: &[H], references: &[R]) -> Result<f64, InputError> {
        match self {
            Self::Bleu => Ok(Bleu::default().corpus(hypotheses, references)?.score),
            Self::Chrf => Chrf::default().corpus(hypotheses, references),
            Self::ExactMatch => exact_match(hypotheses, references),
            Self::Rouge1 => Rouge::N(1).corpus(hypotheses, references),
            Self::Rouge2 => Rouge::N(2).corpus(hypotheses, references),
            Self::RougeL => Rouge::L.corpus(hypotheses, references),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_reads_every_metric_by_its_name() {
        for metric in TextMetric::ALL {
            assert_eq!(serde_json::to_string(&metric).unwrap(), format!("\"{}\"", metric.name()));
        }
    }

    #[test]
    fn a_name_is_the_score_it_says() {
        let (hypotheses, references) = (["the cat sat on a mat", "yes"], ["the cat on a mat", "yes"]);
        let found = TextMetric::ALL.map(|metric| metric.corpus(&hypotheses, &references).unwrap());
        let rouge = [Rouge::N(1), Rouge::N(2), Rouge::L].map(|rouge| rouge.corpus(&hypotheses, &references).unwrap());
        assert_eq!(found[3..], rouge);
        assert_eq!(found[0], Bleu::default().corpus(&hypotheses, &references).unwrap().score);
        assert_eq!(found[1], Chrf::default().corpus(&hypotheses, &references).unwrap());
        assert_eq!(found[2], 50.0);
    }
}
