//! The decoding interface of [`Seq2SeqModel`]: the source is read once, targets are written token by token, cached and not, in
//! one way of computing.

use burn::tensor::{Device, Int, Tensor};
use firelight_core::{
    Cache, EncoderOutput, KeyValues, LmHead, Pass, SequenceInput, TokenEmbedding, Trace, Transformer,
};
use firelight_generation::{Autoregressive, DecodeState, GenerationError, check_prompt, extend_by_steps, row_indices};

use crate::data::right_padded;
use crate::model::Seq2SeqModel;

/// What a model remembers between two tokens: the sources, and of the targets so far either their keys and values or, without
/// a cache, their tokens.
#[derive(Debug, Clone)]
pub struct Seq2SeqState {
    encoder_output: EncoderOutput,
    /// The source of every row.
    sources: Vec<usize>,
    cache: Option<Cache>,
    written: Tensor<2, Int>,
    /// The length of the text that its keys were turned in.
    turned: usize,
}

impl DecodeState for Seq2SeqState {
    fn len(&self) -> usize {
        self.written.dims()[1]
    }

    /// What was read of a source moves only where rows become those of another one: when a row ends, or branches. Beams change
    /// places with others of their source at nearly every step.
    fn select_rows(&mut self, rows: &[usize]) {
        let sources: Vec<usize> = rows.iter().map(|&row| self.sources[row]).collect();
        let keeps_sources = sources == self.sources;
        self.sources = sources;
        let rows = row_indices(rows, &self.written.device());
        self.written = self.written.clone().select(0, rows.clone());
        match (&mut self.cache, keeps_sources) {
            (Some(cache), true) => cache.select_tokens(&rows),
            (Some(cache), false) => cache.select_rows(&rows),
            (None, _) => {}
        }
        if !keeps_sources {
            self.encoder_output = EncoderOutput {
                hidden: self.encoder_output.hidden.clone().select(0, rows.clone()),
                padding: self.encoder_output.padding.take().map(|padding| padding.select(0, rows)),
            };
        }
    }

    /// As far as the cache can go back, but not behind the start token.
    fn can_truncate(&self, len: usize) -> bool {
        let can = |cache: &Cache| cache.can_truncate(len);
        len >= self.len() || (len > 0 && self.cache.as_ref().is_none_or(can))
    }

    fn truncate(&mut self, len: usize) {
        assert!(self.can_truncate(len), "{} tokens were read: the target cannot go back to {len}", self.len());
        if len < self.len() {
            self.written = self.written.clone().narrow(1, 0, len);
            self.cache.iter_mut().for_each(|cache| cache.truncate(len));
        }
    }
}

/// A model that writes a target after what its encoder made of something, whatever that was.
pub(crate) trait TargetDecoder: Sync {
    /// Tokens of the target become vectors.
    fn embedding(&self) -> &TokenEmbedding;

    /// The embedding whose matrix a head without one reads. Default: that of the target.
    fn head_embedding(&self) -> &TokenEmbedding {
        self.embedding()
    }

    /// The stack that writes.
    fn decoder(&self) -> &Transformer;

    /// Vectors become logits.
    fn head(&self) -> &LmHead;

    /// The token that every target begins with.
    fn start_token(&self) -> u32;

    /// The longest target, in tokens, the first one included.
    fn max_len(&self) -> usize;

    /// The vectors behind the logits of the target, `[B, T]` to `[B, T, D]`, or of its next tokens where the pass has a cache.
    fn decode(
        &self,
        target: Tensor<2, Int>,
        source: EncoderOutput,
        input: &SequenceInput,
        pass: &mut Pass,
    ) -> Tensor<3> {
        self.decoder().forward(self.embedding().forward(target), &input.clone().with_encoder_output(source), pass)
    }

    /// The logits of vectors, `[B, T, D]` to `[B, T, V]`.
    fn logits(&self, hidden: Tensor<3>) -> Tensor<3> {
        self.head().lazy(hidden, self.head_embedding()).form()
    }
}

