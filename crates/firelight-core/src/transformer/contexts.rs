//! What the layers of a pass read beside the residual stream, each thing computed once.

use super::visible::VisibleTokens;
use super::{SequenceInput, Transformer};
use crate::context::{AttentionContext, LayerContext};
use crate::document_starts::DocumentStarts;
use crate::layer::Layer;
use crate::pass::Pass;
use crate::position::{PositionScheme, Positions};
use firelight_kernels::AttentionMask;
use std::collections::BTreeMap;
use std::iter::once;
use std::ops::Range;

/// The contexts that differ, and which of them each layer reads.
pub(super) struct Contexts {
    different: Vec<LayerContext>,
    of_layer: Vec<usize>,
}

impl Contexts {
    /// What layer `index` reads.
    pub(super) fn of(&self, index: usize) -> &LayerContext {
        &self.different[self.of_layer[index]]
    }

    /// Changes every context.
    pub(super) fn map(mut self, change: impl Fn(LayerContext) -> LayerContext) -> Self {
        self.different = self.different.into_iter().map(change).collect();
        self
    }
}

impl<L: Layer + 'static> Transformer<L> {
    /// Layers of one kind, which have one rule and one position scheme, share a context if their states have the same tokens at hand;
    /// layers of one position scheme share its bias.
    pub(super) fn contexts(
        &self,
        visible: &VisibleTokens,
        positions: &Positions,
        input: &SequenceInput,
        pass: &Pass,
    ) -> Contexts {
        let (length, device) = (visible.tokens().len(), visible.device());
        let schemes: Vec<_> = once(&self.position).chain(&self.layer_positions).collect();
        let rotations: Vec<_> = schemes.iter().map(|scheme| scheme.rotation(positions, device)).collect();
        let (mut shared, mut known, mut different) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut attention = |layer: usize, keys: Range<usize>| {
            let scheme = self.scheme_of[layer % self.scheme_of.len()];
            let bias = || schemes[scheme].bias(positions, &visible.positions(keys.len()), device);
            let (mask, bias) =
                shared.entry((scheme, keys.start)).or_insert_with(|| (visible.mask(keys.len()), bias())).clone();
            let mask = AttentionMask::rule(self.rule(layer)).starting_at(keys.start).and(mask);
            AttentionContext { mask, bias, rotation: rotations[scheme].clone() }
        };
        let starts = visible.document_starts();
        let of_layer = (0..self.n_layers).map(|layer| {
            let (kind, keys) = (self.kind(layer), pass.keys(layer, length));
            *known.entry((kind, keys.start)).or_insert_with(|| {
                different.push(input.context(attention(layer, keys), starts.clone()));
                different.len() - 1
            })
        });
        let of_layer = of_layer.collect();
        Contexts { different, of_layer }
    }
}

impl SequenceInput {
    fn context(&self, attention: AttentionContext, document_starts: Option<DocumentStarts>) -> LayerContext {
        let Self { encoder_output, padding, documents, .. } = self.clone();
        LayerContext { attention, encoder_output, padding, documents, document_starts }
    }
}
