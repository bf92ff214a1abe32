//! Casts on the flex backend: the storage is converted as it lies.

use super::{CastExtension, CastKernel};
use crate::flex::view::start_of_row;
use crate::flex::{Number, converted, filled, for_each_block, vectorised};
use burn::backend::Flex;
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{DType, FloatDType, Shape, bf16, f16};

impl CastExtension for Flex {
    fn cast_to(x: FlexTensor, dtype: FloatDType) -> FlexTensor {
        Self::converted(x, dtype)
    }
}

impl CastKernel for Flex {
    fn converted(x: FlexTensor, dtype: FloatDType) -> FlexTensor {
        match (x.dtype(), DType::from(dtype)) {
            (DType::F32, DType::BF16) => convert::<f32, bf16>(x),
            (DType::F32, DType::F16) => convert::<f32, f16>(x),
            (DType::BF16, DType::F32) => convert::<bf16, f32>(x),
            (DType::F16, DType::F32) => convert::<f16, f32>(x),
            _ => x, // Of the type already: `serves` asks for no other.
        }
    }
}

fn convert<A: Number<Sum = f32>, B: Number<Sum = f32>>(x: FlexTensor) -> FlexTensor {
    let (layout, dims) = (x.layout(), x.layout().shape().num_dims());
    if is_dense(layout) {
        as_it_lies::<A, B>(&x)
    } else if layout.strides()[dims - 1] == 1 {
        by_rows::<A, B>(&x)
    } else {
        as_it_lies::<A, B>(&x.to_contiguous())
    }
}

fn as_it_lies<A: Number<Sum = f32>, B: Number<Sum = f32>>(x: &FlexTensor) -> FlexTensor {
    let (layout, count) = (x.layout(), x.layout().shape().num_elements());
    let values = converted::<A, B>(&A::storage(x)[layout.start_offset()..][..count]);
    let layout = Layout::new(layout.shape().clone(), layout.strides().to_vec(), 0);
    B::tensor(values, Shape::from(vec![count])).with_layout(layout)
}

/// A part of a larger tensor, such as what a cache holds so far, in row-major order.
fn by_rows<A: Number<Sum = f32>, B: Number<Sum = f32>>(x: &FlexTensor) -> FlexTensor {
    let (layout, numbers) = (x.layout(), A::storage(x));
    let width = layout.shape()[layout.shape().num_dims() - 1];
    let values = filled(layout.shape().num_elements(), |out| {
        for_each_block(out, width, |first, out: &mut [B]| {
            for (row, out) in out.chunks_exact_mut(width).enumerate() {
                let start = start_of_row(layout, first + row);
                convert_row(out, &numbers[start..start + width]);
            }
        });
    });
    B::tensor(values, layout.shape().clone())
}

fn convert_row<A: Number<Sum = f32>, B: Number<Sum = f32>>(out: &mut [B], row: &[A]) {
    vectorised(
        #[inline(always)]
        || {
            for (out, number) in out.iter_mut().zip(row) {
                *out = B::round(number.widen());
            }
        },
    );
}

/// Whether the elements fill a part of the storage, in whatever order of the dimensions.
fn is_dense(layout: &Layout) -> bool {
    let (shape, strides) = (layout.shape(), layout.strides());
    let mut dims: Vec<_> = (0..shape.num_dims()).filter(|&d| shape[d] > 1).map(|d| (strides[d], shape[d])).collect();
    dims.sort_unstable();
    let next = dims.iter().try_fold(1, |next, &(stride, size)| (stride == next).then_some(stride * size as isize));
    next.is_some()
}
