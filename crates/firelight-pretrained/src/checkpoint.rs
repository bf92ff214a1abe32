//! A published checkpoint: what it is, where its parameters lie, and how it becomes a model or a run folder.

use std::fs;
use std::path::Path;

use burn::tensor::{Device, FloatDType};
use firelight_core::WeightEntry;
use firelight_data::{ChatTemplate, SpecialRole, Tokenizer};
use firelight_generation::GenerationDefaults;
use firelight_language::write_formats;
use firelight_storage::{
    Checkpoint, InputError, ModelFolder, StorageError, TaskError, listed, shortened, write_atomic, write_json,
};

use crate::export::{Export, MARIAN};
use crate::family::{Description, describe};
use crate::generation;
use crate::gguf::{Format, chat_template_of};
use crate::recipe::recipe;
use crate::sentence::with_modules;
use crate::{AutoModel, HubFolder, Plan, Structure, Weights};

/// A checkpoint whose headers have been read and fit.
///
/// ```no_run
/// use burn::tensor::Device;
/// use firelight_pretrained::{AutoModel, PublishedModel};
///
/// let checkpoint = PublishedModel::open("gpt2")?;
/// let AutoModel::Language(model) = checkpoint.load(&Device::flex())? else { panic!("no language model") };
/// println!("{}", model.vocab_size());
/// # Ok::<(), firelight_storage::TaskError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PublishedModel {
    folder: HubFolder,
    structure: Structure,
    plan: Plan,
    weights: Weights,
}

