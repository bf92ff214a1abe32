//! Lines that several ranks answer in turn, where all ranks need the answers.

use firelight_storage::TaskError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::dealing::deal;
use super::wire;
use crate::{Communicator, CommunicatorError};

/// Answers blocks of lines like [`deal`], and gives all answers to every rank, in the order of the blocks. `answer` is called for the blocks of
/// this rank, with the number of lines before the block. Numbers of an answer keep their bits, those that are not finite too.
///
/// ```
/// use firelight_storage::TaskError;
/// use firelight_training::{Threads, ThreadsOptions, deal_to_all};
///
/// std::thread::scope(|scope| {
///     for rank in Threads::ranks(2, ThreadsOptions::default()) {
///         scope.spawn(move || {
///             let blocks = [vec!["a", "b"], vec!["c"], vec!["d"]];
///             let blocks = blocks.map(|block| block.into_iter().map(String::from).collect::<Vec<_>>());
///             let answer = |before: usize, lines: &[String]| Ok(format!("{before}: {}", lines.concat()));
///             let found: Vec<String> = deal_to_all::<_, TaskError>(&rank, blocks.into(), answer).unwrap();
///             assert_eq!(found, ["0: ab", "2: c", "3: d"]);
///         });
///     }
/// });
/// ```
///
/// # Errors
/// As [`deal`].
pub fn deal_to_all<A, E>(
    ranks: &dyn Communicator,
    blocks: Vec<Vec<String>>,
    answer: impl FnMut(usize, &[String]) -> Result<A, TaskError>,
) -> Result<Vec<A>, E>
where
    A: Serialize + DeserializeOwned,
    E: From<TaskError> + From<CommunicatorError>,
{
    let (mut blocks, mut lines, mut answers) = (blocks.into_iter(), 0, Vec::new());
    let next = || {
        let (before, block) = (lines, blocks.next());
        lines += block.as_ref().map_or(0, Vec::len);
        Ok(block.map(|block| (before, block)))
    };
    let show = |answer: A| {
        answers.push(answer);
        Ok(())
    };
    deal::<A, E>(ranks, next, answer, show)?;
    if ranks.world() == 1 {
        return Ok(answers);
    }
    // Nothing but the first rank's answers is looked at.
    let bytes = ranks.broadcast(0, wire::to_bytes(&answers)?)?;
    Ok(wire::of_bytes(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Alone, Threads, ThreadsOptions};
    use std::thread;

    fn blocks(sizes: &[usize]) -> Vec<Vec<String>> {
        sizes.iter().map(|&size| (0..size).map(|line| format!("{size}.{line}")).collect()).collect()
    }

    fn answer(before: usize, lines: &[String]) -> Result<Vec<String>, TaskError> {
        Ok((before..).zip(lines).map(|(place, line)| format!("{place} {line}")).collect())
    }

    #[test]
    fn every_rank_has_the_answers_of_one_process() {
        let all: [&[usize]; 3] = [&[], &[2], &[1, 0, 3, 2, 2]];
        for sizes in all {
            let expected: Vec<Vec<String>> = deal_to_all::<_, TaskError>(&Alone, blocks(sizes), answer).unwrap();
            assert_eq!(expected.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
            for world in [2, 3] {
                thread::scope(|scope| {
                    for rank in Threads::ranks(world, ThreadsOptions::default()) {
                        let expected = &expected;
                        scope.spawn(move || {
                            let found = deal_to_all::<_, TaskError>(&rank, blocks(sizes), answer);
                            assert_eq!(&found.unwrap(), expected, "{world} ranks");
                        });
                    }
                });
            }
        }
    }

    #[test]
    fn numbers_that_are_not_finite_come_as_they_are() {
        let numbers = [(f64::NAN, f32::NAN), (f64::INFINITY, f32::NEG_INFINITY), (-0.0, -0.0), (0.1 + 0.2, 0.1)];
        thread::scope(|scope| {
            for rank in Threads::ranks(2, ThreadsOptions::default()) {
                scope.spawn(move || {
                    let answer = |before: usize, _: &[String]| Ok(numbers[before]);
                    let found = deal_to_all::<_, TaskError>(&rank, blocks(&[1, 1, 1, 1]), answer).unwrap();
                    let bits = |(double, single): (f64, f32)| (double.to_bits(), single.to_bits());
                    assert_eq!(found.into_iter().map(bits).collect::<Vec<_>>(), numbers.map(bits));
                });
            }
        });
    }

    #[test]
    fn an_answer_that_fails_is_told_by_all() {
        thread::scope(|scope| {
            for rank in Threads::ranks(2, ThreadsOptions::default()) {
                scope.spawn(move || {
                    let answer = |before: usize, _: &[String]| match before {
                        1 => Err(TaskError::new(true, "no words")),
                        _ => Ok(before),
                    };
                    let error = deal_to_all::<usize, TaskError>(&rank, blocks(&[1, 1, 1]), answer).unwrap_err();
                    assert_eq!((error.to_string().as_str(), error.is_user_error()), ("no words", true));
                });
            }
        });
    }
}
