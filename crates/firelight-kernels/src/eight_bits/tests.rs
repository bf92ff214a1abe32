use super::*;
use crate::{assert_close, assert_same_bits};
use burn::tensor::{Device, TensorData};
use proptest::prelude::*;

fn rows(numbers: &[f32], shape: [usize; 4], device: &Device) -> Tensor<4> {
    Tensor::<4>::from_data(TensorData::new(numbers.to_vec(), shape), device)
}

fn read_back(x: Tensor<4>) -> (Vec<f32>, Vec<f32>) {
    let width = x.dims()[3];
    let (codes, scales) = quantize_rows(x);
    let numbers = |x: Tensor<4>| x.try_to_vec_as::<f32>().expect("a host copy");
    (numbers(dequantize_rows(codes, scales.clone(), width)), numbers(scales))
}

#[test]
fn a_row_by_hand() {
    // The largest magnitude is 254, so that the scale is 2: the codes of 5.2 / 2 = 2.6 and -3.2 / 2 = -1.6 are 3 and -2.
    let device = Device::default();
    let (read, scales) = read_back(rows(&[-254.0, 5.2, -3.2, 0.9, 1.1], [1, 1, 1, 5], &device));
    assert_close(&scales, &[2.0], 1e-6);
    assert_close(&read, &[-254.0, 6.0, -4.0, 0.0, 2.0], 1e-4);
}

#[test]
fn codes_by_hand() {
    // Scale 1; two integers: numbers 0, 2 and 4 in the first, 1 and 3 in the second.
    let device = Device::default();
    let (codes, _) = quantize_rows(rows(&[127.0, -1.0, 2.0, 3.0, -128.0 + 1.0], [1, 1, 1, 5], &device));
    let first = 127 + (2 << 8) + ((256 - 127) << 16);
    let second = 255 + (3 << 8);
    assert_eq!(codes.try_to_vec_as::<i32>().expect("a host copy"), [first, second]);
}

#[test]
fn every_code_comes_back_in_every_byte() {
    let device = Device::default();
    let numbers: Vec<f32> = (-127i32..=128).flat_map(|code| [127.0f32, code.min(127) as f32, -127.0, 0.0]).collect();
    for shift in 0..4 {
        let mut turned = numbers.clone();
        turned.chunks_exact_mut(4).for_each(|row| row.rotate_left(shift));
        assert_same_bits(&read_back(rows(&turned, [1, 2, 128, 4], &device)).0, &turned);
    }
}

const GOLDEN_SCALES: [f32; 2] = [0.035_995_502, 0.034_870_64];

/// Eight numbers of each block.
const GOLDEN: [f32; 16] = [
    -4.571429, 0.71991, -3.131609, 2.15973, -1.727784, 3.563555, -0.287964, -4.139482, //
    0.0, -3.870641, 1.429696, -2.440945, 2.859392, -1.011249, 4.289089, 0.418448, //
];

#[test]
fn the_values_of_numpy() {
    // numpy 2.4, all in float32: x = (np.arange(64) * 37 % 64 - 32) / 7 as two blocks; d = abs(x).max() / 127 of each block,
    // x' = floor(x / d + 0.5) * d.
    let numbers: Vec<f32> = (0..64).map(|i| ((i * 37 % 64) as f32 - 32.0) / 7.0).collect();
    let (read, scales) = read_back(rows(&numbers, [1, 1, 1, 64], &Device::default()));
    assert_close(&scales, &GOLDEN_SCALES, 1e-7);
    assert_close(&read[..8], &GOLDEN[..8], 1e-5);
    assert_close(&read[32..40], &GOLDEN[8..], 1e-5);
}

