//! An allocator that counts, for tests of memory.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, which tells a function of the bytes that it gives, and of those that it takes back by a negative number. The
/// function is called on the thread that asks, and must not allocate. A program makes it its `#[global_allocator]`.
#[derive(Debug)]
pub struct CountingAllocator(pub fn(isize));

impl CountingAllocator {
    /// A refusal gives nothing, and callers such as `try_reserve` live with it.
    fn given(&self, pointer: *mut u8, layout: Layout) -> *mut u8 {
        if !pointer.is_null() {
            self.0(layout.size() as isize);
        }
        pointer
    }
}

// SAFETY: the system's allocator does what is asked for, and counting takes no memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what `alloc` asks for.
        self.given(unsafe { System.alloc(layout) }, layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what `alloc_zeroed` asks for.
        self.given(unsafe { System.alloc_zeroed(layout) }, layout)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.0(-(layout.size() as isize));
        // SAFETY: the caller promises what `dealloc` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static HELD: Cell<isize> = const { Cell::new(0) };
    }

    #[test]
    fn what_is_given_and_taken_back_is_counted() {
        let allocator = CountingAllocator(|bytes| HELD.set(HELD.get() + bytes));
        let layouts = [Layout::new::<[u64; 4]>(), Layout::new::<u8>()];
        // SAFETY: no layout is empty, and each pointer is given back with its own.
        let [first, second] = unsafe { [allocator.alloc(layouts[0]), allocator.alloc_zeroed(layouts[1])] };
        assert_eq!(HELD.get(), 33);
        // SAFETY: as above.
        unsafe { allocator.dealloc(first, layouts[0]) };
        assert_eq!(HELD.get(), 1);
        // SAFETY: as above.
        unsafe { allocator.dealloc(second, layouts[1]) };
        assert_eq!(HELD.get(), 0);
    }
}
