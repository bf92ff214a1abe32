//! The special tokens around a text or a pair of texts: those that the post-processor of the file puts there, `[CLS] A [SEP] B [SEP]`
//! of BERT for instance, or `A </s>` of T5.

use std::collections::HashMap;

use serde_json::{Value, json};
use tokenizers::{Encoding, PostProcessor, PostProcessorWrapper, Token};

use super::{Tokenizer, failure, guarded};
use crate::DataError;

/// What stands around a text, and around a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    single: [Vec<u32>; 2],
    pair: [Vec<u32>; 3],
    /// How many tokens behind the first text the second segment begins; none where both are one segment.
    second_from: Option<usize>,
}

impl Frame {
    /// The frame of one token behind every text, and of none in front: that of T5.
    ///
    /// ```
    /// use firelight_data::Frame;
    ///
    /// assert_eq!(Frame::behind(9).put(&[1, 2], None), (vec![1, 2, 9], 3));
    /// ```
    pub fn behind(end: u32) -> Self {
        Self { single: [Vec::new(), vec![end]], pair: [Vec::new(), vec![end], vec![end]], second_from: None }
    }

    /// Number of tokens that stand around a text, or around a pair.
    pub fn size(&self, is_pair: bool) -> usize {
        if is_pair { self.pair.concat().len() } else { self.single.concat().len() }
    }

    /// Where a text begins that stands alone.
    pub fn begin(&self) -> usize {
        self.single[0].len()
    }

    /// The tokens in front of a text that stands alone.
    pub fn front(&self) -> &[u32] {
        &self.single[0]
    }

    /// The last token behind a text that stands alone.
    pub fn end(&self) -> Option<u32> {
        self.single[1].last().copied()
    }

    /// Puts the tokens around ids, and tells where the second segment begins: behind the end, where there is none.
    pub fn put(&self, first: &[u32], second: Option<&[u32]>) -> (Vec<u32>, usize) {
        let ([before, after], [front, middle, back]) = (&self.single, &self.pair);
        let Some(second) = second else {
            let ids = [before, first, after].concat();
            return (ids.clone(), ids.len());
        };
        let ids = [front, first, middle, second, back].concat();
        let second_from = self.second_from.map_or(ids.len(), |place| front.len() + first.len() + place);
        (ids, second_from)
    }

    /// What a post-processor puts around texts; none if that is nothing, or if it swaps the texts.
    pub(super) fn of(processor: &PostProcessorWrapper) -> Option<Self> {
        let probe = |type_id| Encoding::from_tokens(vec![Token::new(0, "a".into(), (0, 1))], type_id);
        let single = guarded(|| processor.process(probe(0), None, true)).ok()?;
        let pair = guarded(|| processor.process(probe(0), Some(probe(1)), true)).ok()?;
        let place = |found: &Encoding, text| found.get_sequence_ids().iter().position(|&of| of == Some(text));
        let (only, [first, second]) = (place(&single, 0)?, [place(&pair, 0)?, place(&pair, 1)?]);
        let segment = pair.get_type_ids().iter().position(|&of| of == 1);
        let (single, pair) = (single.get_ids(), pair.get_ids());
        let frame = Self {
            single: [single[..only].into(), single[only + 1..].into()],
            pair: [pair[..first].into(), pair.get(first + 1..second)?.into(), pair[second + 1..].into()],
            second_from: segment.and_then(|place| place.checked_sub(first + 1)),
        };
        (frame.size(false) > 0).then_some(frame)
    }

    /// The last token in front of a text, and the first one behind it.
    pub(super) fn ends(&self) -> [Option<u32>; 2] {
        [self.single[0].last().copied(), self.single[1].first().copied()]
    }
}

impl Tokenizer {
    /// What the file puts around a text or a pair; none if that is nothing.
    pub fn frame(&self) -> Option<Frame> {
        self.processor.as_ref().and_then(Frame::of)
    }

    /// Puts BERT's frame around texts, `class A separator` and `class A separator B separator`, whose second segment begins with `B`.
    /// It stands in the file, so that other readers do the same, and in the place of one that is there.
    ///
    /// # Errors
    /// Fails if there are no such tokens.
    pub fn with_frame(self, class: u32, separator: u32) -> Result<(Self, Frame), DataError> {
        let [front, behind] = [self.name_of(class)?, self.name_of(separator)?];
        let single = [special(&front, 0), text("A", 0), special(&behind, 0)];
        let pair = [&single[..], &[text("B", 1), special(&behind, 1)]].concat();
        let around = Frame {
            single: [vec![class], vec![separator]],
            pair: [vec![class], vec![separator], vec![separator]],
            second_from: Some(1),
        };
        Ok((self.with_template(&single, &pair, &[(front, class), (behind, separator)])?, around))
    }

