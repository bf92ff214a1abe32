//! BLEU: how many n-grams of the hypotheses stand in their references. Source: Papineni et al. 2002, BLEU: a method for
//! automatic evaluation of machine translation, §2.1 to §2.3 (<https://aclanthology.org/P02-1040>), with N = 4 and uniform
//! weights.

use std::fmt;

use firelight_storage::InputError;
use serde::{Deserialize, Serialize};

use super::ngrams::NGrams;
use super::tokenize::words;
use super::{BleuTokenizer, case, cased, pairs, setting, version};

/// The longest n-grams.
const MAX_ORDER: usize = 4;

/// BLEU with its choices: those of `sacrebleu` by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Bleu {
    /// How text is cut into tokens. Default 13a.
    pub tokenizer: BleuTokenizer,
    /// Whether capitals are small letters. Default no.
    pub lowercase: bool,
    /// What stands for the precision of an order without any match. Default [`Smoothing::Exp`].
    pub smoothing: Smoothing,
    /// Whether orders that are longer than the hypotheses are left out, instead of making the score 0. Default no; yes for
    /// scores of single sentences.
    pub effective_order: bool,
}

/// What stands for the precision of an order of which no n-gram matches. Source: Chen and Cherry 2014, A systematic comparison
/// of smoothing techniques for sentence-level BLEU (<https://aclanthology.org/W14-3346>), whose number is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Smoothing {
    /// Technique 3, that of NIST: half a match for the first such order, a quarter for the second, and so on.
    #[default]
    Exp,
    /// Technique 1: `value` matches, 0.1 in the paper.
    Floor {
        /// Greater than 0.
        value: f64,
    },
    /// Technique 2: `value` is added to the matches and to the n-grams of every order but the first, 1 in the paper.
    AddK {
        /// Greater than 0.
        value: f64,
    },
    /// 0, and so is the score.
    None,
}

/// A score and what it is made of.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BleuScore {
    /// BLEU, 0 to 100: `BP * exp(mean of ln p_n)`.
    pub score: f64,
    /// `p_n` in per cent, n from 1 to 4.
    pub precisions: [f64; MAX_ORDER],
    /// n-grams of the hypotheses that stand in their reference, each as often as there at most.
    pub matches: [u64; MAX_ORDER],
    /// n-grams of the hypotheses.
    pub totals: [u64; MAX_ORDER],
    /// `BP = min(1, exp(1 - r / c))`, below 1 if the hypotheses are shorter than the references.
    pub brevity_penalty: f64,
    /// Tokens of the hypotheses, `c`.
    pub hypothesis_len: u64,
    /// Tokens of the references, `r`.
    pub reference_len: u64,
}

impl Bleu {
    /// Sets how text is cut into tokens.
    pub fn with_tokenizer(mut self, tokenizer: BleuTokenizer) -> Self {
        self.tokenizer = tokenizer;
        self
    }

    /// Sets whether capitals are small letters.
    pub fn with_lowercase(mut self, lowercase: bool) -> Self {
        self.lowercase = lowercase;
        self
    }

    /// Sets what stands for the precision of an order without any match.
    pub fn with_smoothing(mut self, smoothing: Smoothing) -> Self {
        self.smoothing = smoothing;
        self
    }

    /// Sets whether orders that are longer than the hypotheses are left out.
    pub fn with_effective_order(mut self, effective_order: bool) -> Self {
        self.effective_order = effective_order;
        self
    }

    /// The score of a corpus: matches and lengths are summed over all pairs before anything is divided, so it is no mean of
    /// the sentences' scores.
    ///
    /// # Errors
    /// Unequal numbers of hypotheses and references, or none; a smoothing value that is not greater than 0.
    pub fn corpus<H: AsRef<str>, R: AsRef<str>>(
        &self,
        hypotheses: &[H],
        references: &[R],
    ) -> Result<BleuScore, InputError> {
        self.smoothing.validate()?;
        let counts = pairs(hypotheses, references)?.map(|(hypothesis, reference)| self.count(hypothesis, reference));
        Ok(self.score(&counts.fold(Counts::default(), Counts::plus)))
    }

    /// The score of one pair. Short sentences need [`effective_order`](Self::effective_order).
    ///
    /// # Errors
    /// A smoothing value that is not greater than 0.
    pub fn sentence(&self, hypothesis: &str, reference: &str) -> Result<BleuScore, InputError> {
        self.corpus(&[hypothesis], &[reference])
    }

    /// The choices in sacrebleu's notation: `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:firelight-0.1.0`.
    pub fn signature(&self) -> String {
        let (case, tokenizer, version) = (case(self.lowercase), self.tokenizer.name(), version());
        let effective = if self.effective_order { "yes" } else { "no" };
        format!("nrefs:1|case:{case}|eff:{effective}|tok:{tokenizer}|smooth:{}|{version}", self.smoothing)
    }

