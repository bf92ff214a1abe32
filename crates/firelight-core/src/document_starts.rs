//! Where documents begin in a pass, for layers that ask.

use burn::tensor::{Bool, Int, Tensor};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Which tokens of a pass begin a document, `[B, T]`. Attention reads it from its mask, so it is computed when a layer first asks for it;
/// copies share the result.
///
/// ```
/// use burn::tensor::{Bool, Device, Tensor};
/// use firelight_core::DocumentStarts;
///
/// let starts = DocumentStarts::from(Tensor::<2, Bool>::from_bool([[true, false]], &Device::flex()));
/// assert_eq!(starts.tensor().dims(), [1, 2]);
/// ```
#[derive(Debug, Clone)]
pub struct DocumentStarts(Arc<Mutex<Starts>>);

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a pass has one")]
enum Starts {
    /// Not asked for: the documents and the padding of all visible tokens, `[B, K]`, and which of them are of the pass.
    Unread(Tensor<2, Int>, Option<Tensor<2, Bool>>, Range<usize>),
    Known(Tensor<2, Bool>),
}

impl DocumentStarts {
    /// Of a pass of `tokens` that sees the documents and the padding of all tokens up to them, `[B, K]`.
    pub(crate) fn of(documents: Tensor<2, Int>, padding: Option<Tensor<2, Bool>>, tokens: Range<usize>) -> Self {
        Self(Arc::new(Mutex::new(Starts::Unread(documents, padding, tokens))))
    }

    /// `[B, T]`, true where a token of the pass begins a document: the last one before it that is no padding is of another, or there
    /// is none. Padding begins none.
    pub fn tensor(&self) -> Tensor<2, Bool> {
        let mut starts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match &*starts {
            Starts::Known(known) => return known.clone(),
            Starts::Unread(documents, padding, tokens) => begun(documents, padding.as_ref(), tokens),
        };
        *starts = Starts::Known(known.clone());
        known
    }

    #[cfg(test)]
    pub(crate) fn is_computed(&self) -> bool {
        matches!(&*self.0.lock().unwrap_or_else(PoisonError::into_inner), Starts::Known(_))
    }
}

/// `[B, T]`, as they are.
impl From<Tensor<2, Bool>> for DocumentStarts {
    fn from(starts: Tensor<2, Bool>) -> Self {
        Self(Arc::new(Mutex::new(Starts::Known(starts))))
    }
}

fn begun(documents: &Tensor<2, Int>, padding: Option<&Tensor<2, Bool>>, tokens: &Range<usize>) -> Tensor<2, Bool> {
    let ([batch, keys], device) = (documents.dims(), documents.device());
    // Counted from 1, so that 0 is no token.
    let places = Tensor::<1, Int>::arange(1..keys as i64 + 1, &device).unsqueeze::<2>().expand([batch, keys]);
    let places = match padding {
        Some(padding) => places.mask_fill(padding.clone(), 0),
        None => places,
    };
    let first = Tensor::<2, Int>::zeros([batch, 1], &device);
    let before = Tensor::cat(vec![first, places.clone().cummax(1)], 1).narrow(1, 0, keys); // [B, K]
    let others = documents.clone().gather(1, (before.clone() - 1).clamp_min(0)).not_equal(documents.clone());
    let starts = others.bool_or(before.equal_scalar(0)).bool_and(places.not_equal_scalar(0));
    starts.narrow(1, tokens.start, tokens.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn unread<const K: usize>(documents: [i64; K], padding: Option<[bool; K]>, tokens: Range<usize>) -> DocumentStarts {
        let device = Device::default();
        let padding = padding.map(|padding| Tensor::<1, Bool>::from_bool(padding, &device).unsqueeze());
        DocumentStarts::of(Tensor::<1, Int>::from_ints(documents, &device).unsqueeze(), padding, tokens)
    }

    fn numbers(starts: &DocumentStarts) -> Vec<bool> {
        starts.tensor().into_data().iter().collect()
    }

    #[test]
    fn a_document_begins_behind_another_whatever_padding_stands_between() {
        fn starts<const K: usize>(documents: [i64; K], padding: Option<[bool; K]>, tokens: Range<usize>) -> Vec<bool> {
            numbers(&unread(documents, padding, tokens))
        }
        assert_eq!(starts([7, 7, 3, 3, 7], None, 0..5), [true, false, true, false, true]);
        let padding = Some([true, false, false, true, false, false, true]);
        let (no, yes) = (false, true);
        assert_eq!(starts([9, 4, 4, 9, 4, 5, 6], padding, 0..7), [no, yes, no, no, no, yes, no]);
        assert_eq!(starts([9, 4, 4, 9, 4, 5, 6], padding, 4..7), [no, yes, no]);
    }

    #[test]
    fn copies_compute_it_once_and_when_one_is_asked() {
        let starts = unread([7, 7, 3], None, 0..3);
        let copy = starts.clone();
        assert!(!starts.is_computed());
        assert_eq!(numbers(&copy), [true, false, true]);
        assert!(starts.is_computed());
        assert_eq!(numbers(&starts), [true, false, true]);
    }
}
