//! `cargo xtask losses`: the recipe for a CPU, trained by Firelight and by `bench/pytorch_language_model.py`, with the settings of
//! two rows of docs/results.md.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::bench::{json, number};
use crate::command::{built, cargo, program, run};

/// A row: what it is called, the settings of the recipe, and the same for the program in PyTorch.
const ROWS: [[&str; 3]; 2] = [
    ["the recipe", "", ""],
    [
        "rotary positions, RMSNorm, norms of queries and keys, no biases",
        "optimizer.learning_rate=3e-3 schedule.min_learning_rate=0 model.position=rotary model.norm=rms \
         model.query_key_norm=rms model.bias=false",
        "--modern --learning-rate 3e-3 --min-learning-rate 0",
    ],
];

#[derive(Args)]
pub(crate) struct Options {
    /// The text: tiny Shakespeare
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The seeds of each row, in both programs
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1337,1,2,3,4")]
    seeds: Vec<u64>,
}

pub(crate) fn compare(options: &Options) -> Result<()> {
    run("release build", &mut cargo("build --release -p firelight-cli"))?;
    println!("| model | seed | Firelight | PyTorch |\n|---|---|---|---|");
    for [title, settings, flags] in ROWS {
        for seed in &options.seeds {
            let (ours, theirs) = (ours(options, *seed, settings)?, theirs(options, *seed, flags)?);
            println!("| {title} | {seed} | {ours:.4} | {theirs:.4} |");
        }
    }
    Ok(())
}

/// The loss over the whole validation part, as `firelight evaluate` prints it.
fn ours(options: &Options, seed: u64, settings: &str) -> Result<f64> {
    let home = tempfile::tempdir()?;
    let folder = home.path().join("run");
    let mut train = built("release/firelight", "train recipes/shakespeare-char-cpu.toml");
    train.arg("--data").arg(&options.data).arg("--out").arg(&folder).args(["--seed", &seed.to_string()]);
    train.args(settings.split_whitespace().flat_map(|setting| ["--set", setting]));
    run("training", &mut train)?;
    number(&json(built("release/firelight", "evaluate --json").arg(&folder).arg("--data").arg(&options.data))?, "loss")
}

fn theirs(options: &Options, seed: u64, flags: &str) -> Result<f64> {
    let mut train = program("python3", &format!("bench/pytorch_language_model.py --seed {seed} {flags}"));
    number(&json(train.arg("--data").arg(&options.data))?, "validation_loss")
}
