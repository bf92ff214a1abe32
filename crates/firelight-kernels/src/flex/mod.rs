//! What the flex kernels share: numbers, buffers, parallel loops over rows, matrix products on views.
//!
//! A tensor of the flex backend is a flat buffer with strides. Kernels read it as slices, split it into blocks of whole
//! rows whose size depends on the shape and never on the number of threads, and add partial sums in the order of the
//! blocks: two runs give the same bits, on one thread or many.

pub(crate) mod dropout;
pub(crate) mod halves;
mod number;
mod product;
mod real;
pub(crate) mod simd;
pub(crate) mod view;

pub(crate) use number::Number;
pub(crate) use product::{Matrix, MatrixMut, product, product_of_long_sums};
pub(crate) use real::Real;

use crate::cast::CastKernel;
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, FloatDType, Shape};
use rayon::prelude::*;

/// Elements that a block of rows has at least: enough to pay for handing it to another thread.
pub(crate) const BLOCK: usize = 16 * 1024;

/// Runs a loop compiled for the widest vector units of this CPU, or for those that `FIRELIGHT_SIMD` names. The closure must
/// be marked `#[inline(always)]`, and so must what it calls: a function that stays a function of its own is compiled for the
/// oldest CPU.
#[inline(always)]
pub(crate) fn vectorised<R>(body: impl FnMut() -> R) -> R {
    simd::arch().dispatch(Body(body))
}

/// A closure that is called through `FnMut`: the adapter that `FnOnce` goes through is not inlined.
struct Body<F>(F);

impl<R, F: FnMut() -> R> pulp::NullaryFnOnce for Body<F> {
    type Output = R;

    #[inline(always)]
    fn call(mut self) -> R {
        (self.0)()
    }
}

