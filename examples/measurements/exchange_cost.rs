//! Measures what the exchange of gradients costs between ranks: how long the smallest sum over all of them takes and one of 16 MiB, the line
//! through both, and what the cost model of docs/scaling.md makes of it for 124 million parameters.
//!
//! Command: cargo run --release -p firelight-examples --example exchange_cost -- STEP_SECONDS [RANKS] [--toy]
//! (STEP_SECONDS: how long one rank computes in a step; RANKS: threads of this process, by default 2)
//! or, built with `--features mpi`: mpirun -q --bind-to none -n 2 target/release/examples/exchange_cost STEP_SECONDS
//! Time: seconds.
//! Expect: three lines, with numbers of the machine that it runs on.

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use firelight::training::scaling::{BUCKET, ExchangeCost};
use firelight::training::{Communicator, Threads, ThreadsOptions};
use firelight_mpi::{Member, MpiOptions, join};

const USAGE: &str = "STEP_SECONDS [RANKS] [--toy]";

/// The model of the prediction: GPT-2 in its smallest size.
const PARAMETERS: usize = 124_000_000;

/// More threads than any machine has cores for.
const MOST: usize = 1024;

/// Bytes of a number.
const NUMBER: usize = 4;

/// The numbers of the smaller and of the larger sum, and how often each is measured.
type Sums = [(usize, usize); 2];
const FULL: Sums = [(1, 1001), (BUCKET, 21)];
const TOY: Sums = [(1, 5), (1 << 12, 3)];

/// The sums that were measured: the bytes of each, and its seconds.
type Found = [(usize, f64); 2];

fn main() -> ExitCode {
    firelight_examples::report(|| {
        let (toy, words) = firelight_examples::toy_and_words(2, USAGE)?;
        let (step, threads) = asked(&words)?;
        let member = join(MpiOptions::default())?;
        let (ranks, found) = found(&member, threads, if toy { TOY } else { FULL })?;
        member.leave()?;
        if member.rank() == 0 {
            println!("{}", told(&ranks, found, step));
        }
        Ok(())
    })
}

/// The seconds of a step, and the number of threads if it is named.
fn asked(words: &[String]) -> Result<(f64, Option<usize>)> {
    let step = words.first().with_context(|| format!("expected {USAGE} behind the `--`"))?;
    let seconds: f64 = step.parse().with_context(|| format!("STEP_SECONDS is `{step}`: expected a number"))?;
    ensure!(seconds.is_finite() && seconds > 0.0, "STEP_SECONDS is {step}: expected a number above 0");
    let Some(ranks) = words.get(1) else { return Ok((seconds, None)) };
    let threads: usize = ranks.parse().with_context(|| format!("RANKS is `{ranks}`: expected a whole number"))?;
    ensure!((2..=MOST).contains(&threads), "RANKS is {threads}: expected a number from 2 to {MOST}");
    Ok((seconds, Some(threads)))
}

/// Measures between the processes that were started together, or else between threads of this one.
fn found(member: &Member, threads: Option<usize>, sums: Sums) -> Result<(String, Found)> {
    let world = member.world();
    if world == 1 {
        let world = threads.unwrap_or(2);
        return Ok((format!("{world} threads"), between_threads(world, sums)?));
    }
    ensure!(threads.is_none(), "RANKS is for threads, and mpirun started {world} processes: leave it out");
    Ok((format!("{world} processes"), measured(&*member.communicator(), sums)?))
}

/// What the first of so many threads measures.
fn between_threads(world: usize, sums: Sums) -> Result<Found> {
    let ranks = Threads::ranks(world, ThreadsOptions::default());
    let found: Result<Vec<Found>> = thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || measured(&rank, sums))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a sum does not panic")).collect()
    });
    Ok(found?[0])
}

/// The bytes and seconds of both sums, seen from one of the ranks, all of which call it.
fn measured(rank: &dyn Communicator, [small, large]: Sums) -> Result<Found> {
    Ok([median(rank, small)?, median(rank, large)?])
}

/// The bytes of a sum of so many numbers, and the median of its seconds.
fn median(rank: &dyn Communicator, (numbers, times): (usize, usize)) -> Result<(usize, f64)> {
    let mut values = vec![0.0; numbers];
    rank.sum_f32(&mut values)?; // the first one takes memory and makes connections
    let mut seconds = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        rank.sum_f32(&mut values)?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok((NUMBER * numbers, seconds[times / 2]))
}

/// `a` and `b` of `seconds = a + b * bytes`, the line through both sums.
fn line([small, large]: Found) -> (f64, f64) {
    let per_byte = (large.1 - small.1) / (large.0 - small.0) as f64;
    (small.1 - per_byte * small.0 as f64, per_byte)
}

/// The sums, the line, and what follows from it for a step.
fn told(ranks: &str, found: Found, step: f64) -> String {
    let [(few, short), (many, long)] = found;
    let (fixed, per_byte) = line(found);
    let exchange = ExchangeCost::of_line(fixed, per_byte).seconds(PARAMETERS);
    let (rate, share) = (many as f64 / long / 1e9, 100.0 * ExchangeCost::efficiency(step, exchange));
    format!(
        "{ranks}: a sum of {few} bytes takes {:.1} µs, one of {many} bytes {:.2} ms, which are {rate:.2} GB/s\n\
         seconds of a sum = {fixed:.2e} + {per_byte:.2e} * bytes\n\
         {} million parameters: a step computes for {step} s and exchanges for {exchange:.2} s, an efficiency of {share:.0} %",
        1e6 * short,
        1e3 * long,
        PARAMETERS / 1_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_between_threads_are_measured_at_toy_size() -> Result<()> {
        let found = between_threads(3, TOY)?;
        assert_eq!(found.map(|(bytes, _)| bytes), [4, 4 << 12]);
        assert!(found.iter().all(|(_, seconds)| *seconds > 0.0), "{found:?}");
        Ok(())
    }

    #[test]
    fn a_step_is_predicted_by_the_line_through_both_sums() {
        // 0.1 ms, and 1 ns for each byte: of 124 million parameters 950 rounds of 0.05 ms, and 496 MB at 0.911 ns a byte.
        let seconds = |bytes: usize| (bytes, 1e-4 + 1e-9 * bytes as f64);
        let found = [4, 16 << 20].map(seconds);
        let (fixed, per_byte) = line(found);
        assert!((fixed - 1e-4).abs() < 1e-9 && (per_byte - 1e-9).abs() < 1e-14, "{fixed} {per_byte}");
        let expected = "2 threads: a sum of 4 bytes takes 100.0 µs, one of 16777216 bytes 16.88 ms, which are 0.99 GB/s\n\
                        seconds of a sum = 1.00e-4 + 1.00e-9 * bytes\n\
                        124 million parameters: a step computes for 0.5 s and exchanges for 0.50 s, an efficiency of 50 %";
        assert_eq!(told("2 threads", found, 0.5), expected);
    }

    #[test]
    fn words_that_are_no_numbers_are_refused() {
        let asked = |line: &str| asked(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>());
        assert_eq!(asked("0.25").unwrap(), (0.25, None));
        assert_eq!(asked("0.25 4").unwrap(), (0.25, Some(4)));
        for (line, part) in
            [("", USAGE), ("fast", "`fast`"), ("-1", "above 0"), ("1 1", "from 2"), ("1 many", "`many`")]
        {
            let error = asked(line).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
