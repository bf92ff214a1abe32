//! `firelight bench attention --kinds`: how time and memory of layers of several kinds grow with the length of a sequence. Every
//! length of every kind is measured in a process of its own, as with `repeat.rs`.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use firelight::storage::write_atomic;
use firelight::training::experiments::PowerFit;
use firelight::training::{Chart, Series, draw_charts};
use serde_json::{Value, json};

use super::Bench;
use super::kind::Kind;
use crate::commands::drawing::{Format, format_of};
use crate::failure::{Mistake, USER};
use crate::output;

/// What is measured of time and memory, as the lines of `firelight bench --json` name it.
const TIME: &str = "seconds";
const MEMORY: &str = "peak_above_start_mib";

/// Refuses lengths that no exponent can be fitted to, and a file that could not be written in the end.
pub(super) fn check(bench: &Bench) -> Result<()> {
    if bench.kinds.is_empty() {
        return Ok(());
    }
    let given = bench.length.len();
    let few = || format!("--kinds compares 2 lengths or more, not {given}: give --lengths 256,512,1024");
    ensure!(given > 1, Mistake(few()));
    for pair in bench.length.windows(2) {
        let [first, next] = [pair[0], pair[1]];
        let falling = || format!("--lengths has {first} before {next}: give each length once, from the shortest on");
        ensure!(first < next, Mistake(falling()));
    }
    let Some(out) = &bench.out else { return Ok(()) };
    format_of(out, bench.force, &[Format::Svg])?;
    ensure!(bench.threads.len() == 1, Mistake("--out writes one file: give --threads one number".into()));
    Ok(())
}

/// Measures all kinds at all lengths, and tells each at once. Measurements that fail, as for want of memory, are left out, and the command
/// fails in the end.
pub(super) fn run(bench: &Bench) -> Result<()> {
    tell(!bench.json, headings)?;
    let (mut all, mut failed) = (Vec::new(), 0);
    for &kind in &bench.kinds {
        let growth = measure(bench, kind)?;
        failed += bench.length.len() - growth.points.len();
        tell(bench.json, || growth.to_json())?;
        all.push(growth);
    }
    tell(!bench.json, || exponents(&all))?;
    if let Some(out) = &bench.out {
        write_atomic(out, draw_charts(&charts(&all)))?;
        output::note(format_args!("wrote {}", out.display()));
    }
    ensure!(failed == 0, "{failed} of {} measurements failed and are left out", bench.kinds.len() * bench.length.len());
    Ok(())
}

fn tell(is_wanted: bool, text: impl FnOnce() -> String) -> Result<()> {
    if is_wanted {
        output::print(&text())?;
    }
    Ok(())
}

/// What was measured of one kind, by length.
struct Growth {
    kind: Kind,
    points: Vec<(u32, Value)>,
}

fn measure(bench: &Bench, kind: Kind) -> Result<Growth> {
    let mut points = Vec::new();
    for &length in &bench.length {
        let Some(line) = measure_once(bench, kind, length)? else { continue };
        tell(!bench.json, || to_row(kind, length, &line))?;
        points.push((length, line));
    }
    Ok(Growth { kind, points })
}

/// The line that a process of its own prints; none where it fails, which is noted. A mistake of the user would be that of all.
fn measure_once(bench: &Bench, kind: Kind, length: u32) -> Result<Option<Value>> {
    let output = command(bench, kind, length)?.stderr(Stdio::inherit()).output()?;
    let failed = || format!("the measurement of {kind} at {length} tokens failed");
    ensure!(output.status.code() != Some(USER.into()), Mistake(failed()));
    if !output.status.success() {
        output::note(format_args!("{} ({})", failed(), output.status));
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&output.stdout)?))
}

fn command(bench: &Bench, kind: Kind, length: u32) -> Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    let options = [format!("--kind={kind}"), format!("--length={length}"), format!("--runs={}", bench.runs)];
    command.args(["bench", "attention", "--json"]).args(options).arg(format!("--threads={}", bench.threads()));
    command.args(bench.device.iter().map(|device| format!("--device={device}")));
    command.envs(kind.variable());
    Ok(command)
}

impl Growth {
    /// One figure at each length; none where the system does not tell it.
    fn column(&self, key: &str) -> Vec<Option<f64>> {
        self.points.iter().map(|(_, line)| line[key].as_f64()).collect()
    }

    /// How a figure grows; none where it is unknown or 0 at some length.
    fn fit(&self, key: &str) -> Option<PowerFit> {
        let point = |((length, _), value): (&(u32, Value), Option<f64>)| Some((f64::from(*length), value?));
        let points = self.points.iter().zip(self.column(key)).map(point).collect::<Option<Vec<_>>>()?;
        PowerFit::of(&points).ok()
    }

    /// The logarithms of one figure over that of the length.
    fn series(&self, key: &str) -> Series {
        let point =
            |((length, _), value): (&(u32, Value), Option<f64>)| Some((f64::from(*length).log10(), value?.log10()));
        let points = self.points.iter().zip(self.column(key)).filter_map(point).collect();
        let power = self.fit(key).map_or(String::new(), |fit| format!(" T^{:.2}", fit.exponent));
        Series { name: format!("{}{power}", self.kind), points }
    }

    fn to_json(&self) -> String {
        let lengths: Vec<u32> = self.points.iter().map(|(length, _)| *length).collect();
        let common = |key: &str| self.points.first().map(|(_, line)| line[key].clone());
        let line = json!({
            "kind": self.kind.to_string(),
            "framework": common("framework"),
            "device": common("device"),
            "kernels": common("kernels"),
            "dtype": common("dtype"),
            "threads": common("threads"),
            "lengths": lengths,
            "seconds": self.column(TIME),
            "peak_mib": self.column("peak_mib"),
            "peak_above_start_mib": self.column(MEMORY),
            "time": self.fit(TIME),
            "memory": self.fit(MEMORY),
        });
        format!("{line}\n")
    }
}

