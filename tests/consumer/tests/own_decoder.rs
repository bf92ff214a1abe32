//! A recurrent network of the user's own, without a layer of Firelight's, decoded by the same code as every model.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::Module;
use burn::nn::gru::{Gru, GruConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor};
use firelight_generation::{
    Autoregressive, BeamOptions, DecodeState, Drafter, Generated, GenerationError, GenerationOptions, History,
    LogitsProcessor, Processing, PromptLookup, TokenStream, beam_search, extend_by_steps, generate, row_indices,
};
use firelight_kernels::assert_close;

const VOCABULARY: usize = 13;

/// Ids in, logits of the next one out.
#[derive(Module, Debug)]
struct Recurrent {
    embedding: Embedding,
    gru: Gru,
    head: Linear,
}

/// How many of the last vectors are kept: one token fewer can be taken back.
const KEPT: usize = 8;

/// What it remembers of every row: the vectors behind its last tokens, `[B, K, D]` for at most [`KEPT`] of them, and how many tokens it has read.
#[derive(Clone)]
struct Memory {
    vectors: Tensor<3>,
    read: usize,
}

impl Memory {
    /// The vector behind the last token, `[B, D]`, from which the network goes on.
    fn last(&self) -> Tensor<2> {
        self.vectors.clone().narrow(1, self.kept() - 1, 1).squeeze_dim(1)
    }

    fn kept(&self) -> usize {
        self.vectors.dims()[1]
    }

    /// Adds the vectors behind the next tokens, `[B, T, D]`.
    fn extend(&mut self, vectors: Tensor<3>) {
        self.read += vectors.dims()[1];
        let all = Tensor::cat(vec![self.vectors.clone(), vectors], 1);
        let held = all.dims()[1];
        let kept = held.min(KEPT);
        self.vectors = all.narrow(1, held - kept, kept);
    }
}

impl DecodeState for Memory {
    fn len(&self) -> usize {
        self.read
    }

    fn select_rows(&mut self, rows: &[usize]) {
        self.vectors = self.vectors.clone().select(0, row_indices(rows, &self.vectors.device()));
    }

    /// One vector is left at least.
    fn can_truncate(&self, len: usize) -> bool {
        len >= self.read || self.read - len < self.kept()
    }

    fn truncate(&mut self, len: usize) {
        assert!(self.can_truncate(len), "{} tokens were read: there is no way back to {len}", self.read);
        let forgotten = self.read.saturating_sub(len);
        self.vectors = self.vectors.clone().narrow(1, 0, self.kept() - forgotten);
        self.read -= forgotten;
    }
}

impl Recurrent {
    fn new(device: &Device) -> Self {
        device.seed(3);
        Self {
            embedding: EmbeddingConfig::new(VOCABULARY, 16).init(device),
            gru: GruConfig::new(16, 16, true).init(device),
            head: LinearConfig::new(16, VOCABULARY).init(device),
        }
    }

    /// Reads `[B, T]` ids behind what is remembered: the vectors behind each of them, `[B, T, D]`.
    fn read(&self, ids: Tensor<2, Int>, memory: Option<Tensor<2>>) -> Tensor<3> {
        self.gru.forward(self.embedding.forward(ids), memory)
    }

    /// The logits of the id behind each vector, large enough to differ: `[B, T, V]`.
    fn logits(&self, vectors: Tensor<3>) -> Tensor<3> {
        self.head.forward(vectors) * 10.0
    }
}

/// A prompt is rows of one length.
impl Autoregressive for Recurrent {
    type Prompt = Vec<Vec<u32>>;
    type State = Memory;

    fn device(&self) -> Device {
        self.head.weight.device()
    }

    fn history(&self, prompt: &Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        prompt.clone()
    }

    fn prefill(&self, prompt: Vec<Vec<u32>>) -> Result<(Tensor<2>, Memory), GenerationError> {
        let (rows, length) = (prompt.len(), prompt[0].len());
        let ids: Vec<usize> = prompt.concat().into_iter().map(|id| id as usize).collect();
        let vectors = self.read(row_indices(&ids, &self.device()).reshape([rows, length]), None);
        let logits = self.logits(vectors.clone().narrow(1, length - 1, 1)).squeeze_dim(1);
        let kept = length.min(KEPT);
        Ok((logits, Memory { vectors: vectors.narrow(1, length - kept, kept), read: length }))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Memory) -> Tensor<2> {
        self.extend(token.unsqueeze_dim(1), state).squeeze_dim(1)
    }

    /// All tokens at once.
    fn extend(&self, tokens: Tensor<2, Int>, state: &mut Memory) -> Tensor<3> {
        let vectors = self.read(tokens, Some(state.last()));
        state.extend(vectors.clone());
        self.logits(vectors)
    }

    /// The vector in front of them is kept, too.
    fn room(&self, _: &Memory) -> usize {
        KEPT - 1
    }
}

/// No multiple of a number is written.
#[derive(Clone, Debug)]
struct NoMultiples(usize);

