//! What happens inside a Transformer, shown: the attention maps of any model as a page for the browser, as a picture or as text.
//!
//! 1. [`Attends`] (models/): a model is asked with a text or an image ([`Asked`]) and answers with its maps; [`open`] finds the model
//!    of a run folder.
//! 2. [`AttentionMaps`] (maps.rs): the weights of all layers and heads, with the tokens that they are between. [`Selection`]
//!    (selection.rs) keeps some of them.
//! 3. [`page`](fn@page) (page/) writes HTML that loads nothing, [`svg`](fn@svg) (svg.rs) and [`picture`] (raster.rs) draw, [`text`] (terminal.rs) is
//!    for a terminal.
//!
//! A weight says how much of a token's value another token takes in one head. It is no proof of what a model relies on.
//!
//! ```
//! use firelight_inspect::{AttentionKind, AttentionMaps, Map, page, text};
//!
//! let tokens = || ["<s>", "hello"].map(String::from).to_vec();
//! let map = Map::new(0, 0, [2, 2], vec![1.0, 0.0, 0.25, 0.75]);
//! let maps = [AttentionMaps::new(AttentionKind::SelfAttention, tokens(), tokens(), vec![vec![map]])];
//! assert!(page("two tokens", &maps).starts_with("<!DOCTYPE html>"));
//! assert!(text(&maps).contains("hello"));
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod asked;
mod labels;
mod maps;
mod models;
mod page;
mod raster;
mod scale;
mod selection;
mod svg;
mod terminal;

pub use asked::Asked;
pub use labels::{shown, token_labels};
pub use maps::{AttentionKind, AttentionMaps, Map, Picture};
pub use models::{Attends, open};
pub use page::page;
pub use raster::picture;
pub use selection::Selection;
pub use svg::svg;
pub use terminal::text;
