//! Keys or values as a cache stores them, whatever their numbers are. They are rounded once, where they come in.

use crate::state::{CacheType, bytes_of, select};
use burn::tensor::kind::Basic;
use burn::tensor::{DType, Device, Int, Tensor};
use firelight_kernels::{cast, dequantize_rows, quantize_rows};

/// The keys or the values of some tokens, `[B, G, T, E]`.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant)] // A layer has two of them.
pub(super) enum Stored {
    /// Floating point numbers, of any type.
    Floats(Tensor<4>),
    /// Eight bits, with scales.
    EightBits(EightBits),
}

/// Rows as [`quantize_rows`] makes them.
#[derive(Debug, Clone)]
pub(super) struct EightBits {
    codes: Tensor<4, Int>,
    scales: Tensor<4>,
    /// Numbers of a row.
    width: usize,
}

impl Stored {
    /// Rounds what is to be stored; each token by itself, so that it does not matter which tokens come with it.
    pub(super) fn of(x: Tensor<4>, cache_type: CacheType) -> Self {
        match (cache_type, cache_type.float()) {
            (CacheType::Q8_0, _) => {
                let width = x.dims()[3];
                let (codes, scales) = quantize_rows(x);
                Self::EightBits(EightBits { codes, scales, width })
            }
            (_, Some(dtype)) => Self::Floats(cast(x, dtype)),
            (_, None) => Self::Floats(x),
        }
    }

    /// The numbers: as they are stored, or in single precision.
    pub(super) fn floats(self) -> Tensor<4> {
        match self {
            Self::Floats(x) => x,
            Self::EightBits(EightBits { codes, scales, width }) => dequantize_rows(codes, scales, width),
        }
    }

    /// `[B, G, T, E]`.
    pub(super) fn dims(&self) -> [usize; 4] {
        match self {
            Self::Floats(x) => x.dims(),
            Self::EightBits(EightBits { codes, width, .. }) => {
                let [batch, groups, length, _] = codes.dims();
                [batch, groups, length, *width]
            }
        }
    }

    pub(super) fn length(&self) -> usize {
        self.dims()[2]
    }

    /// So many tokens of zeros, of the same batch and heads.
    pub(super) fn zeros(&self, length: usize) -> Self {
        match self {
            Self::Floats(x) => Self::Floats(zeros(x, length)),
            Self::EightBits(EightBits { codes, scales, width }) => {
                let (codes, scales) = (zeros(codes, length), zeros(scales, length));
                Self::EightBits(EightBits { codes, scales, width: *width })
            }
        }
    }

    /// Some tokens.
    pub(super) fn narrow(self, start: usize, length: usize) -> Self {
        match self {
            Self::Floats(x) => Self::Floats(x.narrow(2, start, length)),
            Self::EightBits(EightBits { codes, scales, width }) => {
                let (codes, scales) = (codes.narrow(2, start, length), scales.narrow(2, start, length));
                Self::EightBits(EightBits { codes, scales, width })
            }
        }
    }

    /// The same with `other` behind it in dimension `dim`: 0 for rows, 2 for tokens.
    ///
    /// # Panics
    /// If it is stored in another way.
    pub(super) fn followed_by(self, other: Self, dim: usize) -> Self {
        match (self, other) {
            (Self::Floats(x), Self::Floats(more)) => Self::Floats(Tensor::cat(vec![x, more], dim)),
            (Self::EightBits(one), Self::EightBits(more)) => Self::EightBits(EightBits {
                codes: Tensor::cat(vec![one.codes, more.codes], dim),
                scales: Tensor::cat(vec![one.scales, more.scales], dim),
                width: one.width,
            }),
            _ => panic!("keys and values of one cache are stored in one way"),
        }
    }

    /// Writes tokens in place as long as nobody else holds the buffer, which is so once the attention of the last step is done.
    ///
    /// # Panics
    /// If they are stored in another way.
    pub(super) fn write(&mut self, new: Self, start: usize) {
        match (self, new) {
            (Self::Floats(x), Self::Floats(new)) => write(x, new, start),
            (Self::EightBits(buffer), Self::EightBits(new)) => {
                write(&mut buffer.codes, new.codes, start);
                write(&mut buffer.scales, new.scales, start);
            }
            _ => panic!("keys and values of one cache are stored in one way"),
        }
    }

    /// Some rows of the batch, in their order and as often as they are named.
    pub(super) fn select(self, rows: &Tensor<1, Int>) -> Self {
        match self {
            Self::Floats(x) => Self::Floats(select(x, rows)),
            Self::EightBits(EightBits { codes, scales, width }) => {
                Self::EightBits(EightBits { codes: select(codes, rows), scales: select(scales, rows), width })
            }
        }
    }

    /// Memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Floats(x) => bytes_of(x),
            Self::EightBits(EightBits { codes, scales, .. }) => bytes_of(codes) + bytes_of(scales),
        }
    }

    /// Whether a cleared buffer can be used again: a new text may come in another batch size.
    pub(super) fn fits(&self, new: &Self) -> bool {
        let ([batch, groups, _, d_head], [new_batch, new_groups, _, new_d_head]) = (self.dims(), new.dims());
        [batch, groups, d_head] == [new_batch, new_groups, new_d_head] && self.holder() == new.holder()
    }

    /// The type of the numbers, and their device.
    fn holder(&self) -> (DType, Device) {
        match self {
            Self::Floats(x) => (x.dtype(), x.device()),
            Self::EightBits(EightBits { codes, .. }) => (codes.dtype(), codes.device()),
        }
    }
}

fn zeros<K: Basic>(like: &Tensor<4, K>, length: usize) -> Tensor<4, K> {
    let [batch, groups, _, width] = like.dims();
    Tensor::zeros([batch, groups, length, width], (&like.device(), like.dtype()))
}

fn write<K: Basic>(buffer: &mut Tensor<4, K>, new: Tensor<4, K>, start: usize) {
    let [batch, groups, length, width] = new.dims();
    buffer.inplace(|buffer| buffer.slice_assign([0..batch, 0..groups, start..start + length, 0..width], new));
}
