//! The tensors of a folder, whatever files they lie in.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use burn::tensor::{bf16, f16};
use firelight_storage::{InputError, StorageError, listed, read_json, shortened};
use safetensors::Dtype;
use serde::Deserialize;

use super::JSON_LIMIT;
use super::file::{WeightFile, name};
use crate::View;

/// One file of weights, or several and their index, in the order in which they are looked for.
const FILES: [[&str; 2]; 2] =
    [["model.safetensors", "model.safetensors.index.json"], ["pytorch_model.bin", "pytorch_model.bin.index.json"]];

/// What a header says of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The type of its numbers.
    pub dtype: Dtype,
    /// Its shape, as in PyTorch.
    pub shape: Vec<usize>,
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
}

impl Held {
    fn bytes(&self) -> Result<Cow<'_, [u8]>, StorageError> {
        self.file.bytes(&self.name, &self.info)
    }
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
            let held = Held { info, file: file.clone(), name: name.clone() };
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

    /// The bytes of a tensor, as they lie in the file.
    pub(crate) fn bytes(&self, name: &str) -> Result<Cow<'_, [u8]>, StorageError> {
        self.tensors.get(name).map_or(Ok(Cow::Borrowed(&[])), Held::bytes)
    }

    /// The numbers of a part of a tensor as 32-bit floats, each `plus` a number.
    ///
    /// # Errors
    /// If there is no such tensor, it does not hold floats, or one is NaN or infinite.
    pub fn read(&self, name: &str, view: &View, plus: f32) -> Result<Vec<f32>, StorageError> {
        let Some(held) = self.tensors.get(name) else {
            return Err(InputError::new(format!("there is no tensor `{}`", shortened(name))).into());
        };
        let mut numbers = vec![0.0; view.shape().iter().product()];
        let (bytes, to) = (&*held.bytes()?, &mut numbers[..]);
        match held.info.dtype {
            Dtype::F32 => view.read(bytes.as_chunks().0, to, |number| f32::from_le_bytes(number) + plus),
            Dtype::F64 => view.read(bytes.as_chunks().0, to, |number| f64::from_le_bytes(number) as f32 + plus),
            Dtype::F16 => view.read(bytes.as_chunks().0, to, |number| f16::from_le_bytes(number).to_f32() + plus),
            Dtype::BF16 => view.read(bytes.as_chunks().0, to, |number| bf16::from_le_bytes(number).to_f32() + plus),
            other => return Err(tensor_error(&held.file, name, &format!("has the type {}", self::name(other)))),
        }
        match numbers.iter().all(|number| number.is_finite()) {
            true => Ok(numbers),
            false => Err(tensor_error(&held.file, name, "has numbers that are NaN or infinite")),
        }
    }
}

/// Whether a tensor of this type can become a parameter.
pub(crate) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F64 | Dtype::F16 | Dtype::BF16)
}

fn tensor_error(file: &WeightFile, tensor: &str, problem: &str) -> StorageError {
    let problem = format!("is damaged or of another kind: `{}` {problem}", shortened(tensor));
    InputError::in_file(file.path(), problem).advise("expected finite f32, f16 or bf16 numbers").into()
}

/// A file of an index is one beside it: anything else would let a downloaded folder read whatever lies on this machine.
fn check_name(index: &Path, file: &str) -> Result<(), InputError> {
    let is_plain = Path::new(file).file_name().is_some_and(|name| name == file);
    match is_plain && !file.contains(['/', '\\']) {
        true => Ok(()),
        false => {
            let problem = format!("names the file `{}`, which is not beside it", shortened(file));
            Err(InputError::in_file(index, problem).advise("download the model from a source that you trust"))
        }
    }
}

fn no_weights(folder: &Path) -> StorageError {
    let problem = format!("holds no weights: expected one of {}", listed(FILES.concat()));
    InputError::in_file(folder, problem).advise("download them, too").into()
}
