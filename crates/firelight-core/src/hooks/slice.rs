//! Which part of an activation a hook replaces, and by what.

use burn::tensor::{Bool, Device, Tensor, TensorData};

/// A slice of an activation: some of its tokens and heads. The default is all of it.
///
/// Tokens are counted from the first one of the pass. They are the second to last dimension, `[B, T, D]` or `[B, H, T, W]`, and heads the
/// one before it.
///
/// ```
/// use firelight_core::ActivationSlice;
///
/// let slice = ActivationSlice::heads([0, 3]).at_positions(4..6);
/// assert_ne!(slice, ActivationSlice::all());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActivationSlice {
    positions: Option<Vec<usize>>,
    heads: Option<Vec<usize>>,
}

impl ActivationSlice {
    /// The whole activation.
    pub fn all() -> Self {
        Self::default()
    }

    /// These tokens of every row.
    pub fn positions(positions: impl IntoIterator<Item = usize>) -> Self {
        Self::all().at_positions(positions)
    }

    /// These heads.
    pub fn heads(heads: impl IntoIterator<Item = usize>) -> Self {
        Self::all().of_heads(heads)
    }

    /// The same, at these tokens alone.
    pub fn at_positions(mut self, positions: impl IntoIterator<Item = usize>) -> Self {
        self.positions = Some(positions.into_iter().collect());
        self
    }

    /// The same, of these heads alone.
    pub fn of_heads(mut self, heads: impl IntoIterator<Item = usize>) -> Self {
        self.heads = Some(heads.into_iter().collect());
        self
    }

    /// `x` with the numbers of `source` in this slice. A size of 1 in `source` stands for all of them.
    ///
    /// # Errors
    /// If the shapes do not fit, or `x` has no such position or head.
    pub(super) fn replace<const R: usize>(&self, x: Tensor<R>, source: Tensor<R>) -> Result<Tensor<R>, String> {
        let (shape, given) = (x.dims(), source.dims());
        if !given.iter().zip(&shape).all(|(own, whole)| own == whole || *own == 1) {
            return Err(format!("the activation has the shape {shape:?}, and what replaces it {given:?}"));
        }
        let source = firelight_kernels::cast(source, x.dtype().into());
        let source = if given == shape { source } else { source.expand(shape) };
        Ok(match self.mask(shape, &x.device())? {
            Some(mask) => x.mask_where(mask, source),
            None => source,
        })
    }

    /// True in this slice; none where that is all of the activation.
    fn mask<const R: usize>(&self, shape: [usize; R], device: &Device) -> Result<Option<Tensor<R, Bool>>, String> {
        if *self == Self::all() {
            return Ok(None);
        }
        let tokens = flags("positions", &self.positions, shape, 2)?;
        let heads = flags("heads", &self.heads, shape, 3)?;
        let mut sizes = [1; R];
        sizes[R - 2] = tokens.len();
        if R > 3 {
            sizes[R - 3] = heads.len();
        }
        let both: Vec<bool> = heads.iter().flat_map(|head| tokens.iter().map(move |token| *head && *token)).collect();
        Ok(Some(Tensor::<R, Bool>::from_bool(TensorData::new(both, sizes), device).expand(shape)))
    }
}

/// Which indices of the dimension that is `behind`-last are asked for. Where none is named, all are, as one.
fn flags<const R: usize>(
    name: &str,
    asked: &Option<Vec<usize>>,
    shape: [usize; R],
    behind: usize,
) -> Result<Vec<bool>, String> {
    let Some(asked) = asked else { return Ok(vec![true]) };
    // The first dimension is the batch.
    let size = if R > behind { shape[R - behind] } else { 0 };
    match asked.iter().find(|index| **index >= size) {
        _ if size == 0 => Err(format!("an activation of the shape {shape:?} has no {name}")),
        Some(index) => Err(format!("an activation of the shape {shape:?} has {size} {name}, and no number {index}")),
        None => Ok((0..size).map(|index| asked.contains(&index)).collect()),
    }
}

/// The replacement of an ablated activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ablation {
    /// Zeros.
    Zero,
    /// Its mean over the rows and tokens of the pass, padding included (mean ablation). This removes the information about the input and
    /// keeps the average.
    Mean,
}

impl Ablation {
    /// What replaces `x`: of its shape, or with sizes of 1.
    pub(super) fn of<const R: usize>(self, x: &Tensor<R>) -> Tensor<R> {
        match self {
            Self::Zero => x.zeros_like(),
            Self::Mean => x.clone().mean_dim(0).mean_dim(R.saturating_sub(2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_kernels::assert_close;

    fn numbers(shape: [usize; 4]) -> Tensor<4> {
        let numbers: Vec<f32> = (0..shape.iter().product()).map(|i| i as f32).collect();
        Tensor::from_data(TensorData::new(numbers, shape), &Device::default())
    }

    #[test]
    fn slices_are_of_heads_and_tokens() {
        let x = numbers([1, 2, 3, 1]); // Heads 0 1 2 and 3 4 5.
        let slice = ActivationSlice::heads([1]).at_positions([0, 2]);
        let replaced = slice.replace(x.clone(), x.zeros_like()).expect("it fits");
        assert_close(&replaced, &[0.0, 1.0, 2.0, 0.0, 4.0, 0.0], 0.0);
        let one = Tensor::<4>::ones([1, 1, 1, 1], &Device::default()) * 9.0;
        let replaced = ActivationSlice::heads([0]).replace(x, one).expect("it fits");
        assert_close(&replaced, &[9.0, 9.0, 9.0, 3.0, 4.0, 5.0], 0.0);
    }

    #[test]
    fn a_mean_is_over_rows_and_tokens() {
        let x = numbers([2, 1, 2, 2]); // [0, 1], [2, 3]; [4, 5], [6, 7].
        assert_close(&Ablation::Mean.of(&x), &[3.0, 4.0], 0.0);
    }

    #[test]
    fn what_is_not_there_is_told() {
        let x = numbers([1, 2, 3, 1]);
        let error = |slice: ActivationSlice| slice.replace(x.clone(), x.clone()).expect_err("no such index");
        assert!(error(ActivationSlice::heads([2])).ends_with("has 2 heads, and no number 2"));
        assert!(error(ActivationSlice::positions([0, 3])).ends_with("has 3 positions, and no number 3"));
        let flat = x.clone().reshape([1, 6, 1]);
        let error = ActivationSlice::heads([0]).replace(flat.clone(), flat).expect_err("no heads");
        assert!(error.ends_with("has no heads"), "{error}");
        let error = ActivationSlice::all().replace(x, numbers([1, 2, 2, 1])).expect_err("another shape");
        assert!(error.contains("[1, 2, 3, 1], and what replaces it [1, 2, 2, 1]"), "{error}");
    }
}
