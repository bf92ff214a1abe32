//! The files of an exported model.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use firelight_core::AdapterConfig;
use firelight_data::{ChatTemplate, SpecialRole, Tokenizer};
use firelight_generation::GenerationDefaults;
use firelight_storage::{InputError, Parameters, StorageError, TaskError, is_adapter_path, replace_file, write_atomic};
use safetensors::Dtype;
use serde_json::{Map, Value, json};

use super::sentence::is_behind;
use super::{Export, Published, image};
use crate::Structure;
use crate::gguf::pre_tokenizer_name;
use crate::plan::{Part, Table, Written};

impl Export<'_> {
    /// Writes a new folder: the adapters of a run that has them, or else the whole model. Returns what is worth telling.
    pub(crate) fn write(&self) -> Result<Vec<String>, TaskError> {
        let structure = Structure::of_run(self.run)?;
        let parameters = Parameters::open(self.weights)?;
        match structure.adapters().filter(|_| parameters.have_adapters()) {
            Some(adapters) => self.adapters_alone(&structure, adapters, &parameters).map(|()| Vec::new()),
            None => self.model(&structure, &parameters),
        }
    }

    /// Writes the adapters without the model that they change.
    fn adapters_alone(
        &self,
        structure: &Structure,
        adapters: &AdapterConfig,
        parameters: &Parameters,
    ) -> Result<(), TaskError> {
        let base = structure.without_adapters();
        let shapes = shapes(parameters, |path| is_own(path) && !is_adapter_path(path));
        let table = Published::of(&base, &shapes, self.run)?.description.table;
        self.adapters(&base, adapters, &table, parameters)
    }

    /// Writes the whole model, `config.json` last. Tokenizer and chat template are read before the folder is made, so that a damaged one
    /// leaves no folder behind.
    fn model(&self, structure: &Structure, parameters: &Parameters) -> Result<Vec<String>, TaskError> {
        let Published { mut config, description } = Published::of(structure, &shapes(parameters, is_own), self.run)?;
        add_dtype(&mut config);
        let tokenizer = self.tokenizer(structure)?;
        let chat = ChatTemplate::of_folder(self.run.path())?;
        self.make_folder()?;
        self.weights(&description.table, parameters, is_own, &self.to.join("model.safetensors"))?;
        let generation = GenerationDefaults::of_file(self.run.generation())?;
        let notes = match tokenizer {
            Some(tokenizer) => self.text_files(tokenizer, &mut config, &generation, chat.as_ref(), structure)?,
            None => Vec::new(),
        };
        self.generation_files(chat.as_ref(), generation)?;
        self.sentence_and_image_files(structure, parameters)?;
        self.json("config.json", &Value::Object(config))?;
        Ok(notes)
    }

    /// The tokenizer of the run, where the model reads text.
    fn tokenizer(&self, structure: &Structure) -> Result<Option<Tokenizer>, TaskError> {
        let tokenizer = structure.reads_text().then(|| Tokenizer::load(self.run.tokenizer())).transpose()?;
        tokenizer.map(|tokenizer| with_end(tokenizer, structure)).transpose()
    }

    /// Writes the tokenizer, and its special tokens into `config`. Returns what is worth telling.
    fn text_files(
        &self,
        tokenizer: Tokenizer,
        config: &mut Map<String, Value>,
        generation: &GenerationDefaults,
        chat: Option<&ChatTemplate>,
        structure: &Structure,
    ) -> Result<Vec<String>, TaskError> {
        let uncounted = uncounted(config, &tokenizer);
        let tokenizer = with_special_tokens(tokenizer, config, generation)?;
        let settings = tokenizer_config(&tokenizer, chat, structure);
        let mut notes = self.tokenizers(&tokenizer, settings, &config["model_type"])?;
        notes.extend(uncounted);
        Ok(notes)
    }

    /// Writes the chat template and `generation_config.json`, where there are such.
    fn generation_files(&self, chat: Option<&ChatTemplate>, generation: GenerationDefaults) -> Result<(), TaskError> {
        chat.map_or(Ok(()), |chat| chat.publish(self.to))?;
        if generation.is_empty() {
            return Ok(());
        }
        self.json("generation_config.json", &serde_json::to_value(generation).unwrap_or_default())
    }

    /// Writes what sentence-transformers adds to an encoder, or how pixels become numbers, where the model has such.
    fn sentence_and_image_files(&self, structure: &Structure, parameters: &Parameters) -> Result<(), TaskError> {
        // A folder of sentence-transformers is read as the model alone, without a head.
        if let Structure::Encoder(model) = structure
            && model.discriminator.is_none()
        {
            self.sentence(model, parameters)?;
        }
        image::preprocessor(structure).map_or(Ok(()), |value| self.json("preprocessor_config.json", &value))
    }

    /// Writes the files of one tokenizer, or of two.
    fn tokenizers(
        &self,
        tokenizer: &Tokenizer,
        mut settings: Value,
        model_type: &Value,
    ) -> Result<Vec<String>, TaskError> {
        let pair = MARIAN.map(|name| self.run.path().join(name));
        let has_pair = model_type == "marian" && pair.iter().all(|path| path.is_file());
        let is_pair = has_pair && self.copy_pair(&pair, tokenizer)?;
        if is_pair {
            // `transformers` knows two tokenizers in this form alone.
            settings["tokenizer_class"] = json!("MarianTokenizer");
        } else {
            tokenizer.save(self.to.join("tokenizer.json"))?;
        }
        self.json("tokenizer_config.json", &settings)?;
        let source = Some(self.run.source_tokenizer()).filter(|path| path.is_file() && !is_pair);
        let mut notes: Vec<String> = beside(tokenizer, model_type)?.into_iter().collect();
        if has_pair && !is_pair {
            let pair = MARIAN.join(", ");
            notes.push(format!(
                "{pair} are left out: they give other ids than the tokenizers of the run, which were exchanged"
            ));
        }
        if let Some(source) = source {
            Tokenizer::load(source)?.save(self.to.join("source_tokenizer.json"))?;
            let note =
                "source_tokenizer.json is read by Firelight alone: `transformers` encodes sources by tokenizer.json";
            notes.push(note.into());
        }
        Ok(notes)
    }

    /// Copies Marian's two tokenizers, unless those of the run, which were made of them, have been exchanged since. Returns whether it did.
    fn copy_pair(&self, pair: &[PathBuf], tokenizer: &Tokenizer) -> Result<bool, TaskError> {
        let copies = MARIAN.map(|name| self.to.join(name));
        for (path, copy) in pair.iter().zip(&copies) {
            fs::copy(path, copy).map_err(StorageError::io("copy", path))?;
        }
        let source = self.run.source_tokenizer();
        let source = if source.is_file() { Tokenizer::load(source)? } else { tokenizer.clone() };
        // There is no tokenizer.json in the folder, so that these are made of the pair.
        let made = [Tokenizer::of_source(self.to), Tokenizer::of_folder(self.to)];
        let agree = [&source, tokenizer].into_iter().zip(made).all(|(own, made)| match made {
            Ok(Some(made)) => encode_alike(own, made),
            _ => false,
        });
        if !agree {
            for copy in &copies {
                fs::remove_file(copy).map_err(StorageError::io("remove", copy))?;
            }
        }
        Ok(agree)
    }

    pub(super) fn make_folder(&self) -> Result<(), TaskError> {
        let is_empty = fs::read_dir(self.to).map_or(true, |mut files| files.next().is_none());
        if !is_empty {
            return Err(InputError::in_file(self.to, "is not empty").advise("choose another folder").into());
        }
        Ok(fs::create_dir_all(self.to).map_err(StorageError::io("create the folder", self.to))?)
    }

    pub(super) fn json(&self, name: &str, value: &Value) -> Result<(), TaskError> {
        let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from);
        let path = self.to.join(name);
        Ok(write_atomic(&path, text.map_err(StorageError::io("write", &path))? + "\n")?)
    }

    /// Writes the parameters that are wanted, as a table has them.
    pub(super) fn weights(
        &self,
        table: &Table,
        parameters: &Parameters,
        is_wanted: impl Fn(&str) -> bool,
        path: &Path,
    ) -> Result<(), TaskError> {
        let written = table.written(&shapes(parameters, is_wanted)).map_err(|path| {
            InputError::in_file(
                parameters.path(),
                format!("holds `{path}`, which no tensor of the family is known for"),
            )
        })?;
        let failure = Mutex::new(None);
        let tensors = written.iter().map(|tensor| (&tensor.name, Filled { tensor, parameters, failure: &failure }));
        let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
        Ok(replace_file(path, |temporary| {
            let written = safetensors::serialize_to_file(tensors, Some(metadata), temporary);
            let failed = failure.lock().ok().and_then(|mut failure| failure.take());
            failed.map_or(Ok(()), Err)?;
            written.map_err(|error| StorageError::io("write", path)(std::io::Error::other(error.to_string())))
        })?)
    }
}

