//! Parameters of another size: rows in common of embeddings and positions, and the grid of an image's patches, interpolated.
//!
//! Source of the grid: Dosovitskiy et al. 2021, ViT, section 3.2 (<https://arxiv.org/abs/2010.11929>): "we perform 2D interpolation
//! of the pre-trained position embeddings, according to their location in the original image". Here it is bilinear between the
//! centres of patches, and beyond the outermost centres constant, as `interpolate(align_corners=False)` of PyTorch.

use burn::tensor::TensorData;

use crate::path::fits;

/// The learned positions of image patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionGrid {
    /// The path of the parameter, `[before + rows columns, D]`.
    pub parameter: &'static str,
    /// Positions of tokens that stand before the patches.
    pub before: usize,
    /// Rows and columns.
    pub grid: [usize; 2],
}

/// A grid that is to become another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Regrid {
    parameter: &'static str,
    before: usize,
    from: [usize; 2],
    to: [usize; 2],
}

impl Regrid {
    /// From the grid of the weights to that of the model; without the first, that of square images. None where they are alike.
    pub(crate) fn new(own: PositionGrid, other: Option<PositionGrid>, shape: Option<&Vec<usize>>) -> Option<Self> {
        let square = || {
            let side = (shape?.first()?.checked_sub(own.before)? as f64).sqrt().round() as usize;
            Some([side, side])
        };
        let from = other.map(|other| other.grid).or_else(square)?;
        let PositionGrid { parameter, before, grid: to } = own;
        (from != to).then_some(Self { parameter, before, from, to })
    }

    /// Whether it is of this parameter.
    pub(crate) fn is_of(&self, path: &str) -> bool {
        fits(self.parameter, path)
    }

    /// Whether the shapes are those of the grids.
    pub(crate) fn fits(&self, from: &[usize], to: &[usize]) -> bool {
        let rows = |grid: [usize; 2]| self.before + grid[0] * grid[1];
        matches!((from, to), ([from, d], [to, other]) if (*from, *to, d) == (rows(self.from), rows(self.to), other))
    }

    /// `[before + R S, D] -> [before + R' S', D]`.
    pub(crate) fn apply(&self, found: &TensorData) -> TensorData {
        let (width, values) = (found.shape()[1], numbers(found));
        let (first, patches) = values.split_at(self.before * width);
        let mut new = first.to_vec();
        for row in 0..self.to[0] {
            let (above, below, down) = between(row, self.from[0], self.to[0]);
            for column in 0..self.to[1] {
                let (left, right, along) = between(column, self.from[1], self.to[1]);
                let at = |row: usize, column: usize, d: usize| patches[(row * self.from[1] + column) * width + d];
                let line = |row: usize, d: usize| (1.0 - along) * at(row, left, d) + along * at(row, right, d);
                new.extend((0..width).map(|d| (1.0 - down) * line(above, d) + down * line(below, d)));
            }
        }
        TensorData::new(new, [self.before + self.to[0] * self.to[1], width])
    }
}

/// The two places between which the centre of the place `index` of `to` lies among `from`, and how far it is from the first.
fn between(index: usize, from: usize, to: usize) -> (usize, usize, f32) {
    let place = ((index as f64 + 0.5) * from as f64 / to as f64 - 0.5).clamp(0.0, (from - 1) as f64);
    let first = place.floor() as usize;
    (first, (first + 1).min(from - 1), (place - place.floor()) as f32)
}

/// `own` with the rows of `found` along `axis`, as far as both have them.
pub(crate) fn rows(own: &TensorData, found: &TensorData, axis: usize) -> TensorData {
    let inner: usize = own.shape()[axis + 1..].iter().product();
    let [mine, theirs] = [own, found].map(|data| data.shape()[axis] * inner);
    let (mut new, values) = (numbers(own), numbers(found));
    let common = mine.min(theirs);
    for (new, values) in new.chunks_mut(mine).zip(values.chunks(theirs)) {
        new[..common].copy_from_slice(&values[..common]);
    }
    TensorData::new(new, own.shape().clone())
}

fn numbers(data: &TensorData) -> Vec<f32> {
    data.iter::<f32>().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(data: &TensorData) -> Vec<f32> {
        numbers(data)
    }

    #[test]
    fn rows_in_common_are_taken_and_the_others_stay() {
        let own = TensorData::new(vec![0.0f32; 8], [4, 2]);
        let found = TensorData::new(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]);
        assert_eq!(values(&rows(&own, &found, 0)), [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(values(&rows(&found, &TensorData::new(vec![9.0f32; 6], [3, 2]), 0)), [9.0; 4], "fewer of them");
        // The columns of a head, [D, V]: two of three.
        let own = TensorData::new(vec![0.0f32; 6], [2, 3]);
        assert_eq!(values(&rows(&own, &found, 1)), [1.0, 2.0, 0.0, 3.0, 4.0, 0.0]);
    }

    #[test]
    fn a_grid_is_interpolated_by_hand() {
        // One row of two patches, 0 and 4, becomes four: their centres lie at -0.25, 0.25, 0.75 and 1.25.
        let own = PositionGrid { parameter: "position", before: 1, grid: [2, 4] };
        let regrid = Regrid::new(own, Some(PositionGrid { grid: [1, 2], ..own }), None).unwrap();
        assert!(regrid.fits(&[3, 1], &[9, 1]) && !regrid.fits(&[3, 1], &[9, 2]) && !regrid.fits(&[4, 1], &[9, 1]));
        let found = regrid.apply(&TensorData::new(vec![7.0f32, 0.0, 4.0], [3, 1]));
        assert_eq!(values(&found), [7.0, 0.0, 1.0, 3.0, 4.0, 0.0, 1.0, 3.0, 4.0]);
        assert_eq!(*found.shape(), burn::tensor::Shape::from([9, 1]));
        // Four patches in a square become one: their mean.
        let one = PositionGrid { before: 0, grid: [1, 1], ..own };
        let regrid = Regrid::new(one, None, Some(&vec![4, 1])).unwrap();
        assert_eq!(values(&regrid.apply(&TensorData::new(vec![1.0f32, 2.0, 3.0, 6.0], [4, 1]))), [3.0]);
        assert!(Regrid::new(one, None, Some(&vec![1, 1])).is_none(), "the grids are alike");
    }
}
