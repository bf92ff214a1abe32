//! Look-ups without a scale, and two words that read each other: examples of many tutorials.

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor};
use firelight_core::AttentionMask;
use firelight_storage::TaskError;

use super::{computed, exchanging};
use crate::explain::{Step, Table};
use crate::text_model::rows;

/// What queries find among keys, by plain dot products: neither projections nor a scale.
fn look_up(
    [title, remark]: [&str; 2],
    [readers, read]: [&[String]; 2],
    [query, key, value]: [Tensor<2>; 3],
) -> Result<Step, TaskError> {
    let scores = query.clone().matmul(key.clone().transpose());
    let weights = softmax(scores.clone(), 1);
    let found = weights.clone().matmul(value.clone());
    let tables = vec![
        Table::vectors("Q", readers, rows(query)?),
        Table::vectors("K", read, rows(key)?),
        Table::vectors("V", read, rows(value)?),
        Table::pairs("Q K^T", [readers, read], rows(scores)?).as_scores(),
        Table::pairs("softmax(Q K^T)", [readers, read], rows(weights)?),
        Table::vectors("weights V", readers, rows(found)?),
    ];
    Ok(Step::new(title, remark, tables))
}

/// One query over four keys.
pub(super) fn soft_look_up(device: &Device) -> Result<Vec<Step>, TaskError> {
    let query = Tensor::from_floats([[0.9, 0.1]], device);
    let keys = Tensor::from_floats([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7], [-1.0, 0.0]], device);
    let values = Tensor::from_floats([[10.0, 20.0], [30.0, 40.0], [15.0, 25.0], [50.0, 60.0]], device);
    let labels = ["key 1", "key 2", "key 3", "key 4"].map(String::from);
    let remark = "A table finds the value of the one key that is asked for. Attention takes of every value as much as its key fits the query: the \
                  weights are a softmax of the dot products.";
    Ok(vec![look_up(["soft look-up", remark], [&["query".to_string()], &labels], [query, keys, values])?])
}

/// Three tokens that are their own queries, keys and values.
pub(super) fn without_weights(device: &Device) -> Result<Vec<Step>, TaskError> {
    let x = || Tensor::<2>::from_floats([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], device);
    let labels = ["x0", "x1", "x2"].map(String::from);
    let remark = "Self-attention without a single weight: three vectors are their own queries, keys and values. Each becomes a mean of all, the \
                  more like another the more of it.";
    Ok(vec![look_up(["self-attention without weights", remark], [&labels, &labels], [x(), x(), x()])?])
}

/// Two words whose scores are equal.
pub(super) fn bank_and_loan(device: &Device) -> Result<Vec<Step>, TaskError> {
    let words = ["bank", "loan"].map(String::from);
    let x = Tensor::<3>::from_floats([[[1.0, 0.5], [0.2, 0.9]]], device);
    let steps = computed(&exchanging(device), x.clone(), AttentionMask::none(), 1.0)?.steps(&words, 0, "")?;
    let of = |step: usize| steps[step].tables[0].clone();
    let mut tables = vec![Table::vectors("x", &words, rows(x)?)];
    tables.extend([of(1), of(2).as_scores(), of(4), of(5)]);
    let remark = "Queries, keys and values by the three matrices of the first example. The scores of \"bank\" with both keys are 1, so that it takes a \
                  half of each value, whatever the scale: its vector now tells which kind of bank is meant.";
    Ok(vec![Step::new("the bank and the loan", remark, tables)])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{near, table};
    use super::*;

    #[test]
    fn a_soft_look_up_is_as_by_hand() {
        let steps = soft_look_up(&Device::default()).unwrap();
        let numbers = |place| table(&steps, "soft look-up", place).values.concat();
        near(&numbers(3), &[0.9, 0.1, 0.7, -0.9], 1e-6);
        // exp: 2.4596, 1.1052, 2.0138 and .4066 of 5.9852.
        near(&numbers(4), &[0.4110, 0.1847, 0.3365, 0.0679], 1e-4);
        near(&numbers(5), &[18.09, 28.09], 1e-2);
    }

    #[test]
    fn self_attention_without_weights_is_as_by_hand() {
        let steps = without_weights(&Device::default()).unwrap();
        let values = |place| table(&steps, "self-attention without weights", place).values.clone();
        near(&values(3)[1], &[0.8, 1.0, 0.6], 1e-6);
        // exp: 2.2255, 2.7183 and 1.8221 of 6.7659.
        near(&values(4)[1], &[0.329, 0.402, 0.269], 5e-4);
        near(&values(5)[1], &[0.6503, 0.5104], 1e-4);
    }

    #[test]
    fn the_bank_takes_a_half_of_both_words() {
        let steps = bank_and_loan(&Device::default()).unwrap();
        let numbers = |place| table(&steps, "the bank and the loan", place).values.concat();
        near(&numbers(1), &[1.0, 1.0, 1.0, 0.36], 1e-6);
        // The scaled scores of the loan differ by .64 / sqrt 2 = .4525: 1 / (1 + exp -.4525).
        near(&numbers(3), &[0.5, 0.5, 0.6112, 0.3888], 1e-4);
        near(&numbers(4), &[1.2, 1.4, 1.3779, 1.3110], 2e-4);
    }
}
