//! What a token mixer remembers of a text between two passes: the contract that every kind of memory keeps, so that a
//! [`Cache`](crate::Cache) can hold any. A kind is defined beside the mixer that reads it: [`KeyValues`](crate::KeyValues) and
//! [`RecurrentState`] are ours.

mod cache_type;
mod compression;
mod recurrent;

pub use cache_type::CacheType;
pub use compression::Compression;
pub use recurrent::RecurrentState;

use burn::tensor::kind::Basic;
use burn::tensor::{Int, Tensor};
use std::any::{Any, type_name};
use std::fmt::Debug;
use std::ops::Range;

/// Bytes of a number in single precision.
pub(crate) const FLOAT: usize = 4;

/// The state of one token mixer, for all rows of a batch.
///
/// One of your own, of the last three tokens, whatever the mixer makes of them:
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use firelight_core::State;
///
/// #[derive(Debug, Clone, Default)]
/// struct LastThree {
///     tokens: Option<Tensor<3>>, // [B, 3, D], zeros before the first token
///     len: usize,
/// }
///
/// impl LastThree {
///     /// The tokens of a pass, `[B, T, D]`, with the three before them: `[B, 3 + T, D]`.
///     fn extend(&mut self, x: Tensor<3>) -> Tensor<3> {
///         let [batch, length, width] = x.dims();
///         let before = self.tokens.take().unwrap_or_else(|| Tensor::zeros([batch, 3, width], &x.device()));
///         let all = Tensor::cat(vec![before, x], 1);
///         (self.tokens, self.len) = (Some(all.clone().narrow(1, length, 3)), self.len + length);
///         all
///     }
/// }
///
/// impl State for LastThree {
///     fn len(&self) -> usize {
///         self.len
///     }
///     fn truncate(&mut self, _: usize) {
///         *self = Self::default(); // It can go back to the beginning alone.
///     }
///     fn select_rows(&mut self, rows: &Tensor<1, Int>) {
///         self.tokens = self.tokens.take().map(|tokens| tokens.select(0, rows.clone()));
///     }
///     fn join(&mut self, other: Box<dyn State>) {
///         let other: Self = other.expect();
///         let both = [self.tokens.take(), other.tokens].into_iter().flatten();
///         self.tokens = both.reduce(|above, below| Tensor::cat(vec![above, below], 0));
///         self.len = self.len.max(other.len);
///     }
///     fn bytes(&self) -> usize {
///         self.tokens.as_ref().map_or(0, |tokens| 4 * tokens.shape().num_elements())
///     }
///     fn boxed(&self) -> Box<dyn State> {
///         Box::new(self.clone())
///     }
/// }
///
/// let x = |start: f32| Tensor::<3>::from_floats([[[start], [start + 1.0]]], &burn::tensor::Device::flex());
/// let mut state = LastThree::default();
/// state.extend(x(1.0));
/// let all = state.extend(x(3.0)).try_to_vec_as::<f32>().expect("a host copy");
/// assert_eq!(all, [0.0, 1.0, 2.0, 3.0, 4.0]);
/// assert_eq!((state.len(), state.bytes(), state.can_truncate(3), state.can_truncate(0)), (4, 12, false, true));
/// ```
pub trait State: Debug + Any + Send {
    /// Number of tokens that were read.
    fn len(&self) -> usize;

    /// Whether nothing was read yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The positions of the keys that the mixer sees in a pass of `length` new tokens: its mask is over these. Where old tokens are
    /// compressed, each of their means takes one position, directly before the tokens behind them. Default: the new ones, as a recurrence
    /// has them.
    fn keys(&self, length: usize) -> Range<usize> {
        self.len()..self.len() + length
    }

    /// Whether [`truncate`](Self::truncate) can go back to `len` tokens. Every state can go back to 0. Default: nothing else.
    fn can_truncate(&self, len: usize) -> bool {
        len == 0 || len >= self.len()
    }

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

    /// Memory of one row that has read as many tokens as the state has room for, in single precision, where it is known beforehand: it is
    /// what [`Cost::cache_bytes`](crate::Cost::cache_bytes) counts of a mixer or a layer of your own. Default: it is not known.
    fn full_bytes(&self) -> Option<usize> {
        None
    }

