//! How much the errors of a model's weights count, measured on a text.
//!
//! Source: the importance matrix of llama.cpp (<https://github.com/ggml-org/llama.cpp>, `tools/imatrix`), with its windows of 512 tokens. Differs in
//! that the embedding of a tied head is measured as the head, whose logits are not formed.

use firelight_core::{ConfigError, Importance, Pass, SequenceInput, importance_of};
use firelight_data::right_padded;
use firelight_generation::check_prompt;
use firelight_storage::{InputError, TaskError};

use crate::text_generator::TextGenerator;

/// The most tokens that are read together, unless one window has more.
const TOGETHER: usize = 4096;

/// What of a text a model is calibrated on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrationOptions {
    /// How many tokens are read at most, from the beginning of the text, in whole windows. Default: 32,768.
    pub tokens: usize,
    /// Tokens of a window, which is read by itself; never more than the context of the model, or than are read. Default: 512.
    pub window: usize,
}

impl Default for CalibrationOptions {
    fn default() -> Self {
        Self { tokens: 32_768, window: 512 }
    }
}

impl TextGenerator {
    /// How much the error of each weight counts on a text: the mean square of what the weight is multiplied by while the model reads the text.
    /// [`quantize_by`](Self::quantize_by) rounds by it. An expert that no token was sent to has none, and neither have weights whose
    /// inputs are not vectors, as those of an embedding that is looked up alone.
    ///
    /// Every window begins with the tokens that the tokenizer of a published model puts in front.
    ///
    /// # Errors
    /// If the text has fewer tokens than a window, or a character that the tokenizer does not know, windows have no room for a token of the
    /// text, or a weight is multiplied by numbers that are not finite; the weight is named.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_core::BlockFormat;
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    /// use firelight_language::{BlockMix, CalibrationOptions, LanguageModelConfig, TextGenerator};
    ///
    /// let text = "The fox met a hen. ".repeat(40);
    /// let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &text)?;
    /// let config = LanguageModelConfig::new(tokenizer.vocab_size(), 64, 4, 2).with_max_seq_len(16);
    /// let generator = TextGenerator::new(config.init(&Device::flex()), tokenizer);
    /// let importance = generator.importance(&text, &CalibrationOptions::default())?;
    /// assert_eq!(importance["transformer.blocks.0.feed_forward.up.weight"].len(), 64); // One for each input.
    /// let small = generator.quantize_by(&BlockMix::new(BlockFormat::Q4_0), &importance);
    /// assert_eq!(small.model().embedding.weight.format(), Some(BlockFormat::Q4_0));
    /// # Ok::<(), firelight_storage::TaskError>(())
    /// ```
    pub fn importance(&self, text: &str, options: &CalibrationOptions) -> Result<Importance, TaskError> {
        let windows = self.calibration_windows(text, options)?;
        let together = TOGETHER / windows[0].len();
        let read = || windows.chunks(together.max(1)).for_each(|windows| self.read_windows(windows));
        let ((), importance) = importance_of(self.model(), read).map_err(not_finite)?;
        Ok(importance)
    }

    /// The first windows of a text, all of one length: one at least.
    fn calibration_windows(&self, text: &str, options: &CalibrationOptions) -> Result<Vec<Vec<u32>>, TaskError> {
        let (front, context) = (self.front(), self.model().max_seq_len());
        let length = options.window.min(options.tokens).min(context);
        if length <= front.len() {
            return Err(no_room(length, front.len()).into());
        }
        let (ids, own) = (self.tokenizer().encode(text)?, length - front.len());
        if ids.len() < own {
            return Err(too_short(ids.len(), own).into());
        }
        let windows = ids.chunks_exact(own).take(options.tokens / length);
        let windows: Vec<Vec<u32>> = windows.map(|own| [&front[..], own].concat()).collect();
        check_prompt(&windows, length, self.model().vocab_size())?;
        Ok(windows)
    }

