//! How fast memory is read, by one thread and by all: the floor of whatever reads every weight once, as a decoder does.
//! `cargo run --release -p firelight-kernels --example memory_speed`

use std::hint::black_box;
use std::thread;
use std::time::Instant;

/// 256 MiB.
const NUMBERS: usize = 64 << 20;

fn main() {
    let numbers = vec![1.0f32; NUMBERS];
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, threads] {
        let seconds = (0..8).map(|_| read(&numbers, threads)).fold(f64::INFINITY, f64::min);
        println!("{threads} threads: {:.1} GB/s", (4 * NUMBERS) as f64 / seconds / 1e9);
    }
}

/// Seconds that adding all numbers up takes.
fn read(numbers: &[f32], threads: usize) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for part in numbers.chunks(NUMBERS.div_ceil(threads)) {
            scope.spawn(|| black_box(sum(part)));
        }
    });
    start.elapsed().as_secs_f64()
}

fn sum(numbers: &[f32]) -> f32 {
    let mut lanes = [0.0; 128];
    for chunk in numbers.as_chunks::<128>().0 {
        lanes.iter_mut().zip(chunk).for_each(|(lane, number)| *lane += number);
    }
    lanes.iter().sum()
}
