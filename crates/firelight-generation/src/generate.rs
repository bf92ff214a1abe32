//! Runs the decoding loop to its end and collects the ids of every row.

use std::ops::{ControlFlow, Range};

use crate::{Autoregressive, GeneratedText, GenerationError, GenerationOptions, StopReason, TokenScore, TokenStream};

/// The continuation of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The new ids, without the prompt and without the stop token.
    pub ids: Vec<u32>,
    /// The scores of the ids that were chosen, if [`GenerationOptions::logprobs`] asks for them; else empty.
    pub scores: Vec<TokenScore>,
    /// Why the row ended.
    #[doc(alias = "stopped")]
    #[doc(alias = "finish_reason")]
    pub stop_reason: StopReason,
}

/// Continues the prompt and returns one continuation per row.
///
/// A row's text does not depend on the other rows, so rows with equal prompts get equal texts; [`generate_samples`] continues one prompt in
/// several ways.
///
/// `observe` sees the tokens of every step as they come, one entry per row, `None` for rows that have ended; it breaks
/// off the generation with [`ControlFlow::Break`]. Callers with nothing to watch pass `|_| ControlFlow::Continue(())`.
///
/// A row under a [`Constraint`](crate::Constraint) that has begun, and is broken off or ended by an error, is completed by tokens that the model
/// did not choose and `observe` does not see.
///
/// # Errors
/// Options out of range, a prompt that the model refuses, or logits that are no distribution. An error after the first token is
/// [`GenerationError::Unfinished`], with the ids up to there.
pub fn generate<M: Autoregressive>(
    model: &M,
    prompt: M::Prompt,
    options: &GenerationOptions,
    observe: impl FnMut(&[Option<u32>]) -> ControlFlow<()>,
) -> Result<Vec<Generated>, GenerationError> {
    collect(TokenStream::new(model, prompt, options)?, observe)
}

/// The most samples that are decoded together: each needs a cache of its own.
const TOGETHER: usize = 16;

/// Continues the prompt `samples` times: one continuation per row for each sample, those of the first sample first.
///
/// All samples use one seed, each with a stream of random numbers of its own. So sample `i` of a row depends neither on how many samples
/// there are nor on the other rows, and the first is what [`generate`] returns. Greedy samples are all alike.
///
/// # Errors
/// As [`generate`].
pub fn generate_samples<M: Autoregressive>(
    model: &M,
    prompt: M::Prompt,
    samples: usize,
    options: &GenerationOptions,
) -> Result<Vec<Generated>, GenerationError>
where
    M::Prompt: Clone,
{
    let mut found = Vec::new();
    for group in sample_groups(samples) {
        let more = TokenStream::of_samples(model, prompt.clone(), options, group)
            .and_then(|tokens| collect(tokens, |_| ControlFlow::Continue(())));
        match more {
            Ok(more) => found.extend(more),
            Err(error) => return Err(error.after(found.into_iter().map(GeneratedText::without_text).collect())),
        }
    }
    Ok(found)
}

/// The sample numbers in groups that are decoded together.
pub(crate) fn sample_groups(samples: usize) -> impl Iterator<Item = Range<usize>> {
    (0..samples).step_by(TOGETHER).map(move |first| first..samples.min(first + TOGETHER))
}

/// Runs a stream to its end.
fn collect<M: Autoregressive>(
    mut stream: TokenStream<'_, M>,
    mut observe: impl FnMut(&[Option<u32>]) -> ControlFlow<()>,
) -> Result<Vec<Generated>, GenerationError> {
    let open = Generated { ids: Vec::new(), scores: Vec::new(), stop_reason: StopReason::Caller };
    let mut rows = vec![open; stream.batch_size()];
    while let Some(tokens) = stream.next() {
        let tokens = match tokens {
            Ok(tokens) => tokens,
            Err(error) => {
                complete(&mut rows, &mut stream);
                return Err(error.after(unfinished(rows, stream.stops())));
            }
        };
        for (row, (token, score)) in rows.iter_mut().zip(tokens.iter().zip(stream.scores())) {
            row.ids.extend(token);
            row.scores.extend(score.clone());
        }
        if observe(&tokens).is_break() {
            complete(&mut rows, &mut stream);
            break;
        }
    }
    // Rows that the loop left open were broken off.
    rows.iter_mut().zip(stream.stops()).for_each(|(row, stop)| row.stop_reason = stop.unwrap_or(StopReason::Caller));
    Ok(rows)
}

/// Completes the rows that end here although they have not ended.
fn complete<M: Autoregressive>(rows: &mut [Generated], stream: &mut TokenStream<'_, M>) {
    for (row, generated) in rows.iter_mut().enumerate() {
        if stream.stops()[row].is_none() {
            generated.ids.extend(stream.closing(row));
        }
    }
}

