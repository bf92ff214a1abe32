//! The one comparison of numbers that every test uses: what cannot be compared counts as infinitely far apart.
//!
//! A fold over `f64::max` drops NaN, and `zip` drops what the shorter list lacks, so a test built on them passes where
//! it should fail. Here a NaN, a missing tensor, an empty list and unequal lengths or shapes all fail.

use burn::tensor::{Tensor, TensorData};

/// Something that holds numbers, or `None` where there is nothing to compare.
pub trait Numbers {
    /// The numbers in double precision, in row-major order; `None` if they are missing.
    fn numbers(&self) -> Option<Vec<f64>>;

    /// The shape, which a list of numbers does not have.
    fn shape(&self) -> Option<Vec<usize>> {
        None
    }
}

macro_rules! numbers_of_slices {
    ($($float:ty),*) => {$(
        impl Numbers for [$float] {
            fn numbers(&self) -> Option<Vec<f64>> {
                Some(self.iter().map(|&number| f64::from(number)).collect())
            }
        }

        impl Numbers for Vec<$float> {
            fn numbers(&self) -> Option<Vec<f64>> {
                self.as_slice().numbers()
            }
        }

        impl<const N: usize> Numbers for [$float; N] {
            fn numbers(&self) -> Option<Vec<f64>> {
                self.as_slice().numbers()
            }
        }
    )*};
}

numbers_of_slices!(f32, f64);

impl Numbers for TensorData {
    fn numbers(&self) -> Option<Vec<f64>> {
        Some(self.iter().collect())
    }

    fn shape(&self) -> Option<Vec<usize>> {
        Some(TensorData::shape(self).to_vec())
    }
}

impl<const D: usize> Numbers for Tensor<D> {
    fn numbers(&self) -> Option<Vec<f64>> {
        self.to_data().numbers()
    }

    fn shape(&self) -> Option<Vec<usize>> {
        Some(self.dims().to_vec())
    }
}

impl<T: Numbers> Numbers for Option<T> {
    fn numbers(&self) -> Option<Vec<f64>> {
        self.as_ref().and_then(Numbers::numbers)
    }

    fn shape(&self) -> Option<Vec<usize>> {
        self.as_ref().and_then(Numbers::shape)
    }
}

impl<T: Numbers + ?Sized> Numbers for &T {
    fn numbers(&self) -> Option<Vec<f64>> {
        (**self).numbers()
    }

    fn shape(&self) -> Option<Vec<usize>> {
        (**self).shape()
    }
}

/// The largest absolute difference of two lists of numbers, and the size of the expected ones.
///
/// # Example
///
/// ```
/// use firelight_kernels::Difference;
///
/// let difference = Difference::between(&[1.0, 2.5], &[1.0, 2.0]);
/// assert_eq!((difference.absolute, difference.index), (0.5, 1));
/// assert_eq!(difference.relative(0.0), 0.25);
/// assert!(Difference::between(&[f64::NAN], &[1.0]).absolute.is_infinite());
/// assert!(Difference::between(&[1.0], &[1.0, 2.0]).absolute.is_infinite());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The largest absolute difference. Infinite if one side is missing or empty, if the lengths or the shapes of two
    /// tensors differ, or if either side holds a NaN. Equal infinities do not differ.
    pub absolute: f64,
    /// The index of that difference.
    pub index: usize,
    /// The largest finite magnitude of the expected numbers.
    pub largest: f64,
}

impl Difference {
    /// Compares `found` with `expected`.
    pub fn between(found: &(impl Numbers + ?Sized), expected: &(impl Numbers + ?Sized)) -> Self {
        let shapes = found.shape().zip(expected.shape());
        let fits = shapes.is_none_or(|(found, expected)| found == expected);
        match (found.numbers(), expected.numbers()) {
            (Some(found), Some(expected)) if fits && found.len() == expected.len() && !found.is_empty() => {
                Self::of_equal_lengths(&found, &expected)
            }
            _ => Self { absolute: f64::INFINITY, index: 0, largest: 0.0 },
        }
    }

    /// The difference over the largest expected magnitude, or over `floor` where that is larger.
    pub fn relative(self, floor: f64) -> f64 {
        if self.absolute == 0.0 { 0.0 } else { self.absolute / self.largest.max(floor) }
    }

    fn of_equal_lengths(found: &[f64], expected: &[f64]) -> Self {
        let sizes = expected.iter().map(|x| x.abs()).filter(|size| size.is_finite());
        let largest = sizes.fold(0.0, f64::max);
        let differences = found.iter().zip(expected).map(|(&found, &expected)| distance(found, expected));
        let (index, absolute) =
            differences.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, f64::INFINITY));
        Self { absolute, index, largest }
    }
}

