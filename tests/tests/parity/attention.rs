//! The choices of attention against PyTorch: norms of queries and keys, width of the values, mechanisms.

use firelight::nn::{
    AttentionConfig, AttentionContext, AttentionMask, AttentionMechanism, EncoderOutput, LayerPass, NormConfig,
    PositionScheme, Positions, ProjectionKind, Rotary, RotaryLayout,
};

use crate::support::device;
use crate::support::golden::Golden;

#[test]
fn norms_of_queries_and_keys_agree() {
    for (name, norm) in [("query_key_norm_rms", NormConfig::rms()), ("query_key_norm_layer", NormConfig::layer())] {
        let golden = Golden::load(name);
        let x = golden.input::<3>("x", &device());
        let config = AttentionConfig::new(16, 4).with_n_kv_heads(2).with_bias(false).with_query_key_norm(Some(norm));
        let layer = golden.fill(config.init(&x.device()));
        let positions = Positions::contiguous(0, 5);
        let rotation = Rotary::new(4, 10_000.0, RotaryLayout::Halves).rotation(&positions, &x.device());
        let context = AttentionContext { rotation, ..AttentionContext::masked(AttentionMask::causal()) };
        let output = layer.forward(x.clone(), &context, &mut LayerPass::default());
        golden.agrees(output, [("x", &x)], &layer);
    }
}

#[test]
fn values_of_their_own_width_agree() {
    let golden = Golden::load("attention_d_value");
    for kind in [ProjectionKind::Separate, ProjectionKind::Fused] {
        let config =
            AttentionConfig::new(12, 4).with_n_kv_heads(2).with_d_head(3).with_d_value(5).with_projection(kind);
        let cases: Vec<_> = golden.cases().collect();
        let fused = |case: &Golden| if kind == ProjectionKind::Fused { case.fused() } else { case.part("") };
        check(&config, &cases[0], &fused(&cases[0]), Source::Causal);
        check(&config, &cases[1], &fused(&cases[1]), Source::Memory);
    }
}

#[test]
fn mechanisms_agree() {
    use AttentionMechanism::{Additive, Bilinear, Linear, Performer};
    let [linear, scores, performer] = ["attention_linear", "attention_scores", "attention_performer"].map(Golden::load);
    let cases = linear.cases().zip([Linear; 2]).chain(scores.cases().zip([Bilinear, Bilinear, Additive, Additive]));
    let cases = cases.chain(performer.cases().zip([Performer { features: 7 }; 2]));
    let mut count = 0;
    for (case, mechanism) in cases {
        let config = AttentionConfig::new(12, 4).with_n_kv_heads(2).with_d_head(3).with_d_value(5);
        let source = if count % 2 == 0 { Source::Causal } else { Source::Memory };
        check(&config.with_mechanism(mechanism), &case, &case, source);
        count += 1;
    }
    assert_eq!(count, 8);
}

/// What a layer attends to.
#[derive(PartialEq)]
enum Source {
    /// Its input, the future hidden.
    Causal,
    /// `memory`, and `memory_padding` where the case has it.
    Memory,
}

/// Output and all gradients of one layer, whose parameters may stand in another order than those of the case.
fn check(config: &AttentionConfig, case: &Golden, parameters: &Golden, source: Source) {
    let x = case.input::<3>("x", &device());
    let layer = parameters.fill(config.init(&x.device()));
    let pass = &mut LayerPass::default();
    let memory = (source == Source::Memory).then(|| case.input::<3>("memory", &device()));
    let output = match &memory {
        Some(hidden) => {
            let padding = case.has("memory_padding").then(|| case.flags("memory_padding", &x.device()));
            layer.forward_cross(x.clone(), &EncoderOutput::new(hidden.clone()).with_padding(padding), pass)
        }
        None => layer.forward(x.clone(), &AttentionContext::masked(AttentionMask::causal()), pass),
    };
    case.check("output", output.clone());
    let gradients = case.backward(output);
    case.check_gradient("x", &x, &gradients);
    if let Some(memory) = &memory {
        case.check_gradient("memory", memory, &gradients);
    }
    parameters.check_gradients(&layer, &gradients);
}