/// The files of Marian's two tokenizers.
pub(crate) const MARIAN: [&str; 3] = ["source.spm", "target.spm", "vocab.json"];

/// Tokens that a text is made of, where tokenizers are compared.
const TOKENS: usize = 256;

/// Whether both have the same tokens, put the same around a text, and give the same ids for what the tokens spell. The other one may have added
/// tokens for which the model has no vectors.
fn encode_alike(own: &Tokenizer, other: Tokenizer) -> bool {
    let size = own.vocab_size();
    let Ok(other) = other.without_added_from(size) else { return false };
    let ids: Vec<u32> = (0..size as u32).collect();
    let alike = |text: &str| own.encode(text).ok() == other.encode(text).ok();
    own.agrees_with("pair", &other).is_ok()
        && own.frame() == other.frame()
        && ids.chunks(TOKENS).all(|ids| alike(&own.decode(ids)))
}

/// What `transformers` reads in another way than `tokenizer.json` says. From its version 5 on, the tokenizer of a `qwen2` is built from
/// vocabulary and merges alone, whatever class `tokenizer_config.json` names: Qwen's normalizer and pre-tokenizer replace the file's
/// (`tokenization_qwen2.py`).
fn beside(tokenizer: &Tokenizer, model_type: &Value) -> Result<Option<String>, TaskError> {
    if model_type != "qwen2" {
        return Ok(None);
    }
    let file = tokenizer.to_json()?;
    let composes = file["normalizer"] == json!({"type": "NFC"});
    let is_qwens = composes && file["model"]["type"] == "BPE" && pre_tokenizer_name(&file) == Some("qwen2");
    let note = "`transformers` 5 gives every qwen2 Qwen's own tokenizer, and this one differs: AutoTokenizer returns other ids; load it by \
                PreTrainedTokenizerFast.from_pretrained(..)";
    Ok((!is_qwens).then(|| note.into()))
}

