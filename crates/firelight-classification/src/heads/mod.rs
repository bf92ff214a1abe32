//! What turns the vectors of an encoder into answers, one file for each kind.

mod masked_language;
mod replaced_token;
mod sequence;
mod span;
mod token;
mod transform;

use burn::tensor::Tensor;
use burn::tensor::activation::{relu, tanh};
use firelight_kernels::{GeluForm, gelu};
use serde::{Deserialize, Serialize};

pub use masked_language::{MaskedLanguageHead, MaskedLanguageHeadConfig};
pub use replaced_token::ReplacedTokenHead;
pub use sequence::{SequenceHead, SequenceHeadConfig};
pub use span::{Span, SpanHead, SpanHeadConfig, SpanLogits};
pub use token::{TokenHead, TokenHeadConfig};
pub use transform::{HeadTransform, HeadTransformConfig};

/// The activation function of a head's dense layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeadActivation {
    /// The hyperbolic tangent, as the pooler of BERT.
    #[default]
    Tanh,
    /// `max(0, x)`, as DistilBERT.
    Relu,
    /// `x Φ(x)`, exact, as the masked language model of BERT.
    Gelu,
    /// `x Φ(x)` in its tanh form.
    GeluTanh,
}

impl HeadActivation {
    pub(crate) fn forward<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Tanh => tanh(x),
            Self::Relu => relu(x),
            Self::Gelu => gelu(x, GeluForm::Exact),
            Self::GeluTanh => gelu(x, GeluForm::Tanh),
        }
    }
}
