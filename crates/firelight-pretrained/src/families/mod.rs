//! One file for each family, which is a table: from `config.json` to the structure of a model, and from the names of tensors to those of
//! parameters.

mod activation;
mod encoder;
mod image;
mod layer_types;
mod rope;

pub(crate) mod albert;
pub(crate) mod bart;
pub(crate) mod bert;
pub(crate) mod clip;
pub(crate) mod deepseek;
pub(crate) mod deit;
pub(crate) mod dinov2;
pub(crate) mod distilbert;
pub(crate) mod electra;
pub(crate) mod gemma;
pub(crate) mod gpt2;
pub(crate) mod gpt_neox;
pub(crate) mod gpt_oss;
pub(crate) mod llama;
pub(crate) mod mistral;
pub(crate) mod mixtral;
pub(crate) mod modernbert;
pub(crate) mod mpnet;
pub(crate) mod olmo2;
pub(crate) mod phi3;
pub(crate) mod qwen;
pub(crate) mod roberta;
pub(crate) mod smollm3;
pub(crate) mod starcoder2;
pub(crate) mod t5;
pub(crate) mod timm;
pub(crate) mod vit;
