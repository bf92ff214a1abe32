//! Which layers look at a window and which at the whole text.

use firelight_core::AttentionPattern;
use firelight_storage::InputError;

use crate::Keys;

/// The kind of every layer: `layer_types`, or where older folders lack it, windows where `slides` says so of the layer's number.
pub(super) fn kinds(keys: &Keys<'_>, slides: impl Fn(usize) -> bool) -> Result<Vec<Kind>, InputError> {
    let n_layers = keys.layers("num_hidden_layers")?;
    let Some(names) = keys.get::<Vec<String>>("layer_types")? else {
        return Ok((0..n_layers).map(|layer| if slides(layer) { Kind::Window } else { Kind::Full }).collect());
    };
    let kind = |name: &String| match name.as_str() {
        "full_attention" => Ok(Kind::Full),
        "sliding_attention" => Ok(Kind::Window),
        _ => Err(keys.unfit("layer_types", "full_attention or sliding_attention for each layer")),
    };
    match names.len() == n_layers {
        true => names.iter().map(kind).collect(),
        false => Err(keys.unfit("layer_types", &format!("{n_layers} of them, as num_hidden_layers says"))),
    }
}

/// What a layer of a decoder looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All of its past.
    Full,
    /// The last tokens, as many as `sliding_window`, itself included.
    Window,
}

impl Kind {
    /// The pattern of a causal layer.
    pub(super) fn pattern(self, keys: &Keys<'_>) -> Result<AttentionPattern, InputError> {
        match (self, keys.get::<usize>("sliding_window")?) {
            (Self::Window, Some(window @ 1..)) => Ok(AttentionPattern::SlidingWindow { left: window - 1, right: 0 }),
            (Self::Window, _) => Err(keys.unfit("sliding_window", "a number above 0, as some layers look at a window")),
            (Self::Full, _) => Ok(AttentionPattern::Causal),
        }
    }
}

/// The patterns of all layers, of which one is enough where all are alike.
pub(super) fn patterns(keys: &Keys<'_>, kinds: &[Kind]) -> Result<Vec<AttentionPattern>, InputError> {
    let mut patterns: Vec<_> = kinds.iter().map(|kind| kind.pattern(keys)).collect::<Result<_, _>>()?;
    if patterns.windows(2).all(|pair| pair[0] == pair[1]) {
        patterns.truncate(1);
    }
    Ok(patterns)
}
