//! Quotes of CSV that do not come in pairs. Readers of CSV take them as text in silence and join lines that have nothing to
//! do with one another; here they are errors. Source: RFC 4180, section 2, rules 5 to 7, without the ban of quotes within
//! values that have none around them.

/// The state of the scanner within a value.
#[derive(Clone, Copy, PartialEq)]
enum QuoteState {
    Start,
    Plain,
    Quoted,
    /// Behind a quote that ends the value, or is the first of a doubled one.
    Closed,
}

/// The quotes of text that is read piece by piece.
pub(super) struct Quotes {
    /// The line that is read, and the one of the quote that opened the value.
    line: usize,
    opened: usize,
    state: QuoteState,
}

impl Quotes {
    /// Outside quotes, at the beginning of a line.
    pub(super) fn from_line(line: usize) -> Self {
        Self { line, opened: line, state: QuoteState::Start }
    }

    /// Whether what was read ends within quotes.
    pub(super) fn are_open(&self) -> bool {
        self.state == QuoteState::Quoted
    }

    /// The error of text that ends within quotes.
    pub(super) fn never_closed(&self) -> (usize, String) {
        (self.opened, "is never closed".into())
    }

    /// Reads on. The error is the line of the quote that opened its value, and what is wrong with it.
    pub(super) fn read(&mut self, text: &str) -> Result<(), (usize, String)> {
        text.bytes().try_for_each(|byte| self.step(byte))
    }

    fn step(&mut self, byte: u8) -> Result<(), (usize, String)> {
        self.state = match (self.state, byte) {
            (QuoteState::Start, b'"') => {
                self.opened = self.line;
                QuoteState::Quoted
            }
            (QuoteState::Quoted, b'"') => QuoteState::Closed,
            (QuoteState::Quoted, _) | (QuoteState::Closed, b'"') => QuoteState::Quoted,
            (_, b',' | b'\n' | b'\r') => QuoteState::Start,
            (QuoteState::Closed, _) => {
                return Err((self.opened, format!("closes on line {} in the middle of a value", self.line)));
            }
            _ => QuoteState::Plain,
        };
        self.line += usize::from(byte == b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), (usize, String)> {
        let mut quotes = Quotes::from_line(1);
        quotes.read(text)?;
        if quotes.are_open() { Err(quotes.never_closed()) } else { Ok(()) }
    }

    #[test]
    fn quotes_come_in_pairs_around_values() {
        for good in ["", "a,b\n", "\"a\",\"b\"\r\n", "\"a \"\"b\"\"\n,\",1", "\"\",\"\"\"\"", "a \"b\" c,5\" long"] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn the_quote_that_begins_the_trouble_is_named() {
        assert_eq!(check("a,1\n\"b,2\nc,3\n"), Err((2, "is never closed".into())));
        assert_eq!(check("\"a\n\nb"), Err((1, "is never closed".into())));
        let closes = |line: usize| format!("closes on line {line} in the middle of a value");
        assert_eq!(check("a,1\n\"b,2\n\"c\",3\n"), Err((2, closes(3))));
        assert_eq!(check("\"a\"b,1\n"), Err((1, closes(1))));
    }
}
