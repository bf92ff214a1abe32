//! What a token mixer remembers of a text between two passes: the contract that every kind of memory keeps, so that a
//! [`Cache`](crate::Cache) can hold any. A kind is defined beside the mixer that reads it: [`KeyValues`](crate::KeyValues) and
//! [`LinearState`](crate::LinearState) are ours.

use burn::tensor::{Int, Tensor};
use std::any::{Any, type_name};
use std::fmt::Debug;
use std::ops::Range;

/// The state of one token mixer, for all rows of a batch.
pub trait State: Debug + Any + Send {
    /// Number of tokens that were read.
    fn len(&self) -> usize;

    /// Whether nothing was read yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tokens whose keys the mixer has at hand in a pass of `length` new ones, by their position in the row.
    fn keys(&self, length: usize) -> Range<usize>;

    /// Whether [`truncate`](Self::truncate) can go back to `len` tokens. Every state can go back to 0.
    fn can_truncate(&self, len: usize) -> bool;

    /// Forgets the tokens from `len` on. It is called where [`can_truncate`](Self::can_truncate) has agreed.
    fn truncate(&mut self, len: usize);

    /// Keeps the batch rows `rows`, in their order and as often as they are named: `[B']`.
    fn select_rows(&mut self, rows: &Tensor<1, Int>);

    /// Puts the rows of `other` below its own. The shorter of the two is padded on the left, so that all rows end together; what
    /// stands in the padding is never read.
    ///
    /// # Panics
    /// If `other` is a state of another kind or size.
    fn join(&mut self, other: Box<dyn State>);

    /// Memory that its tensors take.
    fn bytes(&self) -> usize;

    /// What it keeps of a text, in the words of an error: `the last 5 tokens`.
    fn keeps(&self) -> String;

    /// A copy. Tensors are shared until one of both writes.
    fn boxed(&self) -> Box<dyn State>;
}

impl Clone for Box<dyn State> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl dyn State {
    /// Whether it is a state of this kind.
    pub fn is<S: State>(&self) -> bool {
        (self as &dyn Any).is::<S>()
    }

    /// The state as one of this kind.
    ///
    /// # Panics
    /// If it is of another kind: the cache belongs to another stack.
    pub fn expect_mut<S: State>(&mut self) -> &mut S {
        let keeps = self.keeps();
        let found = (self as &mut dyn Any).downcast_mut();
        found.unwrap_or_else(|| panic!("{}", of_another_stack(&keeps, type_name::<S>())))
    }
}

/// The state, owned, as one of a kind.
///
/// # Panics
/// If it is of another kind.
pub(crate) fn expect<S: State>(state: Box<dyn State>) -> S {
    let keeps = state.keeps();
    let found = (state as Box<dyn Any>).downcast();
    *found.unwrap_or_else(|_| panic!("{}", of_another_stack(&keeps, type_name::<S>())))
}

fn of_another_stack(keeps: &str, wanted: &str) -> String {
    let wanted = wanted.rsplit("::").next().unwrap_or(wanted);
    format!("a state that keeps {keeps} is no {wanted}: the cache was made for another stack")
}

/// Bytes of a tensor.
pub(crate) fn bytes_of<const D: usize>(tensor: &Tensor<D>) -> usize {
    tensor.shape().num_elements() * tensor.dtype().size()
}

/// A row is one piece of memory: over two dimensions flex copies rows on all cores, over four on one.
pub(crate) fn select(buffer: Tensor<4>, rows: &Tensor<1, Int>) -> Tensor<4> {
    let [batch, groups, length, width] = buffer.dims();
    let chosen = buffer.reshape([batch, groups * length * width]).select(0, rows.clone());
    chosen.reshape([rows.dims()[0], groups, length, width])
}