impl PublishedModel {
    /// Opens a folder, or a GGUF file, and finds every parameter of its model; no weight is read yet.
    ///
    /// # Errors
    /// If the family is not known, `config.json` says something that is not known, a file is missing or damaged, or the tensors are not
    /// those that `config.json` describes: all that does not fit is listed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TaskError> {
        let folder = HubFolder::open(path)?;
        let Description { mut structure, mut table } = describe(&folder)?;
        let mut weights = folder.weights()?;
        if let Structure::Encoder(model) = structure {
            let modules = with_modules(model, &folder)?;
            table.rows.extend(modules.rows);
            modules.folders.iter().try_for_each(|name| weights.add_module(folder.path(), name))?;
            structure = Structure::Encoder(modules.config);
        }
        structure.fit_to_tensors(|path| table.has(path, &weights));
        check_layers(&folder, &structure, &weights)?;
        TaskError::in_config(&folder.config_path(), &structure.problems())?;
        let plan = Plan::new(&table, &structure.parameters(), &folder, &weights)?;
        Ok(Self { folder, structure, plan, weights })
    }

    /// What it is.
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// Where its parameters lie.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// One line for every tensor: its place in the model, and what is done to it.
    pub fn report(&self) -> Vec<String> {
        self.plan.report(&self.weights)
    }

    /// The model with its weights on a device, as 32-bit floats.
    ///
    /// # Errors
    /// If a weight is NaN or infinite, or a file cannot be read any more.
    pub fn load(&self, device: &Device) -> Result<AutoModel, TaskError> {
        self.load_in(device, FloatDType::F32)
    }

    /// As [`load`](Self::load), as numbers of another type, in which a language model then computes: half precision takes half the memory.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_in(&self, device: &Device, dtype: FloatDType) -> Result<AutoModel, TaskError> {
        Ok(self.structure.load(&self.plan, &self.weights, device, dtype)?)
    }

    /// The tokenizer, where the folder has one: `tokenizer.json`, or a vocabulary from before it.
    ///
    /// # Errors
    /// If it cannot be read, or knows more tokens than the model.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, TaskError> {
        if let Some(gguf) = self.folder.gguf() {
            return gguf.tokenizer();
        }
        self.fitting(Tokenizer::of_folder(self.folder.path())?)
    }

    /// How its makers want it decoded: `generation_config.json`, or the same keys in `config.json`.
    ///
    /// # Errors
    /// If a file cannot be read, or a key has a value of another kind.
    pub fn generation(&self) -> Result<GenerationDefaults, TaskError> {
        Ok(generation::defaults(&self.folder)?)
    }

    /// How it reads conversations, where it does.
    ///
    /// # Errors
    /// If a file cannot be read, or the template is no Jinja.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, TaskError> {
        if let Some(gguf) = self.folder.gguf() {
            return chat_template_of(gguf.metadata());
        }
        Ok(ChatTemplate::of_folder(self.folder.path())?)
    }

    /// Writes an ordinary run folder, which every command reads. Matrices of a language model that a GGUF file has in blocks stay so, and
    /// such a folder is for inference alone: [`import_floats`](Self::import_floats) writes one to train.
    ///
    /// # Errors
    /// If the folder is not empty, a file cannot be written, a weight is NaN or infinite, there is no tokenizer, or it knows more tokens than
    /// the model.
    pub fn import(&self, out: impl AsRef<Path>) -> Result<ModelFolder, TaskError> {
        self.write(out.as_ref(), &self.structure.matrices())
    }

    /// What is worth telling of an [`import`](Self::import): of a model in blocks, which matrices stay floats, because the file has no blocks of
    /// them, or none of which each row is a whole number.
    ///
    /// ```no_run
    /// use firelight_pretrained::PublishedModel;
    ///
    /// let model = PublishedModel::open("qwen2-q4_k.gguf")?;
    /// model.import("runs/qwen2")?;
    /// model.import_notes().iter().for_each(|note| println!("{note}"));
    /// # Ok::<(), firelight_storage::TaskError>(())
    /// ```
    pub fn import_notes(&self) -> Vec<String> {
        let matrices = self.structure.matrices();
        let floats = self.plan.floats(&self.weights, &matrices);
        let count = floats.len();
        let note =
            || format!("{count} of {} matrices are not in blocks and stay floats: {}", matrices.len(), listed(&floats));
        (0 < count && count < matrices.len()).then(note).into_iter().collect()
    }

    /// As [`import`](Self::import), with all numbers as floats: those in blocks become 32-bit floats.
    ///
    /// # Errors
    /// As [`import`](Self::import).
    pub fn import_floats(&self, out: impl AsRef<Path>) -> Result<ModelFolder, TaskError> {
        self.write(out.as_ref(), &[])
    }

    /// Writes a run folder; `matrices` may be in blocks.
    fn write(&self, out: &Path, matrices: &[WeightEntry]) -> Result<ModelFolder, TaskError> {
        let source = self.fitting(Tokenizer::of_source(self.folder.path())?)?;
        let tokenizer = self.own_tokenizer()?;
        let (generation, chat) = (self.generation()?, self.chat_template()?);
        if tokenizer.is_none() && self.structure.reads_text() {
            let problem =
                "holds neither tokenizer.json nor another tokenizer, without which nothing can be read or written";
            return Err(InputError::in_file(self.folder.path(), problem).advise("download it, too").into());
        }
        ModelFolder::create_whole(out, |folder| {
            tokenizer.map_or(Ok(()), |tokenizer| tokenizer.save(folder.tokenizer()))?;
            source.map_or(Ok(()), |tokenizer| tokenizer.save(folder.source_tokenizer()))?;
            self.keep_pair(folder)?;
            chat.map_or(Ok(()), |chat| chat.save(folder.path()))?;
            if self.structure.writes_text() {
                write_json(folder.generation(), &generation)?;
            }
            let weights = folder.weights_path(&Checkpoint::Last);
            write_formats(folder, &self.plan.save_in_blocks(&self.weights, &weights, matrices)?)?;
            write_atomic(folder.recipe(), recipe(&self.structure))?;
            // Last, for it makes the folder one of a model.
            Ok(self.structure.write(folder)?)
        })
    }
}

impl PublishedModel {
    /// Keeps Marian's files of two tokenizers, which an export gives back.
    fn keep_pair(&self, run: &ModelFolder) -> Result<(), StorageError> {
        let found = MARIAN.map(|name| (name, self.folder.path().join(name)));
        if self.folder.model_type() != Some("marian") || found.iter().any(|(_, path)| !path.is_file()) {
            return Ok(());
        }
        found.iter().try_for_each(|(name, path)| {
            fs::copy(path, run.path().join(name)).map(drop).map_err(StorageError::io("copy", path))
        })
    }

    /// A tokenizer of the folder, of whose tokens the model has a vector each.
    fn fitting(&self, tokenizer: Option<Tokenizer>) -> Result<Option<Tokenizer>, TaskError> {
        let Some((tokenizer, size)) = tokenizer.zip(self.structure.vocab_size()) else { return Ok(None) };
        let tokenizer = tokenizer.without_added_from(size)?;
        tokenizer.fits(size, &self.folder.config_path())?;
        Ok(Some(tokenizer))
    }

