//! How many tokens of the targets a model predicts.

use burn::data::dataloader::DataLoader;
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use firelight_kernels::awake;
use firelight_training::TrainingError;

use crate::data::PairBatch;
use crate::model::Seq2SeqModel;

/// The share of the targets' tokens, their ends included, that are the likeliest ones to the model after the true ones before
/// them.
///
/// # Errors
/// Fails if a batch cannot be loaded or the device cannot compute.
pub(super) fn token_accuracy(model: &Seq2SeqModel, loader: &dyn DataLoader<PairBatch>) -> Result<f64, TrainingError> {
    let device = model.devices().into_iter().next().unwrap_or_default();
    let (mut right, mut all) = (0, 0);
    for batch in loader.to_device(&device).iter() {
        let batch = batch.map_err(|cause| TrainingError::Data { part: "validation", cause })?;
        let model = model.clone(); // A module may not be shared between threads.
        let counts = awake(&device, move || counts(&model, batch));
        let counts = counts.try_into_vec_as::<i64>();
        let counts = counts.map_err(|cause| TrainingError::Device { quantity: "token accuracy", cause })?;
        (right, all) = (right + counts[0], all + counts[1]);
    }
    Ok(right as f64 / all as f64)
}

/// How many tokens are predicted, and how many there are, `[2]`.
fn counts(model: &Seq2SeqModel, batch: PairBatch) -> Tensor<1, Int> {
    let found = model.forward(batch.source, batch.source_padding, batch.inputs).argmax(2).squeeze_dim::<2>(2);
    let is_right = found.equal(batch.targets);
    let is_token = batch.padding.map_or_else(|| is_right.clone().equal(is_right.clone()), |padding| padding.bool_not());
    Tensor::cat([is_right.bool_and(is_token.clone()), is_token].map(|flags| flags.int().sum()).into(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::PairBatcher;
    use crate::model::Seq2SeqConfig;
    use burn::data::dataloader::batcher::Batcher;
    use burn::tensor::Device;
    use firelight_core::ParamBuilder;
    use firelight_data::EncodedPair;

    #[test]
    fn tokens_are_counted_by_hand() {
        let device = Device::default();
        let model = Seq2SeqConfig::new(9, 8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        let pairs = [(vec![1, 2, 3], vec![4]), (vec![5], vec![6, 4, 2])];
        let pairs = pairs.map(|(source, target)| EncodedPair { source, target });
        let batch: PairBatch = PairBatcher::new(7, 8, 8).batch(pairs.to_vec(), &device);
        // The first row is two tokens and two of padding, the second is full.
        let likeliest =
            model.forward(batch.source.clone(), batch.source_padding.clone(), batch.inputs.clone()).argmax(2);
        let likeliest = likeliest.try_into_vec_as::<i64>().unwrap();
        let expect = |likeliest: &[i64]| {
            let pairs = [(0, 4), (1, 8), (4, 6), (5, 4), (6, 2), (7, 8)];
            pairs.iter().filter(|(place, token)| likeliest[*place] == *token).count() as i64
        };
        assert_eq!(counts(&model, batch.clone()).try_into_vec_as::<i64>().unwrap(), [expect(&likeliest), 6]);
        // Where the targets are what the model says, all are right, with padding and without.
        let targets =
            Tensor::from_data([&likeliest[..4], &likeliest[4..]].map(|row| [0, 1, 2, 3].map(|t| row[t])), &device);
        let said = PairBatch { targets, ..batch };
        assert_eq!(counts(&model, said.clone()).try_into_vec_as::<i64>().unwrap(), [6, 6]);
        assert_eq!(counts(&model, PairBatch { padding: None, ..said }).try_into_vec_as::<i64>().unwrap(), [8, 8]);
    }
}
