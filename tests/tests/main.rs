//! End-to-end tests across the crates, in one binary: agreement with PyTorch, invariants over the grid of variants, initial
//! weights, decoding, constraints, passes of training, what loading holds, and whole runs from text to text. The device is chosen as the program chooses it, so
//! `BURN_DEVICE` moves the whole suite.

mod adapters;
mod constrained;
mod decoding;
mod flow;
mod initial_weights;
mod invariants;
#[cfg(feature = "flex")]
mod loading;
mod mechanisms;
mod parity;
#[cfg(feature = "flex")]
mod passes;
mod patterns;
mod published;
mod round_trip;
mod support;
