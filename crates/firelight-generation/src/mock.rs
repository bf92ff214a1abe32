//! A model without weights for the tests of the loop: the token after `t` is most probably `t + 1`.

use std::cell::Cell;

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::{Autoregressive, DecodeState, GenerationError};

pub(crate) struct Successor {
    vocab_size: usize,
    sound_steps: usize,
    steps: Cell<usize>,
}

pub(crate) struct Position(usize);

impl DecodeState for Position {
    fn len(&self) -> usize {
        self.0
    }

    fn select_rows(&mut self, _rows: Tensor<1, Int>) {}
}

impl Successor {
    pub(crate) fn new(vocab_size: usize) -> Self {
        Self { vocab_size, sound_steps: usize::MAX, steps: Cell::new(0) }
    }

    /// Gives NaN after this many sound logits, those of the prompt included.
    pub(crate) fn broken_after(mut self, sound_steps: usize) -> Self {
        self.sound_steps = sound_steps;
        self
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps.get()
    }

    /// `[B]` ids to `[B, V]` logits: minus the distance on the circle of ids to the successor.
    fn logits(&self, last: Vec<u32>) -> Tensor<2> {
        let vocab_size = self.vocab_size;
        let sound = self.steps.get() < self.sound_steps;
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

    fn prefill(&self, prompt: Self::Prompt) -> Result<(Tensor<2>, Position), GenerationError> {
        let len = prompt.iter().map(Vec::len).max().unwrap_or(0);
        let last: Option<Vec<u32>> = prompt.iter().map(|row| row.last().copied()).collect();
        Ok((self.logits(last.ok_or(GenerationError::EmptyPrompt)?), Position(len)))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Position) -> Tensor<2> {
        state.0 += 1;
        self.steps.set(self.steps.get() + 1);
        self.logits(token.try_into_vec_as::<u32>().unwrap())
    }
}
