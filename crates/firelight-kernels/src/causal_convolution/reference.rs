//! One tap after the other, from Burn's operations.

use burn::tensor::{Bool, Tensor};

pub(super) fn causal_convolution(
    x: Tensor<3>,
    history: Tensor<3>,
    weight: Tensor<2>,
    hidden: Option<Tensor<3, Bool>>,
) -> Tensor<3> {
    let (taps, length) = (weight.dims()[0], x.dims()[1]);
    let x = if taps > 1 { Tensor::cat(vec![history, x], 1) } else { x };
    let products = (0..taps).map(|tap| {
        let product = x.clone().narrow(1, tap, length) * weight.clone().narrow(0, tap, 1).unsqueeze::<3>();
        match &hidden {
            Some(hidden) if tap + 1 < taps => {
                let shape = product.dims();
                product.mask_fill(hidden.clone().narrow(2, tap, 1).expand(shape), 0.0)
            }
            _ => product,
        }
    });
    products.reduce(|sum, product| sum + product).expect("a convolution has a tap or more")
}
