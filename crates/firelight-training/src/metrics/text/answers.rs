//! Answers to questions beside the true ones, as SQuAD's script compares them.
//!
//! Source: Rajpurkar et al. 2016, SQuAD, section 6.1 (<https://arxiv.org/abs/1606.05250>), and its script `evaluate-v2.0.py`: lower
//! case, no punctuation, no articles, single spaces; the largest score over the true answers counts. A question without an
//! answer is answered by an empty text (Rajpurkar et al. 2018, <https://arxiv.org/abs/1806.03822>).

/// How well an answer agrees with the true ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnswerScore {
    /// 1 if it is one of them, 0 otherwise.
    pub exact_match: f64,
    /// The F1 of its words beside those of the true answer that it agrees best with.
    pub f1: f64,
}

impl AnswerScore {
    /// Compares an answer with the true ones, of which there are none where a question cannot be answered.
    ///
    /// ```
    /// use firelight_training::metrics::text::AnswerScore;
    ///
    /// let score = AnswerScore::of("the Eiffel Tower", &["Eiffel tower.", "tower"]);
    /// assert_eq!(score, AnswerScore { exact_match: 1.0, f1: 1.0 });
    /// ```
    pub fn of<S: AsRef<str>>(answer: &str, truths: &[S]) -> Self {
        let answer = words(answer);
        let mut truths: Vec<Vec<String>> = truths.iter().map(|truth| words(truth.as_ref())).collect();
        truths.retain(|truth| !truth.is_empty());
        if truths.is_empty() {
            truths.push(Vec::new());
        }
        let best = |score: &dyn Fn(&[String]) -> f64| truths.iter().map(|truth| score(truth)).fold(0.0, f64::max);
        Self { exact_match: best(&|truth| f64::from(u8::from(answer == truth))), f1: best(&|truth| f1(&answer, truth)) }
    }
}

/// The F1 of two bags of words; of an empty one whether the other is empty, too.
fn f1(answer: &[String], truth: &[String]) -> f64 {
    if answer.is_empty() || truth.is_empty() {
        return f64::from(u8::from(answer == truth));
    }
    let mut left = truth.to_vec();
    let mut shared = 0;
    for word in answer {
        if let Some(at) = left.iter().position(|other| other == word) {
            left.swap_remove(at);
            shared += 1;
        }
    }
    2.0 * f64::from(shared) / (answer.len() + truth.len()) as f64
}

/// The words of an answer that count.
fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let bare: String = lower.chars().filter(|character| !character.is_ascii_punctuation()).collect();
    without_articles(&bare).split_whitespace().map(str::to_owned).collect()
}

/// The text with a space in the place of every `a`, `an` and `the` that stands alone.
fn without_articles(text: &str) -> String {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let mut found = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let same = |character: char| is_part(character) == is_part(first);
        let (run, after) = rest.split_at(rest.find(|character| !same(character)).unwrap_or(rest.len()));
        found.push_str(if ["a", "an", "the"].contains(&run) { " " } else { run });
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(answer: &str, truths: &[&str]) -> (f64, f64) {
        let AnswerScore { exact_match, f1 } = AnswerScore::of(answer, truths);
        (exact_match, f1)
    }

    #[test]
    fn answers_are_compared_as_by_the_script() {
        assert_eq!(score("The  cat!", &["a CAT"]), (1.0, 1.0));
        // Three of four words, and three of three: 2 * 3 / 7; the other truth shares one of three with four.
        assert_eq!(score("old black cat sleeps", &["black dog cat", "the old, black cat"]), (0.0, 6.0 / 7.0));
        assert_eq!(score("well-known", &["wellknown"]), (1.0, 1.0), "punctuation joins");
        assert_eq!(score("cat cat", &["cat"]), (0.0, 2.0 / 3.0), "a word is found once");
        assert_eq!(
            score("an apple\u{2013}the pear", &["apple\u{2013} pear"]),
            (1.0, 1.0),
            "articles beside other marks"
        );
        assert_eq!(score("theatre", &["atre"]), (0.0, 0.0));
    }

    #[test]
    fn no_answer_is_an_answer() {
        assert_eq!(score("", &[]), (1.0, 1.0));
        assert_eq!(score("cat", &[]), (0.0, 0.0));
        assert_eq!(score("", &["cat"]), (0.0, 0.0));
        assert_eq!(score("the", &["cat", "..."]), (0.0, 0.0), "nothing is left of it");
    }
}
