//! What each token writes, as bytes: for decoding under a constraint, which is about bytes, and chooses among tokens.

use std::collections::HashMap;
use std::sync::OnceLock;

use firelight_storage::InputError;
use tokenizers::{Decoder, DecoderWrapper};

use super::{Tokenizer, byte_level};

impl Tokenizer {
    /// The bytes that each id writes behind other text; none for special tokens and for ids that are no token.
    ///
    /// The bytes of several ids, one after the other, are what [`stream_after`](Self::stream_after) makes of these ids behind a
    /// prompt, where they are UTF-8.
    ///
    /// ```
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    ///
    /// let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "a\u{e9}").unwrap();
    /// let tokenizer = tokenizer.with_special_tokens(&["</s>"]).unwrap();
    /// assert_eq!(tokenizer.token_bytes().unwrap(), [&b"a"[..], "\u{e9}".as_bytes(), b""]);
    /// ```
    ///
    /// # Errors
    /// Fails if the tokenizer's decoder looks at more than one token, as that of WordPiece does.
    pub fn token_bytes(&self) -> Result<Vec<Vec<u8>>, InputError> {
        let steps = steps(self.inner.get_decoder())?;
        let bytes = |id: u32| match self.inner.id_to_token(id).filter(|_| !self.is_special(id)) {
            Some(token) => written(&steps, token),
            None => Vec::new(),
        };
        Ok((0..self.vocab_size as u32).map(bytes).collect())
    }
}

/// The parts of a decoder that change tokens one by one.
fn steps(decoder: Option<&DecoderWrapper>) -> Result<Vec<&DecoderWrapper>, InputError> {
    let all = match decoder {
        None => return Err(unfit("none, which joins tokens with spaces")),
        Some(DecoderWrapper::Sequence(all)) => all.get_decoders().iter().collect(),
        Some(decoder) => vec![decoder],
    };
    let joined = all.iter().position(|step| joins(step)).unwrap_or(all.len());
    let (before, after) = all.split_at(joined);
    let unfit_before = before.iter().find(|step| !is_of_one_token(step));
    let unfit_after = after.iter().skip(1).find(|step| !is_of_the_beginning(step));
    match unfit_before.or(unfit_after) {
        Some(step) => Err(unfit(&format!("`{}`", name(step)))),
        None => Ok(all[..all.len().min(joined + 1)].to_vec()),
    }
}

/// Whether what follows sees one text instead of tokens.
fn joins(step: &DecoderWrapper) -> bool {
    matches!(step, DecoderWrapper::ByteLevel(_) | DecoderWrapper::Fuse(_))
}

/// Whether it changes each token by itself, the first one of a text perhaps in another way.
fn is_of_one_token(step: &DecoderWrapper) -> bool {
    matches!(
        step,
        DecoderWrapper::Replace(_)
            | DecoderWrapper::Metaspace(_)
            | DecoderWrapper::ByteFallback(_)
            | DecoderWrapper::Strip(_)
    )
}

/// Whether it changes no more than the beginning of a text, which the tokens behind a prompt are not.
fn is_of_the_beginning(step: &DecoderWrapper) -> bool {
    matches!(step, DecoderWrapper::Fuse(_)) || matches!(step, DecoderWrapper::Strip(strip) if strip.stop == 0)
}

fn unfit(decoder: &str) -> InputError {
    let problem = format!("the tokenizer's decoder is {decoder}: what a token writes depends on the tokens around it");
    InputError::new(problem)
        .advise("give a model with a tokenizer of characters, bytes, byte-level BPE or SentencePiece")
}

/// The decoder's name in `tokenizer.json`.
fn name(step: &DecoderWrapper) -> &'static str {
    match step {
        DecoderWrapper::BPE(_) => "BPEDecoder",
        DecoderWrapper::ByteLevel(_) => "ByteLevel",
        DecoderWrapper::WordPiece(_) => "WordPiece",
        DecoderWrapper::Metaspace(_) => "Metaspace",
        DecoderWrapper::CTC(_) => "CTC",
        DecoderWrapper::Sequence(_) => "Sequence",
        DecoderWrapper::Replace(_) => "Replace",
        DecoderWrapper::Fuse(_) => "Fuse",
        DecoderWrapper::Strip(_) => "Strip",
        DecoderWrapper::ByteFallback(_) => "ByteFallback",
    }
}

/// What a token writes.
fn written(steps: &[&DecoderWrapper], token: String) -> Vec<u8> {
    let mut token = token;
    for step in steps {
        match step {
            DecoderWrapper::ByteLevel(_) => return spelt(&token),
            DecoderWrapper::ByteFallback(_) => match fallback(&token) {
                Some(byte) => return vec![byte],
                None => continue,
            },
            step => token = alone(step, token),
        }
    }
    token.into_bytes()
}

