use std::cell::Cell;
use std::io;

use proptest::prelude::*;

use super::*;
use crate::{Alone, Threads, ThreadsOptions};

type Outcome = (String, Result<(), String>);

/// What a rank does of the work.
#[derive(Clone, Copy)]
struct Job<'a> {
    /// Lines of the file, and of a block.
    lines: &'a [String],
    block: usize,
    /// The block that cannot be read, and the one that cannot be answered.
    unread: Option<usize>,
    unanswered: Option<usize>,
}

fn lines(count: usize) -> Vec<String> {
    (0..count).map(|line| format!("line {line}")).collect()
}

impl<'a> Job<'a> {
    fn of(lines: &'a [String], block: usize) -> Self {
        Self { lines, block, unread: None, unanswered: None }
    }

    /// What a rank shows, and how it ends; `show` is given what it shows.
    fn done_by(self, ranks: &dyn Communicator, show: impl Fn(&str) -> io::Result<()>) -> Outcome {
        let (mut place, mut shown) = (0, String::new());
        let next = || {
            if self.unread == Some(place) {
                return Err(InputError::new(format!("block {place} is no text")).into());
            }
            let before = place * self.block;
            place += 1;
            let block: Vec<String> = self.lines.iter().skip(before).take(self.block).cloned().collect();
            Ok((!block.is_empty()).then_some((before, block)))
        };
        let answer = |before: usize, lines: &[String]| {
            let bad = self.unanswered.is_some_and(|bad| bad * self.block == before);
            let problems = vec!["a".to_string(), format!("line {} cannot be read", before + 1)];
            if bad {
                Err(TaskError::new(true, "of two problems").listing(problems))
            } else {
                Ok(answered(before, lines))
            }
        };
        let show = |answer: String| -> Result<(), Box<dyn std::error::Error>> {
            show(&answer)?;
            shown.push_str(&answer);
            Ok(())
        };
        let done = deal(ranks, next, answer, show).map_err(|error| error.to_string());
        (shown, done)
    }

    /// What each of several ranks shows, and how it ends.
    fn on(self, world: usize) -> Vec<Outcome> {
        on_ranks(world, |rank| self.done_by(rank, |_| Ok(())))
    }
}

fn answered(before: usize, lines: &[String]) -> String {
    lines.iter().enumerate().map(|(place, line)| format!("{} of {}: {line}\n", before + place, lines.len())).collect()
}

