//! A tensor of a backend under the names of Burn's `Tensor`, so that the passes read as their equations.

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, Slice, TensorMetadata, get_device_settings};
use burn::tensor::{DType, FloatDType, Shape};
use std::ops::Range;

/// A tensor with four dimensions.
#[derive(Debug)]
pub(super) struct Float<B: Backend>(pub(super) FloatTensor<B>);

impl<B: Backend> Clone for Float<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend> Float<B> {
    pub(super) fn dims(&self) -> [usize; 4] {
        self.0.shape().dims()
    }

    pub(super) fn zeros(shape: [usize; 4], like: &Self) -> Self {
        Self(B::float_zeros(Shape::from(shape), &like.0.device(), like.0.dtype().into()))
    }

    /// In the type that sums are formed in: at least single precision.
    pub(super) fn widen(self) -> Self {
        match self.0.dtype() {
            DType::F16 | DType::BF16 => Self(B::float_cast(self.0, FloatDType::F32)),
            _ => self,
        }
    }

    pub(super) fn cast(self, dtype: DType) -> Self {
        if self.0.dtype() == dtype { self } else { Self(B::float_cast(self.0, dtype.into())) }
    }

    pub(super) fn add(self, other: Self) -> Self {
        Self(B::float_add(self.0, other.0))
    }

    pub(super) fn sub(self, other: Self) -> Self {
        Self(B::float_sub(self.0, other.0))
    }

    pub(super) fn mul(self, other: Self) -> Self {
        Self(B::float_mul(self.0, other.0))
    }

    pub(super) fn scale(self, factor: f64) -> Self {
        Self(B::float_mul_scalar(self.0, factor.into()))
    }

    pub(super) fn add_scalar(self, term: f64) -> Self {
        Self(B::float_add_scalar(self.0, term.into()))
    }

    pub(super) fn clamp_min(self, lowest: f64) -> Self {
        Self(B::float_clamp_min(self.0, lowest.into()))
    }

    /// The larger of two numbers in each place, of which `other` has one for many.
    pub(super) fn larger(self, other: Self) -> Self {
        let other = B::float_expand(other.0, self.0.shape());
        let dtype = get_device_settings::<B>(&self.0.device()).bool_dtype;
        let lower = B::float_lower(self.0.clone(), other.clone(), dtype);
        Self(B::float_mask_where(self.0, lower, other))
    }

    pub(super) fn exp(self) -> Self {
        Self(B::float_exp(self.0))
    }

    pub(super) fn tanh(self) -> Self {
        Self(B::float_tanh(self.0))
    }

    pub(super) fn recip(self) -> Self {
        Self(B::float_recip(self.0))
    }

    pub(super) fn sum(self, dim: usize) -> Self {
        Self(B::float_sum_dim(self.0, dim))
    }

    pub(super) fn max(self, dim: usize) -> Self {
        Self(B::float_max_dim(self.0, dim))
    }

    pub(super) fn matmul(self, other: Self) -> Self {
        Self(B::float_matmul(self.0, other.0))
    }

    /// Rows and columns of the matrices swapped.
    pub(super) fn transpose(self) -> Self {
        Self(B::float_swap_dims(self.0, 2, 3))
    }

    pub(super) fn reshape(self, shape: [usize; 4]) -> Self {
        if self.dims() == shape { self } else { Self(B::float_reshape(self.0, Shape::from(shape))) }
    }

    /// Where the mask is true, `value`.
    pub(super) fn fill(self, mask: BoolTensor<B>, value: f64) -> Self {
        let mask = B::bool_expand(mask, self.0.shape());
        Self(B::float_mask_fill(self.0, mask, value.into()))
    }

    /// The part in some ranges, which is the whole where they are.
    pub(super) fn slice(self, ranges: &[Range<usize>; 4]) -> Self {
        if whole(ranges, self.dims()) { self } else { Self(B::float_slice(self.0, &slices(ranges))) }
    }

    /// With `part` in some ranges.
    pub(super) fn assign(self, ranges: &[Range<usize>; 4], part: Self) -> Self {
        Self(B::float_slice_assign(self.0, &slices(ranges), part.0))
    }

    /// One after the other.
    pub(super) fn cat(mut parts: Vec<Self>, dim: usize) -> Self {
        match parts.len() {
            1 => parts.swap_remove(0),
            _ => Self(B::float_cat(parts.into_iter().map(|part| part.0).collect(), dim)),
        }
    }
}

pub(super) fn whole(ranges: &[Range<usize>; 4], shape: [usize; 4]) -> bool {
    ranges.iter().zip(shape).all(|(range, size)| *range == (0..size))
}

pub(super) fn slices(ranges: &[Range<usize>; 4]) -> [Slice; 4] {
    ranges.clone().map(Slice::from)
}
