//! Measures the memory of activations, beside what `firelight inspect` and the estimate of a training count by the structure: the bytes
//! that a stack holds between its forward and its backward pass, and the most that it holds in both.
//!
//! Command: cargo run --release -p firelight-examples --example activation_memory -- [--toy]
//! Time: below a minute on two CPU cores, and 2 GB of memory; a moment with --toy.
//! Expect: a line for each token mixer, experts and cross-attention. What is held is 0.88 to 1.12 times what is counted; the most has the
//! gradients as well.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

use burn::tensor::{Device, Tensor};
use firelight::nn::{
    Activation, DifferentialConfig, EncoderOutput, ExpertsConfig, GatedDeltaConfig, LatentConfig, MixerConfig,
    NormConfig, ParamBuilder, Pass, PositionConfig, SequenceInput, TransformerConfig,
};

/// The bytes that all threads hold, and the most that they have held.
static HELD: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator, which counts.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    MOST.fetch_max(HELD.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: the system's allocator does what is asked for, and counting takes no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller promises what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller promises what `dealloc` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes of one stack and batch.
struct Memory {
    /// Of what the structure says is kept for the backward pass.
    counted: usize,
    /// Behind the forward pass, above those before it.
    held: isize,
    /// In the forward and the backward pass, gradients of the parameters included.
    most: isize,
}

/// Runs a stack forward and backward on `batch` sequences of `length` tokens.
fn measured(config: &TransformerConfig, [batch, length]: [usize; 2]) -> Memory {
    let device = Device::flex().autodiff();
    let stack = config.init_with(&ParamBuilder::new(&device, 0));
    let x = Tensor::<3>::ones([batch, length, config.d_model], &device);
    let input = match config.has_cross_attention() {
        true => SequenceInput::default().with_encoder_output(EncoderOutput::new(x.clone())),
        false => SequenceInput::default(),
    };
    let forward = || stack.forward(x.clone(), &input, &mut Pass::default()).sum();
    drop(forward().backward()); // Parameters are drawn when they are first read, and threads begin.
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let sum = forward();
    let held = HELD.load(Relaxed) - before;
    let gradients = sum.backward();
    let most = MOST.load(Relaxed) - before;
    drop(gradients);
    Memory { counted: 4 * stack.cost(length).activations_per_token * batch * length, held, most }
}

/// Stacks of a width and a number of layers, by name.
fn stacks(width: usize, layers: usize) -> [(&'static str, TransformerConfig); 7] {
    let plain = TransformerConfig::new(width, 4, layers).with_position(PositionConfig::None);
    let gated = plain.clone().with_activation(Activation::SwiGlu).with_norm(NormConfig::rms());
    let experts = plain.clone().with_experts(ExpertsConfig::new(4).with_top_k(2));
    let mixer = |mixer| plain.clone().with_mixer(mixer);
    [
        ("SwiGLU, RMS norm", gated),
        ("cross-attention", plain.clone().with_cross_attention(true)),
        ("2 of 4 experts", experts),
        ("latent attention", mixer(MixerConfig::Latent(LatentConfig::new(width / 4, width / 8)))),
        ("differential attention", mixer(MixerConfig::Differential(DifferentialConfig::default()))),
        ("Gated DeltaNet", mixer(MixerConfig::GatedDelta(GatedDeltaConfig::default()))),
        ("GELU, layer norm", plain),
    ]
}

fn show(width: usize, layers: usize, shape: [usize; 2]) {
    let mebibytes = |bytes: f64| bytes / (1 << 20) as f64;
    for (name, config) in stacks(width, layers) {
        let Memory { counted, held, most } = measured(&config, shape);
        let share = held as f64 / counted as f64;
        let [counted, held, most] = [counted as f64, held as f64, most as f64].map(mebibytes);
        println!("{name}: counted {counted:.1} MiB, held {held:.1} MiB ({share:.2} times), the most {most:.1} MiB");
    }
}

fn main() -> ExitCode {
    firelight_examples::report(|| {
        match firelight_examples::toy_and_words(0, "[--toy]")?.0 {
            true => show(64, 2, [4, 128]),
            false => show(256, 6, [8, 256]),
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::DType;
    use firelight::kernels::{KernelPath, kernel_path};

    /// A matrix of all pairs, an activation that is kept twice or one that is not counted would be outside. Of the output of the stack and
    /// the input of its first norm, which are counted, nothing is held here; statistics and the graph are held and not counted.
    #[test]
    fn what_is_held_is_what_is_counted() {
        if kernel_path(&Device::flex(), DType::F32) != KernelPath::Fused {
            return; // The reference does hold matrices of all pairs.
        }
        let mut outside = Vec::new();
        for (name, config) in stacks(64, 2) {
            let Memory { counted, held, most } = measured(&config, [4, 128]);
            let share = held as f64 / counted as f64;
            outside
                .extend((!(0.88..1.12).contains(&share)).then(|| format!("{name}: {share:.3} times {counted} bytes")));
            assert!(most > held, "{name}: {most} bytes at most, {held} between the passes");
        }
        assert!(outside.is_empty(), "what is held is not what is counted: {outside:?}");
    }
}
