//! `cargo xtask test`: the tests on one device. The CPU backends share one build: flex runs everything, and ndarray all but the packages that
//! do not compute. A GPU backend is built in alone and runs the numerical packages, see docs/backends.md.

use anyhow::Result;
use clap::Args;

use crate::command::{cargo, run};

/// The backends there are. `BURN_DEVICE`, which carries the choice to the tests, takes these names and nothing else.
const BACKENDS: [&str; 7] = ["flex", "ndarray", "wgpu", "vulkan", "metal", "cuda", "rocm"];

/// The packages whose tests compute on the device. Decoding, clipping and whole trainings are among `firelight-tests`,
/// because the packages that they test know no backend; cargo gives `--features` to those of these packages that have it.
const NUMERICAL_PACKAGES: &str = "-p firelight-kernels -p firelight-core -p firelight-language -p firelight-tests";

/// The packages that ndarray need not run again: the command, which passes a device on, files, and this one. They stand here because
/// no other package has fewer features without them, so that both CPU backends still share one build. firelight-data is no such package: without
/// it, nobody asks for its feature `default`, and all that stands on it would be built anew.
const WITHOUT_ARITHMETIC: [&str; 3] = ["firelight-cli", "firelight-storage", "xtask"];

#[derive(Args)]
pub(crate) struct Options {
    /// flex, ndarray, wgpu, vulkan, metal, cuda or rocm; both CPU backends if not given
    #[arg(long, value_parser = backend)]
    device: Option<String>,
    /// Build in the release profile and run the packages that compute
    #[arg(long)]
    release: bool,
}

pub(crate) fn run_selected(options: &Options) -> Result<()> {
    match options.device.as_deref() {
        Some(device) => run_in(device, options.release),
        None => ["flex", "ndarray"].into_iter().try_for_each(|device| run_in(device, options.release)),
    }
}

/// Runs the tests that `device` is for. Without a name flex is chosen of the two CPU backends, so its line is the one of
/// the README to the letter.
pub(crate) fn run_on(device: &str) -> Result<()> {
    run_in(device, false)
}

fn run_in(device: &str, release: bool) -> Result<()> {
    let mut command = cargo(&arguments(device, release));
    match device {
        "flex" => command.env_remove("BURN_DEVICE"),
        named => command.env("BURN_DEVICE", named),
    };
    run(&format!("tests on {device}"), &mut command)
}

/// What needs no kernel of ours to be right: parity with PyTorch, the grid of variants, whole runs. On flex, where there are some.
pub(crate) fn run_without_kernels() -> Result<()> {
    let mut command = cargo("test --workspace --features ndarray --test end_to_end");
    command.env_remove("BURN_DEVICE").env("FIRELIGHT_KERNELS", "reference");
    run("tests on flex without kernels", &mut command)
}

/// Documentation examples run once, on flex. Of the GPU features exactly one is built in: `vulkan` beside `wgpu` would
/// make both compile SPIR-V, which software Vulkan does not survive. It does without autotune, too, whose candidates take
/// most of its time.
fn arguments(device: &str, release: bool) -> String {
    let profile = if release { " --release" } else { "" };
    match device {
        "flex" if !release => "test --workspace --features ndarray".to_owned(),
        "ndarray" if !release => {
            let left_out = WITHOUT_ARITHMETIC.map(|package| format!(" --exclude {package}")).concat();
            format!("test --workspace --features ndarray --tests{left_out}")
        }
        "flex" | "ndarray" => format!("test {NUMERICAL_PACKAGES} --features ndarray --tests{profile}"),
        "wgpu" => format!("test {NUMERICAL_PACKAGES} --features wgpu --tests --no-fail-fast{profile}"),
        gpu => format!("test {NUMERICAL_PACKAGES} --features {gpu},autotune --tests --no-fail-fast{profile}"),
    }
}

fn backend(name: &str) -> Result<String, String> {
    let backend = name.split(':').next().unwrap_or(name);
    match BACKENDS.contains(&backend) {
        true if backend == name => Ok(name.to_owned()),
        true => Err(format!("BURN_DEVICE takes a backend without an index, give `{backend}`")),
        false => Err(format!("expected one of {}", BACKENDS.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::command::workspace_root;

    /// Whether a crate has a feature for each backend.
    fn passes_backends_on(manifest: &Path) -> bool {
        let text = fs::read_to_string(manifest).unwrap_or_default();
        let named = BACKENDS.iter().filter(|backend| text.contains(&format!("\n{backend} = [")));
        let count = named.count();
        assert!([0, BACKENDS.len()].contains(&count), "{count} backends in {}", manifest.display());
        count > 0
    }

    #[test]
    fn four_crates_have_features_of_backends() {
        let crates = fs::read_dir(workspace_root().join("crates")).unwrap();
        let paths =
            crates.map(|entry| entry.unwrap().path()).filter(|path| passes_backends_on(&path.join("Cargo.toml")));
        let mut names: Vec<_> = paths.map(|path| path.file_name().unwrap().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["firelight", "firelight-cli", "firelight-core", "firelight-kernels"]);
    }

    #[test]
    fn the_cpu_backends_share_one_build() {
        assert_eq!(arguments("flex", false), "test --workspace --features ndarray");
        let ndarray = "test --workspace --features ndarray --tests --exclude firelight-cli --exclude firelight-storage --exclude xtask";
        assert_eq!(arguments("ndarray", false), ndarray);
        assert_eq!(arguments("ndarray", true), arguments("flex", true));
    }

    #[test]
    fn what_ndarray_leaves_out_is_there_and_computes_nowhere_else() {
        for package in WITHOUT_ARITHMETIC {
            let folders = [workspace_root().join("crates").join(package), workspace_root().join(package)];
            assert!(folders.iter().any(|folder| folder.join("Cargo.toml").is_file()), "{package}");
            assert!(!NUMERICAL_PACKAGES.contains(package), "{package}");
        }
    }

    #[test]
    fn a_release_tests_the_packages_that_compute() {
        for device in BACKENDS {
            let line = arguments(device, true);
            assert!(line.contains(NUMERICAL_PACKAGES) && line.ends_with("--release"), "{line}");
            assert!(!arguments(device, false).contains("--release"), "{device}");
        }
    }

    #[test]
    fn a_gpu_backend_is_built_in_alone() {
        let line = arguments("wgpu", false);
        assert!(line.contains("--features wgpu --tests"), "{line}");
        assert!(!line.contains("vulkan") && !line.contains("--workspace"), "{line}");
    }

    #[test]
    fn a_device_is_named_by_its_backend_alone() {
        assert_eq!(backend("wgpu"), Ok("wgpu".to_owned()));
        assert_eq!(backend("wgpu:1"), Err("BURN_DEVICE takes a backend without an index, give `wgpu`".to_owned()));
        assert!(backend("gpu").is_err_and(|text| text.contains("expected one of flex, ndarray")));
    }
}
