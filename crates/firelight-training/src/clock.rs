//! Time since a beginning, from a clock that tests can set.

use std::time::{Duration, Instant};

/// A clock.
pub(crate) struct Clock(Box<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// A clock that begins now.
    pub(crate) fn new() -> Self {
        let began = Instant::now();
        Self(Box::new(move || began.elapsed()))
    }

    /// The time since its beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        (self.0)()
    }
}

/// A clock that stands still, and the hand that sets it, in milliseconds.
#[cfg(test)]
pub(crate) fn settable() -> (Clock, std::sync::Arc<std::sync::atomic::AtomicU64>) {
    use std::sync::atomic::Ordering;
    let hand = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let shown = hand.clone();
    (Clock(Box::new(move || Duration::from_millis(shown.load(Ordering::SeqCst)))), hand)
}