/// The rows that an error ends, unless they had ended before.
fn unfinished(rows: Vec<Generated>, stops: &[Option<StopReason>]) -> Vec<GeneratedText> {
    let ended = |(row, stop): (Generated, &Option<StopReason>)| Generated {
        stop_reason: stop.unwrap_or(StopReason::Failed),
        ..row
    };
    rows.into_iter().zip(stops).map(ended).map(GeneratedText::without_text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{Pairs, Successor};

    fn generated(ids: &[u32], stop_reason: StopReason) -> Generated {
        Generated { ids: ids.to_vec(), scores: Vec::new(), stop_reason }
    }

    fn run(options: &GenerationOptions) -> Vec<Generated> {
        generate(&Successor::new(8), vec![vec![2], vec![5]], options, |_| ControlFlow::Continue(())).unwrap()
    }

    #[test]
    fn greedy_decoding_follows_the_model() {
        let rows = run(&GenerationOptions::new(4).greedy().with_stop_tokens([7]));
        assert_eq!(rows[0], generated(&[3, 4, 5, 6], StopReason::MaxNewTokens));
        assert_eq!(rows[1], generated(&[6], StopReason::StopToken(7)));
    }

    #[test]
    fn a_seed_is_a_text_and_another_seed_another() {
        let options = GenerationOptions::new(40).with_temperature(3.0);
        assert_eq!(run(&options.clone().with_seed(1)), run(&options.clone().with_seed(1)));
        assert_ne!(run(&options.clone().with_seed(1)), run(&options.with_seed(2)));
    }

    /// Distributions that differ from place to place.
    fn pairs() -> Pairs {
        Pairs::from_probabilities(4, |before, last| match (before + last) % 3 {
            0 => [0.1, 0.2, 0.3, 0.4],
            1 => [0.4, 0.1, 0.4, 0.1],
            _ => [0.25; 4],
        })
    }

    fn drawing() -> GenerationOptions {
        GenerationOptions::new(12).with_temperature(1.0).with_seed(9).with_stop_tokens([3])
    }

    #[test]
    fn many_samples_are_decoded_in_parts() {
        let (model, options, prompt) = (pairs(), drawing(), vec![vec![0, 1], vec![2, 3]]);
        let found = generate_samples(&model, prompt.clone(), 20, &options).unwrap();
        // More than are decoded together, and the prompt is read once by each of the two parts.
        let read = model.rows_read();
        assert_eq!((found.len(), read[0]), (40, 2));
        assert!(read[1] > 2 && read[1] <= 32 && read.windows(2).filter(|two| two[1] > two[0]).count() <= 3, "{read:?}");
        assert_eq!(found[..6], generate_samples(&model, prompt.clone(), 3, &options).unwrap());
        assert_ne!(found[0], found[2], "samples of one row draw apart");
        assert!(generate_samples(&model, prompt, 0, &options).unwrap().is_empty());
    }

    #[test]
    fn the_samples_of_a_row_are_those_that_it_gets_alone() {
        let (model, options, prompt) = (pairs(), drawing(), vec![vec![0, 1], vec![2, 3]]);
        let samples = |prompt: &[Vec<u32>]| generate_samples(&model, prompt.to_vec(), 5, &options).unwrap();
        let first =
            |prompt: &[Vec<u32>]| generate(&model, prompt.to_vec(), &options, |_| ControlFlow::Continue(())).unwrap();
        let alone = [samples(&prompt[..1]), samples(&prompt[1..])];
        let each: Vec<Generated> = (0..5).flat_map(|sample| alone.iter().map(move |row| row[sample].clone())).collect();
        assert_eq!(samples(&prompt), each);
        assert_eq!(first(&prompt), each[..2], "`generate` writes the first sample");
        assert_eq!(first(&prompt[1..]), each[1..2]);
        assert_eq!(
            first(&[prompt[1].clone(), prompt[0].clone(), prompt[1].clone()]),
            [1, 0, 1].map(|row| each[row].clone())
        );
    }

    #[test]
    fn a_vanishing_temperature_is_greedy() {
        let greedy = run(&GenerationOptions::new(20).greedy());
        assert_eq!(run(&GenerationOptions::new(20).with_temperature(1e-6)), greedy);
        assert_eq!(run(&GenerationOptions::new(20).with_temperature(2.0).with_top_k(1)), greedy);
    }

    #[test]
    fn an_error_returns_the_ids_before_it() {
        let options = GenerationOptions::new(9).greedy().with_stop_tokens([7]);
        let model = Successor::new(8).broken_after(3);
        let prompt = vec![vec![2], vec![5]];
        let error = generate(&model, prompt, &options, |_| ControlFlow::Continue(())).unwrap_err();
        assert!(error.to_string().starts_with("the model's logits for new token 3 are not finite"), "{error}");
        let ids: Vec<(&[u32], StopReason)> = error.texts().iter().map(|row| (&row.ids[..], row.stop_reason)).collect();
        assert_eq!(ids, [(&[3, 4, 5][..], StopReason::Failed), (&[6][..], StopReason::StopToken(7))]);
        let model = Successor::new(8).broken_after(0);
        let error = generate(&model, vec![vec![2]], &options, |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(error, GenerationError::NonFiniteLogits { step: 0, row: 0 }), "{error}");
    }

    #[test]
    fn samples_that_were_finished_stay_where_a_later_one_fails() {
        // 16 samples are written together by 3 steps each, and then the model breaks.
        let model = Successor::new(8).broken_after(5);
        let error = generate_samples(&model, vec![vec![2]], 20, &GenerationOptions::new(4).greedy()).unwrap_err();
        let lengths: Vec<usize> = error.texts().iter().map(|row| row.ids.len()).collect();
        assert_eq!(lengths, [vec![4; 16], vec![2; 4]].concat());
        assert_eq!(
            (error.texts()[15].stop_reason, error.texts()[16].stop_reason),
            (StopReason::MaxNewTokens, StopReason::Failed)
        );
    }

    #[test]
    fn the_caller_may_break_off() {
        let mut seen = Vec::new();
        let rows = generate(&Successor::new(8), vec![vec![0]], &GenerationOptions::new(9).greedy(), |tokens| {
            seen.push(tokens[0]);
            if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        assert_eq!(seen, [Some(1), Some(2)]);
        assert_eq!(rows, [generated(&[1, 2], StopReason::Caller)]);
    }
}
