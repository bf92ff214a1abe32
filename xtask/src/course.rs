//! What a model did in a few steps, one after the other: losses and gradients, as `tests/examples/course.rs` writes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use safetensors::SafeTensors;

#[derive(Debug, PartialEq)]
pub(crate) struct Course {
    /// The path that operations took: `fused kernels`.
    pub(crate) kernels: String,
    models: BTreeMap<String, Numbers>,
}

/// The numbers of a model by step and name: `0001/loss`, `0001/embedding.weight`.
type Numbers = BTreeMap<String, Vec<f32>>;

/// How far one model's course lies from another one's.
#[derive(Debug, PartialEq)]
pub(crate) struct Difference {
    pub(crate) model: String,
    /// Before the first and the last step.
    pub(crate) losses: [f32; 2],
    /// The largest relative difference of a loss.
    pub(crate) of_losses: f64,
    /// The same of a gradient, over the largest number of its parameter.
    pub(crate) of_gradients: f64,
    /// The step and the parameter where that was.
    pub(crate) most: String,
}

/// A gradient that should be zero, as that of a key's bias, holds what rounding left of larger ones: numbers below this part of
/// the largest of their step are compared with that part.
const FLOOR: f64 = 0.01;

impl Course {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let bytes = fs::read(file)?;
        let (_, header) = SafeTensors::read_metadata(&bytes)?;
        let kernels = header.metadata().as_ref().and_then(|notes| notes.get("kernels")).context("no path is noted")?;
        let mut models: BTreeMap<String, Numbers> = BTreeMap::new();
        for (name, view) in SafeTensors::deserialize(&bytes)?.tensors() {
            let (model, name) = name.split_once('/').with_context(|| format!("`{name}` names no model"))?;
            let numbers = view.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            models.entry(model.into()).or_default().insert(name.into(), numbers);
        }
        Ok(Self { kernels: kernels.clone(), models })
    }

    /// One entry a model.
    pub(crate) fn against(&self, expected: &Self) -> Result<Vec<Difference>> {
        ensure!(self.models.keys().eq(expected.models.keys()), "two ways trained other models");
        self.models
            .iter()
            .zip(expected.models.values())
            .map(|((model, found), expected)| compare(model, found, expected))
            .collect()
    }
}

fn compare(model: &str, found: &Numbers, expected: &Numbers) -> Result<Difference> {
    ensure!(found.keys().eq(expected.keys()), "two ways have gradients of other parameters of {model}");
    let all = || found.iter().zip(expected.values()).map(|((name, found), expected)| (name, found, expected));
    let of = |losses: bool| all().filter(move |(name, ..)| name.ends_with("/loss") == losses);
    let losses: Vec<f32> = of(true).map(|(_, found, _)| found[0]).collect();
    let each = |losses| of(losses).map(|(name, found, other)| (difference(found, other, floor(name, expected)), name));
    let largest =
        |losses| each(losses).max_by(|a, b| a.0.total_cmp(&b.0)).context("a course lacks losses or gradients");
    let ((of_losses, _), (of_gradients, most)) = (largest(true)?, largest(false)?);
    let losses = [losses[0], losses[losses.len() - 1]];
    Ok(Difference { model: model.into(), losses, of_losses, of_gradients, most: most.clone() })
}

/// What the numbers of `name` are at least compared with.
fn floor(name: &str, expected: &Numbers) -> f64 {
    let step = name.split('/').next().unwrap_or(name);
    let gradients =
        expected.iter().filter(|(name, _)| name.split('/').next() == Some(step) && !name.ends_with("/loss"));
    FLOOR * gradients.fold(0.0, |largest, (_, numbers)| size(numbers).max(largest))
}

/// The largest difference over the largest number, or over `floor`.
fn difference(found: &[f32], expected: &[f32], floor: f64) -> f64 {
    let each = found.iter().zip(expected).map(|(found, expected)| f64::from(found - expected).abs());
    let largest = each.fold(0.0, |largest: f64, x| if x.is_nan() { f64::INFINITY } else { largest.max(x) });
    match found.len() == expected.len() && !found.is_empty() {
        true => largest / size(expected).max(floor).max(f64::MIN_POSITIVE),
        false => f64::INFINITY,
    }
}

fn size(numbers: &[f32]) -> f64 {
    numbers.iter().fold(0.0, |largest, x| f64::from(x.abs()).max(largest))
}

impl Difference {
    pub(crate) fn largest(&self) -> f64 {
        self.of_losses.max(self.of_gradients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A course of one model and one step.
    fn course(loss: f32, weight: [f32; 2], bias: f32) -> Course {
        of([("0001/loss", vec![loss]), ("0001/weight", weight.into()), ("0001/bias", vec![bias])])
    }

    fn of<const N: usize>(numbers: [(&str, Vec<f32>); N]) -> Course {
        let numbers = numbers.map(|(name, numbers)| (name.to_owned(), numbers)).into();
        Course { kernels: "fused kernels".into(), models: [("gpt".to_owned(), numbers)].into() }
    }

    #[test]
    fn the_largest_difference_is_found_and_named() {
        let found = course(4.0, [2.0, 1.5], 0.5).against(&course(2.0, [2.0, 1.0], 0.5)).expect("the same parameters");
        let [found] = found.as_slice() else { panic!("one model") };
        assert_eq!((found.of_losses, found.of_gradients, found.most.as_str()), (1.0, 0.25, "0001/weight"));
        assert_eq!((found.losses, found.largest()), ([4.0, 4.0], 1.0));
    }

    #[test]
    fn the_first_and_the_last_loss_are_those_of_the_steps() {
        let weight = || ("0001/weight", vec![1.0]);
        let course = of([("0001/loss", vec![4.0]), ("0002/loss", vec![3.0]), ("0010/loss", vec![2.0]), weight()]);
        assert_eq!(course.against(&course).expect("the same parameters")[0].losses, [4.0, 2.0]);
    }

    #[test]
    fn what_should_be_zero_is_compared_with_a_part_of_the_rest() {
        let found = course(4.0, [2.0, 1.0], 1e-6).against(&course(4.0, [2.0, 1.0], 0.0)).expect("the same parameters");
        assert!((found[0].of_gradients - 1e-6 / 0.02).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn what_is_no_number_or_missing_is_no_agreement() {
        let found =
            course(4.0, [2.0, f32::NAN], 1.0).against(&course(4.0, [2.0, 1.0], 1.0)).expect("the same parameters");
        assert_eq!(found[0].of_gradients, f64::INFINITY);
        let less = of([("0001/loss", vec![4.0])]);
        assert!(less.against(&course(4.0, [2.0, 1.0], 1.0)).is_err());
    }
}
