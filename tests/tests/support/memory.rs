//! The bytes that a thread holds.

use std::cell::Cell;

use firelight_tests::CountingAllocator;

thread_local! {
    /// The bytes that this thread holds, and the most that it has held.
    static HELD: Cell<[isize; 2]> = const { Cell::new([0; 2]) };
}

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator(count);

/// Each thread counts what it holds itself.
fn count(bytes: isize) {
    let [held, most] = HELD.get();
    HELD.set([held + bytes, most.max(held + bytes)]);
}

/// What `work` gives, and the most bytes that this thread held meanwhile, beyond those that it held before.
pub(crate) fn most_held<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let [before, _] = HELD.get();
    HELD.set([before; 2]);
    let found = work();
    (found, HELD.get()[1] - before)
}
