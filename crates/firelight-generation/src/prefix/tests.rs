//! Prompts that begin alike against the same prompts read whole.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::{Device, Int};
use proptest::prelude::*;

use super::*;
use crate::mock::{LastTwo, Pairs};

/// A model that counts the tokens of prompts that it reads.
struct Counting {
    model: Pairs,
    tokens: AtomicUsize,
}

impl Counting {
    fn new(table: Vec<f32>) -> Self {
        Self { model: Pairs::new(6, table), tokens: AtomicUsize::new(0) }
    }

    fn read(&self) -> usize {
        self.tokens.swap(0, Relaxed)
    }
}

impl Autoregressive for Counting {
    type Prompt = Vec<Vec<u32>>;
    type State = LastTwo;

    fn device(&self) -> Device {
        self.model.device()
    }

    fn history(&self, prompt: &Self::Prompt) -> Vec<Vec<u32>> {
        prompt.clone()
    }

    fn prefill(&self, prompt: Self::Prompt) -> Result<(Tensor<2>, LastTwo), GenerationError> {
        self.tokens.fetch_add(prompt.iter().map(Vec::len).sum(), Relaxed);
        self.model.prefill(prompt)
    }

    fn prefill_rest(&self, prompt: Self::Prompt, state: LastTwo) -> Result<(Tensor<2>, LastTwo), GenerationError> {
        self.tokens.fetch_add(prompt[0].len() - state.len(), Relaxed);
        self.model.prefill_rest(prompt, state)
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut LastTwo) -> Tensor<2> {
        self.model.step(token, state)
    }
}

/// The tokens of each row.
fn written(stream: TokenStream<'_, Counting>) -> Vec<Vec<u32>> {
    let mut rows = vec![Vec::new(); stream.batch_size()];
    for step in stream {
        rows.iter_mut().zip(step.unwrap()).for_each(|(row, id)| row.extend(id));
    }
    rows
}

#[test]
fn prompts_share_what_they_begin_with_but_for_a_last_token() {
    let shared = |prompts: &[&[u32]]| super::shared(&prompts.iter().map(|ids| ids.to_vec()).collect::<Vec<_>>());
    assert_eq!(shared(&[&[1, 2, 3], &[1, 2, 4, 5]]), 2);
    assert_eq!(shared(&[&[1, 2, 3], &[1, 2, 3], &[1, 2, 3, 4]]), 2);
    assert_eq!(shared(&[&[1, 2], &[2, 2]]), 0);
    assert_eq!(shared(&[&[1], &[1, 2]]), 0);
    assert_eq!(shared(&[]), 0);
}

proptest! {
    #[test]
    fn a_beginning_that_is_read_once_changes_no_text(
        table in proptest::collection::vec(-3.0f32..3.0, 216), begun in proptest::collection::vec(0u32..6, 2..6),
        rests in proptest::collection::vec(proptest::collection::vec(0u32..6, 1..4), 2..5), seed in any::<u64>(),
    ) {
        let model = Counting::new(table);
        let prompts: Vec<Vec<u32>> = rests.iter().map(|rest| [&begun[..], rest].concat()).collect();
        let own = |row: usize| GenerationOptions::new(3 + row).with_temperature(1.0).with_seed(seed).with_stop_tokens([5]);
        let options: Vec<GenerationOptions> = (0..prompts.len()).map(own).collect();
        let whole = written(TokenStream::of_rows(&model, prompts.clone(), &options).unwrap());
        let all = model.read();
        prop_assert_eq!(written(TokenStream::of_rows_sharing(&model, prompts.clone(), &options).unwrap()), whole);
        prop_assert_eq!(model.read(), all - super::shared(&prompts) * (prompts.len() - 1));
    }
}
