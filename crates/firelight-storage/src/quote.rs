//! How messages quote what stands in a file or was typed by a user: on one line, and never at any length. Every error of
//! this workspace that repeats foreign text passes it through here.

/// Characters of a quoted value that a message shows.
const QUOTED: usize = 80;

/// Characters of another program's message that are shown: such a message may quote a value of any length in its middle.
const REASON: usize = 320;

/// The beginning of a value, 80 characters as they are shown; `...` stands for the rest. Line feeds and other control characters
/// are escaped.
///
/// ```
/// use firelight_storage::shortened;
///
/// assert_eq!(shortened("good"), "good");
/// assert_eq!(shortened("two\nlines"), "two\\nlines");
/// assert_eq!(shortened(&"x".repeat(1_000_000)).len(), 83);
/// ```
pub fn shortened(text: &str) -> String {
    let mut room = QUOTED;
    let fits = |character: &char| {
        let length = if character.is_control() { escaped([*character]).len() } else { 1 };
        let fits = length <= room;
        room = room.saturating_sub(length);
        fits
    };
    let shown: String = text.chars().take_while(fits).collect();
    let rest = if shown.len() < text.len() { "..." } else { "" };
    escaped(shown.chars()) + rest
}

/// A message of a parser or of another crate on one line, without its middle where it is longer than 320 characters.
pub fn shortened_reason(text: &str) -> String {
    let text = escaped(text.chars());
    let length = text.chars().count();
    if length <= REASON {
        return text;
    }
    let part = |skipped: usize| text.chars().skip(skipped).take(REASON / 2).collect::<String>();
    format!("{} ... {}", part(0), part(length - REASON / 2))
}

/// As many names as 80 characters take, one at least, and how many more there are: `a, b and 3 more`.
///
/// ```
/// use firelight_storage::listed;
///
/// assert_eq!(listed(["bad", "good"]), "bad, good");
/// assert!(listed((0..1_000).map(|i| i.to_string())).ends_with(" and 977 more"));
/// ```
pub fn listed<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let (mut shown, mut length, mut more) = (Vec::new(), 0, 0_usize);
    for name in names {
        if length >= QUOTED {
            more += 1;
            continue;
        }
        let name = shortened(name.as_ref());
        length += name.chars().count() + 2;
        shown.push(name);
    }
    let shown = shown.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

fn escaped(characters: impl IntoIterator<Item = char>) -> String {
    let mut shown = String::new();
    for character in characters {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_any_length_takes_80_characters() {
        let limit = "\u{e9}".repeat(QUOTED);
        assert_eq!(shortened(&limit), limit);
        assert_eq!(shortened(&format!("{limit}x")), format!("{limit}..."));
        assert_eq!(shortened("a\u{1b}[31m\r\n"), "a\\u{1b}[31m\\r\\n");
        // Sixteen of five characters each.
        assert_eq!(shortened(&"\0".repeat(17)), format!("{}...", "\\u{0}".repeat(16)));
    }

    #[test]
    fn a_reason_keeps_its_beginning_and_its_end() {
        assert_eq!(shortened_reason("missing field `x`\nat line 2"), "missing field `x`\\nat line 2");
        let long = shortened_reason(&format!("unknown field `{}`, expected `a`", "x".repeat(100_000)));
        assert!(long.starts_with("unknown field `xxx") && long.ends_with("xxx`, expected `a`"), "{long}");
        assert_eq!(long.len(), REASON + 5);
        assert_eq!(shortened_reason(&"\0".repeat(100)).len(), REASON + 5);
    }

    #[test]
    fn a_list_of_any_length_takes_a_line() {
        assert_eq!(listed(["a"; 3]), "a, a, a");
        assert_eq!(listed(["x".repeat(200), "b".into()]), format!("{}... and 1 more", "x".repeat(80)));
        assert_eq!(listed::<&str>([]), "");
    }
}
