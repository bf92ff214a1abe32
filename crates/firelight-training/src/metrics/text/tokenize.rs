//! From text to the tokens that BLEU counts. The rules are those of the scripts of the WMT evaluations, which sacrebleu and
//! all published scores follow: `mteval-v13a.pl` and `mteval-v14.pl` (NIST).

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

/// How text is cut into tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum BleuTokenizer {
    /// The rules of mteval-v13a, those of nearly all published scores: symbols of ASCII stand alone, full stops and commas
    /// too unless they stand in a number, a dash after a digit.
    #[default]
    #[serde(rename = "13a")]
    V13a,
    /// The international rules of mteval-v14: punctuation of every script stands alone unless it stands in a number,
    /// symbols always.
    #[serde(rename = "intl")]
    International,
    /// Every character that is no white space.
    #[serde(rename = "char")]
    Character,
    /// The text is cut at white space: it holds tokens already.
    #[serde(rename = "none")]
    None,
}

/// A rule: what is found, and what stands in its place.
type Rule = (Regex, &'static str);

static V13A: LazyLock<[Rule; 4]> = LazyLock::new(|| {
    [
        rule(r"([\{-\~\[-\` -\&\(-\+\:-\@/])", " $1 "), // all symbols of ASCII but ' , - .
        rule(r"([^0-9])([\.,])", "$1 $2 "),
        rule(r"([\.,])([^0-9])", " $1 $2"),
        rule(r"([0-9])(-)", "$1 $2 "),
    ]
});

static INTERNATIONAL: LazyLock<[Rule; 3]> =
    LazyLock::new(|| [rule(r"(\P{N})(\p{P})", "$1 $2 "), rule(r"(\p{P})(\P{N})", " $1 $2"), rule(r"(\p{S})", " $1 ")]);

fn rule(pattern: &str, replacement: &'static str) -> Rule {
    (Regex::new(pattern).expect("a constant pattern"), replacement)
}

impl BleuTokenizer {
    /// The tokens of a text.
    pub fn tokens(self, text: &str) -> Vec<String> {
        words(&self.separate(text)).into_iter().map(String::from).collect()
    }

    /// The name in a signature.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V13a => "13a",
            Self::International => "intl",
            Self::Character => "char",
            Self::None => "none",
        }
    }

    /// The text with one space between two tokens; there may be more white space.
    pub(super) fn separate(self, text: &str) -> String {
        let text = text.trim_end_matches(is_space);
        match self {
            Self::V13a => apply(&*V13A, format!(" {} ", unescaped(text))),
            Self::International => apply(&*INTERNATIONAL, text.into()),
            Self::Character => text.chars().flat_map(|character| [character, ' ']).collect(),
            Self::None => text.into(),
        }
    }
}

/// The tokens of a separated text.
pub(super) fn words(separated: &str) -> Vec<&str> {
    separated.split(is_space).filter(|word| !word.is_empty()).collect()
}

/// White space as Python's `str.split` knows it: Unicode's, and four separators of ASCII.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// What mteval-v13a does first: hyphenated line ends are joined, and the entities of its SGML files read.
fn unescaped(text: &str) -> String {
    let lines = text.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    lines.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
}

fn apply(rules: &[Rule], text: String) -> String {
    rules.iter().fold(text, |text, (pattern, replacement)| pattern.replace_all(&text, *replacement).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(tokenizer: BleuTokenizer, text: &str) -> String {
        tokenizer.tokens(text).join(" ")
    }

    #[test]
    fn v13a_keeps_numbers_and_apostrophes_whole() {
        let cut = |text| tokens(BleuTokenizer::V13a, text);
        assert_eq!(cut("Hello, world!"), "Hello , world !");
        assert_eq!(cut("It's 3.14, or 1,000.5."), "It's 3.14 , or 1,000.5 .");
        assert_eq!(cut("a well-known 5-year-old"), "a well-known 5 - year-old");
        assert_eq!(cut("&quot;R&amp;D&quot; &lt;b&gt;"), "\" R & D \" < b >");
        assert_eq!(cut("wait...  what?"), "wait . . . what ?");
        assert_eq!(cut("„Straße“ – 5€"), "„Straße“ – 5€"); // symbols beyond ASCII stay
        assert_eq!(cut("a<skipped>b hyphen-\nated\nline"), "ab hyphenated line");
        assert_eq!(cut("  "), "");
    }

    #[test]
    fn the_international_rules_know_all_scripts() {
        let cut = |text| tokens(BleuTokenizer::International, text);
        assert_eq!(cut("„Straße“ – 5€"), "„ Straße “ – 5 €");
        assert_eq!(cut("In 2016, 1,5 Mio."), "In 2016 , 1,5 Mio .");
        assert_eq!(cut("since 2016."), "since 2016."); // as mteval-v14 leaves it
    }

    #[test]
    fn characters_and_words() {
        assert_eq!(tokens(BleuTokenizer::Character, "né à\tx "), "n é à x");
        assert_eq!(tokens(BleuTokenizer::None, " a,b \u{a0} c. "), "a,b c.");
        assert_eq!(words("a\u{1c}b\u{2003}c"), ["a", "b", "c"]);
    }
}
