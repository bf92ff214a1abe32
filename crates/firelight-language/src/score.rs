//! The log-probabilities of a given text, token by token, of a text that is longer than the context too.
//!
//! Source: Hugging Face, Perplexity of fixed-length models (<https://huggingface.co/docs/transformers/perplexity>). Windows of the context,
//! `C` tokens, begin every `S` tokens, the stride. A token is scored in the first window that holds it: once, after all tokens before it
//! where the window begins with the text, else after at least `C - S` of them. Differs in that `S = C` is refused, which would leave
//! the first token of every window unscored.

use std::ops::Range;

use burn::tensor::Tensor;
use firelight_core::{Pass, SequenceInput};
use firelight_data::{OverlappingWindow, overlapping_windows, right_padded};
use firelight_generation::{TextScore, TokenScore, check_prompt, score_tokens_in_chunks};
use firelight_storage::{InputError, TaskError};

use crate::text_generator::TextGenerator;

/// The most tokens that are read together, unless one window has more.
const TOKENS: usize = 8192;

/// How a text is scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoreOptions {
    /// By how many tokens the window moves on in a text that is longer than the context `C`: from 1 to `C - 1`. Fewer give more context and
    /// take more time. Default: half the context.
    pub stride: Option<usize>,
    /// How many of the most probable tokens each score lists. With one or more, scores have ranks as well. Default: 0.
    pub top: usize,
    /// The most windows that are read together; never more than have 8,192 tokens, and at least one. They change memory and time, not the
    /// scores. Default: 8.
    pub windows: usize,
}

impl Default for ScoreOptions {
    fn default() -> Self {
        Self { stride: None, top: 0, windows: 8 }
    }
}

impl ScoreOptions {
    /// The stride in a context of so many tokens.
    ///
    /// # Errors
    /// If it is 0, or not less than the context.
    pub fn stride_in(&self, context: usize) -> Result<usize, InputError> {
        let stride = self.stride.unwrap_or(context / 2);
        if (1..context).contains(&stride) {
            return Ok(stride);
        }
        let problem = format!(
            "stride is {stride}, expected at least 1 and less than {context}, the tokens of the model's context"
        );
        Err(InputError::new(problem).advise("leave it out for half the context"))
    }
}

impl TextGenerator {
    /// How probable a text is to the model, token by token. Tokens that the tokenizer of a published model puts in front are read and not
    /// scored; without them the first token of the text has no score, for nothing precedes it.
    ///
    /// Probabilities are those of the model among all of its ids: what its makers ban, and ids without text, count as in training. A text
    /// longer than the context is read in windows that overlap: see [`ScoreOptions::stride`].
    ///
    /// # Errors
    /// If there is no token to predict, the text has a character that the tokenizer does not know, the stride is out of its range, or the
    /// model's numbers are not finite.
    pub fn score(&self, text: &str, options: &ScoreOptions) -> Result<TextScore, TaskError> {
        let (context, front) = (self.model().max_seq_len(), self.front());
        let stride = options.stride_in(context)?;
        let own = self.tokenizer().encode(text)?;
        let (ids, first) = ([&front[..], &own[..]].concat(), front.len().max(1));
        require_target(own.len(), first + 1 - front.len())?;
        check_prompt(std::slice::from_ref(&ids), usize::MAX, self.model().vocab_size())?;
        let most = options.windows.min(TOKENS / context).max(1);
        // Windows are not padded: the frequencies of some rotary positions depend on the length.
        let windows = overlapping_windows(ids.len(), first, context, stride);
        let batches =
            windows.chunk_by(|a, b| a.tokens().len() == b.tokens().len()).flat_map(|alike| alike.chunks(most));
        let scores = batches.map(|windows| self.score_windows(&ids, windows, options.top));
        let scores = scores.collect::<Result<Vec<_>, _>>()?.concat();
        Ok(TextScore::new(text, &own, scores, self.tokenizer().stream_after(&front)))
    }

