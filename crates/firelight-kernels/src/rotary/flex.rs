//! The rotation on the flex backend: one pass, on heads where the projection left them.

use super::{RotaryExtension, RotaryKernel, RotaryPairs};
use crate::flex::view::{Rows, View, into_tensor, is_by_token, readable};
use crate::flex::{BLOCK, Real, contiguous, filled, values, vectorised, with_real};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

impl RotaryExtension for Flex {
    fn rotary(x: FlexTensor, cos: FlexTensor, sin: FlexTensor, pairs: RotaryPairs) -> FlexTensor {
        Self::turn(x, [cos, sin], pairs, false)
    }
}

impl RotaryKernel for Flex {
    fn turn(x: FlexTensor, angles: [FlexTensor; 2], pairs: RotaryPairs, back: bool) -> FlexTensor {
        with_real!(x, turn(x, angles, pairs, back))
    }
}

fn turn<T: Real>(x: FlexTensor, angles: [FlexTensor; 2], pairs: RotaryPairs, back: bool) -> FlexTensor {
    let (x, [cos, sin]) = (readable(&x), angles.map(contiguous));
    let (heads, by_token) = (View::<T>::new(&x), is_by_token(&x));
    let [rows, _, tokens, half] = std::array::from_fn(|d| cos.layout().shape()[d]);
    let (cos, sin, sign) = (values::<T>(&cos), values::<T>(&sin), if back { -T::ONE } else { T::ONE });
    let shape @ [batch, n_heads, _, d_head] = heads.shape;
    let out = filled(shape.iter().product(), |out| {
        let out = Rows::new(out, shape, by_token);
        for_each_token(
            batch * tokens,
            n_heads * d_head,
            #[inline(always)]
            |index| {
                let (batch, token) = (index / tokens, index % tokens);
                let angle = (if rows == 1 { token } else { index }) * half;
                let (cos, sin) = (&cos[angle..angle + half], &sin[angle..angle + half]);
                for head in 0..n_heads {
                    // SAFETY: this call alone has the heads of this token.
                    let out = unsafe { out.row(batch, head, token) };
                    turn_row(out, heads.row(batch, head, token), (cos, sin), sign, pairs);
                }
            },
        );
    });
    into_tensor(out, shape, by_token)
}

/// Calls `body` for every token, in parallel if there are many.
fn for_each_token(tokens: usize, width: usize, body: impl Fn(usize) + Sync) {
    let block = (BLOCK / width.max(1)).max(1);
    let run = |first: usize| {
        vectorised(
            #[inline(always)]
            || (first..(first + block).min(tokens)).for_each(&body),
        );
    };
    if tokens <= block {
        return run(0);
    }
    (0..tokens.div_ceil(block)).into_par_iter().for_each(|task| run(task * block));
}

#[inline(always)]
fn turn_row<T: Real>(out: &mut [T], x: &[T], (cos, sin): (&[T], &[T]), sign: T, pairs: RotaryPairs) {
    let width = 2 * cos.len();
    let (turned, kept) = out.split_at_mut(width);
    kept.copy_from_slice(&x[width..]);
    match pairs {
        RotaryPairs::Halves => {
            let ((c, d), (a, b)) = (turned.split_at_mut(width / 2), x[..width].split_at(width / 2));
            for i in 0..c.len().min(d.len()).min(a.len()).min(b.len()).min(cos.len()).min(sin.len()) {
                let sin = sign * sin[i];
                c[i] = a[i] * cos[i] - b[i] * sin;
                d[i] = a[i] * sin + b[i] * cos[i];
            }
        }
        RotaryPairs::Interleaved => {
            let pairs = turned.chunks_exact_mut(2).zip(x.chunks_exact(2));
            for ((out, x), (&cos, &sin)) in pairs.zip(cos.iter().zip(sin)) {
                let sin = sign * sin;
                out[0] = x[0] * cos - x[1] * sin;
                out[1] = x[0] * sin + x[1] * cos;
            }
        }
    }
}
