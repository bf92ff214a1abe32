//! What a program that builds a Transformer names most: `use firelight::prelude::*;`. No name of Burn is in it, so that it goes
//! together with `burn::prelude::*` and `burn::nn::*`; layers that both have, such as `Linear` and `LayerNorm`, are in
//! [`firelight::nn`](crate::nn).
//!
//! ```
//! use burn::nn::*;
//! use burn::prelude::*;
//! use firelight::prelude::*;
//!
//! /// An encoder behind Burn's embedding.
//! #[derive(Module, Debug)]
//! struct Encoder {
//!     embedding: Embedding,
//!     stack: Transformer,
//! }
//!
//! let device = select_device(Some("flex"))?;
//! let encoder = Encoder {
//!     embedding: EmbeddingConfig::new(100, 16).init(&device),
//!     stack: TransformerConfig::encoder(16, 4, 2).with_position(PositionConfig::rotary()).init(&device),
//! };
//! let x = encoder.embedding.forward(Tensor::zeros([2, 5], &device));
//! let y = encoder.stack.forward(x, &SequenceInput::default(), &mut Pass::default());
//! assert_eq!(y.dims(), [2, 5, 16]);
//! # Ok::<(), firelight::device::DeviceError>(())
//! ```

pub use crate::device::select as select_device;
pub use crate::nn::{
    AttentionMask, AttentionPattern, Cache, EncoderDecoder, EncoderDecoderConfig, EncoderOutput, ExpertsConfig,
    FeedForwardNetwork, Layer, LayerContext, LayerPass, MaskRule, NormConfig, NormPlacement, PairRule, ParamBuilder,
    Pass, PositionConfig, ResidualStream, SequenceInput, State, TokenMixer, Trace, Transformer, TransformerBlock,
    TransformerBlockConfig, TransformerConfig, WeightInit,
};