/// Asks for the line of memory around an element that will soon be read. It may lie anywhere: nothing is read here.
#[inline(always)]
pub(crate) fn fetch<T>(element: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads nothing, whatever lies there.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(element.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
}

/// The tensor in row-major order, copied only if it is not.
pub(crate) fn contiguous(tensor: FlexTensor) -> FlexTensor {
    if tensor.layout().contiguous_offsets().is_some() { tensor } else { tensor.to_contiguous() }
}

/// The shape of a tensor with another last dimension.
pub(crate) fn with_last(x: &FlexTensor, width: usize) -> Shape {
    let mut shape = x.layout().shape().clone();
    let last = shape.num_dims() - 1;
    shape[last] = width;
    shape
}

/// The same numbers in single precision.
pub(crate) fn widened(x: FlexTensor) -> FlexTensor {
    Flex::converted(x, FloatDType::F32)
}

/// The nearest numbers in `bf16`.
pub(crate) fn rounded(x: FlexTensor) -> FlexTensor {
    Flex::converted(x, FloatDType::BF16)
}

/// The elements of a contiguous tensor.
pub(crate) fn values<T: Number>(tensor: &FlexTensor) -> &[T] {
    let (start, end) = tensor.layout().contiguous_offsets().expect("the tensor was made contiguous");
    &T::storage(tensor)[start..end]
}

/// The elements of a contiguous tensor to write to; copied first if somebody else holds the tensor.
pub(crate) fn values_mut<T: Number>(tensor: &mut FlexTensor) -> &mut [T] {
    if !tensor.is_unique() {
        *tensor = copied::<T>(tensor);
    }
    let (start, end) = tensor.layout().contiguous_offsets().expect("the tensor was made contiguous");
    &mut T::own_storage(tensor)[start..end]
}

/// A copy of a contiguous tensor, made by all threads.
fn copied<T: Number>(tensor: &FlexTensor) -> FlexTensor {
    let values = values::<T>(tensor);
    let copy = filled(values.len(), |copy: &mut [T]| {
        let blocks = copy.par_chunks_mut(BLOCK).zip(values.par_chunks(BLOCK));
        blocks.for_each(|(copy, values)| copy.copy_from_slice(values));
    });
    T::tensor(copy, tensor.layout().shape().clone())
}

/// The elements of a tensor of `i32` or `i64`, in row-major order.
pub(crate) fn integers(tensor: &FlexTensor) -> Vec<i64> {
    let tensor = tensor.to_contiguous();
    match tensor.dtype() {
        DType::I32 => tensor.storage::<i32>().iter().map(|&number| i64::from(number)).collect(),
        _ => tensor.storage::<i64>().to_vec(),
    }
}

/// A buffer whose every element `fill` writes, without reading any.
#[allow(clippy::uninit_vec)]
pub(crate) fn filled<T: Number>(length: usize, fill: impl FnOnce(&mut [T])) -> Vec<T> {
    let mut buffer = Vec::with_capacity(length);
    // SAFETY: the capacity is `length`, any bits are a floating point number, and `fill` writes before anybody reads.
    // Clearing the buffer first would cost a pass over memory.
    unsafe { buffer.set_len(length) };
    fill(&mut buffer);
    buffer
}

/// Rows of `width` elements that make a block.
pub(crate) fn block_rows(width: usize) -> usize {
    (BLOCK / width.max(1)).max(1)
}

/// Calls `body` for every block of rows of `out` with the index of its first row; in parallel if there are several.
pub(crate) fn for_each_block<T: Number>(out: &mut [T], width: usize, body: impl Fn(usize, &mut [T]) + Sync) {
    let rows = block_rows(width);
    if out.len() <= rows * width {
        return body(0, out);
    }
    out.par_chunks_mut(rows * width).enumerate().for_each(|(block, out)| body(block * rows, out));
}

/// As [`for_each_block`], for two buffers, with the index of the first element.
pub(crate) fn for_each_pair_of_blocks<T: Number>(
    a: &mut [T],
    b: &mut [T],
    width: usize,
    body: impl Fn(usize, &mut [T], &mut [T]) + Sync,
) {
    let block = block_rows(width) * width;
    if a.len() <= block {
        return body(0, a, b);
    }
    let pairs = a.par_chunks_mut(block).zip(b.par_chunks_mut(block)).enumerate();
    pairs.for_each(|(index, (a, b))| body(index * block, a, b));
}

/// Numbers in another type.
pub(crate) fn converted<A: Number, B: Number<Sum = A::Sum>>(numbers: &[A]) -> Vec<B> {
    filled(numbers.len(), |out| {
        for_each_block(out, 1, |first, out: &mut [B]| {
            let numbers = &numbers[first..first + out.len()];
            vectorised(
                #[inline(always)]
                || {
                    for (out, number) in out.iter_mut().zip(numbers) {
                        *out = B::round(number.widen());
                    }
                },
            );
        });
    })
}

/// Rows of `d_out` numbers cut into strips of `width` columns, each with its part of every row.
pub(crate) fn by_columns<T>(out: &mut [T], d_out: usize, width: usize) -> Vec<Vec<&mut [T]>> {
    let mut strips: Vec<Vec<&mut [T]>> = (0..d_out.div_ceil(width)).map(|_| Vec::new()).collect();
    for row in out.chunks_exact_mut(d_out) {
        strips.iter_mut().zip(row.chunks_mut(width)).for_each(|(strip, part)| strip.push(part));
    }
    strips
}

/// The sum over blocks of rows of what `partial` computes for `first row, end row`: vectors of one length, made in
/// parallel and added in order.
pub(crate) fn sum_of_blocks<T: Real>(
    rows: usize,
    width: usize,
    length: usize,
    partial: impl Fn(usize, usize, &mut [T]) + Sync,
) -> Vec<T> {
    // Few blocks, so that the sums take little memory, and as many for every number of threads.
    let block = block_rows(width).max(rows.div_ceil(32));
    let mut partials = vec![T::ZERO; rows.div_ceil(block) * length];
    partials.par_chunks_mut(length).enumerate().for_each(|(index, sums)| {
        partial(index * block, ((index + 1) * block).min(rows), sums);
    });
    let mut sums = partials[..length].to_vec();
    for partial in partials[length..].chunks_exact(length) {
        add_to(&mut sums, partial);
    }
    sums
}

/// `sums += values`, element by element.
#[inline(always)]
pub(crate) fn add_to<T: Real>(sums: &mut [T], values: &[T]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

/// Lanes that a sum is kept in, so that it vectorises in an order of its own choosing.
const LANES: usize = 32;

/// The sum of `term` over the columns of some rows of one length, in lanes whose order depends on the length alone.
///
/// # Panics
/// If the rows differ in length.
#[inline(always)]
pub(crate) fn sum<T: Number, const N: usize>(rows: [&[T]; N], term: impl Fn([T::Sum; N]) -> T::Sum) -> T::Sum {
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "a sum over rows of several lengths");
    let rows = rows.map(<[T]>::as_chunks::<LANES>);
    let mut lanes = [T::Sum::ZERO; LANES];
    for chunk in 0..rows[0].0.len() {
        let chunks = rows.map(|(chunks, _)| &chunks[chunk]);
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(chunks.map(|chunk| chunk[lane].widen()));
        }
    }
    // In an array of its own, for the lanes of the loop above stay in registers only if no index into them is unknown.
    let mut rest = [T::Sum::ZERO; LANES];
    for (column, sum) in rest[..rows[0].1.len()].iter_mut().enumerate() {
        *sum = term(rows.map(|(_, rest)| rest[column].widen()));
    }
    add_to(&mut lanes, &rest);
    halve(lanes)
}

