//! Which windows a sequence that is longer than a model's context is read in: they overlap, and every token is new in exactly one.
//!
//! Source: Hugging Face, Perplexity of fixed-length models (<https://huggingface.co/docs/transformers/perplexity>), whose windows begin
//! every `stride` tokens.

use std::ops::Range;

/// A stretch of a sequence that is read at once, and which of its tokens no window before it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlappingWindow {
    /// Its first token.
    pub begin: usize,
    /// Its first token that is new.
    pub first_new: usize,
    /// The place behind its last token.
    pub end: usize,
}

impl OverlappingWindow {
    /// All of its tokens.
    pub fn tokens(&self) -> Range<usize> {
        self.begin..self.end
    }

    /// Those that no window before it has; there is at least one.
    pub fn new_tokens(&self) -> Range<usize> {
        self.first_new..self.end
    }
}

/// The windows of at most `size` tokens that begin every `stride` tokens of a sequence of `len`, until one reaches its end. Tokens before
/// `first` are read and new in none; a window without a new token is left out.
///
/// ```
/// use firelight_data::overlapping_windows;
///
/// let windows = overlapping_windows(9, 0, 4, 3);
/// assert_eq!(windows.iter().map(|window| window.tokens()).collect::<Vec<_>>(), [0..4, 3..7, 6..9]);
/// assert_eq!(windows.iter().map(|window| window.new_tokens()).collect::<Vec<_>>(), [0..4, 4..7, 7..9]);
/// ```
///
/// # Panics
/// If `stride` is not from 1 to `size`: then a token would be in no window.
pub fn overlapping_windows(len: usize, first: usize, size: usize, stride: usize) -> Vec<OverlappingWindow> {
    assert!((1..=size).contains(&stride), "stride = {stride} must be from 1 to the size of a window, {size}");
    let (mut windows, mut first_new) = (Vec::new(), first);
    for begin in (0..).step_by(stride) {
        let end = len.min(begin + size);
        if first_new < end {
            windows.push(OverlappingWindow { begin, first_new, end });
            first_new = end;
        }
        if end == len {
            break;
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn windows_by_hand() {
        let spans = |len, first, size, stride| {
            let windows = overlapping_windows(len, first, size, stride).into_iter();
            windows.map(|window| (window.begin, window.first_new, window.end)).collect::<Vec<_>>()
        };
        assert_eq!(spans(10, 1, 4, 2), [(0, 1, 4), (2, 4, 6), (4, 6, 8), (6, 8, 10)]);
        assert_eq!(spans(9, 1, 4, 3), [(0, 1, 4), (3, 4, 7), (6, 7, 9)]);
        assert_eq!(spans(4, 1, 4, 2), [(0, 1, 4)]);
        assert_eq!(spans(2, 1, 4, 1), [(0, 1, 2)]);
        assert_eq!(spans(7, 5, 4, 2), [(2, 5, 6), (4, 6, 7)], "as many tokens in front as the context has");
        assert_eq!(spans(9, 0, 4, 4), [(0, 0, 4), (4, 4, 8), (8, 8, 9)], "windows side by side");
        assert!(spans(0, 0, 4, 2).is_empty());
    }

    #[test]
    #[should_panic(expected = "stride = 5 must be from 1")]
    fn no_token_is_passed_over() {
        let _ = overlapping_windows(9, 0, 4, 5);
    }

    proptest! {
        #[test]
        fn every_token_is_new_in_exactly_one_window(len in 0_usize..60, size in 1_usize..12, stride in 1_usize..12) {
            let windows = overlapping_windows(len, 0, size, stride.min(size));
            let new: Vec<usize> = windows.iter().flat_map(OverlappingWindow::new_tokens).collect();
            prop_assert_eq!(new, (0..len).collect::<Vec<_>>());
            for window in &windows {
                prop_assert!(window.tokens().len() <= size && window.begin <= window.first_new, "{:?}", window);
                prop_assert!(window.begin % stride.min(size) == 0 && !window.new_tokens().is_empty(), "{:?}", window);
            }
        }
    }
}
