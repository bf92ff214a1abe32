//! Quotes of CSV that do not come in pairs. Readers of CSV take them as text in silence and join lines that have nothing to
//! do with one another; here they are errors. Source: RFC 4180, section 2, rules 5 to 7, without the ban of quotes within
//! values that have none around them.

/// Where in a value a byte stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Start,
    Plain,
    Quoted,
    /// Behind a quote that ends the value, or is the first of a doubled one.
    Closed,
}

/// Looks for a wrong quote. The error is the line of the quote that opened its value, and what is wrong with it.
pub(super) fn check(text: &str) -> Result<(), (usize, String)> {
    let (mut line, mut opened, mut place) = (1, 1, Place::Start);
    for byte in text.bytes() {
        place = match (place, byte) {
            (Place::Start, b'"') => {
                opened = line;
                Place::Quoted
            }
            (Place::Quoted, b'"') => Place::Closed,
            (Place::Quoted, _) | (Place::Closed, b'"') => Place::Quoted,
            (_, b',' | b'\n' | b'\r') => Place::Start,
            (Place::Closed, _) => return Err((opened, format!("closes on line {line} in the middle of a value"))),
            _ => Place::Plain,
        };
        line += usize::from(byte == b'\n');
    }
    if place == Place::Quoted { Err((opened, "is never closed".into())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
