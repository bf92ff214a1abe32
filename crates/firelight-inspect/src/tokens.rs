//! How a text is split into tokens, in colours that take turns.

use std::fmt::Write;

use firelight_data::Tokenizer;
use firelight_storage::palette::{Theme, hex};
use firelight_storage::{InputError, TaskError};
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::labels::{escaped, shown, token_labels};
use crate::page::frame;
use crate::scale::TOKENS;
use crate::svg::Drawing;
use crate::terminal::{WIDTH, columns_of, fitted, padded, push_line};

/// How many colours take turns.
const COLOURS: usize = TOKENS.len();

/// They are these in a terminal of 256 colours: sky blue, orange, green and yellow.
const TERMINAL: [u8; COLOURS] = [117, 215, 79, 228];

const STYLE: &str = "\
.pieces { line-height: 1.9; margin: 8px 0 20px; font-family: ui-monospace, monospace; }
.pieces span { display: inline-block; white-space: pre; unicode-bidi: isolate; padding: 0 2px; margin-right: 1px; border-radius: 3px; }
.t0 { background: var(--t0); } .t1 { background: var(--t1); } .t2 { background: var(--t2); } .t3 { background: var(--t3); }
table { border-collapse: collapse; font-family: ui-monospace, monospace; font-size: 0.85rem; }
td, th { text-align: left; font-weight: 400; padding: 2px 12px 2px 0; border-bottom: 1px solid var(--line); white-space: pre; unicode-bidi: isolate; }
";

/// Pixels of a picture: its width, the height of a line, a column of letters, and the room around.
const WHOLE: usize = 800;
const LINE: usize = 26;
const LETTER: usize = 8;
const GAP: usize = 10;

/// The most bytes of a token that are listed.
const BYTES: usize = 8;

/// A token of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextToken {
    /// Its number in the vocabulary.
    pub id: u32,
    /// What it stands for, or how its tokenizer spells it where that is no text.
    pub label: String,
    /// Its bytes where they are not all printable ASCII and the tokenizer can tell them.
    pub bytes: Option<Vec<u8>>,
}

/// A text and its tokens, those that the tokenizer puts around it included.
///
/// ```
/// use firelight_data::{Tokenizer, TokenizerConfig};
/// use firelight_inspect::SplitText;
///
/// let split = SplitText::new(&Tokenizer::train(&TokenizerConfig::Byte, "")?, "h\u{e9}")?;
/// assert_eq!(split.tokens.iter().map(|token| token.id).collect::<Vec<_>>(), [104, 195, 169]);
/// assert_eq!(split.tokens[1].bytes, Some(vec![0xc3]));
/// assert!(split.to_text(false).contains("3 tokens, 2 characters, 3 bytes"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SplitText {
    /// The text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<TextToken>,
}

impl SplitText {
    /// Splits a text.
    ///
    /// # Errors
    /// If it is empty, or has a character that the tokenizer does not know.
    pub fn new(tokenizer: &Tokenizer, text: &str) -> Result<Self, TaskError> {
        if text.is_empty() {
            return Err(InputError::new("the text is empty").advise("give at least one character").into());
        }
        let ids = tokenizer.encode(text)?;
        let ids = tokenizer.frame().map_or_else(|| ids.clone(), |frame| frame.put(&ids, None).0);
        let written = odd_bytes(tokenizer, &ids);
        let tokens = ids.iter().zip(token_labels(tokenizer, &ids)).zip(written);
        let tokens = tokens.map(|((&id, label), bytes)| TextToken { id, label, bytes }).collect();
        Ok(Self { text: text.into(), tokens })
    }

    fn counts(&self) -> String {
        let (tokens, text) = (self.tokens.len(), &self.text);
        format!("{tokens} tokens, {} characters, {} bytes", text.chars().count(), text.len())
    }

