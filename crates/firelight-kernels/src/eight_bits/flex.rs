//! Rows in eight bits on the flex backend: one pass over memory, by all threads. A part of a larger tensor, such as what a cache holds so
//! far, is read where it lies.

use super::{Blocks, EightBitsExtension, SMALLEST};
use crate::flex::view::{readable, start_of_row};
use crate::flex::{contiguous, filled, for_each_block, values, vectorised};
use burn::backend::Flex;
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Shape, TensorData};
use rayon::prelude::*;

/// Blocks that pay for another thread.
const TASK: usize = 512;

impl EightBitsExtension for Flex {
    fn quantize_rows(x: FlexTensor) -> (FlexTensor, FlexTensor) {
        let x = contiguous(x);
        let shape = x.layout().shape();
        let blocks = Blocks::of(shape[3]);
        let (codes, scales) = quantize(values(&x), blocks);
        let tensor = |width| Shape::from(vec![shape[0], shape[1], shape[2], width]);
        let codes = TensorData::new(codes, tensor(blocks.count * blocks.words));
        let scales = TensorData::new(scales, tensor(blocks.count));
        (FlexTensor::from_data(codes), FlexTensor::from_data(scales))
    }

    fn dequantize_rows(codes: FlexTensor, scales: FlexTensor, width: usize) -> FlexTensor {
        let (codes, scales, blocks) = (readable(&codes), readable(&scales), Blocks::of(width));
        let shape = codes.layout().shape();
        let shape = Shape::from(vec![shape[0], shape[1], shape[2], width]);
        let (codes, scales) = (
            Rows { numbers: codes.storage::<i32>(), layout: codes.layout() },
            Rows { numbers: scales.storage::<f32>(), layout: scales.layout() },
        );
        let numbers: Vec<f32> = filled(shape.num_elements(), |out| {
            for_each_block(out, width, |first, out| read_rows(codes, scales, first, out, blocks));
        });
        FlexTensor::from_data(TensorData::new(numbers, shape))
    }
}

fn quantize(numbers: &[f32], blocks: Blocks) -> (Vec<i32>, Vec<f32>) {
    let count = numbers.len() / blocks.numbers;
    let (mut words, mut scales) = (vec![0; count * blocks.words], vec![0.0; count]);
    if count <= TASK {
        encode_all(numbers, &mut words, &mut scales, blocks);
    } else {
        let parts = words.par_chunks_mut(TASK * blocks.words).zip(scales.par_chunks_mut(TASK));
        let parts = numbers.par_chunks(TASK * blocks.numbers).zip(parts);
        parts.for_each(|(numbers, (words, scales))| encode_all(numbers, words, scales, blocks));
    }
    (words, scales)
}

fn encode_all(numbers: &[f32], words: &mut [i32], scales: &mut [f32], blocks: Blocks) {
    vectorised(
        #[inline(always)]
        || {
            let parts = numbers.chunks_exact(blocks.numbers).zip(words.chunks_exact_mut(blocks.words));
            for ((numbers, words), scale) in parts.zip(scales.iter_mut()) {
                *scale = encode(numbers, words);
            }
        },
    );
}

/// Fills a block and returns its scale.
#[inline(always)]
fn encode(numbers: &[f32], words: &mut [i32]) -> f32 {
    let scale = scale_of(numbers);
    let step = if scale < SMALLEST { 1.0 } else { scale }; // Nothing is left of numbers so small.
    let code = |place: usize| numbers.get(place).map_or(0, |number| (number / step + 0.5).floor() as i32);
    let count = words.len();
    for (place, word) in words.iter_mut().enumerate() {
        let [a, b, c, d] = [0, 1, 2, 3].map(|part| code(part * count + place));
        *word = (a & 255) | ((b & 255) << 8) | ((c & 255) << 16) | (d << 24);
    }
    scale
}

/// A 127th of the largest magnitude; NaN if a number is not finite.
#[inline(always)]
fn scale_of(numbers: &[f32]) -> f32 {
    let (mut largest, mut zeros) = (0.0f32, 0.0f32);
    for number in numbers {
        largest = largest.max(number.abs());
        zeros += number * 0.0;
    }
    largest / 127.0 + zeros
}

/// The rows of a [`readable`] tensor, where they lie.
#[derive(Clone, Copy)]
struct Rows<'a, N> {
    numbers: &'a [N],
    layout: &'a Layout,
}

impl<'a, N: Copy> Rows<'a, N> {
    /// A row, counted in row-major order.
    fn row(self, row: usize) -> &'a [N] {
        &self.numbers[start_of_row(self.layout, row)..][..self.layout.shape()[3]]
    }
}

/// Reads rows from row `first` on.
fn read_rows(codes: Rows<'_, i32>, scales: Rows<'_, f32>, first: usize, out: &mut [f32], blocks: Blocks) {
    for (row, out) in (first..).zip(out.chunks_exact_mut(blocks.count * blocks.numbers)) {
        decode_row(codes.row(row), scales.row(row), blocks, out);
    }
}

fn decode_row(words: &[i32], scales: &[f32], blocks: Blocks, out: &mut [f32]) {
    vectorised(
        #[inline(always)]
        || {
            let parts = words.chunks_exact(blocks.words).zip(out.chunks_exact_mut(blocks.numbers));
            for ((words, numbers), &scale) in parts.zip(scales) {
                decode(words, scale, numbers);
            }
        },
    );
}

#[inline(always)]
fn decode(words: &[i32], scale: f32, numbers: &mut [f32]) {
    for (part, numbers) in numbers.chunks_mut(words.len()).enumerate() {
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = f32::from((word >> (8 * part)) as i8) * scale;
        }
    }
}
