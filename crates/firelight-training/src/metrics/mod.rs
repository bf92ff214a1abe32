//! Metrics for Burn's own renderers and loggers, made for [`LossOutput`](crate::LossOutput): every target weighs the same
//! in the value of an epoch. They join a training through [`FitInput::extension`](crate::FitInput::extension). Metrics of
//! generated text and of classes, which know neither Burn nor a task, are in [`text`] and [`classes`].

mod bits_per_token;
pub mod classes;
mod mean_loss;
mod perplexity;
pub mod text;
mod throughput;
mod token_mean;

pub use bits_per_token::{Bits, BitsPerToken};
pub use mean_loss::{LossScale, MeanLoss};
pub use perplexity::{Exponential, Perplexity};
pub use throughput::TokensPerSecond;
