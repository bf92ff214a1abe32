use super::*;
use crate::mock::{Pairs, Successor};

fn stream<'m>(model: &'m Successor, rows: &[&[u32]], options: GenerationOptions) -> TokenStream<'m, Successor> {
    TokenStream::new(model, rows.iter().map(|row| row.to_vec()).collect(), &options).unwrap()
}

#[test]
fn rows_end_one_by_one() {
    let model = Successor::new(8);
    let mut stream = stream(&model, &[&[0, 3], &[1]], GenerationOptions::new(9).greedy().with_stop_tokens([6]));
    let tokens: Vec<_> = stream.by_ref().map(Result::unwrap).collect();
    assert_eq!(tokens, [[Some(4), Some(2)], [Some(5), Some(3)], [None, Some(4)], [None, Some(5)]]);
    assert_eq!(stream.stops(), [Some(StopReason::StopToken(6)); 2]);
}

#[test]
fn rows_that_have_ended_cost_nothing_and_the_others_do_not_notice() {
    let model = Pairs::from_probabilities(4, |before, last| match (before + last) % 3 {
        0 => [0.4, 0.2, 0.2, 0.2],
        1 => [0.2, 0.4, 0.2, 0.2],
        _ => [0.1, 0.1, 0.4, 0.4],
    });
    let prompts: Vec<Vec<u32>> = (0..8).map(|row| vec![row % 4, row / 4]).collect();
    let drawing = GenerationOptions::new(12).with_temperature(1.0).with_stop_tokens([3]);
    let options: Vec<GenerationOptions> = (2..10).map(|seed| drawing.clone().with_seed(seed)).collect();
    let mut stream = TokenStream::of_rows(&model, prompts.clone(), &options).unwrap();
    let tokens: Vec<Vec<Option<u32>>> = stream.by_ref().map(Result::unwrap).collect();
    let open = |step: usize| (0..8).filter(|&row| tokens[step][row].is_some()).count();
    let read: Vec<usize> = std::iter::once(8).chain((0..tokens.len() - 1).map(open)).collect();
    assert_eq!(model.rows_read()[..read.len()], read, "the model reads the rows that are open");
    assert!(read.windows(2).any(|two| two[1] < two[0] && two[1] > 0), "{read:?}");
    // Row by row: the same draws without the others.
    for (number, (prompt, options)) in prompts.into_iter().zip(&options).enumerate() {
        let mut row = vec![Sequence::new(&Sampler::new(options).unwrap(), prompt.clone(), 0)];
        let (mut logits, mut state) = model.prefill(vec![prompt]).unwrap();
        for expected in tokens.iter().map(|tokens| tokens[number]) {
            let sampled = choose(logits, &mut row).unwrap();
            let Some(expected) = expected else {
                assert_eq!(sampled.ids, [3]);
                break;
            };
            assert_eq!(sampled.ids, [expected]);
            row[0].accept(expected);
            logits = model.step(sampled.tokens, &mut state);
        }
    }
}

#[test]
fn a_row_that_the_caller_ends_writes_nothing_more() {
    let model = Successor::new(8);
    let mut stream = stream(&model, &[&[1], &[4]], GenerationOptions::new(3).greedy());
    stream.end_row(0, StopReason::Caller);
    assert_eq!(stream.next().unwrap().unwrap(), [None, Some(5)]);
    stream.end_row(1, StopReason::StopString(3));
    assert!(stream.next().is_none());
    assert_eq!(stream.stops(), [Some(StopReason::Caller), Some(StopReason::StopString(3))]);
}

#[test]
fn an_error_names_its_row_whichever_have_ended() {
    let model = Successor::new(8).broken_after(2);
    let mut stream = stream(&model, &[&[1], &[4]], GenerationOptions::new(9).greedy().with_stop_tokens([2]));
    assert_eq!(stream.next().unwrap().unwrap(), [None, Some(5)]);
    assert_eq!(stream.next().unwrap().unwrap(), [None, Some(6)]);
    assert!(matches!(stream.next(), Some(Err(GenerationError::NonFiniteLogits { step: 2, row: 1 }))));
}

#[test]
fn the_last_token_is_not_stepped() {
    let model = Successor::new(8);
    let mut stream = stream(&model, &[&[0]], GenerationOptions::new(3).greedy());
    assert_eq!(stream.by_ref().count(), 3);
    assert_eq!(model.steps(), 2);
    assert_eq!(stream.stops(), [Some(StopReason::MaxNewTokens)]);
}

