//! Tokens for people to read, whatever bytes they hold.

use firelight_data::Tokenizer;

/// The tokens of ids as people read them: the text of each, with the space in front where it has one; special tokens and parts of
/// words as their tokenizer spells them.
///
/// ```
/// use firelight_data::{Tokenizer, TokenizerConfig};
///
/// let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "")?;
/// assert_eq!(firelight_inspect::token_labels(&tokenizer, &[72, 105]), ["H", "i"]);
/// # Ok::<(), firelight_data::DataError>(())
/// ```
pub fn token_labels(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    ids.iter().map(|&id| label(tokenizer, id)).collect()
}

fn label(tokenizer: &Tokenizer, id: u32) -> String {
    let spelled = tokenizer.token(id).unwrap_or_else(|| format!("#{id}"));
    let text = tokenizer.decode(&[id]);
    // What BPE and SentencePiece write in front of a word; the latter's decoder drops it at the beginning of a text.
    let word = spelled.strip_prefix(['\u{120}', '\u{2581}']).filter(|_| text != spelled);
    match word {
        _ if tokenizer.is_special(id) || spelled.starts_with("##") => spelled,
        Some("") => " ".into(),
        // Bytes that are no whole character, and tokens that stand for no text.
        _ if text.is_empty() || text.contains('\u{fffd}') => spelled,
        Some(_) if !text.starts_with(' ') => format!(" {text}"),
        _ => text,
    }
}

/// A token in characters that can be seen and that change nothing around them: spaces, control characters and marks of direction
/// have signs of their own.
///
/// ```
/// assert_eq!(firelight_inspect::shown(" a\n\u{202e}"), "␣a␊⟨202e⟩");
/// ```
pub fn shown(label: &str) -> String {
    label.chars().map(sign).collect()
}

/// Words in characters that can be seen, with the spaces between them as they are.
pub(crate) fn shown_words(words: &str) -> String {
    words.split(' ').map(shown).collect::<Vec<_>>().join(" ")
}

fn sign(character: char) -> String {
    match character {
        ' ' => '\u{2423}'.into(),
        // Unicode has pictures of the first control characters, in their order.
        '\0'..='\u{1f}' => char::from_u32(0x2400 + character as u32).unwrap_or(character).into(),
        '\u{7f}' => '\u{2421}'.into(),
        _ if is_hidden(character) => format!("\u{27e8}{:04x}\u{27e9}", character as u32),
        _ => character.into(),
    }
}

/// Whether a character cannot be seen, or moves others: those of control, of direction, joiners, other spaces, and what is no character.
fn is_hidden(character: char) -> bool {
    let is_mark = matches!(character, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let is_joiner = matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    is_mark || is_joiner || character.is_control() || character.is_whitespace()
}

/// Text between tags, or in an attribute, of HTML, XML and SVG.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().map(entity).collect()
}

fn entity(character: char) -> String {
    match character {
        '&' => "&amp;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        '"' => "&quot;".into(),
        '\'' => "&#39;".into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::TokenizerConfig;
    use proptest::prelude::*;

    #[test]
    fn tokens_are_their_texts_and_special_ones_are_named() {
        let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap().with_special_tokens(&["</s>"]).unwrap();
        let found = token_labels(&bytes, &[65, 32, 256]);
        assert_eq!(found, ["A", " ", "</s>"]);
        let half = &token_labels(&bytes, &[0xc3])[0];
        assert!(!half.is_empty() && !half.contains('\u{fffd}'), "half a character is spelled: {half}");
        let words = TokenizerConfig::SentenceBpe { vocab_size: 262 };
        let words = Tokenizer::train(&words, &"low lower ".repeat(9)).unwrap();
        let found = token_labels(&words, &words.encode("low low").unwrap()).concat();
        assert_eq!(found.trim_start(), "low low");
    }

    #[test]
    fn what_cannot_be_seen_has_a_sign() {
        assert_eq!(shown("a b\t\r\0\u{7f}"), "a\u{2423}b\u{2409}\u{240d}\u{2400}\u{2421}");
        assert_eq!(shown("\u{200b}\u{85}\u{a0}"), "\u{27e8}200b\u{27e9}\u{27e8}0085\u{27e9}\u{27e8}00a0\u{27e9}");
        assert_eq!(shown("\u{5d0}\u{1f642}<&"), "\u{5d0}\u{1f642}<&");
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(escaped("</script><a b='\"&"), "&lt;/script&gt;&lt;a b=&#39;&quot;&amp;");
    }

    proptest! {
        #[test]
        fn nothing_that_is_shown_is_a_control_character(text in any::<String>()) {
            let found = shown(&text);
            prop_assert!(found.chars().all(|c| !c.is_control() && !c.is_whitespace()));
            prop_assert_eq!(text.is_empty(), found.is_empty());
        }
    }
}
