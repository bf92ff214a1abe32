//! Which tiles of queries and keys the kernels form, noted in tests alone.

use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The tiles of a pass, shared by all clones: a pass may run on several threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Visits(Arc<Mutex<Vec<[Range<usize>; 2]>>>);

impl Visits {
    /// Notes a tile of queries and keys.
    pub(super) fn note(&self, queries: &Range<usize>, keys: &Range<usize>) {
        self.0.lock().expect("no test panics here").push([queries.clone(), keys.clone()]);
    }

    /// The tiles since the last call.
    #[cfg_attr(not(feature = "flex"), allow(dead_code))] // The tests that ask need flex.
    pub(super) fn take(&self) -> Vec<[Range<usize>; 2]> {
        std::mem::take(&mut self.0.lock().expect("no test panics here"))
    }
}
