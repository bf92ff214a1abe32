//! The parameters of a Burn module as a safetensors file, the field's common format. Trainers save, everything that needs
//! a trained model loads. Written by Burn's `SafetensorsStore`, made reproducible, and read strictly.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param};
use burn::store::{ApplyError, ApplyResult, ModuleSnapshot, SafetensorsStore, burn_pack};
use burn::tensor::{DType, FloatDType, Int, Tensor};

use crate::folder::quantization::not_floats;
use crate::tensors::map_tensors;
use crate::{InputError, StorageError, atomic, shortened_reason};

/// Writes the parameters of `model` to `path`, replacing a file that is there.
///
/// Keys are the paths of the parameters through the module, without the names of enum variants:
/// `blocks.0.attention.projection.query.weight`. Equal weights give equal bytes.
///
/// # Errors
/// Returns an error naming `path` if the file cannot be written; an older file is then untouched.
pub fn save_weights<M: Module>(model: &M, path: impl AsRef<Path>) -> Result<(), StorageError> {
    save_where(model, path.as_ref(), |_, _| true)
}

/// Writes the parameters whose path and container are to be kept.
pub(crate) fn save_where<M: Module>(model: &M, path: &Path, keeps: fn(&str, &str) -> bool) -> Result<(), StorageError> {
    atomic::replace_file(path, |temporary| {
        // Burn writes its metadata in an order that changes from run to run, so the file carries none.
        let store = SafetensorsStore::from_file(temporary).clear_metadata().skip_enum_variants(true);
        let mut store = store.with_predicate(keeps);
        model
            .save_into(&mut store)
            .map_err(|error| StorageError::io("write the weights", path)(io::Error::other(one_line(&error))))
    })
}

/// Reads the parameters of `model` from `path`, as 32-bit floats, onto the devices the parameters are on.
///
/// The parameters keep their ids, so an optimizer that knows them still does.
///
/// # Errors
/// Returns an error naming `path` if it cannot be read, is no whole safetensors file, or lacks keys of the model, holds
/// others, or holds some in another shape; `model` may then hold a part of the file's weights.
pub fn load_weights<M: Module>(model: &mut M, path: impl AsRef<Path>) -> Result<(), StorageError> {
    load_weights_in(model, path, FloatDType::F32)
}

/// As [`load_weights`], as numbers of another type. Of a file in that type nothing is cast; of any other each number is rounded on its way from
/// the file, so that no tensor is in memory in two types.
///
/// # Errors
/// As [`load_weights`].
pub fn load_weights_in<M: Module>(
    model: &mut M,
    path: impl AsRef<Path>,
    dtype: FloatDType,
) -> Result<(), StorageError> {
    load_where(model, path.as_ref(), dtype, |_, _| true)
}

/// Reads the parameters whose path and container are wanted; the file must hold no others.
pub(crate) fn load_where<M: Module>(
    model: &mut M,
    path: &Path,
    dtype: FloatDType,
    wants: fn(&str, &str) -> bool,
) -> Result<(), StorageError> {
    let tensors = map_tensors(path, dtype.into())?;
    let other_integers = no_blocks(model, &tensors);
    let mut result = model.apply(tensors.into_values().collect(), None, None, true);
    result.errors.extend(other_integers);
    let unwanted: Vec<String> = result.applied.iter().filter(|key| !wants(key, "")).cloned().collect();
    let missing = result.missing.into_iter().filter(|(key, _)| wants(key, "")).collect();
    check(path, ApplyResult { missing, unused: [result.unused, unwanted].concat(), ..result })
}

/// The tensors of a file that are integers of another type than those of the blocks in whose place they stand: Burn takes any integers.
fn no_blocks<M: Module>(model: &M, tensors: &BTreeMap<String, burn_pack::Tensor>) -> Vec<ApplyError> {
    let mut blocks = Blocks::default();
    model.visit(&mut blocks);
    let is_other = |dtype: DType| dtype != DType::U8 && (dtype.is_int() || dtype.is_uint());
    let wrong = tensors.iter().filter(|(path, tensor)| blocks.found.contains(*path) && is_other(tensor.dtype));
    let error = |(path, tensor): (&String, &burn_pack::Tensor)| ApplyError::DTypeMismatch {
        path: path.clone(),
        expected: DType::U8,
        found: tensor.dtype,
    };
    wrong.map(error).collect()
}

