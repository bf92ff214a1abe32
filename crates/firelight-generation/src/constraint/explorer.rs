//! Searches the shortest text that completes another one among the states of llguidance's lexer, breadth first.
//!
//! Within a lexeme, the lexer state alone decides what may follow, so each state is visited once, by its shortest text: no text of fewer characters
//! completes a regular expression, which is one lexeme. After a lexeme the parser stack matters too, and it is not visible; among texts of equal
//! length that start a lexeme in the same state, only the first is followed.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;

use llguidance::derivre::StateID;
use llguidance::earley::ParserRecognizer;
use llguidance::toktrie::Recognizer;
use llguidance::{TokenParser, panic_utils};

use super::vocabulary::Vocabulary;

/// The longest text that is looked at.
const LONGEST: usize = 500;

/// How many texts of one length may begin a lexeme.
const BEGUN: usize = 8;

/// A parser at the end of a text, and the states that were found behind it.
pub(super) struct Explorer<'a> {
    parser: TokenParser,
    vocabulary: &'a Vocabulary,
    seen: Seen,
}

/// One text of the search.
struct Candidate {
    text: Vec<u8>,
    /// The number of the lexeme in which it ends, 0 for the one in which the search begins.
    lexeme: usize,
    /// Whether a lexeme may end with it.
    may_end: bool,
}

/// What texts have led to.
#[derive(Default)]
struct Seen {
    /// The states of each lexeme, by its number.
    states: HashSet<(usize, StateID)>,
    /// The states in which texts of the present length begin a lexeme.
    begun: HashSet<StateID>,
    /// How many lexemes were begun.
    lexemes: usize,
    /// How many bytes may still be tried.
    left: usize,
}

impl<'a> Explorer<'a> {
    /// A search behind the text that the parser has read.
    pub(super) fn new(parser: TokenParser, vocabulary: &'a Vocabulary) -> Self {
        Self { parser, vocabulary, seen: Seen::default() }
    }

    /// The text of the fewest characters, at most `most`, that completes the one before it. Gives up when the parser has tried `work` bytes, at the
    /// next state, so that a large alphabet or long texts do not make it slower.
    pub(super) fn shortest(mut self, most: usize, work: usize) -> Option<Vec<u8>> {
        self.seen.left = work;
        // A panic inside llguidance only ends this search, which owns its parser.
        panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(self.search(most.min(LONGEST))))).ok()?
    }

    fn search(&mut self, most: usize) -> Option<Vec<u8>> {
        let mut candidates = vec![Candidate { text: Vec::new(), lexeme: 0, may_end: true }];
        for _ in 0..=most {
            let end = self.end_among(&candidates);
            if end.is_some() || candidates.is_empty() {
                return end;
            }
            candidates = self.continued(&candidates);
        }
        None
    }

    /// Of these texts the one of the fewest tokens that completes the text.
    fn end_among(&mut self, candidates: &[Candidate]) -> Option<Vec<u8>> {
        let Self { parser, vocabulary, seen } = self;
        let end = vocabulary.len() as u32;
        let ends = candidates.iter().filter(|candidate| candidate.may_end).filter_map(|candidate| {
            let mut tokens = vocabulary.tokens(&candidate.text)?;
            tokens.push(end);
            seen.left = seen.left.saturating_sub(candidate.text.len());
            let valid = parser.validate_tokens_raw(&tokens).ok()?;
            (valid == tokens.len()).then_some((valid, candidate))
        });
        ends.min_by_key(|(tokens, _)| *tokens).map(|(_, candidate)| candidate.text.clone())
    }

    /// The texts of one character more that lead to a new state. None are left when the work is done.
    fn continued(&mut self, candidates: &[Candidate]) -> Vec<Candidate> {
        let (vocabulary, seen) = (self.vocabulary, &mut self.seen);
        seen.begun.clear();
        self.parser.parser.with_recognizer(|recognizer| {
            recognizer.trie_started("closing");
            let mut found = Vec::new();
            let mut text: &[u8] = &[];
            for candidate in candidates {
                // The way there fails if the lexer has grown too large.
                if seen.left == 0 || !go(recognizer, text, &candidate.text, &mut seen.left) {
                    break;
                }
                found.extend(seen.behind(candidate, recognizer, vocabulary));
                text = &candidate.text;
            }
            recognizer.trie_finished();
            found
        })
    }
}

