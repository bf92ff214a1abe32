//! `cargo xtask agree`: a few steps of the same models on several backends, with our kernels and without, with fusion and
//! without; losses and gradients side by side. The first way is the measure of the others.

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::command::{built, cargo, run};
use crate::course::{Course, Difference};

const CPUS: [&str; 2] = ["flex", "ndarray"];
const STEPS: u32 = 3;
const TOLERANCE: f64 = 1e-4;

#[derive(Args)]
pub(crate) struct Options {
    /// The backends, each of which must work on this machine
    #[arg(long = "device", value_name = "NAME", value_delimiter = ',', default_values = CPUS)]
    devices: Vec<String>,
    /// Steps of each model
    #[arg(long, value_name = "N", default_value_t = STEPS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    steps: u32,
    /// The relative difference of a loss or a gradient that is still allowed
    #[arg(long, value_name = "X", default_value_t = TOLERANCE)]
    tolerance: f64,
}

/// One way to compute.
struct Way<'a> {
    device: &'a str,
    kernels: &'static str,
    fusion: &'static str,
}

/// The CPU backends, as the checks want it.
pub(crate) fn compare_cpus() -> Result<()> {
    compare(&Options { devices: CPUS.map(String::from).into(), steps: STEPS, tolerance: TOLERANCE })
}

pub(crate) fn compare(options: &Options) -> Result<()> {
    run("build of the course", &mut cargo(&build(&options.devices)))?;
    println!(
        "| model | device | kernels | fusion | first loss | last loss | losses differ by | gradients by | most in |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut first: Option<Course> = None;
    let mut largest: f64 = 0.0;
    for way in options.devices.iter().flat_map(|device| ways(device)) {
        let course = way.course(options.steps)?;
        for difference in course.against(first.as_ref().unwrap_or(&course))? {
            largest = largest.max(difference.largest());
            println!("{}", way.row(&difference));
        }
        first.get_or_insert(course);
    }
    ensure!(largest <= options.tolerance, "two ways differ by {largest:.1e}, more than {:.1e}", options.tolerance);
    Ok(())
}

/// The CPU backends take the build of their tests.
fn build(devices: &[String]) -> String {
    match devices.iter().filter(|device| !is_cpu(device)).map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => "build --workspace --features ndarray --example course".into(),
        gpus => format!("build -p firelight-tests --features ndarray,{} --example course", gpus.join(",")),
    }
}

fn is_cpu(device: &str) -> bool {
    CPUS.contains(&device)
}

/// Kernels on and off; on GPUs fusion on and off.
fn ways(device: &str) -> Vec<Way<'_>> {
    let fusions: &[&str] = if is_cpu(device) { &["-"] } else { &["on", "off"] };
    let kernels: &[&str] = if device == "ndarray" { &["reference"] } else { &["fused", "reference"] };
    let both = kernels.iter().flat_map(|kernels| fusions.iter().map(move |fusion| (kernels, fusion)));
    both.map(|(kernels, fusion)| Way { device, kernels, fusion }).collect()
}

impl Way<'_> {
    fn course(&self, steps: u32) -> Result<Course> {
        let file = tempfile::NamedTempFile::new()?;
        let mut command = built("debug/examples/course", "");
        command.arg(file.path()).arg(steps.to_string()).env("BURN_DEVICE", self.device);
        command.env("FIRELIGHT_KERNELS", self.kernels);
        if self.fusion == "off" {
            command.env("BURN_FUSION_MAX_EXPLORATIONS", "0");
        }
        let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        ensure!(output.status.success(), "{}: {}", self.device, String::from_utf8_lossy(&output.stderr));
        let course = Course::read(file.path())?;
        ensure!(
            course.kernels.starts_with(self.kernels),
            "{} was to run on {} kernels, and ran on {}",
            self.device,
            self.kernels,
            course.kernels
        );
        Ok(course)
    }

    fn row(&self, found: &Difference) -> String {
        let Self { device, kernels, fusion } = self;
        let Difference { model, losses: [first, last], of_losses, of_gradients, most } = found;
        format!(
            "| {model} | {device} | {kernels} | {fusion} | {first:.6} | {last:.6} | {of_losses:.1e} | {of_gradients:.1e} | {most} |"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_run_with_and_without_fusion() {
        let fusions = |device| ways(device).iter().map(|way| (way.kernels, way.fusion)).collect::<Vec<_>>();
        assert_eq!(fusions("flex"), [("fused", "-"), ("reference", "-")]);
        assert_eq!(fusions("ndarray"), [("reference", "-")]);
        assert_eq!(fusions("wgpu").len(), 4);
    }

    #[test]
    fn the_cpu_backends_share_the_build_of_the_tests() {
        let build = |devices: &[&str]| build(&devices.iter().map(|&name| name.into()).collect::<Vec<_>>());
        assert_eq!(build(&["flex", "ndarray"]), "build --workspace --features ndarray --example course");
        assert_eq!(build(&["flex", "wgpu"]), "build -p firelight-tests --features ndarray,wgpu --example course");
    }
}
