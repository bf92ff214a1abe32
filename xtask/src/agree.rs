//! `cargo xtask agree`: the same model, batches and seed on several backends, with our kernels and without, with fusion and
//! without; losses and norms of the gradients side by side. The first row is the measure of the others.

use std::{env, fs, process};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::command::{cargo, firelight, run};

#[derive(Args)]
pub(crate) struct Options {
    /// The backends, each of which must work on this machine
    #[arg(long = "device", value_name = "NAME", value_delimiter = ',', default_values = ["flex", "ndarray"])]
    devices: Vec<String>,
    /// Steps of the built-in training
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    steps: u32,
    /// The relative difference of a loss or a norm that is still allowed
    #[arg(long, value_name = "X", default_value_t = 1e-4)]
    tolerance: f64,
}

/// One way to compute.
struct Way<'a> {
    device: &'a str,
    kernels: &'static str,
    fusion: &'static str,
}

/// What came of it: the losses and the norms of the gradients, step by step.
type Course = [Vec<f64>; 2];

pub(crate) fn compare(options: &Options) -> Result<()> {
    let features = options.devices.join(",");
    run("release build", &mut cargo(&format!("build --release -p firelight-cli --features {features}")))?;
    println!("| device | kernels | fusion | first loss | last loss | losses differ by | norms of gradients by |");
    println!("|---|---|---|---|---|---|---|");
    let mut courses: Vec<Course> = Vec::new();
    let mut largest: f64 = 0.0;
    for way in options.devices.iter().flat_map(|device| ways(device)) {
        courses.push(way.course(options.steps)?);
        let (first, last) = (&courses[0], &courses[courses.len() - 1]);
        let differences = [0, 1].map(|i| difference(&last[i], &first[i]));
        largest = differences.into_iter().fold(largest, f64::max);
        println!("{}", way.row(last, differences));
    }
    ensure!(largest <= options.tolerance, "two ways differ by {largest:.1e}, more than {:.1e}", options.tolerance);
    Ok(())
}

/// Kernels on and off; on GPUs fusion on and off.
fn ways(device: &str) -> Vec<Way<'_>> {
    let fusions: &[&str] = if ["flex", "ndarray"].contains(&device) { &["-"] } else { &["on", "off"] };
    let kernels: &[&str] = if device == "ndarray" { &["reference"] } else { &["fused", "reference"] };
    let both = kernels.iter().flat_map(|kernels| fusions.iter().map(move |fusion| (kernels, fusion)));
    both.map(|(kernels, fusion)| Way { device, kernels, fusion }).collect()
}

impl Way<'_> {
    fn course(&self, steps: u32) -> Result<Course> {
        let folder = env::temp_dir().join(format!("firelight-agree-{}", process::id()));
        let mut command = firelight(&format!("train --device {} --steps {steps} --force --out", self.device));
        command.arg(&folder);
        if self.kernels == "reference" {
            command.env("FIRELIGHT_KERNELS", "reference");
        }
        if self.fusion == "off" {
            command.env("BURN_FUSION_MAX_EXPLORATIONS", "0");
        }
        let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        ensure!(output.status.success(), "{}: {}", self.device, String::from_utf8_lossy(&output.stderr));
        let metrics = fs::read_to_string(folder.join("metrics.jsonl"))?;
        fs::remove_dir_all(&folder)?;
        read(&metrics)
    }

    fn row(&self, [losses, _]: &Course, [of_losses, of_norms]: [f64; 2]) -> String {
        let Self { device, kernels, fusion } = self;
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        format!("| {device} | {kernels} | {fusion} | {first:.6} | {last:.6} | {of_losses:.1e} | {of_norms:.1e} |")
    }
}

/// Losses and norms of the steps among the lines of a run's metrics.
fn read(metrics: &str) -> Result<Course> {
    let lines = metrics.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let course = ["loss", "gradient_norm"].map(|key| lines.iter().filter_map(|line| line[key].as_f64()).collect());
    let [losses, norms]: &Course = &course;
    ensure!(!losses.is_empty() && losses.len() == norms.len(), "the metrics of a run lack losses or norms: {metrics}");
    Ok(course)
}

/// The largest relative difference.
fn difference(found: &[f64], expected: &[f64]) -> f64 {
    let each = found.iter().zip(expected).map(|(found, expected)| (found / expected - 1.0).abs());
    each.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn courses_are_read_and_compared() {
        let lines = r#"{"step":1,"loss":4.0,"gradient_norm":2.0}
{"step":2,"loss":2.0,"gradient_norm":1.0}
{"step":2,"validation_loss":3.0}"#;
        let [losses, norms] = read(lines).expect("two steps");
        assert_eq!((losses.as_slice(), norms.as_slice()), ([4.0, 2.0].as_slice(), [2.0, 1.0].as_slice()));
        assert_eq!(difference(&[4.0, 2.5], &losses), 0.25);
        assert!(read("{}").is_err());
    }

    #[test]
    fn gpus_are_run_with_and_without_fusion() {
        let fusions = |device| ways(device).iter().map(|way| (way.kernels, way.fusion)).collect::<Vec<_>>();
        assert_eq!(fusions("flex"), [("fused", "-"), ("reference", "-")]);
        assert_eq!(fusions("ndarray"), [("reference", "-")]);
        assert_eq!(fusions("wgpu").len(), 4);
    }
}