    fn count(&self, hypothesis: &str, reference: &str) -> Counts {
        let separate = |text| self.tokenizer.separate(&cased(text, self.lowercase));
        let (hypothesis, reference) = (separate(hypothesis), separate(reference));
        let (hypothesis, reference) = (words(&hypothesis), words(&reference));
        let mut counts =
            Counts { hypothesis: hypothesis.len() as u64, reference: reference.len() as u64, ..Counts::default() };
        for n in 1..=MAX_ORDER {
            let found = NGrams::new(&hypothesis, n);
            counts.totals[n - 1] = found.total();
            counts.matches[n - 1] = found.matches(&NGrams::new(&reference, n));
        }
        counts
    }

    fn score(&self, counts: &Counts) -> BleuScore {
        let brevity_penalty = counts.brevity_penalty();
        let (precisions, orders) = if counts.matches == [0; MAX_ORDER] {
            ([0.0; MAX_ORDER], MAX_ORDER) // no smoothing saves a corpus without a single common word
        } else {
            self.precisions(counts)
        };
        let orders = if self.effective_order { orders } else { MAX_ORDER };
        let mean = precisions[..orders].iter().map(|precision| precision.ln()).sum::<f64>() / orders as f64;
        BleuScore {
            score: brevity_penalty * mean.exp(),
            precisions,
            matches: counts.matches,
            totals: counts.totals,
            brevity_penalty,
            hypothesis_len: counts.hypothesis,
            reference_len: counts.reference,
        }
    }

    /// The smoothed precisions in per cent, and how many orders have n-grams at all.
    fn precisions(&self, counts: &Counts) -> ([f64; MAX_ORDER], usize) {
        let mut precisions = [0.0; MAX_ORDER];
        let mut missing = 0;
        for n in 0..MAX_ORDER {
            let added = self.smoothing.added(n + 1);
            let (matches, total) = (counts.matches[n] as f64 + added, counts.totals[n] as f64 + added);
            if total == 0.0 {
                return (precisions, n);
            }
            let matches = if matches == 0.0 {
                missing += 1;
                self.smoothing.instead_of_none(missing)
            } else {
                matches
            };
            precisions[n] = 100.0 * matches / total;
        }
        (precisions, MAX_ORDER)
    }
}

impl Smoothing {
    fn validate(self) -> Result<(), InputError> {
        match self {
            Self::Floor { value } | Self::AddK { value } if !(value > 0.0 && value.is_finite()) => {
                Err(setting("the value of the smoothing", value, "a finite number greater than 0"))
            }
            _ => Ok(()),
        }
    }

    /// What is added to the matches and n-grams of an order.
    fn added(self, order: usize) -> f64 {
        match self {
            Self::AddK { value } if order > 1 => value,
            _ => 0.0,
        }
    }

    /// How many matches the `nth` order without any is said to have.
    fn instead_of_none(self, nth: i32) -> f64 {
        match self {
            Self::Exp => 0.5f64.powi(nth),
            Self::Floor { value } => value,
            Self::AddK { .. } | Self::None => 0.0,
        }
    }
}

/// As a signature writes it.
impl fmt::Display for Smoothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exp => f.write_str("exp"),
            Self::Floor { value } => write!(f, "floor[{value:.2}]"),
            Self::AddK { value } => write!(f, "add-k[{value:.2}]"),
            Self::None => f.write_str("none"),
        }
    }
}

/// As sacrebleu writes it: `BLEU = 63.40 90.9/...`, the precisions, the brevity penalty and the lengths.
impl fmt::Display for BleuScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, two, three, four] = self.precisions;
        let (found, expected) = (self.hypothesis_len, self.reference_len);
        let ratio = if expected == 0 { 0.0 } else { found as f64 / expected as f64 };
        write!(f, "BLEU = {:.2} {one:.1}/{two:.1}/{three:.1}/{four:.1} ", self.score)?;
        write!(f, "(BP = {:.3} ratio = {ratio:.3} hyp_len = {found} ref_len = {expected})", self.brevity_penalty)
    }
}

