//! The sentences of a text.

use unicode_segmentation::UnicodeSegmentation;

/// Characters that are no letters and no digits, at most, between two words of a sentence. The rules look through all of them for the next
/// word, and again from each.
const GAP: usize = 256;

/// White space that ends a line, and so a sentence.
const LINE_ENDS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// The sentences of a text in their order, without the white space around them; none where there is only white space.
///
/// Source: Unicode Standard Annex 29, §5 (<https://www.unicode.org/reports/tr29/#Sentence_Boundaries>): a sentence ends with `.`, `?`, `!`,
/// `。` and their like, with the quotes and brackets behind them, or with its line. It goes on after a full stop before a lower-case letter
/// or between digits. Differs in that it also goes on after the full stop of a single capital letter, an initial as in `J. S. Bach`. Other
/// abbreviations before a capital letter, such as `Mr.`, are not known and end a sentence; an ellipsis, `…`, ends none. So does a row of
/// 256 characters that are no letters and no digits.
///
/// ```
/// use firelight_data::sentences;
///
/// let text = "J. S. Bach wrote 3.5 pages. \"Only 3.5?\" she asked.  你好。再见。";
/// assert_eq!(sentences(text), ["J. S. Bach wrote 3.5 pages.", "\"Only 3.5?\"", "she asked.", "你好。", "再见。"]);
/// ```
pub fn sentences(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = parts(text).into_iter().flat_map(sentences_of_part).collect();
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// The text cut behind every [`GAP`].
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut gap) = (Vec::new(), 0, 0);
    for (place, character) in text.char_indices() {
        gap = if character.is_alphanumeric() { 0 } else { gap + 1 };
        if gap == GAP {
            let end = place + character.len_utf8();
            parts.push(&text[begin..end]);
            (begin, gap) = (end, 0);
        }
    }
    parts.push(&text[begin..]);
    parts
}

fn sentences_of_part(text: &str) -> Vec<&str> {
    let (mut found, mut begin) = (Vec::new(), 0);
    for (place, piece) in text.split_sentence_bound_indices() {
        let end = place + piece.len();
        if end == text.len() || !ends_with_initial(piece) {
            found.push(text[begin..end].trim());
            begin = end;
        }
    }
    found
}

/// Whether a single capital letter and a full stop stand in front of the white space at the end.
fn ends_with_initial(piece: &str) -> bool {
    let is_space = |character: char| character.is_whitespace() && !LINE_ENDS.contains(&character);
    let Some(word) = piece.trim_end_matches(is_space).strip_suffix('.') else { return false };
    let mut letters = word.chars().rev();
    letters.next().is_some_and(char::is_uppercase) && letters.next().is_none_or(|before| !before.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sentences_by_hand() {
        for (text, expected) in [
            ("", &[][..]),
            (" \t\n", &[]),
            ("no end", &["no end"]),
            (" One. Two!  Three? ", &["One.", "Two!", "Three?"]),
            ("\u{ab}Was?!\u{bb} Nein.", &["\u{ab}Was?!\u{bb}", "Nein."]),
            ("It was 3.14 (e.g. so). Ok", &["It was 3.14 (e.g. so).", "Ok"]),
            ("I met A. Turing. He (B. Russell) left.", &["I met A. Turing.", "He (B. Russell) left."]),
            ("It is in the U.S. Army.", &["It is in the U.S. Army."]),
            ("A NATO. No", &["A NATO.", "No"]),
            ("Plan A.\nPlan B.", &["Plan A.", "Plan B."]),
            ("J.\u{202f}S.\u{2009}Bach", &["J.\u{202f}S.\u{2009}Bach"]),
            ("\u{5929}\u{3002}\u{5730}\u{ff01}", &["\u{5929}\u{3002}", "\u{5730}\u{ff01}"]),
            ("Mr. Smith\u{2026} Ok.", &["Mr.", "Smith\u{2026} Ok."]),
        ] {
            assert_eq!(sentences(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_long_gap_takes_no_longer_than_its_length() {
        for filler in [" ", "\"", ". "] {
            let text = format!("End.{}Next", filler.repeat(400_000));
            assert!(sentences(&text).last().is_some_and(|last| last.ends_with("Next")));
        }
    }

    proptest! {
        #[test]
        fn nothing_but_white_space_is_lost(text in "[aB3 .!?\"\n\u{3002}\u{e9}]{0,40}") {
            let without = |text: &str| text.chars().filter(|character| !character.is_whitespace()).collect::<String>();
            let found = sentences(&text);
            prop_assert_eq!(without(&found.concat()), without(&text));
            prop_assert!(found.iter().all(|sentence| !sentence.is_empty() && sentence.trim() == *sentence));
        }
    }
}
