//! GGUF files, each a whole model: what it says of itself becomes the `config.json` that a folder of Hugging Face would have, and its
//! tensors get the names of `transformers`, so that the tables of the families do everything else.
//!
//! Source: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>; which rows are exchanged and what is added to norms is as in
//! `convert_hf_to_gguf.py` of llama.cpp.

mod architecture;
mod config;
mod header;
mod keys;
mod metadata;
mod reader;
mod rope;
mod tensors;
mod tokenizer;
mod vocabulary;
mod write;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use firelight_data::Tokenizer;
use firelight_storage::{InputError, StorageError, TaskError, map_file};
use memmap2::Mmap;
use serde_json::Value as Json;

pub(crate) use architecture::{Architecture, Change, Heads};
pub(crate) use keys::{metadata_of, read_back};
pub(crate) use metadata::{Metadata, Value, shortest};
pub(crate) use tensors::{Entry, Format};
pub(crate) use tokenizer::chat_template_of;
pub(crate) use vocabulary::{add_chat, add_tokenizer, pre_tokenizer_name};
pub(crate) use write::{Planned, write_file};

/// Tensors that say how far rotations are stretched; they are read with the header.
const FACTORS: [&str; 3] = ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];

/// A file whose header has been read.
#[derive(Clone, Debug)]
pub(crate) struct Gguf {
    map: Arc<Mmap>,
    metadata: Metadata,
    tensors: Vec<Entry>,
}

/// What the configuration is made of, beside the metadata.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes {
    /// The shapes of all tensors.
    pub(crate) shapes: BTreeMap<String, Vec<usize>>,
    /// The numbers of those that say how far rotations are stretched.
    pub(crate) factors: BTreeMap<String, Vec<f32>>,
}

impl Gguf {
    /// Maps a file and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, StorageError> {
        let map = map_file(path)?;
        let (metadata, tensors) = header::read(path, &map)?;
        Ok(Self { map, metadata, tensors })
    }

    pub(crate) fn map(&self) -> &Arc<Mmap> {
        &self.map
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(crate) fn tensors(&self) -> &[Entry] {
        &self.tensors
    }

    /// The tokenizer; none where the file has none.
    ///
    /// # Errors
    /// If it is of a kind that is not known, or damaged, or has more tokens than there are rows of their embedding.
    pub(crate) fn tokenizer(&self) -> Result<Option<Tokenizer>, TaskError> {
        let Some(tokenizer) = tokenizer::tokenizer_of(&self.metadata)? else { return Ok(None) };
        let embedding = self.tensors.iter().find(|entry| entry.name == "token_embd.weight");
        match embedding.and_then(|entry| entry.shape.first()) {
            Some(rows) if tokenizer.vocab_size() > *rows => {
                let tokens = tokenizer.vocab_size();
                let problem = format!("has a tokenizer of {tokens} tokens, but {rows} rows in `token_embd.weight`");
                Err(InputError::in_file(self.metadata.file(), problem).advise("convert the model again").into())
            }
            _ => Ok(Some(tokenizer)),
        }
    }

    /// What a `config.json` would say of the model.
    pub(crate) fn config(&self) -> Result<Json, InputError> {
        config::config(&self.metadata, &self.shapes())
    }

    /// The architecture, and how many heads its tensors are made for.
    pub(crate) fn architecture(&self) -> Result<(&'static Architecture, Heads), InputError> {
        let architecture = Architecture::of(&self.metadata)?;
        Ok((architecture, Heads::of(architecture, &self.metadata)?))
    }

    fn shapes(&self) -> Shapes {
        let shapes = self.tensors.iter().map(|entry| (entry.name.clone(), entry.shape.clone())).collect();
        let is_factor = |entry: &&Entry| FACTORS.contains(&&*entry.name) && entry.format == Format::F32;
        let numbers = |entry: &Entry| {
            let bytes = &self.map[entry.place.clone()];
            bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect()
        };
        let factors = self.tensors.iter().filter(is_factor).map(|entry| (entry.name.clone(), numbers(entry))).collect();
        Shapes { shapes, factors }
    }
}

/// Whether a path is called as such files are.
pub(crate) fn is_named(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// Whether a tensor only says how far rotations are stretched, and is no weight.
pub(crate) fn is_factor(name: &str) -> bool {
    FACTORS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::metadata::List;
    use super::*;

    #[test]
    fn more_tokens_than_rows_of_their_embedding_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let file = |rows: usize| {
            let path = home.path().join(format!("{rows}.gguf"));
            let mut metadata = Metadata::of(&path);
            let texts = |texts: &[&str]| Value::List(List::Texts(texts.iter().map(ToString::to_string).collect()));
            metadata.insert("tokenizer.ggml.model", Value::Text("gpt2".into()));
            metadata.insert("tokenizer.ggml.pre", Value::Text("gpt-2".into()));
            metadata.insert("tokenizer.ggml.tokens", texts(&["a", "b", "ab"]));
            metadata.insert("tokenizer.ggml.merges", texts(&["a b"]));
            let embedding = Planned { name: "token_embd.weight".into(), shape: vec![rows, 2], format: Format::F32 };
            write_file(&path, &metadata, &[embedding], |tensor| Ok(vec![0; tensor.size()])).unwrap();
            Gguf::open(&path).unwrap().tokenizer()
        };
        assert_eq!(file(3).unwrap().map(|tokenizer| tokenizer.vocab_size()), Some(3));
        let error = file(2).unwrap_err().to_string();
        assert!(error.contains("2.gguf` has a tokenizer of 3 tokens, but 2 rows in `token_embd.weight`"), "{error}");
    }
}
