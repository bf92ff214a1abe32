//! The tensors of a folder, whatever files they lie in.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Element, ElementConversion, bf16, f16};
use firelight_kernels::BlockFormat;
use firelight_storage::{InputError, StorageError, listed, read_json, shortened};
use rayon::prelude::*;
use safetensors::Dtype;
use serde::Deserialize;

use super::JSON_LIMIT;
use super::file::{WeightFile, info, name};
use crate::View;
use crate::gguf::{Gguf, is_factor};

/// One file of weights, or several and their index, in the order in which they are looked for.
const FILES: [[&str; 2]; 2] =
    [["model.safetensors", "model.safetensors.index.json"], ["pytorch_model.bin", "pytorch_model.bin.index.json"]];

/// The longest name of a file that the usual file systems take, in bytes.
const LONGEST_NAME: usize = 255;

/// Blocks that one thread makes numbers of before it asks for more.
const BLOCKS_AT_ONCE: usize = 64;

/// What a header says of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The type of its numbers; of numbers in blocks, that as which they are read.
    pub dtype: Dtype,
    /// Its shape, as in PyTorch.
    pub shape: Vec<usize>,
    /// The blocks that hold its numbers, along its last axis, where a GGUF file has them so.
    pub blocks: Option<BlockFormat>,
    pub(super) start: usize,
    pub(super) size: usize,
}

/// Tensors by their names, in files that are mapped.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    tensors: BTreeMap<String, Held>,
}

/// A tensor in its file.
#[derive(Clone, Debug)]
struct Held {
    info: TensorInfo,
    file: Arc<WeightFile>,
    /// What the file calls it.
    name: String,
    /// Where its numbers lie in the tensor of the file; none where they lie as the shape says.
    view: Option<View>,
    /// What is added to each number of the file.
    plus: f32,
}

impl Held {
    /// Its numbers in the order of its shape and in the type of its header.
    fn bytes(&self) -> Result<Cow<'_, [u8]>, StorageError> {
        let bytes = self.file.bytes(&self.name, &self.info)?;
        let bytes = match self.info.blocks {
            Some(format) => Cow::Owned(floats(format, &bytes)),
            None => bytes,
        };
        Ok(match &self.view {
            Some(view) if self.info.dtype.bitsize() == 16 => Cow::Owned(view.reordered::<2>(&bytes)),
            Some(view) => Cow::Owned(view.reordered::<4>(&bytes)),
            None => bytes,
        })
    }
}

