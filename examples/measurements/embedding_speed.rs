//! How fast a sentence model turns texts into vectors: a file of texts, one a line, read several times.
//!
//! Command: cargo run --release -p firelight-examples --example embedding_speed -- all-MiniLM-L6-v2/ texts.txt 5 [bf16x3]
//! Time: some seconds for a thousand texts.
//! Expect: how much of the batches is padding, then one line for each time, with the seconds and the texts of a second; loading is not counted.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use burn::tensor::Device;
use firelight::classification::Embedder;
use firelight::data::{Batching, longest_first};
use firelight::kernels::MatmulPrecision;
use firelight::pretrained::{import_cache, run_folder};
use firelight::storage::{Checkpoint, TaskError};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, texts, times, precision) = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [model, texts, times] => (*model, *texts, *times, MatmulPrecision::F32),
        [model, texts, times, "bf16x3"] => (*model, *texts, *times, MatmulPrecision::Bf16x3),
        _ => {
            eprintln!("usage: embedding_speed MODEL TEXTS TIMES [bf16x3]");
            return ExitCode::from(2);
        }
    };
    match precision.within(|| measure(Path::new(model), Path::new(texts), times.parse().unwrap_or(1))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            firelight::problems(&error).iter().for_each(|problem| eprintln!("error: {problem}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(model: &Path, texts: &Path, times: usize) -> Result<(), TaskError> {
    let run = run_folder(model, &import_cache(), |told| eprintln!("{told}"))?;
    let embedder = Embedder::load_from(run, &Checkpoint::Last, &Device::default())?;
    let texts = firelight::data::read_text(texts)?;
    let texts: Vec<&str> = texts.lines().collect();
    let (batches, padding) = padding(&embedder, &texts)?;
    println!("{batches} batches, {:.1} % of them padding", 100.0 * padding);
    for _ in 0..times {
        let start = Instant::now();
        let vectors = embedder.embed(&texts)?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{} texts in {seconds:.3} s, {:.1} texts a second", vectors.len(), vectors.len() as f64 / seconds);
    }
    Ok(())
}

/// The number of batches, and the part of their tokens that is padding, for texts with one token in front and one behind.
fn padding(embedder: &Embedder, texts: &[&str]) -> Result<(usize, f64), TaskError> {
    let tokenizer = embedder.vocabulary().tokenizer();
    let encoded: Vec<Vec<u32>> = texts.iter().map(|text| tokenizer.encode(text)).collect::<Result<_, _>>()?;
    let lengths: Vec<usize> = encoded.iter().map(|ids| ids.len() + 2).collect();
    let batches = longest_first(lengths.iter().copied(), Batching::TOKENS_TO_READ, usize::MAX, 0.08);
    let whole: usize = batches.iter().map(|batch| batch.len() * lengths[batch[0]]).sum();
    Ok((batches.len(), 1.0 - lengths.iter().sum::<usize>() as f64 / whole as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_is_not_there_is_told() {
        let error = measure(Path::new("../no/such"), Path::new("texts.txt"), 1).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("there is no folder `../no/such`"), "{error}");
    }
}
