//! Which of a model's maps are shown.

use firelight_storage::InputError;

use crate::maps::{AttentionKind, AttentionMaps, Map};

/// The maps of a kind, of a layer, of a head; by default all of them.
///
/// ```
/// use firelight_inspect::{AttentionKind, AttentionMaps, Map, Selection};
///
/// let token = || vec!["a".to_string()];
/// let heads = (0..2).map(|head| Map::new(0, head, [1, 1], vec![1.0])).collect();
/// let maps = vec![AttentionMaps::new(AttentionKind::SelfAttention, token(), token(), vec![heads])];
/// let second = Selection { head: Some(1), ..Selection::default() };
/// assert_eq!(second.of(maps)?[0].maps().count(), 1);
/// # Ok::<(), firelight_storage::InputError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of one kind alone.
    pub kind: Option<AttentionKind>,
    /// Of one layer alone, counted from 0.
    pub layer: Option<usize>,
    /// Of one head of each layer alone, counted from 0.
    pub head: Option<usize>,
}

impl Selection {
    /// Keeps the maps that were chosen.
    ///
    /// # Errors
    /// If a kind, a layer or a head does not exist; the message says which there are.
    pub fn of(&self, maps: Vec<AttentionMaps>) -> Result<Vec<AttentionMaps>, InputError> {
        let kinds: Vec<&str> = maps.iter().map(|maps| maps.kind.name()).collect();
        if let Some(kind) = self.kind.filter(|kind| !kinds.contains(&kind.name())) {
            let problem = format!("the model has no {}: it has the kinds {}", kind.title(), kinds.join(", "));
            return Err(InputError::new(problem).advise("choose one of these"));
        }
        let is_chosen = |maps: &AttentionMaps| self.kind.is_none_or(|kind| maps.kind == kind);
        maps.into_iter().filter(is_chosen).map(|maps| self.of_kind(maps)).collect()
    }

    fn of_kind(&self, mut maps: AttentionMaps) -> Result<AttentionMaps, InputError> {
        let title = maps.kind.title();
        if let Some(layer) = self.layer {
            let layers = maps.layers.len();
            let heads = maps.layers.get(layer).cloned().ok_or_else(|| missing("layer", layer, layers, title))?;
            if heads.is_empty() {
                let problem = format!("layer {layer} has no weights of {title}");
                return Err(InputError::new(problem).advise("choose another layer"));
            }
            maps.layers = vec![heads];
        }
        if let Some(head) = self.head {
            maps.layers = maps.layers.iter().map(|heads| one_head(heads, head, title)).collect::<Result<_, _>>()?;
        }
        Ok(maps)
    }
}

/// A head of a layer; none of a layer without maps.
fn one_head(heads: &[Map], head: usize, title: &str) -> Result<Vec<Map>, InputError> {
    match heads.get(head) {
        None if !heads.is_empty() => Err(missing("head", head, heads.len(), title)),
        found => Ok(found.cloned().into_iter().collect()),
    }
}

/// There are `count` of `what`, and so no number `wanted`.
fn missing(what: &str, wanted: usize, count: usize, title: &str) -> InputError {
    let last = count.saturating_sub(1);
    InputError::new(format!("there is no {what} {wanted} in the {title}: choose from 0 to {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three layers of two heads, the second of which has no attention.
    fn maps(kind: AttentionKind) -> AttentionMaps {
        let heads = |layer| (0..2).map(|head| Map::new(layer, head, [1, 1], vec![1.0])).collect();
        AttentionMaps::new(kind, vec!["a".into()], vec!["b".into()], vec![heads(0), Vec::new(), heads(2)])
    }

    fn chosen(selection: Selection) -> Result<Vec<(usize, usize)>, String> {
        let all = [AttentionKind::Encoder, AttentionKind::Cross].map(maps).to_vec();
        let found = selection.of(all).map_err(|error| error.to_string())?;
        Ok(found.iter().flat_map(AttentionMaps::maps).map(|map| (map.layer, map.head)).collect())
    }

    #[test]
    fn kinds_layers_and_heads_are_chosen_alone_and_together() {
        let (kind, all) = (Some(AttentionKind::Cross), Selection::default());
        assert_eq!(chosen(all).unwrap().len(), 8);
        assert_eq!(chosen(Selection { kind, ..all }).unwrap(), [(0, 0), (0, 1), (2, 0), (2, 1)]);
        assert_eq!(chosen(Selection { kind, head: Some(1), ..all }).unwrap(), [(0, 1), (2, 1)]);
        assert_eq!(chosen(Selection { kind, layer: Some(2), head: Some(0) }).unwrap(), [(2, 0)]);
    }

    #[test]
    fn what_does_not_exist_is_answered_with_what_there_is() {
        let message = |selection| chosen(selection).unwrap_err();
        let all = Selection::default();
        let layer = message(Selection { layer: Some(3), ..all });
        assert!(layer.contains("no layer 3 in the encoder self-attention: choose from 0 to 2"), "{layer}");
        let head = message(Selection { head: Some(2), ..all });
        assert!(head.contains("no head 2") && head.contains("from 0 to 1"), "{head}");
        assert!(message(Selection { layer: Some(1), ..all }).contains("layer 1 has no weights"));
        let kind = message(Selection { kind: Some(AttentionKind::Decoder), ..all });
        assert!(kind.contains("no decoder self-attention: it has the kinds encoder, cross"), "{kind}");
    }
}
