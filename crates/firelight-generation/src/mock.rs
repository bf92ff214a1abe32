//! Models without weights for the tests of the loops: in [`Successor`] the token after `t` is most probably `t + 1`, in
//! [`Pairs`] a table tells what comes after any two tokens.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::distribution::softmax;
use crate::prompt::empty_prompt;
use crate::{Autoregressive, DecodeState, GenerationError, JoinState};

pub(crate) struct Successor {
    vocab_size: usize,
    sound_steps: usize,
    steps: AtomicUsize,
}

pub(crate) struct Position(usize);

impl DecodeState for Position {
    fn len(&self) -> usize {
        self.0
    }

    fn select_rows(&mut self, _rows: &[usize]) {}
}

impl Successor {
    pub(crate) fn new(vocab_size: usize) -> Self {
        Self { vocab_size, sound_steps: usize::MAX, steps: AtomicUsize::new(0) }
    }

    /// Gives NaN after this many sound logits, those of the prompt included.
    pub(crate) fn broken_after(mut self, sound_steps: usize) -> Self {
        self.sound_steps = sound_steps;
        self
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps.load(Relaxed)
    }

    /// `[B]` ids to `[B, V]` logits: minus the distance on the circle of ids to the successor.
    fn logits(&self, last: Vec<u32>) -> Tensor<2> {
        let vocab_size = self.vocab_size;
        let sound = self.steps() < self.sound_steps;
        let row = |id: u32| {
            let distance = move |other: usize| (other + vocab_size - id as usize - 1) % vocab_size;
            (0..vocab_size).map(move |other| if sound { -(distance(other) as f32) } else { f32::NAN })
        };
        let shape = [last.len(), vocab_size];
        let values: Vec<f32> = last.into_iter().flat_map(row).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::default())
    }
}

impl Autoregressive for Successor {
    type Prompt = Vec<Vec<u32>>;
    type State = Position;

    /// Not where its logits are: threads are kept awake for flex alone.
    fn device(&self) -> Device {
        Device::flex()
    }

    fn prefill(&self, prompt: Self::Prompt) -> Result<(Tensor<2>, Position), GenerationError> {
        let len = prompt.iter().map(Vec::len).max().unwrap_or(0);
        let last: Option<Vec<u32>> = prompt.iter().map(|row| row.last().copied()).collect();
        Ok((self.logits(last.ok_or_else(empty_prompt)?), Position(len)))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Position) -> Tensor<2> {
        state.0 += 1;
        self.steps.fetch_add(1, Relaxed);
        self.logits(token.try_into_vec_as::<u32>().unwrap())
    }
}

/// The logits are a table's entry for the last two tokens, `[V, V, V]`.
#[derive(Debug)]
pub(crate) struct Pairs {
    vocab_size: usize,
    table: Vec<f32>,
    rows_read: Mutex<Vec<usize>>,
}

/// The tokens of every row.
#[derive(Clone, Debug)]
pub(crate) struct LastTwo {
    rows: Vec<Vec<u32>>,
    len: usize,
}

impl DecodeState for LastTwo {
    fn len(&self) -> usize {
        self.len
    }

    fn select_rows(&mut self, rows: &[usize]) {
        self.rows = rows.iter().map(|&row| self.rows[row].clone()).collect();
    }

    fn can_truncate(&self, len: usize) -> bool {
        len >= 2
    }

    fn truncate(&mut self, len: usize) {
        let forgotten = self.len.saturating_sub(len);
        self.rows.iter_mut().for_each(|row| row.truncate(row.len() - forgotten));
        self.len -= forgotten;
    }
}

impl JoinState for LastTwo {
    fn join(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.len = self.len.max(other.len);
    }
}

impl Pairs {
    pub(crate) fn new(vocab_size: usize, table: Vec<f32>) -> Self {
        Self { vocab_size, table, rows_read: Mutex::default() }
    }

