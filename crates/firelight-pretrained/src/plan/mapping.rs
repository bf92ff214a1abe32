//! The rows of a family's table: how the parameters of a layer are called there and here, and how one becomes the other.

use std::borrow::Cow;

use super::View;

/// One step from a tensor of theirs to one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// One of several equal parts of an axis.
    Part {
        /// The axis.
        axis: usize,
        /// Which part.
        index: usize,
        /// Of how many.
        of: usize,
    },
    /// One of several equal parts of the last axis.
    Last {
        /// Which part.
        index: usize,
        /// Of how many.
        of: usize,
    },
    /// Every `step`th place of an axis, from `start` on.
    Every {
        /// The axis.
        axis: usize,
        /// The first place.
        start: usize,
        /// How far the next one is.
        step: usize,
    },
    /// All but the first places of the first axis.
    Behind(usize),
    /// The place of the first axis that the last number of our path names: an expert.
    Item,
    /// The only place of the first axis, which is gone then.
    Alone,
    /// So many axes of length 1 before all others.
    InFront(usize),
    /// The first axis as several, in another order.
    Regrouped {
        /// The lengths; 0 is what is left.
        lens: Vec<usize>,
        /// The order.
        order: Vec<usize>,
    },
    /// Rows and columns exchanged.
    Transposed,
    /// The axes from a number on, of these lengths, as one.
    Merged {
        /// The first of them.
        first: usize,
        /// Their lengths.
        lens: Vec<usize>,
    },
    /// The axes in another order.
    Permuted(Vec<usize>),
}

impl Step {
    /// None where the tensor is not of such a shape.
    pub(crate) fn apply(&self, view: View, item: Option<usize>) -> Option<View> {
        let shape = view.shape();
        match *self {
            Self::Part { axis, index, of } => {
                let len = *shape.get(axis)?;
                (of > 0 && len.is_multiple_of(of)).then(|| view.narrow(axis, index * len / of, len / of))
            }
            Self::Last { index, of } => Self::Part { axis: shape.len().checked_sub(1)?, index, of }.apply(view, item),
            Self::Every { axis, start, step } => {
                shape.get(axis)?.is_multiple_of(step).then(|| view.every(axis, start, step))
            }
            Self::Behind(first) => {
                let len = shape.first()?.checked_sub(first)?;
                Some(view.narrow(0, first, len))
            }
            Self::Item => {
                item.filter(|index| shape.first().is_some_and(|len| index < len)).map(|index| view.item(0, index))
            }
            Self::Alone => (shape.first() == Some(&1)).then(|| view.item(0, 0)),
            Self::InFront(axes) => Some(view.in_front(axes)),
            Self::Regrouped { ref lens, ref order } => {
                let rows = *shape.first()?;
                let known: usize = lens.iter().filter(|len| **len > 0).product();
                let lens: Vec<usize> =
                    lens.iter().map(|&len| if len > 0 { len } else { rows / known.max(1) }).collect();
                (lens.iter().product::<usize>() == rows).then(|| view.regrouped(0, &lens, order))
            }
            Self::Transposed => Some(if shape.len() > 1 { view.transposed() } else { view }),
            // A bias has no axes to merge.
            Self::Merged { first, .. } if shape.len() <= first => Some(view),
            Self::Merged { first, ref lens } => (shape.get(first..) == Some(lens)).then(|| view.merged(first)),
            Self::Permuted(ref order) => (shape.len() == order.len()).then(|| view.permuted(order)),
        }
    }
}

