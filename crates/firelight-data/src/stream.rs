//! Turns ids into text as they come, so that generated text can be shown while it is written. A character may be spread
//! over several tokens; its bytes are held back until it is whole.

use std::mem;
use std::str;
use std::sync::Arc;

use crate::tokenizer::{Pieces, Seam};

/// Decodes one id at a time; made by [`Tokenizer::stream`](crate::Tokenizer::stream).
///
/// The pieces together are what [`Tokenizer::decode`](crate::Tokenizer::decode) makes of all ids at once.
#[derive(Clone, Debug)]
pub struct TextStream {
    pieces: Arc<Pieces>,
    seam: Seam,
    /// Bytes of a character that is not whole yet: at most three between calls.
    held: Vec<u8>,
}

impl TextStream {
    pub(crate) fn new(pieces: Arc<Pieces>) -> Self {
        Self { pieces, seam: Seam::default(), held: Vec::new() }
    }

    /// Takes the next id and returns the text that is certain now, if there is any.
    pub fn push(&mut self, id: u32) -> Option<String> {
        self.pieces.append(id, &mut self.seam, &mut self.held);
        let text = self.take_certain();
        (!text.is_empty()).then_some(text)
    }

    /// Returns what is left when no more ids come: a replacement character if the last one was never finished.
    pub fn finish(&mut self) -> Option<String> {
        let rest = mem::take(&mut self.held);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }

    /// Removes from the held bytes all that no further byte can change, as text.
    fn take_certain(&mut self) -> String {
        let mut text = String::new();
        loop {
            let error = match str::from_utf8(&self.held) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.held.clear();
                    return text;
                }
                Err(error) => error,
            };
            let valid: Vec<u8> = self.held.drain(..error.valid_up_to()).collect();
            text.push_str(&String::from_utf8_lossy(&valid));
            match error.error_len() {
                // These bytes begin no character, whatever follows.
                Some(wrong) => {
                    self.held.drain(..wrong);
                    text.push(char::REPLACEMENT_CHARACTER);
                }
                None => return text,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Tokenizer, TokenizerConfig};
    use proptest::prelude::*;

    fn bytes() -> Tokenizer {
        Tokenizer::train(&TokenizerConfig::Byte, "").unwrap()
    }

    #[test]
    fn a_character_is_held_back_until_it_is_whole() {
        let mut stream = bytes().stream();
        assert_eq!(stream.push(0x41).as_deref(), Some("A"));
        assert_eq!(stream.push(0xc3), None);
        assert_eq!(stream.push(0xa9).as_deref(), Some("\u{e9}"));
        assert_eq!(stream.finish(), None);
    }

    #[test]
    fn wrong_and_unfinished_bytes_become_replacement_characters() {
        let mut stream = bytes().stream();
        assert_eq!(stream.push(0xff).as_deref(), Some("\u{fffd}"));
        assert_eq!(stream.push(0xe2), None);
        assert_eq!(stream.push(0x41).as_deref(), Some("\u{fffd}A"));
        assert_eq!(stream.push(0xe2), None);
        assert_eq!(stream.push(0x82), None);
        assert_eq!(stream.finish().as_deref(), Some("\u{fffd}"));
    }

    proptest! {
        #[test]
        fn the_pieces_together_are_the_decoded_text(ids in prop::collection::vec(0_u32..256, 0..40)) {
            let tokenizer = bytes();
            let mut stream = tokenizer.stream();
            let mut text: String = ids.iter().filter_map(|&id| stream.push(id)).collect();
            text.extend(stream.finish());
            prop_assert_eq!(text, tokenizer.decode(&ids));
        }
    }
}
