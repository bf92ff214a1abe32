//! The weights beside low-rank adapters in blocks of few bits, as `init.quantize` asks for: which of a model's matrices go into blocks, what
//! that saves, and how a model is read back that has some.
//!
//! Source: Dettmers et al. 2023, QLoRA, section 3 (<https://arxiv.org/abs/2305.14314>).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, FloatDType};
use firelight_kernels::{BlockFormat, supports_quantized_matmul};
use firelight_storage::{ModelFolder, StorageError};

use super::run::frozen;
use super::{RecipeOf, Task};
use crate::Problem;
use crate::freeze::is_frozen;
use crate::path::{Parameter, listed, parameters_of, shapes_of};

/// The formats of the matrices that go into blocks, by their paths: those that are not trained, where there are adapters. A model that has
/// blocks already tells those.
pub(super) fn of_base<T: Task>(
    recipe: &RecipeOf<T>,
    config: &T::Config,
    model: &T::Net,
) -> BTreeMap<String, BlockFormat> {
    let Some(format) = recipe.init.quantize.filter(|_| T::has_adapters(config)) else { return BTreeMap::new() };
    let (frozen, adapted) = (frozen::<T>(recipe, config, model), adapted(model));
    T::base_in_blocks(model, format, &|path: &str| is_frozen(&frozen, path) || adapted.contains(path))
}

/// The weights that have an adapter beside them, which are not trained whatever a recipe says.
pub(super) fn adapted<M: Module>(model: &M) -> BTreeSet<String> {
    let paths = shapes_of(model).into_iter().map(|(path, _)| path);
    paths.filter_map(|path| Some(format!("{}.weight", path.rsplit_once(".adapter.")?.0))).collect()
}

/// A model whose base is in the blocks that it will go into, none of which is read: to count, without the floats of the whole model in memory.
pub(super) fn planned<T: Task>(recipe: &RecipeOf<T>, config: &T::Config, device: &Device) -> T::Net {
    let model = T::model(config, recipe.seed, device);
    let names = names(of_base::<T>(recipe, config, &model));
    if names.is_empty() { model } else { T::model_in_blocks(config, recipe.seed, device, &names).unwrap_or(model) }
}

fn names(formats: BTreeMap<String, BlockFormat>) -> BTreeMap<String, String> {
    formats.into_iter().map(|(path, format)| (path, format.name().to_string())).collect()
}

/// What is wrong with a recipe that asks for blocks.
pub(super) fn problem<T: Task>(recipe: &RecipeOf<T>, config: &T::Config, device: &Device) -> Option<Problem> {
    let format = recipe.init.quantize?;
    let name = format.name();
    let text = if !T::has_adapters(config) {
        format!(
            "init.quantize = \"{name}\" needs model.adapters: weights in blocks of few bits are not trained, but low-rank adapters beside \
             them are"
        )
    } else if !supports_quantized_matmul(device) {
        format!(
            "init.quantize = \"{name}\" needs the CPU backend flex, which alone multiplies blocks: train on it, or leave init.quantize out"
        )
    } else if of_base::<T>(recipe, config, &T::model(config, recipe.seed, device)).is_empty() {
        format!(
            "init.quantize = \"{name}\": no matrix that stays as it is has rows of whole blocks, which hold {} numbers: take another \
             format, or leave init.quantize out",
            format.numbers()
        )
    } else {
        return None;
    };
    Some(Problem { key: "init.quantize".into(), text })
}

/// Numbers that lie in blocks, and the bytes of these.
pub(super) fn size<M: Module>(model: &M, formats: &BTreeMap<String, BlockFormat>) -> (usize, usize) {
    let size = |parameter: Parameter| {
        let (format, numbers) = (formats.get(&parameter.path)?, parameter.shape.iter().product::<usize>());
        Some((numbers, numbers / format.numbers() * format.bytes()))
    };
    let sizes = parameters_of(model).into_iter().filter_map(size);
    sizes.fold((0, 0), |(numbers, bytes), (more, of_these)| (numbers + more, bytes + of_these))
}

/// Notes in the run folder which weights of `model` are in blocks, and tells which of the others could not be.
pub(super) fn note<T: Task>(
    folder: &ModelFolder,
    recipe: &RecipeOf<T>,
    config: &T::Config,
    model: &T::Net,
) -> Result<(), StorageError> {
    let names = names(of_base::<T>(recipe, config, model));
    if names.is_empty() {
        return Ok(());
    }
    let (frozen, beside) = (frozen::<T>(recipe, config, model), adapted(model));
    let is_base = |path: &str| is_frozen(&frozen, path) || beside.contains(path);
    let is_kept = |(path, shape): &(String, Vec<usize>)| {
        shape.len() == 2 && path.ends_with(".weight") && !names.contains_key(path) && is_base(path)
    };
    let kept: Vec<String> = shapes_of(model).into_iter().filter(is_kept).map(|(path, _)| path).collect();
    if !kept.is_empty() {
        log::warn!(
            "init.quantize leaves floats, of routers or of rows that are not of whole blocks: {}",
            listed(&kept)
        );
    }
    folder.write_quantization(&names)
}

/// A model of a run whose weights are to be read, in blocks where those of the run are.
pub(super) fn built<T: Task>(
    folder: &ModelFolder,
    config: &T::Config,
    seed: u64,
    device: &Device,
) -> Result<T::Net, StorageError> {
    folder.build_model(|names| T::model_in_blocks(config, seed, device, names))
}

/// The model of a run with the weights of a file of it. On any device but flex blocks become floats.
pub(super) fn load<T: Task>(
    folder: &ModelFolder,
    (config, seed): (&T::Config, u64),
    weights: &Path,
    device: &Device,
) -> Result<T::Net, StorageError> {
    let build = |names: &BTreeMap<String, String>| T::model_in_blocks(config, seed, device, names);
    folder.load_model((weights, FloatDType::F32), build, |model| T::onto_device(model, device))
}
