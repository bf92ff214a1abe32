//! The optional side channels of one forward pass. A new channel is a field here and changes no signature.

use crate::cache::{Cache, LayerCache};
use burn::tensor::{Bool, Int, Tensor};

/// What a pass reads and writes beside its input and output. The default is a plain pass, as in training.
#[derive(Debug, Default)]
pub struct Pass<'a> {
    cache: Option<&'a mut Cache>,
}

impl<'a> Pass<'a> {
    /// A pass that continues where `cache` ends and extends it.
    pub fn cached(cache: &'a mut Cache) -> Self {
        Self { cache: Some(cache) }
    }

    /// The number of tokens before this pass.
    pub fn start(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.len())
    }

    /// Which keys of this pass are padding, those of the cache included: `[B, T] -> [B, K]`.
    pub(crate) fn padding(&mut self, padding: Option<Tensor<2, Bool>>, shape: [usize; 2]) -> Option<Tensor<2, Bool>> {
        match &mut self.cache {
            Some(cache) => cache.extend_padding(padding, shape),
            None => padding,
        }
    }

    /// Of which document the keys of this pass are, those of the cache included: `[B, T] -> [B, K]`.
    pub(crate) fn documents(&mut self, documents: Option<Tensor<2, Int>>, shape: [usize; 2]) -> Option<Tensor<2, Int>> {
        match &mut self.cache {
            Some(cache) => cache.extend_documents(documents, shape),
            None => documents,
        }
    }

    /// The channels of layer `index`.
    pub fn layer(&mut self, index: usize) -> LayerPass<'_> {
        LayerPass { cache: self.cache.as_mut().map(|cache| cache.layer(index)) }
    }
}

/// The side channels of one layer.
#[derive(Debug, Default)]
pub struct LayerPass<'a> {
    cache: Option<&'a mut LayerCache>,
}

impl LayerPass<'_> {
    pub(crate) fn extend(&mut self, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        match &mut self.cache {
            Some(cache) => cache.extend(key, value),
            None => (key, value),
        }
    }

    pub(crate) fn memory(&mut self, compute: impl FnOnce() -> (Tensor<4>, Tensor<4>)) -> (Tensor<4>, Tensor<4>) {
        match &mut self.cache {
            Some(cache) => cache.memory(compute),
            None => compute(),
        }
    }
}
