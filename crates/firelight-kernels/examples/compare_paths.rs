//! Times every operation forward and backward with the fused kernels and with the reference in turn, at the shapes of a
//! small GPT, and prints the ratio of the medians: above 1 the fused path is faster.
//!
//! ```sh
//! cargo run --release -p firelight-kernels --features flex --example compare_paths [rounds]
//! ```
//!
//! The path is chosen once in a process, so the program starts itself anew for each. An absolute time means little on a
//! machine that does other work; the ratio of medians taken in turn means more.
#![allow(clippy::print_stdout)]

use burn::tensor::{Device, Distribution, Int, Tensor};
use firelight_kernels::*;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

/// Tokens, model width, heads, and classes of the network that the shapes are taken from.
const TOKENS: usize = 2048;
const WIDTH: usize = 384;
const HEADS: usize = 6;
const LENGTH: usize = 256;
const CLASSES: usize = 8192;

fn main() {
    match std::env::args().nth(1) {
        Some(word) if word == "child" => time_all(),
        rounds => compare(rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(5)),
    }
}

/// Starts the program for both paths in turn and prints the ratios.
fn compare(rounds: usize) {
    let mut times: BTreeMap<String, [Vec<f64>; 2]> = BTreeMap::new();
    for _ in 0..rounds {
        for (path, name) in ["fused", "reference"].into_iter().enumerate() {
            let program = std::env::current_exe().expect("the program has a path");
            let output = Command::new(program).arg("child").env("FIRELIGHT_KERNELS", name).output();
            let output = String::from_utf8(output.expect("the program starts").stdout).expect("it prints text");
            for line in output.lines() {
                let (operation, time) = line.rsplit_once(' ').expect("a name and a time");
                times.entry(operation.to_owned()).or_default()[path].push(time.parse().expect("a number"));
            }
        }
    }
    println!("{:<32} {:>10} {:>10} {:>7}", "forward and backward", "fused ms", "reference", "ratio");
    for (operation, times) in times {
        let [fused, reference] = times.map(median);
        println!("{operation:<32} {fused:>10.2} {reference:>10.2} {:>7.2}", reference / fused);
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Prints the median time of every operation on the path of this process.
fn time_all() {
    let device = Device::flex().autodiff();
    let random = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Default, &device).require_grad();
    let (x, wide) = (random([TOKENS, WIDTH]), random([TOKENS, 4 * WIDTH]));
    let parameter = |size: usize| Tensor::<1>::random([size], Distribution::Default, &device).require_grad();
    let (gamma, bias) = (parameter(WIDTH), parameter(4 * WIDTH));
    time("gelu tanh", || gelu(wide.clone(), GeluForm::Tanh));
    time("gelu exact", || gelu(wide.clone(), GeluForm::Exact));
    time("silu gate", || gated(wide.clone(), wide.clone(), Gate::Silu));
    time("dropout", || dropout(x.clone(), 0.2));
    let (table, words) = (random([CLASSES, WIDTH]), random([TOKENS, 1]) * CLASSES as f64);
    let words = words.int().reshape([TOKENS / LENGTH, LENGTH]);
    time("embedding 8192", || embedding(table.clone(), words.clone()));
    time("layer norm", || layer_norm(x.clone(), gamma.clone(), Some(gamma.clone()), 1e-5));
    let branch = random([TOKENS, WIDTH]);
    time("add and layer norm", || add_layer_norm(x.clone(), branch.clone(), gamma.clone(), None, 1e-5).1);
    time("rms norm", || rms_norm(x.clone(), gamma.clone(), 1e-5));
    let (before, taps) = (random([3, 4 * WIDTH]), random([4, 4 * WIDTH]));
    time("convolution of 4", || {
        causal_convolution(wide.clone().unsqueeze(), before.clone().unsqueeze(), taps.clone(), None)
    });
    let chunks = |width: usize| random([64 * 8 * 64, width]).reshape([64, 8, 64, width]);
    let (transitions, inputs) = (chunks(64), chunks(64));
    time("recurrence of 64", || {
        linear_recurrence(transitions.clone() * 0.01, inputs.clone(), Tensor::zeros([8, 64, 64], &device))
    });
    let weight = random([WIDTH, 4 * WIDTH]);
    time("linear 384 x 1536", || linear(x.clone(), weight.clone(), Some(bias.clone())));
    let logits = random([TOKENS / 2, CLASSES]);
    let targets = Tensor::<1, Int>::zeros([TOKENS / 2], &device);
    time("cross-entropy 8192", || cross_entropy(logits.clone(), targets.clone(), &CrossEntropyOptions::default()));
    let rows = |length: usize| random([length, WIDTH]);
    let attend = |x: &Tensor<2>, length: usize, options: &AttentionOptions| {
        let [tokens, _] = x.dims();
        let heads = x.clone().reshape([tokens / length, length, HEADS, WIDTH / HEADS]).swap_dims(1, 2);
        attention(heads.clone(), heads.clone(), heads, options)
    };
    let causal = AttentionOptions::default().with_mask(AttentionMask::causal());
    time("attention causal 256", || attend(&x, LENGTH, &causal));
    let dropped = causal.clone().with_dropout(0.2);
    time("attention causal 256, dropout", || attend(&x, LENGTH, &dropped));
    time("attention 256", || attend(&x, LENGTH, &AttentionOptions::default()));
    let long = rows(2048);
    time("attention causal 2048", || attend(&long, 2048, &causal));
    let rule = PairRule::Chunks { size: LENGTH }.and(PairRule::Causal);
    let chunks = AttentionOptions::default().with_mask(AttentionMask::rule(rule));
    time("attention chunks of 256 in 2048", || attend(&long, 2048, &chunks));
}

fn time<const D: usize>(name: &str, operation: impl Fn() -> Tensor<D>) {
    let run = || {
        let start = Instant::now();
        let gradients = operation().sum().backward();
        let time = start.elapsed().as_secs_f64();
        drop(gradients);
        time * 1e3
    };
    run();
    println!("{name} {}", median((0..7).map(|_| run()).collect()));
}