impl Step {
    /// The shape of a tensor from which this step makes one of `shape`, where there are so many experts.
    pub(crate) fn undone(&self, mut shape: Vec<usize>, items: usize) -> Option<Vec<usize>> {
        match *self {
            Self::Part { axis, of: times, .. } | Self::Every { axis, step: times, .. } => {
                *shape.get_mut(axis)? *= times
            }
            Self::Last { of, .. } => *shape.last_mut()? *= of,
            Self::Behind(first) => *shape.first_mut()? += first,
            Self::Item => shape.insert(0, items),
            Self::Alone => shape.insert(0, 1),
            Self::InFront(axes) => {
                shape.get(..axes)?.iter().all(|len| *len == 1).then(|| shape.drain(..axes))?;
            }
            Self::Regrouped { .. } => {}
            Self::Transposed => {
                if let [.., row, column] = &mut shape[..] {
                    std::mem::swap(row, column);
                }
            }
            Self::Merged { first, .. } if shape.len() <= first => {}
            Self::Merged { first, ref lens } => {
                shape.truncate(first);
                shape.extend(lens);
            }
            Self::Permuted(ref order) => {
                let place = |axis| Some(shape[order.iter().position(|&from| from == axis)?]);
                shape = (0..shape.len()).map(place).collect::<Option<_>>()?;
            }
        }
        Some(shape)
    }
}

/// Which parameters a layer has, and how they are called on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerKind {
    /// `weight`, which is transposed, and `bias`.
    Linear,
    /// The same, not transposed.
    Conv1d,
    /// `gamma` and `beta` here, `weight` and `bias` there.
    Norm,
    /// `weight` as it is.
    Table,
    /// One parameter.
    Tensor,
}

impl LayerKind {
    /// The ends of the names here and there.
    fn ends(self) -> &'static [[&'static str; 2]] {
        match self {
            Self::Linear | Self::Conv1d => &[[".weight", ".weight"], [".bias", ".bias"]],
            Self::Norm => &[[".gamma", ".weight"], [".beta", ".bias"]],
            Self::Table => &[[".weight", ".weight"]],
            Self::Tensor => &[["", ""]],
        }
    }
}

/// A row of the table of a family: a layer of the model, or one parameter, by its name there and here, where `{}` stands for the number of a
/// block or of an expert.
///
/// The table says what could be there, the model what is: a row whose layer a model does not have is not read, so that one table does for
/// biases or none, experts or none.
#[doc(alias = "weight conversion")]
#[doc(alias = "state dict mapping")]
#[derive(Clone, Debug)]
pub struct WeightMapping {
    theirs: Cow<'static, str>,
    ours: Cow<'static, str>,
    kind: LayerKind,
    steps: Vec<Step>,
    plus: f32,
}

impl WeightMapping {
    fn new(theirs: impl Into<Cow<'static, str>>, ours: impl Into<Cow<'static, str>>, kind: LayerKind) -> Self {
        Self { theirs: theirs.into(), ours: ours.into(), kind, steps: Vec::new(), plus: 0.0 }
    }

    /// A linear layer, whose matrix PyTorch keeps transposed.
    pub fn linear(theirs: impl Into<Cow<'static, str>>, ours: impl Into<Cow<'static, str>>) -> Self {
        Self::new(theirs, ours, LayerKind::Linear)
    }

    /// A linear layer whose matrix lies as ours: `Conv1D` of GPT-2.
    pub fn conv1d(theirs: impl Into<Cow<'static, str>>, ours: impl Into<Cow<'static, str>>) -> Self {
        Self::new(theirs, ours, LayerKind::Conv1d)
    }

    /// A norm.
    pub fn norm(theirs: impl Into<Cow<'static, str>>, ours: impl Into<Cow<'static, str>>) -> Self {
        Self::new(theirs, ours, LayerKind::Norm)
    }

    /// An embedding, whose rows are looked up.
    pub fn table(theirs: impl Into<Cow<'static, str>>, ours: impl Into<Cow<'static, str>>) -> Self {
        Self::new(theirs, ours, LayerKind::Table)
    }

    /// One parameter by its whole name.
    pub fn tensor(theirs: impl Into<Cow<'static, str>>, ours: impl Into<Cow<'static, str>>) -> Self {
        Self::new(theirs, ours, LayerKind::Tensor)
    }

    /// Takes another step from their tensor to ours; the matrix of a linear layer is transposed behind all of them.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Adds a number to theirs: 1 where norms keep what they add to 1.
    #[must_use]
    pub fn plus(mut self, number: f32) -> Self {
        self.plus = number;
        self
    }

    /// Our name.
    pub fn ours(&self) -> &str {
        &self.ours
    }

    /// Whether it is about a norm.
    pub fn is_norm(&self) -> bool {
        self.kind == LayerKind::Norm
    }

