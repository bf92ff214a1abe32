//! How the command holds memory.

use libmimalloc_sys::{mi_option_set, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The place of `mi_option_purge_delay` in mimalloc's list of options, which the bindings leave out.
const PURGE_DELAY: mi_option_t = 15;

/// What is set aside at once. A model that is smaller needs nothing that takes time.
const PIECE: usize = 64 << 20;

/// Freed pages stay with the process. Every step allocates what the last one freed; pages that had gone back to the system
/// in between would be cleared by it anew, which took a tenth of a training's time.
///
/// Who sets `MIMALLOC_PURGE_DELAY` (in milliseconds) decides otherwise.
pub(crate) fn keep_freed_pages() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
        // SAFETY: the option exists, and any value is valid; -1 means never.
        unsafe { mi_option_set(PURGE_DELAY, -1) };
    }
}

/// Takes about this much memory and frees it, so that it lies ready when it is needed in the midst of a training. Fresh pages
/// are cleared by the system when they are first written to, and a virtual machine may have to ask its host for them.
pub(crate) fn set_aside(bytes: usize) {
    let pieces: Vec<Vec<u8>> = (0..bytes / PIECE).map(|_| vec![1; PIECE]).collect();
    std::hint::black_box(pieces);
}