/// A token as one step decodes it behind another one.
fn alone(step: &DecoderWrapper, token: String) -> String {
    let tokens = step.decode_chain(vec![String::new(), token]).unwrap_or_default();
    tokens.concat()
}

/// The byte that a token such as `<0x0A>` stands for.
fn fallback(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>').filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// The bytes that a token spells in the byte alphabet; a token with another character is text as it stands.
fn spelt(token: &str) -> Vec<u8> {
    static BYTES: OnceLock<HashMap<char, u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| (0..=255).map(|byte| (byte_level::spelling(byte), byte)).collect());
    let spelt: Option<Vec<u8>> = token.chars().map(|character| bytes.get(&character).copied()).collect();
    spelt.unwrap_or_else(|| token.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::TokenizerConfig;

    const TEXT: &str = "low lower lowest\nnew newer newest, 12 123 \u{e9}\u{1f600}\n";

    /// A tokenizer as a file describes it.
    fn of_file(decoder: &str, vocabulary: &[&str]) -> Tokenizer {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        let ids: serde_json::Map<String, serde_json::Value> =
            vocabulary.iter().enumerate().map(|(id, token)| (token.to_string(), id.into())).collect();
        let model = serde_json::json!({"type": "BPE", "vocab": ids, "merges": [], "unk_token": null});
        fs::write(&path, format!("{{\"version\": \"1.0\", \"decoder\": {decoder}, \"model\": {model}}}")).unwrap();
        Tokenizer::load(&path).unwrap()
    }

    /// Every pair of tokens that is UTF-8 writes behind a prompt what its bytes say.
    fn agrees(tokenizer: &Tokenizer, prompt: &[u32]) {
        let bytes = tokenizer.token_bytes().unwrap();
        let ids = || (0..bytes.len() as u32).filter(|&id| !bytes[id as usize].is_empty()).step_by(7);
        for (first, second) in ids().flat_map(|first| ids().map(move |second| (first, second))) {
            let Ok(text) = String::from_utf8([&bytes[first as usize][..], &bytes[second as usize]].concat()) else {
                continue;
            };
            assert_eq!(tokenizer.stream_after(prompt).read(&[first, second]), text, "{first} {second}");
        }
    }

    #[test]
    fn bytes_are_what_a_stream_writes_behind_a_prompt() {
        let sentences = "low lower lowest\nnew newer newest\n".repeat(9) + TEXT;
        for config in [
            TokenizerConfig::Char,
            TokenizerConfig::Byte,
            TokenizerConfig::Bpe { vocab_size: 280 },
            TokenizerConfig::SentenceBpe { vocab_size: 280 },
            TokenizerConfig::Unigram { vocab_size: 280 },
        ] {
            let tokenizer = Tokenizer::train(&config, &sentences).unwrap().with_special_tokens(&["</s>"]).unwrap();
            let prompt = tokenizer.encode("low").unwrap();
            agrees(&tokenizer, &prompt);
            assert_eq!(tokenizer.token_bytes().unwrap().last(), Some(&Vec::new()), "{config}: </s> is no text");
        }
    }

    #[test]
    fn sentence_piece_spells_spaces_and_bytes_in_its_own_way() {
        let vocabulary = ["\u{2581}", "\u{2581}a", "b", "<0x0A>", "<0xC3>", "<0xA9>", "<0xZZ>"];
        let decoder = r#"{"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}"#;
        let tokenizer = of_file(decoder, &vocabulary);
        let bytes = tokenizer.token_bytes().unwrap();
        assert_eq!(bytes, [&b" "[..], b" a", b"b", b"\n", &[0xc3], &[0xa9], b"<0xZZ>"]);
        assert_eq!(tokenizer.stream_after(&[2]).read(&[1, 4, 5, 3, 0, 6]), " a\u{e9}\n <0xZZ>");
        let metaspace = r#"{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}"#;
        assert_eq!(of_file(metaspace, &vocabulary).token_bytes().unwrap()[..3], [&b" "[..], b" a", b"b"]);
    }

    #[test]
    fn a_decoder_that_looks_around_is_refused() {
        let pieces = Tokenizer::train(&TokenizerConfig::WordPiece { vocab_size: 60 }, TEXT).unwrap();
        assert_eq!(
            pieces.token_bytes().unwrap_err().to_string(),
            "the tokenizer's decoder is `WordPiece`: what a token writes depends on the tokens around it; give a model with a \
             tokenizer of characters, bytes, byte-level BPE or SentencePiece"
        );
        let ends = r#"{"type": "BPEDecoder", "suffix": "</w>"}"#;
        let error = of_file(ends, &["a"]).token_bytes().unwrap_err().to_string();
        assert!(error.starts_with("the tokenizer's decoder is `BPEDecoder`:"), "{error}");
        let error = of_file("null", &["a"]).token_bytes().unwrap_err().to_string();
        assert!(error.starts_with("the tokenizer's decoder is none, which joins tokens with spaces:"), "{error}");
    }
}