/// The sum of the lanes, a power of two of them, pair by pair.
#[inline(always)]
pub(crate) fn halve<T: Real, const LANES: usize>(mut lanes: [T; LANES]) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            let upper = lanes[lane + width];
            lanes[lane] += upper;
        }
        width /= 2;
    }
    lanes[0]
}

/// The largest element, or minus infinity; NaN wins so that it does not go unnoticed.
#[inline(always)]
pub(crate) fn maximum<T: Real>(values: &[T]) -> T {
    let mut lanes = [T::NEG_INFINITY; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value <= *lane { *lane } else { value };
        }
    }
    let larger = |a: T, b: T| if b <= a { a } else { b };
    lanes.iter().chain(rest).fold(T::NEG_INFINITY, |a, &b| larger(a, b))
}

/// Calls a generic function with the number type of a tensor, which [`crate::path`] has checked.
macro_rules! with_real {
    ($tensor:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $crate::flex::is_double(&$tensor) {
            true => $function::<f64>($($argument),*),
            false => $function::<f32>($($argument),*),
        }
    };
}
pub(crate) use with_real;

/// The same for a function of any [`Number`], and of further types in brackets.
macro_rules! with_number {
    ($tensor:expr, $function:ident $([$type:ident])? ($($argument:expr),* $(,)?)) => {{
        use burn::tensor::{DType, bf16, f16};
        match $tensor.dtype() {
            DType::F64 => $function::<f64 $(, $type)?>($($argument),*),
            DType::F16 => $function::<f16 $(, $type)?>($($argument),*),
            DType::BF16 => $function::<bf16 $(, $type)?>($($argument),*),
            _ => $function::<f32 $(, $type)?>($($argument),*),
        }
    }};
}
pub(crate) use with_number;

/// Whether the tensor holds `f64`; else it holds `f32`.
pub(crate) fn is_double(tensor: &FlexTensor) -> bool {
    tensor.dtype() == DType::F64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_maxima_of_every_length() {
        for length in [0, 1, 31, 32, 33, 100] {
            let values: Vec<f64> = (0..length).map(|i| f64::from(i % 7)).collect();
            assert_eq!(sum([&values], |[x]| x), values.iter().sum::<f64>());
            assert_eq!(sum([&values, &values], |[x, y]| 2.0 * x - y), values.iter().sum::<f64>());
            assert_eq!(maximum(&values), values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        }
        assert!(maximum(&[1.0, f32::NAN]).is_nan());
    }

    #[test]
    fn blocks_cover_every_row_once() {
        for rows in [1, 7, 100_000] {
            let sums = sum_of_blocks::<f64>(rows, 3, 1, |start, end, sums| sums[0] += (end - start) as f64);
            assert_eq!(sums, [rows as f64]);
            let mut out = vec![0.0f32; rows * 3];
            for_each_block(&mut out, 3, |first, out| {
                for (row, values) in out.chunks_exact_mut(3).enumerate() {
                    values.fill((first + row) as f32);
                }
            });
            assert!(out.chunks_exact(3).enumerate().all(|(row, values)| values == [row as f32; 3]));
        }
    }
}
