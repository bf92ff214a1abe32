//! A search against its equation, computed on the host, and a row in company against the row alone.

use burn::tensor::TensorData;
use proptest::prelude::*;

use super::*;
use crate::StopReason;
use crate::mock::{LastTwo, Pairs};

/// The hidden state of a token.
fn vector(id: u32) -> [f32; 3] {
    [(id as f32).sin(), (id as f32).cos(), 0.5]
}

fn vectors(ids: impl IntoIterator<Item = u32>) -> Vec<f32> {
    ids.into_iter().flat_map(vector).collect()
}

/// What stands before a shorter row is no number, and so would be each text that looks at it.
impl HiddenStates for Pairs {
    fn prefill_hidden(&self, prompt: Vec<Vec<u32>>) -> Result<(Tensor<2>, Tensor<3>, LastTwo), GenerationError> {
        let length = prompt.iter().map(Vec::len).max().unwrap_or(0);
        let padded = |row: &Vec<u32>| [vec![f32::NAN; 3 * (length - row.len())], vectors(row.clone())].concat();
        let hidden: Vec<f32> = prompt.iter().flat_map(padded).collect();
        let hidden = Tensor::from_data(TensorData::new(hidden, [prompt.len(), length, 3]), &self.device());
        let (logits, state) = self.prefill(prompt)?;
        Ok((logits, hidden, state))
    }

    fn step_hidden(&self, token: Tensor<1, Int>, state: &mut LastTwo) -> (Tensor<2>, Tensor<2>) {
        let ids = token.clone().try_into_vec_as::<u32>().unwrap();
        let hidden = TensorData::new(vectors(ids.clone()), [ids.len(), 3]);
        (self.step(token, state), Tensor::from_data(hidden, &self.device()))
    }
}

