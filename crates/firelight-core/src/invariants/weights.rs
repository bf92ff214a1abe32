//! What holds for attention weights.

use burn::tensor::Tensor;

use super::{Violation, compare, some};

/// Attention weights, `[B, H, Q, K]`, must not be negative, and each row must sum to 1.
///
/// A query that sees no key has zeros: leave it out. Heads with sinks have rows that sum to less: leave them out, too.
///
/// # Errors
/// The first head that has a negative weight or a row with another sum.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::invariants::rows_sum_to_one;
/// use firelight_core::{Trace, Pass, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let mut trace = Trace::default();
/// let mut pass = Pass::default().with_trace(&mut trace);
/// TransformerConfig::new(8, 2, 1).init(&device).forward(Tensor::ones([1, 3, 8], &device), &SequenceInput::default(), &mut pass);
/// let weights = trace.layers[0].attention.clone().expect("the weights of the only layer");
/// assert!(rows_sum_to_one(weights, 1e-5).is_ok());
/// ```
pub fn rows_sum_to_one(weights: Tensor<4>, tolerance: f64) -> Result<(), Violation> {
    let [_, heads, _, _] = weights.dims();
    some("rows of weights sum to 1", "heads", heads)?;
    for head in 0..heads {
        let (location, weights) = (format!("head {head}"), weights.clone().narrow(1, head, 1));
        compare("weights are not negative", location.clone(), weights.clone().clamp_min(0.0), weights.clone(), 0.0)?;
        let sums = weights.sum_dim(3);
        compare("rows of weights sum to 1", location, sums.ones_like(), sums, tolerance)?;
    }
    Ok(())
}
