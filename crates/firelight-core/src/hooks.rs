//! Activations by their paths: read, replaced, switched off or changed while a pass runs. The pass calls `Hooks::activation` at each of
//! them; without hooks that is a branch.
//!
//! Source of the picture: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"
//! (<https://transformer-circuits.pub/2021/framework/index.html>).

mod activations;
mod error;
mod path;
mod slice;
#[cfg(test)]
mod tests;

pub use activations::Activations;
pub use error::HookError;
pub use slice::{Ablation, ActivationSlice};

use crate::pass::Pass;
use activations::Erased;
use burn::tensor::Tensor;
use path::matches;
use std::mem::take;

/// Hooks that read or change activations of a forward pass. Each hook names an activation by its path, or several by a pattern in which `*`
/// stands for any text between two dots.
///
/// | path in a stack | shape | what it is |
/// |---|---|---|
/// | `embedding` | `[B, T, D]` | the residual stream that the first layer reads |
/// | `blocks.N.attention.query` | `[B, H, T, E]` | the queries, after norm and rotation, where the mixer is [`Attention`](crate::Attention) |
/// | `blocks.N.attention.key`, `.value` | `[B, G, T, E]` | the keys, likewise, and the values, of the tokens of the pass |
/// | `blocks.N.attention.weights` | `[B, H, T, K]` | the attention weights, dropout included |
/// | `blocks.N.attention.heads` | `[B, H, T, W]` | what the heads found, as the output projection reads it: `z` |
/// | `blocks.N.attention.output` | `[B, T, D]` | what the token mixer adds to the residual stream, after norm, scale and dropout |
/// | `blocks.N.cross_attention.weights`, `.heads`, `.output` | | the same of the cross-attention; `K` is the length of the source |
/// | `blocks.N.feed_forward.output` | `[B, T, D]` | what the feed-forward network adds to the residual stream |
/// | `blocks.N.output` | `[B, T, D]` | the residual stream behind the layer |
/// | `final_norm` | `[B, T, D]` | the output of the stack |
///
/// `N` counts the layers in the order in which they run. In blocks with [`NormPlacement::Post`](crate::NormPlacement::Post) an output is
/// what is added before the norm. Layers, mixers and networks of one's own have `output` without a line of code, and any other activation
/// by [`LayerPass::activation`](crate::LayerPass::activation). A gated delta rule has no weights. An encoder and its decoder are two passes,
/// each with hooks of its own.
///
/// Hooks of one path act in the order in which they were added, so that a record shows what those before it have left.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{Ablation, ActivationSlice, HookError, Hooks, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let model = TransformerConfig::new(16, 4, 2).init(&device);
/// let x = Tensor::<3>::ones([1, 3, 16], &device);
/// let mut hooks = Hooks::new()
///     .ablate("blocks.0.attention.heads", Ablation::Zero, ActivationSlice::heads([1]))
///     .edit("blocks.1.feed_forward.output", |x: Tensor<3>| x * 2.0)
///     .record("blocks.*.output");
/// let (y, found) = hooks.run(|pass| model.forward(x.clone(), &SequenceInput::default(), pass))?;
/// assert_eq!(found.paths().collect::<Vec<_>>(), ["blocks.0.output", "blocks.1.output"]);
/// assert_eq!(found.get::<3>("blocks.1.output")?.dims(), y.dims());
///
/// let misspelt = Hooks::new().record("block.0.output").run(|pass| model.forward(x, &SequenceInput::default(), pass));
/// let text = misspelt.expect_err("no such path").to_string();
/// assert!(text.starts_with("`block.0.output`: the pass had no such activation; the nearest are `blocks.0.output`"));
/// # Ok::<(), HookError>(())
/// ```
#[doc(alias = "run_with_hooks")]
#[doc(alias = "run_with_cache")]
#[doc(alias = "intervention")]
#[derive(Default)]
pub struct Hooks {
    hooks: Vec<Hook>,
    /// The activations that the pass had so far.
    paths: Vec<String>,
    found: Activations,
    error: Option<HookError>,
}

struct Hook {
    pattern: String,
    action: Action,
    is_reached: bool,
}

enum Action {
    Record,
    Patch { source: Erased, rank: usize, slice: ActivationSlice },
    Ablate(Ablation, ActivationSlice),
    Edit { rank: usize, edit: Edit },
}

