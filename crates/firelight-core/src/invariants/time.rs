//! What holds along a sequence: no token sees a later one, parts give what the whole gives, and distances alone count.

use burn::tensor::Tensor;

use super::{Violation, compare, noise, some};

/// Changing the tokens from `t` on must not change the outputs before `t`, for every `t`.
///
/// `forward` maps `[B, T, X]` to `[B, T, Y]`.
///
/// # Errors
/// The first `t` at which the future leaks into the past; fewer than two tokens, which have no future.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::invariants::causality;
///
/// let x = Tensor::<3>::ones([1, 4, 2], &Device::flex());
/// assert!(causality(|x| x.cumsum(1), x.clone(), 1e-5).is_ok());
/// let leak = causality(|x| x.clone() - x.mean_dim(1), x, 1e-5).expect_err("the mean sees the future");
/// assert_eq!(leak.location, "token 1");
/// ```
pub fn causality(forward: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>, tolerance: f64) -> Result<(), Violation> {
    let [batch, length, width] = x.dims();
    some("the future changes nothing in the past", "tokens after the first", length.saturating_sub(1))?;
    let output = forward(x.clone());
    for t in 1..length {
        let other = noise([batch, length - t, width], t, &x.device()) * 3.0;
        let changed = forward(Tensor::cat(vec![x.clone().narrow(1, 0, t), other], 1));
        let (past, changed) = (output.clone().narrow(1, 0, t), changed.narrow(1, 0, t));
        compare("the future changes nothing in the past", format!("token {t}"), past, changed, tolerance)?;
    }
    Ok(())
}

/// A sequence that is processed in parts of `part` tokens must give the outputs of a single pass.
///
/// Of a stack whose rotary frequencies depend on the length this holds while they stay the same:
/// [`Transformer::cache_stays_valid`](crate::Transformer::cache_stays_valid).
///
/// `step` maps the next part to its outputs and remembers what came before.
///
/// # Errors
/// The first part that differs.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::invariants::parts_equal_whole;
/// use firelight_core::{Pass, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let model = TransformerConfig::new(8, 2, 1).init(&device);
/// let forward = |x, pass: &mut Pass| model.forward(x, &SequenceInput::default(), pass);
/// let mut cache = model.cache(16);
/// let step = |x| forward(x, &mut Pass::cached(&mut cache));
/// let x = Tensor::<3>::ones([1, 5, 8], &device);
/// assert!(parts_equal_whole(|x| forward(x, &mut Pass::default()), step, x, 2, 1e-5).is_ok());
/// ```
pub fn parts_equal_whole(
    whole: impl FnOnce(Tensor<3>) -> Tensor<3>,
    mut step: impl FnMut(Tensor<3>) -> Tensor<3>,
    x: Tensor<3>,
    part: usize,
    tolerance: f64,
) -> Result<(), Violation> {
    let length = x.dims()[1];
    some("parts equal the whole", "tokens", length)?;
    let output = whole(x.clone());
    for start in (0..length).step_by(part) {
        let size = part.min(length - start);
        let found = step(x.clone().narrow(1, start, size));
        let expected = output.clone().narrow(1, start, size);
        compare("parts equal the whole", format!("token {start}"), expected, found, tolerance)?;
    }
    Ok(())
}

/// Shift invariance: the same tokens at other positions must give the same outputs. This holds where positions enter as differences alone.
///
/// `forward` maps `[B, T, X]`, of which the first token stands at a given position, to `[B, T, Y]`.
///
/// # Errors
/// The first of the positions 1, 7 and 100 that shows.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use firelight_core::invariants::shift;
/// use firelight_core::{
///     AttentionConfig, AttentionContext, LayerPass, PositionScheme, Positions, Rotary, RotaryLayout, Sinusoidal,
/// };
///
/// let device = Device::flex();
/// let attention = AttentionConfig::new(8, 2).init(&device);
/// let positions = |x: &Tensor<3>, start| Positions::contiguous(start, x.dims()[1]);
/// let turned = |x: Tensor<3>, start| {
///     let rotary = Rotary::new(4, 10_000.0, RotaryLayout::Halves);
///     let rotation = rotary.rotation(&positions(&x, start), &device);
///     attention.forward(x, &AttentionContext { rotation, ..Default::default() }, &mut LayerPass::default())
/// };
/// let x = Tensor::<3>::random([1, 4, 8], Distribution::Default, &device);
/// assert!(shift(turned, x.clone(), 1e-5).is_ok());
/// let sines = |x: Tensor<3>, start| Sinusoidal::new(8).embed(x.clone(), &positions(&x, start));
/// assert!(shift(sines, x, 1e-5).is_err());
/// ```
pub fn shift(forward: impl Fn(Tensor<3>, usize) -> Tensor<3>, x: Tensor<3>, tolerance: f64) -> Result<(), Violation> {
    let expected = forward(x.clone(), 0);
    for start in [1, 7, 100] {
        let found = forward(x.clone(), start);
        compare(
            "differences of positions count alone",
            format!("position {start}"),
            expected.clone(),
            found,
            tolerance,
        )?;
    }
    Ok(())
}
