//! The stacks of layers that a model is made of, and what can be asked of their structure.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use firelight_core::{Position, Transformer, VisionTransformer};
use firelight_storage::{Checkpoint, TaskError};

use crate::models::of_task;

/// A stack of a model.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::TransformerConfig;
/// use firelight_inspect::ModelStack;
///
/// let stack = ModelStack::new("model", TransformerConfig::new(16, 4, 2).init(&Device::flex()));
/// assert_eq!((stack.name, stack.n_layers()), ("model", 2));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelStack {
    /// What it is called in its model.
    pub name: &'static str,
    /// Its layers.
    pub transformer: Transformer,
    /// `[N + R S, D]`, the trained places of the patches of an image, those of the tokens before them first.
    patches: Option<Tensor<2>>,
}

impl ModelStack {
    /// A stack of this name.
    pub fn new(name: &'static str, transformer: Transformer) -> Self {
        Self { name, transformer, patches: None }
    }

    /// That of a vision transformer, with the places of its patches.
    pub(crate) fn of_vision(name: &'static str, vit: &VisionTransformer) -> Self {
        let patches = vit.position.as_ref().map(|places| places.val());
        Self { patches, ..Self::new(name, vit.transformer.clone()) }
    }

    /// Number of layers.
    pub fn n_layers(&self) -> usize {
        self.transformer.layers().count()
    }

    /// The schemes by which its tokens know their places: that of the stack, then those of layers that have others.
    pub(crate) fn schemes(&self) -> impl Iterator<Item = &Position> {
        std::iter::once(&self.transformer.position).chain(&self.transformer.layer_positions)
    }

    /// The trained places of the patches of an image, where it has them.
    pub(crate) fn patches(&self) -> Option<&Tensor<2>> {
        self.patches.as_ref()
    }
}

/// Loads the stacks of the model in a run folder, in the order in which they compute.
///
/// # Errors
/// If the folder is of a task whose models are no stacks of layers, there is no such checkpoint, or one of its files is missing or damaged.
///
/// ```no_run
/// use burn::tensor::Device;
/// use firelight_inspect::stacks;
/// use firelight_storage::Checkpoint;
///
/// let found = stacks("runs/dates-1".as_ref(), &Checkpoint::Last, &Device::flex())?;
/// assert_eq!(found.iter().map(|stack| stack.name).collect::<Vec<_>>(), ["encoder", "decoder"]);
/// # Ok::<(), firelight_storage::TaskError>(())
/// ```
pub fn stacks(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Vec<ModelStack>, TaskError> {
    let refusal = ["whose layers cannot be shown", "give a model of texts or of images"];
    of_task(folder, |entry| Some(entry.stacks), refusal)?(folder, checkpoint, device)
}
