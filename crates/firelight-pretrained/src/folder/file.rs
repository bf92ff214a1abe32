//! One file of weights: the names, types and shapes of its tensors, and their bytes where they lie.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use firelight_storage::{InputError, StorageError, open_file, shortened_reason};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use super::weights::TensorInfo;

/// The tensors of a file, by name.
type Infos = Vec<(String, TensorInfo)>;

/// A safetensors file that is mapped: its pages are read when they are needed, and are not the program's memory.
#[derive(Debug)]
pub(super) struct WeightFile {
    path: PathBuf,
    map: Mmap,
}

impl WeightFile {
    /// Maps a file and lists its tensors by name.
    pub(super) fn open(path: &Path) -> Result<(Arc<Self>, Infos), StorageError> {
        let file = open_file(path)?;
        // SAFETY: the file is only read. As with every mapped file, a program that cuts it short meanwhile ends this one; what is written
        // into it meanwhile changes numbers and nothing else, for the header is copied here.
        let map = unsafe { Mmap::map(&file) }.map_err(StorageError::io("read", path))?;
        let found = infos(&map).map_err(|reason| not_weights(path, map.len(), &reason))?;
        Ok((Arc::new(Self { path: path.into(), map }), found))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of a tensor.
    pub(super) fn bytes(&self, info: &TensorInfo) -> &[u8] {
        &self.map[info.start..info.start + info.size]
    }
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
        let info =
            TensorInfo { dtype: found.dtype, shape: found.shape.clone(), start: begin + start, size: stop - start };
        (name, info)
    };
    Ok(metadata.tensors().into_iter().map(info).collect())
}

fn not_weights(path: &Path, size: usize, reason: &str) -> StorageError {
    let problem = format!("is no whole safetensors file ({size} bytes): {}", shortened_reason(reason));
    InputError::in_file(path, problem).advise("it was cut short or is of another kind, so download it again").into()
}

/// The type as Python calls it.
pub(super) fn name(dtype: Dtype) -> String {
    format!("{dtype:?}").to_lowercase()
}
