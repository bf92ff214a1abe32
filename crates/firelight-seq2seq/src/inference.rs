//! The decoding interface of [`Seq2SeqModel`]: the source is read once, targets are written token by token, cached and not, in
//! one way of computing.

use burn::tensor::{Device, Int, Tensor};
use firelight_core::{Cache, EncoderOutput, LmHead, Pass, SequenceInput, TokenEmbedding, Trace, Transformer};
use firelight_generation::{Autoregressive, DecodeState, GenerationError, check_prompt, row_indices};

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
}

/// A model that writes a target after what its encoder made of something, whatever that was.
pub(crate) trait TargetDecoder: Sync {
    /// Tokens of the target become vectors.
    fn embedding(&self) -> &TokenEmbedding;

    /// The stack that writes.
    fn decoder(&self) -> &Transformer;

    /// Vectors become logits.
    fn head(&self) -> &LmHead;

    /// The token that every target begins with.
    fn start_token(&self) -> u32;

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
        self.head().lazy(hidden, self.embedding()).form()
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
        let mut state = Self { encoder_output, sources: (0..rows).collect(), cache, written: first.clone() };
        (state.next_logits(model, first), state)
    }

    /// Reads the next token of every target, `[B]`: its logits, `[B, V]`.
    pub(crate) fn read(&mut self, model: &impl TargetDecoder, token: Tensor<1, Int>) -> Tensor<2> {
        let token = token.unsqueeze_dim::<2>(1); // [B, 1]
        self.written = Tensor::cat(vec![self.written.clone(), token.clone()], 1);
        self.next_logits(model, token)
    }

    /// Logits after the last token, `[B, V]`. `unread` is what the cache does not hold yet; a text that outgrows its rotary
    /// frequencies is read anew.
    fn next_logits(&mut self, model: &impl TargetDecoder, unread: Tensor<2, Int>) -> Tensor<2> {
        let Self { encoder_output, cache, written, .. } = self;
        let len = written.dims()[1];
        let continues = model.decoder().continues(len - 1, len);
        if let Some(cache) = cache.as_mut().filter(|_| !continues) {
            cache.clear();
        }
        let tokens = if cache.is_some() && continues { unread } else { written.clone() };
        let last = tokens.dims()[1] - 1;
        let mut pass = cache.as_mut().map_or_else(Pass::default, Pass::cached);
        let hidden = model.decode(tokens, encoder_output.clone(), &SequenceInput::default(), &mut pass);
        model.logits(hidden.narrow(1, last, 1)).squeeze_dim(1)
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

    fn decoder(&self) -> &Transformer {
        &self.stacks.decoder
    }

    fn head(&self) -> &LmHead {
        &self.head
    }

    fn start_token(&self) -> u32 {
        self.start_token()
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
        state.read(self, token)
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
        state.read(self.0, token)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::model::{Seq2SeqConfig, Tying};
    use burn::tensor::Device;
    use firelight_core::{ParamBuilder, PositionConfig, RotaryConfig, RotaryScaling, WeightInit};
    use firelight_generation::{BeamOptions, GenerationOptions, beam_search, generate};
    use firelight_kernels::Difference;
    use proptest::prelude::*;

    const END: u32 = 12;

    fn model(position: PositionConfig) -> Seq2SeqModel {
        let wide = WeightInit { weight: firelight_core::Init::Normal { std: 0.5 }, scale_residual: false };
        let config = Seq2SeqConfig { start_token: 11, ..Seq2SeqConfig::new(13, 16, 2, 2) }.with_tying(Tying::Target);
        let config = config.with_max_seq_len(20).with_both(|stack| {
            let stack = stack.with_init(wide).with_n_kv_heads(1);
            stack.with_position(position.clone())
        });
        config.init_with(&ParamBuilder::new(&Device::default(), 0))
    }

    const SOURCES: [&[u32]; 3] = [&[1, 2, 3, 4, 5, END], &[7, 8, END], &[9, 1, 1, END]];

    fn rows(sources: &[&[u32]]) -> Vec<Vec<u32>> {
        sources.iter().map(|row| row.to_vec()).collect()
    }

    fn greedy<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(model: &M, sources: &[&[u32]]) -> Vec<Vec<u32>> {
        let options = GenerationOptions::new(12).greedy().with_stop_tokens([END]);
        let found = generate(model, rows(sources), &options, |_| ControlFlow::Continue(())).unwrap();
        found.into_iter().map(|row| row.ids).collect()
    }

    fn beams<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(model: &M, sources: &[&[u32]], beams: usize) -> Vec<Vec<u32>> {
        let options = BeamOptions::new(12).with_beams(beams).with_stop_tokens([END]);
        let found = beam_search(model, rows(sources), &options).unwrap();
        found.into_iter().map(|mut row| row.remove(0).ids).collect()
    }

    #[test]
    fn the_cache_changes_no_translation_greedy_or_by_beams() {
        let dynamic = RotaryScaling::Dynamic { factor: 4.0, original_max_seq_len: 3 };
        let dynamic = PositionConfig::Rotary(RotaryConfig::default().with_theta(100.0).with_scaling(dynamic));
        for position in [PositionConfig::Learned, PositionConfig::Sinusoidal, PositionConfig::rotary(), dynamic] {
            let model = model(position.clone());
            assert_eq!(greedy(&model, &SOURCES), greedy(&Uncached(&model), &SOURCES), "{position:?}");
            assert_eq!(beams(&model, &SOURCES, 3), beams(&Uncached(&model), &SOURCES, 3), "{position:?}");
        }
    }

    #[test]
    fn joined_batches_of_sources_of_unequal_length_go_on_as_each_would_alone() {
        let model = model(PositionConfig::Learned);
        // Sources of 3 tokens beside those of 6, and targets of 3 beside those of 1.
        let read = |sources: &[&[u32]], tokens: &[i32]| {
            let (_, mut state) = model.prefill(rows(sources)).unwrap();
            let token = |id: i32| Tensor::full([sources.len()], id, &model.embedding.weight.device());
            tokens.iter().for_each(|&id| drop(model.step(token(id), &mut state)));
            state
        };
        let (mut short, mut long) = (read(&SOURCES[1..2], &[3, 4]), read(&SOURCES, &[]));
        let next = |rows: usize| Tensor::<2, Int>::full([rows, 1], 5, &model.embedding.weight.device());
        let encoder_output = short.encoder_output.clone().join(long.encoder_output.clone());
        let mut joined = short.cache.clone().expect("a cache");
        joined.join(long.cache.clone().expect("a cache"));
        let found = model.decode(next(4), encoder_output, &SequenceInput::default(), &mut Pass::cached(&mut joined));
        let found = model.logits(found).squeeze_dim::<2>(1);
        let expected = [short.next_logits(&model, next(1)), long.next_logits(&model, next(3))];
        let difference = Difference::between(&found, &Tensor::cat(expected.to_vec(), 0));
        assert!(difference.absolute <= 1e-4, "{difference:?}");
    }

    #[test]
    fn one_beam_is_greedy() {
        let model = model(PositionConfig::rotary());
        assert_eq!(beams(&model, &SOURCES, 1), greedy(&model, &SOURCES));
    }

    #[test]
    fn company_and_order_change_no_translation() {
        let model = model(PositionConfig::Learned);
        let together = beams(&model, &SOURCES, 4);
        assert_eq!(together.len(), SOURCES.len());
        for (source, found) in SOURCES.iter().zip(&together) {
            assert_eq!(&beams(&model, &[source], 4)[0], found);
        }
        let reversed: Vec<&[u32]> = SOURCES.iter().rev().copied().collect();
        let mut found = beams(&model, &reversed, 4);
        found.reverse();
        assert_eq!(found, together);
    }

    /// The logits after a target, of a source alone, by the pass of a training.
    fn alone(model: &Seq2SeqModel, source: &[u32], target: &[u32]) -> Vec<f32> {
        let device = Device::default();
        let [(source, _), (target, _)] = [source, target].map(|ids| right_padded(&[ids.to_vec()], &device));
        let last = target.dims()[1] - 1;
        model.forward(source, None, target).narrow(1, last, 1).try_into_vec_as().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn rows_that_change_places_branch_and_end_go_on_reading_their_source(
            steps in prop::collection::vec(prop::collection::vec((any::<usize>(), 0_u32..10), 1..6), 1..5),
        ) {
            let model = model(PositionConfig::rotary());
            let (_, mut state) = model.prefill(rows(&SOURCES)).unwrap();
            let mut held: Vec<(usize, Vec<u32>)> = (0..3).map(|source| (source, vec![11])).collect();
            for step in steps {
                let chosen: Vec<usize> = step.iter().map(|(row, _)| row % held.len()).collect();
                let written = |(&row, (_, token)): (&usize, &(usize, u32))| (held[row].0, [&held[row].1[..], &[*token]].concat());
                held = chosen.iter().zip(&step).map(written).collect();
                state.select_rows(&chosen);
                let tokens: Vec<usize> = step.iter().map(|(_, token)| *token as usize).collect();
                let logits = model.step(row_indices(&tokens, &Device::default()), &mut state);
                let logits: Vec<f32> = logits.try_into_vec_as().unwrap();
                prop_assert_eq!(logits.len(), 13 * held.len());
                for (found, (source, target)) in logits.chunks(13).zip(&held) {
                    let difference = Difference::between(found, &alone(&model, SOURCES[*source], target));
                    prop_assert!(difference.absolute < 1e-3, "{difference:?}");
                }
            }
        }
    }

    #[test]
    fn bad_sources_are_refused() {
        let model = model(PositionConfig::Learned);
        let refuse = |source: Vec<u32>| model.prefill(vec![source]).err().unwrap().to_string();
        assert!(refuse(vec![]).contains("empty"));
        assert!(refuse(vec![0; 21]).contains("21 tokens"));
        assert!(refuse(vec![13]).contains("token id 13"));
    }
}
