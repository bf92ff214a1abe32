//! One intervention after the other: what each does to a number that a pass gives.
//!
//! Sources: activation patching, also called causal tracing or interchange intervention, Vig et al. 2020
//! (<https://arxiv.org/abs/2004.12265>) and Meng et al. 2022, §2.1 (<https://arxiv.org/abs/2202.05262>); the normalised difference of logits, Wang et
//! al. 2022, §2.2 (<https://arxiv.org/abs/2211.00593>) and Zhang and Nanda 2024, §2.2 (<https://arxiv.org/abs/2309.16042>); heads switched off one
//! by one, Michel et al. 2019, §3.1 (<https://arxiv.org/abs/1905.10650>).

use crate::hooks::{Ablation, ActivationSlice, Activations, HookError, Hooks};
use crate::pass::Pass;
use burn::tensor::Tensor;

/// What the columns of a [`Grid`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Columns {
    /// The tokens of the pass.
    Positions,
    /// The heads of an activation `[B, H, T, W]`.
    Heads,
}

impl Columns {
    fn count(self, path: &str, shape: &[usize]) -> Result<usize, HookError> {
        match (self, shape) {
            (Self::Positions, [_, .., tokens, _]) => Ok(*tokens),
            (Self::Heads, [_, heads, _, _]) => Ok(*heads),
            _ => Err(HookError::new(
                path,
                format!("it has the shape {shape:?}, which has no {}", format!("{self:?}").to_lowercase()),
            )),
        }
    }

    fn slice(self, column: usize) -> ActivationSlice {
        match self {
            Self::Positions => ActivationSlice::positions([column]),
            Self::Heads => ActivationSlice::heads([column]),
        }
    }
}

/// A number for each token or head of several activations.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// The activations, a row each, in the order of the pass.
    pub paths: Vec<String>,
    /// The numbers of each row; rows may differ in length where layers differ in heads.
    pub values: Vec<Vec<f64>>,
}

impl Grid {
    fn fill(
        found: &Activations,
        columns: Columns,
        mut value: impl FnMut(&str, ActivationSlice) -> Result<f64, HookError>,
    ) -> Result<Self, HookError> {
        let mut grid = Self { paths: found.paths().map(String::from).collect(), values: Vec::new() };
        for path in &grid.paths {
            let count = columns.count(path, found.shape(path).unwrap_or_default())?;
            let row: Result<Vec<f64>, HookError> =
                (0..count).map(|column| value(path, columns.slice(column))).collect();
            grid.values.push(row?);
        }
        Ok(grid)
    }
}

/// Activation patching: the share of a number that is restored when an activation of the clean pass replaces that of the corrupted pass, 0
/// for none of it and 1 for all. `pattern` names the activations; one token or head of one of them is replaced at a time.
///
/// Both passes read inputs of one shape, and give a number for each row, `[B]`, of which the mean counts: the difference of the logits of
/// two tokens, for example.
///
/// # Errors
/// If `pattern` names no activation, one without such columns, or one of other than 3 or 4 dimensions; if both passes give the same number, so
/// that there is nothing to restore.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::inspect::{Columns, patching_effects};
/// use firelight_core::{HookError, Pass, SequenceInput, TransformerConfig};
///
/// let stack = TransformerConfig::new(16, 4, 2).init(&Device::flex());
/// let clean = Tensor::<3>::ones([1, 3, 16], &Device::flex());
/// let corrupted = clean.clone().slice_fill([0..1, 1..2, 0..8], -1.0); // Another second token.
/// let run = |x: &Tensor<3>, pass: &mut Pass| {
///     let y = stack.forward(x.clone(), &SequenceInput::default(), pass);
///     y.narrow(1, 2, 1).narrow(2, 0, 1).reshape([1]) // A number of the last token.
/// };
/// let grid = patching_effects("blocks.*.output", Columns::Positions, |pass| run(&clean, pass), |pass| run(&corrupted, pass))?;
/// assert_eq!(grid.values[0][0], 0.0); // The first token is the same in both, and sees no other.
/// assert!((grid.values[1][2] - 1.0).abs() < 1e-3); // The last token behind the last layer is all that the number is read off.
/// # Ok::<(), HookError>(())
/// ```
#[doc(alias = "activation patching")]
#[doc(alias = "causal tracing")]
pub fn patching_effects(
    pattern: &str,
    columns: Columns,
    clean: impl FnOnce(&mut Pass) -> Tensor<1>,
    mut corrupted: impl FnMut(&mut Pass) -> Tensor<1>,
) -> Result<Grid, HookError> {
    let (clean, found) = Hooks::new().record(pattern).run(clean)?;
    let (clean, base) = (mean(clean), mean(corrupted(&mut Pass::default())));
    if !(clean - base).is_normal() {
        let problem = format!("the clean pass gives {clean} and the corrupted one {base}: nothing is to be restored");
        return Err(HookError::new(pattern, problem));
    }
    Grid::fill(&found, columns, |path, slice| {
        let (number, _) = patched(&found, path, slice)?.run(&mut corrupted)?;
        Ok((mean(number) - base) / (clean - base))
    })
}

/// The change of a number when a token or head of an activation is ablated: the number of the ablated pass minus that of the plain pass.
/// `pattern` names the activations; one token or head of one of them is ablated at a time.
///
/// `forward` gives a number for each row, `[B]`, of which the mean counts.
///
/// # Errors
/// If `pattern` names no activation, or one without such columns.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::inspect::{Columns, ablation_effects};
/// use firelight_core::{Ablation, HookError, Pass, SequenceInput, TransformerConfig};
///
/// let stack = TransformerConfig::new(16, 4, 2).init(&Device::flex());
/// let x = Tensor::<3>::ones([1, 3, 16], &Device::flex());
/// let number = |pass: &mut Pass| stack.forward(x.clone(), &SequenceInput::default(), pass).narrow(2, 0, 1).mean();
/// let grid = ablation_effects("blocks.*.attention.heads", Columns::Heads, Ablation::Zero, number)?;
/// assert_eq!(grid.values.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
/// # Ok::<(), HookError>(())
/// ```
pub fn ablation_effects(
    pattern: &str,
    columns: Columns,
    by: Ablation,
    mut forward: impl FnMut(&mut Pass) -> Tensor<1>,
) -> Result<Grid, HookError> {
    let (plain, found) = Hooks::new().record(pattern).run(&mut forward)?;
    let plain = mean(plain);
    Grid::fill(&found, columns, |path, slice| {
        let (number, _) = Hooks::new().ablate(path, by, slice).run(&mut forward)?;
        Ok(mean(number) - plain)
    })
}

/// Hooks that put what was found back.
fn patched(found: &Activations, path: &str, slice: ActivationSlice) -> Result<Hooks, HookError> {
    match found.shape(path).map(<[usize]>::len) {
        Some(4) => Ok(Hooks::new().patch(path, found.get::<4>(path)?, slice)),
        _ => Ok(Hooks::new().patch(path, found.get::<3>(path)?, slice)),
    }
}

fn mean(numbers: Tensor<1>) -> f64 {
    numbers.mean().into_scalar::<f64>()
}
