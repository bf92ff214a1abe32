//! `cargo xtask bench`: Firelight beside other programs, two in turn, and how time and memory of attention grow with its
//! length. The others take the flags of `firelight bench` and print the same JSON. What is measured goes to the benchmark
//! part of docs/results.md.

mod reference;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::command::{built, cargo, run, workspace_root};
use reference::{Beside, Reference};

/// The program of PyTorch if no other is named.
const REFERENCE: &str = "bench/pytorch_reference.py";

/// What is fitted.
const PATTERNS: [&str; 7] =
    ["causal", "window:256", "around:256", "chunks:256", "strided:512", "local_global:256,16", "bigbird:64,16,3"];
const LENGTHS: &str = "1024,2048,4096,8192,16384";

/// The part of the results between these lines is written anew.
const BEGIN: &str = "<!-- benchmarks: written by `cargo xtask bench` -->";
const END: &str = "<!-- end of benchmarks -->";

#[derive(Args)]
pub(crate) struct Options {
    /// The programs to measure beside
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "pytorch,llama-cpp")]
    beside: Vec<Beside>,
    /// The Python program of PyTorch, or another with the flags of `firelight bench`
    #[arg(long, value_name = "FILE", default_value = REFERENCE)]
    reference: PathBuf,
    /// The interpreter of the Python programs, with torch and llama-cpp-python
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Threads of all programs; by default as many as each takes by itself
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// How often both programs are run, in turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only the works whose arguments hold this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Write the tables into docs/results.md
    #[arg(long)]
    write: bool,
}

pub(crate) fn compare(options: &Options) -> Result<()> {
    let found = options.beside.iter().map(|&beside| Reference::find(beside, options));
    let references = found.collect::<Result<Vec<_>>>()?;
    run("release build", &mut cargo("build --release -p firelight-cli"))?;
    let mut part = String::new();
    for reference in &references {
        part += &table(reference, options)?;
    }
    part +=
        "| attention, forward and backward | exponent of time | exponent of memory | measured |\n|---|---|---|---|\n";
    for pattern in PATTERNS.iter().filter(|pattern| pattern.contains(&options.only)) {
        part += &growth(pattern, options)?;
    }
    println!("\n{part}");
    if options.write { write(&part) } else { Ok(()) }
}

/// A row for each work; nothing where there is none.
fn table(reference: &Reference, options: &Options) -> Result<String> {
    let mut rows = String::new();
    for work in reference.works().iter().filter(|work| work.contains(&options.only)) {
        rows += &row(&with_threads(work, options.threads), reference, options.rounds)?;
    }
    let name = reference.name();
    let headings =
        format!("| work | tokens per second | {name} | ratio | memory above the start, MiB | in all | {name} |");
    Ok(if rows.is_empty() { rows } else { format!("{headings}\n|---|---|---|---|---|---|---|\n{rows}\n") })
}

fn with_threads(work: &str, threads: Option<u32>) -> String {
    threads.map_or(work.to_string(), |threads| format!("{work} --threads {threads}"))
}

/// Both programs in turn; every figure is a median, the ratio that of two.
fn row(work: &str, reference: &Reference, rounds: u32) -> Result<String> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let kept = reference.file(work)?;
    let file = kept.as_ref().map(|(_, file)| file.as_path());
    for round in 0..rounds as usize {
        theirs.push(json(&mut reference.at(work, file))?);
        ours.push(json(&mut built("release/firelight", &format!("bench {work} --json")))?);
        for key in ["peak_mib", "tokens_per_second"] {
            number(&theirs[round], key)?; // Fails at once where the reference leaves one out.
        }
        let [ours, theirs] = [&ours, &theirs].map(|lines| number(&lines[round], "tokens_per_second"));
        eprintln!("{work}: {:.1} beside {:.1} tokens per second", ours?, theirs?);
    }
    let [rate, rate_of_theirs] = [median_of(&ours, "tokens_per_second")?, median_of(&theirs, "tokens_per_second")?];
    let [peak, peak_of_theirs] = [median_of(&ours, "peak_mib")?, median_of(&theirs, "peak_mib")?];
    let above = median_of(&ours, "peak_above_start_mib")?;
    let ratio = rate / rate_of_theirs;
    Ok(format!(
        "| `{work}` | {rate:.1} | {rate_of_theirs:.1} | {ratio:.2} | {above:.0} | {peak:.0} | {peak_of_theirs:.0} |\n"
    ))
}