impl Seq2SeqState {
    /// Reads the start token of every target: its logits, `[B, V]`, and the state after it.
    pub(crate) fn begin(
        model: &impl TargetDecoder,
        encoder_output: EncoderOutput,
        cache: Option<Cache>,
    ) -> (Tensor<2>, Self) {
        let rows = encoder_output.hidden.dims()[0];
        let first = Tensor::full([rows, 1], model.start_token() as i64, &encoder_output.hidden.device());
        let sources = (0..rows).collect();
        let mut state = Self { encoder_output, sources, cache, written: first.clone(), turned: 1 };
        (state.next_logits(model, first).squeeze_dim(1), state)
    }

    /// Reads the next tokens of every target, `[B, T]`: the logits after each of them, `[B, T, V]`.
    pub(crate) fn read(&mut self, model: &impl TargetDecoder, tokens: Tensor<2, Int>) -> Tensor<3> {
        self.written = Tensor::cat(vec![self.written.clone(), tokens.clone()], 1);
        self.next_logits(model, tokens)
    }

    /// How many tokens can be read at once and be taken back.
    pub(crate) fn room(&self, model: &impl TargetDecoder) -> usize {
        let len = self.len();
        let room = KeyValues::SPARE.min(model.max_len().saturating_sub(len));
        // Every cache can go back to nothing; only one of two tokens tells whether it can go back to a part.
        let goes_back = self.cache.as_ref().is_none_or(|cache| len > 1 && cache.can_truncate(len - 1));
        if goes_back && self.goes_on(model, room) { room } else { 0 }
    }

    /// Whether the keys that are held are right behind the next tokens, however many of `count` are read.
    fn goes_on(&self, model: &impl TargetDecoder, count: usize) -> bool {
        let len = self.len();
        [len + 1, len + count].into_iter().all(|len| model.decoder().cache_stays_valid(self.turned, len))
    }

    /// Logits after the last tokens, `[B, T, V]`, the one way in which they are computed. `unread`, `[B, T]`, is what the cache does not
    /// hold yet; a text that outgrows its rotary frequencies is read anew.
    fn next_logits(&mut self, model: &impl TargetDecoder, unread: Tensor<2, Int>) -> Tensor<3> {
        let ([_, count], len) = (unread.dims(), self.len());
        let continues = model.decoder().cache_stays_valid(self.turned, len);
        self.turned = len;
        if let Some(cache) = self.cache.as_mut().filter(|_| !continues) {
            cache.clear();
        }
        let tokens = if self.cache.is_some() && continues { unread } else { self.written.clone() };
        let first = tokens.dims()[1] - count;
        let mut pass = self.cache.as_mut().map_or_else(Pass::default, Pass::cached);
        let hidden = model.decode(tokens, self.encoder_output.clone(), &SequenceInput::default(), &mut pass);
        model.logits(hidden.narrow(1, first, count))
    }
}

/// [`Autoregressive::step`] of a model that writes targets.
pub(crate) fn step(model: &impl TargetDecoder, token: Tensor<1, Int>, state: &mut Seq2SeqState) -> Tensor<2> {
    state.read(model, token.unsqueeze_dim(1)).squeeze_dim(1)
}

/// [`Autoregressive::extend`] of a model that writes targets: at once, or one by one where rotary frequencies change on the way.
pub(crate) fn extend<M>(model: &M, tokens: Tensor<2, Int>, state: &mut Seq2SeqState) -> Tensor<3>
where
    M: TargetDecoder + Autoregressive<State = Seq2SeqState>,
{
    match state.goes_on(model, tokens.dims()[1]) {
        true => state.read(model, tokens),
        false => extend_by_steps(model, tokens, state),
    }
}

