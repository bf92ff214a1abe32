//! `cargo xtask test`: the tests on one device. The CPU backends share one build and run everything; a GPU backend is built
//! in alone and runs the packages that compute, see docs/backends.md.

use anyhow::Result;
use clap::Args;

use crate::command::{cargo, run};

/// The packages whose tests are about numbers; the others never touch a device or start programs of their own.
const NUMERICAL_PACKAGES: &str = "-p firelight-kernels -p firelight-core -p firelight-language -p firelight-tests";

#[derive(Args)]
pub(crate) struct Options {
    /// flex, ndarray, wgpu, vulkan, metal, cuda or rocm, with `:i` for the i-th GPU; both CPU backends if not given
    #[arg(long)]
    device: Option<String>,
}

pub(crate) fn run_selected(options: &Options) -> Result<()> {
    match options.device.as_deref() {
        Some(device) => run_on(device),
        None => run_on("flex").and_then(|()| run_on("ndarray")),
    }
}

/// Runs the tests that `device` is for, chosen through `BURN_DEVICE`.
pub(crate) fn run_on(device: &str) -> Result<()> {
    run(&format!("tests on {device}"), cargo(&arguments(device)).env("BURN_DEVICE", device))
}

/// Documentation examples run once, on flex. Of the GPU features exactly one is built in: `vulkan` beside `wgpu` would
/// make both compile SPIR-V, which software Vulkan does not survive.
fn arguments(device: &str) -> String {
    match device.split(':').next().unwrap_or(device) {
        "flex" => "test --workspace --features ndarray".to_owned(),
        "ndarray" => "test --workspace --features ndarray --tests".to_owned(),
        gpu => format!("test {NUMERICAL_PACKAGES} --features {gpu} --tests"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_backends_share_one_build() {
        assert_eq!(arguments("flex"), "test --workspace --features ndarray");
        assert!(arguments("ndarray").starts_with(&arguments("flex")));
    }

    #[test]
    fn a_gpu_backend_is_built_in_alone() {
        for device in ["wgpu", "wgpu:1"] {
            let line = arguments(device);
            assert!(line.contains("--features wgpu --tests"), "{line}");
            assert!(!line.contains("vulkan") && !line.contains("--workspace"), "{line}");
        }
    }
}
