//! What a recurrence carries from token to token.

use super::{State, bytes_of, bytes_of_sizes};
use burn::tensor::{Int, Tensor};

/// The state of a recurrence: one tensor of `D` dimensions, the batch first, whose size does not depend on the length of the text.
/// Linear attention keeps its sums in one.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{RecurrentState, State};
///
/// let mut state = RecurrentState::<3>::new(100); // for 100 tokens
/// *state.extend(2) = Some(Tensor::zeros([1, 1, 8], &Device::flex())); // what two tokens have left
/// assert_eq!((state.len(), state.bytes()), (2, 8 * 4));
/// ```
#[derive(Debug, Clone)]
pub struct RecurrentState<const D: usize> {
    carried: Option<Tensor<D>>,
    sizes: Vec<(&'static str, usize)>,
    len: usize,
    capacity: usize,
}

impl<const D: usize> RecurrentState<D> {
    /// Nothing yet, for up to `capacity` tokens.
    pub fn new(capacity: usize) -> Self {
        Self { carried: None, sizes: Vec::new(), len: 0, capacity }
    }

    /// Names the sizes of the tensor behind its batch, by which a stack tells a cache that was made for another, and its memory is counted
    /// before there is any.
    pub fn with_sizes(mut self, sizes: impl IntoIterator<Item = (&'static str, usize)>) -> Self {
        self.sizes = sizes.into_iter().collect();
        self
    }

    /// Counts the tokens of a pass and returns what those before have left, to be brought up to date; `None` where there are none.
    ///
    /// # Panics
    /// If they do not fit into the capacity.
    pub fn extend(&mut self, length: usize) -> &mut Option<Tensor<D>> {
        let end = self.len + length;
        assert!(end <= self.capacity, "a cache of {} tokens cannot hold {end}", self.capacity);
        self.len = end;
        &mut self.carried
    }
}

impl<const D: usize> State for RecurrentState<D> {
    fn len(&self) -> usize {
        self.len
    }

    fn truncate(&mut self, len: usize) {
        self.len = len;
        if len == 0 {
            self.carried = None;
        }
    }

    fn select_rows(&mut self, rows: &Tensor<1, Int>) {
        self.carried = self.carried.take().map(|carried| carried.select(0, rows.clone()));
    }

    fn join(&mut self, other: Box<dyn State>) {
        let other: Self = other.expect();
        self.carried = match (self.carried.take(), other.carried) {
            (Some(carried), Some(below)) => Some(Tensor::cat(vec![carried, below], 0)),
            (carried, below) => carried.or(below),
        };
        (self.len, self.capacity) = (self.len.max(other.len), self.capacity.max(other.capacity));
    }

    fn bytes(&self) -> usize {
        self.carried.as_ref().map_or(0, bytes_of)
    }

    fn full_bytes(&self) -> Option<usize> {
        (!self.sizes.is_empty()).then(|| bytes_of_sizes(&self.sizes))
    }

    fn sizes(&self) -> Vec<(&'static str, usize)> {
        self.sizes.clone()
    }

    fn keeps(&self) -> String {
        "sums of all tokens".into()
    }

    fn boxed(&self) -> Box<dyn State> {
        Box::new(self.clone())
    }
}
