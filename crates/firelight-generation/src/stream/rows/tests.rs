//! Rows beside one another against the same rows alone.

use crate::stream::tests::{Written, alone, pairs, written};
use crate::{Drafter, GenerationError, GenerationOptions, History, Processing, StopReason, TokenStream};

/// Prompts of several lengths with options of several kinds.
fn requests() -> Vec<(Vec<u32>, GenerationOptions)> {
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
