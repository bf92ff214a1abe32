//! The tensors of a safetensors file that is mapped. Of a tensor nothing is in memory before it is asked for, and then its numbers alone, in
//! the type that they are wanted in.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use burn::store::burn_pack::Tensor;
use burn::tensor::{BoolStore, DType};
use memmap2::Mmap;
use safetensors::tensor::TensorInfo;
use safetensors::{Dtype, SafeTensors};

use crate::rounding::rounded;
use crate::weights::not_weights;
use crate::{StorageError, map_file};

/// The tensors of a file by their names. Floats become numbers of the type `floats`.
///
/// # Errors
/// Returns an error naming `path` if it cannot be read, is no whole safetensors file, or has numbers of a type that Burn lacks.
pub(crate) fn map_tensors(path: &Path, floats: DType) -> Result<BTreeMap<String, Tensor>, StorageError> {
    let map = map_file(path)?;
    let size = map.len() as u64;
    // The reader compares the header with the size of the file before it names a single key.
    let (header, metadata) = SafeTensors::read_metadata(&map).map_err(not_weights(path, size))?;
    let begin = size_of::<u64>() + header;
    let found = metadata.tensors().into_iter().map(|(name, info)| deferred(name, info, begin, &map, floats));
    let found: Result<BTreeMap<String, Tensor>, String> = found.collect();
    found.map_err(not_weights(path, size))
}

/// A tensor under its name, to be read from the file whose numbers `begin` at this byte.
fn deferred(
    name: String,
    info: &TensorInfo,
    begin: usize,
    map: &Arc<Mmap>,
    floats: DType,
) -> Result<(String, Tensor), String> {
    let stored = burn_type(info.dtype)?;
    let dtype = if stored.is_float() { floats } else { stored };
    let (start, end) = info.data_offsets;
    let (place, map) = (begin + start..begin + end, map.clone());
    let size = info.shape.iter().product::<usize>() * dtype.size();
    let tensor = Tensor::deferred(name.clone(), dtype, info.shape.clone(), None, size, move || {
        Ok(rounded(&map[place.clone()], stored, dtype))
    });
    Ok((name, tensor))
}

/// What Burn calls a type of numbers.
fn burn_type(dtype: Dtype) -> Result<DType, String> {
    Ok(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I16 => DType::I16,
        Dtype::I8 => DType::I8,
        Dtype::U64 => DType::U64,
        Dtype::U32 => DType::U32,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool(BoolStore::Native),
        other => return Err(format!("numbers of the type {other:?} are not read")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;
    use safetensors::tensor::TensorView;

    #[test]
    fn floats_come_in_the_type_that_is_asked_for_and_all_else_as_it_is() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        let (halves, bytes) = ([0x80, 0x3f, 0x00, 0xc0], [7, 0, 255]); // 1 and -2
        let views = [
            ("halves", TensorView::new(Dtype::BF16, vec![2, 1], &halves).unwrap()),
            ("bytes", TensorView::new(Dtype::U8, vec![3], &bytes).unwrap()),
        ];
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        for floats in [DType::F32, DType::BF16] {
            let found = map_tensors(&path, floats).unwrap();
            let data = |name: &str| {
                let tensor = &found[name];
                assert_eq!(tensor.byte_len(), tensor.to_bytes().unwrap().len());
                TensorData::from_bytes(tensor.to_bytes().unwrap(), tensor.shape.clone(), tensor.dtype)
            };
            assert_eq!(found["halves"].dtype, floats);
            assert_eq!(data("halves").convert::<f32>(), TensorData::from([[1_f32], [-2.0]]));
            assert_eq!(data("bytes"), TensorData::from([7_u8, 0, 255]));
        }
    }

    #[test]
    fn a_type_that_burn_lacks_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        let views = [("weight", TensorView::new(Dtype::F8_E4M3, vec![2], &[0, 1]).unwrap())];
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        let error = map_tensors(&path, DType::F32).err().unwrap();
        let expected = "model.safetensors` is no whole safetensors file";
        assert!(error.is_user_error() && error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains("numbers of the type F8_E4M3 are not read"), "{error}");
    }
}
