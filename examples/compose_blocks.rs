//! A new architecture from parts in 60 lines, one of them its own: trained on generated stories, and sampled through a cache.
//!
//! Three layers of four look at the last 16 characters, the fourth at the whole text; all know their order by rotary positions, share
//! keys and values among two heads, and have RMSNorms. Each of these is one line. Their feed-forward networks are defined here: the
//! product of two linear maps, the bilinear unit of Shazeer 2020, §2 (<https://arxiv.org/abs/2002.05202>). own_mixer.rs defines what
//! mixes the tokens.
//!
//! Command: cargo run --release -p firelight-examples --example compose_blocks
//! Time: about half a minute once it is built, on two CPU cores.
//! Expect: a loss that falls from 4.0 to about 1.2 nats per character, and a story whose words are mostly words.

use burn::prelude::*;
use firelight::data::{Tokenizer, TokenizerConfig, stories};
use firelight::nn::*;
use firelight_examples::{train, write};

/// `(x W_1 * x W_2) W_3`.
#[derive(Module, Debug)]
struct Bilinear {
    maps: [Linear; 3],
}

impl FeedForwardNetwork for Bilinear {
    fn forward(&self, x: Tensor<3>, _: &LayerContext, _: &mut LayerPass) -> Tensor<3> {
        let [left, right, output] = &self.maps;
        output.forward(left.forward(x.clone()) * right.forward(x))
    }
}

#[derive(Module, Debug)]
struct Model {
    embedding: TokenEmbedding,
    head: LmHead,
    stack: Transformer<TransformerBlock<Attention, Bilinear>>,
}

impl Model {
    fn new(vocab_size: usize, params: &ParamBuilder) -> Self {
        let near = AttentionPattern::SlidingWindow { left: 15, right: 0 };
        let stack = TransformerConfig::new(64, 4, 4)
            .with_patterns(vec![near, near, near, AttentionPattern::Causal])
            .with_position(PositionConfig::rotary())
            .with_n_kv_heads(2)
            .with_norm(NormConfig::rms());
        let map = |params: &ParamBuilder, name| LinearConfig::new(64, 64).init_with(&params.scope(name));
        let own = |params: &ParamBuilder| Bilinear { maps: ["left", "right", "output"].map(|name| map(params, name)) };
        let stack = stack.init_layers(&params.scope("stack"), |_, block, params| {
            block.init_parts(params, |params| block.attention.init_with(params), own)
        });
        let embedding = TokenEmbeddingConfig::new(vocab_size, 64).init_with(&params.scope("embedding"));
        let head = LmHeadConfig::new(64, vocab_size).init_with(&params.scope("head"));
        Self { embedding, head, stack }
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
    let model = Model::new(tokenizer.vocab_size(), &ParamBuilder::new(&ids.device(), 1));
    let (model, losses) = train(model, steps, |model, step| {
        let windows = ids.clone().narrow(0, step * 520, 520).reshape([8, 65]);
        let logits = model.forward(windows.clone().narrow(1, 0, 64), Pass::default());
        LossConfig::new().init().forward(logits, windows.narrow(1, 1, 64), None).mean()
    });
    let (mut cache, model) = (model.stack.cache(8 + length), model.valid());
    write("One day ", length, (&tokenizer, &device), |tokens| model.forward(tokens, Pass::cached(&mut cache)))?;
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
