//! The seeds that a part of a model drew, so that it drops the same numbers when it runs again.

use burn::tensor::Device;
use std::cell::RefCell;

/// What the operations of this thread do with their seeds.
enum Mode {
    Record(Vec<u64>),
    Repeat {
        seeds: std::vec::IntoIter<u64>,
        /// Whether the generator of the device was set to one of them.
        moved: bool,
    },
}

thread_local! {
    /// One for each part around an operation: parts may hold parts.
    static MODES: RefCell<Vec<Mode>> = const { RefCell::new(Vec::new()) };
}

/// The seeds of one run, in order.
pub(super) struct Seeds(Vec<u64>);

impl Seeds {
    /// Runs `work` and notes its seeds.
    pub(super) fn of<R>(work: impl FnOnce() -> R) -> (R, Self) {
        let within = Within::enter(Mode::Record(Vec::new()));
        let result = work();
        match within.leave() {
            Mode::Record(seeds) => (result, Self(seeds)),
            Mode::Repeat { .. } => unreachable!("a mode ends where it began"),
        }
    }

    /// Runs `work` with the same seeds. If the generator of the device was set to them, it goes on from another place.
    pub(super) fn repeat<R>(self, device: &Device, work: impl FnOnce() -> R) -> R {
        let last = self.0.last().copied().unwrap_or_default();
        let within = Within::enter(Mode::Repeat { seeds: self.0.into_iter(), moved: false });
        let result = work();
        if let Mode::Repeat { moved: true, .. } = within.leave() {
            device.seed(last.wrapping_add(1));
        }
        result
    }
}

/// Ends the mode that it began, also if the work panics.
struct Within;

impl Within {
    fn enter(mode: Mode) -> Self {
        MODES.with_borrow_mut(|modes| modes.push(mode));
        Self
    }

    fn leave(self) -> Mode {
        std::mem::forget(self);
        MODES.with_borrow_mut(Vec::pop).expect("a mode that was entered")
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        MODES.with_borrow_mut(Vec::pop);
    }
}

/// The seed that comes next in a run that is repeated; elsewhere the one that is drawn now.
pub(crate) fn next(draw: impl FnOnce() -> u64) -> u64 {
    let repeated = MODES.with_borrow_mut(|modes| {
        modes.iter_mut().rev().find_map(|mode| match mode {
            Mode::Repeat { seeds, .. } => Some(seeds.next().expect("a part draws as often when it runs again")),
            Mode::Record(_) => None,
        })
    });
    let seed = repeated.unwrap_or_else(draw);
    MODES.with_borrow_mut(|modes| {
        for mode in modes.iter_mut().rev() {
            let Mode::Record(seeds) = mode else { break };
            seeds.push(seed);
        }
    });
    seed
}

/// Before an operation that draws from the generator of the device: sets it so that the operation can draw the same again.
pub(crate) fn before_drawing(device: &Device) {
    if MODES.with_borrow(Vec::is_empty) {
        return;
    }
    device.seed(crate::dropout::seed(device));
    MODES.with_borrow_mut(|modes| {
        for mode in modes {
            if let Mode::Repeat { moved, .. } = mode {
                *moved = true;
            }
        }
    });
}

#[cfg(test)]
pub(crate) fn with_seeds<R>(seeds: Vec<u64>, work: impl FnOnce() -> R) -> R {
    Seeds(seeds).repeat(&Device::default(), work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_come_again_in_order_and_others_are_drawn_afterwards() {
        let mut drawn = 0;
        let mut draw = || {
            drawn += 1;
            drawn
        };
        let (first, seeds) = Seeds::of(|| [next(&mut draw), next(&mut draw)]);
        assert_eq!(first, [1, 2]);
        assert_eq!(next(&mut draw), 3);
        // A part within a part notes what the outer one repeats.
        let (second, inner) = seeds.repeat(&Device::default(), || Seeds::of(|| [next(&mut draw), next(&mut draw)]));
        assert_eq!(second, [1, 2]);
        assert_eq!(inner.0, [1, 2]);
        assert_eq!(next(&mut draw), 4);
    }
}
