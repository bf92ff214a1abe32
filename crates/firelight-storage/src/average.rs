//! The mean of the weights of several checkpoints, which often generalises better than any of them. It needs no model:
//! files in, file out.
//!
//! Source: Izmailov et al. 2018, Averaging Weights Leads to Wider Optima and Better Generalization, section 3
//! (<https://arxiv.org/abs/1803.05407>); over the last checkpoints of one run as in Vaswani et al. 2017, section 6.1.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::weights::not_weights;
use crate::{InputError, StorageError, read_file, shortened, write_atomic};

/// A tensor being averaged: its shape, and the sum of its values so far.
type Sums = BTreeMap<String, (Vec<usize>, Numbers)>;

/// What a tensor holds.
enum Numbers {
    /// A sum.
    Floats(Vec<f64>),
    /// Numbers in blocks of few bits, which no training changes: those of all files are the same.
    Blocks(Vec<u8>),
}

/// Writes the mean of the weights in `files` to `path`, as 32-bit floats; sums are taken in double precision. Weights in blocks of few
/// bits, beside which adapters were trained, are the same in all files and stay so.
///
/// # Errors
/// Fails if a file cannot be read, holds anything but finite 32-bit floats and such blocks, or does not have the keys and shapes of the first
/// one, or if `path` cannot be written.
///
/// # Panics
/// Panics if `files` is empty.
pub fn average_weights(files: &[PathBuf], path: impl AsRef<Path>) -> Result<(), StorageError> {
    let [first, others @ ..] = files else { panic!("an average needs at least one file") };
    let mut sums = read(first)?;
    for file in others {
        add(&mut sums, read(file)?).map_err(|wrong| mismatch(file, &wrong))?;
    }
    write_atomic(&path, serialise(&sums, files.len(), path.as_ref())?)
}

fn read(path: &Path) -> Result<Sums, StorageError> {
    let bytes = read_file(path, u64::MAX)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(not_weights(path, bytes.len() as u64))?;
    let tensor = |(key, view): (&str, TensorView)| {
        let (shape, values) = values(key, &view).map_err(|wrong| mismatch(path, &wrong))?;
        let floats: &[f64] = if let Numbers::Floats(floats) = &values { floats.as_slice() } else { &[] };
        match floats.iter().find(|value| !value.is_finite()) {
            Some(value) => {
                let problem =
                    format!("holds {value} in {}, so its training diverged: leave this checkpoint out", shortened(key));
                Err(InputError::in_file(path, problem).into())
            }
            None => Ok((key.to_string(), (shape, values))),
        }
    };
    tensors.iter().map(tensor).collect()
}

fn values(key: &str, view: &TensorView) -> Result<(Vec<usize>, Numbers), String> {
    match view.dtype() {
        Dtype::F32 => {
            let float = |bytes: &[u8]| f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            Ok((view.shape().to_vec(), Numbers::Floats(view.data().chunks_exact(4).map(float).collect())))
        }
        Dtype::U8 => Ok((view.shape().to_vec(), Numbers::Blocks(view.data().to_vec()))),
        other => Err(format!("{} (expected F32, found {other:?})", shortened(key))),
    }
}

/// Adds the values of one more file; another key or shape is described.
fn add(sums: &mut Sums, more: Sums) -> Result<(), String> {
    if let Some(key) = sums.keys().find(|key| !more.contains_key(*key)) {
        return Err(format!("{} (missing)", shortened(key)));
    }
    for (key, (shape, values)) in more {
        match sums.get_mut(&key) {
            Some((expected, sum)) if *expected == shape => add_numbers(sum, values, &key)?,
            Some((expected, _)) => {
                return Err(format!("{} (expected {expected:?}, found {shape:?})", shortened(&key)));
            }
            None => return Err(format!("{} (unknown)", shortened(&key))),
        }
    }
    Ok(())
}

fn add_numbers(sum: &mut Numbers, more: Numbers, key: &str) -> Result<(), String> {
    match (sum, more) {
        (Numbers::Floats(sum), Numbers::Floats(more)) => sum.iter_mut().zip(more).for_each(|(sum, x)| *sum += x),
        (Numbers::Blocks(bytes), Numbers::Blocks(more)) if *bytes == more => {}
        _ => return Err(format!("{} (other numbers in blocks of few bits)", shortened(key))),
    }
    Ok(())
}

/// Weights that cannot be averaged with others.
fn mismatch(path: &Path, wrong: &str) -> InputError {
    InputError::in_file(path, format!("is not like the others: {wrong}")).advise("average checkpoints of one run")
}

