//! Published checkpoints: folders as Hugging Face writes them, and GGUF files, read without a copy, run, converted to run folders and
//! written back.
//!
//! A family is one file in `families`, and that file is a table: from `config.json` to the structure of a model of this workspace, and
//! from the names of tensors to those of its parameters. Everything else stands once: the [`Plan`], which is checked both ways before a
//! number is read; the loading, which reads each number once from the mapped file.
//!
//! ```
//! let known = firelight_pretrained::family_names();
//! assert!(known.contains(&"gpt2") && known.contains(&"llama"));
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod checkpoint;
mod export;
mod families;
mod family;
mod folder;
mod forward;
mod generation;
mod gguf;
#[cfg(feature = "hub")]
mod hub;
mod keys;
mod locate;
mod plan;
mod recipe;
mod sentence;
mod structure;
mod torch;
mod verify;

pub use checkpoint::{PublishedModel, export, export_gguf};
pub use family::{Describe, Description, describe, family_names};
pub use folder::{HubFolder, TensorInfo, Weights};
pub use forward::{Array, Arrays, ForwardOptions, Numbers};
pub use keys::Keys;
pub use locate::{import_cache, locate, run_folder, run_folder_of_floats};
pub use plan::{Plan, Source, Step, Table, View, WeightMapping};
pub use structure::{AutoModel, Structure, load};
pub use torch::{load_file, torch_layers};
pub use verify::{Comparison, compare, compare_outputs};