/// The container of a parameter in blocks of few bits on the way of a visitor, as `firelight-core` has it.
const BLOCKS: &str = "Enum:Blocks";

/// The paths of the parameters in blocks of few bits, none of which is made for it.
#[derive(Default)]
struct Blocks {
    path: Vec<String>,
    are_entered: bool,
    found: BTreeSet<String>,
}

impl ModuleVisitor for Blocks {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.are_entered = container == BLOCKS;
        if !container.starts_with("Enum:") {
            self.path.push(name.into());
        }
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.are_entered = false;
        if !container.starts_with("Enum:") {
            self.path.pop();
        }
    }

    fn visit_int<const D: usize>(&mut self, _param: &Param<Tensor<D, Int>>) {
        if self.are_entered {
            self.found.insert(self.path.join("."));
        }
    }
}

/// Makes sure that `path` is a whole safetensors file, without a model to load it into.
///
/// # Errors
/// Returns an error naming `path` if it cannot be read or is no whole safetensors file.
pub fn check_weights(path: impl AsRef<Path>) -> Result<(), StorageError> {
    map_tensors(path.as_ref(), DType::F32).map(drop)
}

/// Returns a converter of the reader's errors, for `map_err`.
pub(crate) fn not_weights<E: ToString>(path: &Path, size: u64) -> impl FnOnce(E) -> StorageError {
    move |error| {
        let reason = shortened_reason(&one_line(&error));
        let problem = format!("is no whole safetensors file ({size} bytes): {reason}");
        let advice = "it was cut short or is of another kind, so copy it again or take another checkpoint";
        InputError::in_file(path, problem).advise(advice).into()
    }
}

/// Refuses anything but a file whose keys and shapes are those of the model.
fn check(path: &Path, result: ApplyResult) -> Result<(), StorageError> {
    if let Some(parameter) = result.errors.iter().find_map(in_blocks) {
        return Err(not_floats(path, parameter).into());
    }
    let missing: Vec<String> = result.missing.into_iter().map(|(key, _)| key).collect();
    let wrong: Vec<String> = result.errors.iter().map(describe).collect();
    if missing.is_empty() && wrong.is_empty() && result.unused.is_empty() {
        return Ok(());
    }
    Err(StorageError::WeightsMismatch { path: path.into(), missing, unused: result.unused, wrong })
}

/// The key of a tensor of bytes where floats are expected.
fn in_blocks(error: &ApplyError) -> Option<&str> {
    match error {
        ApplyError::DTypeMismatch { path, expected, found: DType::U8 } if expected.is_float() => Some(path.as_str()),
        _ => None,
    }
}

/// Says in a few words why the tensor of one key was not taken.
fn describe(error: &ApplyError) -> String {
    match error {
        ApplyError::ShapeMismatch { path, expected, found } => {
            format!("{path} (expected {:?}, found {:?})", &expected[..], &found[..])
        }
        ApplyError::DTypeMismatch { path, expected, found } if expected.is_int() && found.is_float() => {
            format!(
                "{path} (expected blocks of few bits, found {found:?}: this is not the file that quantization.json is for)"
            )
        }
        ApplyError::DTypeMismatch { path, expected: DType::U8, found } => {
            format!("{path} (expected blocks of few bits, bytes of the type U8, found {found:?})")
        }
        ApplyError::DTypeMismatch { path, expected, found } => {
            format!("{path} (expected {expected:?}, found {found:?})")
        }
        ApplyError::AdapterError { path, message } | ApplyError::LoadError { path, message } => {
            format!("{path} ({message})")
        }
    }
}

