//! Two structures that compute the same: what only trainings need, and what can be said in two ways, is left out of the comparison.

use firelight_core::{ExpertsConfig, LayerConfig, PositionConfig, ProjectionKind, TransformerConfig, WeightInit};

use crate::Structure;

/// The structure without dropout, adapters and initial weights, and with every default spelt out.
pub(super) fn plain(structure: &Structure) -> Structure {
    let mut structure = structure.clone();
    structure.remove_adapters();
    structure.remove_settings();
    for stack in structure.stacks_mut() {
        *stack = plain_stack(stack.clone());
    }
    structure
}

fn plain_stack(stack: TransformerConfig) -> TransformerConfig {
    let (n_layers, position) = (stack.n_layers, stack.position.clone());
    let mut stack = stack.with_dropout(0.0).with_stochastic_depth(0.0).with_init(WeightInit::default());
    if position == PositionConfig::None {
        stack.max_seq_len = 1; // Nothing is counted: trainings on images write how many patches they have.
    }
    let layers = match stack.share_layers {
        true => stack.layers.clone(),
        false => stack.layers.iter().cycle().take(n_layers).cloned().collect(),
    };
    stack.with_layers(layers).each_layer(|layer| {
        if layer.position.as_ref() == Some(&position) {
            layer.position = None;
        }
        plain_layer(layer);
    })
}

fn plain_layer(layer: &mut LayerConfig) {
    let block = &mut layer.block;
    let attention = &mut block.attention;
    attention.n_kv_heads = Some(attention.n_kv_heads.unwrap_or(attention.n_heads));
    attention.d_head = Some(attention.d_head.unwrap_or(attention.d_model / attention.n_heads.max(1)));
    attention.d_value = attention.d_value.or(attention.d_head);
    attention.qkv_bias = Some(attention.qkv_bias.unwrap_or(attention.bias));
    attention.projection = ProjectionKind::Separate;
    let feed_forward = &mut block.feed_forward;
    let usual = feed_forward.activation.default_d_ff(feed_forward.d_model);
    feed_forward.d_ff = Some(feed_forward.d_ff.unwrap_or(usual));
    feed_forward.dropout = 0.0;
    block.experts = block.experts.map(|experts| ExpertsConfig {
        renormalise: Some(experts.renormalise.unwrap_or(experts.top_k > 1)),
        capacity: None,
        ..experts
    });
}
