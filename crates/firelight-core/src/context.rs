//! What a layer reads beside the residual stream. It is the same for all tokens of a pass, and made once: see
//! `transformer/contexts.rs`.

use crate::document_starts::DocumentStarts;
use crate::position::{Rotation, ScoreBias};
use crate::state::{bytes_of, select};
use burn::tensor::{Bool, Device, Int, Tensor};
use firelight_kernels::{AttentionMask, AttentionOptions};

/// The inputs of a layer beside the residual stream, the same for all layers of a pass.
#[derive(Debug, Clone, Default)]
pub struct LayerContext {
    /// Mask, score bias and rotation of the self-attention, over the tokens that the layer's [`State`](crate::State) has at hand.
    pub attention: AttentionContext,
    /// The encoder's output, in decoders with cross-attention.
    pub encoder_output: Option<EncoderOutput>,
    /// `[B, T]`, true where a token of this pass is padding: neither experts nor recurrences read it.
    pub padding: Option<Tensor<2, Bool>>,
    /// `[B, T]`, the document of each token of this pass, where a row holds several and the pass names them.
    pub documents: Option<Tensor<2, Int>>,
    /// Which tokens of this pass begin a document, where a row holds several: a recurrence resets its state there. Tokens in the cache
    /// are taken into account, and padding starts no document.
    #[doc(alias = "sequence packing")]
    pub document_starts: Option<DocumentStarts>,
}

impl LayerContext {
    /// `x`, `[B, T, X]`, with `value` at every token of this pass that is padding.
    ///
    /// ```
    /// use burn::tensor::{Bool, Device, Tensor};
    /// use firelight_core::LayerContext;
    ///
    /// let device = Device::flex();
    /// let padding = Tensor::<2, Bool>::from_bool([[false, true]], &device);
    /// let context = LayerContext { padding: Some(padding), ..LayerContext::default() };
    /// let x = Tensor::<3>::from_floats([[[1.0, 2.0], [3.0, 4.0]]], &device);
    /// assert_eq!(context.fill_padding(x, 0.0).sum().into_scalar::<f32>(), 3.0);
    /// ```
    pub fn fill_padding(&self, x: Tensor<3>, value: f64) -> Tensor<3> {
        filled(x, &self.padding, value)
    }

    /// `x`, `[B, T, X]`, with `value` at every token of this pass that begins a document: what a token keeps of those before
    /// it, for example, with 0.
    ///
    /// ```
    /// use burn::tensor::{Bool, Device, Tensor};
    /// use firelight_core::LayerContext;
    ///
    /// let device = Device::flex();
    /// let starts = Tensor::<2, Bool>::from_bool([[true, false]], &device);
    /// let context = LayerContext { document_starts: Some(starts.into()), ..LayerContext::default() };
    /// let x = Tensor::<3>::from_floats([[[1.0, 2.0], [3.0, 4.0]]], &device);
    /// assert_eq!(context.fill_document_starts(x, 0.0).sum().into_scalar::<f32>(), 7.0);
    /// ```
    pub fn fill_document_starts(&self, x: Tensor<3>, value: f64) -> Tensor<3> {
        filled(x, &self.document_starts.as_ref().map(DocumentStarts::tensor), value)
    }
}

/// `x`, `[B, T, X]`, with other numbers where `flags`, `[B, T]`, are true.
pub(crate) fn filled(x: Tensor<3>, flags: &Option<Tensor<2, Bool>>, value: f64) -> Tensor<3> {
    match flags {
        Some(flags) => {
            let shape = x.dims();
            x.mask_fill(flags.clone().unsqueeze_dim::<3>(2).expand(shape), value)
        }
        None => x,
    }
}

/// Mask, score bias and rotation of one pass. The default is plain attention to everything.
#[derive(Debug, Clone, Default)]
pub struct AttentionContext {
    /// The attention mask.
    pub mask: AttentionMask,
    /// Added to the scores.
    pub bias: Option<ScoreBias>,
    /// Turns queries and keys by their positions.
    pub rotation: Option<Rotation>,
}

impl AttentionContext {
    /// Mask and position bias as the kernels take them, for queries `[B, H, Q, E]` whose scores are multiplied by `scale`.
    pub(crate) fn options(&self, query: &Tensor<4>, scale: f64) -> AttentionOptions {
        let options = AttentionOptions::default().with_mask(self.mask.clone());
        match &self.bias {
            Some(bias) => bias.apply(options, query, scale),
            None => options,
        }
    }

    /// A context with a mask alone.
    pub fn masked(mask: AttentionMask) -> Self {
        Self { mask, ..Self::default() }
    }
}

/// The output of an encoder, as a decoder's cross-attention reads it.
#[doc(alias = "memory")]
#[doc(alias = "encoder_hidden_states")]
#[derive(Debug, Clone)]
pub struct EncoderOutput {
    /// `[B, S, D]`.
    pub hidden: Tensor<3>,
    /// `[B, S]`, true where the source is padding.
    pub padding: Option<Tensor<2, Bool>>,
}

impl EncoderOutput {
    /// An output `[B, S, D]` without padding.
    pub fn new(hidden: Tensor<3>) -> Self {
        Self { hidden, padding: None }
    }

    /// Sets which source tokens are padding, `[B, S]`.
    pub fn with_padding(mut self, padding: Option<Tensor<2, Bool>>) -> Self {
        self.padding = padding;
        self
    }