/// The median of one figure of the lines that a program has printed.
fn median_of(lines: &[Value], key: &str) -> Result<f64> {
    Ok(median(lines.iter().map(|line| number(line, key)).collect::<Result<_>>()?))
}

/// The slopes of time and memory over the length, both logarithmic, by least squares; of every length the medians of all rounds.
fn growth(pattern: &str, options: &Options) -> Result<String> {
    let lengths: Vec<f64> = LENGTHS.split(',').filter_map(|length| length.parse().ok()).collect();
    let mut lines = vec![Vec::new(); lengths.len()];
    let command = format!("bench attention --lengths {LENGTHS} --pattern {pattern} --runs 5 --json");
    let command = with_threads(&command, options.threads);
    for _ in 0..options.rounds {
        for (found, line) in lines.iter_mut().zip(text(&mut built("release/firelight", &command))?.lines()) {
            found.push(serde_json::from_str(line)?);
        }
    }
    let column = |key| lines.iter().map(|lines| median_of(lines, key)).collect::<Result<Vec<f64>>>();
    let (seconds, memory) = (column("seconds")?, column("peak_above_start_mib")?);
    let measured: Vec<String> = lengths
        .iter()
        .zip(seconds.iter().zip(&memory))
        .map(|(length, (seconds, memory))| format!("{length}: {:.0} ms, {memory:.0} MiB", 1e3 * seconds))
        .collect();
    let exponents = [&seconds, &memory].map(|values| exponent(&lengths, values));
    Ok(format!("| {pattern} | {:.2} | {:.2} | {} |\n", exponents[0], exponents[1], measured.join("; ")))
}

fn exponent(lengths: &[f64], values: &[f64]) -> f64 {
    let points: Vec<(f64, f64)> = lengths.iter().zip(values).map(|(x, y)| (x.ln(), y.ln())).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    covariance / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn json(command: &mut Command) -> Result<Value> {
    Ok(serde_json::from_str(text(command)?.trim())?)
}

fn text(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{:?} failed: {}", command.get_program(), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) fn number(line: &Value, key: &str) -> Result<f64> {
    line[key].as_f64().with_context(|| format!("`{key}` is missing in {line}"))
}

fn write(part: &str) -> Result<()> {
    let path = workspace_root().join("docs/results.md");
    let results = fs::read_to_string(&path)?;
    let begin = results.find(BEGIN).context("docs/results.md has no place for benchmarks")? + BEGIN.len();
    let end = results.find(END).context("docs/results.md has no end of the benchmarks")?;
    fs::write(&path, format!("{}\n\n{part}\n{}", &results[..begin], &results[end..]))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_has_the_exponent_two() {
        let lengths = [1.0, 2.0, 4.0];
        assert!((exponent(&lengths, &lengths.map(|length| 3.0 * length * length)) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn threads_are_those_of_the_programs_where_nobody_says() {
        assert_eq!(with_threads("decode --runs 1", None), "decode --runs 1");
        assert_eq!(with_threads("decode --runs 1", Some(2)), "decode --runs 1 --threads 2");
    }

    #[test]
    fn a_missing_number_is_named() {
        let line = serde_json::json!({ "seconds": 1.5 });
        assert_eq!(number(&line, "seconds").ok(), Some(1.5));
        assert!(number(&line, "peak_mib").is_err_and(|error| error.to_string().starts_with("`peak_mib` is missing")));
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
