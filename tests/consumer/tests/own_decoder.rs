//! A recurrent network of the user's own, without a layer of Firelight's, decoded by the same code as every model.

use std::ops::ControlFlow;

use burn::module::Module;
use burn::nn::gru::{Gru, GruConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor};
use firelight_generation::{
    Autoregressive, BeamOptions, DecodeState, Generated, GenerationError, GenerationOptions, History, LogitsProcessor,
    Processing, beam_search, generate, row_indices,
};

const VOCABULARY: usize = 13;

/// Ids in, logits of the next one out.
#[derive(Module, Debug)]
struct Recurrent {
    embedding: Embedding,
    gru: Gru,
    head: Linear,
}

/// What it remembers of every row: one vector, `[B, D]`, and how many tokens it has read.
struct Memory(Tensor<2>, usize);

impl DecodeState for Memory {
    fn len(&self) -> usize {
        self.1
    }

    fn select_rows(&mut self, rows: &[usize]) {
        self.0 = self.0.clone().select(0, row_indices(rows, &self.0.device()));
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

    /// Reads `[B, T]` ids behind what is remembered: the logits of the next id, large enough to differ, and what is remembered then.
    fn read(&self, ids: Tensor<2, Int>, memory: Option<Tensor<2>>) -> (Tensor<2>, Tensor<2>) {
        let [_, length] = ids.dims();
        let hidden = self.gru.forward(self.embedding.forward(ids), memory);
        let last = hidden.narrow(1, length - 1, 1).squeeze_dim::<2>(1);
        (self.head.forward(last.clone()) * 10.0, last)
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
        let (logits, memory) = self.read(row_indices(&ids, &self.device()).reshape([rows, length]), None);
        Ok((logits, Memory(memory, length)))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Memory) -> Tensor<2> {
        let (logits, memory) = self.read(token.unsqueeze_dim(1), Some(state.0.clone()));
        *state = Memory(memory, state.1 + 1);
        logits
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
    let model = Recurrent::new(&Device::flex());
    let found = continued(&model, prompts(), &GenerationOptions::new(8).greedy());
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
    let model = Recurrent::new(&Device::flex());
    let processing = Processing { no_repeat_ngram_size: 2, repetition_penalty: 1.1, ..Processing::default() };
    let options = GenerationOptions::new(12).greedy().with_stop_tokens([4]).with_processing(processing);
    let together = continued(&model, prompts(), &options.clone().with_processor(NoMultiples(5)));
    for (prompt, row) in prompts().into_iter().zip(&together) {
        assert_eq!(&continued(&model, vec![prompt], &options.clone().with_processor(NoMultiples(5)))[0], row);
        assert!(row.ids.iter().all(|id| id % 5 != 0), "{row:?}");
    }
    assert_ne!(together, continued(&model, prompts(), &options));
}

#[test]
fn one_beam_is_greedy_choice_and_more_find_more() {
    let model = Recurrent::new(&Device::flex());
    let search = |beams| {
        let options = BeamOptions::new(6).with_beams(beams).with_processor(NoMultiples(4));
        beam_search(&model, prompts(), &options).unwrap()
    };
    let greedy = continued(&model, prompts(), &GenerationOptions::new(6).greedy().with_processor(NoMultiples(4)));
    let (one, five) = (search(1), search(5));
    for ((greedy, one), five) in greedy.iter().zip(&one).zip(&five) {
        assert_eq!(greedy.ids, one[0].ids);
        assert!(five[0].score >= one[0].score - 1e-6 && five[0].ids.iter().all(|id| id % 4 != 0), "{five:?}");
    }
}
