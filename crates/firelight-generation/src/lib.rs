//! Decoding for every autoregressive model: from a prompt to new token ids, one token at a time.
//!
//! Two borders keep the crate small. A model is whatever implements [`Autoregressive`]: it turns a prompt, and later one
//! token per row, into logits `[B, V]`, and hides its cache in [`Autoregressive::State`]. Text is whatever a
//! `firelight_data` tokenizer makes of the ids. Between the two lies one loop:
//!
//! ```text
//! prompt -prefill-> logits [B, V] -processors-> -sampler-> ids [B] -stop?-> step(ids, state) -> logits [B, V] -> ...
//!                                                            |
//!                                                            +-> TokenStream -> generate -> generate_text -> text
//! ```
//!
//! - [`GenerationOptions`]: how many tokens, [`Sampling`], seed, stop tokens.
//! - [`TokenStream`]: the loop, as an iterator. [`generate`](generate()) runs it to its end and collects the ids,
//!   [`generate_text`] turns them into text while they come. [`generate_samples`] and [`generate_text_samples`] continue one
//!   prompt several times.
//! - [`Sampler`]: greedy choice stays on the device, and a GPU finds the tokens of top-k; other choice reads the logits. Draws are of a generator
//!   of our own, so equal logits and one seed give one text on every backend.
//! - [`Drafter`]: guesses the next tokens, which the model then checks in one pass: [`PromptLookup`], [`ModelDrafter`].
//! - [`Prefix`]: what the model has read of a text, so that a text with the same beginning computes only the rest.
//! - [`LogitsProcessor`]: changes a row of logits before a token is chosen; [`Processing`] says which ones the options ask for.
//! - [`Constraint`]: a regular expression, a JSON schema or a grammar that the text has to satisfy.
//! - [`GenerationDefaults`]: what a published model's `generation_config.json` says.
//! - [`beam_search`]: another loop over the same models, which follows several continuations of each row and returns the
//!   best; its settings are [`BeamOptions`].
//! - [`contrastive_search`]: a third loop, which prefers tokens that are unlike the text so far.
//!
//! # Example
//!
//! ```
//! use firelight_generation::{GenerationOptions, Sampling};
//!
//! let options = GenerationOptions::new(100).with_temperature(0.8).with_top_k(40).with_seed(7);
//! assert!(options.validate().is_ok());
//!
//! let frozen = options.with_temperature(0.0).validate().unwrap_err();
//! assert!(frozen.to_string().contains("greedy"));
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod autoregressive;
mod beam;
mod constraint;
mod contrastive_search;
mod defaults;
mod distribution;
mod draft;
mod draw;
mod error;
mod generate;
mod options;
mod prefix;
mod processing;
pub mod processors;
mod prompt;
mod range;
mod sampler;
mod sampling;
mod score;
mod sequence;
mod stop;
mod stream;
mod text;

#[cfg(test)]
mod mock;

pub use autoregressive::{Autoregressive, DecodeState, JoinState, WithVocabulary, extend_by_steps, row_indices};
pub use beam::{BeamOptions, EarlyStopping, Hypothesis, MAX_BEAMS, beam_search};
pub use constraint::{Constraint, ConstraintCompiler};
pub use contrastive_search::{ContrastiveOptions, HiddenStates, contrastive_search, contrastive_search_rows};
pub use defaults::{GenerationDefaults, TokenIds};
pub use draft::{DraftModel, Drafter, ModelDrafter, PromptLookup};
pub use error::GenerationError;
pub use generate::{Generated, generate, generate_samples};
pub use options::GenerationOptions;
pub use prefix::Prefix;
pub use processing::{CustomProcessors, Processing};
pub use processors::{History, LogitsProcessor};
pub use prompt::check_prompt;
pub use sampler::{Sampled, Sampler};
pub use sampling::{RandomSampling, Sampling};
pub use score::{ScoredToken, TextScore, TokenScore, score_tokens, score_tokens_in_chunks};
pub use stop::{StopCriteria, StopReason};
pub use stream::TokenStream;
pub use text::{GeneratedText, StopStrings, decode_texts, generate_text, generate_text_samples};
