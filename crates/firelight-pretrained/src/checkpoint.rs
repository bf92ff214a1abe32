//! A published checkpoint: what it is, where its parameters lie, and how it becomes a model or a run folder.

use std::path::Path;

use burn::tensor::Device;
use firelight_data::Tokenizer;
use firelight_storage::{Checkpoint, Existing, InputError, ModelFolder, TaskError, write_atomic};

use crate::export::Export;
use crate::family::{Description, describe};
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
    /// Opens a folder and finds every parameter of its model; no weight is read yet.
    ///
    /// # Errors
    /// If the family is not known, `config.json` says something that is not known, a file is missing or damaged, or the tensors are not
    /// those that `config.json` describes: all that does not fit is listed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TaskError> {
        let folder = HubFolder::open(path)?;
        let Description { mut structure, table } = describe(&folder)?;
        if let Structure::Encoder(model) = structure {
            structure = Structure::Encoder(with_modules(model, &folder)?);
        }
        let weights = folder.weights()?;
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

    /// The model with its weights on a device.
    ///
    /// # Errors
    /// If a weight is NaN or infinite, or a file cannot be read any more.
    pub fn load(&self, device: &Device) -> Result<AutoModel, TaskError> {
        Ok(self.structure.load(&self.plan, &self.weights, device)?)
    }

    /// The tokenizer, where the folder has one: `tokenizer.json`, or a vocabulary from before it.
    ///
    /// # Errors
    /// If it cannot be read, or knows more tokens than the model.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, TaskError> {
        Ok(Tokenizer::of_folder(self.folder.path())?)
    }

    /// Writes an ordinary run folder, which every command reads.
    ///
    /// # Errors
    /// If the folder is not empty, a file cannot be written, a weight is NaN or infinite, or there is no tokenizer.
    pub fn import(&self, out: impl AsRef<Path>) -> Result<ModelFolder, TaskError> {
        let tokenizer = self.tokenizer()?;
        if tokenizer.is_none() && self.structure.reads_text() {
            let problem = "holds neither tokenizer.json nor a vocabulary, without which nothing can be read or written";
            return Err(InputError::in_file(self.folder.path(), problem).advise("download it, too").into());
        }
        let folder = ModelFolder::create(out, Existing::Refuse)?;
        tokenizer.map_or(Ok(()), |tokenizer| tokenizer.save(folder.tokenizer()))?;
        self.plan.save(&self.weights, &folder.weights_path(&Checkpoint::Last))?;
        write_atomic(folder.recipe(), recipe(&self.structure))?;
        // Last, for it makes the folder one of a model.
        self.structure.write(&folder)?;
        Ok(folder)
    }
}

/// Writes the model of a run folder into a new folder, as Hugging Face has it: `config.json`, `model.safetensors` and the files of the
/// tokenizer.
///
/// # Errors
/// If the model has adapters, no published family has its structure, the folder is not empty, or a file cannot be read or written.
pub fn export(run: impl AsRef<Path>, checkpoint: &Checkpoint, to: impl AsRef<Path>) -> Result<(), TaskError> {
    let run = ModelFolder::open(run)?;
    let weights = run.weights(checkpoint)?;
    Export { run: &run, weights: &weights, to: to.as_ref() }.write()
}

/// A model is built before its tensors are compared: a number of layers or experts that no file could hold is not.
fn check_layers(folder: &HubFolder, structure: &Structure, weights: &Weights) -> Result<(), InputError> {
    let stack = structure.stack();
    let experts = stack.layers.iter().filter_map(|layer| layer.block.experts).map(|experts| experts.n_experts).max();
    let (layers, tensors) = (stack.n_layers, weights.names().count());
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