fn on_ranks<R: Send>(world: usize, work: impl Fn(&Threads) -> R + Sync) -> Vec<R> {
    let ranks = Threads::ranks(world, ThreadsOptions::default());
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || work(&rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_line_is_answered_once_and_in_its_place(world in 1_usize..6, count in 0_usize..30, block in 1_usize..5) {
        let lines = lines(count);
        let job = Job::of(&lines, block);
        let alone = job.done_by(&Alone, |_| Ok(()));
        prop_assert_eq!(alone.0.lines().count(), count);
        let found = job.on(world);
        prop_assert_eq!(&found[0], &alone);
        prop_assert!(found[1..].iter().all(|(shown, done)| shown.is_empty() && done.is_ok()));
    }

    #[test]
    fn the_first_error_in_the_order_of_lines_comes_after_the_answers_before_it(
        world in 1_usize..5, unread in 0_usize..7, unanswered in 0_usize..7,
    ) {
        let lines = lines(14);
        let job = Job { unread: Some(unread), unanswered: Some(unanswered), ..Job::of(&lines, 2) };
        let alone = job.done_by(&Alone, |_| Ok(()));
        let found = job.on(world);
        prop_assert_eq!(&found[0].0, &alone.0);
        prop_assert!(found.iter().all(|(_, done)| done.is_err()), "{:?}", found);
        let error = found[0].1.clone().unwrap_err();
        let expected = if unanswered < unread { format!("line {} cannot", 2 * unanswered + 1) } else { "no text".into() };
        prop_assert!(error.contains(&expected) || (world == 1 && error == "of two problems"), "{}", error);
    }
}

#[test]
fn ranks_that_read_other_lines_are_told_before_anything_of_them_is_shown() {
    let lines = lines(8);
    let mut other = lines.clone();
    other[5].push('!');
    for (other, place) in [(&other[..], 5), (&lines[..7], 7), (&lines[..4], 5)] {
        let found = on_ranks(3, |rank| {
            let lines = if rank.rank() == 2 { other } else { &lines[..] };
            Job::of(lines, if place == 7 { 1 } else { 2 }).done_by(rank, |_| Ok(()))
        });
        // Blocks of two lines begin at 5, where the line 6 differs; the first round of three ranks ends behind line 6.
        let place = if place == 7 { 8 } else { 5 };
        let expected =
            format!("rank 2 does not read what rank 0 does, from line {place} on; give all ranks the same file");
        assert!(found.iter().all(|(_, done)| done == &Err(expected.clone())), "{found:?}");
        assert_eq!(found[0].0.lines().count(), if place == 8 { 6 } else { 0 });
    }
}

#[test]
fn a_rank_that_alone_cannot_read_is_named() {
    let lines = lines(8);
    let found = on_ranks(2, |rank| {
        let unread = (rank.rank() == 1).then_some(1);
        Job { unread, ..Job::of(&lines, 2) }.done_by(rank, |_| Ok(()))
    });
    assert!(found.iter().all(|(_, done)| done == &Err("rank 1: block 1 is no text".into())), "{found:?}");
}

#[test]
fn the_others_end_without_an_error_where_nobody_looks_at_the_answers() {
    let lines = lines(20);
    for last in [0, 3, 9] {
        let found = on_ranks(2, |rank| {
            let shown = Cell::new(0);
            Job::of(&lines, 2).done_by(rank, |_| {
                shown.set(shown.get() + 1);
                if shown.get() > last { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
            })
        });
        assert_eq!(found[0].0.lines().count(), 2 * last);
        assert!(found[0].1.is_err() && found[1] == (String::new(), Ok(())), "{found:?}");
    }
}

#[test]
fn nobody_is_told_of_a_failure_behind_answers_that_nobody_looks_at() {
    let lines = lines(20);
    let job = Job { unanswered: Some(3), ..Job::of(&lines, 2) };
    // The answer of the first rank in the round in which the second one fails.
    let show = |answer: &str| -> io::Result<()> {
        if answer.starts_with("4 of") { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    };
    let found = on_ranks(2, |rank| job.done_by(rank, show));
    assert_eq!(found[0].0.lines().count(), 4);
    assert!(found[0].1.is_err() && found[1] == (String::new(), Ok(())), "{found:?}");
}

#[test]
fn what_there_is_of_an_answer_that_failed_is_shown() {
    for world in [1, 2, 3, 4] {
        let found = on_ranks(world, |rank| {
            let (mut blocks, mut shown) = (0..8_usize, String::new());
            let next = || Ok(blocks.next().map(|block| (block, vec![block.to_string()])));
            let answer = |before: usize, lines: &[String]| match before {
                3 => (Some("and a part".to_string()), Err(TaskError::new(false, "it is lost"))),
                4 => (None, Err(TaskError::new(false, "it is lost, too"))),
                _ => (Some(lines[0].clone()), Ok(())),
            };
            let show = |answer: String| -> Result<(), Box<dyn std::error::Error>> {
                shown.push_str(&answer);
                Ok(())
            };
            let done = deal_partial(rank, next, answer, show).map_err(|error| error.to_string());
            (shown, done)
        });
        assert_eq!(found[0].0, "012and a part", "{world}");
        let lost: Result<(), String> = Err("it is lost".to_string());
        assert!(found.iter().all(|(_, done)| *done == lost), "{found:?}");
        assert!(found[1..].iter().all(|(shown, _)| shown.is_empty()), "{found:?}");
    }
}

#[test]
fn an_answer_may_be_none() {
    let found = on_ranks(2, |rank| {
        let (mut blocks, mut shown) = (0..3_usize, Vec::new());
        let next = || Ok(blocks.next().map(|block| (block, Vec::new())));
        let show = |answer: Option<usize>| -> Result<(), Box<dyn std::error::Error>> {
            shown.push(answer);
            Ok(())
        };
        deal(rank, next, |before, _| Ok(Some(before).filter(|block| *block != 1)), show).unwrap();
        shown
    });
    assert_eq!(found, [vec![Some(0), None, Some(2)], vec![]]);
}

#[test]
fn a_rank_may_be_at_work_for_longer_than_the_others_wait() {
    let options = ThreadsOptions { timeout: Duration::from_secs(2), ..ThreadsOptions::default() };
    let shown = thread::scope(|scope| {
        let ranks = Threads::ranks(2, options).into_iter().map(|rank| {
            scope.spawn(move || {
                let (mut blocks, mut shown) =
                    (vec![(1, vec!["b".to_string()]), (0, vec!["a".to_string()])], String::new());
                let answer = |_: usize, lines: &[String]| {
                    thread::sleep(if rank.rank() == 1 { options.timeout * 11 / 10 } else { Duration::ZERO });
                    Ok(lines[0].clone())
                };
                let show = |answer: String| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
                    shown.push_str(&answer);
                    Ok(())
                };
                deal(&rank, || Ok(blocks.pop()), answer, show).unwrap();
                shown
            })
        });
        ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(shown, ["ab", ""]);
}

#[test]
fn a_rank_that_fails_ends_the_work_of_the_others() {
    let lines = lines(8);
    let found = on_ranks(2, |rank| {
        if rank.rank() == 1 {
            rank.fail("the machine is on fire");
            return None;
        }
        Some(Job::of(&lines, 2).done_by(rank, |_| Ok(())).1)
    });
    assert_eq!(found[0], Some(Err("rank 1 has failed: the machine is on fire".into())));
}
