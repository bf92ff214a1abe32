//! Times the products of a row, or of some, with the matrices of GPT-2 in every format: blocks of few bits, `bf16` and `f32`.
//!
//! ```sh
//! cargo run --release -p firelight-kernels --features flex --example quantized_speed [rows]
//! ```
//!
//! All formats are timed in turn, so that what else the machine does disturbs them alike. A matrix lies in memory several times and the copies
//! take turns, for those of a model do not stay in the caches either. Numbers are medians: milliseconds, and the bytes of the matrix
//! over the time. `memory_speed` tells how fast memory is read at most.
#![allow(clippy::print_stdout)]

use burn::tensor::{DType, Device, Distribution, Int, Tensor, TensorData};
use firelight_kernels::{BlockFormat, linear, quantized_linear};
use std::time::Instant;

/// Inputs and outputs: queries with keys and values, the projection behind attention, both layers of the feed-forward network, and the head.
const SHAPES: [[usize; 2]; 5] = [[768, 2304], [768, 768], [768, 3072], [3072, 768], [768, 50_257]];

/// Bytes that the copies of a matrix have at least: more than caches hold.
const BYTES: usize = 128 << 20;

const ROUNDS: usize = 31;

fn main() {
    let rows = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(1);
    println!("{:<14} {:<6} {:>9} {:>7}", "shape", "format", "ms", "GB/s");
    for shape in SHAPES {
        let kinds = kinds(shape);
        for (kind, seconds) in kinds.iter().zip(medians(&kinds, shape, rows)) {
            let [d_in, d_out] = shape;
            let (name, speed) = (format!("{d_in} x {d_out}"), kind.bytes as f64 / seconds / 1e9);
            println!("{name:<14} {:<6} {:>9.4} {speed:>7.1}", kind.name, 1e3 * seconds);
        }
    }
}

/// A matrix in one format.
struct Kind {
    name: &'static str,
    bytes: usize,
    dtype: DType,
    copies: Vec<Weight>,
}

enum Weight {
    Blocks(Tensor<2, Int>, BlockFormat),
    /// `[I, O]`, where the columns stand side by side.
    Numbers(Tensor<2>),
}

impl Weight {
    fn times(&self, x: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Blocks(blocks, format) => quantized_linear(x, blocks.clone(), *format, None),
            Self::Numbers(weight) => linear(x, weight.clone(), None),
        }
    }
}

/// The matrix in every format that its width fits.
fn kinds([d_in, d_out]: [usize; 2]) -> Vec<Kind> {
    let device = Device::flex();
    let numbers = Tensor::<2>::random([d_out, d_in], Distribution::Normal(0.0, 0.02), &device);
    let numbers: Vec<f32> = numbers.into_data().iter().collect();
    let copies = |bytes: usize| 0..(BYTES / bytes).clamp(1, 64);
    let mut kinds: Vec<Kind> = Vec::new();
    for format in BlockFormat::ALL {
        let Some(row) = format.row_bytes(d_in) else { continue };
        let mut blocks = vec![0u8; d_out * row];
        format.quantize(&numbers, None, &mut blocks);
        let copy = |_| {
            let data = TensorData::new(blocks.clone(), [d_out, row]);
            Weight::Blocks(Tensor::from_data(data, (&device, DType::U8)), format)
        };
        let (name, bytes) = (format.name(), blocks.len());
        kinds.push(Kind { name, bytes, dtype: DType::F32, copies: copies(bytes).map(copy).collect() });
    }
    for (name, dtype, size) in [("bf16", DType::BF16, 2), ("f32", DType::F32, 4)] {
        let copy = |_| {
            let data = TensorData::new(numbers.clone(), [d_out, d_in]);
            Weight::Numbers(Tensor::<2>::from_data(data, (&device, dtype)).transpose())
        };
        let bytes = d_in * d_out * size;
        kinds.push(Kind { name, bytes, dtype, copies: copies(bytes).map(copy).collect() });
    }
    kinds
}

/// The median seconds of a product in each format.
fn medians(kinds: &[Kind], [d_in, _]: [usize; 2], rows: usize) -> Vec<f64> {
    let x = Tensor::<2>::random([rows, d_in], Distribution::Normal(0.0, 1.0), &Device::flex());
    let mut times = vec![Vec::new(); kinds.len()];
    for round in 0..ROUNDS {
        for (kind, times) in kinds.iter().zip(&mut times) {
            let x = x.clone().cast(kind.dtype);
            let start = Instant::now();
            let y = kind.copies[round % kind.copies.len()].times(x);
            times.push(start.elapsed().as_secs_f64());
            drop(y);
        }
    }
    times.into_iter().map(median).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
