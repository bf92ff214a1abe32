//! Firelight: the Transformer library of the Burn ecosystem. This crate re-exports the family, carries one cargo feature
//! per backend, selects the device and lists the problems of an error; nothing else lives here.
//!
//! ```text
//!            data              language, nn                  training
//! TRAIN  text -> ids -> windows -> batch -> logits -> loss -> fit -> run folder {recipe, config, tokenizer, weights}
//!
//!            data             language, nn                 generation       data
//! DECODE prompt -> ids -> prefill -> logits -> processors -> sampler -> id -> text
//!                                      ^                                |
//!                                      +------------ step --------------+
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`nn`] | the Transformer: blocks, attention, positions, masks, caches; tensors in, tensors out |
//! | [`kernels`] | the differentiable operations below it |
//! | [`data`] | text, token ids and images: tokenizers, data sets, augmentation, deterministic order |
//! | [`language`] | GPT-style language models: train, evaluate, generate |
//! | [`classification`] | text encoders with heads: labels, tokens, spans, masked language models, embeddings |
//! | [`seq2seq`] | encoder-decoders: train, evaluate, translate |
//! | `vision` | vision transformers: train, evaluate, classify (feature `images`) |
//! | [`generation`] | decoding for every autoregressive model |
//! | `inspect` | attention maps of any model, and its numbers step by step, as pages, pictures and text (feature `inspect`) |
//! | `training` | optimiser, schedule, checkpoints, the loop through Burn's Learner (feature `train`) |
//! | [`storage`] | what lies on disk: run folders, weights, atomic writes |
//! | [`device`] | which backend and which device the tensors live on |
//!
//! # Features
//!
//! A backend each (`flex`, `wgpu`, `cuda`, ...), and five for what is on by default and may be left out of a program that only answers:
//! `train`, `images` (with `vision` and captions), `inspect`, `csv` and `parquet`.
//!
//! # A stack in a program of your own
//!
//! ```
//! use burn::prelude::*;
//! use firelight::prelude::*;
//!
//! let device = select_device(None)?;
//! let config = TransformerConfig::new(64, 4, 2).with_position(PositionConfig::rotary()).with_norm(NormConfig::rms());
//! let stack = config.init(&device); // a decoder: width 64, four heads, two layers
//! let mut cache = stack.cache(16);
//! for length in [5, 1] {
//!     let x = Tensor::<3>::ones([1, length, 64], &device); // a prompt, then a token
//!     let y = stack.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
//!     assert_eq!(y.dims(), [1, length, 64]);
//! }
//! assert_eq!(cache.len(), 6);
//! # Ok::<(), firelight::device::DeviceError>(())
//! ```
//!
//! # Beside Burn
//!
//! [`prelude`] has no name of Burn. `use firelight::*` brings the modules of the table, of which none is in the way of Burn's derives. One of
//! them has a name that Burn's prelude has, too, `nn`; an import by name says whose it is:
//!
//! ```
//! use burn::prelude::*;
//! use firelight::nn; // Burn's is `burn::nn`.
//! use firelight::*;
//!
//! #[derive(Config, Debug)]
//! struct EncoderConfig {
//!     d_input: usize,
//!     #[config(default = 16)]
//!     d_model: usize,
//! }
//!
//! /// A stack behind a layer of Burn.
//! #[derive(Module, Debug)]
//! struct Encoder {
//!     input: burn::nn::Linear,
//!     stack: nn::Transformer,
//! }
//!
//! let device = device::select(None)?;
//! let EncoderConfig { d_input, d_model } = EncoderConfig::new(3);
//! let encoder = Encoder {
//!     input: burn::nn::LinearConfig::new(d_input, d_model).init(&device),
//!     stack: nn::TransformerConfig::encoder(d_model, 4, 2).init(&device),
//! };
//! let x = encoder.input.forward(Tensor::<3>::ones([2, 5, 3], &device));
//! let y = encoder.stack.forward(x, &nn::SequenceInput::default(), &mut nn::Pass::default());
//! assert_eq!(y.dims(), [2, 5, 16]);
//! # Ok::<(), device::DeviceError>(())
//! ```
//!
//! # A language model, from a recipe to a text
//!
//! ```
//! use firelight::generation::GenerationOptions;
//! use firelight::language::{Run, RunRequest, TextGenerator};
//!
//! # let home = tempfile::tempdir()?;
//! # let folder = home.path().join("run");
//! let device = firelight::device::select(None)?;
//! let request = RunRequest::new(&device).with_out(folder); // The recipe of generated stories.
//! let request = request.with_override("data.stories", 20_000).with_override("training.steps", 2);
//! let run = Run::prepare(&request)?.fit()?; // The folder has weights, recipe, curves and a report now.
//! let written = TextGenerator::from(run).generate("One day ", &GenerationOptions::new(5).with_seed(7))?;
//! println!("One day {}", written.text);
//! # assert_eq!(written.text.chars().count(), 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod device;
pub mod prelude;
#[cfg(feature = "train")]
mod problems;

pub use firelight_classification as classification;

pub use firelight_core as nn;
pub use firelight_data as data;
pub use firelight_generation as generation;
#[cfg(feature = "inspect")]
pub use firelight_inspect as inspect;
pub use firelight_kernels as kernels;
pub use firelight_language as language;
#[cfg(feature = "pretrained")]
pub use firelight_pretrained as pretrained;
pub use firelight_seq2seq as seq2seq;
pub use firelight_storage as storage;
#[cfg(feature = "train")]
pub use firelight_training as training;
#[cfg(feature = "images")]
pub use firelight_vision as vision;
#[cfg(feature = "train")]
pub use problems::problems;
