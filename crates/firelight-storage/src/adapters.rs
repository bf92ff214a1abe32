//! The parameters of low-rank adapters in a file of their own, and those of the model without them. Which is which tells the
//! path: those of adapters have `.adapter.` in it.

use std::path::Path;

use burn::module::Module;
use burn::store::{ModuleSnapshot, PathFilter};
use burn::tensor::FloatDType;

use crate::StorageError;
use crate::weights::{load_where, save_where};

/// In the path of every parameter of an adapter.
const ADAPTER: &str = ".adapter.";

/// Whether a parameter with this path is one of an adapter.
pub fn is_adapter_path(path: &str) -> bool {
    path.contains(ADAPTER)
}

fn is_adapter(path: &str, _container: &str) -> bool {
    is_adapter_path(path)
}

pub(crate) fn is_base(path: &str, _container: &str) -> bool {
    !is_adapter_path(path)
}

/// Whether `model` has an adapter.
pub fn has_adapters<M: Module>(model: &M) -> bool {
    !model.collect(Some(PathFilter::from_predicate(is_adapter)), None, true).is_empty()
}

/// Writes the adapters of `model` alone, replacing a file that is there: a small file beside the model that they change.
///
/// # Errors
/// Returns an error naming `path` if the file cannot be written; an older file is then untouched.
pub fn save_adapters<M: Module>(model: &M, path: impl AsRef<Path>) -> Result<(), StorageError> {
    save_where(model, path.as_ref(), is_adapter)
}

/// Reads the adapters of `model` from `path`, which [`save_adapters`] wrote; everything else stays as it is.
///
/// # Errors
/// As [`load_weights`](crate::load_weights): the file must hold all parameters of all adapters, and nothing else.
pub fn load_adapters<M: Module>(model: &mut M, path: impl AsRef<Path>) -> Result<(), StorageError> {
    load_where(model, path.as_ref(), FloatDType::F32, is_adapter)
}

/// Writes `model` without its adapters, as [`save_weights`](crate::save_weights) writes one that has none. After the adapters are
/// merged into the weights, that is the whole model.
///
/// # Errors
/// Returns an error naming `path` if the file cannot be written; an older file is then untouched.
pub fn save_base<M: Module>(model: &M, path: impl AsRef<Path>) -> Result<(), StorageError> {
    save_where(model, path.as_ref(), is_base)
}

/// Reads a model without adapters into one that has some, which stay as they are.
///
/// # Errors
/// As [`load_weights`](crate::load_weights): the file must hold everything but the adapters.
pub fn load_base<M: Module>(model: &mut M, path: impl AsRef<Path>) -> Result<(), StorageError> {
    load_where(model, path.as_ref(), FloatDType::F32, is_base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load_weights, save_weights};
    use burn::module::Param;
    use burn::tensor::{Device, Tensor};

    #[derive(Module, Debug)]
    struct Adapter {
        down: Param<Tensor<2>>,
    }

    #[derive(Module, Debug)]
    struct Layer {
        weight: Param<Tensor<2>>,
        adapter: Option<Adapter>,
    }

    #[derive(Module, Debug)]
    struct Model {
        layers: Vec<Layer>,
    }

    /// Two layers; the second has an adapter if `adapted`.
    fn model(value: f32, adapted: bool) -> Model {
        let full = |shape, value| Param::from_tensor(Tensor::<2>::full(shape, value, &Device::default()));
        let adapter = adapted.then(|| Adapter { down: full([2, 1], value + 0.5) });
        let layer = |adapter| Layer { weight: full([2, 3], value), adapter };
        Model { layers: vec![layer(None), layer(adapter)] }
    }

    /// The weight of both layers and the adapter's.
    fn values(model: &Model) -> [f32; 3] {
        let first = |param: &Param<Tensor<2>>| param.val().into_data().iter::<f32>().next().unwrap();
        let [one, two] = &model.layers[..] else { panic!("two layers") };
        [first(&one.weight), first(&two.weight), two.adapter.as_ref().map_or(0.0, |adapter| first(&adapter.down))]
    }

    #[test]
    fn adapters_are_saved_alone_and_loaded_beside_any_base() {
        let home = tempfile::tempdir().unwrap();
        let [adapters, base, plain] = ["adapters", "base", "plain"].map(|name| home.path().join(name));
        save_adapters(&model(1.0, true), &adapters).unwrap();
        save_base(&model(2.0, true), &base).unwrap();
        save_weights(&model(2.0, false), &plain).unwrap();
        assert_eq!(std::fs::read(&base).unwrap(), std::fs::read(&plain).unwrap(), "a model that has no adapters");

        let mut loaded = model(9.0, true);
        load_base(&mut loaded, &plain).unwrap();
        assert_eq!(values(&loaded), [2.0, 2.0, 9.5]);
        load_adapters(&mut loaded, &adapters).unwrap();
        assert_eq!(values(&loaded), [2.0, 2.0, 1.5]);
    }

    #[test]
    fn a_model_knows_its_adapters() {
        assert!(has_adapters(&model(1.0, true)) && !has_adapters(&model(1.0, false)));
    }

    #[test]
    fn files_of_the_other_sort_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let [adapters, base] = ["adapters", "base"].map(|name| home.path().join(name));
        save_adapters(&model(1.0, true), &adapters).unwrap();
        save_base(&model(1.0, true), &base).unwrap();
        let error = load_adapters(&mut model(0.0, true), &base).unwrap_err().to_string();
        assert!(error.contains("1 missing in the file (layers.1.adapter.down)"), "{error}");
        let error = load_base(&mut model(0.0, true), &adapters).unwrap_err().to_string();
        assert!(error.contains("2 missing in the file (layers.0.weight, layers.1.weight)"), "{error}");
        assert!(load_weights(&mut model(0.0, true), &base).is_err(), "a whole model has its adapters");
    }
}
