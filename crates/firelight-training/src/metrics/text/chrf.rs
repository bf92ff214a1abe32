//! chrF: precision and recall of the characters' n-grams, needs no tokenizer. Sources: Popović 2015, chrF: character n-gram
//! F-score for automatic MT evaluation, §2 (<https://aclanthology.org/W15-3049>), and Popović 2017, chrF++: words helping
//! character n-grams, §2 (<https://aclanthology.org/W17-4770>). Precision and recall are averaged over the orders, then
//! joined, as in sacrebleu.

use firelight_storage::InputError;
use serde::{Deserialize, Serialize};

use super::ngrams::NGrams;
use super::tokenize::{is_space, words};
use super::{case, cased, pairs, setting, version};

/// chrF with its choices: chrF2 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Chrf {
    /// The longest n-grams of characters. Default 6.
    pub char_order: usize,
    /// The longest n-grams of words, whose punctuation stands alone. Default 0: none; 2 is chrF++.
    pub word_order: usize,
    /// How many times as important as precision recall is, at least 1. Default 2.
    pub beta: u32,
    /// Whether capitals are small letters. Default no.
    pub lowercase: bool,
    /// Whether white space is a character. Default no.
    pub whitespace: bool,
}

impl Default for Chrf {
    fn default() -> Self {
        Self { char_order: 6, word_order: 0, beta: 2, lowercase: false, whitespace: false }
    }
}

impl Chrf {
    /// chrF++: words and pairs of words count, too.
    pub fn plus_plus() -> Self {
        Self::default().with_word_order(2)
    }

    /// Sets the longest n-grams of characters.
    pub fn with_char_order(mut self, char_order: usize) -> Self {
        self.char_order = char_order;
        self
    }

    /// Sets the longest n-grams of words, 0 for none.
    pub fn with_word_order(mut self, word_order: usize) -> Self {
        self.word_order = word_order;
        self
    }

    /// Sets how many times as important as precision recall is.
    pub fn with_beta(mut self, beta: u32) -> Self {
        self.beta = beta;
        self
    }

    /// Sets whether capitals are small letters.
    pub fn with_lowercase(mut self, lowercase: bool) -> Self {
        self.lowercase = lowercase;
        self
    }

    /// Sets whether white space is a character.
    pub fn with_whitespace(mut self, whitespace: bool) -> Self {
        self.whitespace = whitespace;
        self
    }

    /// The score of a corpus, 0 to 100: n-grams are summed over all pairs before anything is divided.
    ///
    /// # Errors
    /// Unequal numbers of hypotheses and references, or none; `beta` or both orders 0.
    pub fn corpus<H: AsRef<str>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[R]) -> Result<f64, InputError> {
        self.validate()?;
        let mut sums = vec![Counts::default(); self.char_order + self.word_order];
        for (hypothesis, reference) in pairs(hypotheses, references)? {
            let counts = self.count(&cased(hypothesis, self.lowercase), &cased(reference, self.lowercase));
            sums.iter_mut().zip(counts).for_each(|(sum, counts)| sum.add(counts));
        }
        Ok(self.score(&sums))
    }

    /// The score of one pair, 0 to 100.
    ///
    /// # Errors
    /// `beta` or both orders 0.
    pub fn sentence(&self, hypothesis: &str, reference: &str) -> Result<f64, InputError> {
        self.corpus(&[hypothesis], &[reference])
    }

    /// The name with its beta and orders of words: `chrF2`, `chrF2++`.
    pub fn name(&self) -> String {
        format!("chrF{}{}", self.beta, "+".repeat(self.word_order))
    }

    /// The choices in sacrebleu's notation: `nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:firelight-0.1.0`.
    pub fn signature(&self) -> String {
        let (case, nc, nw, version) = (case(self.lowercase), self.char_order, self.word_order, version());
        let space = if self.whitespace { "yes" } else { "no" };
        format!("nrefs:1|case:{case}|eff:yes|nc:{nc}|nw:{nw}|space:{space}|{version}")
    }

    fn validate(&self) -> Result<(), InputError> {
        match self {
            Self { beta: 0, .. } => Err(setting("beta", 0, "1 or more")),
            Self { char_order: 0, word_order: 0, .. } => Err(setting("char_order", 0, "1 or more, as word_order is 0")),
            _ => Ok(()),
        }
    }

    /// Of every order, those of characters first.
    fn count(&self, hypothesis: &str, reference: &str) -> Vec<Counts> {
        let (hypothesis_chars, reference_chars) = (self.characters(hypothesis), self.characters(reference));
        let (hypothesis_words, reference_words) = (split_words(hypothesis), split_words(reference));
        let chars = (1..=self.char_order)
            .map(|n| Counts::new(&NGrams::new(&hypothesis_chars, n), &NGrams::new(&reference_chars, n)));
        let words = (1..=self.word_order)
            .map(|n| Counts::new(&NGrams::new(&hypothesis_words, n), &NGrams::new(&reference_words, n)));
        chars.chain(words).collect()
    }

    fn characters(&self, text: &str) -> Vec<char> {
        text.chars().filter(|&character| self.whitespace || !is_space(character)).collect()
    }

    /// `(1 + β²) P R / (β² P + R)`, P and R the means over the orders that both sides have.
    fn score(&self, counts: &[Counts]) -> f64 {
        let both: Vec<&Counts> = counts.iter().filter(|counts| counts.hypothesis > 0 && counts.reference > 0).collect();
        let mean = |share: fn(&Counts) -> f64| both.iter().map(|counts| share(counts)).sum::<f64>() / both.len() as f64;
        let precision = mean(|counts| counts.matches as f64 / counts.hypothesis as f64);
        let recall = mean(|counts| counts.matches as f64 / counts.reference as f64);
        let factor = f64::from(self.beta).powi(2);
        if precision + recall > 0.0 {
            100.0 * (1.0 + factor) * precision * recall / (factor * precision + recall)
        } else {
            0.0 // no match, or, where both are no numbers, no order that both sides have
        }
    }
}