    fn read_windows(&self, windows: &[Vec<u32>]) {
        let model = self.model();
        let (inputs, _) = right_padded(windows, &model.embedding.weight.device()); // [B, T]
        let hidden = model.hidden(inputs, &SequenceInput::default(), &mut Pass::default()); // [B, T, D]
        drop(model.lazy_logits(hidden)); // What comes into the head is known; no logit has to be formed.
    }
}

fn no_room(length: usize, front: usize) -> InputError {
    let problem =
        format!("calibration: a window of {length} tokens has no room for the text: expected at least {}", front + 1);
    InputError::new(problem).advise("read more tokens, in larger windows")
}

fn too_short(found: usize, needed: usize) -> InputError {
    let plural = if found == 1 { "" } else { "s" };
    let problem =
        format!("the text to calibrate on has {found} token{plural}: expected at least {needed}, those of one window");
    InputError::new(problem).advise("give a longer text, or read fewer tokens of it")
}

/// Names the first weight: all behind it have such inputs, too.
fn not_finite(error: ConfigError) -> InputError {
    let problem = error.problems().first().map_or("", String::as_str);
    InputError::new(format!("the model cannot be calibrated: {problem}"))
        .advise("its weights are damaged, or its training diverged: take another checkpoint")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LanguageModel, LanguageModelConfig};
    use burn::module::{Module, ModuleMapper, Param};
    use burn::tensor::{Device, Tensor};
    use firelight_core::{
        BlockFormat, Init, ParamBuilder, WeightEntry, WeightInit, dequantize, quantize, quantize_by, weights_of,
    };
    use firelight_data::{Tokenizer, TokenizerConfig};
    use firelight_kernels::assert_close;

    const CONTEXT: usize = 12;

    fn generator(change: impl FnOnce(LanguageModel) -> LanguageModel) -> TextGenerator {
        let wide = WeightInit { weight: Init::Normal { std: 0.2 }, scale_residual: false };
        let config = LanguageModelConfig::new(9, 64, 4, 2).with_max_seq_len(CONTEXT).with_tied(false);
        let config = config.with_transformer(|stack| stack.with_init(wide));
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        TextGenerator::new(change(config.init_with(&ParamBuilder::new(&Device::flex(), 0))), tokenizer)
    }

    fn text() -> String {
        "abc heg gfa bed cab ".repeat(9)
    }

    /// What comes out of the stack for windows of 12 tokens each, `[B, T, D]`.
    fn hidden(generator: &TextGenerator, windows: usize) -> Tensor<3> {
        let ids = generator.tokenizer().encode(&text()).unwrap();
        let rows: Vec<&[u32]> = ids.chunks_exact(CONTEXT).take(windows).collect();
        let tokens = right_padded(&rows, &Device::flex()).0;
        generator.model().hidden(tokens, &SequenceInput::default(), &mut Pass::default())
    }

    #[test]
    fn the_head_has_the_mean_squares_of_what_the_stack_gives() {
        let generator = generator(|model| model);
        // Of 180 tokens there are 15 windows of 12; of 40 at most, there are 3.
        for (tokens, windows) in [(32_768, 15), (40, 3)] {
            let found = generator.importance(&text(), &CalibrationOptions { tokens, window: 512 }).unwrap();
            let [batch, length, width] = hidden(&generator, windows).dims();
            let rows = hidden(&generator, windows).reshape([batch * length, width]);
            let expected = (rows.clone() * rows).mean_dim(0).try_into_vec_as::<f32>().unwrap();
            assert_close(&found["head.weight"], &expected, 1e-4);
            // All weights but the table that is looked up.
            let paths = weights_of(generator.model()).into_iter().map(|weight| weight.path);
            let expected: Vec<String> = paths.filter(|path| path != "embedding.weight").collect();
            assert!(expected.len() > 4 && expected.iter().all(|path| found.contains_key(path)), "{expected:?}");
            assert_eq!(found.len(), expected.len());
        }
        let twice = [(); 2].map(|()| generator.importance(&text(), &CalibrationOptions::default()).unwrap());
        assert_eq!(twice[0], twice[1]);
    }

    /// Makes two of the columns that the head reads outweigh all others.
    struct Plant;

    impl ModuleMapper for Plant {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|slopes| {
                let (shape, device) = (slopes.dims(), slopes.device());
                let factors: Vec<f32> = (0..shape[0]).map(|i| if i % 32 == 7 { 40.0 } else { 1.0 }).collect();
                let factors: Tensor<D> = Tensor::<1>::from_floats(factors.as_slice(), &device).reshape(shape);
                slopes * factors
            })
        }
    }

    #[test]
    fn a_calibrated_model_answers_the_text_with_a_smaller_error() {
        let generator = generator(|mut model| {
            model.transformer.norm = Module::map(model.transformer.norm, &mut Plant);
            model
        });
        let importance = generator.importance(&text(), &CalibrationOptions::default()).unwrap();
        let logits = |model: &LanguageModel| model.logits(hidden(&generator, 15)).try_into_vec_as::<f32>().unwrap();
        let expected = logits(generator.model());
        let loss = |model: LanguageModel| -> f64 {
            let found = logits(&dequantize(model));
            found.iter().zip(&expected).map(|(found, expected)| f64::from(found - expected).powi(2)).sum()
        };
        for format in [BlockFormat::Q4_0, BlockFormat::Q8_0] {
            // Of the head alone: behind other layers errors meet a nonlinear network.
            let choose = |weight: &WeightEntry| (weight.path == "head.weight").then_some(format);
            let plain = loss(quantize(generator.model().clone(), choose));
            let calibrated = loss(quantize_by(generator.model().clone(), &importance, choose));
            assert!(calibrated < 0.7 * plain, "{format}: {calibrated} {plain}");
        }
    }

    #[test]
    fn tokens_in_front_begin_every_window() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefg").unwrap();
        let tokenizer = tokenizer.with_special_tokens(&["<s>", "</s>"]).unwrap().with_frame(7, 8).unwrap().0;
        let published = TextGenerator::new(generator(|model| model).model().clone(), tokenizer)
            .with_defaults(serde_json::from_str("{}").unwrap());
        let options = CalibrationOptions { tokens: 9, window: 4 };
        let windows = published.calibration_windows("abcdefgabc", &options).unwrap();
        let own = published.tokenizer().encode("abcdef").unwrap();
        assert_eq!(windows, [[7, own[0], own[1], own[2]], [7, own[3], own[4], own[5]]]);
        let error = published.importance("abc", &CalibrationOptions { tokens: 1, window: 4 }).unwrap_err();
        let expected = "calibration: a window of 1 tokens has no room for the text: expected at least 2; read more tokens, in larger \
                        windows";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn what_cannot_be_calibrated_on_is_refused() {
        let refused = |generator: &TextGenerator, text: &str, tokens| {
            let error = generator.importance(text, &CalibrationOptions { tokens, window: 512 }).unwrap_err();
            assert!(error.is_user_error(), "{error}");
            error.to_string()
        };
        let whole = generator(|model| model);
        let advice = "those of one window; give a longer text, or read fewer tokens of it";
        for (text, found) in [("", "0 tokens"), ("a", "1 token"), ("abcdefgh ab", "11 tokens")] {
            let expected = format!("the text to calibrate on has {found}: expected at least 12, {advice}");
            assert_eq!(refused(&whole, text, 100), expected);
        }
        assert!(refused(&whole, "abc", 0).contains("no room for the text: expected at least 1"));
        assert!(refused(&whole, &"z".repeat(12), 100).starts_with("the character 'z' at position 0"));
        let damaged = generator(|mut model| {
            let up = &mut model.embedding.weight;
            *up = up.clone().map(|matrix| matrix * f32::NAN);
            model
        });
        let error = refused(&damaged, &text(), 100);
        assert!(error.starts_with("the model cannot be calibrated: `transformer.blocks.0."), "{error}");
        assert!(error.contains("` is multiplied by numbers that are not finite; its weights are damaged"), "{error}");
    }
}
