use super::*;
use crate::assert_close;
use burn::tensor::{Device, TensorData};

/// Numbers between -1 and 1 without a pattern.
fn waves(count: usize, phase: f32) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 * 0.37 + phase).sin() * 43.7).fract()).collect()
}

/// A matrix in blocks, and its numbers.
fn matrix(format: BlockFormat, [d_out, d_in]: [usize; 2], device: &Device) -> (Tensor<2, Int>, Vec<f32>) {
    let row = format.row_bytes(d_in).expect("whole blocks");
    let (mut bytes, mut numbers) = (vec![0; d_out * row], vec![0.0; d_out * d_in]);
    format.quantize(&waves(d_out * d_in, 0.3), None, &mut bytes);
    format.dequantize(&bytes, &mut numbers);
    (Tensor::from_data(TensorData::new(bytes, [d_out, row]), (device, DType::U8)), numbers)
}

/// `x wᵀ + b` in double precision, and the size of its terms: the root of the sum of their squares.
fn exact(x: &[f32], w: &[f32], bias: &[f32], d_in: usize) -> Vec<(f64, f64)> {
    let product = |x: &[f32], w: &[f32], b: f32| {
        let terms = || x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
        (f64::from(b) + terms().sum::<f64>(), terms().map(|term| term * term).sum::<f64>().sqrt())
    };
    let rows = x.chunks_exact(d_in);
    rows.flat_map(|x| w.chunks_exact(d_in).zip(bias).map(move |(w, &b)| product(x, w, b))).collect()
}

#[test]
fn a_product_by_hand() {
    let device = Device::default();
    // Scale 1 and codes that are the numbers: one row counts up, the other is -1 throughout.
    let numbers: Vec<f32> = (0..64).map(|i| if i < 32 { i as f32 } else { -1.0 }).collect();
    let mut bytes = [0u8; 68];
    for (block, numbers) in bytes.chunks_exact_mut(34).zip(numbers.chunks_exact(32)) {
        block[1] = 0x3c;
        block[2..].iter_mut().zip(numbers).for_each(|(byte, &number)| *byte = number as i8 as u8);
    }
    let blocks = Tensor::<2, Int>::from_data(TensorData::new(bytes.to_vec(), [2, 34]), (&device, DType::U8));
    let format = BlockFormat::Q8_0;
    dequantized(blocks.clone(), format).into_data().assert_eq(&TensorData::new(numbers, [2, 32]), true);
    // The activations are codes 127 of scale 2 / 127. Sums: 2 * 496 + 10 and -2 * 32 + 20.
    let bias = Tensor::from_floats([10.0, 20.0], &device);
    let y = quantized_linear(Tensor::<3>::full([1, 1, 32], 2.0, &device), blocks.clone(), format, Some(bias));
    assert_close(&y, &TensorData::from([[[1002f32, -44.0]]]), 1e-3);
    let rows = quantized_embedding(blocks, format, Tensor::from_ints([[1, 0]], &device));
    assert_eq!(rows.dims(), [1, 2, 32]);
    let rows: Vec<f32> = rows.into_data().iter().collect();
    assert_eq!((rows[0], rows[31], rows[32], rows[63]), (-1.0, -1.0, 0.0, 31.0));
}

#[test]
fn rows_of_a_table_are_those_of_the_numbers() {
    let device = Device::default();
    for format in BlockFormat::ALL {
        let (blocks, numbers) = matrix(format, [7, 512], &device);
        let rows = quantized_embedding(blocks.clone(), format, Tensor::from_ints([[6, 0, 6], [3, 1, 2]], &device));
        let expected = [6, 0, 6, 3, 1, 2].into_iter().flat_map(|row| numbers[row * 512..][..512].to_vec());
        rows.into_data().assert_eq(&TensorData::new(expected.collect::<Vec<_>>(), [2, 3, 512]), true);
        dequantized(blocks, format).into_data().assert_eq(&TensorData::new(numbers, [7, 512]), true);
    }
    let (blocks, _) = matrix(BlockFormat::Q4_0, [3, 64], &device);
    let none = quantized_embedding(blocks, BlockFormat::Q4_0, Tensor::zeros([0, 4], &device));
    assert_eq!(none.dims(), [0, 4, 64]);
}