/// What BLEU is computed from: sums over the sentences.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    hypothesis: u64,
    reference: u64,
    matches: [u64; MAX_ORDER],
    totals: [u64; MAX_ORDER],
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        let sum = |a: [u64; MAX_ORDER], b: [u64; MAX_ORDER]| std::array::from_fn(|n| a[n] + b[n]);
        Self {
            hypothesis: self.hypothesis + other.hypothesis,
            reference: self.reference + other.reference,
            matches: sum(self.matches, other.matches),
            totals: sum(self.totals, other.totals),
        }
    }

    /// Papineni et al. §2.2.2, with `c` the hypotheses' length and `r` the references'.
    fn brevity_penalty(&self) -> f64 {
        let (c, r) = (self.hypothesis as f64, self.reference as f64);
        if c >= r { 1.0 } else { (1.0 - r / c).exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn the_words_of_the_paper_are_clipped() {
        // Papineni et al. §2.1, example 2: seven times "the" has a precision of 2/7.
        let bleu = Bleu::default().sentence("the the the the the the the", "the cat is on the mat").unwrap();
        assert_eq!((bleu.matches, bleu.totals), ([2, 0, 0, 0], [7, 6, 5, 4]));
        close(bleu.precisions[0], 200.0 / 7.0);
        // Without any match: 1/2 of 6, 1/4 of 5, 1/8 of 4.
        close(bleu.score, 100.0 * (2.0f64 / 7.0 * (0.5 / 6.0) * (0.25 / 5.0) * (0.125 / 4.0)).powf(0.25));
    }

    #[test]
    fn short_hypotheses_are_penalised_for_their_brevity() {
        let bleu = Bleu::default().sentence("a b c d", "a b c d e f").unwrap();
        close(bleu.brevity_penalty, (-0.5f64).exp());
        close(bleu.score, 100.0 * (-0.5f64).exp());
        let long = Bleu::default().sentence("a b c d e f", "a b c d").unwrap();
        close(long.brevity_penalty, 1.0);
        close(long.score, 100.0 * (4.0 / 6.0 * 3.0 / 5.0 * 2.0 / 4.0 * 1.0 / 3.0f64).powf(0.25));
        assert_eq!(Bleu::default().sentence("", "a").unwrap().brevity_penalty, 0.0);
    }

    #[test]
    fn every_smoothing_by_hand() {
        // Matches 2, 1, 0 and 0 of 4, 3, 2 and 1.
        let score = |smoothing| {
            let bleu = Bleu::default().with_smoothing(smoothing);
            bleu.sentence("a b x y", "a b c d").unwrap().score
        };
        let expected = |three: f64, four: f64| 100.0 * (0.5 * (1.0 / 3.0) * three * four).powf(0.25);
        close(score(Smoothing::Exp), expected(0.5 / 2.0, 0.25));
        close(score(Smoothing::Floor { value: 0.1 }), expected(0.1 / 2.0, 0.1));
        close(
            score(Smoothing::AddK { value: 1.0 }),
            100.0 * (0.5 * (2.0 / 4.0) * (1.0 / 3.0) * (1.0 / 2.0f64)).powf(0.25),
        );
        close(score(Smoothing::None), 0.0);
    }

    #[test]
    fn orders_beyond_a_short_sentence_count_or_do_not() {
        close(Bleu::default().sentence("a b", "a b").unwrap().score, 0.0);
        close(Bleu::default().with_effective_order(true).sentence("a b", "a b").unwrap().score, 100.0);
    }

    #[test]
    fn a_value_that_is_no_smoothing_is_refused() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            for smoothing in [Smoothing::Floor { value }, Smoothing::AddK { value }] {
                let error = Bleu::default().with_smoothing(smoothing).sentence("a", "a").unwrap_err();
                assert!(error.to_string().ends_with("expected a finite number greater than 0"), "{error}");
            }
        }
    }

    #[test]
    fn a_score_is_written_as_the_field_writes_it() {
        let bleu = Bleu::default().sentence("a b c d", "a b c d e f").unwrap();
        let text = "BLEU = 60.65 100.0/100.0/100.0/100.0 (BP = 0.607 ratio = 0.667 hyp_len = 4 ref_len = 6)";
        assert_eq!(bleu.to_string(), text);
    }

    #[test]
    fn the_signature_names_every_choice() {
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            Bleu::default().signature(),
            format!("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:firelight-{version}")
        );
        let other =
            Bleu::default().with_lowercase(true).with_effective_order(true).with_tokenizer(BleuTokenizer::Character);
        let floor = other.with_smoothing(Smoothing::Floor { value: 0.1 });
        assert_eq!(
            floor.signature(),
            format!("nrefs:1|case:lc|eff:yes|tok:char|smooth:floor[0.10]|version:firelight-{version}")
        );
    }

    #[test]
    fn choices_are_read_from_a_file() {
        let bleu: Bleu = toml::from_str("tokenizer = \"13a\"\nsmoothing = { kind = \"add_k\", value = 1.0 }").unwrap();
        assert_eq!(bleu, Bleu::default().with_smoothing(Smoothing::AddK { value: 1.0 }));
        assert!(toml::from_str::<Bleu>("tokeniser = \"13a\"").is_err());
    }
}
