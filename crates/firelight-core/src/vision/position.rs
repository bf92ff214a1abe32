//! Where a patch stands: sines and cosines of row and column, and learned places for images of another size.

use super::PatchCoordinates;
use burn::tensor::{Device, Tensor, TensorData};
use std::f64::consts::TAU;

/// Sines and cosines of the column, then of the row, a quarter of the channels each: `[N + R S, D]`, zeros for the `N` tokens
/// `before` the patches.
///
/// Source: Beyer et al. 2022, `posemb_sincos_2d` of their code: frequencies `10000^(-i / (D/4 - 1))`.
pub(super) fn sinusoidal([rows, columns]: [usize; 2], before: usize, d_model: usize, device: &Device) -> Tensor<2> {
    let quarter = d_model / 4;
    let frequency = |i: usize| 10_000f64.powf(-(i as f64) / (quarter as f64 - 1.0).max(1.0));
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row as f64, column as f64)));
    let none = vec![0.0f32; before * d_model];
    let values = places.flat_map(|(row, column)| {
        let wave = move |place: f64, turn: fn(f64) -> f64| (0..quarter).map(move |i| turn(place * frequency(i)) as f32);
        wave(column, f64::sin).chain(wave(column, f64::cos)).chain(wave(row, f64::sin)).chain(wave(row, f64::cos))
    });
    let values: Vec<f32> = none.into_iter().chain(values).collect();
    let places = rows * columns + before;
    Tensor::from_data(TensorData::new(values, [places, d_model]), device)
}

/// Row and column of every patch, `[1, N + R S, 2]`; 0 for the `N` tokens `before` the patches.
pub(super) fn coordinates(
    kind: PatchCoordinates,
    [rows, columns]: [usize; 2],
    before: usize,
    device: &Device,
) -> Tensor<3> {
    let at = |index: usize, count: usize| match kind {
        PatchCoordinates::Index => index as f64,
        PatchCoordinates::Normalized => TAU * ((2 * index + 1) as f64 / count as f64 - 1.0),
    };
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| [at(row, rows), at(column, columns)]));
    let places = std::iter::repeat_n([0.0; 2], before).chain(places).flatten();
    let values: Vec<f32> = places.map(|place| place as f32).collect();
    Tensor::from_data(TensorData::new(values, [1, before + rows * columns, 2]), device)
}

/// The places of a grid, for another: bicubic, every place at the centre of its patch. What stands before the patches,
/// the places of the tokens there, stays as it is.
///
/// Source: Dosovitskiy et al. 2021, §3.2 (<https://arxiv.org/abs/2010.11929>); cubic convolution: Keys 1981, with
/// `a = -3/4`, as `F.interpolate(mode="bicubic", align_corners=False)` of PyTorch and therefore `interpolate_pos_encoding`
/// of Hugging Face. timm differs: it smooths (`antialias`) with `a = -1/2`.
///
/// # Shapes
/// - `table`: `[N + R S, D]` with `R`, `S` = `old`; output: `[N + R' S', D]` with `R'`, `S'` = `new`
pub fn resize_positions(table: Tensor<2>, old: [usize; 2], new: [usize; 2]) -> Tensor<2> {
    let patches = old[0] * old[1];
    let before = table.dims()[0] - patches;
    if before == 0 {
        return resize_patches(table, old, new);
    }
    let class = table.clone().narrow(0, 0, before);
    Tensor::cat(vec![class, resize_patches(table.narrow(0, before, patches), old, new)], 0)
}

/// Along the rows, then along the columns, each as one product, so that gradients reach the table.
fn resize_patches(table: Tensor<2>, [rows, columns]: [usize; 2], [new_rows, new_columns]: [usize; 2]) -> Tensor<2> {
    let d_model = table.dims()[1];
    let weights = |old: usize, new: usize| {
        let data = TensorData::new(cubic(old, new), [new, old]);
        Tensor::<2>::from_data(data, (&table.device(), table.dtype()))
    };
    let across = weights(columns, new_columns).unsqueeze::<3>().expand([new_rows, new_columns, columns]);
    let stretched = weights(rows, new_rows).matmul(table.reshape([rows, columns * d_model])); // [R', S D]
    let stretched = across.matmul(stretched.reshape([new_rows, columns, d_model])); // [R', S', D]
    stretched.reshape([new_rows * new_columns, d_model])
}

