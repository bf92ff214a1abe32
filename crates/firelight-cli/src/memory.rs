//! How the command holds memory.

use libmimalloc_sys::{mi_option_set, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The place of `mi_option_purge_delay` in mimalloc's list of options, which the bindings leave out.
const PURGE_DELAY: mi_option_t = 15;

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
