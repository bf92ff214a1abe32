//! Both loops of decoding read a model where the threads are kept awake. A test binary of its own with one test: while another step
//! keeps them awake, a step runs where it is called.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::{Device, Int, Tensor};
use firelight_generation::{
    Autoregressive, BeamOptions, DecodeState, GenerationError, GenerationOptions, beam_search, generate,
};

/// A model that foresees every token alike. It counts how often it was asked, and how often by a thread of the pool.
#[derive(Default)]
struct Counted {
    asked: AtomicUsize,
    awake: AtomicUsize,
}

struct Length(usize);

impl DecodeState for Length {
    fn len(&self) -> usize {
        self.0
    }

    fn select_rows(&mut self, _rows: &[usize]) {}
}

impl Counted {
    fn logits(&self, rows: usize) -> Tensor<2> {
        self.asked.fetch_add(1, Relaxed);
        self.awake.fetch_add(usize::from(rayon::current_thread_index().is_some()), Relaxed);
        Tensor::zeros([rows, 4], &Device::default())
    }

    fn counts(&self) -> [usize; 2] {
        [&self.asked, &self.awake].map(|count| count.load(Relaxed))
    }
}

impl Autoregressive for Counted {
    type Prompt = Vec<Vec<u32>>;
    type State = Length;

    /// Threads are kept awake for flex alone.
    fn device(&self) -> Device {
        Device::flex()
    }

    fn prefill(&self, prompt: Self::Prompt) -> Result<(Tensor<2>, Length), GenerationError> {
        Ok((self.logits(prompt.len()), Length(prompt[0].len())))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Length) -> Tensor<2> {
        state.0 += 1;
        self.logits(token.dims()[0])
    }
}

#[test]
fn both_loops_read_prompt_and_tokens_with_threads_awake() {
    if rayon::current_num_threads() == 1 {
        return; // Nothing is moved.
    }
    let (sampled, searched) = (Counted::default(), Counted::default());
    let options = GenerationOptions::new(3).greedy();
    generate(&sampled, vec![vec![3]], &options, |_| ControlFlow::Continue(())).unwrap();
    beam_search(&searched, vec![vec![3]], &BeamOptions::new(3)).unwrap();
    for model in [sampled, searched] {
        let [asked, awake] = model.counts();
        assert!(asked > 2 && awake == asked, "{awake} of {asked}");
    }
}
