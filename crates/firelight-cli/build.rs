//! Tells the command its commit, where there is a git repository, and the backends it is built with.

use std::env;
use std::path::Path;
use std::process::Command;

/// The backends, each a feature of this package.
const BACKENDS: [&str; 7] = ["flex", "ndarray", "wgpu", "vulkan", "metal", "cuda", "rocm"];

/// Where this package lies in its repository; another repository around it says nothing of it.
const PLACE: &str = "crates/firelight-cli/";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let commit = commit().unwrap_or_else(|| "unknown".into());
    let is_built_in = |name: &&str| env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some();
    let backends: Vec<&str> = BACKENDS.into_iter().filter(is_built_in).collect();
    println!("cargo:rustc-env=FIRELIGHT_COMMIT={commit}");
    println!("cargo:rustc-env=FIRELIGHT_BACKENDS={}", backends.join(", "));
}

/// The commit that is checked out; none in a package that was published, or without git.
fn commit() -> Option<String> {
    if git(&["rev-parse", "--show-prefix"])? != PLACE {
        return None;
    }
    let reference = git(&["rev-parse", "--symbolic-full-name", "HEAD"])?;
    ["HEAD", &reference, "packed-refs"]
        .iter()
        .filter_map(|name| git(&["rev-parse", "--git-path", name]))
        .for_each(watch);
    git(&["rev-parse", "--short=10", "HEAD"])
}

/// Builds anew when the file changes; one that is not there would do so every time.
fn watch(path: String) {
    if Path::new(&path).is_file() {
        println!("cargo:rerun-if-changed={path}");
    }
}

/// What git answers; none where it fails or is not there.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(env::var_os("CARGO_MANIFEST_DIR")?).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}