/// Asserts that `found` and `expected` differ by `tolerance` at most.
///
/// # Panics
/// If they differ by more, or cannot be compared: see [`Difference`].
#[track_caller]
pub fn assert_close(found: &(impl Numbers + ?Sized), expected: &(impl Numbers + ?Sized), tolerance: f64) {
    let difference = Difference::between(found, expected);
    assert!(difference.absolute <= tolerance, "{difference:?} exceeds {tolerance:e}");
}

/// Asserts that `found` and `expected` are equal to the bit.
///
/// # Panics
/// If a bit differs, or nothing is there to compare: see [`Difference`]. A NaN equals nothing.
#[track_caller]
pub fn assert_same_bits(found: &(impl Numbers + ?Sized), expected: &(impl Numbers + ?Sized)) {
    let difference = Difference::between(found, expected);
    let bits = |numbers: Option<Vec<f64>>| numbers.map(|list| list.into_iter().map(f64::to_bits).collect::<Vec<_>>());
    assert!(difference.absolute == 0.0 && bits(found.numbers()) == bits(expected.numbers()), "{difference:?}");
}

fn distance(found: f64, expected: f64) -> f64 {
    match (found - expected).abs() {
        _ if found == expected => 0.0,
        distance if distance.is_nan() => f64::INFINITY,
        distance => distance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absolute(found: &(impl Numbers + ?Sized), expected: &(impl Numbers + ?Sized)) -> f64 {
        Difference::between(found, expected).absolute
    }

    #[test]
    fn the_largest_difference_is_found_with_its_place() {
        let difference = Difference::between(&[1.0, -4.0, 3.0], &[1.5, -2.0, 3.0]);
        assert_eq!(difference, Difference { absolute: 2.0, index: 1, largest: 3.0 });
        assert_eq!(difference.relative(8.0), 0.25);
    }

    #[test]
    fn what_cannot_be_compared_is_infinitely_far_apart() {
        let nan = f64::NAN;
        assert_eq!(absolute(&[1.0, nan], &[1.0, 2.0]), f64::INFINITY);
        assert_eq!(absolute(&[1.0, 2.0], &[nan, 2.0]), f64::INFINITY);
        assert_eq!(absolute(&[nan], &[nan]), f64::INFINITY);
        assert_eq!(absolute(&[1.0], &[1.0, 2.0]), f64::INFINITY);
        assert_eq!(absolute(&Vec::<f32>::new(), &Vec::<f32>::new()), f64::INFINITY);
        assert_eq!(absolute(&None::<Vec<f32>>, &None::<Vec<f32>>), f64::INFINITY);
        assert_eq!(absolute(&Some(vec![1.0_f32]), &None::<Vec<f32>>), f64::INFINITY);
        assert_eq!(absolute(&[f64::INFINITY], &[f64::NEG_INFINITY]), f64::INFINITY);
    }

    #[test]
    fn tensors_of_two_shapes_differ_and_a_list_has_none() {
        let [row, column] = [[1, 2], [2, 1]].map(|shape| TensorData::new(vec![1.0_f32, 2.0], shape));
        assert_eq!(absolute(&Some(row.clone()), &Some(column.clone())), f64::INFINITY);
        assert_eq!(absolute(&row, &row.clone()), 0.0);
        assert_eq!(absolute(&column, &[1.0, 2.0]), 0.0);
        let tensor = |data| Tensor::<2>::from_data(data, &burn::tensor::Device::default());
        assert_eq!(absolute(&tensor(row.clone()), &row), 0.0);
        assert_eq!(absolute(&tensor(row), &column), f64::INFINITY);
    }

    #[test]
    fn equal_infinities_do_not_differ() {
        assert_eq!(absolute(&[f64::NEG_INFINITY, 1.0], &[f64::NEG_INFINITY, 1.0]), 0.0);
    }

    #[test]
    fn an_infinity_hides_no_other_difference() {
        let difference = Difference::between(&[f64::INFINITY, 3.0], &[f64::INFINITY, 2.0]);
        assert_eq!(difference.relative(0.0), 0.5);
        assert_eq!(Difference::between(&[1.0], &[f64::INFINITY]).relative(1.0), f64::INFINITY);
    }

    #[test]
    #[should_panic(expected = "exceeds")]
    fn a_nan_is_not_close() {
        assert_close(&[f32::NAN], &[0.0_f32], f64::MAX);
    }

    #[test]
    #[should_panic(expected = "Difference")]
    fn zeros_of_two_signs_are_equal_numbers_and_other_bits() {
        assert_same_bits(&[0.0_f32], &[-0.0_f32]);
    }
}
