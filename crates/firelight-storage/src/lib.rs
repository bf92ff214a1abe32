//! What Firelight keeps on disk: files that are written whole or not at all, weights as safetensors, and the folder that
//! holds a trained model. The trainers write here and every command that needs a model reads here; no other crate knows
//! the names of the files.
//!
//! - [`write_atomic`], [`write_atomic_with`] and [`write_json_lines`] replace a file in one move; [`open_file`],
//!   [`read_file`] and [`read_text_file`] read one, [`map_file`] maps it. All refuse what is no regular file, and follow symbolic links.
//! - [`palette`] has the colours of the pages and pictures that several crates write.
//! - [`shortened`] and [`listed`] are how messages quote what files and users wrote.
//! - [`save_weights`] and [`load_weights`] keep the parameters of any Burn module, strictly: what is missing, left over or
//!   of another shape or type is an error that lists it.
//! - [`save_adapters`] and [`save_base`] keep low-rank adapters and the model beside them apart, as their readers do.
//! - [`LearntWeights`] finds the weights that a training begins from, and [`Parameters`] reads them one by one.
//! - [`ModelFolder::write_quantization`] says which parameters are in blocks of few bits; [`ModelFolder::create_whole`] writes such a folder whole
//!   or not at all.
//! - [`average_weights`] takes the mean of several weight files.
//! - [`ModelFolder`] is the run folder: recipe, configuration, tokenizer, metrics, weights and [`Checkpoint`]s, each in
//!   its [`CheckpointFolder`].
//!
//! ```
//! use firelight_storage::{Checkpoint, Existing, ModelFolder};
//!
//! let home = tempfile::tempdir().unwrap();
//! let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
//! folder.write_config("language", &std::collections::BTreeMap::from([("d_model", 128)])).unwrap();
//!
//! let again = ModelFolder::open(folder.path()).unwrap();
//! let config: std::collections::BTreeMap<String, usize> = again.read_config("language").unwrap();
//! assert_eq!(config["d_model"], 128);
//! assert!(again.weights(&Checkpoint::Best).is_err()); // nothing has been trained yet
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod adapters;
mod atomic;
mod average;
mod checkpoint;
mod checkpoint_folder;
mod config;
mod error;
mod file;
mod folder;
mod input_error;
mod learnt;
mod listing;
mod lock;
pub mod palette;
mod parameters;
mod quote;
mod rounding;
mod task_error;
mod tensors;
mod weights;

pub use adapters::{has_adapters, is_adapter_path, load_adapters, load_base, save_adapters, save_base};
pub use atomic::{replace_file, write_atomic, write_atomic_with, write_json, write_json_lines};
pub use average::average_weights;
pub use checkpoint::Checkpoint;
pub use checkpoint_folder::CheckpointFolder;
pub use config::{FORMAT, VERSION};
pub use error::StorageError;
pub use file::{map_file, open_file, read_file, read_json, read_text_file, unfit_file};
pub use folder::{Existing, FoundWeights, ModelFolder};
pub use input_error::InputError;
pub use learnt::LearntWeights;
pub use parameters::Parameters;
pub use quote::{listed, shortened, shortened_reason};
pub use task_error::TaskError;
pub use weights::{check_weights, load_weights, load_weights_in, save_weights};