/// Blocks as the bytes of 32-bit floats.
fn floats(format: BlockFormat, blocks: &[u8]) -> Vec<u8> {
    let (numbers, size) = (format.numbers() * BLOCKS_AT_ONCE, format.bytes() * BLOCKS_AT_ONCE);
    let mut bytes = vec![0; blocks.len() / format.bytes() * format.numbers() * size_of::<f32>()];
    let pieces = bytes.par_chunks_mut(numbers * size_of::<f32>()).zip(blocks.par_chunks(size));
    pieces.for_each(|(to, blocks)| {
        let mut found = vec![0f32; blocks.len() / format.bytes() * format.numbers()];
        format.dequantize(blocks, &mut found);
        let (to, _) = to.as_chunks_mut::<4>();
        to.iter_mut().zip(found).for_each(|(to, number)| *to = number.to_le_bytes());
    });
    bytes
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Weights {
    pub(super) fn open(folder: &Path) -> Result<Self, StorageError> {
        for [single, index] in FILES.map(|names| names.map(|name| folder.join(name))) {
            if single.is_file() {
                return Self::of_file(&single);
            }
            if index.is_file() {
                return Self::of_index(folder, &index);
            }
        }
        Err(no_weights(folder))
    }

    /// The tensors of one file: safetensors by its name, else what `torch.save` wrote, a state dict or a whole model. No code in it runs.
    ///
    /// # Errors
    /// If it is missing or damaged.
    pub fn of_file(path: impl AsRef<Path>) -> Result<Self, StorageError> {
        let mut weights = Self::default();
        weights.add(path.as_ref())?;
        Ok(weights)
    }

    /// The tensors of a GGUF file by the names of `transformers`, and as these have them; those that it does not know keep their names.
    pub(super) fn of_gguf(path: &Path, gguf: &Gguf) -> Result<Self, StorageError> {
        let (architecture, heads) = gguf.architecture()?;
        let file = WeightFile::of_gguf(path, gguf);
        let mut weights = Self::default();
        for entry in gguf.tensors().iter().filter(|entry| !is_factor(&entry.name)) {
            let mut held =
                Held { info: info(entry), file: file.clone(), name: entry.name.clone(), view: None, plus: 0.0 };
            let Some((name, change)) = architecture.hub_name(&entry.name) else {
                weights.tensors.insert(entry.name.clone(), held);
                continue;
            };
            if let Some(step) = change.step(heads) {
                let view = step
                    .apply(View::whole(&entry.shape), None)
                    .ok_or_else(|| unfit_rows(path, &entry.name, &entry.shape))?;
                held.info.shape = view.shape();
                held.view = Some(view);
            }
            held.plus = change.plus();
            if weights.tensors.insert(name, held).is_some() {
                let problem =
                    format!("has the tensor `{}`, which stands for the same as another one", shortened(&entry.name));
                return Err(InputError::in_file(path, problem).advise("convert the model again").into());
            }
        }
        Ok(weights)
    }

    fn of_index(folder: &Path, path: &Path) -> Result<Self, StorageError> {
        let index: Index = read_json(path, JSON_LIMIT)?;
        let files: BTreeSet<&String> = index.weight_map.values().collect();
        let mut weights = Self::default();
        for file in files {
            check_name(path, file)?;
            weights.add(&folder.join(file))?;
        }
        let named = |key: &&String| !weights.tensors.contains_key(*key);
        let missing: Vec<String> = index.weight_map.keys().filter(named).cloned().collect();
        if !missing.is_empty() {
            let problem = format!("names tensors that its files do not hold: {}", listed(&missing));
            return Err(InputError::in_file(path, problem).advise("download the model again").into());
        }
        Ok(weights)
    }

    fn add(&mut self, path: &Path) -> Result<(), StorageError> {
        let (file, found) = WeightFile::open(path)?;
        for (name, info) in found {
            let held = Held { info, file: file.clone(), name: name.clone(), view: None, plus: 0.0 };
            if let Some(other) = self.tensors.insert(name.clone(), held) {
                let problem =
                    format!("holds `{}`, which `{}` holds too", shortened(&name), other.file.path().display());
                return Err(InputError::in_file(path, problem).advise("download the model again").into());
            }
        }
        Ok(())
    }

    /// Adds the tensors of a folder within, under names that begin with its own.
    pub(crate) fn add_module(&mut self, folder: &Path, module: &str) -> Result<(), StorageError> {
        let own = Self::open(&folder.join(module))?;
        self.tensors.extend(own.tensors.into_iter().map(|(name, tensor)| (format!("{module}.{name}"), tensor)));
        Ok(())
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// What the header says of a tensor.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name).map(|held| &held.info)
    }

    /// What is added to each number of [`bytes`](Self::bytes).
    pub(crate) fn addend(&self, name: &str) -> f32 {
        self.tensors.get(name).map_or(0.0, |held| held.plus)
    }

    /// The blocks of a tensor whose numbers are in [blocks](TensorInfo::blocks), row by row of its shape; none where they are not, or where its
    /// rows are not those of the file.
    ///
    /// # Errors
    /// If the file cannot be read any more.
    pub fn blocks(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, StorageError> {
        let Some((held, format)) = self.tensors.get(name).and_then(|held| Some((held, held.info.blocks?))) else {
            return Ok(None);
        };
        let bytes = held.file.bytes(&held.name, &held.info)?;
        let Some(view) = &held.view else { return Ok(Some(bytes)) };
        let width = held.info.shape.last().copied().unwrap_or(1);
        let rows = format.row_bytes(width).and_then(|size| view.rows(width, size));
        Ok(rows.map(|rows| Cow::Owned(rows.reordered::<1>(&bytes))))
    }

    /// Where the rows of a matrix lie in [`stored`](Self::stored), of which `view` shows the rows in a tensor in blocks, and the format of the
    /// blocks; none where rows are not of whole blocks of the file that lie one behind the other, or something is added to them.
    pub(crate) fn rows_in_blocks(&self, name: &str, view: &View) -> Option<(BlockFormat, View)> {
        let held = self.tensors.get(name).filter(|held| held.plus == 0.0)?;
        let format = held.info.blocks?;
        let view = match &held.view {
            Some(inner) => view.within(inner)?,
            None => view.clone(),
        };
        let shape = view.shape();
        let width = shape.last().copied()?;
        Some((format, view.rows(width, format.row_bytes(width)?)?))
    }

    /// The bytes of a tensor as its file has them.
    pub(crate) fn stored(&self, name: &str) -> Result<Cow<'_, [u8]>, StorageError> {
        self.tensors.get(name).map_or(Ok(Cow::Borrowed(&[])), |held| held.file.bytes(&held.name, &held.info))
    }

    /// The bytes of a tensor, in the order of its shape.
    pub(crate) fn bytes(&self, name: &str) -> Result<Cow<'_, [u8]>, StorageError> {
        self.tensors.get(name).map_or(Ok(Cow::Borrowed(&[])), Held::bytes)
    }

    /// The numbers of a part of a tensor as 32-bit floats, each `plus` a number.
    ///
    /// # Errors
    /// If there is no such tensor, it does not hold floats, or one is NaN or infinite.
    pub fn read(&self, name: &str, view: &View, plus: f32) -> Result<Vec<f32>, StorageError> {
        self.read_as(name, view, plus)
    }

    /// The same as numbers of another type, each rounded on its way: beside those of a file that is mapped, but for numbers in blocks, no copy in the
    /// type of the file is in memory. What is only too large for half precision becomes infinite.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_as<T: Element>(&self, name: &str, view: &View, plus: f32) -> Result<Vec<T>, StorageError> {
        let Some(held) = self.tensors.get(name) else {
            return Err(InputError::new(format!("there is no tensor `{}`", shortened(name))).into());
        };
        let mut numbers = vec![T::default(); view.shape().iter().product()];
        let (bytes, to, plus) = (&*held.bytes()?, &mut numbers[..], plus + held.plus);
        match held.info.dtype {
            Dtype::F32 => view.read(bytes.as_chunks().0, to, |number| finite(f32::from_le_bytes(number) + plus)),
            Dtype::F64 => view.read(bytes.as_chunks().0, to, |number| finite(f64::from_le_bytes(number) as f32 + plus)),
            Dtype::F16 => {
                view.read(bytes.as_chunks().0, to, |number| finite(f16::from_le_bytes(number).to_f32() + plus))
            }
            Dtype::BF16 => {
                view.read(bytes.as_chunks().0, to, |number| finite(bf16::from_le_bytes(number).to_f32() + plus))
            }
            other => return Err(tensor_error(&held.file, name, &format!("has the type {}", self::name(other)))),
        }
        match numbers.iter().any(|number| number.to_f32().is_nan()) {
            false => Ok(numbers),
            true => Err(tensor_error(&held.file, name, "has numbers that are NaN or infinite")),
        }
    }
}

