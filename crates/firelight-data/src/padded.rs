//! Rows of ids side by side.

use std::iter::repeat_n;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// Rows of ids as a tensor, `[B, T]`, the shorter ones padded on the right, and which tokens are padding; none where all rows are equally
/// long. The ids are of the device's own integer type, which is 32 bits wide on most backends.
pub fn right_padded<R: AsRef<[u32]>>(rows: &[R], device: &Device) -> (Tensor<2, Int>, Option<Tensor<2, Bool>>) {
    let rows: Vec<&[u32]> = rows.iter().map(AsRef::as_ref).collect();
    let length = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let shape = [rows.len(), length];
    let padded = |row: &&[u32]| row.iter().map(|&id| id as i32).chain(repeat_n(0, length - row.len())).collect();
    let ids: Vec<i32> = rows.iter().flat_map::<Vec<i32>, _>(padded).collect();
    let padding = rows.iter().any(|row| row.len() < length).then(|| {
        let flags: Vec<bool> = rows.iter().flat_map(|row| (0..length).map(move |t| t >= row.len())).collect();
        Tensor::from_bool(TensorData::new(flags, shape), device)
    });
    (Tensor::from_data(TensorData::new(ids, shape), device), padding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_rows_are_padded_and_marked() {
        let device = Device::default();
        let (ids, padding) = right_padded(&[vec![1, 2, 3], vec![4]], &device);
        assert_eq!(ids.try_to_vec_as::<i64>().unwrap(), [1, 2, 3, 4, 0, 0]);
        let flags = padding.map(|padding| padding.int().try_to_vec_as::<i64>().unwrap());
        assert_eq!(flags, Some(vec![0, 0, 0, 0, 1, 1]));
        let (ids, padding) = right_padded(&[[5], [6]], &device);
        assert_eq!((ids.dims(), padding.is_none()), ([2, 1], true));
    }
}