/// The words, with a punctuation mark at the end or else at the start as a word of its own. One is enough: `(hi)` is cut into
/// `(hi` and `)`, as by the author's program.
fn split_words(text: &str) -> Vec<&str> {
    words(text).into_iter().flat_map(split_word).collect()
}

fn split_word(word: &str) -> Vec<&str> {
    let mut characters = word.chars();
    match (characters.next(), characters.next_back()) {
        (Some(_), Some(last)) if last.is_ascii_punctuation() => vec![&word[..word.len() - 1], &word[word.len() - 1..]],
        (Some(first), Some(_)) if first.is_ascii_punctuation() => vec![&word[..1], &word[1..]],
        _ => vec![word],
    }
}

/// The n-grams of one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    hypothesis: u64,
    reference: u64,
    matches: u64,
}

impl Counts {
    /// Hypotheses are not penalised for an order that their reference is too short for.
    fn new<T: Eq + std::hash::Hash>(hypothesis: &NGrams<T>, reference: &NGrams<T>) -> Self {
        let expected = reference.total();
        let found = if expected == 0 { 0 } else { hypothesis.total() };
        Self { hypothesis: found, reference: expected, matches: hypothesis.matches(reference) }
    }

    fn add(&mut self, other: Self) {
        self.hypothesis += other.hypothesis;
        self.reference += other.reference;
        self.matches += other.matches;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn precision_and_recall_by_hand() {
        // "abc" for "abcd": precisions 3/3, 2/2, 1/1, recalls 3/4, 2/3, 1/2; the order 4 is the reference's alone.
        let recall = (0.75 + 2.0 / 3.0 + 0.5) / 3.0;
        close(Chrf::default().sentence("a bc", "ab cd").unwrap(), 100.0 * 5.0 * recall / (4.0 + recall));
        close(Chrf::default().with_beta(1).sentence("abc", "abcd").unwrap(), 100.0 * 2.0 * recall / (1.0 + recall));
        // The other way round the order 4 is the hypothesis's alone, and not penalised.
        close(Chrf::default().sentence("abcd", "abc").unwrap(), 100.0 * 5.0 * recall / (4.0 * recall + 1.0));
    }

    #[test]
    fn words_lose_one_punctuation_mark() {
        assert_eq!(
            split_words("(hi) \"go\" don't, ! ¿qué? ..."),
            ["(hi", ")", "\"go", "\"", "don't", ",", "!", "¿qué", "?", "..", "."]
        );
        assert_eq!(split_words("#tag €5"), ["#", "tag", "€5"]);
    }

    #[test]
    fn nothing_in_common_is_zero() {
        for (hypothesis, reference) in [("", ""), ("", "abc"), ("abc", ""), ("abc", "xyz")] {
            assert_eq!(Chrf::plus_plus().sentence(hypothesis, reference).unwrap(), 0.0, "{hypothesis:?} {reference:?}");
        }
    }

    #[test]
    fn settings_without_a_meaning_are_refused() {
        let refused = |chrf: Chrf| chrf.sentence("a", "a").unwrap_err().to_string();
        assert_eq!(refused(Chrf::default().with_beta(0)), "beta is 0, expected 1 or more");
        assert!(refused(Chrf::default().with_char_order(0)).starts_with("char_order is 0"));
        assert!(Chrf::plus_plus().with_char_order(0).sentence("a", "a").is_ok());
    }

    #[test]
    fn names_and_signatures() {
        assert_eq!((Chrf::default().name(), Chrf::plus_plus().name()), ("chrF2".into(), "chrF2++".into()));
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!("nrefs:1|case:lc|eff:yes|nc:6|nw:2|space:yes|version:firelight-{version}");
        assert_eq!(Chrf::plus_plus().with_lowercase(true).with_whitespace(true).signature(), expected);
    }
}
