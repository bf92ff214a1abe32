//! Short programs that show Firelight as a library; run one with `cargo run --release -p firelight-examples --example quickstart`.

use std::process::ExitCode;

use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use firelight::data::Tokenizer;
use firelight::generation::{GenerationOptions, Sampler};

/// Runs a program and prints its error as the command does: one line that says what to do, and an exit code that is not 0. A
/// `main` that returns a `Result` would print the error's fields instead.
pub fn report(program: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Takes `steps` steps of AdamW by the loss that a model has in each. Returns the model and the losses, and prints every sixth part of
/// them.
pub fn train<M: Module>(mut model: M, steps: usize, loss: impl Fn(&M, usize) -> Tensor<1>) -> (M, Vec<f32>) {
    let (mut optimizer, mut losses) = (AdamWConfig::new().init(), Vec::new());
    for step in 0..steps {
        let loss = loss(&model, step);
        losses.push(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(3e-3, model, gradients);
    }
    println!("loss {:?}", losses.iter().step_by(steps / 6).chain(losses.last()).collect::<Vec<_>>());
    (model, losses)
}

/// Writes `length` tokens behind a prompt and prints them. `read` gives the logits of the tokens that the model has not read yet,
/// `[1, T] -> [1, T, V]`: the prompt at once, then one token at a time.
///
/// # Errors
/// If the prompt has characters that the tokenizer does not know, or the logits are no distribution.
pub fn write(
    prompt: &str,
    length: usize,
    (tokenizer, device): (&Tokenizer, &Device),
    mut read: impl FnMut(Tensor<2, Int>) -> Tensor<3>,
) -> anyhow::Result<()> {
    let sampler = Sampler::new(&GenerationOptions::new(1).with_temperature(0.5))?;
    let (mut unread, mut written) = (tokenizer.encode(prompt)?, Vec::new());
    for step in 0..length {
        let tokens = Tensor::<1, Int>::from_ints(unread.as_slice(), device).unsqueeze();
        let last = read(tokens).narrow(1, unread.len() - 1, 1).squeeze_dim(1); // [1, V]
        unread = sampler.sample(last, step)?.ids;
        written.extend(unread.clone());
    }
    println!("{prompt}{}", tokenizer.decode(&written));
    Ok(())
}