    /// As text of at most 80 columns: the pieces, with lines between them or in colours, then a line for each token.
    pub fn to_text(&self, colours: bool) -> String {
        let mut found = self.pieces(colours);
        let _ = writeln!(found, "{}\n", self.counts()); // Writing into a string cannot fail.
        push_line(&mut found, &format!("{:>5} {:>8}  {:<32}  bytes", "place", "id", "token"));
        for (place, token) in self.tokens.iter().enumerate() {
            let label = padded(&fitted(&shown(&token.label), 32), 32);
            push_line(&mut found, &format!("{place:>5} {:>8}  {label}  {}", token.id, token.hex()));
        }
        found
    }

    /// The pieces in lines of at most 80 columns.
    fn pieces(&self, colours: bool) -> String {
        let (mut found, mut used) = (String::new(), 0);
        for (place, token) in self.tokens.iter().enumerate() {
            let piece: String = fitted(&shown(&token.label), WIDTH - 1).into_iter().collect();
            let columns = piece.chars().map(columns_of).sum::<usize>() + usize::from(!colours);
            if used + columns > WIDTH {
                found.push('\n');
                used = 0;
            }
            used += columns;
            // Writing into a string cannot fail.
            let _ = match colours {
                true => write!(found, "\x1b[38;5;16;48;5;{}m{piece}\x1b[0m", TERMINAL[place % COLOURS]),
                false => write!(found, "{piece}\u{2502}"),
            };
        }
        found + "\n"
    }

    /// As an object: the text, and id, label and bytes of each token.
    pub fn to_json(&self) -> Value {
        let token = |token: &TextToken| json!({"id": token.id, "token": token.label, "bytes": token.bytes});
        json!({"text": self.text, "tokens": self.tokens.iter().map(token).collect::<Vec<_>>()})
    }

    /// As a picture: the pieces in lines, which tell id and bytes under the pointer.
    pub fn to_svg(&self) -> String {
        let (mut body, [mut x, mut y]) = (String::new(), [GAP, GAP]);
        for (place, token) in self.tokens.iter().enumerate() {
            let piece: String = fitted(&shown(&token.label), (WHOLE - 3 * GAP) / LETTER).into_iter().collect();
            let width = LETTER * piece.chars().map(columns_of).sum::<usize>() + 6;
            if x > GAP && x + width > WHOLE - GAP {
                [x, y] = [GAP, y + LINE];
            }
            let (tooltip, piece, class) = (escaped(&token.tooltip()), escaped(&piece), place % COLOURS);
            let fill = hex(TOKENS[class][Theme::Light as usize]);
            // Writing into a string cannot fail.
            let _ = writeln!(
                body,
                "<g><title>{tooltip}</title><rect class=\"t{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" fill=\"{fill}\"/>\
                 <text x=\"{}\" y=\"{}\" font-family=\"monospace\" font-size=\"13\">{piece}</text></g>",
                LINE - 4,
                x + 3,
                y + LINE - 11
            );
            x += width + 2;
        }
        y += LINE;
        crate::svg::text(&mut body, &format!("x=\"{GAP}\" y=\"{}\"", y + 12), &self.counts());
        Drawing { size: [WHOLE, y + LINE], body }.to_file()
    }

    /// As one file of HTML that loads nothing: the pieces, and a table of all tokens.
    pub fn to_page(&self, title: &str) -> String {
        let body = html! {
            p.hint { (self.counts()) ". Point at a piece to read its id and its bytes." }
            div.pieces {
                @for (place, token) in self.tokens.iter().enumerate() {
                    span class={ "t" (place % COLOURS) } title=(token.tooltip()) { (shown(&token.label)) }
                }
            }
            (self.table())
        };
        frame(title, STYLE, &body)
    }

    fn table(&self) -> Markup {
        html! {
            table {
                thead { tr { th { "place" } th { "id" } th { "token" } th { "bytes" } } }
                tbody {
                    @for (place, token) in self.tokens.iter().enumerate() {
                        tr { td { (place) } td { (token.id) } td { (shown(&token.label)) } td { (token.hex()) } }
                    }
                }
            }
        }
    }
}

