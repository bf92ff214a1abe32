//! What a text costs a language model, beside the mean loss of its tokens: the same at the evaluations of a training and of a finished
//! model.

use std::f64::consts::LN_2;
use std::mem;

use firelight_data::Tokenizer;
use firelight_training::{Communicator, Score, SharedEvaluator, TrainingError, ValidOutput};

use super::LmText;
use super::corpus::SourceTokens;
use crate::training::LmTask;

/// Perplexity, and bits per character, which do not depend on the tokenizer.
pub(super) struct TextScores {
    /// The sum of the losses in nats, and the number of tokens.
    sums: [f64; 2],
    characters: Characters,
}

/// The characters of a text, counted when they are first asked for: a large one is decoded for it.
enum Characters {
    Of(Box<LmText>),
    Counted(usize),
}

impl TextScores {
    /// Of what `text` is validated on.
    pub(super) fn of(text: &LmText) -> Self {
        Self { sums: [0.0; 2], characters: Characters::Of(Box::new(text.clone())) }
    }

    /// At least one, so that a text of special tokens alone has a score.
    fn characters(&mut self) -> usize {
        let count: usize = match &self.characters {
            Characters::Counted(count) => *count,
            Characters::Of(text) => text.parts[1].parts().map(|part| characters(&text.tokenizer, part)).sum(),
        };
        self.characters = Characters::Counted(count);
        count.max(1)
    }
}

impl SharedEvaluator<LmTask> for TextScores {
    fn scores(&self) -> Vec<Score> {
        ["perplexity", "bits_per_character"].map(Score::lower).to_vec()
    }

    /// The sums of the batch.
    fn batch_statistics(&self, output: &ValidOutput<()>) -> Result<Vec<Vec<f64>>, TrainingError> {
        let (nats, tokens) = output.losses.read().map_err(TrainingError::device("perplexity"))?;
        Ok(vec![vec![nats, tokens]])
    }

    fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
        self.sums.iter_mut().zip(statistics.into_iter().flatten()).for_each(|(sum, more)| *sum += more);
        Ok(())
    }

    fn finish(&mut self, _task: &LmTask, _ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
        let [nats, tokens] = mem::take(&mut self.sums);
        let bits = nats / LN_2;
        // A loss that is still a number has a perplexity that is one.
        Ok(vec![(nats / tokens).exp().min(f64::MAX), bits / self.characters() as f64])
    }
}

/// The characters that are predicted: all but those of the first token.
fn characters(tokenizer: &Tokenizer, part: &SourceTokens) -> usize {
    let ids: Vec<u32> = part.tokens().iter().skip(1).collect();
    tokenizer.decode(&ids).chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LanguageModelConfig;
    use burn::tensor::{Device, Tensor};
    use firelight_core::{LossConfig, ParamBuilder};
    use firelight_training::{Alone, Evaluator, LossOutput, Shared};

    fn output(nats: f32, tokens: f32) -> ValidOutput<()> {
        let number = |value| Tensor::from_floats([value], &Device::default());
        LossOutput::new(number(nats), number(tokens)).into()
    }

    fn task() -> LmTask {
        let model = LanguageModelConfig::new(5, 8, 2, 1).init_with(&ParamBuilder::new(&Device::default(), 0));
        LmTask::new(model, LossConfig::default())
    }

    #[test]
    fn scores_are_of_the_sums_of_all_batches_and_begin_anew() {
        let mut scores = Shared(TextScores { sums: [0.0; 2], characters: Characters::Counted(8) });
        for _ in 0..2 {
            // 12 bits of 4 tokens and 8 characters: 3 bits a token.
            for (bits, tokens) in [(2.0, 1.0), (10.0, 3.0)] {
                let output = output(bits * std::f32::consts::LN_2, tokens);
                Evaluator::<LmTask>::observe(&mut scores, &output).unwrap();
            }
            let found = Evaluator::<LmTask>::finish(&mut scores, &task()).unwrap();
            assert!((found[0] - 8.0).abs() < 1e-5 && (found[1] - 1.5).abs() < 1e-6, "{found:?}");
        }
    }

    #[test]
    fn a_loss_beyond_all_exponents_has_a_perplexity_that_is_a_number() {
        let mut scores = TextScores { sums: [800.0, 1.0], characters: Characters::Counted(0) };
        let found = scores.finish(&task(), &Alone).unwrap();
        assert!(found[0] == f64::MAX && (found[1] - 800.0 / LN_2).abs() < 1e-9, "{found:?}");
    }
}