    /// Puts T5's frame around texts, `A end` and `A end B end`, of one segment. It stands in the file, so that other readers do the same,
    /// and in the place of one that is there.
    ///
    /// ```
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    ///
    /// let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap().with_special_tokens(&["</s>"]).unwrap();
    /// let frame = bytes.with_end(256).unwrap().frame().unwrap();
    /// assert_eq!(frame.put(&[97, 98], None), (vec![97, 98, 256], 3));
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such token.
    pub fn with_end(self, end: u32) -> Result<Self, DataError> {
        let behind = self.name_of(end)?;
        let single = [text("A", 0), special(&behind, 0)];
        let pair = [&single[..], &[text("B", 0), special(&behind, 0)]].concat();
        self.with_template(&single, &pair, &[(behind, end)])
    }

    fn name_of(&self, id: u32) -> Result<String, DataError> {
        self.token(id).ok_or(DataError::Tokenizer { reason: format!("it has no token {id}") })
    }

    /// Puts what these templates say around a text and around a pair.
    fn with_template(self, single: &[Value], pair: &[Value], tokens: &[(String, u32)]) -> Result<Self, DataError> {
        let tokens = tokens.iter().map(|(name, id)| (name, json!({"id": name, "ids": [id], "tokens": [name]})));
        let tokens: HashMap<_, _> = tokens.collect();
        let template = json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens});
        let frame = match &self.processor {
            // One that puts nothing around a text trims the places of tokens.
            Some(trims) if self.frame().is_none() => json!({"type": "Sequence", "processors": [trims, template]}),
            _ => template,
        };
        let frame: PostProcessorWrapper = serde_json::from_value(frame).map_err(|error| failure(error.into()))?;
        self.changed(|inner| {
            inner.with_post_processor(Some(frame));
        })
    }
}

/// A special token of a template, in a segment.
fn special(name: &str, segment: u32) -> Value {
    json!({"SpecialToken": {"id": name, "type_id": segment}})
}

/// A text of a template, in a segment.
fn text(name: &str, segment: u32) -> Value {
    json!({"Sequence": {"id": name, "type_id": segment}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;

    #[test]
    fn a_frame_of_berts_kind_stands_in_the_file() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        assert_eq!(tokenizer.frame(), None);
        let tokenizer = tokenizer.with_special_tokens(&["[CLS]", "[SEP]"]).unwrap();
        let (tokenizer, frame) = tokenizer.with_frame(256, 257).unwrap();
        assert_eq!(tokenizer.frame().as_ref(), Some(&frame));
        assert_eq!((frame.size(false), frame.size(true)), (2, 3));
        assert_eq!(frame.put(&[1, 2], None), (vec![256, 1, 2, 257], 4));
        assert_eq!(frame.put(&[1, 2], Some(&[3])), (vec![256, 1, 2, 257, 3, 257], 4));
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        tokenizer.save(&path).unwrap();
        assert_eq!(Tokenizer::load(&path).unwrap().frame(), Some(frame));
        let theirs = tokenizers::Tokenizer::from_file(&path).unwrap();
        assert_eq!(theirs.encode(("a", "b"), true).unwrap().get_ids(), [256, 97, 257, 98, 257]);
    }

    #[test]
    fn a_frame_of_t5s_kind_stands_in_the_file() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap().with_special_tokens(&["</s>"]).unwrap();
        assert!(tokenizer.clone().with_end(300).is_err());
        let tokenizer = tokenizer.with_end(256).unwrap();
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        tokenizer.save(&path).unwrap();
        let frame = Tokenizer::load(&path).unwrap().frame().unwrap();
        assert_eq!((frame.begin(), frame.end(), frame.size(true)), (0, Some(256), 2));
        assert_eq!(frame, Frame::behind(256));
        assert_eq!(frame.put(&[1], Some(&[2])), (vec![1, 256, 2, 256], 4));
        let theirs = tokenizers::Tokenizer::from_file(&path).unwrap();
        assert_eq!(theirs.encode("a", true).unwrap().get_ids(), [97, 256]);
        let pair = theirs.encode(("a", "b"), true).unwrap();
        assert_eq!((pair.get_ids().to_vec(), pair.get_type_ids().to_vec()), (vec![97, 256, 98, 256], vec![0; 4]));
    }

    #[test]
    fn that_of_roberta_has_one_segment() {
        let processor = json!({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0],
            "trim_offsets": true, "add_prefix_space": false});
        let frame = Frame::of(&serde_json::from_value(processor).unwrap()).unwrap();
        assert_eq!(frame.put(&[7], Some(&[8])), (vec![0, 7, 2, 2, 8, 2], 6));
        assert_eq!(frame.ends(), [Some(0), Some(2)]);
    }
}
