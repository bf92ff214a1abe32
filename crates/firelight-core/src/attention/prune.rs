//! Attention with fewer heads: the columns and rows of the others are gone from its matrices.

use super::{Attention, Mechanism, NormSpan, Projection, SeparateProjection};
use crate::linear::Linear;
use burn::module::Param;
use burn::tensor::{Int, Tensor, TensorData};

impl Attention {
    /// The same with the heads of `kept` alone, in rising order. Adapters are merged; the parameters are new ones.
    ///
    /// # Errors
    /// If a part of the layer reads all heads together, or heads that stay share keys and values with heads that go.
    pub(crate) fn keeping_heads(mut self, kept: &[usize]) -> Result<Self, String> {
        let groups = kept_groups(kept, self.n_heads / self.n_kv_heads)?;
        if !matches!(self.mechanism, Mechanism::DotProduct(_)) {
            return Err("only heads of attention_mechanism = dot_product can be pruned".into());
        }
        if self.query_norm.is_some() && self.norm_span == NormSpan::AllHeads {
            return Err("query_key_norm_span = all_heads norms the heads together: none can be pruned".into());
        }
        let [_, key, value] = self.projection.widths();
        let (d_head, d_value) = (key / self.n_kv_heads, value / self.n_kv_heads);
        let is_fused = matches!(self.projection, Projection::Fused(_));
        let Projection::Separate(parts) = self.projection.into_separate() else { unreachable!("three matrices") };
        let projection = Projection::Separate(SeparateProjection {
            query: columns(parts.query, &channels(kept, d_head)),
            key: columns(parts.key, &channels(&groups, d_head)),
            value: columns(parts.value, &channels(&groups, d_value)),
        });
        self.projection = if is_fused { projection.into_fused() } else { projection };
        self.gate = self.gate.map(|gate| columns(gate, &channels(kept, d_value)));
        self.output = rows(self.output, &channels(kept, d_value));
        self.sinks = self.sinks.map(|sinks| Param::from_tensor(selected(sinks.val(), 0, kept)));
        (self.n_heads, self.n_kv_heads) = (kept.len(), groups.len());
        Ok(self)
    }
}

/// The key/value heads that stay where `shared` heads read each: all of a group stay, or none.
fn kept_groups(kept: &[usize], shared: usize) -> Result<Vec<usize>, String> {
    let mut groups: Vec<usize> = kept.iter().map(|head| head / shared).collect();
    groups.dedup();
    if groups.len() * shared == kept.len() {
        return Ok(groups);
    }
    Err(format!("groups of {shared} heads share their keys and values: a group stays or goes as a whole"))
}

/// The channels of these heads, of `width` each.
fn channels(heads: &[usize], width: usize) -> Vec<usize> {
    heads.iter().flat_map(|head| head * width..(head + 1) * width).collect()
}

/// The layer with these outputs alone.
fn columns(layer: Linear, kept: &[usize]) -> Linear {
    let weight = Param::from_tensor(selected(layer.merged_weight(), 1, kept));
    let bias = layer.bias.map(|bias| Param::from_tensor(selected(bias.val(), 0, kept)));
    Linear { weight: weight.into(), bias, adapter: None }
}

/// The layer with these inputs alone.
fn rows(layer: Linear, kept: &[usize]) -> Linear {
    let weight = Param::from_tensor(selected(layer.merged_weight(), 0, kept));
    Linear { weight: weight.into(), bias: layer.bias, adapter: None }
}

fn selected<const D: usize>(x: Tensor<D>, dimension: usize, kept: &[usize]) -> Tensor<D> {
    let places: Vec<i64> = kept.iter().map(|place| *place as i64).collect();
    let places = Tensor::<1, Int>::from_data(TensorData::new(places, [kept.len()]), &x.device());
    x.detach().select(dimension, places)
}
