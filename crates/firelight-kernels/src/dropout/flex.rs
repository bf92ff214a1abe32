//! Dropout on the flex backend: one pass, which is its own backward pass.

use super::{DropoutExtension, DropoutKernel};
use crate::flex::dropout::Dropout;
use crate::flex::{Real, contiguous, filled, for_each_block, values, vectorised, with_real};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;

/// Numbers in order that share the first half of their key.
pub(super) const LINE: usize = 1024;

impl DropoutExtension for Flex {
    fn dropout(x: FlexTensor, rate: f64, seed: u64) -> FlexTensor {
        Self::dropped(x, rate, seed)
    }
}

impl DropoutKernel for Flex {
    fn dropped(x: FlexTensor, rate: f64, seed: u64) -> FlexTensor {
        with_real!(x, dropped(x, rate, seed))
    }
}

fn dropped<T: Real>(x: FlexTensor, rate: f64, seed: u64) -> FlexTensor {
    let Some(dropout) = Dropout::<T>::new(rate, seed) else { return x };
    let x = contiguous(x);
    let numbers = values::<T>(&x);
    let out = filled(numbers.len(), |out| {
        for_each_block(out, LINE, |first, out| {
            let x = &numbers[first * LINE..][..out.len()];
            vectorised(
                #[inline(always)]
                || {
                    for (line, (out, x)) in out.chunks_mut(LINE).zip(x.chunks(LINE)).enumerate() {
                        dropout.fill((first + line) as u64, 0, out);
                        out.iter_mut().zip(x).for_each(|(factor, &x)| *factor *= x);
                    }
                },
            );
        });
    });
    T::tensor(out, x.layout().shape().clone())
}
