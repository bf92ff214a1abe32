//! Outputs and gradients agree with PyTorch: every kernel, every module, and whole models.

mod attention;
mod beams;
mod blocks;
mod feed_forward;
mod kernels;
mod loss;
mod models;
mod modules;
mod optimizer;
mod positions;
mod vision;