fn headings() -> String {
    row(["KIND", "TOKENS", "THREADS", "MS/STEP", "PEAK MIB", "ABOVE START"].map(str::to_string))
}

fn to_row(kind: Kind, length: u32, line: &Value) -> String {
    let figure = |key: &str| line[key].as_f64();
    let size = |key: &str| figure(key).map_or("unknown".to_string(), |mebibytes| format!("{mebibytes:.0}"));
    let milliseconds = figure(TIME).map_or("unknown".to_string(), |seconds| format!("{:.2}", 1e3 * seconds));
    let [kind, length, threads] = [kind.to_string(), length.to_string(), line["threads"].to_string()];
    row([kind, length, threads, milliseconds, size("peak_mib"), size(MEMORY)])
}

/// A line of the table of measurements.
fn row([kind, length, threads, step, peak, above]: [String; 6]) -> String {
    format!("{kind:<18} {length:>8} {threads:>7} {step:>11} {peak:>9} {above:>12}\n")
}

/// The table of exponents.
fn exponents(all: &[Growth]) -> String {
    let headings = ["KIND", "TIME ~ T^", "95 % INTERVAL", "MEMORY ~ T^", "95 % INTERVAL"].map(str::to_string);
    let line = |growth: &Growth| {
        let ([time, within], [memory, near]) = (in_words(growth.fit(TIME)), in_words(growth.fit(MEMORY)));
        exponents_row([growth.kind.to_string(), time, within, memory, near])
    };
    format!("\n{}{}", exponents_row(headings), all.iter().map(line).collect::<String>())
}

fn exponents_row([kind, time, within, memory, near]: [String; 5]) -> String {
    format!("{kind:<18} {time:>10} {within:>16} {memory:>12} {near:>16}\n")
}

/// An exponent and its interval.
fn in_words(fit: Option<PowerFit>) -> [String; 2] {
    let exponent = fit.map_or("unknown".to_string(), |fit| format!("{:.2}", fit.exponent));
    let interval = fit.and_then(|fit| fit.interval);
    [exponent, interval.map_or("-".to_string(), |[low, high]| format!("{low:.2} to {high:.2}"))]
}

/// Time and memory, a line for each kind.
fn charts(all: &[Growth]) -> [Chart; 2] {
    let labels = [(TIME, "log10 of seconds"), (MEMORY, "log10 of MiB above the start")];
    labels.map(|(key, y_label)| {
        let series = all.iter().map(|growth| growth.series(key)).collect();
        Chart { x_label: "log10 of tokens".into(), y_label: y_label.into(), series }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three lengths, at which time and memory are powers of the length.
    fn growth(kind: Kind, time: f64, memory: Option<f64>) -> Growth {
        let line = |length: u32| {
            let size = f64::from(length);
            json!({ "seconds": 1e-6 * size.powf(time), "threads": 2, "peak_mib": 512.4,
                "peak_above_start_mib": memory.map(|memory| 0.01 * size.powf(memory)) })
        };
        Growth { kind, points: [256, 512, 1024].map(|length| (length, line(length))).to_vec() }
    }

    #[test]
    fn exponents_stand_beside_their_kinds_in_eighty_columns() {
        let all = [growth(Kind::Softmax, 2.0, Some(1.0)), growth(Kind::Window(16_777_216), 1.0, None)];
        let text = exponents(&all);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[2], ["softmax", "2.00", "2.00", "to", "2.00", "1.00", "1.00", "to", "1.00"], "{text}");
        assert_eq!(words[3], ["window:16777216", "1.00", "1.00", "to", "1.00", "unknown", "-"], "{text}");
        let rows = headings() + &to_row(Kind::Window(16_777_216), 16_777_216, &all[0].points[0].1) + &text;
        assert!(rows.lines().all(|line| line.chars().count() <= 80), "{rows}");
        assert!(
            rows.lines().nth(1).is_some_and(|line| line.contains(" 2       65.54       512            3")),
            "{rows}"
        );
    }

    #[test]
    fn a_line_of_json_has_the_figures_and_their_powers() {
        let line: Value = serde_json::from_str(&growth(Kind::Lstm, 1.0, Some(0.5)).to_json()).unwrap();
        let near = |value: &Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 1e-9;
        assert!(line["kind"] == "lstm" && line["lengths"] == json!([256, 512, 1024]) && line["threads"] == 2, "{line}");
        assert!(near(&line["seconds"][1], 512e-6) && near(&line["peak_above_start_mib"][0], 0.16), "{line}");
        assert!(near(&line["time"]["exponent"], 1.0) && near(&line["memory"]["exponent"], 0.5), "{line}");
        let line: Value = serde_json::from_str(&growth(Kind::Linear, 1.0, None).to_json()).unwrap();
        assert!(line["memory"].is_null() && line["peak_above_start_mib"] == json!([null, null, null]), "{line}");
    }

    #[test]
    fn a_chart_has_logarithms_and_leaves_out_what_is_unknown() {
        let [time, memory] = charts(&[growth(Kind::FeedForward, 1.0, None)]);
        assert_eq!(
            (time.series[0].name.as_str(), memory.series[0].name.as_str()),
            ("feed-forward T^1.00", "feed-forward")
        );
        let (x, y) = time.series[0].points[0];
        assert!((x - 256_f64.log10()).abs() < 1e-12 && (y - 256e-6_f64.log10()).abs() < 1e-9, "{x} {y}");
        assert!(time.series[0].points.len() == 3 && memory.series[0].points.is_empty());
    }
}