    /// Compresses old tokens from now on, if the state supports it; returns whether it does. Default: it does not, since a state of the
    /// last tokens or of sums is bounded anyway.
    fn compress(&mut self, compression: Compression) -> bool {
        let _ = compression;
        false
    }

    /// Stores keys and values in this type, if the state supports it; returns whether it does. It is called before anything is read.
    /// Default: it does not, as it has no keys and values.
    fn store_as(&mut self, cache_type: CacheType) -> bool {
        let _ = cache_type;
        false
    }

    /// Whether it can take the place of a state that a layer `needs`: one of the same kind, that keeps as much. Default: any of its
    /// type.
    fn fits(&self, needs: &dyn State) -> bool {
        self.type_id() == needs.type_id()
    }

    /// The sizes that it was made for, by their names in a configuration: `[("n_kv_heads", 2), ("d_head", 16)]`. A stack refuses the
    /// state of a layer of other sizes. Default: none, which fits any.
    fn sizes(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    /// What it keeps of a text, in the words of an error: `the last 5 tokens`. Default: the name of its type.
    fn keeps(&self) -> String {
        format!("what its {} is made of", short_name::<Self>())
    }

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

    /// The state as one of this kind, if it is.
    pub fn downcast_ref<S: State>(&self) -> Option<&S> {
        (self as &dyn Any).downcast_ref()
    }

    /// The state as one of this kind.
    ///
    /// # Panics
    /// If it is of another kind: the cache belongs to another stack.
    pub fn expect_mut<S: State>(&mut self) -> &mut S {
        let keeps = self.keeps();
        let found = (self as &mut dyn Any).downcast_mut();
        found.unwrap_or_else(|| panic!("{}", of_another_stack(&keeps, short_name::<S>())))
    }

    /// Takes the state out of its box as one of this kind, such as the other state in [`State::join`].
    ///
    /// # Panics
    /// If it is of another kind: the cache belongs to another stack.
    pub fn expect<S: State>(self: Box<Self>) -> S {
        let keeps = self.keeps();
        let found = (self as Box<dyn Any>).downcast();
        *found.unwrap_or_else(|_| panic!("{}", of_another_stack(&keeps, short_name::<S>())))
    }
}

fn of_another_stack(keeps: &str, wanted: &str) -> String {
    format!("a state that keeps {keeps} is no {wanted}: the cache was made for another stack")
}

/// The first size in which two states differ, as each has it: `n_kv_heads = 2`. One that names no sizes differs in none.
pub(crate) fn differing_sizes(one: &dyn State, other: &dyn State) -> Option<[String; 2]> {
    let (one, other) = (one.sizes(), other.sizes());
    let differing = one.into_iter().zip(other).find(|(one, other)| one != other)?;
    Some(<[_; 2]>::from(differing).map(|(name, size)| format!("{name} = {size}")))
}

/// The name of a type without its path.
fn short_name<T: ?Sized>() -> &'static str {
    type_name::<T>().rsplit("::").next().unwrap_or_default()
}

/// Bytes of a tensor of these sizes in single precision, whatever they are called.
pub(crate) fn bytes_of_sizes(sizes: &[(&'static str, usize)]) -> usize {
    sizes.iter().fold(FLOAT, |bytes, (_, size)| bytes.saturating_mul(*size))
}

/// Bytes of a tensor.
pub(crate) fn bytes_of<const D: usize, K: Basic>(tensor: &Tensor<D, K>) -> usize {
    tensor.shape().num_elements() * tensor.dtype().size()
}

/// A row is one piece of memory: over two dimensions flex copies rows on all cores, over four on one.
pub(crate) fn select<K: Basic>(buffer: Tensor<4, K>, rows: &Tensor<1, Int>) -> Tensor<4, K> {
    let [batch, groups, length, width] = buffer.dims();
    let chosen = buffer.reshape([batch, groups * length * width]).select(0, rows.clone());
    chosen.reshape([rows.dims()[0], groups, length, width])
}
