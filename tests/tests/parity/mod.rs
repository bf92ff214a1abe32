//! Outputs and gradients agree with PyTorch: every kernel, every module, and whole models; text encoders and beam search with
//! transformers, scores of text with sacrebleu, scores of classes with scikit-learn.

mod attention;
mod beams;
mod blocks;
mod class_metrics;
mod described;
mod family_models;
mod feed_forward;
mod gated_delta;
mod heads;
mod kernels;
mod loss;
mod models;
mod modules;
mod optimizer;
mod positions;
mod seq2seq;
mod stacks;
mod text_encoders;
mod text_metrics;
mod training;
mod vision;
