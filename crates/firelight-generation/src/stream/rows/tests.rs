//! Rows beside one another against the same rows alone.

use proptest::prelude::*;

use crate::processors::{Dry, MirostatOptions, Xtc};
use crate::stream::tests::{Written, alone, pairs, written};
use crate::{
    Drafter, GenerationError, GenerationOptions, History, Processing, PromptLookup, RandomSampling, Sampling,
    StopReason, TokenStream,
};

/// A prompt and its options.
type Request = (Vec<u32>, GenerationOptions);

/// Prompts of several lengths with options of several kinds.
fn requests() -> Vec<Request> {
    let penalty = Processing { repetition_penalty: 1.3, ..Processing::default() };
    vec![
        (vec![0, 1], GenerationOptions::new(9).with_temperature(1.0).with_seed(4)),
        (vec![3, 1, 2], GenerationOptions::new(3).greedy()),
        (vec![1, 1, 0, 2, 2], GenerationOptions::new(20).with_temperature(0.7).with_stop_tokens([3])),
        (vec![2, 0], GenerationOptions::new(12).with_temperature(1.5).with_seed(8).with_processing(penalty)),
        (vec![2, 2], GenerationOptions::new(0)),
    ]
}

#[test]
fn rows_with_options_of_their_own_are_written_as_they_are_alone() {
    let (prompts, options): (Vec<_>, Vec<_>) = requests().into_iter().unzip();
    let model = pairs();
    let together = written(TokenStream::of_rows(&model, prompts, &options).unwrap());
    assert_eq!(together, requests().iter().map(alone).collect::<Vec<_>>());
    assert!(together.iter().any(|(_, stop)| *stop == Some(StopReason::StopToken(3))), "{together:?}");
}

#[test]
fn rows_that_join_are_written_as_they_are_alone() {
    let expected: Vec<Written> = requests().iter().map(alone).collect();
    // A row joins every `pause` steps; at 30 all others have ended.
    for pause in [0, 1, 2, 30] {
        let model = pairs();
        let mut waiting = requests().into_iter();
        let mut open =
            || waiting.next().map(|(prompt, options)| TokenStream::new(&model, vec![prompt], &options).unwrap());
        let mut stream = open().unwrap();
        let mut rows: Vec<Vec<u32>> = vec![Vec::new()];
        loop {
            for _ in 0..pause {
                if let Some(step) = stream.next() {
                    rows.iter_mut().zip(step.unwrap()).for_each(|(row, id)| row.extend(id));
                }
            }
            let Some(other) = open() else { break };
            assert_eq!(stream.join(other), rows.len()..rows.len() + 1);
            rows.push(Vec::new());
        }
        for step in stream.by_ref() {
            rows.iter_mut().zip(step.unwrap()).for_each(|(row, id)| row.extend(id));
        }
        let found: Vec<Written> = rows.into_iter().zip(stream.stops().to_vec()).collect();
        assert_eq!(found, expected, "a pause of {pause}");
    }
}

#[test]
fn rows_join_while_guesses_wait_and_when_all_have_ended() {
    /// Guesses what the text will be.
    struct Knows(Vec<u32>);
    impl Drafter for Knows {
        fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
            Ok(self.0.iter().skip(history.new_ids().len()).copied().take(most.min(4)).collect())
        }
    }
    let all = requests();
    let expected: Vec<Written> = all.iter().map(alone).collect();
    for (first, second) in [(2, 0), (0, 2), (3, 4), (2, 3)] {
        for steps in 0..22 {
            let (model, open) = (pairs(), |row: usize| (vec![all[row].0.clone()], all[row].1.clone()));
            let stream = |(prompt, options)| TokenStream::new(&model, prompt, &options).unwrap();
            let mut joined = stream(open(first)).with_drafter(Knows(expected[first].0.clone()));
            let mut rows = vec![Vec::new(), Vec::new()];
            let mut take = |step: Vec<Option<u32>>| rows.iter_mut().zip(step).for_each(|(row, id)| row.extend(id));
            (0..steps).map_while(|_| joined.next()).for_each(|step| take(step.unwrap()));
            joined.join(stream(open(second)));
            joined.by_ref().for_each(|step| take(step.unwrap()));
            let found: Vec<Written> = rows.into_iter().zip(joined.stops().to_vec()).collect();
            assert_eq!(found, [expected[first].clone(), expected[second].clone()], "after {steps} steps");
        }
    }
}

#[test]
#[should_panic(expected = "a stream that has begun joins no other")]
fn a_stream_that_has_begun_joins_no_other() {
    let (model, options) = (pairs(), GenerationOptions::new(9));
    let open = || TokenStream::new(&model, vec![vec![0, 1]], &options).unwrap();
    let mut begun = open();
    begun.next();
    open().join(begun);
}

