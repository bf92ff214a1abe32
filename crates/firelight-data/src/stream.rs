//! Turns ids into text as they come, so that generated text can be shown while it is written. What an id stands for may depend on the
//! ids around it: a character may be spread over several tokens, and a space may be left out in front of a text. So a stretch that
//! begins with the text of the step before is decoded anew at every step, as the `tokenizers` crate does it.

use std::mem;
use std::sync::Arc;

use tokenizers::{DecoderWrapper, step_decode_stream};

use crate::tokenizer::{decode, guarded};

/// Decodes one id at a time; made by [`Tokenizer::stream`](crate::Tokenizer::stream).
///
/// The pieces together are what [`Tokenizer::decode`](crate::Tokenizer::decode) makes of all ids at once.
#[derive(Clone, Debug)]
pub struct TextStream {
    tokenizer: Arc<tokenizers::Tokenizer>,
    /// The ids of `prefix`, and those behind it whose text is not certain yet.
    ids: Vec<u32>,
    /// The text that was given out last, or that goes before.
    prefix: String,
    /// How many ids it has.
    prefix_len: usize,
    /// Bytes that more bytes may follow: the crate joins them all before it looks for characters.
    bytes: Vec<u32>,
}

impl TextStream {
    /// What follows other ids, of which it gives out nothing.
    pub(crate) fn new(tokenizer: Arc<tokenizers::Tokenizer>, before: &[u32]) -> Self {
        let prefix = decode(&tokenizer, before);
        Self { tokenizer, ids: before.into(), prefix, prefix_len: before.len(), bytes: Vec::new() }
    }

    /// Takes the next id and returns the text that is certain now, if there is any.
    pub fn push(&mut self, id: u32) -> Option<String> {
        let token = self.tokenizer.id_to_token(id)?;
        if self.tokenizer.get_added_vocabulary().is_special_token(&token) {
            return None;
        }
        self.bytes.push(id);
        if is_byte(&token) && self.joins_bytes() { None } else { self.step() }
    }

    /// Returns what is left when no more ids come: a replacement character if the last one was never finished.
    pub fn finish(&mut self) -> Option<String> {
        self.ids.append(&mut self.bytes);
        let (ids, prefix) = (mem::take(&mut self.ids), mem::take(&mut self.prefix));
        let text = decode(&self.tokenizer, &ids);
        text.strip_prefix(&prefix).filter(|rest| !rest.is_empty()).map(str::to_owned)
    }

    /// The text of all that is left to read.
    pub fn read(mut self, ids: &[u32]) -> String {
        let mut text: String = ids.iter().filter_map(|&id| self.push(id)).collect();
        text.extend(self.finish());
        text
    }

    fn step(&mut self) -> Option<String> {
        let (new, known) = (mem::take(&mut self.bytes), self.ids.len());
        let state = (&mut self.ids, &mut self.prefix, &mut self.prefix_len);
        let text = guarded(|| step_decode_stream(&self.tokenizer, new, true, state.0, state.1, state.2));
        text.unwrap_or_else(|_| self.begin_anew(known))
    }

    /// The decoder takes back what it gave out, so that what is new is decoded by itself.
    fn begin_anew(&mut self, known: usize) -> Option<String> {
        self.ids.drain(..known.min(self.ids.len()));
        self.prefix = decode(&self.tokenizer, &self.ids);
        self.prefix_len = self.ids.len();
        (!self.prefix.is_empty()).then(|| self.prefix.clone())
    }

    /// Whether the decoder joins tokens such as `<0x0A>`.
    fn joins_bytes(&self) -> bool {
        let joins = |decoder: &DecoderWrapper| matches!(decoder, DecoderWrapper::ByteFallback(_));
        match self.tokenizer.get_decoder() {
            Some(DecoderWrapper::Sequence(all)) => all.get_decoders().iter().any(joins),
            decoder => decoder.is_some_and(joins),
        }
    }
}

/// Whether a token is a byte as SentencePiece spells it.
fn is_byte(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x") && token.ends_with('>')
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
        assert_eq!(stream.push(0xff), None);
        assert_eq!(stream.push(0xe2), None);
        assert_eq!(stream.push(0x41).as_deref(), Some("\u{fffd}\u{fffd}A"));
        assert_eq!(stream.push(0xe2), None);
        assert_eq!(stream.push(0x82), None);
        assert_eq!(stream.finish().as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn what_follows_a_prompt_keeps_the_space_between() {
        let config = TokenizerConfig::SentenceBpe { vocab_size: 262 };
        let tokenizer = Tokenizer::train(&config, &"so it goes\n".repeat(9)).unwrap();
        let ids = tokenizer.encode("so it goes").unwrap();
        let after = |count: usize| tokenizer.stream_after(&ids[..count]).read(&ids[count..]);
        assert_eq!((after(0).as_str(), tokenizer.decode(&ids).as_str()), ("so it goes", "so it goes"));
        for count in 1..=ids.len() {
            assert_eq!(tokenizer.decode(&ids[..count]) + &after(count), "so it goes");
        }
    }

    proptest! {
        #[test]
        fn the_pieces_together_are_the_decoded_text(ids in prop::collection::vec(0_u32..256, 0..40)) {
            let tokenizer = bytes();
            prop_assert_eq!(tokenizer.stream().read(&ids), tokenizer.decode(&ids));
        }
    }
}