impl Seen {
    /// The continuations by one character that lead to a new state. The recognizer stays at the end of the text.
    fn behind(
        &mut self,
        candidate: &Candidate,
        recognizer: &mut ParserRecognizer<'_>,
        vocabulary: &Vocabulary,
    ) -> Vec<Candidate> {
        let (ends, others) = vocabulary.units();
        let mut found = Vec::new();
        let mut refused = [false; 256]; // First bytes: a large alphabet has many characters that begin alike.
        for character in ends.iter().chain(others).map(|&id| vocabulary.written(id)) {
            let Some(&first) = character.first().filter(|first| !refused[usize::from(**first)]) else { continue };
            let before = lexemes(recognizer);
            let pushed = push(recognizer, character, &mut self.left);
            if pushed < character.len() {
                refused[usize::from(first)] = pushed == 0;
                continue;
            }
            let state = recognizer.lexer_state();
            let is_same = lexemes(recognizer) == before;
            let may_end = !is_same || !recognizer.lexer_mut().try_lexeme_end(state).is_error();
            let lexeme = if is_same { self.within(candidate.lexeme, state) } else { self.beginning(state) };
            if let Some(lexeme) = lexeme {
                found.push(Candidate { text: [&candidate.text[..], character].concat(), lexeme, may_end });
            }
            recognizer.pop_bytes(character.len());
        }
        found
    }

    /// The lexeme of a text that leads to a state within it, if that is new.
    fn within(&mut self, lexeme: usize, state: StateID) -> Option<usize> {
        self.states.insert((lexeme, state)).then_some(lexeme)
    }

    /// The number of a lexeme that begins in a state, if no text of the same length begins one there.
    fn beginning(&mut self, state: StateID) -> Option<usize> {
        if self.begun.len() == BEGUN || !self.begun.insert(state) {
            return None;
        }
        self.lexemes += 1;
        self.within(self.lexemes, state)
    }
}

/// Goes from the end of one text to that of another, by way of what both begin with.
fn go(recognizer: &mut ParserRecognizer<'_>, from: &[u8], to: &[u8], left: &mut usize) -> bool {
    let same = from.iter().zip(to).take_while(|(from, to)| from == to).count();
    recognizer.pop_bytes(from.len() - same);
    push(recognizer, &to[same..], left) == to.len() - same
}

/// Goes on with all of these bytes; if they may not follow, stays where it is. Takes those that it tries from what is `left`. Returns how
/// many may follow.
fn push(recognizer: &mut ParserRecognizer<'_>, bytes: &[u8], left: &mut usize) -> usize {
    let pushed = bytes.iter().take_while(|byte| recognizer.try_push_byte(**byte)).count();
    *left = left.saturating_sub(bytes.len().min(pushed + 1));
    if pushed < bytes.len() {
        recognizer.pop_bytes(pushed);
    }
    pushed
}

