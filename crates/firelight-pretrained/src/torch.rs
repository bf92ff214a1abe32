//! State dicts of the Transformer layers that PyTorch itself has: `nn.TransformerEncoder`, `nn.TransformerDecoder` and `nn.Transformer`.
//! They come without a configuration, so the module is built by hand, and filled by name.
//!
//! ```no_run
//! use burn::tensor::Device;
//! use firelight_core::{Activation, NormPlacement, TransformerConfig};
//! use firelight_pretrained::{Table, load_file, torch_layers};
//!
//! // nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), 2)
//! let config = TransformerConfig::encoder(64, 4, 2).with_d_ff(256).with_activation(Activation::Relu);
//! let config = config.with_norm_placement(NormPlacement::Post).with_position(firelight_core::PositionConfig::None);
//! let table = Table { rows: torch_layers("", ""), ..Table::default() };
//! let encoder = load_file(config.init(&Device::flex()), &table, "encoder.pt")?;
//! # Ok::<(), firelight_storage::TaskError>(())
//! ```

use std::path::Path;

use burn::module::Module;
use burn::tensor::FloatDType;
use firelight_core::ParameterReport;
use firelight_storage::TaskError;

use crate::{Plan, Step, Table, WeightMapping, Weights};

/// The rows of a stack: `theirs` is what names begin with there, such as `transformer.encoder.`, and `ours` what paths begin with here, such
/// as `stacks.encoder.`; both may be empty.
///
/// Source: `torch/nn/modules/transformer.py` and `activation.py` of PyTorch 2.
pub fn torch_layers(theirs: &str, ours: &str) -> Vec<WeightMapping> {
    let here = |name: &str| format!("{ours}blocks.{{}}.{name}");
    let there = |name: &str| format!("{theirs}layers.{{}}.{name}");
    let mut rows = vec![
        WeightMapping::linear(there("linear1"), here("feed_forward.up")),
        WeightMapping::linear(there("linear2"), here("feed_forward.down")),
        WeightMapping::norm(there("norm1"), here("attention_norm")),
        // The third norm is there in decoders alone, where the second one is that of cross-attention.
        WeightMapping::norm(there("norm3"), here("feed_forward_norm")),
        WeightMapping::norm(there("norm2"), here("feed_forward_norm")),
        WeightMapping::norm(there("norm2"), here("cross_attention_norm")),
        WeightMapping::norm(format!("{theirs}norm"), format!("{ours}norm")),
    ];
    for (their, our) in [("self_attn", "attention"), ("multihead_attn", "cross_attention")] {
        rows.push(WeightMapping::linear(there(&format!("{their}.out_proj")), here(&format!("{our}.output"))));
        for (index, part) in ["query", "key", "value"].into_iter().enumerate() {
            let third = Step::Part { axis: 0, index, of: 3 };
            let path = |end: &str| here(&format!("{our}.projection.{part}.{end}"));
            let weight = WeightMapping::tensor(there(&format!("{their}.in_proj_weight")), path("weight"));
            let bias = WeightMapping::tensor(there(&format!("{their}.in_proj_bias")), path("bias"));
            rows.extend([weight.step(third.clone()).step(Step::Transposed), bias.step(third)]);
        }
    }
    rows
}

/// Fills a module with the tensors of one file, safetensors or of `torch.save`, as a table finds them.
///
/// # Errors
/// If the file cannot be read, or its tensors are not those of the module: all that does not fit is listed.
pub fn load_file<M: Module>(model: M, table: &Table, file: impl AsRef<Path>) -> Result<M, TaskError> {
    let file = file.as_ref();
    let weights = Weights::of_file(file)?;
    let plan = Plan::of_file(table, ParameterReport::of(&model).entries(), file, &weights)?;
    Ok(plan.load(model, &weights, FloatDType::F32)?)
}