/// None for a tensor of another number of dimensions.
type Edit = Box<dyn FnMut(Erased) -> Option<Erased> + Send>;

impl Hooks {
    /// No hooks: a pass with them is a plain one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the activations that `pattern` names.
    pub fn record(self, pattern: impl Into<String>) -> Self {
        self.with(pattern, Action::Record)
    }

    /// Replaces activations, all of them or a slice, by those of `source`: what another pass had there, for example.
    /// A size of 1 in `source` stands for all of them. It must be on the device of the pass, with autodiff where the pass has it.
    #[doc(alias = "activation patching")]
    pub fn patch<const R: usize>(self, pattern: impl Into<String>, source: Tensor<R>, slice: ActivationSlice) -> Self {
        self.with(pattern, Action::Patch { source: Box::new(source), rank: R, slice })
    }

    /// Switches activations off, all of them or a slice.
    pub fn ablate(self, pattern: impl Into<String>, by: Ablation, slice: ActivationSlice) -> Self {
        self.with(pattern, Action::Ablate(by, slice))
    }

    /// Passes activations of `R` dimensions through a function, which keeps their shape. Gradients flow through it.
    pub fn edit<const R: usize>(
        self,
        pattern: impl Into<String>,
        mut edit: impl FnMut(Tensor<R>) -> Tensor<R> + Send + 'static,
    ) -> Self {
        let edit = move |x: Erased| -> Option<Erased> {
            let x = x.downcast::<Tensor<R>>().ok()?;
            Some(Box::new(edit(*x)))
        };
        self.with(pattern, Action::Edit { rank: R, edit: Box::new(edit) })
    }

    fn with(mut self, pattern: impl Into<String>, action: Action) -> Self {
        self.hooks.push(Hook { pattern: pattern.into(), action, is_reached: false });
        self
    }

    /// Runs a pass with these hooks. They can run any number of passes.
    ///
    /// A pass of its own, with a cache for example, takes them by [`Pass::with_hooks`], and [`finish`](Self::finish) ends it.
    ///
    /// # Errors
    /// If a pattern names no activation of the pass, or a hook does not fit the one that it names; nothing else of the pass is then
    /// to be trusted.
    pub fn run<T>(&mut self, forward: impl FnOnce(&mut Pass) -> T) -> Result<(T, Activations), HookError> {
        let output = forward(&mut Pass::default().with_hooks(self));
        Ok((output, self.finish()?))
    }

    /// What was recorded since the last call.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn finish(&mut self) -> Result<Activations, HookError> {
        let (paths, found, error) = (take(&mut self.paths), take(&mut self.found), self.error.take());
        let unreached = self.hooks.iter().find(|hook| !hook.is_reached).map(|hook| hook.pattern.clone());
        self.hooks.iter_mut().for_each(|hook| hook.is_reached = false);
        match (error, unreached) {
            (Some(error), _) => Err(error),
            (None, Some(pattern)) => Err(HookError::unreached(&pattern, &paths)),
            (None, None) => Ok(found),
        }
    }

    /// The paths of all activations that a pass has.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use firelight_core::{Hooks, SequenceInput, TransformerConfig};
    ///
    /// let model = TransformerConfig::new(16, 4, 1).init(&Device::flex());
    /// let x = Tensor::<3>::ones([1, 3, 16], &Device::flex());
    /// let paths = Hooks::paths_of(|pass| model.forward(x, &SequenceInput::default(), pass));
    /// assert_eq!(paths[..2], ["embedding", "blocks.0.attention.query"]);
    /// assert_eq!(paths.last().map(String::as_str), Some("final_norm"));
    /// ```
    pub fn paths_of<T>(forward: impl FnOnce(&mut Pass) -> T) -> Vec<String> {
        let mut hooks = Self::new();
        forward(&mut Pass::default().with_hooks(&mut hooks));
        hooks.paths
    }

    /// Whether any hook asks for the activation, which the pass now has.
    pub(crate) fn wants(&mut self, path: &str) -> bool {
        if !self.paths.iter().any(|known| known == path) {
            self.paths.push(path.into());
        }
        self.hooks.iter().any(|hook| matches(&hook.pattern, path))
    }

    /// Whether any hook may change the activation.
    pub(crate) fn edits(&self, path: &str) -> bool {
        let changes = |hook: &&Hook| !matches!(hook.action, Action::Record);
        self.hooks.iter().filter(changes).any(|hook| matches(&hook.pattern, path))
    }

    /// What the hooks make of an activation.
    pub(crate) fn activation<const R: usize>(&mut self, path: &str, mut x: Tensor<R>) -> Tensor<R> {
        if !self.wants(path) {
            return x;
        }
        for hook in self.hooks.iter_mut().filter(|hook| matches(&hook.pattern, path)) {
            hook.is_reached = true;
            match hook.action.apply(x.clone()) {
                Ok(None) => self.found.put(path, x.clone()),
                Ok(Some(changed)) => x = changed,
                Err(problem) => {
                    self.error.get_or_insert_with(|| HookError::new(path, problem));
                }
            }
        }
        x
    }

    /// Shows an activation that is not read back.
    pub(crate) fn shown<const R: usize>(&mut self, path: &str, x: Tensor<R>) {
        if self.edits(path) {
            let problem = "the layer shows it and does not read it back: let it call `LayerPass::attention_weights`";
            self.error.get_or_insert_with(|| HookError::new(path, problem));
        }
        self.activation(path, x);
    }
}