    /// What is added to theirs.
    pub(super) fn addend(&self) -> f32 {
        self.plus
    }

    /// The name there of a parameter that this row is about, and the last number of its path.
    pub(super) fn theirs(&self, path: &str) -> Option<(String, Option<usize>)> {
        self.kind.ends().iter().find_map(|[here, there]| {
            let numbers = numbers(&self.ours, path.strip_suffix(here)?)?;
            let item = numbers.last().and_then(|number| number.parse().ok());
            Some((filled(&self.theirs, &numbers) + there, item))
        })
    }

    /// Where the numbers of a parameter lie in a tensor of theirs; none where it has not such a shape.
    pub(super) fn view(&self, shape: &[usize], item: Option<usize>) -> Option<View> {
        self.all_steps().try_fold(View::whole(shape), |view, step| step.apply(view, item))
    }

    /// The shape of the tensor that a parameter of `shape` lies in, beside those of so many experts.
    pub(super) fn shape_of(&self, shape: &[usize], items: usize) -> Option<Vec<usize>> {
        let steps: Vec<&Step> = self.all_steps().collect();
        steps.into_iter().rev().try_fold(shape.to_vec(), |shape, step| step.undone(shape, items))
    }

    fn all_steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().chain((self.kind == LayerKind::Linear).then_some(&Step::Transposed))
    }
}

/// The numbers that stand in a name where a pattern has `{}`; none where it does not fit.
pub(crate) fn numbers<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
    let mut parts = pattern.split("{}");
    let mut rest = name.strip_prefix(parts.next()?)?;
    let mut found = Vec::new();
    for part in parts {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        found.push(number);
        rest = behind.strip_prefix(part)?;
    }
    (rest.is_empty() && found.iter().all(|number| !number.is_empty())).then_some(found)
}

/// A pattern with numbers in the places of `{}`.
pub(crate) fn filled(pattern: &str, numbers: &[&str]) -> String {
    let mut numbers = numbers.iter();
    let parts = pattern.split("{}").enumerate();
    parts
        .map(|(i, part)| if i == 0 { part.to_string() } else { format!("{}{part}", numbers.next().unwrap_or(&"")) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_finds_numbers_and_is_filled_with_them() {
        assert_eq!(numbers("h.{}.x.{}.w", "h.12.x.0.w"), Some(vec!["12", "0"]));
        assert_eq!(numbers("h.{}", "h.3"), Some(vec!["3"]));
        for other in ["h.12.x.w", "h.a.x.0.w", "h.12.x.0.w.b", "g.12.x.0.w", "h..x.0.w"] {
            assert_eq!(numbers("h.{}.x.{}.w", other), None, "{other}");
        }
        assert_eq!(filled("l.{}.e", &["4", "7"]), "l.4.e");
    }

    #[test]
    fn a_row_names_both_parameters_of_a_part() {
        let row = WeightMapping::norm("h.{}.ln", "blocks.{}.norm");
        assert_eq!(row.theirs("blocks.3.norm.beta"), Some(("h.3.ln.bias".into(), Some(3))));
        assert_eq!(row.theirs("blocks.3.norm.weight"), None);
        let row = WeightMapping::linear("a", "b").step(Step::Part { axis: 0, index: 1, of: 2 });
        assert_eq!(row.view(&[4, 3], None).unwrap().shape(), [3, 2]);
        assert_eq!(row.view(&[4], None).unwrap().shape(), [2]);
        assert_eq!(row.view(&[5, 3], None), None, "five rows have no halves");
    }

    #[test]
    fn tensors_of_another_shape_are_none_of_a_row() {
        let steps = [
            Step::Part { axis: 2, index: 0, of: 2 },
            Step::Every { axis: 1, start: 0, step: 2 },
            Step::Behind(5),
            Step::Item,
            Step::Regrouped { lens: vec![3, 0], order: vec![1, 0] },
            Step::Permuted(vec![2, 1, 0]),
        ];
        for step in steps {
            let row = WeightMapping::tensor("a", "b").step(step.clone());
            assert_eq!(row.view(&[4, 3], None), None, "{step:?}");
        }
    }
}
