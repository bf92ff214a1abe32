//! Parameters of another size: rows in common of embeddings and positions, and the grid of an image's patches, which its task
//! interpolates.

use burn::tensor::{Device, Tensor, TensorData};

use crate::path::fits;

/// The learned positions of image patches.
#[derive(Clone, Copy, Debug)]
pub struct PositionGrid {
    /// The path of the parameter, `[before + rows columns, D]`.
    pub parameter: &'static str,
    /// Positions of tokens that stand before the patches.
    pub before: usize,
    /// Rows and columns.
    pub grid: [usize; 2],
    /// What makes positions of another grid, from the old rows and columns to the new ones.
    pub resize: ResizeGrid,
}

/// `[before + R S, D] -> [before + R' S', D]`, from `[R, S]` to `[R', S']`.
pub type ResizeGrid = fn(Tensor<2>, [usize; 2], [usize; 2]) -> Tensor<2>;

/// A grid that is to become another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Regrid {
    parameter: &'static str,
    before: usize,
    from: [usize; 2],
    to: [usize; 2],
    resize: ResizeGrid,
}

impl Regrid {
    /// From the grid of the weights to that of the model; without the first, that of square images. None where they are alike.
    pub(crate) fn new(own: PositionGrid, other: Option<PositionGrid>, shape: Option<&Vec<usize>>) -> Option<Self> {
        let square = || {
            let side = (shape?.first()?.checked_sub(own.before)? as f64).sqrt().round() as usize;
            Some([side, side])
        };
        let from = other.map(|other| other.grid).or_else(square)?;
        let PositionGrid { parameter, before, grid: to, resize } = own;
        (from != to).then_some(Self { parameter, before, from, to, resize })
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
    pub(crate) fn apply(&self, found: TensorData, device: &Device) -> TensorData {
        (self.resize)(Tensor::from_data(found, device), self.from, self.to).into_data()
    }
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
        let own = TensorData::new(vec![7.0f32; 8], [4, 2]);
        let found = TensorData::new(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]);
        assert_eq!(values(&rows(&own, &found, 0)), [1.0, 2.0, 3.0, 4.0, 7.0, 7.0, 7.0, 7.0]);
        assert_eq!(values(&rows(&found, &TensorData::new(vec![9.0f32; 6], [3, 2]), 0)), [9.0; 4], "fewer of them");
        // The columns of a head, [D, V]: two of three.
        let own = TensorData::new(vec![7.0f32; 6], [2, 3]);
        assert_eq!(values(&rows(&own, &found, 1)), [1.0, 2.0, 7.0, 3.0, 4.0, 7.0]);
    }

    /// Every position of the new grid is the mean of the old one, those before it first.
    fn mean(table: Tensor<2>, old: [usize; 2], new: [usize; 2]) -> Tensor<2> {
        let patches = old[0] * old[1];
        let before = table.dims()[0] - patches;
        let mean = table.clone().narrow(0, before, patches).mean_dim(0).repeat_dim(0, new[0] * new[1]);
        if before == 0 { mean } else { Tensor::cat(vec![table.narrow(0, 0, before), mean], 0) }
    }

    #[test]
    fn a_grid_becomes_another_where_the_shapes_are_those_of_the_grids() {
        let own = PositionGrid { parameter: "position", before: 1, grid: [2, 2], resize: mean };
        let regrid = Regrid::new(own, Some(PositionGrid { grid: [1, 2], ..own }), None).unwrap();
        assert!(regrid.fits(&[3, 1], &[5, 1]) && !regrid.fits(&[3, 1], &[5, 2]) && !regrid.fits(&[4, 1], &[5, 1]));
        let found = regrid.apply(TensorData::new(vec![7.0f32, 0.0, 4.0], [3, 1]), &Device::default());
        assert_eq!(values(&found), [7.0, 2.0, 2.0, 2.0, 2.0]);
        // Without the grid of the weights, that of a square image: four patches become one.
        let one = PositionGrid { before: 0, grid: [1, 1], ..own };
        let regrid = Regrid::new(one, None, Some(&vec![4, 1])).unwrap();
        let found = regrid.apply(TensorData::new(vec![1.0f32, 2.0, 3.0, 6.0], [4, 1]), &Device::default());
        assert_eq!(values(&found), [3.0]);
        assert!(Regrid::new(one, None, Some(&vec![1, 1])).is_none(), "the grids are alike");
    }
}
