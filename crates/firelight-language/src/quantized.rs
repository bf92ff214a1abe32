//! A language model whose matrices are in blocks of 8 or 4 bits: which of them are, and the run folder of such a model. What the errors
//! of its weights count by is measured in calibration.rs.
//!
//! Only matrices of linear layers, embeddings and heads are put into blocks. Norms, biases, tables of positions and routers are small, and
//! stay floats.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, FloatDType};
use firelight_core::{BlockFormat, Importance, WeightEntry, build_in_blocks, onto_device, quantize_by, weights_of};
use firelight_storage::{Checkpoint, InputError, ModelFolder, StorageError, TaskError, save_weights};

use crate::model::{LanguageModel, LanguageModelConfig};
use crate::text_generator::TextGenerator;

/// Bytes of a float.
const FLOAT: usize = 4;

/// Which matrices of a language model go into which blocks.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::{BlockFormat, weights_of};
/// use firelight_language::{BlockMix, LanguageModelConfig};
///
/// let model = LanguageModelConfig::new(65, 64, 4, 2).init(&Device::flex());
/// let mix = BlockMix::new(BlockFormat::Q8_0);
/// let told = mix.report(&model);
/// assert!(told.kept.is_empty() && told.bytes_after < told.bytes_before);
/// assert!(weights_of(&mix.apply(model)).iter().all(|weight| weight.format == Some(BlockFormat::Q8_0)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMix {
    /// The blocks of the layers.
    layers: BlockFormat,
    /// Those of the embedding and the head.
    ends: BlockFormat,
}

/// A matrix that stays floats, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFloat {
    /// Its path, as in the weights file.
    pub path: String,
    /// Why, as a clause.
    pub reason: String,
}

/// What becomes of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quantized {
    /// The blocks of each matrix that goes into some, by its path.
    pub formats: BTreeMap<String, BlockFormat>,
    /// The other matrices.
    pub kept: Vec<KeptFloat>,
    /// Bytes of all parameters as floats in single precision.
    pub bytes_before: usize,
    /// Bytes of all parameters with these blocks.
    pub bytes_after: usize,
}

impl BlockMix {
    /// All matrices in blocks of one format, but for the embedding and the head, which are in those of [`BlockFormat::of_ends`].
    pub fn new(format: BlockFormat) -> Self {
        Self { layers: format, ends: format.of_ends() }
    }

    /// Sets the blocks of the embedding and the head.
    pub fn with_ends(self, ends: BlockFormat) -> Self {
        Self { ends, ..self }
    }

    /// The model with its matrices in blocks, taken from the device one after the other. Those that are in blocks already stay.
    pub fn apply(&self, model: LanguageModel) -> LanguageModel {
        self.apply_by(model, &Importance::new())
    }

    /// As [`apply`](Self::apply), where errors count as much as `importance` says: see [`TextGenerator::importance`].
    ///
    /// # Panics
    /// As [`quantize_by`].
    pub fn apply_by(&self, model: LanguageModel, importance: &Importance) -> LanguageModel {
        quantize_by(model, importance, |weight| weight.mixed(self.layers, self.ends).ok())
    }

    /// What [`apply`](Self::apply) makes of a model. Nothing is computed for it.
    pub fn report(&self, model: &LanguageModel) -> Quantized {
        let bytes = model.report().total() * FLOAT;
        let nothing = Quantized { formats: BTreeMap::new(), kept: Vec::new(), bytes_before: bytes, bytes_after: bytes };
        weights_of(model)
            .into_iter()
            .fold(nothing, |told, weight| told.with(weight.mixed(self.layers, self.ends), weight))
    }
}

impl Quantized {
    fn with(mut self, blocks: Result<BlockFormat, String>, weight: WeightEntry) -> Self {
        match blocks {
            Ok(format) => {
                let floats = weight.rows * weight.width * FLOAT;
                let quantized = WeightEntry { format: Some(format), ..weight };
                self.bytes_after = self.bytes_after - floats + quantized.bytes();
                self.formats.insert(quantized.path, format);
            }
            Err(reason) => self.kept.push(KeptFloat { path: weight.path, reason }),
        }
        self
    }
}

impl TextGenerator {
    /// Writes the run folder of a model in blocks, which was made from that of `run`: its configuration, tokenizer, recipe and data, the
    /// weights, and `quantization.json`.
    ///
    /// # Errors
    /// If the model has no blocks, `out` is not empty, or a file cannot be read or written.
    pub fn save_quantized(&self, run: &ModelFolder, out: impl AsRef<Path>) -> Result<ModelFolder, TaskError> {
        let config: LanguageModelConfig = run.read_config(crate::TASK)?;
        let formats = formats_of(self.model());
        if formats.is_empty() {
            let problem = "no matrix of the model is in blocks: there is nothing to write";
            return Err(InputError::new(problem)
                .advise("quantise it to q8_0 or q4_0, whose blocks hold 32 numbers")
                .into());
        }
        ModelFolder::create_whole(out, |folder| {
            run.hand_on(folder)?;
            save_weights(self.model(), folder.weights_path(&Checkpoint::Last))?;
            write_formats(folder, &formats)?;
            Ok(folder.write_config(crate::TASK, &config)?)
        })
    }
}

/// The formats of the matrices in blocks, by their paths.
fn formats_of(model: &LanguageModel) -> BTreeMap<String, BlockFormat> {
    let in_blocks = |weight: WeightEntry| Some((weight.path, weight.format?));
    weights_of(model).into_iter().filter_map(in_blocks).collect()
}

/// Writes `quantization.json` of a run folder: the formats of the matrices in blocks, by their paths. Of floats alone there is no such file.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use firelight_core::BlockFormat;
/// use firelight_language::write_formats;
/// use firelight_storage::{Existing, ModelFolder};
///
/// let home = tempfile::tempdir().unwrap();
/// let folder = ModelFolder::create(home.path(), Existing::Refuse)?;
/// write_formats(&folder, &BTreeMap::from([("head.weight".to_string(), BlockFormat::Q6K)]))?;
/// assert_eq!(folder.read_quantization()?.unwrap()["head.weight"], "q6_k");
/// # Ok::<(), firelight_storage::StorageError>(())
/// ```
///
/// # Errors
/// If it cannot be written.
pub fn write_formats(folder: &ModelFolder, formats: &BTreeMap<String, BlockFormat>) -> Result<(), StorageError> {
    let names: BTreeMap<String, String> =
        formats.iter().map(|(path, format)| (path.clone(), format.name().to_string())).collect();
    if names.is_empty() { Ok(()) } else { folder.write_quantization(&names) }
}

/// A model with the weights of a file of its run folder, the floats among them in `dtype`. Flex multiplies blocks as they lie; for any other
/// device they become floats on the way.
///
/// # Errors
/// If the formats of the folder do not fit the model, or the weights cannot be read.
pub(crate) fn load_weighted(
    folder: &ModelFolder,
    config: &LanguageModelConfig,
    weights: (&Path, FloatDType),
    device: &Device,
) -> Result<LanguageModel, TaskError> {
    let (_, dtype) = weights;
    let build = |names: &_| build_in_blocks(names, device, |device| config.init(device));
    let model = folder.load_model(weights, build, |model| onto_device(model, device))?;
    let has_blocks = folder.quantization().is_file();
    Ok(if has_blocks { model.cast(dtype) } else { model }) // What is read from blocks is of that type, too.
}

#[cfg(test)]
mod tests;
