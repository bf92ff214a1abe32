//! A model of a run folder written as one GGUF file: the family's table backwards, then the names and the order of llama.cpp.

use std::collections::HashMap;
use std::path::PathBuf;

use burn::tensor::{bf16, f16};
use firelight_data::{ChatTemplate, Tokenizer};
use firelight_generation::GenerationDefaults;
use firelight_kernels::BlockFormat;
use firelight_storage::{InputError, Parameters, StorageError, TaskError, listed, shortened};
use rayon::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::plain::plain;
use super::write::{is_own, numbers_less, shapes};
use super::{Export, Published};
use crate::family::describe;
use crate::gguf::{
    Architecture, Change, Format, Heads, Metadata, Planned, Shapes, Value, add_chat, add_tokenizer, metadata_of,
    read_back, shortest, write_file,
};
use crate::plan::{Step, Written};
use crate::{HubFolder, Structure, View};

/// Tensors that are looked up by position, which llama.cpp keeps in single precision.
const POSITIONS: &str = "position_embd.weight";

/// The embedding and the head, which have more bits than layers of `q4_k`: as the mix of a language model has it.
const ENDS: [&str; 2] = ["token_embd.weight", "output.weight"];

/// The numbers that llama.cpp has for the types of whole files.
const FILE_TYPES: [(&str, u32); 7] =
    [("f32", 0), ("f16", 1), ("q4_0", 2), ("q8_0", 7), ("q4_k", 14), ("q6_k", 18), ("bf16", 32)];

/// How blocks are written, as llama.cpp counts the versions.
const BLOCKS_VERSION: u32 = 2;

/// A tensor on its way out.
struct Moved<'a> {
    written: &'a Written,
    change: Change,
}

impl Export<'_> {
    /// Writes the file; returns what is worth telling.
    pub(crate) fn write_gguf(&self, format: Format) -> Result<Vec<String>, TaskError> {
        if self.to.exists() {
            return Err(InputError::in_file(self.to, "is there already").advise("choose another file").into());
        }
        let structure = Structure::of_run(self.run)?;
        let parameters = Parameters::open(self.weights)?;
        if parameters.have_adapters() {
            let problem = "holds low-rank adapters, which are not written as GGUF";
            return Err(InputError::in_file(self.weights, problem).advise("merge them first: firelight merge").into());
        }
        let shapes = shapes(&parameters, is_own);
        let Published { config, description } = Published::of(&structure, &shapes, self.run)?;
        let architecture = self.architecture(&config)?;
        let (mut metadata, mut side, unread) = metadata_of(&config, architecture, self.to)?;
        let heads = Heads::of(architecture, &metadata)?;
        let written = description.table.written(&shapes).map_err(|path| self.nameless(&path))?;
        let (planned, moved) = self.plan(&written, architecture, heads, format)?;
        side.shapes.extend(planned.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())));
        self.check(&config, &metadata, &side)?;
        let mut told = kept(&planned, format);
        told.extend(unread);
        told.extend(self.add_texts(&config, &mut metadata)?);
        add_general(format, &mut metadata);
        let factors = side.factors.iter().map(|(name, factors)| Planned {
            name: name.clone(),
            shape: vec![factors.len()],
            format: Format::F32,
        });
        let all: Vec<Planned> = factors.chain(planned).collect();
        write_file(self.to, &metadata, &all, |tensor| {
            match (side.factors.get(&tensor.name), moved.get(&tensor.name)) {
                (None, Some(moved)) => moved.bytes(tensor, heads, &parameters),
                (factors, _) => Ok(factors.into_iter().flatten().flat_map(|number| number.to_le_bytes()).collect()),
            }
        })?;
        Ok(told)
    }

    fn architecture(&self, config: &Map<String, Json>) -> Result<&'static Architecture, InputError> {
        let family = config.get("model_type").and_then(Json::as_str).unwrap_or_default();
        Architecture::of_family(family).ok_or_else(|| {
            let problem = format!("describes a {family}, which is not written as GGUF");
            let advice = format!("written are {}; export others into a folder", Architecture::all());
            InputError::in_file(&self.run.config(), problem).advise(advice)
        })
    }

    fn nameless(&self, name: &str) -> InputError {
        let problem = format!("holds `{}`, which no tensor of GGUF is known for", shortened(name));
        InputError::in_file(self.weights, problem).advise("export the model into a folder")
    }

    /// What is written under which name.
    fn plan<'a>(
        &self,
        written: &'a [Written],
        architecture: &Architecture,
        heads: Heads,
        format: Format,
    ) -> Result<(Vec<Planned>, HashMap<String, Moved<'a>>), InputError> {
        let (mut planned, mut moved) = (Vec::new(), HashMap::new());
        for written in written {
            let (name, change) = architecture.gguf_name(&written.name).ok_or_else(|| self.nameless(&written.name))?;
            let shape = match change.step(heads) {
                Some(step) => step.undone(written.shape.clone(), 0).ok_or_else(|| self.nameless(&written.name))?,
                None => written.shape.clone(),
            };
            let format = fitting(&name, &shape, format);
            planned.push(Planned { name: name.clone(), shape, format });
            moved.insert(name, Moved { written, change });
        }
        Ok((planned, moved))
    }

    /// The file has to be read as the model that it is made of; numbers are compared as 32 bits have them.
    fn check(&self, config: &Map<String, Json>, metadata: &Metadata, tensors: &Shapes) -> Result<(), TaskError> {
        let structure = |config: Json| {
            let folder = HubFolder::of(PathBuf::from("\0"), config);
            describe(&folder).map(|found| plain(&found.structure))
        };
        let read = read_back(metadata, tensors).and_then(structure);
        if read.is_ok_and(|read| structure(rounded(&Json::Object(config.clone()))).is_ok_and(|ours| ours == read)) {
            return Ok(());
        }
        let problem = "describes a model that GGUF cannot say in every detail";
        let advice = "export it into a folder: give a path that does not end in .gguf";
        Err(InputError::in_file(&self.run.config(), problem).advise(advice).into())
    }

    /// Adds the tokenizer, the ends of texts and of turns, and the chat template.
    fn add_texts(&self, config: &Map<String, Json>, metadata: &mut Metadata) -> Result<Option<String>, TaskError> {
        let size = config.get("vocab_size").and_then(Json::as_u64).unwrap_or(0) as usize;
        let is_known = add_tokenizer(&Tokenizer::load(self.run.tokenizer())?, size, metadata)?;
        if let [_, turn, ..] = GenerationDefaults::of_file(self.run.generation())?.end_tokens() {
            metadata.insert("tokenizer.ggml.eot_token_id", Value::Integer((*turn).into()));
        }
        if let Some(chat) = ChatTemplate::of_folder(self.run.path())? {
            add_chat(&chat, metadata);
        }
        Ok((!is_known).then(|| {
            "llama.cpp has no tokenizer of this sort: the file holds tokenizer.json, which Firelight reads".into()
        }))
    }
}

