//! Tensors that an operation may go without. Burn's dispatch carries no `Option`, but enums of tensors.

use burn::backend::{
    Backend, ExtensionType,
    tensor::{BoolTensor, FloatTensor},
};
use burn::tensor::{Bool, Tensor};

/// A tensor of numbers, or none.
#[derive(ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub(crate) enum OptionalFloat<B: Backend> {
    /// There is one.
    Some(FloatTensor<B>),
    /// There is none.
    None,
}

impl OptionalFloat<burn::backend::Dispatch> {
    pub(crate) fn new<const D: usize>(tensor: Option<Tensor<D>>) -> Self {
        tensor.map_or(Self::None, |tensor| Self::Some(tensor.into_dispatch()))
    }
}

impl<B: Backend> OptionalFloat<B> {
    #[cfg(feature = "cube")]
    pub(crate) fn of(tensor: Option<FloatTensor<B>>) -> Self {
        tensor.map_or(Self::None, Self::Some)
    }

    pub(crate) fn into_option(self) -> Option<FloatTensor<B>> {
        match self {
            Self::Some(tensor) => Some(tensor),
            Self::None => None,
        }
    }
}

/// A tensor of truths, or none.
#[derive(ExtensionType)]
#[extension_type(fusion: cfg(feature = "cube"))]
pub(crate) enum OptionalBool<B: Backend> {
    /// There is one.
    Some(BoolTensor<B>),
    /// There is none.
    None,
}

impl OptionalBool<burn::backend::Dispatch> {
    pub(crate) fn new<const D: usize>(tensor: Option<Tensor<D, Bool>>) -> Self {
        tensor.map_or(Self::None, |tensor| Self::Some(tensor.into_dispatch()))
    }
}

impl<B: Backend> OptionalBool<B> {
    #[cfg(feature = "cube")]
    pub(crate) fn of(tensor: Option<BoolTensor<B>>) -> Self {
        tensor.map_or(Self::None, Self::Some)
    }

    pub(crate) fn into_option(self) -> Option<BoolTensor<B>> {
        match self {
            Self::Some(tensor) => Some(tensor),
            Self::None => None,
        }
    }
}