    /// The scores of windows of one length, whose logits are formed where there is a target alone.
    fn score_windows(
        &self,
        ids: &[u32],
        windows: &[OverlappingWindow],
        top: usize,
    ) -> Result<Vec<TokenScore>, TaskError> {
        let model = self.model();
        let rows: Vec<&[u32]> = windows.iter().map(|window| &ids[inputs(window)]).collect();
        let (inputs, _) = right_padded(&rows, &model.embedding.weight.device()); // [B, T]
        let [_, seq_len] = inputs.dims();
        let hidden = model.hidden(inputs, &SequenceInput::default(), &mut Pass::default()); // [B, T, D]
        let last = |(row, window): (usize, &OverlappingWindow)| {
            let count = window.new_tokens().len();
            hidden.clone().narrow(0, row, 1).narrow(1, seq_len - count, count)
        };
        let before_targets = windows.iter().enumerate().map(last).collect();
        let logits = model.lazy_logits(Tensor::cat(before_targets, 1)); // [1, N, V]
        let targets: Vec<u32> = windows.iter().flat_map(|window| ids[window.new_tokens()].iter().copied()).collect();
        score_tokens_in_chunks(&targets, model.vocab_size(), top, |part| logits.narrow(part).form().squeeze_dim(0))
    }
}

/// What is read of a window: its last token predicts none of the others.
fn inputs(window: &OverlappingWindow) -> Range<usize> {
    window.begin..window.end - 1
}

