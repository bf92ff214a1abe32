//! The attention weights of a trace, and heads that share their keys and values.

use burn::tensor::{Bool, Tensor};
use firelight::nn::invariants::{Violation, rows_sum_to_one};
use firelight::nn::{
    AdditiveScore, Attention, AttentionMechanism, Linear, Mechanism, Mixer, MixerConfig, ParamBuilder, Pass,
    Projection, SeparateProjection, SequenceInput, Trace, Transformer, TransformerConfig,
};

use super::{assert_close, each, forward, tolerance};
use crate::support::grid::{decoder_pairs, encoder_pairs};
use crate::support::{Noise, device, distance, is_gpu};

fn shapes(trace: &Trace) -> Vec<[usize; 4]> {
    trace.layers.iter().map(|layer| layer.attention.as_ref().expect("weights").dims()).collect()
}

/// Rows sum to one, or to less where sinks have the rest.
fn rows_sum(config: &TransformerConfig, model: &Transformer, weights: Tensor<4>) -> Result<(), Violation> {
    if !config.first().block.attention.sinks {
        return rows_sum_to_one(weights, tolerance(model));
    }
    let sums = weights.clone().sum_dim(3);
    // Beside scores that are large by comparison a sink's share is less than a rounding.
    let [least, most] = [sums.clone().min(), sums.clone().max()].map(|sum| sum.into_scalar::<f64>());
    assert!(least < 1.0 && most <= 1.0 + tolerance(model), "{least} to {most} beside a sink: {config:?}");
    rows_sum_to_one(weights / sums, tolerance(model))
}

#[test]
fn a_trace_changes_nothing_and_its_rows_sum_to_one() {
    let mut noise = Noise::new(8);
    let has_weights = |config: &TransformerConfig| !matches!(config.first().block.mixer, MixerConfig::GatedDelta(_));
    each(decoder_pairs().into_iter().filter(has_weights), |config, model| {
        let (prompt, next) = (noise.tensor([1, 4, 16]), noise.tensor([1, 1, 16]));
        let padding = Tensor::<2, Bool>::from_bool([[true, false, false, false]], &device());
        let first = SequenceInput::default().with_padding(padding);
        let mut plain = model.full_cache(16);
        model.forward(prompt.clone(), &first, &mut Pass::cached(&mut plain));
        let expected = model.forward(next.clone(), &SequenceInput::default(), &mut Pass::cached(&mut plain));

        let (mut cache, mut trace) = (model.full_cache(16), Trace::default());
        model.forward(prompt, &first, &mut Pass::cached(&mut cache).with_trace(&mut trace));
        assert_eq!(shapes(&trace), [[1, 4, 4, 4]; 2]);
        let mut pass = Pass::cached(&mut cache).with_trace(&mut trace);
        let output = model.forward(next, &SequenceInput::default(), &mut pass);
        // On a CPU to the bit, where the weights are formed in any case; a GPU fuses operations otherwise when one more
        // result is wanted.
        let difference = distance(&output, &expected);
        let same = config.first().block.attention.mechanism == AttentionMechanism::DotProduct && !is_gpu();
        let allowed = if same { 0.0 } else { tolerance(model) };
        assert!(difference <= allowed, "{difference:e}: {config:?}");
        assert_eq!(shapes(&trace), [[1, 4, 1, 5]; 2]);
        trace.layers.iter().try_for_each(|layer| {
            let weights = layer.attention.clone().expect("weights");
            assert_eq!(weights.clone().narrow(3, 0, 1).max().into_scalar::<f32>(), 0.0, "padding is never seen");
            rows_sum(config, model, weights)
        })
    });
}

#[test]
fn every_row_of_an_encoder_sums_to_one() {
    let mut noise = Noise::new(10);
    each(encoder_pairs(), |config, model| {
        let mut trace = Trace::default();
        let mut pass = Pass::default().with_trace(&mut trace);
        model.forward(noise.tensor([2, 5, 16]), &SequenceInput::default(), &mut pass);
        trace.layers.into_iter().try_for_each(|layer| rows_sum(config, model, layer.attention.expect("weights")))
    });
}

/// The columns of `n_kv_heads` heads, each head `4 / n_kv_heads` times in a row.
fn repeated(x: Tensor<2>, n_kv_heads: usize) -> Tensor<2> {
    let [rows, columns] = x.dims();
    let shape = [rows, n_kv_heads, 4 / n_kv_heads, columns / n_kv_heads];
    let heads = x.reshape([rows, n_kv_heads, 1, columns / n_kv_heads]).expand(shape);
    heads.reshape([rows, 4 * columns / n_kv_heads])
}

/// The same attention with four key/value heads.
fn with_all_heads(attention: &Attention, n_kv_heads: usize) -> (Projection, Mechanism) {
    let parts = attention.projection.clone().into_separate();
    let Projection::Separate(SeparateProjection { query, key, value }) = parts else { panic!("three matrices") };
    let [key, value] = [key, value].map(|layer| Linear {
        weight: layer.weight.map(|weight| repeated(weight, n_kv_heads)),
        bias: layer.bias.map(|bias| bias.map(|bias| repeated(bias.unsqueeze(), n_kv_heads).squeeze_dim(0))),
        adapter: None,
    });
    let mechanism = match attention.mechanism.clone() {
        Mechanism::Additive(score) => {
            let key = score.key.map(|key| repeated(key, n_kv_heads));
            Mechanism::Additive(AdditiveScore { key, ..score })
        }
        other => other,
    };
    let projection = Projection::Separate(SeparateProjection { query, key, value });
    let fuses = matches!(attention.projection, Projection::Fused(_));
    (if fuses { projection.into_fused() } else { projection }, mechanism)
}

#[test]
fn shared_keys_and_values_are_repeated_ones() {
    let mut noise = Noise::new(11);
    let of_attention = |config: &TransformerConfig| config.first().block.mixer == MixerConfig::Attention;
    each(decoder_pairs().into_iter().filter(of_attention), |config, grouped| {
        // All weights but those of the attention are the same by their seed and path.
        let mut full = config
            .clone()
            .each_layer(|layer| layer.block.attention.n_kv_heads = None)
            .init_with(&ParamBuilder::new(&device(), 0));
        for (block, source) in full.blocks.iter_mut().zip(&grouped.blocks) {
            let n_kv_heads = config.first().block.attention.n_kv_heads.expect("the grid sets it");
            let (Mixer::Attention(all), Mixer::Attention(source)) = (&mut block.attention, &source.attention) else {
                panic!("an attention");
            };
            (all.projection, all.mechanism) = with_all_heads(source, n_kv_heads);
        }
        let x = noise.tensor([1, 6, 16]);
        assert_close(forward(grouped, x.clone()), forward(&full, x), config);
        Ok(())
    });
}