fn cosine(a: u32, b: u32) -> f64 {
    let [a, b] = [a, b].map(|id| vector(id).map(f64::from));
    let dot = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// What a search of `count` tokens writes, by its equation; none where two tokens are so nearly as good that rounding decides.
fn expected(model: &Pairs, prompt: &[u32], count: usize, (top_k, alpha): (usize, f64)) -> Option<Vec<u32>> {
    let mut ids = prompt.to_vec();
    for _ in 0..count {
        let (before, last) = (ids[ids.len() - 2], ids[ids.len() - 1]);
        let probability = |id: u32| model.log_probability(before, last, id).exp();
        let mut ranked: Vec<u32> = (0..model.vocab_size() as u32).collect();
        ranked.sort_by(|&a, &b| probability(b).total_cmp(&probability(a)));
        let likeness = |id: u32| ids.iter().map(|&other| cosine(id, other)).fold(f64::MIN, f64::max);
        let score = |id: u32| (1.0 - alpha) * probability(id) - alpha * likeness(id);
        ranked.truncate(top_k);
        ranked.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
        if ranked.len() > 1 && score(ranked[0]) - score(ranked[1]) < 1e-5 {
            return None;
        }
        ids.push(ranked[0]);
    }
    Some(ids.split_off(prompt.len()))
}

/// A random table for `vocab_size` ids.
fn tables(vocab_size: usize) -> impl Strategy<Value = Pairs> {
    let count = vocab_size * vocab_size * vocab_size;
    proptest::collection::vec(-3.0f32..3.0, count).prop_map(move |table| Pairs::new(vocab_size, table))
}

/// Prompts of two tokens and more.
fn prompts() -> impl Strategy<Value = Vec<Vec<u32>>> {
    proptest::collection::vec(proptest::collection::vec(0u32..6, 2..6), 1..5)
}

#[test]
fn candidates_of_all_rows_are_read_together_and_ended_rows_leave() {
    // Row 0 comes to the stop token at once, row 1 never.
    let model = Pairs::from_probabilities(3, |_, last| if last == 0 { [0.01, 0.01, 0.98] } else { [0.4, 0.6, 1e-9] });
    let options = ContrastiveOptions::new(3).with_contrast(2, 0.0).with_stop_tokens([2]);
    let found = contrastive_search(&model, vec![vec![0, 0], vec![1, 1]], &options).unwrap();
    assert!(found[0].ids.is_empty() && found[0].stop_reason == StopReason::StopToken(2), "{:?}", found[0]);
    assert_eq!((&found[1].ids[..], found[1].stop_reason), (&[1, 1, 1][..], StopReason::MaxNewTokens));
    assert_eq!(model.rows_read(), [2, 4, 2, 2]);
}

#[test]
fn an_error_names_its_row_and_keeps_what_all_have_written() {
    // With each token once, row 1 comes to its end after one token and row 0 after two.
    let model = Pairs::from_probabilities(3, |_, _| [0.5, 0.3, 0.2]);
    let once = Processing { no_repeat_ngram_size: 1, ..Processing::default() };
    let options = ContrastiveOptions::new(5).with_contrast(1, 0.0).with_processing(once);
    let error = contrastive_search(&model, vec![vec![2, 2], vec![1, 2]], &options).unwrap_err();
    let GenerationError::Unfinished { texts, cause } = error else { panic!("both rows have a token") };
    assert!(matches!(*cause, GenerationError::NothingLeft { step: 1, row: 1 }), "{cause}");
    let ids: Vec<Vec<u32>> = texts.iter().map(|text| text.ids.clone()).collect();
    assert_eq!(ids, [[0], [0]]);
    assert!(texts.iter().all(|text| text.stop_reason == StopReason::Failed));
}

proptest! {
    #[test]
    fn each_token_is_the_one_of_the_equation(
        model in tables(6), prompt in proptest::collection::vec(0u32..6, 2..6), top_k in 1usize..7, alpha in 0.0f64..0.95,
    ) {
        let expected = expected(&model, &prompt, 6, (top_k, alpha));
        prop_assume!(expected.is_some());
        let options = ContrastiveOptions::new(6).with_contrast(top_k, alpha).with_logprobs(2);
        let found = contrastive_search(&model, vec![prompt.clone()], &options).unwrap().remove(0);
        prop_assert_eq!(Some(&found.ids), expected.as_ref());
        let text = [&prompt[prompt.len() - 2..], &found.ids[..]].concat();
        prop_assert_eq!(found.scores.len(), 6);
        for (score, three) in found.scores.iter().zip(text.windows(3)) {
            let expected = model.log_probability(three[0], three[1], three[2]);
            prop_assert_eq!((score.id, score.top.len()), (three[2], 2));
            prop_assert!((score.log_probability - expected).abs() < 1e-6, "{:?} {}", score, expected);
        }
    }

    #[test]
    fn a_row_is_searched_in_company_as_it_is_alone(
        model in tables(6), prompts in prompts(), top_k in 1usize..4, alpha in 0.0f64..1.0, ngram in 2usize..5,
    ) {
        let processing = Processing { no_repeat_ngram_size: ngram, repetition_penalty: 1.3, ..Processing::default() };
        let common = ContrastiveOptions::new(6).with_contrast(top_k, alpha).with_stop_tokens([5]);
        let common = common.with_processing(processing);
        // Each row has a limit and a number of candidates of its own.
        let own = |row: usize| ContrastiveOptions { max_new_tokens: 3 + row, top_k: top_k + row, ..common.clone() };
        let each: Vec<ContrastiveOptions> = (0..prompts.len()).map(own).collect();
        let same = contrastive_search(&model, prompts.clone(), &common).unwrap();
        let together = contrastive_search_rows(&model, prompts.clone(), &each).unwrap();
        prop_assert_eq!((same.len(), together.len()), (prompts.len(), prompts.len()));
        for (row, prompt) in prompts.into_iter().enumerate() {
            let alone = |options: &ContrastiveOptions| contrastive_search(&model, vec![prompt.clone()], options).unwrap().remove(0);
            prop_assert_eq!(&same[row], &alone(&common));
            prop_assert_eq!(&together[row], &alone(&each[row]));
        }
    }
}