/// How often a lexeme was begun. It rises with each byte that ends one.
fn lexemes(recognizer: &mut ParserRecognizer<'_>) -> usize {
    let stats = recognizer.stats_mut();
    stats.rows + stats.cached_rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::compiled::Source;
    use super::*;

    /// A regular expression's parser at the beginning of a text, by bytes.
    fn parser(pattern: &str, vocabulary: &Vocabulary) -> TokenParser {
        Source::Regex(pattern.into()).parser(vocabulary).unwrap()
    }

    /// The shortest end of a text that is found with 300,000 bytes of work.
    fn end_of(pattern: &str, text: &str) -> Option<String> {
        let vocabulary = Vocabulary::bytes();
        let mut parser = parser(pattern, vocabulary);
        text.bytes().for_each(|byte| assert_eq!(parser.consume_token(byte.into()).unwrap(), 0));
        let end = Explorer::new(parser, vocabulary).shortest(LONGEST, 300_000)?;
        Some(String::from_utf8(end).unwrap())
    }

    #[test]
    fn no_text_of_a_regular_expression_is_shorter() {
        for (pattern, length) in [
            ("", 0),
            ("( [a-z]+)+ (love|death)[.]", 8),
            ("[a-z]{3,}(ab|cd)x", 6),
            ("(a[a-z]{30}|z[a-z]zq)", 4),
            ("([a-z]+ )*(if|iffy) [a-z]{2}!", 6),
            ("([ab]c){20}(love|x[a-z])", 42),
            ("[a-zé]*é[a-z]{2}ü", 6),
        ] {
            assert_eq!(end_of(pattern, "").map(|end| end.len()), Some(length), "{pattern}");
        }
    }

    #[test]
    fn a_text_that_was_begun_is_ended() {
        for (text, end) in [(" dark", " love."), (" dark deat", "h."), (" a death", "."), (" a love.", "")] {
            assert_eq!(end_of("( [a-z]+)+ (love|death)[.]", text).as_deref(), Some(end), "{text}");
        }
        assert_eq!(end_of("(love|death)( [a-z]+)+ (love|death)", "d").map(|end| end.len()), Some("eath a love".len()));
    }

    #[test]
    fn what_is_out_of_reach_is_not_found() {
        assert_eq!(end_of("[ab]{400}x|[ab]{600}", "").map(|end| end.len()), Some(401));
        assert_eq!(end_of("[ab]{600}", ""), None, "it is too long");
        let vocabulary = Vocabulary::bytes();
        let shortest = |most, work| Explorer::new(parser("[ab]{5}", vocabulary), vocabulary).shortest(most, work);
        assert_eq!(shortest(5, 10_000).map(|text| text.len()), Some(5));
        assert_eq!(shortest(4, 10_000), None);
    }

    /// A text of five characters lies behind five states, in each of which all characters of the vocabulary are tried.
    #[test]
    fn the_work_that_is_allowed_counts_bytes() {
        let vocabulary = Vocabulary::bytes();
        let (ends, others) = vocabulary.units();
        let four_states = 4 * (ends.len() + others.len()) + 1 + 2 + 3;
        let shortest = |work| Explorer::new(parser("[ab]{5}", vocabulary), vocabulary).shortest(9, work);
        assert_eq!(shortest(four_states), None);
        assert_eq!(shortest(four_states + 1).map(|text| text.len()), Some(5));
    }

    /// Thousands of characters that begin with bytes which may not follow cost one byte for each such byte.
    #[test]
    fn a_large_alphabet_is_no_more_work() {
        let others = ('\u{4e00}'..'\u{5e00}').map(|character| character.to_string().into_bytes());
        let vocabulary = Vocabulary::new((0..=255).map(|byte| vec![byte]).chain(others).collect());
        let shortest = |work| Explorer::new(parser("[ab]{5}", &vocabulary), &vocabulary).shortest(9, work);
        assert_eq!(shortest(5 * 256 + 1000).map(|text| text.len()), Some(5));
    }

    /// Regular expressions over a, b and c.
    fn pattern() -> impl Strategy<Value = String> {
        let letters = proptest::sample::select(vec!["a", "b", "c", "[ab]", "[a-c]"]).prop_map(String::from);
        letters.prop_recursive(4, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 2..4).prop_map(|parts| parts.concat()),
                proptest::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join("|"))),
                (inner, proptest::sample::select(vec!["*", "+", "?", "{2}"]))
                    .prop_map(|(part, of)| format!("({part}){of}")),
            ]
        })
    }

    /// All texts of a, b and c with this length.
    fn texts(length: usize) -> Vec<Vec<u8>> {
        (0..length).fold(vec![Vec::new()], |texts, _| {
            texts.iter().flat_map(|text| b"abc".map(|byte| [&text[..], &[byte]].concat())).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_shortest_of_all_texts_is_found(pattern in pattern()) {
            let vocabulary = Vocabulary::bytes();
            let mut tried = parser(&pattern, vocabulary);
            let mut is_valid = |text: &Vec<u8>| {
                let tokens: Vec<u32> = text.iter().map(|&byte| u32::from(byte)).chain([256]).collect();
                tried.validate_tokens_raw(&tokens).unwrap() == tokens.len()
            };
            let found = end_of(&pattern, "").unwrap();
            prop_assert!(is_valid(&found.clone().into_bytes()));
            for length in 0..found.len().min(6) {
                prop_assert!(!texts(length).iter().any(&mut is_valid), "{pattern}: {found}");
            }
        }
    }
}