    /// Puts the rows of `other` below its own, for a [`Cache::join`](crate::Cache::join) of the decoder. The shorter source is padded at
    /// its end.
    pub fn join(self, other: Self) -> Self {
        let [rows, more] = [&self, &other].map(|output| [output.hidden.dims()[0], output.hidden.dims()[1]]);
        let padding = joined_padding([(self.padding, rows), (other.padding, more)], &self.hidden.device());
        Self { hidden: below(self.hidden, other.hidden), padding }
    }

    /// It must fit the embeddings `x`, `[B, T, D]`, that read it.
    pub(crate) fn check(&self, x: [usize; 3]) {
        let shape @ [batch, source_len, width] = self.hidden.dims();
        assert!(
            [batch, width] == [x[0], x[2]],
            "the encoder\'s output {shape:?} does not fit the embeddings {x:?} in batch or width"
        );
        let padding = self.padding.as_ref().map_or([batch, source_len], Tensor::dims);
        assert!(padding == [batch, source_len], "padding {padding:?} is not [B, S] of the encoder's output {shape:?}");
    }
}

/// The keys and values of an [`EncoderOutput`] in a cross-attention. A pass with a cache computes them once.
#[derive(Debug, Clone)]
pub struct CrossKeyValues {
    /// `[B, G, S, E]`.
    pub key: Tensor<4>,
    /// `[B, G, S, W]`.
    pub value: Tensor<4>,
    /// `[B, S]`, true where the source is padding.
    pub padding: Option<Tensor<2, Bool>>,
}

impl CrossKeyValues {
    pub(crate) fn select_rows(self, rows: &Tensor<1, Int>) -> Self {
        // Through integers: on flex a selected boolean tensor has another element type, and cannot be concatenated.
        let padding = self.padding.map(|padding| padding.int().select(0, rows.clone()).bool());
        Self { key: select(self.key, rows), value: select(self.value, rows), padding }
    }

    /// Puts the rows of `other` below its own, the shorter source padded at its end.
    pub(crate) fn join(self, other: Self) -> Self {
        let [rows, more] = [&self, &other].map(|cross| [cross.key.dims()[0], cross.key.dims()[2]]);
        let padding = joined_padding([(self.padding, rows), (other.padding, more)], &self.key.device());
        Self { key: below(self.key, other.key), value: below(self.value, other.value), padding }
    }

    /// Memory that keys and values take.
    pub(crate) fn bytes(&self) -> usize {
        bytes_of(&self.key) + bytes_of(&self.value)
    }
}

/// Which tokens of two batches of sources, each of some rows and a length, are padding: `[B + B', S]`, if any are.
fn joined_padding(sources: [(Option<Tensor<2, Bool>>, [usize; 2]); 2], device: &Device) -> Option<Tensor<2, Bool>> {
    let longest = sources[0].1[1].max(sources[1].1[1]);
    let none_is_padded = sources.iter().all(|(padding, [_, length])| padding.is_none() && *length == longest);
    let flags = |shape: [usize; 2], padded: bool| Tensor::<2, Int>::full(shape, i64::from(padded), device);
    let of_source = |(padding, [rows, length]): (Option<Tensor<2, Bool>>, [usize; 2])| {
        let own = padding.map_or_else(|| flags([rows, length], false), |padding| padding.int());
        Tensor::cat(vec![own, flags([rows, longest - length], true)], 1)
    };
    (!none_is_padded).then(|| Tensor::cat(sources.map(of_source).to_vec(), 0).bool())
}

/// The rows of `other` below those of `x`, `[B, ..., S, X]`, the shorter with zeros at its end.
fn below<const D: usize>(x: Tensor<D>, other: Tensor<D>) -> Tensor<D> {
    let tokens = D - 2;
    let longest = x.dims()[tokens].max(other.dims()[tokens]);
    let lengthened = |x: Tensor<D>| {
        let mut shape = x.dims();
        shape[tokens] = longest - shape[tokens];
        let zeros = Tensor::zeros(shape, (&x.device(), x.dtype()));
        if shape[tokens] == 0 { x } else { Tensor::cat(vec![x, zeros], tokens) }
    };
    Tensor::cat(vec![lengthened(x), lengthened(other)], 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(rows: usize, numbers: &[f32]) -> EncoderOutput {
        let hidden = Tensor::<1>::from_floats(numbers, &Device::default());
        EncoderOutput::new(hidden.reshape([rows, numbers.len() / rows, 1]))
    }

    fn flags(padding: Option<Tensor<2, Bool>>) -> Option<Vec<bool>> {
        padding.map(|padding| padding.into_data().iter().collect())
    }

    #[test]
    fn the_shorter_of_joined_memories_is_padded_at_its_end() {
        let padding = Tensor::<2, Bool>::from_bool([[false, true]], &Device::default());
        let short = || output(1, &[1.0, 2.0]).with_padding(Some(padding.clone()));
        let long = || output(2, &[3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let numbers = |output: &EncoderOutput| output.hidden.clone().try_into_vec_as::<f32>().expect("a host copy");
        let joined = short().join(long());
        assert_eq!(numbers(&joined), [1.0, 2.0, 0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let expected = [false, true, true, false, false, false, false, false, false];
        assert_eq!(flags(joined.padding), Some(expected.to_vec()));
        let joined = long().join(short());
        assert_eq!(numbers(&joined), [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 0.0]);
        assert_eq!(flags(joined.padding), Some([&expected[3..], &expected[..3]].concat()));
        assert_eq!(flags(long().join(long()).padding), None);
    }
}