/// The weights with which the tokens `ids`, as they were predicted, looked at what the encoder read of one source: `[T, S]`.
///
/// Source: Garg et al. 2019, Jointly learning to align and translate, §4.1 (<https://arxiv.org/abs/1909.02074>): the mean over the
/// heads of the cross-attention in the last layer but one. Weights are no proof of what a model relies on.
///
/// # Panics
/// If there is no id.
pub(crate) fn cross_attention(model: &impl TargetDecoder, source: EncoderOutput, ids: &[u32]) -> Tensor<2> {
    // What predicts a token is the one before it.
    let read = [&[model.start_token()], &ids[..ids.len() - 1]].concat();
    let (target, _) = right_padded(&[read], &source.hidden.device());
    let mut trace = Trace::default();
    model.decode(target, source, &SequenceInput::default(), &mut Pass::default().with_trace(&mut trace));
    let layer = trace.layers.len().saturating_sub(2);
    let weights = trace.layers.get(layer).and_then(|layer| layer.cross_attention.clone());
    let weights = weights.unwrap_or_else(|| unreachable!("a decoder has cross-attention")); // [1, H, T, S]
    weights.mean_dim(1).squeeze_dims(&[0, 1])
}

impl TargetDecoder for Seq2SeqModel {
    fn embedding(&self) -> &TokenEmbedding {
        &self.embedding
    }

    fn head_embedding(&self) -> &TokenEmbedding {
        self.head_embedding()
    }

    fn decoder(&self) -> &Transformer {
        &self.stacks.decoder
    }

    fn head(&self) -> &LmHead {
        &self.head
    }

    fn start_token(&self) -> u32 {
        self.start_token()
    }

    fn max_len(&self) -> usize {
        self.max_target_len()
    }
}

impl Seq2SeqModel {
    /// Reads the sources, and the start token of every target.
    fn start(
        &self,
        sources: Vec<Vec<u32>>,
        cache: Option<Cache>,
    ) -> Result<(Tensor<2>, Seq2SeqState), GenerationError> {
        check_prompt(&sources, self.max_source_len(), self.source_vocab_size())?;
        let (source, padding) = right_padded(&sources, &self.device());
        let encoder_output = self.encode(source, padding, &mut Pass::default());
        Ok(Seq2SeqState::begin(self, encoder_output, cache))
    }
}

/// Decodes with a cache. A prompt is one row of source ids per text, the end token behind each.
impl Autoregressive for Seq2SeqModel {
    type Prompt = Vec<Vec<u32>>;
    type State = Seq2SeqState;

    fn device(&self) -> Device {
        self.embedding.weight.device()
    }

    fn history(&self, sources: &Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        vec![vec![self.start_token()]; sources.len()]
    }

    fn prefill(&self, sources: Vec<Vec<u32>>) -> Result<(Tensor<2>, Seq2SeqState), GenerationError> {
        self.start(sources, Some(self.cache()))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Seq2SeqState) -> Tensor<2> {
        step(self, token, state)
    }

    fn extend(&self, tokens: Tensor<2, Int>, state: &mut Seq2SeqState) -> Tensor<3> {
        extend(self, tokens, state)
    }

    fn room(&self, state: &Seq2SeqState) -> usize {
        state.room(self)
    }
}

/// Decodes without a cache: every step reads the whole target again. Slow, and the proof that the cache changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct Uncached<'a>(pub &'a Seq2SeqModel);

impl Autoregressive for Uncached<'_> {
    type Prompt = Vec<Vec<u32>>;
    type State = Seq2SeqState;

    fn device(&self) -> Device {
        self.0.device()
    }

    fn history(&self, sources: &Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        self.0.history(sources)
    }

    fn prefill(&self, sources: Vec<Vec<u32>>) -> Result<(Tensor<2>, Seq2SeqState), GenerationError> {
        self.0.start(sources, None)
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Seq2SeqState) -> Tensor<2> {
        self.0.step(token, state)
    }

    fn extend(&self, tokens: Tensor<2, Int>, state: &mut Seq2SeqState) -> Tensor<3> {
        self.0.extend(tokens, state)
    }

    fn room(&self, state: &Seq2SeqState) -> usize {
        self.0.room(state)
    }
}

#[cfg(test)]
mod tests;
