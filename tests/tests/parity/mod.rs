//! Outputs and gradients agree with PyTorch: every kernel, every module, and whole models.

mod blocks;
mod feed_forward;
mod attention;
mod kernels;
mod models;
mod modules;
mod optimizer;
mod positions;
