//! The models that can be asked for their attention, one file each, and which one a run folder holds.

mod captioner;
mod encoder;
mod image_encoder;
mod image_text;
mod language;
mod table;
mod translator;

pub(crate) use table::of_task;
pub use table::tasks;

use std::path::Path;

use burn::tensor::{Device, Tensor};
use firelight_core::Trace;
use firelight_storage::{Checkpoint, TaskError};

use crate::asked::Asked;
use crate::maps::AttentionMaps;

/// A model, with all that it needs to read a text or an image, which can be asked for its attention.
///
/// ```
/// use firelight_inspect::{Asked, Attends, AttentionKind, AttentionMaps, Map};
/// use firelight_storage::TaskError;
///
/// /// Reads every token alike.
/// struct Mean;
///
/// impl Attends for Mean {
///     fn attention(&self, asked: &Asked) -> Result<Vec<AttentionMaps>, TaskError> {
///         let words: Vec<String> = asked.text.iter().flat_map(|text| text.split(' ')).map(String::from).collect();
///         let count = words.len();
///         let map = Map::new(0, 0, [count; 2], vec![1.0 / count as f32; count * count]);
///         Ok(vec![AttentionMaps::new(AttentionKind::SelfAttention, words.clone(), words, vec![vec![map]])])
///     }
/// }
///
/// let maps = Mean.attention(&Asked::about("a few words"))?;
/// assert_eq!(maps[0].layers[0][0].shape(), [3, 3]);
/// # Ok::<(), TaskError>(())
/// ```
pub trait Attends {
    /// The maps of each of its stacks, in the order in which they compute.
    ///
    /// # Errors
    /// If it does not read what is given, cannot read all of it, or the device fails.
    fn attention(&self, asked: &Asked) -> Result<Vec<AttentionMaps>, TaskError>;
}

/// Loads the model of a run folder, whatever its task.
///
/// # Errors
/// If the folder is of a task whose models cannot be asked, there is no such checkpoint, or one of its files is missing or damaged.
pub fn open(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Attends>, TaskError> {
    let refusal = ["whose attention cannot be shown", "give a model of texts or of images"];
    of_task(folder, |entry| Some(entry.attends), refusal)?(folder, checkpoint, device)
}

/// The weights of the self-attention of each layer.
fn within(trace: &Trace) -> impl Iterator<Item = Option<Tensor<4>>> {
    trace.layers.iter().map(|layer| layer.attention.clone())
}

/// The weights of the cross-attention of each layer.
fn across(trace: &Trace) -> impl Iterator<Item = Option<Tensor<4>>> {
    trace.layers.iter().map(|layer| layer.cross_attention.clone())
}