#[test]
fn products_are_those_of_the_numbers_within_the_error_of_eight_bits() {
    let device = Device::default();
    for format in BlockFormat::ALL {
        for (rows, d_in, d_out) in [(1, 512, 70), (3, 768, 33), (32, 256, 300), (33, 256, 300), (70, 512, 5)] {
            let (blocks, numbers) = matrix(format, [d_out, d_in], &device);
            let (x, bias) = (waves(rows * d_in, 1.0), waves(d_out, 2.0));
            let input = Tensor::<2>::from_data(TensorData::new(x.clone(), [rows, d_in]), &device);
            let b = Tensor::<1>::from_data(TensorData::new(bias.clone(), [d_out]), &device);
            let found = quantized_linear(input, blocks, format, Some(b)).into_data();
            assert_eq!(found.iter::<f64>().count(), rows * d_out);
            for (found, (expected, size)) in found.iter::<f64>().zip(exact(&x, &numbers, &bias, d_in)) {
                // An activation errs by at most half a step, 1 / 254 of the largest of 32; ten deviations of the sum.
                assert!(
                    (found - expected).abs() <= 0.04 * size + 1e-4,
                    "{format}, {rows} rows, {d_in} to {d_out}: {found} {expected}"
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "quantized_linear: x [2, 64] does not end in 32, the numbers of 34 bytes of q8_0")]
fn a_wrong_width_panics() {
    let device = Device::default();
    let (blocks, _) = matrix(BlockFormat::Q8_0, [3, 32], &device);
    quantized_linear(Tensor::<2>::zeros([2, 64], &device), blocks, BlockFormat::Q8_0, None);
}

#[test]
#[should_panic(expected = "dequantized: rows of 34 bytes are no whole number of blocks of q4_0, 18 bytes each")]
fn another_format_panics() {
    let (blocks, _) = matrix(BlockFormat::Q8_0, [3, 32], &Device::default());
    dequantized(blocks, BlockFormat::Q4_0);
}

#[test]
#[should_panic(expected = "expected U8")]
fn another_type_panics() {
    dequantized(Tensor::zeros([3, 34], (&Device::default(), DType::I32)), BlockFormat::Q8_0);
}

#[test]
#[should_panic(expected = "quantized_embedding: token 3 at 1 is not one of 3 rows")]
fn a_token_that_is_no_row_panics() {
    let device = Device::default();
    let (blocks, _) = matrix(BlockFormat::Q8_0, [3, 32], &device);
    quantized_embedding(blocks, BlockFormat::Q8_0, Tensor::from_ints([[0, 3]], &device));
}

#[cfg(feature = "flex")]
mod fused {
    use super::*;
    use crate::flex::halves::Units;
    use crate::flex::simd::on_every_level;
    use crate::testing::{Case, compare, random};

    fn product(blocks: &Tensor<2, Int>, format: BlockFormat, x: &Tensor<2>) -> TensorData {
        quantized_linear(x.clone(), blocks.clone(), format, None).into_data()
    }

    /// Every 32 numbers rounded to 255 steps; the derivative does not see it.
    fn in_eight_bits(x: Tensor<2>) -> Tensor<2> {
        let (shape, device) = (x.dims(), x.device());
        let mut numbers: Vec<f32> = x.clone().detach().into_data().iter().collect();
        for group in numbers.chunks_mut(32) {
            let most = group.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            group.iter_mut().for_each(|x| *x = (*x * (127.0 / most)).round_ties_even() * (most / 127.0));
        }
        let rounded = Tensor::<2>::from_data(TensorData::new(numbers, shape), &device);
        x.clone() + (rounded - x.detach())
    }

    /// Beyond 32 rows the matrix becomes numbers.
    #[test]
    fn a_row_among_many_is_the_row_alone() {
        let case = Case::plain();
        for format in BlockFormat::ALL {
            let (blocks, _) = matrix(format, [300, 512], &Device::flex());
            let x = random(&case, [40, 512], 0).inner();
            let (many, few) = (product(&blocks, format, &x), product(&blocks, format, &x.narrow(0, 7, 1)));
            let row: Vec<f32> = many.iter().skip(7 * 300).take(300).collect();
            assert_close(&few, &TensorData::new(row, [1, 300]), 1e-3); // Eight bits differ from floats by 0.1.
        }
    }

    #[test]
    fn many_rows_and_all_gradients_equal_the_reference() {
        let case = Case::plain();
        for format in BlockFormat::ALL {
            for [rows, d_in, d_out] in [[33, 256, 40], [300, 512, 300], [600, 768, 33]] {
                let (blocks, _) = matrix(format, [d_out, d_in], &case.device());
                let inputs = [random(&case, [rows, d_in], 0), random(&case, [1, d_out], 1)];
                let bias = |bias: Tensor<2>| Some(bias.reshape([d_out]));
                let fused = |[x, b]: [Tensor<2>; 2]| quantized_linear(x, blocks.clone(), format, bias(b));
                let slow = |[x, b]: [Tensor<2>; 2]| {
                    reference::quantized_linear(in_eight_bits(x), blocks.clone(), format, bias(b))
                };
                compare(&case, inputs, fused, slow);
            }
        }
    }

    #[test]
    fn the_gradient_of_few_rows_is_that_of_the_numbers() {
        let case = Case::plain();
        for format in BlockFormat::ALL {
            let (blocks, _) = matrix(format, [300, 512], &case.device());
            let x = random(&case, [4, 512], 0).require_grad();
            let cotangent = random(&case, [4, 300], 1);
            let gradient =
                |y: Tensor<2>| x.grad(&(y * cotangent.clone()).sum().backward()).expect("x requires a gradient");
            let found = gradient(quantized_linear(x.clone(), blocks.clone(), format, None));
            let expected = gradient(reference::quantized_linear(x.clone(), blocks, format, None));
            assert_close(&found, &expected, 2e-4);
        }
    }

    #[test]
    fn every_level_of_vector_units_gives_the_same_bits() {
        let case = Case::plain();
        for format in BlockFormat::ALL {
            let (blocks, _) = matrix(format, [300, 768], &Device::flex());
            for rows in [1, 5] {
                let x = random(&case, [rows, 768], 0).inner();
                let found = on_every_level(|| product(&blocks, format, &x));
                for (level, found_here) in &found {
                    assert!(found_here.as_bytes() == found[0].1.as_bytes(), "{format}, {rows} rows, {level}");
                }
            }
        }
    }

    #[test]
    fn threads_change_no_bit() {
        let case = Case::plain();
        for format in BlockFormat::ALL {
            let (blocks, _) = matrix(format, [700, 512], &case.device());
            for rows in [2, 300] {
                let x = random(&case, [rows, 512], 0).require_grad();
                let on = |threads: usize| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
                    pool.install(|| {
                        let y = quantized_linear(x.clone(), blocks.clone(), format, None);
                        let grads = (y.clone() * random(&case, [rows, 700], 1)).sum().backward();
                        [y.into_data(), x.grad(&grads).expect("x requires a gradient").into_data()]
                    })
                };
                let alone = on(1);
                for threads in [2, 5] {
                    assert!(
                        on(threads).iter().zip(&alone).all(|(a, b)| a.as_bytes() == b.as_bytes()),
                        "{format}, {rows}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_whatever_rows_are_beside_it() {
        let case = Case::plain();
        for format in BlockFormat::ALL {
            let (blocks, _) = matrix(format, [100, 768], &Device::flex());
            let x = random(&case, [32, 768], 0).inner();
            let together = product(&blocks, format, &x);
            for (row, together) in together.as_bytes().chunks_exact(4 * 100).enumerate() {
                let alone = product(&blocks, format, &x.clone().slice([row..row + 1, 0..768]));
                assert_eq!(alone.as_bytes(), together, "{format}, row {row}");
            }
        }
    }

    #[test]
    fn half_precision_is_rounded_once() {
        let case = Case::plain();
        for format in BlockFormat::ALL {
            let (blocks, _) = matrix(format, [90, 512], &case.device());
            for (dtype, unit) in [(DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))] {
                for rows in [3, 40] {
                    let x = Tensor::<2>::from_inner(random(&case, [rows, 512], 0).inner().cast(dtype)).require_grad();
                    let b = random(&case, [1, 90], 1).cast(dtype).reshape([90]);
                    let cotangent = random(&case, [rows, 90], 2).cast(dtype);
                    let y = quantized_linear(x.clone(), blocks.clone(), format, Some(b.clone()));
                    let gradient = x.grad(&(y.clone() * cotangent.clone()).sum().backward()).expect("a gradient");
                    assert_eq!((y.dtype(), gradient.dtype()), (dtype, dtype));

                    let wide = Tensor::<2>::from_inner(x.clone().inner().cast(DType::F32)).require_grad();
                    let expected = quantized_linear(wide.clone(), blocks.clone(), format, Some(b.cast(DType::F32)));
                    let grads = (expected.clone() * cotangent.cast(DType::F32)).sum().backward();
                    let expected_gradient = wide.grad(&grads).expect("a gradient");
                    // Tile registers take the numbers of blocks in bf16: the terms of a sum are rounded, too.
                    for (found, expected, terms) in [(y, expected, 512.0), (gradient, expected_gradient, 90.0f64)] {
                        let by_tiles =
                            dtype == DType::BF16 && Units::chosen().is_some() && (terms == 90.0 || rows > 32);
                        let slack = if by_tiles { 4.0 * unit * terms.sqrt() } else { 1e-4 };
                        for (found, expected) in found.into_data().iter::<f64>().zip(expected.into_data().iter::<f64>())
                        {
                            let error = (found - expected).abs();
                            assert!(
                                error <= 1.01 * unit * expected.abs() + slack,
                                "{format}, {dtype:?}, {rows} rows: {found} {expected}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_seen() {
        let (blocks, _) = matrix(BlockFormat::Q4K, [5, 256], &Device::flex());
        for number in [f32::NAN, f32::INFINITY] {
            let mut x = vec![1.0; 512];
            x[300] = number;
            let x = Tensor::<2>::from_data(TensorData::new(x, [2, 256]), &Device::flex());
            let y: Vec<f32> = product(&blocks, BlockFormat::Q4K, &x).iter().collect();
            assert!(y[..5].iter().all(|y| y.is_finite()) && y[5..].iter().all(|y| y.is_nan()), "{y:?}");
        }
    }

    #[test]
    fn blocks_that_are_a_part_of_a_tensor_are_read_where_they_lie() {
        let device = Device::flex();
        let (blocks, _) = matrix(BlockFormat::Q8_0, [12, 64], &device);
        let x = random(&Case::plain(), [2, 64], 0).inner();
        let all = quantized_linear(x.clone(), blocks.clone(), BlockFormat::Q8_0, None);
        let part = product(&blocks.slice([4..9, 0..68]), BlockFormat::Q8_0, &x);
        part.assert_eq(&all.slice([0..2, 4..9]).into_data(), true);
    }

    #[cfg(feature = "ndarray")]
    #[test]
    #[allow(deprecated)]
    fn another_backend_takes_the_reference() {
        for format in BlockFormat::ALL {
            let on = |device: Device| {
                let (blocks, _) = matrix(format, [30, 512], &device);
                let x = Tensor::<2>::from_data(TensorData::new(waves(40 * 512, 1.0), [40, 512]), &device);
                quantized_linear(in_eight_bits(x), blocks, format, None)
            };
            assert_close(&on(Device::flex()), &on(Device::ndarray()).into_data(), 1e-3);
        }
    }
}

#[test]
#[allow(deprecated)] // Burn's older CPU backend multiplies no blocks.
fn flex_alone_multiplies_blocks_with_gradients_or_without() {
    assert!(supports_quantized_matmul(&Device::flex()) && supports_quantized_matmul(&Device::flex().autodiff()));
    #[cfg(feature = "ndarray")]
    {
        assert!(!supports_quantized_matmul(&Device::ndarray()));
    }
}
