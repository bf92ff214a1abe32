//! What the decoding loop allocates at each step, beside its model and the operations of Burn. A test binary of its own, for its allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use burn::tensor::{Device, Int, Tensor, TensorData};
use firelight_generation::{Autoregressive, DecodeState, GenerationError, GenerationOptions, TokenStream};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts how often each thread asks for memory, or for more of it.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system's allocator does what is asked for, and counting takes no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller promises what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller promises what `alloc_zeroed` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller promises what `realloc` asks for.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller promises what `dealloc` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How often this thread asks for memory meanwhile.
fn allocations(work: impl FnOnce()) -> usize {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

fn uncounted<R>(work: impl FnOnce() -> R) -> R {
    let before = COUNT.get();
    let result = work();
    COUNT.set(before);
    result
}

const VOCABULARY: usize = 64;

/// All steps, and the first of them, which make the memory that the others use again.
const STEPS: usize = 100;
const FIRST: usize = 4;

/// The same logits in every row, no two of which are equal.
fn logits(rows: usize) -> Tensor<2> {
    uncounted(|| {
        let values: Vec<f32> = (0..rows * VOCABULARY).map(|place| (place * 37 % VOCABULARY) as f32 / 8.0).collect();
        Tensor::from_data(TensorData::new(values, [rows, VOCABULARY]), &Device::flex())
    })
}

/// A model whose own memory does not count.
struct Constant;

struct Length(usize);

impl DecodeState for Length {
    fn len(&self) -> usize {
        self.0
    }

    fn select_rows(&mut self, _rows: &[usize]) {}
}

impl Autoregressive for Constant {
    type Prompt = Vec<Vec<u32>>;
    type State = Length;

    fn device(&self) -> Device {
        Device::flex()
    }

    fn prefill(&self, prompt: Self::Prompt) -> Result<(Tensor<2>, Length), GenerationError> {
        Ok((logits(prompt.len()), Length(prompt[0].len())))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Length) -> Tensor<2> {
        state.0 += 1;
        logits(token.dims()[0])
    }
}

/// The allocations of each step behind the first ones.
fn of_steps(rows: usize, options: &GenerationOptions) -> Vec<usize> {
    let mut stream = TokenStream::new(&Constant, vec![vec![1]; rows], options).unwrap();
    let mut next = || allocations(|| drop(stream.next().unwrap().unwrap()));
    for _ in 0..FIRST {
        next();
    }
    (FIRST..STEPS).map(|_| next()).collect()
}

/// Those of the operations that find the best token of each row and bring it to the host.
fn of_argmax(rows: usize) -> usize {
    let logits = logits(rows);
    allocations(|| {
        let best = logits.clone().argmax(1); // [B, 1]
        let chosen = logits.gather(1, best.clone()).try_into_vec_as::<f32>().unwrap();
        let tokens: Tensor<1, Int> = best.reshape([rows]);
        let ids = tokens.clone().try_into_vec_as::<u32>().unwrap();
        drop((chosen, tokens, ids));
    })
}

/// Those of the operations that bring all logits to the host and the chosen ids back.
fn of_reading(rows: usize) -> usize {
    let (logits, ids) = (logits(rows), vec![0u32; rows]);
    allocations(|| {
        let values = logits.try_into_vec_as::<f32>().unwrap();
        let tokens = Tensor::<1, Int>::from_data(TensorData::new(ids.to_vec(), [rows]), &Device::flex());
        drop((values, tokens));
    })
}

/// The loop's own are the list of tokens that a step returns and that of their scores; where tokens are drawn, the list of their ids; and for
/// each row of top-k the list of its best logits.
#[test]
fn a_step_allocates_a_few_lists_and_reuses_the_rest() {
    let drawn = GenerationOptions::new(STEPS + 1).with_temperature(1.0);
    let greedy = drawn.clone().greedy();
    let top_k = drawn.clone().with_top_k(8);
    // In a pool of one thread the model is read where the loop runs, and all is counted.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| {
        for rows in [1, 8] {
            for (options, of_device, own) in [
                (&greedy, of_argmax as fn(usize) -> usize, 2),
                (&drawn, of_reading as fn(usize) -> usize, 3),
                (&top_k, of_reading as fn(usize) -> usize, 3 + rows),
            ] {
                of_device(rows); // What is made at the first call is used again.
                let (found, of_device) = (of_steps(rows, options), of_device(rows));
                assert!(found.iter().all(|count| *count == found[0]), "{rows} rows, {options:?}: {found:?}");
                assert!(found[0] <= of_device + own, "{rows} rows, {options:?}: {} beside {of_device}", found[0]);
            }
        }
    });
}
