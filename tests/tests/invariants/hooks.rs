//! Hooks read and write what the pass does, in every variant.

use burn::tensor::Tensor;
use firelight::nn::{Ablation, ActivationSlice, Activations, Hooks, NormPlacement, Pass, SequenceInput, Transformer};

use super::{assert_close, each, tolerance};
use crate::support::grid::decoder_pairs;
use crate::support::{Noise, distance, is_gpu};

/// What the layers read and add: all that is formed in any case.
const OUTPUTS: [&str; 4] = [
    "blocks.0.attention.output",
    "blocks.0.feed_forward.output",
    "blocks.1.attention.output",
    "blocks.1.feed_forward.output",
];

fn run(model: &Transformer, x: &Tensor<3>, hooks: &mut Hooks) -> (Tensor<3>, Activations) {
    let forward = |pass: &mut Pass| model.forward(x.clone(), &SequenceInput::default(), pass);
    hooks.run(forward).unwrap_or_else(|error| panic!("{error}"))
}

fn found(activations: &Activations, path: &str) -> Tensor<3> {
    activations.get::<3>(path).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn hooks_read_and_write_the_residual_stream_of_every_variant() {
    let mut noise = Noise::new(12);
    each(decoder_pairs(), |config, model| {
        let x = noise.tensor([2, 5, 16]);
        let plain = model.forward(x.clone(), &SequenceInput::default(), &mut Pass::default());
        let recording = || {
            let hooks = Hooks::new().record("embedding").record("blocks.*.output").record("blocks.*.attention.heads");
            OUTPUTS.into_iter().fold(hooks, |hooks, path| hooks.record(path))
        };
        let (recorded, activations) = run(model, &x, &mut recording());
        assert_close(recorded.clone(), plain, config);
        // Back where it was.
        let heads = activations.get::<4>("blocks.1.attention.heads").unwrap_or_else(|error| panic!("{error}"));
        let patch = |hooks: Hooks, path: &str| hooks.patch(path, found(&activations, path), ActivationSlice::all());
        let patching = OUTPUTS.into_iter().fold(recording(), patch);
        let mut patching = patching.patch("blocks.1.attention.heads", heads, ActivationSlice::all());
        let difference = distance(&run(model, &x, &mut patching).0, &recorded);
        assert!(difference <= if is_gpu() { tolerance(model) } else { 0.0 }, "{difference:e}: {config:?}");
        // The stream is a sum, unless a norm stands behind each addition.
        if config.first().block.norm_placement != NormPlacement::Post {
            let parts = OUTPUTS.into_iter().map(|path| found(&activations, path));
            let sum = parts.fold(found(&activations, "embedding"), |sum, part| sum + part);
            assert_close(found(&activations, "blocks.1.output"), sum, config);
            let off = Hooks::new().record("blocks.1.output").record("embedding");
            let mut off = off.ablate("blocks.*.*.output", Ablation::Zero, ActivationSlice::all());
            let (_, activations) = run(model, &x, &mut off);
            let left = distance(&found(&activations, "blocks.1.output"), &found(&activations, "embedding"));
            assert!(left <= tolerance(model), "{left:e}: {config:?}");
        }
        Ok(())
    });
}
