//! Text, token ids and images: everything between a file of text and the windows or pairs of ids that a model is trained on. Task
//! crates build their batches from it, trainers draw the batches through its loader, and generation turns ids back into
//! text.
//!
//! The route of running text, in the order of the modules:
//!
//! 1. [`read_text`] reads a file, or [`stories()`] writes a text of its own. [`SplitConfig`] says which part is only validated on.
//! 2. [`Tokenizer`] (characters, bytes, words, byte-level BPE, Unigram or WordPiece) turns text into ids and back, with special tokens
//!    that no text gives; [`TextStream`] does so id by id.
//! 3. [`TokenBuilder`] does so with texts larger than memory; [`Tokens`] holds the ids, in memory or in a memory-mapped [`TokenFile`].
//! 4. [`WindowDataset`] cuts them into [`Window`]s of inputs and targets; [`Documents`] knows where documents end, and
//!    [`DocumentDataset`] and [`PackedDataset`] keep them apart. A [`Mixture`] makes one data set of several.
//! 5. [`StepLoader`] batches the items of each training step by a [`BatchPlan`], in the [`Order`] that a seed gives.
//!
//! The route of pairs ends at ids as well:
//!
//! 1. [`PairFiles`] reads a [`ParallelText`] from lines or from [`records`]; a [`Toy`] writes [`Pair`]s of its own.
//! 2. [`Tokenizer`] turns them into [`EncodedPair`]s, of which a [`LengthFilter`] drops the unfit and tells so.
//! 3. Or [`SpanCorruption`] and [`BartNoise`] make inputs and targets out of the ids of plain text.
//!
//! What is longer than a model's context is read in [`overlapping_windows`], or as its [`sentences`](sentences()).
//!
//! For encoders [`Masking`] hides tokens that the model is to tell, [`SentencePairs`] asks which sentence is the next, and
//! [`replaced_tokens`] which tokens are not the text's own. Texts with labels, for classifiers and regressions, are the business of [`labelled`], sentences
//! with a tag for every token that of [`tagged`], questions about texts that of [`questions`].
//!
//! Images have a route of their own: [`ImageFiles`] reads an [`ImageSet`] from IDX, CIFAR or folders, and [`ImageDataset`] makes
//! normalised pixels of it, changed by an [`Augmentation`] where they are trained on. [`CaptionedImages`] are composed of them.
//!
//! ```
//! use firelight_data::{Tokenizer, TokenizerConfig, Tokens, WindowDataset};
//! use burn::data::dataset::Dataset;
//!
//! let text = firelight_data::stories(7, 10_000);
//! let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &text).unwrap();
//! let (training, validation) = Tokens::from(tokenizer.encode(&text).unwrap()).split(text.len() * 9 / 10);
//! let windows = WindowDataset::for_training(training, 64).unwrap();
//!
//! let window = windows.get(0).unwrap();
//! assert_eq!(tokenizer.decode(&window.inputs), text[..64]);
//! assert_eq!(tokenizer.decode(&window.targets), text[1..65]); // one token later
//! assert_eq!(windows.len() + 64 + validation.len(), text.len());
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod batching;
mod buckets;
mod chat;
mod dataset;
mod denoising;
mod dice;
mod document_dataset;
mod documents;
mod error;
#[cfg(feature = "images")]
mod images;
pub mod labelled;
mod loader;
mod mixture;
mod order;
mod overlap;
mod packing;
mod padded;
mod parallel;
mod prefetch;
pub mod questions;
pub mod records;
mod sentences;
mod splits;
mod stories;
mod stream;
pub mod tagged;
mod text;
mod token_builder;
mod token_file;
mod tokenizer;
mod tokens;
mod toys;

pub use batching::{BatchPlan, Batching, longest_first};
pub use chat::{ChatTemplate, Conversation};
pub use dataset::{Split, Window, WindowDataset};
pub use denoising::{
    BartNoise, BartTokens, Denoising, MaskUnit, MaskVocabulary, MaskedText, Masking, Noise, NoiseSeed, Noises,
    SentencePair, SentencePairs, SpanCorruption, generator_draws, replaced_tokens,
};
pub use document_dataset::{DocumentDataset, PackedDataset, PackedRow};
pub use documents::{Documents, Separator, save_lengths};
pub use error::DataError;
#[cfg(feature = "images")]
pub use images::{
    Augmentation, CaptionedImages, Cifar, Draw, Image, ImageDataset, ImageError, ImageFiles, ImageProcessor,
    ImageSample, ImageSet, ImageShape, Mixing, Normalization, RandAugment, RandomOperation, ReadImages, ReadOptions,
    Resample, ResizeTo, Resizing, drawn_digits,
};
pub use loader::{StepLoader, check_workers};
pub use mixture::Mixture;
pub use order::Order;
pub use overlap::{OverlappingWindow, overlapping_windows};
pub use packing::pack;
pub use padded::right_padded;
pub use parallel::{
    DropReason, Dropped, EncodedPair, LengthFilter, Pair, PairColumns, PairFiles, PairReport, ParallelText, lines_of,
    read_lines,
};
pub use sentences::sentences;
pub use splits::{
    HeldOut, SplitConfig, SplitFiles, find_split, folder_of, no_data_at, no_split, split_files, split_names, splits_in,
};
pub use stories::{check_stories, stories};
pub use stream::TextStream;
pub use text::{TextPieces, line_not_utf8, read_text, text_of};
pub use token_builder::{TokenBuilder, texts_of};
pub use token_file::{TokenFile, TokenWriter};
pub use tokenizer::{
    Cut, Frame, PieceKind, PieceList, SpecialRole, TextWindow, Tokenizer, TokenizerConfig, TokenizerKind, WindowOptions,
};
pub use tokens::Tokens;
pub use toys::{Toy, ToySplits};