/// A number in another type; NaN for one that is NaN or infinite, which the type alone would not tell from one that is too large for it.
fn finite<T: Element>(number: f32) -> T {
    if number.is_finite() { number.elem() } else { f32::NAN.elem() }
}

/// Whether a tensor of this type can become a parameter.
pub(crate) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F64 | Dtype::F16 | Dtype::BF16)
}

fn unfit_rows(path: &Path, name: &str, shape: &[usize]) -> StorageError {
    let problem =
        format!("has the tensor `{}` of the shape {shape:?}, whose rows are not those of all heads", shortened(name));
    InputError::in_file(path, problem).advise("look at the number of heads in its metadata").into()
}

fn tensor_error(file: &WeightFile, tensor: &str, problem: &str) -> StorageError {
    let problem = format!("is damaged or of another kind: `{}` {problem}", shortened(tensor));
    InputError::in_file(file.path(), problem).advise("expected finite f32, f16 or bf16 numbers").into()
}

/// A file of an index is one beside it: anything else would let a downloaded folder read whatever lies on this machine. A name that no
/// file can have would be quoted whole by the error of the system.
fn check_name(index: &Path, file: &str) -> Result<(), InputError> {
    let is_plain = Path::new(file).file_name().is_some_and(|name| name == file);
    let what = match () {
        () if !is_plain || file.contains(['/', '\\']) => "which is not beside it".to_string(),
        () if file.len() > LONGEST_NAME => {
            format!("a name of {} bytes, of which file systems take {LONGEST_NAME}", file.len())
        }
        () => return Ok(()),
    };
    let problem = format!("names the file `{}`, {what}", shortened(file));
    Err(InputError::in_file(index, problem).advise("download the model from a source that you trust"))
}

fn no_weights(folder: &Path) -> StorageError {
    let problem = format!("holds no weights: expected one of {}", listed(FILES.concat()));
    InputError::in_file(folder, problem).advise("download them, too").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::TensorView;

    fn written(numbers: [f32; 2]) -> (tempfile::TempDir, Weights) {
        let home = tempfile::tempdir().unwrap();
        let (path, bytes) = (home.path().join("model.safetensors"), numbers.map(f32::to_le_bytes).concat());
        let views = [("weight", TensorView::new(Dtype::F32, vec![2], &bytes).unwrap())];
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        (home, Weights::of_file(path).unwrap())
    }

    #[test]
    fn what_is_too_large_for_half_precision_is_infinite_and_what_was_infinite_is_refused() {
        let whole = View::whole(&[2]);
        let (_home, weights) = written([65_520.0, 1.0 + 1.0 / 2048.0]);
        assert_eq!(weights.read_as::<f16>("weight", &whole, 0.0).unwrap(), [f16::INFINITY, f16::ONE]);
        assert_eq!(weights.read_as::<bf16>("weight", &whole, 0.0).unwrap(), [bf16::from_f32(65_536.0), bf16::ONE]);
        assert_eq!(weights.read("weight", &whole, 0.5).unwrap(), [65_520.5, 1.5 + 1.0 / 2048.0]);
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (_home, weights) = written([1.0, wrong]);
            let errors = [
                weights.read("weight", &whole, 0.0).unwrap_err(),
                weights.read_as::<f16>("weight", &whole, 0.0).unwrap_err(),
                weights.read_as::<bf16>("weight", &whole, 0.0).unwrap_err(),
            ];
            for error in errors {
                assert!(
                    error.is_user_error() && error.to_string().contains("numbers that are NaN or infinite"),
                    "{error}"
                );
            }
        }
    }
}
