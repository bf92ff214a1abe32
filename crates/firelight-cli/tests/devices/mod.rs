//! The devices that there are, and what is said of one that cannot be had.

#[cfg(target_os = "linux")]
use std::fs;

#[cfg(target_os = "linux")]
use crate::MACHINE;
use crate::USER;
use crate::support::{command, finish, firelight, train_with};

#[test]
fn devices_names_the_default() {
    let finished = firelight(["devices"]).succeeds();
    assert!(finished.stdout.lines().any(|line| line.starts_with("flex")), "{}", finished.stdout);
    assert!(finished.stdout.contains("\ndefault: "), "{}", finished.stdout);
    assert!(finished.stderr.is_empty(), "{}", finished.stderr);
}

#[test]
fn a_device_that_cannot_be_had_lists_those_that_can() {
    train_with(&["--device", "toaster"]).fails(USER, &["`toaster`", "cuda[:INDEX]", "available: ", "flex"]);
    if !cfg!(feature = "rocm") {
        train_with(&["--device", "rocm"]).fails(USER, &["`rocm`", "--features rocm", "available: ", "flex"]);
    }
    let mut variable = command(["devices"]);
    variable.env("BURN_DEVICE", "toaster");
    finish(variable).fails(USER, &["BURN_DEVICE=toaster", "flex"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_the_machines_fault() {
    let mut full = command(["devices"]);
    full.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    finish(full).fails(MACHINE, &["cannot write to the standard output", "space"]);
}

#[test]
fn verbose_output_names_the_path_of_each_operation() {
    let bench = ["bench", "attention", "--length", "8", "--runs", "1", "--device", "flex", "--verbose"];
    for (value, path) in [("fused", "fused kernels"), ("reference", "reference kernels")] {
        let mut verbose = command(bench);
        verbose.env("FIRELIGHT_KERNELS", value);
        assert_eq!(finish(verbose).succeeds().stderr, format!("debug: attention: {path}\n"));
    }
    let quiet = &bench[..bench.len() - 1];
    assert_eq!(firelight(quiet).succeeds().stderr, "");
    let mut unknown = command(quiet);
    unknown.env("FIRELIGHT_KERNELS", "Reference");
    let warning =
        "warn: FIRELIGHT_KERNELS=Reference is unknown and taken for `fused`: expected `fused` or `reference`\n";
    assert_eq!(finish(unknown).succeeds().stderr, warning);
}
