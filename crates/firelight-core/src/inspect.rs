//! What a model does inside, measured: functions over [`Hooks`](crate::Hooks), tensors in and numbers out. They work with every stack, and
//! run the same forward pass as training does.
//!
//! | question | function |
//! |---|---|
//! | what would the model predict if it ended after this layer? | [`logit_lens`] |
//! | which part raises this logit above that one? | [`logit_attribution`] |
//! | which activation carries the difference between two inputs? | [`patching_effects`] |
//! | what is lost without a head, or a token's activation? | [`ablation_effects`], [`head_sensitivity`] |
//! | what is left without some heads? | [`prune_heads`] |
//! | what can be read off an activation? | [`LinearProbe`] |
//! | what does a head attend to? does it say what it sees? | [`heads`], [`copying`] |
//!
//! A pass is handed over as a closure, `|pass| model.hidden(tokens, &input, pass)`, so that tokens, images, padding and an encoder's output stay
//! with the caller.

mod attribution;
mod copying;
mod grid;
pub mod heads;
mod lens;
mod probe;
mod prune;
#[cfg(feature = "autodiff")]
mod sensitivity;
#[cfg(test)]
mod tests;

pub use attribution::{Attribution, logit_attribution};
pub use copying::copying;
pub use grid::{Columns, Grid, ablation_effects, patching_effects};
pub use lens::logit_lens;
pub use probe::LinearProbe;
pub use prune::prune_heads;
#[cfg(feature = "autodiff")]
pub use sensitivity::head_sensitivity;