impl TextToken {
    /// Its bytes in hexadecimal digits; nothing where there is none to tell.
    fn hex(&self) -> String {
        let Some(bytes) = &self.bytes else { return String::new() };
        let digits: Vec<String> = bytes.iter().take(BYTES).map(|byte| format!("{byte:02x}")).collect();
        digits.join(" ") + if bytes.len() > BYTES { " \u{2026}" } else { "" }
    }

    fn tooltip(&self) -> String {
        match self.hex() {
            hex if hex.is_empty() => format!("id {}", self.id),
            hex => format!("id {}, bytes {hex}", self.id),
        }
    }
}

/// The bytes of the tokens that are not printable ASCII alone.
fn odd_bytes(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<Option<Vec<u8>>> {
    let is_odd = |id: u32| {
        let text = tokenizer.decode(&[id]);
        !tokenizer.is_special(id) && (text.is_empty() || !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)))
    };
    let odd: Vec<bool> = ids.iter().map(|&id| is_odd(id)).collect();
    // The bytes of the whole vocabulary are made at once: only where they are needed.
    let all = odd.contains(&true).then(|| tokenizer.token_bytes().ok()).flatten();
    let of = |(&id, is_odd): (&u32, bool)| match &all {
        Some(all) if is_odd => all.get(id as usize).filter(|bytes| !bytes.is_empty()).cloned(),
        // A decoder that looks at several tokens at once writes whole characters.
        None if is_odd => Some(tokenizer.decode(&[id]).into_bytes()).filter(|bytes| !bytes.is_empty()),
        _ => None,
    };
    ids.iter().zip(odd).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::TokenizerConfig;

    fn split(text: &str) -> SplitText {
        SplitText::new(&Tokenizer::train(&TokenizerConfig::Byte, "").unwrap(), text).unwrap()
    }

    #[test]
    fn a_text_is_split_in_pieces_with_ids_and_odd_bytes() {
        let found = split("a \u{e9}\n");
        assert_eq!(found.tokens.iter().map(|token| token.id).collect::<Vec<_>>(), [97, 32, 0xc3, 0xa9, 10]);
        let bytes: Vec<_> = found.tokens.iter().map(|token| token.hex()).collect();
        assert_eq!(bytes, ["", "", "c3", "a9", "0a"]);
        let text = found.to_text(false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("a\u{2502}\u{2423}\u{2502}") && lines[0].ends_with("\u{240a}\u{2502}"), "{text}");
        assert_eq!(lines[1], "5 tokens, 4 characters, 5 bytes");
        assert_eq!(lines[4], "    0       97  a");
        assert_eq!(found.to_json()["tokens"][2]["bytes"], json!([0xc3]));
    }

    #[test]
    fn lines_are_short_and_colours_are_asked_for() {
        let found = split(&"<\u{1f642}ab> ".repeat(40));
        let plain = found.to_text(false);
        assert!(!plain.contains('\u{1b}'));
        assert!(plain.lines().all(|line| line.chars().map(columns_of).sum::<usize>() <= WIDTH), "{plain}");
        let coloured = found.to_text(true);
        assert_eq!(coloured.matches("\u{1b}[0m").count(), found.tokens.len());
    }

    #[test]
    fn pictures_and_pages_have_every_piece_and_keep_their_markup() {
        let found = split("</span><img src=x>");
        let drawn = found.to_svg();
        assert_eq!((drawn.matches("<title>").count(), drawn.matches("<rect").count()), (18, 19));
        let page = found.to_page("<title>");
        assert!(page.contains("<title>&lt;title&gt;</title>") && page.contains(">&lt;</span>"));
        assert_eq!(page.matches("<tr>").count(), 19);
        for text in ["<script", "<img", "href=", "https://", "url("] {
            assert!(!page.contains(text), "{text} is in the page");
        }
    }

    #[test]
    fn nothing_is_refused() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        assert!(SplitText::new(&tokenizer, "").unwrap_err().to_string().contains("the text is empty"));
    }
}
