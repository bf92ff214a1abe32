//! The loop of a contrastive search: the candidates of all rows are read together.

use burn::tensor::Tensor;

use super::{ContrastiveOptions, HiddenStates};
use crate::distribution::{by_rank, softmax};
use crate::processors::{History, Left, Processors};
use crate::sampler::host;
use crate::{
    Autoregressive, DecodeState, Generated, GeneratedText, GenerationError, StopReason, TokenScore, row_indices,
};

/// A contrastive search after some tokens.
pub(super) struct Contrast<'m, 'o, M: Autoregressive> {
    model: &'m M,
    state: M::State,
    rows: Vec<Row<'o>>,
    /// The rows that the state holds, in its order.
    held: Vec<usize>,
}

/// One row of a search.
struct Row<'o> {
    options: &'o ContrastiveOptions,
    /// The logits after the last token, `[V]`.
    logits: Vec<f32>,
    /// The hidden states of the tokens so far, scaled to length 1: `[T, D]`.
    text: Tensor<2>,
    ids: Vec<u32>,
    prompt: usize,
    /// Those of the new ids, if they are asked for.
    scores: Vec<TokenScore>,
    processors: Processors,
    /// What the processors leave of the logits.
    left: Left<Vec<f64>>,
    /// Why it ended, once it has.
    stop_reason: Option<StopReason>,
}

/// The candidates of a row that goes on.
struct Branch {
    row: usize,
    /// The row of the state that they continue.
    parent: usize,
    /// Tokens with their probabilities, best first.
    candidates: Vec<(u32, f64)>,
}

impl<'m, 'o, M: HiddenStates> Contrast<'m, 'o, M> {
    /// Reads the prompt; `options` are those of a row.
    pub(super) fn new(
        model: &'m M,
        prompt: M::Prompt,
        options: impl Fn(usize) -> &'o ContrastiveOptions,
    ) -> Result<Self, GenerationError> {
        let mut histories = model.history(&prompt);
        let (logits, hidden, state) = model.prefill_hidden(prompt)?;
        let [rows, vocab_size] = logits.dims();
        histories.resize(rows, Vec::new());
        let logits = host(logits)?;
        let each = histories.into_iter().zip(logits.chunks_exact(vocab_size)).enumerate();
        let row = |(row, (ids, logits)): (usize, (Vec<u32>, &[f32]))| {
            Row::new(options(row), ids, logits, hidden.clone().narrow(0, row, 1).squeeze_dim(0))
        };
        Ok(Self { model, state, rows: each.map(row).collect(), held: (0..rows).collect() })
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Goes on until every row has ended.
    pub(super) fn write(mut self) -> Result<Vec<Generated>, GenerationError> {
        loop {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return Ok(self.rows.into_iter().map(Row::into_generated).collect()),
                Err(error) => {
                    let written = self.rows.into_iter().map(Row::into_written);
                    return Err(error.after(written.map(GeneratedText::without_text).collect()));
                }
            }
        }
    }

    /// Gives every row that goes on its next token; false if none does.
    fn advance(&mut self) -> Result<bool, GenerationError> {
        let branches = self.branches()?;
        if branches.is_empty() {
            return Ok(false);
        }
        let parents = branches.iter().flat_map(|branch| vec![branch.parent; branch.candidates.len()]);
        select(&mut self.state, self.held.len(), &parents.collect::<Vec<_>>());
        let tokens = branches.iter().flat_map(|branch| &branch.candidates).map(|&(id, _)| id as usize);
        let tokens = row_indices(&tokens.collect::<Vec<_>>(), &self.model.device());
        let (logits, hidden) = self.model.step_hidden(tokens, &mut self.state);
        self.take_best(&branches, logits, unit(hidden))?;
        Ok(true)
    }

    /// The candidates of the rows that go on.
    fn branches(&mut self) -> Result<Vec<Branch>, GenerationError> {
        let mut branches = Vec::new();
        for (parent, &row) in self.held.iter().enumerate() {
            let candidates = self.rows[row].next_candidates().map_err(|error| error.of_row(|_| row))?;
            if !candidates.is_empty() {
                branches.push(Branch { row, parent, candidates });
            }
        }
        Ok(branches)
    }

    /// Goes on with the best candidate of each row: `logits` `[N, V]` and `hidden` `[N, D]`, of length 1, are those of all candidates.
    fn take_best(&mut self, branches: &[Branch], logits: Tensor<2>, hidden: Tensor<2>) -> Result<(), GenerationError> {
        let (mut first, mut likeness) = (0, Vec::new());
        for Branch { row, candidates, .. } in branches {
            let own = hidden.clone().narrow(0, first, candidates.len());
            likeness.push(own.matmul(self.rows[*row].text.clone().transpose()).max_dim(1)); // [k, 1]
            first += candidates.len();
        }
        let likeness = host(Tensor::cat(likeness, 0))?;
        let (mut first, mut kept) = (0, Vec::new());
        self.held.clear();
        for Branch { row, candidates, .. } in branches {
            let best = self.rows[*row].best(candidates, &likeness[first..first + candidates.len()]);
            if self.rows[*row].accept(candidates[best].0) {
                self.held.push(*row);
                kept.push(first + best);
            }
            first += candidates.len();
        }
        self.follow(first, &kept, logits, hidden)
    }

    /// Keeps some of `read` candidates, one for each row that is held.
    fn follow(
        &mut self,
        read: usize,
        kept: &[usize],
        logits: Tensor<2>,
        hidden: Tensor<2>,
    ) -> Result<(), GenerationError> {
        if kept.is_empty() {
            return Ok(());
        }
        select(&mut self.state, read, kept);
        let vocab_size = logits.dims()[1];
        let logits = host(logits.clone().select(0, row_indices(kept, &logits.device())))?;
        for ((&row, &place), logits) in self.held.iter().zip(kept).zip(logits.chunks_exact(vocab_size)) {
            self.rows[row].read(logits, hidden.clone().narrow(0, place, 1));
        }
        Ok(())
    }
}

