//! What happens inside a Transformer, shown: the attention maps of any model as a page for the browser, as a picture or as text.
//!
//! 1. [`Attends`] (models/): a model is asked with a text or an image ([`Asked`]) and answers with its maps; [`open`] finds the model
//!    of a run folder by its task (models/table.rs).
//! 2. [`AttentionMaps`] (maps.rs): the weights of all layers and heads, with the tokens that they are between. [`Selection`]
//!    (selection.rs) keeps some of them.
//! 3. [`page`](fn@page) (page/) writes HTML that loads nothing, [`svg`](fn@svg) (svg.rs) and [`picture`] (raster.rs) draw, [`text`] (terminal.rs) is
//!    for a terminal.
//!
//! Beside them, of a [`TextModel`] (text_model.rs), which is a language model or a text encoder: [`explain`](fn@explain) (explain/) shows its numbers
//! step by step, as [`worked_examples`] does for small ones; [`HeadTable`] (head_table/) scores all heads, with [`Annotations`] (annotated/) also by
//! syntax and coreference, and [`prune_heads`] (prune.rs) takes some out; [`PatchGrid`] (patch.rs) finds where two texts part, and [`ProbeTable`]
//! (probe_table.rs) what can be read off each layer.
//!
//! And of structure, drawn as a [`Figure`] of [`HeatMap`]s (figure/) on the same page, as SVG, PNG or text: [`position_figure`] and
//! [`scheme_figure`] (positions.rs), [`mask_figure`] (mask.rs) of the [`stacks`](fn@stacks) of any model (stacks.rs), [`embedding_figure`]
//! (embeddings.rs); and [`SplitText`] (tokens.rs), a text in its tokens.
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

mod annotated;
mod asked;
mod embeddings;
mod explain;
mod figure;
mod head_table;
mod labels;
mod maps;
mod mask;
mod models;
mod page;
mod patch;
mod positions;
mod probe_table;
mod prune;
mod raster;
mod scale;
mod selection;
mod stacks;
mod svg;
mod terminal;
mod text_model;
mod tokens;

pub use annotated::{AnnotatedText, Annotations, Link, read_conllu, read_pairs};
pub use asked::Asked;
pub use embeddings::{EmbeddingQuestion, embedding_figure};
pub use explain::{Explanation, Step, Table, TableKind, explain, worked_examples};
pub use figure::{ColourScale, Figure, HeatMap};
pub use head_table::{HeadScore, HeadTable, LinkDirection, RelationScore, ScoredHead};
pub use labels::{shown, token_labels};
pub use maps::{AttentionKind, AttentionMaps, Map, Picture};
pub use mask::{layers_to_reach, mask_figure};
pub use models::{Attends, open, tasks};
pub use page::page;
pub use patch::{PatchGrid, PatchQuestion};
pub use positions::{position_figure, scheme_figure};
pub use probe_table::{ProbeTable, ProbedLayer};
pub use prune::prune_heads;
pub use raster::picture;
pub use selection::Selection;
pub use stacks::{ModelStack, stacks};
pub use svg::svg;
pub use terminal::text;
pub use text_model::{ReadText, TextModel};
pub use tokens::{SplitText, TextToken};
