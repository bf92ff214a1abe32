//! How trained models read texts: those of similar length together, each answer in the place of its text.

use burn::tensor::{Device, Element, Tensor};
use firelight_data::{Batching, longest_first};
use firelight_storage::TaskError;

use crate::data::{EncodedText, input_of};
use crate::encoder::TextInput;

/// The largest share of a batch that may be padding.
const MOST_PADDING: f64 = 0.08;

/// What `answer` makes of texts, in their order. It gets them batch by batch, with the places of a batch's texts among all.
pub(crate) fn read_texts<'a, A: Clone + Default>(
    texts: impl IntoIterator<Item = &'a EncodedText>,
    device: &Device,
    mut answer: impl FnMut(&TextInput, &[usize]) -> Result<Vec<A>, TaskError>,
) -> Result<Vec<A>, TaskError> {
    let texts: Vec<&EncodedText> = texts.into_iter().collect();
    let mut found = vec![A::default(); texts.len()];
    let lengths = texts.iter().map(|text| text.ids.len());
    for batch in longest_first(lengths, Batching::TOKENS_TO_READ, usize::MAX, MOST_PADDING) {
        let rows: Vec<&EncodedText> = batch.iter().map(|&place| texts[place]).collect();
        let answers = answer(&input_of(&rows, device), &batch)?;
        batch.into_iter().zip(answers).for_each(|(place, answer)| found[place] = answer);
    }
    Ok(found)
}

/// The rows of `tensor`, which are called `quantity` where the device fails.
pub(crate) fn rows<E: Element>(tensor: Tensor<2>, quantity: &'static str) -> Result<Vec<Vec<E>>, TaskError> {
    let width = tensor.dims()[1];
    let values: Vec<E> = tensor.try_into_vec_as().map_err(TaskError::device(quantity))?;
    Ok(values.chunks(width).map(<[E]>::to_vec).collect())
}