fn serialise(sums: &Sums, count: usize, path: &Path) -> Result<Vec<u8>, StorageError> {
    let mean = |sum: &f64| ((sum / count as f64) as f32).to_le_bytes();
    let bytes = |numbers: &Numbers| match numbers {
        Numbers::Floats(sum) => (Dtype::F32, sum.iter().flat_map(mean).collect()),
        Numbers::Blocks(bytes) => (Dtype::U8, bytes.clone()),
    };
    let data: Vec<(Dtype, Vec<u8>)> = sums.values().map(|(_, numbers)| bytes(numbers)).collect();
    let failed = |error: SafeTensorError| StorageError::io("write the weights", path)(io::Error::other(error));
    let views = sums.iter().zip(&data).map(|((key, (shape, _)), (dtype, data))| {
        Ok((key.as_str(), TensorView::new(*dtype, shape.clone(), data).map_err(failed)?))
    });
    let views: Vec<_> = views.collect::<Result<_, StorageError>>()?;
    safetensors::serialize(views, None).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use crate::{load_weights, save_weights};
    use burn::module::{Module, Param};
    use burn::tensor::{Device, Tensor};

    #[derive(Module, Debug)]
    struct Layer {
        weight: Param<Tensor<2>>,
    }

    fn layer<const D: usize>(values: [f32; D]) -> Layer {
        let values = Tensor::<1>::from_floats(values, &Device::default());
        Layer { weight: Param::from_tensor(values.unsqueeze()) }
    }

    #[test]
    fn the_mean_of_three_files_is_a_file_of_the_same_model() {
        let home = tempfile::tempdir().unwrap();
        let files = [[1.0, -2.0], [2.0, 0.0], [6.0, 0.5]].map(|values| {
            let path = home.path().join(format!("{}.safetensors", values[0]));
            save_weights(&layer(values), &path).unwrap();
            path
        });
        let mean = home.path().join("mean.safetensors");
        average_weights(&files, &mean).unwrap();
        let mut loaded = layer([0.0, 0.0]);
        load_weights(&mut loaded, &mean).unwrap();
        assert_eq!(loaded.weight.val().try_into_vec_as::<f32>().unwrap(), [3.0, -0.5]);

        average_weights(&files[..1], &mean).unwrap();
        load_weights(&mut loaded, &mean).unwrap();
        assert_eq!(loaded.weight.val().try_into_vec_as::<f32>().unwrap(), [1.0, -2.0], "one file is its own mean");
    }

    #[test]
    fn blocks_stay_as_they_are_in_all_files() {
        let home = tempfile::tempdir().unwrap();
        let [one, same, other, mean] = ["one", "same", "other", "mean"].map(|name| home.path().join(name));
        let write = |path: &Path, block: u8, number: f32| {
            let (bytes, floats) = ([block, 7], number.to_le_bytes());
            let views = [
                ("base", TensorView::new(Dtype::U8, vec![1, 2], &bytes).unwrap()),
                ("up", TensorView::new(Dtype::F32, vec![1], &floats).unwrap()),
            ];
            fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
        };
        write(&one, 200, 1.0);
        write(&same, 200, 4.0);
        write(&other, 201, 4.0);
        average_weights(&[one.clone(), same], &mean).unwrap();
        let bytes = fs::read(&mean).unwrap();
        let found = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = |key: &str| found.tensor(key).unwrap().data().to_vec();
        assert_eq!((tensor("base"), tensor("up")), (vec![200, 7], 2.5_f32.to_le_bytes().to_vec()));
        let error = average_weights(&[one, other], &mean).unwrap_err().to_string();
        assert!(error.contains("other` is not like the others: base (other numbers in blocks of few bits)"), "{error}");
    }

    #[test]
    fn weights_that_are_no_numbers_are_refused_and_nothing_is_written() {
        let home = tempfile::tempdir().unwrap();
        let [good, mean] = ["good", "mean"].map(|name| home.path().join(name));
        save_weights(&layer([1.0, 2.0]), &good).unwrap();
        for (value, name) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
            let bad = home.path().join("bad");
            save_weights(&layer([1.0, value]), &bad).unwrap();
            for files in [[good.clone(), bad.clone()], [bad.clone(), good.clone()]] {
                let error = average_weights(&files, &mean).unwrap_err();
                assert!(error.is_user_error() && !mean.exists());
                assert!(error.to_string().contains(&format!("bad` holds {name} in weight")), "{error}");
            }
        }
    }

    #[test]
    fn files_of_different_models_are_named() {
        let home = tempfile::tempdir().unwrap();
        let [narrow, wide] = ["narrow", "wide"].map(|name| home.path().join(name));
        save_weights(&layer([1.0]), &narrow).unwrap();
        save_weights(&layer([1.0, 2.0]), &wide).unwrap();
        let error = average_weights(&[narrow.clone(), wide], home.path().join("mean")).unwrap_err();
        assert!(error.is_user_error());
        assert!(
            error.to_string().contains("wide` is not like the others: weight (expected [1, 1], found [1, 2])"),
            "{error}"
        );
        fs::write(&narrow, "no weights").unwrap();
        assert!(average_weights(&[narrow], home.path().join("mean")).unwrap_err().to_string().contains("no whole"));
    }
}
