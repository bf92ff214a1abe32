//! One file for each family, which is a table: from `config.json` to the structure of a model, and from the names of tensors to those of
//! parameters.

mod activation;
mod rope;

pub(crate) mod gpt2;
pub(crate) mod llama;