impl<'o> Row<'o> {
    /// A row behind its prompt, whose hidden states are the last of `hidden`, `[T, D]`.
    fn new(options: &'o ContrastiveOptions, ids: Vec<u32>, logits: &[f32], hidden: Tensor<2>) -> Self {
        let length = hidden.dims()[0];
        let own = if ids.is_empty() { length } else { ids.len().min(length) };
        Self {
            options,
            logits: logits.to_vec(),
            text: unit(hidden.narrow(0, length - own, own)),
            prompt: ids.len(),
            ids,
            scores: Vec::new(),
            processors: options.processing.processors(options.max_new_tokens, &options.stop_tokens),
            left: Left::default(),
            stop_reason: None,
        }
    }

    /// The candidates for the next token; none if the row ends instead.
    fn next_candidates(&mut self) -> Result<Vec<(u32, f64)>, GenerationError> {
        self.stop_reason = self.end();
        if self.stop_reason.is_some() {
            return Ok(Vec::new());
        }
        let candidates = self.candidates()?;
        if candidates.is_empty() {
            self.stop_reason = self.end().or(Some(StopReason::Complete));
        }
        Ok(candidates)
    }

    /// Why it ends before another token is chosen, if it does.
    fn end(&self) -> Option<StopReason> {
        let full = (self.step() >= self.options.max_new_tokens).then_some(StopReason::MaxNewTokens);
        self.processors.is_complete().then_some(StopReason::Complete).or(full)
    }

    /// The number of the next token.
    fn step(&self) -> usize {
        self.ids.len() - self.prompt
    }

    /// The `top_k` most probable tokens with their probabilities, best first. None if the text is complete.
    fn candidates(&mut self) -> Result<Vec<(u32, f64)>, GenerationError> {
        let place @ (step, row) = (self.step(), 0);
        let history = History::new(&self.ids, self.prompt);
        self.processors.process_row(&history, &self.logits, &mut self.left, place)?;
        let Self { left, processors, options, .. } = self;
        let probabilities = softmax(left.logits());
        let mut places: Vec<usize> = (0..probabilities.len()).filter(|&place| probabilities[place] > 0.0).collect();
        places.sort_unstable_by(by_rank(&probabilities));
        let ranked = places.into_iter().map(|place| (left.id(place), probabilities[place]));
        let found = admitted(processors, ranked, options.top_k);
        if !found.is_empty() {
            return Ok(found);
        }
        Ok(processors.forced(step, row)?.map(|id| (id, 1.0)).into_iter().collect())
    }

    /// The place of the best candidate, where `likeness` is the greatest one to a token of the text.
    fn best(&self, candidates: &[(u32, f64)], likeness: &[f32]) -> usize {
        let alpha = self.options.penalty_alpha;
        let score = |place: usize| (1.0 - alpha) * candidates[place].1 - alpha * f64::from(likeness[place]);
        (1..candidates.len()).fold(0, |best, place| if score(place) > score(best) { place } else { best })
    }

    /// Adds a token, unless the row ends with it: then false.
    fn accept(&mut self, id: u32) -> bool {
        if self.options.stop_tokens.contains(&id) {
            self.stop_reason = Some(StopReason::StopToken(id));
            return false;
        }
        self.ids.push(id);
        self.scores.extend(self.options.logprobs.map(|top| TokenScore::of(&self.logits, id, top)));
        self.processors.accept(id);
        true
    }

    /// Takes what the model made of the last token: the logits after it, and its hidden state of length 1, `[1, D]`.
    fn read(&mut self, logits: &[f32], hidden: Tensor<2>) {
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        self.text = Tensor::cat(vec![self.text.clone(), hidden], 0);
    }

    /// What was written before an error: a text that has not ended is completed.
    fn into_written(mut self) -> Generated {
        if self.stop_reason.is_none() {
            let closing = self.processors.closing(&self.ids[self.prompt..]);
            self.ids.extend(closing);
        }
        self.into_generated()
    }

    /// What was written. A row that has not ended was ended by an error.
    fn into_generated(mut self) -> Generated {
        let stop_reason = self.stop_reason.unwrap_or(StopReason::Failed);
        Generated { ids: self.ids.split_off(self.prompt), scores: self.scores, stop_reason }
    }
}

/// Keeps rows of a state of `held` rows. A selection of all rows in their order would copy the whole cache for nothing.
fn select(state: &mut impl DecodeState, held: usize, rows: &[usize]) {
    if !rows.iter().copied().eq(0..held) {
        state.select_rows(rows);
    }
}

/// The first `top_k` of ranked tokens that processors admit; fewer, if so many are refused that the rest is not asked for.
fn admitted(processors: &mut Processors, ranked: impl Iterator<Item = (u32, f64)>, top_k: usize) -> Vec<(u32, f64)> {
    let (mut found, mut refused) = (Vec::new(), 0);
    for (id, probability) in ranked {
        if found.len() == top_k || processors.gives_up(refused) {
            break;
        }
        match processors.admits(id) {
            true => found.push((id, probability)),
            false => refused += 1,
        }
    }
    found
}

/// Scales vectors `[T, D]` to length 1.
fn unit(vectors: Tensor<2>) -> Tensor<2> {
    let length = vectors.clone().powi_scalar(2).sum_dim(1).sqrt();
    vectors / length
}
