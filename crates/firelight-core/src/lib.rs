//! Composable Transformer modules for Burn: tensors in, tensors out. The crate knows no text, task, file or optimiser.
//!
//! Read [`Transformer`] first, then [`TransformerBlock`], then [`Attention`]. The route of a sequence is
//! `x [B, T, D] -> position -> block 0 .. L -> norm -> x [B, T, D]`; [`TokenEmbedding`] stands before it, [`LmHead`]
//! after it. Training, prefill and cached decoding are the same `forward`: what differs between them rides in [`Pass`].
//!
//! # Dimensions
//! `B` batch, `T` sequence (`S` source, `Q` query, `K` key length), `D` d_model, `H` heads, `G` key/value heads,
//! `E` d_head, `W` d_value, `F` d_ff, `V` vocabulary, `L` layers. Shapes are written `[B, H, Q, K]`.
//!
//! # Masks
//! In every boolean tensor of this crate true means hidden: a padded key, a future key, an ignored target.
//! [`AttentionMask`] is the only type that combines them; which pairs a [`PairRule`] hides is a function of their positions.
//!
//! # Weights
//! [`ParamBuilder`] draws the initial weights on the host, each from its own stream keyed by seed and path, so that one
//! seed gives one model on every backend. `config.init(&device)` has the device draw the seed.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use firelight_core::{Pass, PositionConfig, SequenceInput, TransformerConfig};
//!
//! let device = Device::flex();
//! let config = TransformerConfig::new(64, 8, 2).with_position(PositionConfig::rotary());
//! let model = config.init(&device);
//! let x = Tensor::<3>::zeros([2, 10, 64], &device); // [B, T, D]
//! let y = model.forward(x, &SequenceInput::default(), &mut Pass::default());
//! assert_eq!(y.dims(), [2, 10, 64]);
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod adapter;
mod attention;
mod block;
mod cache;
mod config;
mod context;
mod cost;
mod document_starts;
mod documents;
mod dropout;
mod embedding;
mod encoder_decoder;
mod error;
mod feed_forward;
mod gated_delta;
mod head;
mod heads;
mod hooks;
mod init;
pub mod inspect;
pub mod invariants;
pub mod kind;
mod layer;
mod layer_scale;
mod linear;
mod loss;
mod mixer;
mod norm;
mod pass;
mod position;
mod precision;
mod recompute;
mod report;
mod residual;
mod spelling;
mod state;
mod stochastic_depth;
mod transformer;
mod vision;
mod weight;

pub use adapter::{Adapter, AdapterConfig, AdapterScaling, check_adapters, merge_adapters};
pub use attention::{
    AdditiveScore, Attention, AttentionConfig, AttentionMechanism, AttentionPattern, BilinearScore,
    DifferentialAttention, DifferentialConfig, DotProduct, FusedProjection, KeyValues, LatentAttention, LatentConfig,
    LinearAttention, Mechanism, NormSpan, Projection, ProjectionKind, ScoreScale, SeparateProjection,
};
pub use block::{NormPlacement, TransformerBlock, TransformerBlockConfig};
pub use cache::{Cache, LayerCache};
pub use context::{AttentionContext, CrossKeyValues, EncoderOutput, LayerContext};
pub use cost::Cost;
pub use document_starts::DocumentStarts;
pub use dropout::drop as dropout;
pub use embedding::{
    EmbeddingProjectionConfig, EmbeddingScale, ProjectionPlacement, TokenEmbedding, TokenEmbeddingConfig,
};
pub use encoder_decoder::{EncoderDecoder, EncoderDecoderConfig};
pub use error::ConfigError;
pub use feed_forward::{
    Activation, ExpertsConfig, FeedForward, FeedForwardConfig, FeedForwardLayer, MixtureOfExperts, RouterScores,
};
pub use firelight_kernels::{
    AttentionMask, BlockFormat, KeyRanges, LogitMap, LogitMatrix, MaskRule, PairRule, RandomBlocks,
};
pub use gated_delta::{GatedDelta, GatedDeltaConfig, GatedDeltaState, ShortConvolution};
pub use head::{HeadOptions, LazyLogits, LmHead, LmHeadConfig};
pub use heads::{merge_heads, split_heads};
pub use hooks::{Ablation, ActivationSlice, Activations, HookError, Hooks};
pub use init::{Init, ParamBuilder, WeightInit};
pub use layer::{FeedForwardNetwork, Layer, TokenMixer};
pub use layer_scale::LayerScale;
pub use linear::{Linear, LinearConfig};
pub use loss::{LossConfig, TokenCriterion, TokenLoss};
pub use mixer::{Mixer, MixerConfig};
pub use norm::{LayerNorm, NoNorm, Norm, NormConfig, RmsNorm};
pub use pass::{AuxiliaryLosses, LayerPass, LayerTrace, Pass, Trace};
pub use position::{
    Alibi, AxisFrequencies, LearnedPosition, NoPosition, Position, PositionConfig, PositionScheme, PositionSizes,
    Positions, Rotary, RotaryAxes, RotaryConfig, RotaryLayout, RotaryScaling, Rotation, ScoreBias, ShawPosition,
    Sinusoidal, T5Bias,
};
pub use precision::cast_parameters;
pub use report::{ParameterEntry, ParameterReport};
pub use residual::ResidualStream;
pub use state::{CacheType, Compression, RecurrentState, State};
pub use stochastic_depth::StochasticDepth;
pub use transformer::{LayerConfig, SequenceInput, Transformer, TransformerConfig};
pub use vision::{
    Distillation, ImagePooling, PatchCoordinates, PatchEmbedding, PatchPosition, VisionTransformer,
    VisionTransformerConfig, resize_positions,
};
pub use weight::{
    Importance, Weight, WeightEntry, WeightLayout, build_in_blocks, dequantize, importance_of, onto_device, quantize,
    quantize_by, weights_of, with_blocks,
};
