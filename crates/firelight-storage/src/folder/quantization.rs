//! Which parameters of a model are in blocks of few bits: `quantization.json`, the name of a format for each path.
//!
//! ```text
//! {"embedding.weight": "q6_k", "transformer.blocks.0.attention.output.weight": "q4_k"}
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use super::ModelFolder;
use crate::{InputError, StorageError, read_json, write_json};

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
}

/// How a GGUF file becomes such a model.
const OF_GGUF: &str = ", or import its GGUF file as floats: firelight import X.gguf --floats --out RUN";

/// The error of a training that would go on with a model in blocks.
pub(super) fn not_trained(folder: &Path) -> InputError {
    let problem = "holds weights in blocks of few bits, which are for inference and cannot be trained";
    InputError::in_file(folder, problem).advise(format!("train the model that was quantised{OF_GGUF}"))
}

/// The error of a weights file with blocks where floats are expected; `parameter` is the first of them.
pub(crate) fn not_floats(path: &Path, parameter: &str) -> InputError {
    let problem = format!(
        "holds `{parameter}` in blocks of few bits where floats are expected: `firelight generate`, `chat` and `score` read them, with \
         the quantization.json of their folder"
    );
    InputError::in_file(path, problem).advise(format!("for anything else take the model that was quantised{OF_GGUF}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Existing;

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
