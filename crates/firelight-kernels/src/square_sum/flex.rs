//! The sum of squares on the flex backend: blocks in parallel, their sums in order.

use super::SquareSumExtension;
use crate::flex::{Real, contiguous, sum, sum_of_blocks, values, vectorised, with_real};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Shape;

impl SquareSumExtension for Flex {
    fn square_sum(x: FlexTensor) -> FlexTensor {
        with_real!(x, square_sum(x))
    }
}

fn square_sum<T: Real>(x: FlexTensor) -> FlexTensor {
    let x = contiguous(x);
    let numbers = values::<T>(&x);
    let total = sum_of_blocks(numbers.len(), 1, 1, |start, end, total: &mut [T]| {
        let part = &numbers[start..end];
        total[0] = vectorised(
            #[inline(always)]
            || {
                sum(
                    [part],
                    #[inline(always)]
                    |[x]| x * x,
                )
            },
        );
    });
    T::tensor(total, Shape::from(vec![1]))
}