/// The share of each of `old` places in each of `new`, along one side: `[new, old]`, every row sums to 1. Beyond the edge
/// stands the last place again.
fn cubic(old: usize, new: usize) -> Vec<f32> {
    let mut weights = vec![0.0; new * old];
    for (i, row) in weights.chunks_mut(old).enumerate() {
        let centre = (i as f64 + 0.5) * old as f64 / new as f64 - 0.5;
        for place in [-1.0, 0.0, 1.0, 2.0].map(|offset| centre.floor() + offset) {
            row[place.clamp(0.0, (old - 1) as f64) as usize] += keys((centre - place).abs()) as f32;
        }
    }
    weights
}

/// The cubic kernel at a distance, in places: 1 at 0, and 0 at 1 and from 2 on.
fn keys(distance: f64) -> f64 {
    const A: f64 = -0.75;
    match distance {
        d if d <= 1.0 => ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0,
        d if d < 2.0 => A * (((d - 5.0) * d + 8.0) * d - 4.0),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Distribution;
    use firelight_kernels::assert_close;

    fn table(places: usize) -> Tensor<2> {
        Tensor::random([places, 3], Distribution::Default, &Device::default())
    }

    #[test]
    fn a_place_by_hand() {
        // D = 4: one frequency, 1: column 2, row 1 -> sin 2, cos 2, sin 1, cos 1.
        let places = sinusoidal([2, 3], 1, 4, &Device::default());
        assert_eq!(places.dims(), [7, 4]);
        assert_eq!(places.clone().narrow(0, 0, 1).abs().sum().into_scalar::<f32>(), 0.0);
        let expected = TensorData::from([[0.909_297f32, -0.416_147, 0.841_471, 0.540_302]]);
        assert_close(&places.narrow(0, 6, 1), &expected, 1e-5);
    }

    #[test]
    fn two_places_become_three_by_hand() {
        // Centres -1/6, 1/2, 7/6. The middle: keys(1/2) = .59375 and keys(3/2) = -.09375 on either side, a half of each.
        // The first, from the places -2 to 1, where all beyond the edge is place 0 again:
        // keys(7/6) = -.086806 on place 1, the rest on place 0.
        let weights = cubic(2, 3);
        assert_close(&weights, &[1.086_806, -0.086_806, 0.5, 0.5, -0.086_806, 1.086_806], 1e-5);
    }

    #[test]
    fn rows_and_columns_by_hand() {
        // A class token and 2 x 1 patches; the centres of two rows are half way to the edges, that of one column in the middle.
        let of = |kind| coordinates(kind, [2, 1], 1, &Device::default());
        assert_close(&of(PatchCoordinates::Index), &[0.0, 0.0, 0.0, 0.0, 1.0, 0.0], 0.0);
        let half = TAU / 2.0;
        assert_close(&of(PatchCoordinates::Normalized), &[0.0, 0.0, -half, 0.0, half, 0.0], 1e-6);
    }

    #[test]
    fn the_same_grid_is_the_same_table() {
        let table = table(13);
        resize_positions(table.clone(), [3, 4], [3, 4]).into_data().assert_eq(&table.into_data(), true);
    }

    #[test]
    fn equal_places_stay_equal_whatever_the_grid() {
        let device = Device::default();
        for new in [[7, 2], [1, 9], [5, 5]] {
            let resized = resize_positions(Tensor::ones([12, 3], &device), [3, 4], new);
            assert_eq!(resized.dims(), [new[0] * new[1], 3]);
            let ones = Tensor::<2>::ones(resized.dims(), &device).into_data();
            assert_close(&resized, &ones, 1e-6);
        }
    }

    #[test]
    fn rows_and_columns_are_treated_alike() {
        let transpose = |table: Tensor<2>, [rows, columns]: [usize; 2]| {
            table.reshape([rows, columns, 3]).swap_dims(0, 1).reshape([rows * columns, 3])
        };
        let table = table(12);
        let one = transpose(resize_positions(table.clone(), [3, 4], [5, 2]), [5, 2]);
        let other = resize_positions(transpose(table, [3, 4]), [4, 3], [2, 5]);
        assert_close(&one, &other, 1e-5);
    }

    #[test]
    fn the_class_token_keeps_its_place() {
        let table = table(5);
        let resized = resize_positions(table.clone(), [2, 2], [3, 3]);
        assert_eq!(resized.dims(), [10, 3]);
        let [kept, place] = [resized.clone(), table.clone()].map(|table| table.narrow(0, 0, 1).into_data());
        kept.assert_eq(&place, true);
        let alone = resize_positions(table.narrow(0, 1, 4), [2, 2], [3, 3]).into_data();
        resized.narrow(0, 1, 9).into_data().assert_eq(&alone, true);
    }
}
