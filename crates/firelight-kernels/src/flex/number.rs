//! What the elements of a tensor are stored as: `f32` and `f64`, in which kernels compute, and `f16` and `bf16`, which they
//! copy, and whose sums they form in `f32`.

use super::{Matrix, Real, vectorised};
use burn::backend::flex::FlexTensor;
use burn::tensor::{Shape, TensorData, bf16, f16};

/// A floating point number of a tensor. Any bits are one.
pub(crate) trait Number: Copy + Send + Sync + 'static {
    /// What sums of many are formed in.
    type Sum: Real;
    /// Whether sums are of this type itself.
    const IS_SUM: bool;
    /// The same number, exactly.
    fn widen(self) -> Self::Sum;
    /// The nearest number to a sum.
    fn round(sum: Self::Sum) -> Self;
    /// A matrix of numbers that can be summed: itself, or a copy in `room`.
    fn in_sums<'a>(matrix: Matrix<'a, Self>, room: &'a mut [Self::Sum]) -> Matrix<'a, Self::Sum>;
    /// The numbers that a tensor of this type is stored as.
    fn storage(tensor: &FlexTensor) -> &[Self];
    /// The same to write to, if nobody else reads them.
    fn storage_mut(tensor: &mut FlexTensor) -> Option<&mut [Self]>;
    /// The same to write to, copied first if somebody else reads them.
    fn own_storage(tensor: &mut FlexTensor) -> &mut [Self];
    /// A contiguous tensor of `values`.
    fn tensor(values: Vec<Self>, shape: Shape) -> FlexTensor;
}

macro_rules! number {
    ($number:ty, $sum:ty, $widen:expr, $round:expr, $is_sum:literal, $in_sums:expr) => {
        impl Number for $number {
            type Sum = $sum;

            const IS_SUM: bool = $is_sum;

            #[inline(always)]
            fn widen(self) -> $sum {
                $widen(self)
            }

            #[inline(always)]
            fn round(sum: $sum) -> Self {
                $round(sum)
            }

            fn in_sums<'a>(matrix: Matrix<'a, Self>, room: &'a mut [$sum]) -> Matrix<'a, $sum> {
                $in_sums(matrix, room)
            }

            fn storage(tensor: &FlexTensor) -> &[Self] {
                tensor.storage::<$number>()
            }

            fn storage_mut(tensor: &mut FlexTensor) -> Option<&mut [Self]> {
                tensor.try_storage_mut::<$number>()
            }

            fn own_storage(tensor: &mut FlexTensor) -> &mut [Self] {
                tensor.storage_mut::<$number>()
            }

            fn tensor(values: Vec<Self>, shape: Shape) -> FlexTensor {
                FlexTensor::from_data(TensorData::new(values, shape))
            }
        }
    };
}

number!(f32, f32, std::convert::identity, std::convert::identity, true, as_it_is);
number!(f64, f64, std::convert::identity, std::convert::identity, true, as_it_is);
number!(f16, f32, f16::to_f32, f16::from_f32, false, widened);
number!(bf16, f32, widen_bf16, round_to_bf16, false, widened);

fn as_it_is<'a, T: Real>(matrix: Matrix<'a, T>, _room: &'a mut [T]) -> Matrix<'a, T> {
    matrix
}

fn widened<'a, N: Number>(matrix: Matrix<'a, N>, room: &'a mut [N::Sum]) -> Matrix<'a, N::Sum> {
    let [rows, columns] = matrix.shape();
    let room = &mut room[..rows * columns];
    for (row, room) in room.chunks_exact_mut(columns).enumerate() {
        match matrix.has_whole_rows() {
            true => widen_row(matrix.row(row), room),
            false => room.iter_mut().enumerate().for_each(|(column, wide)| *wide = matrix.at(row, column).widen()),
        }
    }
    Matrix::rows(room, columns)
}

fn widen_row<N: Number>(row: &[N], room: &mut [N::Sum]) {
    vectorised(
        #[inline(always)]
        || {
            for (wide, number) in room.iter_mut().zip(row) {
                *wide = number.widen();
            }
        },
    );
}

/// `bf16` is the upper half of an `f32`. The crate's own function, which makes a NaN quiet, is no vector instruction.
#[inline(always)]
fn widen_bf16(number: bf16) -> f32 {
    f32::from_bits(u32::from(number.to_bits()) << 16)
}

/// To the nearest, and to the even one in the middle. Free of branches, so that loops over it become vector instructions.
#[inline(always)]
fn round_to_bf16(number: f32) -> bf16 {
    let bits = number.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40; // A NaN whose upper half alone would be an infinity.
    bf16::from_bits(if number.is_nan() { quiet } else { rounded } as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_16_bits_are_widened_and_rounded_as_their_type_does() {
        for bits in 0..=u16::MAX {
            let number = bf16::from_bits(bits);
            assert_eq!(number.widen().is_nan(), number.is_nan());
            assert!(number.is_nan() || number.widen() == number.to_f32());
            for near in [0x0000u32, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let wide = f32::from_bits(u32::from(bits) << 16 | near);
                assert_eq!(bf16::round(wide).to_bits(), bf16::from_f32(wide).to_bits(), "{wide:?}");
            }
        }
    }
}
