//! The rotation from Burn primitives.

use super::RotaryPairs;
use burn::tensor::Tensor;

pub(super) fn rotary(x: Tensor<4>, cos: Tensor<4>, sin: Tensor<4>, pairs: RotaryPairs) -> Tensor<4> {
    let (width, d_head) = (2 * cos.dims()[3], x.dims()[3]);
    if width == d_head {
        return turn(x, cos, sin, pairs);
    }
    let turned = turn(x.clone().narrow(3, 0, width), cos, sin, pairs);
    Tensor::cat(vec![turned, x.narrow(3, width, d_head - width)], 3)
}

fn turn(x: Tensor<4>, cos: Tensor<4>, sin: Tensor<4>, pairs: RotaryPairs) -> Tensor<4> {
    let [batch, heads, tokens, width] = x.dims();
    let shape = [batch, heads, tokens, width / 2];
    let [a, b]: [Tensor<4>; 2] = match pairs {
        RotaryPairs::Halves => [0, 1].map(|i| x.clone().narrow(3, i * width / 2, width / 2)),
        RotaryPairs::Interleaved => {
            let pairs = x.reshape([batch, heads, tokens, width / 2, 2]);
            [0, 1].map(|i| pairs.clone().narrow(4, i, 1).reshape(shape))
        }
    };
    let turned = vec![a.clone() * cos.clone() - b.clone() * sin.clone(), a * sin + b * cos];
    match pairs {
        RotaryPairs::Halves => Tensor::cat(turned, 3),
        RotaryPairs::Interleaved => Tensor::stack::<5>(turned, 4).reshape([batch, heads, tokens, width]),
    }
}
