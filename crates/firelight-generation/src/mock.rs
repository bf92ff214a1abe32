//! Models without weights for the tests of the loops: in [`Successor`] the token after `t` is most probably `t + 1`, in
//! [`Pairs`] a table tells what comes after any two tokens.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::processors::softmax;
use crate::prompt::empty_prompt;
use crate::{Autoregressive, DecodeState, GenerationError};

pub(crate) struct Successor {
    vocab_size: usize,
    sound_steps: usize,
    steps: AtomicUsize,
    awake: AtomicUsize,
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
        Self { vocab_size, sound_steps: usize::MAX, steps: AtomicUsize::new(0), awake: AtomicUsize::new(0) }
    }

    /// Gives NaN after this many sound logits, those of the prompt included.
    pub(crate) fn broken_after(mut self, sound_steps: usize) -> Self {
        self.sound_steps = sound_steps;
        self
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps.load(Relaxed)
    }

    /// How often it was asked by a thread of the pool, where the threads are kept awake.
    pub(crate) fn awake(&self) -> usize {
        self.awake.load(Relaxed)
    }

    /// `[B]` ids to `[B, V]` logits: minus the distance on the circle of ids to the successor.
    fn logits(&self, last: Vec<u32>) -> Tensor<2> {
        let vocab_size = self.vocab_size;
        let sound = self.steps() < self.sound_steps;
        self.awake.fetch_add(usize::from(rayon::current_thread_index().is_some()), Relaxed);
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

/// The last two tokens of every row.
#[derive(Debug)]
pub(crate) struct LastTwo {
    rows: Vec<[u32; 2]>,
    len: usize,
}

impl DecodeState for LastTwo {
    fn len(&self) -> usize {
        self.len
    }

    fn select_rows(&mut self, rows: &[usize]) {
        self.rows = rows.iter().map(|&row| self.rows[row]).collect();
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

    fn logits(&self, state: &LastTwo) -> Tensor<2> {
        self.rows_read.lock().unwrap().push(state.rows.len());
        let values: Vec<f32> = state.rows.iter().flat_map(|&row| self.row(row)).copied().collect();
        Tensor::from_data(TensorData::new(values, [state.rows.len(), self.vocab_size]), &Device::default())
    }
}

/// Prompts have two tokens.
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
        let rows = prompt.into_iter().map(|row| row.try_into().map_err(|_| empty_prompt()));
        let state = LastTwo { rows: rows.collect::<Result<_, _>>()?, len: 2 };
        Ok((self.logits(&state), state))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut LastTwo) -> Tensor<2> {
        let tokens = token.try_into_vec_as::<u32>().unwrap();
        state.rows = state.rows.iter().zip(tokens).map(|(row, token)| [row[1], token]).collect();
        state.len += 1;
        self.logits(state)
    }
}
