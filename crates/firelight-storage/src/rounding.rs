//! Floats of one type as floats of another, straight from the bytes of a file to those of a tensor: nothing lies between them.

use burn::tensor::{Bytes, DType, Element, ElementConversion, bf16, f16};

/// The numbers in `bytes`, which are little-endian and of the type `from`, in the type `to`: both are types of floats, or the same. Each is rounded
/// as Burn casts it, to the nearest, and to the even one of two that are as near.
pub(crate) fn rounded(bytes: &[u8], from: DType, to: DType) -> Bytes {
    match to {
        _ if from == to => Bytes::from_bytes_vec(bytes.to_vec()),
        DType::F64 => numbers::<f64>(bytes, from),
        DType::F16 => numbers::<f16>(bytes, from),
        DType::BF16 => numbers::<bf16>(bytes, from),
        _ => numbers::<f32>(bytes, from),
    }
}

fn numbers<T: Element>(bytes: &[u8], from: DType) -> Bytes {
    match from {
        DType::F64 => each(bytes, |number| f64::from_le_bytes(number).elem::<T>()),
        DType::F16 => each(bytes, |number| f16::from_le_bytes(number).elem::<T>()),
        DType::BF16 => each(bytes, |number| bf16::from_le_bytes(number).elem::<T>()),
        _ => each(bytes, |number| f32::from_le_bytes(number).elem::<T>()),
    }
}

/// One number of each `N` bytes.
fn each<const N: usize, T: Element>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Bytes {
    let (numbers, _) = bytes.as_chunks::<N>();
    Bytes::from_elems(numbers.iter().map(|&bytes| number(bytes)).collect::<Vec<T>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;

    const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

    /// The bits of numbers in half precision.
    fn bits(values: &[f32], to: DType) -> Vec<u16> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let found = rounded(&bytes, DType::F32, to);
        found.as_chunks().0.iter().map(|&bytes| u16::from_le_bytes(bytes)).collect()
    }

    #[test]
    fn halves_of_a_unit_go_to_the_even_number() {
        let unit = 2_f32.powi(-7); // of bf16 at 1
        let values = [1.0, 1.0 + unit / 2.0, 1.0 + unit / 2.0 + 2_f32.powi(-23), 1.0 + 1.5 * unit, -1.0 - 1.5 * unit];
        assert_eq!(bits(&values, DType::BF16), [0x3f80, 0x3f80, 0x3f81, 0x3f82, 0xbf82]);
        let unit = 2_f32.powi(-10); // of f16 at 1
        let values = [1.0, 1.0 + unit / 2.0, 1.0 + unit / 2.0 + 2_f32.powi(-23), 1.0 + 1.5 * unit, -1.0 - 1.5 * unit];
        assert_eq!(bits(&values, DType::F16), [0x3c00, 0x3c00, 0x3c01, 0x3c02, 0xbc02]);
    }

    #[test]
    fn the_ends_of_the_range_are_kept() {
        let infinity = f32::INFINITY;
        // The last number that stays finite, and the first that does not.
        let values = [65_519.996, 65_520.0, infinity, -infinity, 0.0, -0.0];
        assert_eq!(bits(&values, DType::F16), [0x7bff, 0x7c00, 0x7c00, 0xfc00, 0, 0x8000]);
        let values = [f32::from_bits(0x7f7f_7fff), f32::MAX, infinity, -infinity, 0.0, -0.0];
        assert_eq!(bits(&values, DType::BF16), [0x7f7f, 0x7f80, 0x7f80, 0xff80, 0, 0x8000]);
        // Numbers below the normal ones: a half, one and a half, and one of the smallest.
        let least = 2_f32.powi(-24);
        assert_eq!(bits(&[least / 2.0, 1.5 * least, least], DType::F16), [0, 2, 1]);
        let values = [0x8000, 0x1_8000, 0x1_0000].map(f32::from_bits);
        assert_eq!(bits(&values, DType::BF16), [0, 2, 1]);
        for to in [DType::F16, DType::BF16] {
            let numbers = TensorData::from_bytes(rounded(&f32::NAN.to_le_bytes(), DType::F32, to), [1_usize], to);
            assert!(numbers.iter::<f32>().all(f32::is_nan), "{to:?}");
        }
    }

    /// Numbers of all exponents; as many as fill whole vectors of a processor, one more and one less.
    #[test]
    fn every_type_becomes_every_other_as_burn_casts_it() {
        assert!(rounded(&[], DType::F32, DType::BF16).is_empty());
        for count in [1_u32, 7, 8, 9, 4_095, 4_097] {
            let values = (0..count).map(|index| f32::from_bits(index.wrapping_mul(0x9e37_79b9)));
            let values: Vec<f32> = values.map(|value| if value.is_nan() { 0.5 } else { value }).collect();
            let singles = TensorData::new(values, [count as usize]);
            for from in FLOATS {
                let data = singles.clone().convert_dtype(from);
                for to in FLOATS {
                    let found = rounded(data.as_bytes(), from, to);
                    assert_eq!(&found[..], data.clone().convert_dtype(to).as_bytes(), "{count} of {from:?} as {to:?}");
                }
            }
        }
    }
}