#[test]
fn zeros_and_numbers_without_a_scale_become_zeros_and_what_is_not_finite_stays_noticed() {
    let device = Device::default();
    let (read, _) = read_back(rows(&[0.0, -0.0, 0.0, 1e-32, -1e-38, 0.0], [1, 2, 1, 3], &device));
    assert!(read.iter().all(|&number| number == 0.0), "{read:?}");
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (read, _) = read_back(rows(&[1.0, bad, 2.0, 3.0], [1, 1, 2, 2], &device));
        assert!(read[..2].iter().all(|number| number.is_nan()), "{read:?}");
        assert_close(&read[2..], &[2.0, 3.0], 0.02);
    }
}

#[test]
#[should_panic(expected = "are not those of rows of 32 numbers")]
fn codes_of_another_width_panic() {
    let (codes, scales) = quantize_rows(Tensor::zeros([1, 1, 2, 64], &Device::default()));
    dequantize_rows(codes, scales, 32);
}

#[cfg(feature = "flex")]
#[test]
fn one_pass_equals_the_reference_in_parts_of_buffers_too() {
    use crate::path::by_reference;
    let device = Device::flex();
    for width in [1, 3, 8, 32, 50, 96] {
        let shape = [2, 3, 300, width];
        let count = shape.iter().product::<usize>();
        let numbers: Vec<f32> = (0..count).map(|i| ((i as f32) * 0.731).sin() * ((i / width) as f32 + 0.1)).collect();
        let x = rows(&numbers, shape, &device).swap_dims(0, 1).narrow(2, 7, 280);
        let (codes, scales) = quantize_rows(x.clone());
        let (slow_codes, slow_scales) = by_reference(|| quantize_rows(x));
        assert_same_bits(&scales, &slow_scales);
        codes.to_data().assert_eq(&slow_codes.into_data(), true);
        let part = |codes: &Tensor<4, Int>| codes.clone().narrow(2, 5, 200);
        let scales = scales.narrow(2, 5, 200);
        let fast = dequantize_rows(part(&codes), scales.clone(), width);
        assert_same_bits(&fast, &by_reference(|| dequantize_rows(part(&codes), scales, width)));
    }
}

#[cfg(feature = "flex")]
#[test]
fn every_level_of_vector_units_gives_the_same_bits() {
    let numbers: Vec<f32> = (0..2 * 600 * 96).map(|i| ((i as f32) * 0.731).sin() * (i / 96 + 1) as f32).collect();
    let read = || read_back(rows(&numbers, [1, 2, 600, 96], &Device::flex()));
    let levels = crate::flex::simd::on_every_level(read);
    assert!(levels.iter().all(|(_, found)| *found == levels[0].1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Of both widths of blocks; a step is the scale.
    #[test]
    fn a_number_moves_by_half_a_step_at_most(
        numbers in prop::collection::vec(-1.0f32..1.0, 2 * 96),
        power in -20i32..20,
        wide in any::<bool>(),
    ) {
        let width = if wide { 96 } else { 12 };
        let numbers: Vec<f32> = numbers.into_iter().map(|number| number * 2f32.powi(power)).collect();
        let rows = rows(&numbers, [1, 1, numbers.len() / width, width], &Device::default());
        let (read, scales) = read_back(rows);
        let block = numbers.len() / scales.len();
        for ((numbers, read), scale) in numbers.chunks(block).zip(read.chunks(block)).zip(scales) {
            for (number, read) in numbers.iter().zip(read) {
                // A ten thousandth for the rounding of the scale and of the quotient.
                prop_assert!((number - read).abs() <= 0.5001 * scale, "{number} {read} {scale}");
            }
        }
    }

    /// What a row becomes does not depend on those beside it.
    #[test]
    fn rows_are_rounded_by_themselves(numbers in prop::collection::vec(-9.0f32..9.0, 5 * 32), row in 0usize..5) {
        let whole = rows(&numbers, [1, 1, 5, 32], &Device::default());
        let (all, _) = read_back(whole.clone());
        let (alone, _) = read_back(whole.narrow(2, row, 1));
        prop_assert_eq!(&alone[..], &all[32 * row..32 * (row + 1)]);
    }
}
