//! Which parameters of a model are in blocks of few bits: `quantization.json`, the name of a format for each path.
//!
//! ```text
//! {"embedding.weight": "q6_k", "transformer.blocks.0.attention.output.weight": "q4_k"}
//! ```

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use burn::module::Module;
use burn::tensor::FloatDType;

use super::ModelFolder;
use crate::{InputError, StorageError, load_weights_in, read_json, shortened_reason, write_json};

/// The most bytes that are read of the file: a model of a million matrices.
const LIMIT: u64 = 1 << 27;

impl ModelFolder {
    /// Writes the names of the formats by the paths of the parameters, as they stand in the weights file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_quantization(&self, formats: &BTreeMap<String, String>) -> Result<(), StorageError> {
        write_json(self.quantization(), formats)
    }

    /// Reads them; none of a model whose parameters are all floats, which has no such file.
    ///
    /// # Errors
    /// If the file cannot be read, or holds something else than names by paths.
    pub fn read_quantization(&self) -> Result<Option<BTreeMap<String, String>>, StorageError> {
        let path = self.quantization();
        path.is_file().then(|| read_json(&path, LIMIT)).transpose()
    }

    /// The model that `build` makes of the names of the formats, of which there are none where all parameters are floats. Its weights are
    /// to be read.
    ///
    /// # Errors
    /// If the names cannot be read, or `build` finds that they do not fit the model.
    pub fn build_model<M, E: Display>(
        &self,
        build: impl FnOnce(&BTreeMap<String, String>) -> Result<M, E>,
    ) -> Result<M, StorageError> {
        let names = self.read_quantization()?.unwrap_or_default();
        let unfit = |error: E| {
            let reason = shortened_reason(&error.to_string());
            InputError::in_file(&self.quantization(), format!("does not fit the model: {reason}"))
        };
        Ok(build(&names).map_err(unfit)?)
    }

    /// The same with the weights of a file of the run, the floats among them in `dtype`. `place` brings it where it runs.
    ///
    /// # Errors
    /// As [`build_model`](Self::build_model) and [`load_weights`](crate::load_weights).
    pub fn load_model<M: Module, E: Display>(
        &self,
        (weights, dtype): (&Path, FloatDType),
        build: impl FnOnce(&BTreeMap<String, String>) -> Result<M, E>,
        place: impl FnOnce(M) -> M,
    ) -> Result<M, StorageError> {
        let mut model = self.build_model(build)?;
        load_weights_in(&mut model, weights, dtype)?;
        Ok(place(model))
    }
}

/// How a GGUF file becomes such a model.
const OF_GGUF: &str = ", or import its GGUF file as floats: firelight import X.gguf --floats --out RUN";

/// The error of a training that would go on with a model in blocks that it did not begin with.
pub(super) fn not_trained(folder: &Path) -> InputError {
    let problem = "holds weights in blocks of few bits, which are for inference and cannot be trained";
    InputError::in_file(folder, problem).advise(format!("train the model that was quantised{OF_GGUF}"))
}

/// The error of a weights file with blocks where floats are expected; `parameter` is the first of them.
pub(crate) fn not_floats(path: &Path, parameter: &str) -> InputError {
    let problem = format!(
        "holds `{parameter}` in blocks of few bits where floats are expected: commands that ask or measure the model read them, with the \
         quantization.json of their folder"
    );
    let merged = ", or, of a run with low-rank adapters, what `firelight merge` writes";
    let advice = format!("for anything else take the model that was quantised{OF_GGUF}{merged}");
    InputError::in_file(path, problem).advise(advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Existing;

    #[derive(Module, Debug)]
    struct Layer {
        weight: burn::module::Param<burn::tensor::Tensor<1>>,
    }

    fn layer(value: f32) -> Layer {
        let device = burn::tensor::Device::default();
        Layer { weight: burn::module::Param::from_tensor(burn::tensor::Tensor::from_floats([value], &device)) }
    }

    #[test]
    fn a_model_is_built_by_the_names_filled_and_placed() {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path(), Existing::Refuse).unwrap();
        let weights = home.path().join("model.safetensors");
        crate::save_weights(&layer(2.0), &weights).unwrap();
        let load = |expected: usize| {
            let build = |names: &BTreeMap<String, String>| match names.len() == expected {
                true => Ok(layer(0.0)),
                false => Err(format!("{} names", names.len())),
            };
            folder.load_model((weights.as_path(), FloatDType::F32), build, |model| Layer {
                weight: model.weight.map(|weight| weight * 3.0),
            })
        };
        assert_eq!(load(0).unwrap().weight.val().into_scalar::<f32>(), 6.0);
        folder.write_quantization(&BTreeMap::from([("weight".to_string(), "q8_0".to_string())])).unwrap();
        assert_eq!(load(1).unwrap().weight.val().into_scalar::<f32>(), 6.0);
        let error = load(0).unwrap_err();
        let expected = "quantization.json` does not fit the model: 1 names";
        assert!(error.is_user_error() && error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn names_are_written_and_read_back() {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path(), Existing::Refuse).unwrap();
        assert_eq!(folder.read_quantization().unwrap(), None);
        let formats = BTreeMap::from([("head.weight".to_string(), "q6_k".to_string())]);
        folder.write_quantization(&formats).unwrap();
        assert_eq!(std::fs::read_to_string(folder.quantization()).unwrap().trim(), r#"{"head.weight":"q6_k"}"#);
        assert_eq!(folder.read_quantization().unwrap(), Some(formats));
        for wrong in ["", "[]", r#"{"head.weight": 4}"#] {
            std::fs::write(folder.quantization(), wrong).unwrap();
            let error = folder.read_quantization().unwrap_err();
            assert!(error.is_user_error() && error.to_string().contains("quantization.json"), "{error}");
        }
    }
}
