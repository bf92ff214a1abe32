//! A new architecture from parts in 60 lines: trained on generated stories, and sampled through a cache.
//!
//! Three layers of four look at the last 16 characters, the fourth at the whole text; all know their order by rotary
//! positions, share keys and values among two heads, norm queries and keys, gate their feed-forward networks, and have an
//! RMSNorm before and after every part. Each of these is one line.
//!
//! Command: cargo run --release -p firelight-examples --example compose_blocks
//! Time: about half a minute once it is built, on two CPU cores.
//! Expect: a loss that falls from 4.0 to about 1.2 nats per character, and a story whose words are mostly words.

use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use firelight::data::{Tokenizer, TokenizerConfig, stories};
use firelight::generation::{GenerationOptions, Sampler};
use firelight::nn::*;

#[derive(Module, Debug)]
struct Model {
    embedding: TokenEmbedding,
    head: LmHead,
    stack: Transformer,
}

impl Model {
    fn new(vocab_size: usize, params: &ParamBuilder) -> Self {
        let near = AttentionPattern::SlidingWindow { left: 15, right: 0 };
        let stack = TransformerConfig::new(64, 4, 4)
            .with_patterns(vec![near, near, near, AttentionPattern::Causal])
            .with_position(PositionConfig::rotary())
            .with_n_kv_heads(2)
            .with_query_key_norm(Some(NormConfig::rms()))
            .with_activation(Activation::SwiGlu)
            .with_norm(NormConfig::rms())
            .with_norm_placement(NormPlacement::Sandwich);
        let embedding = TokenEmbeddingConfig::new(vocab_size, 64).init_with(&params.scope("embedding"));
        let head = LmHeadConfig::new(64, vocab_size).init_with(&params.scope("head"));
        Self { embedding, head, stack: stack.init_with(&params.scope("stack")) }
    }

    /// `[B, T] -> [B, T, V]`; with a cache the tokens continue where it ends.
    fn forward(&self, tokens: Tensor<2, Int>, mut pass: Pass) -> Tensor<3> {
        let hidden = self.stack.forward(self.embedding.forward(tokens), &SequenceInput::default(), &mut pass);
        self.head.forward(hidden, &self.embedding) // Tied: the embedding's matrix.
    }
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(|| run(600, 160).map(drop))
}

/// Trains for `steps` steps of eight windows, writes `length` characters, and returns the losses.
fn run(steps: usize, length: usize) -> anyhow::Result<Vec<f32>> {
    let device = firelight::device::select(None)?;
    let text = stories(1, steps * 520);
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &text)?;
    let ids = Tensor::<1, Int>::from_ints(tokenizer.encode(&text)?.as_slice(), &device.clone().autodiff());
    let mut model = Model::new(tokenizer.vocab_size(), &ParamBuilder::new(&ids.device(), 1));
    let (mut optimizer, mut losses) = (AdamWConfig::new().init(), Vec::new());
    for step in 0..steps {
        let windows = ids.clone().narrow(0, step * 520, 520).reshape([8, 65]);
        let logits = model.forward(windows.clone().narrow(1, 0, 64), Pass::default());
        let loss = LossConfig::new().init().forward(logits, windows.narrow(1, 1, 64), None).mean();
        losses.push(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(3e-3, model, gradients);
    }
    println!("loss {:?}", losses.iter().step_by(steps / 6).chain(losses.last()).collect::<Vec<_>>());

    // The prompt is read at once, then one character at a time.
    let (model, sampler) = (model.valid(), Sampler::new(&GenerationOptions::new(1).with_temperature(0.5))?);
    let (mut cache, mut next, mut written) = (model.stack.cache(8 + length), tokenizer.encode("One day ")?, vec![]);
    for step in 0..length {
        // [1, T] -> [1, T, V]
        let logits = model.forward(Tensor::<1, Int>::from_ints(&*next, &device).unsqueeze(), Pass::cached(&mut cache));
        next = sampler.sample(logits.narrow(1, next.len() - 1, 1).squeeze_dim(1), step)?.ids;
        written.extend(next.clone());
    }
    println!("One day {}", tokenizer.decode(&written));
    Ok(losses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_and_writes_in_60_lines() {
        let losses = run(60, 20).unwrap();
        assert!(losses[59] < losses[0] - 1.0, "{losses:?}");
        let program = include_str!("compose_blocks.rs").split("#[cfg(test)]").next().unwrap();
        let code = program.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
        assert!(code.count() <= 60);
    }
}