/// Whether a parameter lies in the model's own file.
pub(super) fn is_own(path: &str) -> bool {
    !is_behind(path)
}

pub(super) fn shapes(parameters: &Parameters, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<usize>> {
    parameters.shapes().into_iter().filter(|(path, _)| is_wanted(path)).collect()
}

/// A tensor of theirs, which is filled with our parameters when the file is written: one at a time is in memory.
struct Filled<'a> {
    tensor: &'a Written,
    parameters: &'a Parameters,
    failure: &'a Mutex<Option<StorageError>>,
}

/// The numbers of a tensor of theirs.
pub(super) fn numbers(tensor: &Written, parameters: &Parameters) -> Result<Vec<f32>, StorageError> {
    numbers_less(tensor, parameters, 0.0)
}

/// The same with each number less by `less`: what is taken away here and added there is never rounded.
pub(super) fn numbers_less(tensor: &Written, parameters: &Parameters, less: f32) -> Result<Vec<f32>, StorageError> {
    let mut numbers = vec![0.0; tensor.shape.iter().product()];
    for Part { path, view, plus } in &tensor.parts {
        let (ours, less): (Vec<f32>, f32) = (parameters.read(path)?.iter().collect(), plus + less);
        view.write(&ours, &mut numbers, |number| number - less);
    }
    Ok(numbers)
}

impl safetensors::View for Filled<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let numbers = numbers(self.tensor, self.parameters).unwrap_or_else(|error| {
            if let Ok(mut failure) = self.failure.lock() {
                *failure = Some(error);
            }
            vec![0.0; self.tensor.shape.iter().product()]
        });
        Cow::Owned(numbers.into_iter().flat_map(f32::to_le_bytes).collect())
    }

    fn data_len(&self) -> usize {
        4 * self.tensor.shape.iter().product::<usize>()
    }
}

/// The type of the weights, under the names that newer and older versions of `transformers` have for it.
fn add_dtype(config: &mut Map<String, Value>) {
    config.insert("dtype".into(), json!("float32"));
    config.insert("torch_dtype".into(), json!("float32"));
}