impl LogitsProcessor for NoMultiples {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        logits.iter_mut().step_by(self.0).for_each(|logit| *logit = f64::NEG_INFINITY);
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

fn prompts() -> Vec<Vec<u32>> {
    vec![vec![1, 2, 3], vec![7, 7, 7], vec![12, 0, 5]]
}

fn continued(model: &Recurrent, prompt: Vec<Vec<u32>>, options: &GenerationOptions) -> Vec<Generated> {
    generate(model, prompt, options, |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn greedy_choice_is_the_best_of_the_whole_text_read_again() {
    let model = Recurrent::new(&Device::default());
    let found = continued(&model, prompts(), &GenerationOptions::new(8).greedy());
    assert_eq!(found.len(), prompts().len());
    for (mut text, found) in prompts().into_iter().zip(found) {
        for id in found.ids {
            let (logits, _) = model.prefill(vec![text.clone()]).unwrap();
            assert_eq!(logits.argmax(1).into_scalar::<u32>(), id);
            text.push(id);
        }
        assert_eq!(text.len(), 11);
    }
}

#[test]
fn rows_are_written_in_company_as_alone_and_end_by_themselves() {
    let model = Recurrent::new(&Device::default());
    let processing = Processing { no_repeat_ngram_size: 2, repetition_penalty: 1.1, ..Processing::default() };
    let options = GenerationOptions::new(12).greedy().with_stop_tokens([4]).with_processing(processing);
    let together = continued(&model, prompts(), &options.clone().with_processor(NoMultiples(5)));
    assert_eq!(together.len(), prompts().len());
    for (prompt, row) in prompts().into_iter().zip(&together) {
        assert_eq!(&continued(&model, vec![prompt], &options.clone().with_processor(NoMultiples(5)))[0], row);
        assert!(row.ids.iter().all(|id| id % 5 != 0), "{row:?}");
    }
    assert_ne!(together, continued(&model, prompts(), &options));
}

#[test]
fn one_beam_is_greedy_choice_and_more_find_more() {
    let model = Recurrent::new(&Device::default());
    let search = |beams| {
        let options = BeamOptions::new(6).with_beams(beams).with_processor(NoMultiples(4));
        beam_search(&model, prompts(), &options).unwrap()
    };
    let greedy = continued(&model, prompts(), &GenerationOptions::new(6).greedy().with_processor(NoMultiples(4)));
    let (one, five) = (search(1), search(5));
    assert_eq!([greedy.len(), one.len(), five.len()], [prompts().len(); 3]);
    for ((greedy, one), five) in greedy.iter().zip(&one).zip(&five) {
        assert_eq!(greedy.ids, one[0].ids);
        assert!(five[0].score >= one[0].score - 1e-6 && five[0].ids.iter().all(|id| id % 4 != 0), "{five:?}");
    }
}

#[test]
fn tokens_that_are_taken_back_leave_no_trace() {
    let model = Recurrent::new(&Device::default());
    for prompt in [prompts(), vec![(0..12).collect()]] {
        let rows = prompt.len();
        let (_, mut state) = model.prefill(prompt).unwrap();
        let (mut untouched, read) = (state.clone(), state.len());
        let ids = [3, 9, 1, 4, 4, 0, 2].repeat(rows);
        let tokens: Tensor<2, Int> = row_indices(&ids, &model.device()).reshape([rows, 7]);
        let found = model.extend(tokens.clone(), &mut state);
        assert_close(&found, &extend_by_steps(&model, tokens.clone(), &mut untouched.clone()), 1e-5);
        assert!(state.can_truncate(read) && !state.can_truncate(read - 1));
        state.truncate(read);
        let again = [&mut state, &mut untouched].map(|state| model.extend(tokens.clone(), state));
        assert_close(&again[0], &again[1], 0.0);
    }
}

/// Looks up what came after the last tokens before, and counts what it found.
struct Counted(PromptLookup, Arc<AtomicUsize>);

impl Drafter for Counted {
    fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
        let found = self.0.guess(history, most)?;
        self.1.fetch_add(found.len(), Ordering::Relaxed);
        Ok(found)
    }
}

#[test]
fn guesses_change_no_text() {
    let model = Recurrent::new(&Device::default());
    for options in [GenerationOptions::new(40).greedy(), GenerationOptions::new(40).with_temperature(2.0).with_seed(5)]
    {
        for prompt in prompts() {
            let found = Arc::new(AtomicUsize::new(0));
            let tokens = TokenStream::new(&model, vec![prompt.clone()], &options).unwrap();
            let tokens = tokens.with_drafter(Counted(PromptLookup::default(), found.clone()));
            let ids: Vec<u32> = tokens.filter_map(|step| step.unwrap()[0]).collect();
            assert_eq!(ids, continued(&model, vec![prompt], &options)[0].ids);
            assert!(found.load(Ordering::Relaxed) > 0, "nothing was guessed for {ids:?}");
        }
    }
}
