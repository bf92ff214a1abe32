//! The log-probabilities of a given target after its source, token by token, in one teacher-forced pass.

use firelight_core::{Pass, SequenceInput};
use firelight_generation::{TextScore, score_tokens_in_chunks};
use firelight_storage::{InputError, TaskError};

use crate::data::right_padded;
use crate::translator::Translator;

impl Translator {
    /// How probable `target` is as a translation of `source`, token by token and with the end token behind it, which has no text. With `top`
    /// the scores have ranks and list the `top` most probable tokens. An empty target is the end token alone.
    ///
    /// The decoder reads the start token in front of the target and, where the makers of the model force a first token, that one; neither is
    /// scored. Probabilities are those of the model among all of its ids.
    ///
    /// # Errors
    /// If the source is empty, a text is too long for the model or has a character that its tokenizer does not know, or the model's numbers
    /// are not finite.
    pub fn score(&self, source: &str, target: &str, top: usize) -> Result<TextScore, TaskError> {
        let (model, vocabulary) = (self.model(), self.vocabulary());
        let source = self.source_to_score(source)?;
        let own = [&vocabulary.target().encode(target)?[..], &[vocabulary.ends().target]].concat();
        let front = self.target_front();
        let inputs = [&front[..], &own[..own.len() - 1]].concat();
        check_length("target", inputs.len(), model.max_target_len())?;
        let device = model.embedding.weight.device();
        let [source, inputs] = [source, inputs].map(|ids| right_padded(&[ids], &device).0); // [1, S] and [1, T]
        let encoder_output = model.encode(source, None, &mut Pass::default());
        let hidden = model.decode(inputs, encoder_output, &SequenceInput::default(), &mut Pass::default());
        let before = front.len() - 1;
        let logits = model.lazy_logits(hidden).narrow(before..before + own.len()); // [1, N, V]
        let scores =
            score_tokens_in_chunks(&own, model.vocab_size(), top, |part| logits.narrow(part).form().squeeze_dim(0))?;
        Ok(TextScore::new(target, &own, scores, vocabulary.target().stream()))
    }

    /// The ids of a source, with the tokens around it.
    fn source_to_score(&self, source: &str) -> Result<Vec<u32>, TaskError> {
        let ids = self.vocabulary().encode_source(source)?;
        if ids.is_empty() {
            let empty = InputError::new("the source is empty: expected the text that the target is a translation of");
            return Err(empty.advise("give a source of one character or more").into());
        }
        let ids = self.vocabulary().ends().source.put(&ids, None).0;
        check_length("source", ids.len(), self.model().max_source_len())?;
        Ok(ids)
    }

    /// What the decoder reads before it writes: the start token, and the first token that the makers of the model force.
    pub fn target_front(&self) -> Vec<u32> {
        [self.model().start_token()].into_iter().chain(self.forced_first()).collect()
    }
}

