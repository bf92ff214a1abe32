//! The parameters of a weights file or of a model one by one, for a model that takes over some of them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::store::burn_pack::{Error, Tensor};
use burn::store::{ModuleSnapshot, PathFilter};
use burn::tensor::{DType, TensorData};

use crate::StorageError;
use crate::adapters::{is_adapter_path, is_base};
use crate::folder::quantization::not_floats;
use crate::tensors::map_tensors;

/// Parameters by their paths, read when they are asked for.
pub struct Parameters {
    path: PathBuf,
    tensors: BTreeMap<String, Tensor>,
}

impl Parameters {
    /// Those of a weights file.
    ///
    /// # Errors
    /// Returns an error naming `path` if it cannot be read, is no whole safetensors file, or holds parameters in blocks of few bits.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StorageError> {
        let path = path.as_ref();
        let tensors = map_tensors(path, DType::F32)?;
        match tensors.iter().find(|(_, tensor)| tensor.dtype == DType::U8) {
            Some((name, _)) => Err(not_floats(path, name).into()),
            None => Ok(Self { path: path.into(), tensors }),
        }
    }

    /// Those of a model without its low-rank adapters; `path` is the file that they were read from, for messages.
    pub fn of_base<M: Module>(model: &M, path: impl AsRef<Path>) -> Self {
        let found = model.collect(Some(PathFilter::from_predicate(is_base)), None, true);
        let tensors = found.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        Self { path: path.as_ref().into(), tensors }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The shape of every parameter.
    pub fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape.to_vec())).collect()
    }

    /// Whether there are low-rank adapters among them.
    pub fn have_adapters(&self) -> bool {
        self.tensors.keys().any(|name| is_adapter_path(name))
    }

    /// The numbers of a parameter as 32-bit floats.
    ///
    /// # Errors
    /// If the file cannot be read any more.
    ///
    /// # Panics
    /// If there is no such parameter.
    pub fn read(&self, name: &str) -> Result<TensorData, StorageError> {
        let tensor = self.tensors.get(name).unwrap_or_else(|| panic!("there is no parameter `{name}`"));
        let failed = |error: Error| StorageError::io("read", &self.path)(io::Error::other(error.to_string()));
        let bytes = tensor.to_bytes().map_err(failed)?;
        Ok(TensorData::from_bytes(bytes, tensor.shape.clone(), tensor.dtype).convert::<f32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::save_weights;
    use burn::module::Param;
    use burn::tensor::{self, Device};

    #[derive(Module, Debug)]
    struct Adapter {
        up: Param<tensor::Tensor<2>>,
    }

    #[derive(Module, Debug)]
    struct Layer {
        weight: Param<tensor::Tensor<2>>,
        adapter: Option<Adapter>,
    }

    #[derive(Module, Debug)]
    struct Stack {
        layer: Layer,
    }

    #[test]
    fn parameters_are_read_one_by_one_from_a_file_and_from_a_model() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        let full = |shape: [usize; 2]| Param::from_tensor(tensor::Tensor::<2>::full(shape, 0.5, &Device::default()));
        let layer = Layer { weight: full([2, 3]), adapter: Some(Adapter { up: full([1, 3]) }) };
        let stack = Stack { layer };
        save_weights(&stack, &path).unwrap();
        let (found, base) = (Parameters::open(&path).unwrap(), Parameters::of_base(&stack, &path));
        assert!(found.have_adapters() && !base.have_adapters());
        assert_eq!(
            found.shapes().into_iter().collect::<Vec<_>>(),
            [("layer.adapter.up".to_string(), vec![1, 3]), ("layer.weight".to_string(), vec![2, 3])]
        );
        for parameters in [&found, &base] {
            assert_eq!(parameters.read("layer.weight").unwrap().try_to_vec::<f32>().unwrap(), [0.5; 6]);
        }
        std::fs::write(&path, "no weights").unwrap();
        let error = Parameters::open(&path).err().unwrap();
        assert!(error.is_user_error() && error.to_string().contains("model.safetensors"), "{error}");
    }
}
