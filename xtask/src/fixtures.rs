//! `cargo xtask fixtures`: computes the golden values anew; needs python3 with torch, numpy, safetensors, transformers
//! and sacrebleu.

use anyhow::Result;

use crate::command::{program, run};

pub(crate) fn regenerate() -> Result<()> {
    run("golden tensors", &mut program("python3", "tests/fixtures/generate.py"))?;
    run("golden scores of text", &mut program("python3", "tests/fixtures/text_metrics.py"))
}
