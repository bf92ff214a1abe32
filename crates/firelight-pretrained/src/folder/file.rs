//! One file of weights: the names, types and shapes of its tensors, and their bytes where they lie, or as a PyTorch file holds them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use firelight_storage::{InputError, StorageError, map_file, open_file, shortened_reason};
use memmap2::Mmap;
use pytorch_reader::{DType, PytorchReader, Tensor};
use safetensors::{Dtype, SafeTensors};

use super::weights::TensorInfo;
use crate::gguf::{self, Entry, Gguf};

/// The tensors of a file, by name.
type Infos = Vec<(String, TensorInfo)>;

/// A file of tensors.
#[derive(Debug)]
pub(super) struct WeightFile {
    path: PathBuf,
    content: Content,
}

/// What holds its numbers.
enum Content {
    /// A safetensors or GGUF file that is mapped: its pages are read when they are needed, and are not the program's memory.
    Mapped(Arc<Mmap>),
    /// A file of `torch.save`, of which a tensor is read when it is asked for. No code in it runs: what its pickle names is not called.
    Pickled(HashMap<String, Tensor>),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mapped(_) => "Mapped",
            Self::Pickled(_) => "Pickled",
        })
    }
}

impl WeightFile {
    /// Opens a file, safetensors or GGUF by its name or one of PyTorch, and lists its tensors by name.
    pub(super) fn open(path: &Path) -> Result<(Arc<Self>, Infos), StorageError> {
        if gguf::is_named(path) {
            let gguf = Gguf::open(path)?;
            let found = gguf.tensors().iter().map(|entry| (entry.name.clone(), info(entry))).collect();
            return Ok((Self::of_gguf(path, &gguf), found));
        }
        match path.extension().is_some_and(|extension| extension == "safetensors") {
            true => Self::mapped(path),
            false => Self::pickled(path),
        }
    }

    fn mapped(path: &Path) -> Result<(Arc<Self>, Infos), StorageError> {
        let map = map_file(path)?;
        let found = infos(&map).map_err(|reason| not_weights(path, map.len(), &reason))?;
        Ok((Arc::new(Self { path: path.into(), content: Content::Mapped(map) }), found))
    }

    /// A GGUF file whose header has been read.
    pub(super) fn of_gguf(path: &Path, gguf: &Gguf) -> Arc<Self> {
        Arc::new(Self { path: path.into(), content: Content::Mapped(gguf.map().clone()) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn pickled(path: &Path) -> Result<(Arc<Self>, Infos), StorageError> {
        drop(open_file(path)?);
        let reader = PytorchReader::new(path).map_err(|error| not_pickled(path, &error.to_string()))?;
        let tensors = reader.into_tensors();
        let info = |(name, tensor): (&String, &Tensor)| {
            let (dtype, shape) = (dtype(tensor.dtype()), tensor.shape().to_vec());
            (name.clone(), TensorInfo { dtype, shape, blocks: None, start: 0, size: tensor.byte_len() })
        };
        let found = tensors.iter().map(info).collect();
        Ok((Arc::new(Self { path: path.into(), content: Content::Pickled(tensors) }), found))
    }

    /// The bytes of a tensor of the file.
    pub(super) fn bytes(&self, name: &str, info: &TensorInfo) -> Result<Cow<'_, [u8]>, StorageError> {
        match &self.content {
            Content::Mapped(map) => Ok(Cow::Borrowed(&map[info.start..info.start + info.size])),
            Content::Pickled(tensors) => {
                let read = tensors.get(name).map_or(Ok(Vec::new()), Tensor::read);
                Ok(Cow::Owned(read.map_err(StorageError::io("read", &self.path))?))
            }
        }
    }
}

/// What the table of a GGUF file says of a tensor.
pub(super) fn info(entry: &Entry) -> TensorInfo {
    let (dtype, blocks) = (entry.format.dtype(), entry.format.blocks());
    TensorInfo { dtype, shape: entry.shape.clone(), blocks, start: entry.place.start, size: entry.place.len() }
}

fn infos(map: &[u8]) -> Result<Infos, String> {
    // It refuses headers of over 100 MB, offsets that overlap or leave a gap, and sizes that are not those of the shapes.
    let (header, metadata) = SafeTensors::read_metadata(map).map_err(|error| error.to_string())?;
    let begin = size_of::<u64>() + header;
    let end = begin + metadata.data_len();
    if end != map.len() {
        return Err(format!("its header describes {end} bytes"));
    }
    let info = |(name, found): (String, &safetensors::tensor::TensorInfo)| {
        let (start, stop) = found.data_offsets;
        let (dtype, shape) = (found.dtype, found.shape.clone());
        (name, TensorInfo { dtype, shape, blocks: None, start: begin + start, size: stop - start })
    };
    Ok(metadata.tensors().into_iter().map(info).collect())
}

fn not_weights(path: &Path, size: usize, reason: &str) -> StorageError {
    let problem = format!("is no whole safetensors file ({size} bytes): {}", shortened_reason(reason));
    InputError::in_file(path, problem).advise("it was cut short or is of another kind, so download it again").into()
}

fn not_pickled(path: &Path, reason: &str) -> StorageError {
    let problem = format!("is no PyTorch file that can be read: {}", shortened_reason(reason));
    InputError::in_file(path, problem)
        .advise("download it again, or convert it to safetensors where you trust it")
        .into()
}

/// The type as safetensors calls it.
fn dtype(of: DType) -> Dtype {
    match of {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::I16 => Dtype::I16,
        DType::I8 => Dtype::I8,
        DType::U64 => Dtype::U64,
        DType::U32 => Dtype::U32,
        DType::U16 => Dtype::U16,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

/// The type as Python calls it.
pub(super) fn name(dtype: Dtype) -> String {
    format!("{dtype:?}").to_lowercase()
}