/// Every source ends in the end token. Published tokenizers put it there; of those that were trained here the translator does.
fn with_end(tokenizer: Tokenizer, structure: &Structure) -> Result<Tokenizer, TaskError> {
    let is_bare = matches!(structure, Structure::Seq2Seq(_)) && tokenizer.frame().is_none();
    Ok(match tokenizer.role(SpecialRole::End).filter(|_| is_bare) {
        Some(end) => tokenizer.with_end(end)?,
        None => tokenizer,
    })
}

/// The tokenizer with a token for padding; `config` gets the ids of special tokens.
fn with_special_tokens(
    tokenizer: Tokenizer,
    config: &mut Map<String, Value>,
    generation: &GenerationDefaults,
) -> Result<Tokenizer, TaskError> {
    let padding = padding_of(generation, &tokenizer).or(tokenizer.role(SpecialRole::End));
    let tokenizer = with_padding(tokenizer, config, padding)?;
    add_ids(config, &tokenizer);
    // No id of the config: `generate` would take unknown words for padding, where it is given no mask.
    let unknown = tokenizer.role(SpecialRole::Unknown);
    with_padding(tokenizer, config, unknown)
}

/// The padding of a published model, where its tokenizer does not tell.
fn padding_of(generation: &GenerationDefaults, tokenizer: &Tokenizer) -> Option<u32> {
    generation.number("pad_token_id").map(|id| id as u32).filter(|&id| tokenizer.is_special(id))
}

/// `transformers` pads no batch of texts without a padding token: where neither tokenizer nor family has one, another token takes its place, as is
/// usual with GPT-2. The mask hides it.
fn with_padding(
    tokenizer: Tokenizer,
    config: &Map<String, Value>,
    stand_in: Option<u32>,
) -> Result<Tokenizer, TaskError> {
    let is_said = config.get("pad_token_id").is_some_and(|id| !id.is_null());
    let has_padding = is_said || tokenizer.role(SpecialRole::Padding).is_some();
    Ok(match stand_in.filter(|_| !has_padding) {
        Some(id) => tokenizer.with_role(SpecialRole::Padding, id)?,
        None => tokenizer,
    })
}

/// RoBERTa and its relatives say which id is the padding, because positions begin behind it; `transformers` gives that token none.
fn uncounted(config: &Map<String, Value>, tokenizer: &Tokenizer) -> Option<String> {
    let id = config.get("pad_token_id").and_then(Value::as_u64)? as u32;
    let token = tokenizer.token(id).filter(|_| tokenizer.role(SpecialRole::Padding) != Some(id))?;
    let note = format!(
        "`transformers` takes the token {id}, `{token}`, for padding and does not count it: texts that hold it have other outputs there"
    );
    (!tokenizer.is_special(id)).then_some(note)
}

/// The ids of special tokens, where the family does not say them itself; none outside of the embedding.
fn add_ids(config: &mut Map<String, Value>, tokenizer: &Tokenizer) {
    let size = config.get("vocab_size").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let ids = [
        ("bos_token_id", SpecialRole::Begin),
        ("eos_token_id", SpecialRole::End),
        ("pad_token_id", SpecialRole::Padding),
    ];
    for (key, role) in ids {
        config.entry(key).or_insert(json!(tokenizer.role(role).filter(|&id| u64::from(id) < size)));
    }
}

/// What `AutoTokenizer` needs beside `tokenizer.json`. Without the names of inputs, versions of `transformers` differ in whether they give
/// segments.
fn tokenizer_config(tokenizer: &Tokenizer, chat: Option<&ChatTemplate>, structure: &Structure) -> Value {
    let inputs: &[&str] = match structure.encoder() {
        Some(encoder) if encoder.n_segments > 1 => &["input_ids", "token_type_ids", "attention_mask"],
        _ => &["input_ids", "attention_mask"],
    };
    let mut config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": false,
        "model_input_names": inputs,
        "model_max_length": structure.longest_text(),
    });
    for role in SpecialRole::ALL {
        if let Some(token) = tokenizer.role(role).and_then(|id| tokenizer.token(id)) {
            config[role.key()] = json!(token);
        }
    }
    for (name, token) in chat.iter().flat_map(|chat| chat.tokens()) {
        config[name] = json!(token);
    }
    config
}