/// Greedy choice, and every setting of a random choice.
fn samplers() -> Vec<Sampling> {
    let changes: [fn(&mut RandomSampling); 12] = [
        |_| {},
        |random| random.top_k = Some(2),
        |random| random.top_p = Some(0.7),
        |random| random.min_p = Some(0.5),
        |random| random.typical_p = Some(0.6),
        |random| random.top_h = Some(0.6),
        |random| random.epsilon_cutoff = Some(0.2),
        |random| random.eta_cutoff = Some(0.6),
        |random| random.top_n_sigma = Some(1.0),
        |random| random.xtc = Some(Xtc { probability: 0.5, threshold: 0.2 }),
        |random| random.mirostat = Some(MirostatOptions { tau: 1.2, eta: 0.4 }),
        |random| {
            (random.top_k, random.top_p, random.min_p) = (Some(3), Some(0.95), Some(0.1));
            random.xtc = Some(Xtc::default());
            random.mirostat = Some(MirostatOptions::default());
        },
    ];
    let random =
        |change: fn(&mut RandomSampling)| GenerationOptions::new(0).with_temperature(1.3).with_random(change).sampling;
    std::iter::once(Sampling::Greedy).chain(changes.map(random)).collect()
}

/// Every penalty and every ban.
fn penalties() -> Vec<Processing> {
    let dry = Dry { allowed: 1, multiplier: 1.5, ..Dry::default() };
    vec![
        Processing::default(),
        Processing { repetition_penalty: 1.7, ..Processing::default() },
        Processing { frequency_penalty: 0.4, ..Processing::default() },
        Processing { presence_penalty: -1.0, ..Processing::default() },
        Processing { no_repeat_ngram_size: 5, ..Processing::default() },
        Processing { dry: Some(dry), ..Processing::default() },
        Processing { banned: vec![vec![1, 2], vec![0, 0, 0]], min_new_tokens: 6, ..Processing::default() },
        Processing { forced_first: vec![1, 2], forced_last: vec![0], not_first: vec![2], ..Processing::default() },
    ]
}

/// A request for each sampler: its prompt, its penalty, its seed and its length vary.
fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    let (samplers, penalties) = (samplers(), penalties());
    let prompt = prop::collection::vec(0u32..4, 2..6);
    let varied = (prompt, 0..penalties.len(), any::<u64>(), 1usize..16);
    prop::collection::vec(varied, samplers.len()).prop_map(move |all| {
        let request = |((prompt, penalty, seed, most), sampling): ((Vec<u32>, usize, u64, usize), &Sampling)| {
            let options = GenerationOptions::new(most).with_sampling(sampling.clone()).with_seed(seed);
            (prompt, options.with_stop_tokens([3]).with_processing(penalties[penalty].clone()))
        };
        all.into_iter().zip(&samplers).map(request).collect()
    })
}

/// The first request with guesses, which the others join after some steps.
fn joined(requests: &[Request], pause: usize) -> Vec<Written> {
    let model = pairs();
    let open = |(prompt, options): &Request| TokenStream::new(&model, vec![prompt.clone()], options).unwrap();
    let mut stream = open(&requests[0]).with_drafter(PromptLookup { ngram: 1, tokens: 4 });
    let mut rows = vec![Vec::new(); requests.len()];
    let mut take = |step: Vec<Option<u32>>| rows.iter_mut().zip(step).for_each(|(row, id)| row.extend(id));
    (0..pause).map_while(|_| stream.next()).for_each(|step| take(step.unwrap()));
    for request in &requests[1..] {
        stream.join(open(request));
    }
    stream.by_ref().for_each(|step| take(step.unwrap()));
    rows.into_iter().zip(stream.stops().to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn no_text_depends_on_its_batch_whatever_the_sampler(
        (requests, first, pause) in (any_requests(), 0usize..13, 0usize..9)
    ) {
        let expected: Vec<Written> = requests.iter().map(alone).collect();
        let (prompts, options): (Vec<_>, Vec<_>) = requests.iter().cloned().unzip();
        let model = pairs();
        prop_assert_eq!(&written(TokenStream::of_rows(&model, prompts, &options).unwrap()), &expected);
        for ((prompt, options), expected) in requests.iter().zip(&expected) {
            let stream = || TokenStream::new(&model, vec![prompt.clone()], options).unwrap();
            let guessed = written(stream().with_drafter(PromptLookup { ngram: 1, tokens: 4 }));
            prop_assert_eq!(&guessed[0], expected);
            let samples = |range| written(TokenStream::of_samples(&model, vec![prompt.clone()], options, range).unwrap());
            let (both, second) = (samples(0..2), samples(1..2));
            prop_assert_eq!((&both[0], &both[1]), (expected, &second[0]));
        }
        let turned = |rows: &[Written]| [&rows[first..], &rows[..first]].concat();
        let order: Vec<Request> = [&requests[first..], &requests[..first]].concat();
        prop_assert_eq!(joined(&order, pause), turned(&expected));
    }
}