    /// The tokenizer, knowing what every target of a model with encoder and decoder begins and ends with.
    fn own_tokenizer(&self) -> Result<Option<Tokenizer>, TaskError> {
        let (Structure::Seq2Seq(model), Some(tokenizer)) = (&self.structure, self.tokenizer()?) else {
            return self.tokenizer();
        };
        let end = self.generation()?.end_tokens().first().copied();
        let roles = [(SpecialRole::Begin, Some(model.start_token)), (SpecialRole::End, end)];
        let known =
            roles.into_iter().filter_map(|(role, id)| Some((role, id.filter(|&id| tokenizer.token(id).is_some())?)));
        let known: Vec<_> = known.collect();
        Ok(Some(known.into_iter().try_fold(tokenizer, |tokenizer, (role, id)| tokenizer.with_role(role, id))?))
    }
}

/// Writes the model of a run folder into a new folder, as Hugging Face has it: `config.json`, `model.safetensors` and the files of the
/// tokenizer. Returns what is worth telling: what `transformers` reads in another way.
///
/// # Errors
/// If the model has adapters, no published family has its structure, the folder is not empty, or a file cannot be read or written.
pub fn export(run: impl AsRef<Path>, checkpoint: &Checkpoint, to: impl AsRef<Path>) -> Result<Vec<String>, TaskError> {
    let run = ModelFolder::open(run)?;
    let weights = run.weights(checkpoint)?;
    Export { run: &run, weights: &weights, to: to.as_ref() }.write()
}

/// Writes the model of a run folder into one GGUF file, with its tokenizer and chat template. Matrices get the type `dtype`: f32, f16,
/// bf16, q8_0, q4_0, q4_k (the embedding and the head then q6_k) or q6_k; all else stays f32. Returns what is worth telling: matrices whose
/// rows no whole number of blocks holds, which are f16, a tokenizer that llama.cpp has none of, and what llama.cpp reads in another way
/// than the file says it.
///
/// # Errors
/// If the type is unknown, the model has adapters, GGUF has no architecture for it or cannot say a detail of it, there is a file already,
/// or a file cannot be read or written.
pub fn export_gguf(
    run: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    to: impl AsRef<Path>,
    dtype: &str,
) -> Result<Vec<String>, TaskError> {
    let format = Format::all().into_iter().find(|format| format.name().eq_ignore_ascii_case(dtype));
    let format = format.ok_or_else(|| {
        let known: Vec<&str> = Format::all().into_iter().map(Format::name).collect();
        let problem = format!("there is no type `{}` of weights in GGUF files", shortened(dtype));
        InputError::new(problem).advise(format!("known are {}", known.join(", ")))
    })?;
    let run = ModelFolder::open(run)?;
    let weights = run.weights(checkpoint)?;
    Export { run: &run, weights: &weights, to: to.as_ref() }.write_gguf(format)
}

/// A model is built before its tensors are compared: a number of layers or experts that no file could hold is not.
fn check_layers(folder: &HubFolder, structure: &Structure, weights: &Weights) -> Result<(), InputError> {
    let stacks = structure.stacks();
    let parts = stacks.iter().flat_map(|stack| &stack.layers);
    let experts = parts.filter_map(|layer| layer.block.experts).map(|experts| experts.n_experts).max();
    let layers = stacks.iter().map(|stack| stack.n_layers).max().unwrap_or_default();
    let tensors = weights.names().count();
    // Experts are tensors of their own, or lie in the first axis of one.
    let rows = weights.names().filter_map(|name| weights.info(name)?.shape.first().copied());
    let most = rows.fold(tensors, usize::saturating_add);
    let found = match experts.map(|experts| experts.saturating_mul(layers)) {
        _ if layers > tensors => format!("{layers} layers"),
        Some(experts) if experts > most => format!("{experts} experts in all layers"),
        _ => return Ok(()),
    };
    let problem = format!("describes {found}, but the weights beside it are {tensors} tensors");
    Err(InputError::in_file(&folder.config_path(), problem).advise("download both again, from one place"))
}
