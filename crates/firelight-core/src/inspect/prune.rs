//! Heads that are taken out for good.
//!
//! Source: Michel et al. 2019, §4 (<https://arxiv.org/abs/1905.10650>); which heads, by [`ablation_effects`](super::ablation_effects) or
//! [`head_sensitivity`](super::head_sensitivity), is left to the caller.

use crate::error::{Checks, ConfigError};
use crate::init::ParamBuilder;
use crate::mixer::Mixer;
use crate::position::PositionConfig;
use crate::transformer::{LayerConfig, Transformer, TransformerConfig};
use burn::module::Module;

/// The stack without some heads, and its configuration: `pruned` has the heads of each layer that go, which may differ in number. The
/// matrices shrink, and the outputs are those of the stack with zeros in the place of these heads.
///
/// Parameters of the attention are new ones, with adapters merged and floats in the place of blocks: an optimiser's state stays behind.
///
/// # Errors
/// Lists every layer of which heads cannot be taken: where none would be left, heads share keys and values with others that stay, the mixer is
/// another than attention over dot products, a norm is over all heads, the positions are added to the scores of each head, the layer has
/// cross-attention, or layers share their parameters.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::inspect::prune_heads;
/// use firelight_core::{ConfigError, Pass, SequenceInput, TransformerConfig};
///
/// let config = TransformerConfig::new(16, 4, 2);
/// let (stack, config) = prune_heads(config.init(&Device::flex()), &config, &[vec![0, 3], vec![2]])?;
/// assert_eq!(config.layers.iter().map(|layer| layer.block.attention.n_heads).collect::<Vec<_>>(), [2, 3]);
/// let y = stack.forward(Tensor::ones([1, 5, 16], &Device::flex()), &SequenceInput::default(), &mut Pass::default());
/// assert_eq!(y.dims(), [1, 5, 16]);
/// # Ok::<(), ConfigError>(())
/// ```
pub fn prune_heads(
    stack: Transformer,
    config: &TransformerConfig,
    pruned: &[Vec<usize>],
) -> Result<(Transformer, TransformerConfig), ConfigError> {
    let (found, layers) = (pruned.len(), config.n_layers);
    let mut checks = Checks::default()
        .include(config.validate())
        .require(!config.share_layers, || {
            "share_layers = true: layers that share parameters have the same heads".into()
        })
        .require(stack.layers().count() == layers, || format!("n_layers = {layers} is not that of the stack"))
        .require(found == layers, || format!("heads of {found} layers were named, and n_layers = {layers}"));
    let kept: Vec<LayerConfig> = config.layers.iter().cycle().take(layers).cloned().collect();
    for (index, (layer, heads)) in kept.iter().zip(pruned).enumerate().filter(|(_, (_, heads))| !heads.is_empty()) {
        checks = checks.include(check(config, layer, heads).map_err(|error| numbered(index, error)));
    }
    checks.finish()?;
    shrunk(stack, TransformerConfig { layers: kept, ..config.clone() }, pruned)
}

/// Whether the heads can be taken, as far as the configuration tells.
fn check(config: &TransformerConfig, layer: &LayerConfig, heads: &[usize]) -> Result<(), ConfigError> {
    let n_heads = layer.block.attention.n_heads;
    let position = layer.position.as_ref().unwrap_or(&config.position);
    let adds = matches!(position, PositionConfig::Alibi | PositionConfig::T5 { .. } | PositionConfig::Shaw { .. });
    Checks::default()
        .require(heads.iter().all(|head| *head < n_heads), || {
            format!("of n_heads = {n_heads} there are not all of {heads:?}")
        })
        .require(remaining(n_heads, heads).next().is_some(), || "no head would be left: keep one".into())
        .require(!adds, || "positions that add to the scores are made for the heads that there were: use rotary".into())
        .require(!layer.block.cross_attention, || {
            "cross_attention = true has as many heads as the self-attention".into()
        })
        .finish()
}

fn numbered(index: usize, error: ConfigError) -> ConfigError {
    let problems = error.problems().iter().map(|problem| Some(format!("layers.{index}: {problem}")));
    ConfigError::collect([], problems).err().unwrap_or(error)
}

fn remaining(n_heads: usize, pruned: &[usize]) -> impl Iterator<Item = usize> {
    (0..n_heads).filter(move |head| !pruned.contains(head))
}

/// The new stack is built by its configuration, which says what each part is made for, and takes the old one's parameters.
fn shrunk(
    stack: Transformer,
    mut config: TransformerConfig,
    pruned: &[Vec<usize>],
) -> Result<(Transformer, TransformerConfig), ConfigError> {
    let mut blocks = Vec::with_capacity(stack.blocks.len());
    let mut problems = Vec::new();
    let (before, _) = config.schemes();
    let device = stack.devices().into_iter().next().unwrap_or_default();
    for (index, (mut block, layer)) in stack.blocks.into_iter().zip(&mut config.layers).enumerate() {
        if !pruned[index].is_empty() {
            match without(block.attention, &pruned[index], layer) {
                Ok(attention) => block.attention = attention,
                Err(problem) => {
                    problems.push(Some(format!("layers.{index}: {problem}")));
                    continue;
                }
            }
        }
        blocks.push(block);
    }
    ConfigError::collect([], problems)?;
    let (schemes, _) = config.schemes();
    let mut built = config.init_with(&ParamBuilder::new(&device, 0));
    let old: Vec<_> = [stack.position].into_iter().chain(stack.layer_positions).collect();
    for (index, scheme) in schemes.iter().enumerate() {
        let place = before.iter().position(|other| other == scheme);
        // What is added to the embeddings does not depend on heads.
        let place = place.or((index == 0 && scheme.0.adds_to_embeddings()).then_some(0));
        if let Some(place) = place {
            *(if index == 0 { &mut built.position } else { &mut built.layer_positions[index - 1] }) =
                old[place].clone();
        }
    }
    (built.blocks, built.norm) = (blocks, stack.norm);
    (built.embedding_norm, built.embedding_projection) = (stack.embedding_norm, stack.embedding_projection);
    Ok((built, config))
}

/// The mixer without these heads; its configuration has fewer of them, of the width that they had.
fn without(mixer: Mixer, pruned: &[usize], layer: &mut LayerConfig) -> Result<Mixer, String> {
    let config = &mut layer.block.attention;
    let Mixer::Attention(attention) = mixer else { return Err("only heads of mixer = attention can be pruned".into()) };
    let kept: Vec<usize> = remaining(config.n_heads, pruned).collect();
    let attention = attention.keeping_heads(&kept)?;
    let shared = config.n_heads / config.n_kv_heads();
    config.d_head = Some(config.d_head());
    config.n_kv_heads = config.n_kv_heads.map(|_| kept.len() / shared);
    config.n_heads = kept.len();
    Ok(Mixer::Attention(attention))
}
