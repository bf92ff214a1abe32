//! `cargo xtask fixtures`: computes the golden tensors anew; needs python3 with torch, numpy and safetensors.

use anyhow::Result;

use crate::command::{program, run};

pub(crate) fn regenerate() -> Result<()> {
    run("golden tensors", &mut program("python3", "tests/fixtures/generate.py"))
}