/// Makes sure that the model can read a side of a pair at once, with the special tokens that it has there.
fn check_length(side: &str, tokens: usize, max_seq_len: usize) -> Result<(), InputError> {
    if tokens <= max_seq_len {
        return Ok(());
    }
    let problem = format!("the {side} has {tokens} tokens, special tokens included, but the model reads {max_seq_len}");
    Err(InputError::new(problem).advise("shorten it, or train with a larger model.max_seq_len"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{PairBatch, PairBatcher};
    use crate::model::Seq2SeqConfig;
    use crate::vocabulary::Vocabulary;
    use crate::vocabulary::tests::framed;
    use burn::data::dataloader::batcher::Batcher;
    use burn::tensor::Device;
    use burn::tensor::activation::log_softmax;
    use firelight_core::{Init, LossConfig, ParamBuilder, WeightInit};
    use firelight_data::{EncodedPair, Pair, Tokenizer, TokenizerConfig};
    use firelight_kernels::assert_close;

    fn translator() -> Translator {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        let vocabulary = Vocabulary::new(None, tokenizer).unwrap();
        let (size, start_token) = (vocabulary.target().vocab_size(), vocabulary.ends().start);
        let config = Seq2SeqConfig { start_token, ..Seq2SeqConfig::new(size, 16, 2, 1) }.with_max_seq_len(9);
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let config = config.with_both(|stack| stack.with_init(wide));
        Translator::new(config.init_with(&ParamBuilder::new(&Device::default(), 0)), vocabulary)
    }

    fn log_probabilities(score: &TextScore) -> Vec<f64> {
        score.scores().map(|score| score.log_probability).collect()
    }

    #[test]
    fn a_target_has_the_loss_of_a_training() {
        let translator = translator();
        for (source, target) in [("abc", "hgfedcba"), ("h", "a"), ("a b", "")] {
            let pair = Pair { source: source.into(), target: target.into() };
            let pair: EncodedPair = translator.vocabulary().encode(&pair).unwrap();
            let batch: PairBatch = PairBatcher::of(translator.vocabulary()).batch(vec![pair], &Device::default());
            let logits = translator.model().forward(batch.source, None, batch.inputs);
            let total = LossConfig::default().init().forward(logits, batch.targets, None).total.into_scalar::<f64>();
            for top in [0, 2] {
                let found = translator.score(source, target, top).unwrap();
                assert_eq!((found.count(), found.tokens.len()), (target.len() + 1, target.len() + 1));
                assert_close(&[-found.log_probability()], &[total], 1e-5 * total.max(1.0));
                assert!(found.scores().all(|score| score.top.len() == top), "{found:?}");
            }
        }
    }

    #[test]
    fn the_end_token_is_scored_and_has_no_text() {
        let found = translator().score("abc", "ha", 0).unwrap();
        let pieces: Vec<&str> = found.tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!((pieces, found.bytes), (vec!["h", "a", ""], 2));
        assert_eq!(found.tokens[2].id, translator().vocabulary().ends().target);
    }

    #[test]
    fn a_first_token_that_is_forced_is_read_and_not_scored() {
        let (plain, forced) = (translator(), r#"{"forced_bos_token_id": 3}"#);
        let ends = plain.vocabulary().ends();
        let source = ends.source.put(&plain.vocabulary().source().encode("abc").unwrap(), None).0;
        let own = [&plain.vocabulary().target().encode("hb").unwrap()[..], &[ends.target]].concat();
        let inputs = [&[ends.start, 3], &own[..2]].concat();
        let [source, inputs] = [source, inputs].map(|ids| right_padded(&[ids], &Device::default()).0);
        let logits = log_softmax(plain.model().forward(source, None, inputs), 2); // [1, 4, V]
        let size = plain.model().vocab_size();
        let logits: Vec<f32> = logits.try_into_vec_as().unwrap();
        let expected: Vec<f64> =
            (1..).zip(&own).map(|(row, &id)| f64::from(logits[row * size + id as usize])).collect();
        let found = plain.with_defaults(serde_json::from_str(forced).unwrap()).score("abc", "hb", 0).unwrap();
        assert_close(&log_probabilities(&found), &expected, 1e-5);
    }

    #[test]
    fn a_source_is_read_with_its_frame() {
        let vocabulary = Vocabulary::new(None, framed(&["<s>"], &["</s>"])).unwrap();
        let config = Seq2SeqConfig { start_token: 2, ..Seq2SeqConfig::new(5, 16, 2, 1) }.with_max_seq_len(9);
        let translator = Translator::new(config.init_with(&ParamBuilder::new(&Device::default(), 0)), vocabulary);
        let inputs = [&[2_u32, 0, 1, 3][..], &[2, 1]].map(|ids| right_padded(&[ids], &Device::default()).0);
        let [source, inputs] = inputs; // of `ab` and of `b`
        let logits: Vec<f32> =
            log_softmax(translator.model().forward(source, None, inputs), 2).try_into_vec_as().unwrap();
        let expected = [logits[1], logits[translator.model().vocab_size() + 3]].map(f64::from);
        assert_close(&log_probabilities(&translator.score("ab", "b", 0).unwrap()), &expected, 1e-5);
        let error = translator.score("abababab", "b", 0).unwrap_err();
        assert!(error.to_string().starts_with("the source has 10 tokens"), "{error}");
    }

    #[test]
    fn what_cannot_be_scored_is_refused() {
        let refused = |source: &str, target: &str| {
            let error = translator().score(source, target, 0).unwrap_err();
            assert!(error.is_user_error(), "{error}");
            error.to_string()
        };
        assert!(refused("", "a").starts_with("the source is empty: expected the text"));
        let advice = "but the model reads 9; shorten it, or train with a larger model.max_seq_len";
        assert_eq!(refused("abcdefgha", "a"), format!("the source has 10 tokens, special tokens included, {advice}"));
        assert_eq!(refused("a", "abcdefgha"), format!("the target has 10 tokens, special tokens included, {advice}"));
        assert!(refused("a", "bz").starts_with("the character 'z' at position 1"));
        translator().score("abcdefgh", "abcdefgh", 0).unwrap();
    }
}