    /// The distribution after the token before the last and the last.
    pub(crate) fn from_probabilities<const V: usize>(vocab_size: usize, next: impl Fn(u32, u32) -> [f64; V]) -> Self {
        let ids = 0..vocab_size as u32;
        let rows = ids.clone().flat_map(|before| ids.clone().map(move |last| (before, last)));
        let table = rows.flat_map(|(before, last)| next(before, last)).map(|p| p.ln() as f32).collect();
        Self::new(vocab_size, table)
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// How many rows each call read, the prompt's first.
    pub(crate) fn rows_read(&self) -> Vec<usize> {
        self.rows_read.lock().unwrap().clone()
    }

    /// `ln p` of `next` after two tokens.
    pub(crate) fn log_probability(&self, before: u32, last: u32, next: u32) -> f64 {
        let row: Vec<f64> = self.row([before, last]).iter().map(|&logit| f64::from(logit)).collect();
        softmax(&row)[next as usize].ln()
    }

    fn row(&self, [before, last]: [u32; 2]) -> &[f32] {
        let start = (before as usize * self.vocab_size + last as usize) * self.vocab_size;
        &self.table[start..start + self.vocab_size]
    }

    /// Reads tokens of every row, `[B, T]`: the logits after each, `[B, T, V]`.
    fn read(&self, tokens: &[Vec<u32>], state: &mut LastTwo) -> Tensor<3> {
        self.rows_read.lock().unwrap().push(tokens.len());
        let (rows, length) = (tokens.len(), tokens[0].len());
        state.len += length;
        let mut values: Vec<f32> = Vec::new();
        for (row, tokens) in state.rows.iter_mut().zip(tokens) {
            for &token in tokens {
                row.push(token);
                values.extend(self.row([row[row.len() - 2], token]));
            }
        }
        Tensor::from_data(TensorData::new(values, [rows, length, self.vocab_size]), &Device::default())
    }
}

/// Prompts have two tokens or more.
impl Autoregressive for Pairs {
    type Prompt = Vec<Vec<u32>>;
    type State = LastTwo;

    fn device(&self) -> Device {
        Device::default()
    }

    fn history(&self, prompt: &Self::Prompt) -> Vec<Vec<u32>> {
        prompt.clone()
    }

    fn prefill(&self, prompt: Self::Prompt) -> Result<(Tensor<2>, LastTwo), GenerationError> {
        if prompt.iter().any(|row| row.len() < 2) {
            return Err(empty_prompt().into());
        }
        let len = prompt.iter().map(Vec::len).max().unwrap_or(0);
        let (last, rows): (Vec<_>, _) = prompt.into_iter().map(|mut row| (row.split_off(row.len() - 1), row)).unzip();
        let mut state = LastTwo { rows, len: len - 1 };
        let logits = self.read(&last, &mut state);
        Ok((logits.squeeze_dim(1), state))
    }

    fn prefill_rest(&self, prompt: Self::Prompt, mut state: LastTwo) -> Result<(Tensor<2>, LastTwo), GenerationError> {
        let rest = vec![prompt[0][state.len..].to_vec()];
        let logits = self.read(&rest, &mut state);
        let last = rest[0].len() - 1;
        Ok((logits.narrow(1, last, 1).squeeze_dim(1), state))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut LastTwo) -> Tensor<2> {
        self.extend(token.unsqueeze_dim(1), state).squeeze_dim(1)
    }

    fn extend(&self, tokens: Tensor<2, Int>, state: &mut LastTwo) -> Tensor<3> {
        let [_, length] = tokens.dims();
        let tokens = tokens.try_into_vec_as::<u32>().unwrap();
        self.read(&tokens.chunks(length).map(<[u32]>::to_vec).collect::<Vec<_>>(), state)
    }

    fn room(&self, _state: &LastTwo) -> usize {
        usize::MAX
    }
}

/// The statistic of the draws of `found` against the probabilities: below 20.5 in 999 of 1,000 cases for five degrees of freedom.
pub(crate) fn chi_squared(found: &[u32], expected: &[f64]) -> f64 {
    let total = found.len() as f64;
    let cell = |(id, p): (usize, &f64)| {
        let count = found.iter().filter(|&&found| found as usize == id).count() as f64;
        (count - total * p).powi(2) / (total * p)
    };
    expected.iter().enumerate().map(cell).sum()
}