/// Burn's message on one line.
fn one_line(error: &impl ToString) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use std::fs;

    #[derive(Module, Debug)]
    struct Layer {
        weight: Param<Tensor<2>>,
        bias: Option<Param<Tensor<1>>>,
    }

    #[derive(Module, Debug)]
    enum Choice {
        Plain(Layer),
    }

    #[derive(Module, Debug)]
    struct Model {
        layers: Vec<Layer>,
        choice: Choice,
    }

    fn layer(value: f32, width: usize, device: &Device) -> Layer {
        Layer {
            weight: Param::from_tensor(Tensor::full([2, width], value, device)),
            bias: Some(Param::from_tensor(Tensor::full([width], value + 0.5, device))),
        }
    }

    fn model(value: f32, width: usize) -> Model {
        let device = Device::default();
        Model { layers: vec![layer(value, width, &device)], choice: Choice::Plain(layer(-value, 3, &device)) }
    }

    fn values(model: &Model) -> Vec<f32> {
        let Choice::Plain(chosen) = &model.choice;
        [&model.layers[0].weight, &chosen.weight]
            .into_iter()
            .flat_map(|weight| weight.val().into_data().try_to_vec::<f32>().unwrap())
            .collect()
    }

    /// The message of loading a file into a model of width 3.
    fn load_text(path: &Path) -> String {
        let error = load_weights(&mut model(0.0, 3), path).unwrap_err();
        assert!(error.is_user_error());
        error.to_string()
    }

    /// The same without the folder's name.
    fn load_error(path: &Path) -> String {
        load_text(path).replace(&format!("{}/", path.parent().unwrap().display()), "")
    }

    #[test]
    fn weights_and_ids_round_trip() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        save_weights(&model(1.0, 3), &path).unwrap();

        let plain = home.path().join("plain");
        fs::write(&plain, "").unwrap();
        let [found, usual] = [&path, &plain].map(|path| fs::metadata(path).unwrap().permissions());
        assert_eq!(found, usual, "whoever may read the other files of a run may load its model");

        let mut loaded = model(9.0, 3);
        let id = loaded.layers[0].weight.id;
        load_weights(&mut loaded, &path).unwrap();
        assert_eq!(values(&loaded), values(&model(1.0, 3)));
        assert_eq!(loaded.layers[0].weight.id, id);
    }

    #[test]
    fn equal_weights_give_equal_bytes_under_plain_keys() {
        let home = tempfile::tempdir().unwrap();
        let [first, second] = ["a", "b"].map(|name| home.path().join(name));
        save_weights(&model(1.0, 3), &first).unwrap();
        save_weights(&model(1.0, 3), &second).unwrap();
        let bytes = fs::read(&first).unwrap();
        assert_eq!(bytes, fs::read(&second).unwrap());

        let header = String::from_utf8_lossy(&bytes);
        for key in ["layers.0.weight", "layers.0.bias", "choice.weight", "choice.bias"] {
            assert!(header.contains(&format!("\"{key}\"")), "{header}");
        }
    }

    #[test]
    fn keys_that_differ_are_listed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        let mut other = model(1.0, 4);
        other.choice = Choice::Plain(Layer { bias: None, ..layer(1.0, 3, &Device::default()) });
        other.layers.push(layer(1.0, 3, &Device::default()));
        save_weights(&other, &path).unwrap();
        assert_eq!(
            load_error(&path),
            "`model.safetensors` does not fit the model: 1 missing in the file (choice.bias), \
             2 unknown to the model (layers.1.bias, layers.1.weight), \
             2 of another shape or type (layers.0.weight (expected [2, 3], found [2, 4]), \
             layers.0.bias (expected [3], found [4])); was it written with another config.json?"
        );
    }

    #[test]
    fn truncated_foreign_and_missing_files_are_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        save_weights(&model(1.0, 3), &path).unwrap();
        check_weights(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        for cut in [0, 5, 40, bytes.len() - 1] {
            fs::write(&path, &bytes[..cut]).unwrap();
            let message = load_error(&path);
            assert!(
                message.starts_with(&format!("`model.safetensors` is no whole safetensors file ({cut} bytes): ")),
                "{message}"
            );
            assert!(!message.contains('\n'));
            assert_eq!(check_weights(&path).unwrap_err().to_string(), load_text(&path));
        }
        fs::write(&path, "To be, or not to be, that is the question").unwrap();
        assert!(load_error(&path).contains("is no whole safetensors file (41 bytes)"));
        assert!(load_error(&home.path().join("none")).starts_with("cannot read `none`: "));
        assert!(load_weights(&mut model(0.0, 3), home.path()).unwrap_err().is_user_error());
    }

    #[derive(Module, Debug)]
    struct InBlocks {
        weight: Param<Tensor<2, Int>>,
        bias: Option<Param<Tensor<1>>>,
    }

    fn bytes(values: [[u8; 3]; 2]) -> InBlocks {
        let device = Device::default();
        let bytes = Tensor::from_data(values, (&device, DType::U8));
        let weight = Param::initialized(burn::module::ParamId::new(), bytes);
        InBlocks { weight, bias: layer(1.0, 3, &device).bias }
    }

    #[test]
    fn bytes_come_back_to_the_bit_and_are_no_floats() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        let written = [[0, 255, 128], [7, 1, 200]];
        save_weights(&bytes(written), &path).unwrap();
        let mut loaded = bytes([[0; 3]; 2]);
        load_weights(&mut loaded, &path).unwrap();
        let found = loaded.weight.val();
        assert_eq!(found.dtype(), DType::U8);
        assert_eq!(found.into_data().try_to_vec::<u8>().unwrap(), written.concat());

        let text = |result: Result<(), StorageError>| {
            let error = result.unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        let error = text(load_weights(&mut layer(0.0, 3, &Device::default()), &path));
        assert!(error.contains("holds `weight` in blocks of few bits where floats are expected"), "{error}");
        save_weights(&layer(1.0, 3, &Device::default()), &path).unwrap();
        let error = text(load_weights(&mut bytes(written), &path));
        assert!(error.contains("found F32"), "{error}");
    }

    /// Named as what `firelight-core` shows a visitor in the place of blocks.
    #[derive(Module, Debug)]
    enum Blocks {
        Q8(Param<Tensor<2, Int>>),
    }

    #[derive(Module, Debug)]
    struct Quantized {
        weight: Blocks,
    }

    #[test]
    fn other_integers_in_the_place_of_blocks_are_refused_by_name_and_type() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        let quantized = |dtype: DType| {
            let numbers = Tensor::from_data([[1, 2, 3], [4, 5, 6]], (&Device::flex(), dtype));
            Quantized { weight: Blocks::Q8(Param::initialized(burn::module::ParamId::new(), numbers)) }
        };
        for dtype in [DType::I32, DType::I64] {
            save_weights(&quantized(dtype), &path).unwrap();
            let error = load_weights(&mut quantized(DType::U8), &path).unwrap_err();
            let expected = format!("weight (expected blocks of few bits, bytes of the type U8, found {dtype:?})");
            assert!(error.is_user_error() && error.to_string().contains(&expected), "{error}");
            assert!(error.to_string().contains("model.safetensors` does not fit the model"), "{error}");
        }
        save_weights(&quantized(DType::U8), &path).unwrap();
        load_weights(&mut quantized(DType::U8), &path).unwrap();
    }

    #[test]
    fn integers_that_are_no_blocks_are_of_any_type() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        let counts = |dtype: DType| InBlocks {
            weight: Param::initialized(
                burn::module::ParamId::new(),
                Tensor::from_data([[1, 2, 3], [4, 5, 6]], (&Device::flex(), dtype)),
            ),
            bias: None,
        };
        save_weights(&counts(DType::I64), &path).unwrap();
        let mut loaded = counts(DType::I32);
        load_weights(&mut loaded, &path).unwrap();
        assert_eq!(loaded.weight.val().try_into_vec_as::<i64>().unwrap(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn other_float_types_become_f32() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        let device = Device::default();
        let mut half = layer(1.5, 3, &device);
        half.weight = Param::from_tensor(Tensor::<2>::full([2, 3], 1.5, &device).cast(DType::F64));
        save_weights(&half, &path).unwrap();

        let mut loaded = layer(0.0, 3, &device);
        load_weights(&mut loaded, &path).unwrap();
        assert_eq!(loaded.weight.val().dtype(), DType::F32);
        assert_eq!(loaded.weight.val().into_data().try_to_vec::<f32>().unwrap(), [1.5; 6]);
    }

    #[test]
    fn weights_come_in_the_type_that_is_asked_for() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        let device = Device::flex(); // Others may lack these types.
        save_weights(&layer(1.0 + 1.0 / 512.0, 3, &device), &path).unwrap();
        for (dtype, expected) in [(FloatDType::BF16, 1.0), (FloatDType::F16, 1.0 + 1.0 / 512.0)] {
            let mut loaded = layer(0.0, 3, &device);
            load_weights_in(&mut loaded, &path, dtype).unwrap();
            let (weight, bias) = (loaded.weight.val(), loaded.bias.unwrap().val());
            assert_eq!([weight.dtype(), bias.dtype()], [DType::from(dtype); 2]);
            assert_eq!(weight.into_data().iter::<f32>().collect::<Vec<_>>(), [expected; 6]);
        }
    }
}
