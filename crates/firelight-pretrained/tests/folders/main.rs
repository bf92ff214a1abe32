//! Folders of published models, whole and damaged, read, run and written back.

mod adapters;
mod alone;
mod arguments;
mod blocks;
mod damaged;
mod decoding;
mod exports;
mod framed;
mod gguf;
mod golden;
mod pixels;
mod sentences;
mod torch;
