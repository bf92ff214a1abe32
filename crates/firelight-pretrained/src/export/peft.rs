//! Low-rank adapters as the PEFT package writes them: `adapter_config.json` and `adapter_model.safetensors`, beside no model. What the adapters
//! change is named by its reader: `PeftModel.from_pretrained(model, DIR)`.
//!
//! Source: `LoraConfig` and `save_and_load.py` of PEFT 0.21, and for their products Hu et al. 2021, §4.1 (<https://arxiv.org/abs/2106.09685>).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use firelight_core::{AdapterConfig, AdapterScaling};
use firelight_storage::{InputError, Parameters, StorageError, TaskError, replace_file};
use safetensors::{Dtype, serialize_to_file};
use serde_json::{Value, json};

use super::Export;
use crate::Structure;
use crate::plan::{Table, View, Written};

/// What names begin with in a file of adapters.
const PREFIX: &str = "base_model.model.";

/// What is trained whole beside adapters.
const HEAD: &str = "head.";

/// A tensor of a file of adapters, which is small.
struct Floats {
    shape: Vec<usize>,
    numbers: Vec<f32>,
}

impl safetensors::View for &Floats {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    fn data_len(&self) -> usize {
        4 * self.numbers.len()
    }
}

impl Export<'_> {
    /// Writes the adapters, and the head where it was trained with them.
    pub(super) fn adapters(
        &self,
        structure: &Structure,
        config: &AdapterConfig,
        table: &Table,
        parameters: &Parameters,
    ) -> Result<(), TaskError> {
        let shapes = parameters.shapes();
        let base: BTreeMap<_, _> = shapes
            .iter()
            .filter(|(path, _)| !path.contains(".adapter."))
            .map(|(path, shape)| (path.clone(), shape.clone()))
            .collect();
        let written = table.written(&base).map_err(|path| self.lost(&path))?;
        let (mut tensors, mut modules, mut whole) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        for layer in shapes.keys().filter_map(|path| path.strip_suffix(".adapter.down")) {
            let tensor = of_layer(&written, &format!("{layer}.weight")).ok_or_else(|| self.lost(layer))?;
            let module = tensor.name.trim_end_matches(".weight");
            for (name, floats) in products(parameters, layer)? {
                tensors.insert(format!("{PREFIX}{module}.{name}"), floats);
            }
            if config.decomposed {
                let lengths = lengths(parameters, layer)?;
                tensors.insert(
                    format!("{PREFIX}{module}.lora_magnitude_vector.weight"),
                    Floats { shape: vec![lengths.len()], numbers: lengths },
                );
            }
            modules.insert(module.to_string());
        }
        for tensor in written.iter().filter(|tensor| tensor.parts.iter().all(|part| part.path.starts_with(HEAD))) {
            let Some((module, _)) = tensor.name.rsplit_once('.') else { continue };
            whole.insert(module.to_string());
            let numbers = super::write::numbers(tensor, parameters)?;
            tensors.insert(format!("{PREFIX}{}", tensor.name), Floats { shape: tensor.shape.clone(), numbers });
        }
        self.make_folder()?;
        self.tensors(&tensors)?;
        self.json("adapter_config.json", &keys(structure, config, &modules, &whole))
    }

    fn tensors(&self, tensors: &BTreeMap<String, Floats>) -> Result<(), TaskError> {
        let path = self.to.join("adapter_model.safetensors");
        let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
        Ok(replace_file(&path, |temporary| {
            let written = serialize_to_file(tensors.iter(), Some(metadata), temporary);
            written.map_err(|error| StorageError::io("write", &path)(std::io::Error::other(error.to_string())))
        })?)
    }

    fn lost(&self, path: &str) -> InputError {
        let problem =
            format!("describes adapters of `{path}`, which is a part of a larger matrix in the published family");
        InputError::in_file(&self.run.config(), problem).advise("merge them into the model: firelight merge")
    }
}

/// The tensor that a matrix is, transposed or not; none where it is a part of one.
fn of_layer<'a>(written: &'a [Written], path: &str) -> Option<&'a Written> {
    let is_whole = |tensor: &&Written| {
        let whole = View::whole(&tensor.shape);
        matches!(&tensor.parts[..], [part] if part.path == path && (part.view == whole || part.view == whole.transposed()))
    };
    written.iter().find(is_whole)
}

/// `lora_A` and `lora_B`: ours transposed.
fn products(parameters: &Parameters, layer: &str) -> Result<[(&'static str, Floats); 2], StorageError> {
    let [down, up] = ["down", "up"].map(|name| transposed(parameters, &format!("{layer}.adapter.{name}")));
    Ok([("lora_A.weight", down?), ("lora_B.weight", up?)])
}

fn transposed(parameters: &Parameters, path: &str) -> Result<Floats, StorageError> {
    let data = parameters.read(path)?;
    let ([rows, columns], numbers) = (data.shape().dims::<2>(), data.iter().collect::<Vec<f32>>());
    let turned = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    Ok(Floats { shape: vec![columns, rows], numbers: turned.map(|place| numbers[place]).collect() })
}

/// The lengths of the columns: ours are multiples of those of the weight.
fn lengths(parameters: &Parameters, layer: &str) -> Result<Vec<f32>, StorageError> {
    let multiples: Vec<f32> = parameters.read(&format!("{layer}.adapter.magnitude"))?.iter().collect();
    let weight: Vec<f32> = parameters.read(&format!("{layer}.weight"))?.iter().collect();
    let length = |column: usize| {
        weight.iter().skip(column).step_by(multiples.len()).map(|number| number * number).sum::<f32>().sqrt()
    };
    Ok(multiples.iter().enumerate().map(|(column, multiple)| multiple * length(column)).collect())
}

fn keys(structure: &Structure, config: &AdapterConfig, modules: &BTreeSet<String>, whole: &BTreeSet<String>) -> Value {
    json!({
        "peft_type": "LORA",
        "task_type": task(structure),
        "base_model_name_or_path": null,
        "inference_mode": true,
        "r": config.rank,
        "lora_alpha": config.alpha.unwrap_or(config.rank as f64),
        "lora_dropout": config.dropout,
        "use_rslora": config.scaling == AdapterScaling::RankStabilized,
        "use_dora": config.decomposed,
        "bias": "none",
        "fan_in_fan_out": false,
        "target_modules": modules,
        "modules_to_save": (!whole.is_empty()).then_some(whole),
    })
}

fn task(structure: &Structure) -> Option<&'static str> {
    Some(match structure {
        Structure::Language(_) => "CAUSAL_LM",
        Structure::Seq2Seq(_) => "SEQ_2_SEQ_LM",
        Structure::Sequence(_) => "SEQ_CLS",
        Structure::Token(_) => "TOKEN_CLS",
        Structure::Span(_) => "QUESTION_ANS",
        Structure::Encoder(_) => "FEATURE_EXTRACTION",
        _ => return None,
    })
}