#[test]
fn no_tokens_are_wanted_and_none_come() {
    let model = Successor::new(8);
    assert_eq!(stream(&model, &[&[0]], GenerationOptions::new(0)).count(), 0);
}

#[test]
fn a_refused_prompt_and_bad_options_are_errors_before_the_first_token() {
    let model = Successor::new(8);
    let empty = TokenStream::new(&model, vec![vec![]], &GenerationOptions::new(3)).err().unwrap();
    assert!(empty.to_string().starts_with("the prompt is empty"));
    let frozen = GenerationOptions::new(3).with_temperature(0.0);
    let frozen = TokenStream::new(&model, vec![vec![1]], &frozen).err().unwrap();
    assert!(matches!(frozen, GenerationError::InvalidOptions { .. }));
}

#[test]
fn the_stream_ends_after_an_error() {
    let model = Successor::new(8).broken_after(2);
    let mut stream = stream(&model, &[&[0]], GenerationOptions::new(9).greedy());
    let results: Vec<bool> = stream.by_ref().map(|tokens| tokens.is_ok()).collect();
    assert_eq!(results, [true, true, false]);
}

/// Distributions that differ from place to place.
pub(super) fn pairs() -> Pairs {
    Pairs::from_probabilities(4, |before, last| match (before + 2 * last) % 3 {
        0 => [0.4, 0.2, 0.3, 0.1],
        1 => [0.2, 0.5, 0.2, 0.1],
        _ => [0.2, 0.1, 0.4, 0.3],
    })
}

pub(super) type Written = (Vec<u32>, Option<StopReason>);

pub(super) fn written(mut stream: TokenStream<'_, Pairs>) -> Vec<Written> {
    let mut rows = vec![Vec::new(); stream.batch_size()];
    for step in stream.by_ref() {
        rows.iter_mut().zip(step.unwrap()).for_each(|(row, id)| row.extend(id));
    }
    rows.into_iter().zip(stream.stops().to_vec()).collect()
}

pub(super) fn alone((prompt, options): &(Vec<u32>, GenerationOptions)) -> Written {
    written(TokenStream::new(&pairs(), vec![prompt.clone()], options).unwrap()).remove(0)
}

#[test]
fn of_several_rows_no_prefix_is_left() {
    let (model, options) = (pairs(), GenerationOptions::new(3).greedy());
    let mut stream = TokenStream::new(&model, vec![vec![0, 1, 2], vec![1, 2]], &options).unwrap();
    stream.end_row(0, StopReason::Caller);
    stream.by_ref().for_each(|step| drop(step.unwrap()));
    assert!(stream.into_prefix().ids().is_empty());
}

#[test]
fn a_text_that_begins_alike_is_read_from_where_it_differs() {
    let (model, options) = (pairs(), GenerationOptions::new(6).with_temperature(1.0).with_seed(2));
    let mut prefix = Prefix::default();
    let mut after = |prompt: &[u32]| {
        let before = model.rows_read().len();
        let mut stream = TokenStream::after(&model, &mut prefix, prompt.to_vec(), &options).unwrap();
        let ids: Vec<u32> = stream.by_ref().filter_map(|step| step.unwrap()[0]).collect();
        prefix = stream.into_prefix();
        assert_eq!(prefix.ids(), [prompt, &ids[..5]].concat(), "the last token is not read");
        assert_eq!(model.rows_read().len() - before, 6);
        ids
    };
    for prompt in [&[0, 1, 2, 2, 1][..], &[0, 1, 2, 2, 1], &[0, 1, 2, 0], &[0, 3], &[1, 2, 0], &[1, 2, 0, 1, 1, 1]] {
        let expected = alone(&(prompt.to_vec(), options.clone())).0;
        assert_eq!(after(prompt), expected, "{prompt:?}");
    }
}

#[test]
fn the_stop_token_of_a_row_has_a_score_of_its_own() {
    let options = GenerationOptions::new(4).greedy().with_stop_tokens([7]).with_logprobs(0);
    let model = Successor::new(8);
    let mut tokens = TokenStream::new(&model, vec![vec![2], vec![5]], &options).unwrap();
    let mut scored = [0, 0];
    while let Some(step) = tokens.next() {
        step.unwrap();
        scored.iter_mut().zip(tokens.scores()).for_each(|(count, score)| *count += usize::from(score.is_some()));
    }
    let ends: Vec<Option<u32>> = tokens.end_scores().iter().map(|end| end.as_ref().map(|end| end.id)).collect();
    assert_eq!((scored, ends), ([4, 1], vec![None, Some(7)]));
}
