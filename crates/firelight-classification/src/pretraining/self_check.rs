//! What the model of a pre-training must be able to do before it is worth training.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Tensor};
use firelight_core::Pass;
use firelight_storage::TaskError;
use firelight_training::{Check, Run, Task};

use super::MaskedLanguage;
use super::examples::{Examples, PretrainingBatcher};
use crate::data::EncodedText;
use crate::encoder::TextInput;
use crate::objectives::{PretrainingConfig, PretrainingModel, PretrainingObjective};
use crate::records::{EXAMPLES, checks, first_row};

/// As those of records, on a batch of the validation's examples.
pub(super) fn self_check(run: &Run<MaskedLanguage>) -> Result<Vec<Check>, TaskError> {
    let (recipe, config, corpus) = (&run.recipe, run.config(), &run.corpus);
    let quiet = PretrainingConfig { encoder: config.encoder.quiet(), ..config.clone() };
    let model = MaskedLanguage::model(&quiet, recipe.seed, run.device());
    let some = |examples: Examples| (0..EXAMPLES.min(examples.units.len())).map(move |index| examples.fixed(index));
    let examples: Vec<_> = some(corpus.validation(recipe)).map(Some).collect();
    let batch = |device: &Device| PretrainingBatcher.batch(examples.clone(), device);
    let texts: Vec<EncodedText> = some(corpus.training(recipe)).map(|example| example.into_text()).collect();
    let choices = match config.objective {
        PretrainingObjective::Replaced(_) => 2, // of every token: replaced, or the text's own
        _ => config.encoder.vocab_size,
    };
    checks(model, (texts.iter().collect(), first_answer), batch, (Some(choices), recipe.seed))
}

fn first_answer(model: &PretrainingModel, texts: &TextInput, tokens: usize) -> Tensor<1> {
    first_row(model.forward(texts, &mut Pass::default()), tokens)
}