/// Makes sure that a text of so many tokens has one to predict.
fn require_target(found: usize, needed: usize) -> Result<(), InputError> {
    if found >= needed {
        return Ok(());
    }
    let plural = if found == 1 { "" } else { "s" };
    let why = if needed > 1 { ", because nothing precedes the first" } else { "" };
    let problem = format!("the text has {found} token{plural}: expected at least {needed}{why}");
    Err(InputError::new(problem).advise("give a longer text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokens;
    use crate::model::{LanguageModel, LanguageModelConfig};
    use burn::tensor::Device;
    use burn::tensor::activation::log_softmax;
    use firelight_core::{Init, LossConfig, ParamBuilder, PositionConfig, RotaryConfig, RotaryScaling, WeightInit};
    use firelight_data::{Tokenizer, TokenizerConfig};
    use firelight_kernels::assert_close;
    use proptest::prelude::*;

    const CONTEXT: usize = 8;

    fn model(position: PositionConfig) -> LanguageModel {
        let wide = WeightInit { weight: Init::Normal { std: 0.4 }, scale_residual: false };
        let config = LanguageModelConfig::new(9, 16, 2, 2).with_max_seq_len(CONTEXT);
        let config = config.with_transformer(|stack| stack.with_init(wide).with_position(position));
        config.init_with(&ParamBuilder::new(&Device::default(), 0))
    }

    fn generator() -> TextGenerator {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        TextGenerator::new(model(PositionConfig::Learned), tokenizer)
    }

    fn log_probabilities(score: &TextScore) -> Vec<f64> {
        score.scores().map(|score| score.log_probability).collect()
    }

    /// The log-probability of a token in a pass of its own, after what the first window that holds it has before it.
    fn alone(model: &LanguageModel, ids: &[u32], place: usize, stride: usize) -> f64 {
        let begin = (0..).map(|window| window * stride).find(|begin| begin + CONTEXT > place).unwrap();
        let read = tokens(ids[begin..place].to_vec(), [1, place - begin], &Device::default());
        let logits = model.forward(read).narrow(1, place - begin - 1, 1); // [1, 1, V]
        f64::from(log_softmax(logits, 2).try_into_vec_as::<f32>().unwrap()[ids[place] as usize])
    }

    /// That of every token but the first.
    fn each_alone(model: &LanguageModel, ids: &[u32], stride: usize) -> Vec<f64> {
        (1..ids.len()).map(|place| alone(model, ids, place, stride)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn every_token_is_scored_once_with_the_context_of_its_window(
            text in "[a-h ]{2,40}", stride in 1..CONTEXT, windows in 0_usize..5, top in 0_usize..3,
        ) {
            let generator = generator();
            let options = ScoreOptions { stride: Some(stride), top, windows };
            let found = generator.score(&text, &options).unwrap();
            let ids = generator.tokenizer().encode(&text).unwrap();
            prop_assert_eq!(found.tokens.iter().map(|token| token.id).collect::<Vec<_>>(), ids.clone());
            prop_assert_eq!(found.tokens.iter().map(|token| token.text.as_str()).collect::<String>(), text.clone());
            prop_assert_eq!((found.count(), found.tokens[0].score.is_none()), (ids.len() - 1, true));
            assert_close(&log_probabilities(&found), &each_alone(generator.model(), &ids, stride), 1e-4);
            let has_ranks = found.scores().all(|score| score.rank.is_some() == (top > 0) && score.top.len() == top);
            prop_assert!(has_ranks, "{:?}", found);
        }

        #[test]
        fn a_text_no_longer_than_the_context_has_the_loss_of_a_training(text in "[a-h ]{2,8}") {
            let generator = generator();
            let ids = generator.tokenizer().encode(&text).unwrap();
            let row = |ids: &[u32]| tokens(ids.to_vec(), [1, ids.len()], &Device::default());
            let logits = generator.model().forward(row(&ids[..ids.len() - 1]));
            let loss = LossConfig::default().init().forward(logits, row(&ids[1..]), None);
            let (total, found) = (loss.total.into_scalar::<f64>(), generator.score(&text, &ScoreOptions::default()));
            let found = found.unwrap();
            assert_close(&[-found.log_probability()], &[total], 1e-5 * total.max(1.0));
            assert_close(&[found.perplexity().ln()], &[total / (ids.len() - 1) as f64], 1e-5 * total.max(1.0));
        }
    }

    #[test]
    fn frequencies_that_depend_on_the_length_are_those_of_each_window() {
        let scaling = RotaryScaling::Dynamic { factor: 4.0, original_max_seq_len: 3 };
        let position = PositionConfig::Rotary(RotaryConfig::default().with_theta(100.0).with_scaling(scaling));
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        let generator = TextGenerator::new(model(position), tokenizer);
        let score = |windows| generator.score("abcdefgh abcdefgh", &ScoreOptions { windows, ..Default::default() });
        let [one, many] = [1, 8].map(|windows| log_probabilities(&score(windows).unwrap()));
        assert_close(&many, &one, 1e-5);
        assert_eq!(one.len(), 16);
    }

    #[test]
    fn tokens_in_front_of_a_published_models_text_are_read_and_not_scored() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefg").unwrap();
        let tokenizer = tokenizer.with_special_tokens(&["<s>", "</s>"]).unwrap().with_frame(7, 8).unwrap().0;
        let generator = TextGenerator::new(model(PositionConfig::Learned), tokenizer);
        let published = generator.with_defaults(serde_json::from_str("{}").unwrap());
        for text in ["a", "gfedcbaabcdefg"] {
            let found = published.score(text, &ScoreOptions::default()).unwrap();
            let ids = [&[7_u32][..], &published.tokenizer().encode(text).unwrap()[..]].concat();
            assert_eq!((found.count(), found.tokens.len(), found.bytes), (text.len(), text.len(), text.len()));
            let expected = each_alone(published.model(), &ids, CONTEXT / 2);
            assert_close(&log_probabilities(&found), &expected, 1e-4);
        }
        let error = published.score("", &ScoreOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "the text has 0 tokens: expected at least 1; give a longer text");
    }

    #[test]
    fn what_cannot_be_scored_is_refused() {
        let refused = |text: &str, stride| {
            let error = generator().score(text, &ScoreOptions { stride, ..Default::default() }).unwrap_err();
            assert!(error.is_user_error(), "{error}");
            error.to_string()
        };
        let few = "expected at least 2, because nothing precedes the first; give a longer text";
        assert_eq!(refused("", None), format!("the text has 0 tokens: {few}"));
        assert_eq!(refused("a", None), format!("the text has 1 token: {few}"));
        for stride in [0, CONTEXT] {
            let range = "expected at least 1 and less than 8, the tokens of the model's context";
            let expected = format!("stride is {stride}, {range}; leave it out for half the context");
            assert_eq!(refused("abc", Some(stride)), expected);
        }
        assert!(refused("abz", None).starts_with("the character 'z' at position 2"));
    }
}