impl Moved<'_> {
    /// The numbers as the file has them.
    fn bytes(&self, tensor: &Planned, heads: Heads, parameters: &Parameters) -> Result<Vec<u8>, StorageError> {
        let numbers = numbers_less(self.written, parameters, self.change.plus())?;
        let numbers = match self.change.step(heads).and_then(|step: Step| step.apply(View::whole(&tensor.shape), None))
        {
            Some(view) => {
                let mut stored = vec![0.0; numbers.len()];
                view.write(&numbers, &mut stored, |number| number);
                stored
            }
            None => numbers,
        };
        if tensor.format == Format::F16 && numbers.iter().any(|number| number.abs() > f16::MAX.to_f32()) {
            let problem = format!("holds numbers in `{}` that f16 cannot hold", self.written.name);
            return Err(InputError::in_file(parameters.path(), problem).advise("export as bf16 or f32").into());
        }
        Ok(encoded(&numbers, tensor.format))
    }
}

fn encoded(numbers: &[f32], format: Format) -> Vec<u8> {
    match format {
        Format::F32 => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        Format::F16 => numbers.iter().flat_map(|number| f16::from_f32(*number).to_le_bytes()).collect(),
        Format::Bf16 => numbers.iter().flat_map(|number| bf16::from_f32(*number).to_le_bytes()).collect(),
        Format::Blocks(format) => in_blocks(numbers, format),
    }
}

fn in_blocks(numbers: &[f32], format: BlockFormat) -> Vec<u8> {
    let mut blocks = vec![0; numbers.len() / format.numbers() * format.bytes()];
    let pieces = blocks.par_chunks_mut(format.bytes()).zip(numbers.par_chunks(format.numbers()));
    pieces.for_each(|(block, numbers)| format.quantize(numbers, None, block));
    blocks
}

/// The type of a tensor: vectors and positions stay as they are, and so do, in half precision, matrices that blocks do not fit.
fn fitting(name: &str, shape: &[usize], wanted: Format) -> Format {
    let wanted = match wanted {
        Format::Blocks(layers) if ENDS.contains(&name) => Format::Blocks(layers.of_ends()),
        other => other,
    };
    match shape {
        [_, .., width] if name != POSITIONS => {
            if wanted.row_bytes(*width).is_some() {
                wanted
            } else {
                Format::F16
            }
        }
        _ => Format::F32,
    }
}

/// Tells which matrices are not of the type that was asked for.
fn kept(planned: &[Planned], wanted: Format) -> Vec<String> {
    let others = planned.iter().filter(|tensor| tensor.format == Format::F16 && wanted != Format::F16);
    let others: Vec<&str> = others.map(|tensor| tensor.name.as_str()).collect();
    if others.is_empty() {
        return Vec::new();
    }
    let (count, numbers) = (others.len(), wanted.blocks().map_or(1, BlockFormat::numbers));
    let wanted = wanted.name();
    vec![format!(
        "{count} matrices are f16, for their rows are no multiple of the {numbers} numbers of a {wanted} block: {}",
        listed(&others)
    )]
}

fn add_general(format: Format, metadata: &mut Metadata) {
    if let Some((_, number)) = FILE_TYPES.iter().find(|(name, _)| *name == format.name()) {
        metadata.insert("general.file_type", Value::Integer((*number).into()));
    }
    if format.blocks().is_some() {
        metadata.insert("general.quantization_version", Value::Integer(BLOCKS_VERSION.into()));
    }
    let name = metadata.file().file_stem().map(|name| name.to_string_lossy().into_owned());
    if let Some(name) = name {
        metadata.insert("general.name", Value::Text(name));
    }
}

/// Numbers with a fraction as 32 bits have them.
fn rounded(value: &Json) -> Json {
    match value {
        Json::Number(number) if number.is_f64() => json!(number.as_f64().map(|number| shortest(number as f32))),
        Json::Array(values) => values.iter().map(rounded).collect(),
        Json::Object(keys) => {
            let keys: Map<String, Json> = keys.iter().map(|(key, value)| (key.clone(), rounded(value))).collect();
            Json::Object(keys)
        }
        other => other.clone(),
    }
}