impl Action {
    /// The activation after the action; none where it stays as it is and is to be kept.
    fn apply<const R: usize>(&mut self, x: Tensor<R>) -> Result<Option<Tensor<R>>, String> {
        match self {
            Self::Record => Ok(None),
            Self::Ablate(by, slice) => slice.replace(x.clone(), by.of(&x)).map(Some),
            Self::Patch { source, rank, slice } => {
                let source = source.downcast_ref::<Tensor<R>>().ok_or_else(|| other_rank(&x, *rank))?;
                slice.replace(x, source.clone()).map(Some)
            }
            Self::Edit { rank, edit } => {
                let edited = edit(Box::new(x.clone())).ok_or_else(|| other_rank(&x, *rank))?;
                let edited = edited.downcast::<Tensor<R>>().map_err(|_| other_rank(&x, *rank))?;
                same_shape(&x, *edited).map(Some)
            }
        }
    }
}

fn other_rank<const R: usize>(x: &Tensor<R>, rank: usize) -> String {
    format!("the activation has the shape {:?}, and the hook is for {rank} dimensions", x.dims())
}

fn same_shape<const R: usize>(x: &Tensor<R>, edited: Tensor<R>) -> Result<Tensor<R>, String> {
    let [before, after] = [x.dims(), edited.dims()];
    let problem = || format!("the activation has the shape {before:?}, and an edit made {after:?} of it");
    if before == after { Ok(edited) } else { Err(problem()) }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_list().entries(self.hooks.iter().map(|hook| &hook.pattern)).finish()
    }
}

/// The hooks of a pass in one of its layers.
#[derive(Debug)]
pub(crate) struct LayerHooks<'a> {
    hooks: &'a mut Hooks,
    layer: usize,
}

impl<'a> LayerHooks<'a> {
    pub(crate) fn new(hooks: &'a mut Hooks, layer: usize) -> Self {
        Self { hooks, layer }
    }

    /// The same for a part of the layer.
    pub(crate) fn part(&mut self) -> LayerHooks<'_> {
        LayerHooks { hooks: &mut *self.hooks, layer: self.layer }
    }

    fn path(&self, name: &str) -> String {
        format!("blocks.{}.{name}", self.layer)
    }

    /// [`Hooks::wants`], by the name in the layer.
    pub(crate) fn wants(&mut self, name: &str) -> bool {
        let path = self.path(name);
        self.hooks.wants(&path)
    }

    /// [`Hooks::edits`], by the name in the layer.
    pub(crate) fn edits(&self, name: &str) -> bool {
        self.hooks.edits(&self.path(name))
    }

    /// [`Hooks::activation`], by the name in the layer.
    pub(crate) fn activation<const R: usize>(&mut self, name: &str, x: Tensor<R>) -> Tensor<R> {
        let path = self.path(name);
        self.hooks.activation(&path, x)
    }

    /// [`Hooks::shown`], by the name in the layer.
    pub(crate) fn shown<const R: usize>(&mut self, name: &str, x: Tensor<R>) {
        let path = self.path(name);
        self.hooks.shown(&path, x);
    }
}
