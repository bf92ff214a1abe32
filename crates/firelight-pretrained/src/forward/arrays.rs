//! Named arrays of numbers in safetensors files: the arguments and the outputs of a pass.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use firelight_storage::{InputError, StorageError, TaskError, read_file, shortened, shortened_reason, write_atomic};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// No file of arguments or outputs is larger, in bytes.
const LIMIT: u64 = 16 << 30;

/// The numbers of an array.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Numbers {
    /// Pixels, vectors, scores.
    Floats(Vec<f32>),
    /// Ids and flags.
    Integers(Vec<i64>),
}

/// Rows of whole numbers, `[B, T]`.
pub(super) type Integers<'a> = ([usize; 2], &'a [i64]);

/// An array with its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its numbers, the last axis first.
    pub numbers: Numbers,
}

/// Arrays by name.
///
/// ```
/// use firelight_pretrained::{Array, Arrays, Numbers};
///
/// let home = tempfile::tempdir().unwrap();
/// let path = home.path().join("inputs.safetensors");
/// let mut arrays = Arrays::default();
/// arrays.insert("input_ids", Array { shape: vec![1, 3], numbers: Numbers::Integers(vec![5, 2, 9]) });
/// arrays.write(&path).unwrap();
/// assert_eq!(Arrays::read(&path).unwrap(), arrays);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrays(BTreeMap<String, Array>);

impl Arrays {
    /// Reads a safetensors file.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or holds numbers of a type that no argument has.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, StorageError> {
        let path = path.as_ref();
        let bytes = read_file(path, LIMIT)?;
        let unfit = |reason: String| {
            let problem = format!("is no whole safetensors file: {}", shortened_reason(&reason));
            InputError::in_file(path, problem).advise("write it again")
        };
        let file = SafeTensors::deserialize(&bytes).map_err(|error| unfit(error.to_string()))?;
        let read = |(name, view): (String, TensorView<'_>)| match array(&view) {
            Some(array) => Ok((name, array)),
            None => Err(unfit(format!("`{}` has the type {:?}", shortened(&name), view.dtype()))),
        };
        Ok(Self(file.tensors().into_iter().map(read).collect::<Result<_, _>>()?))
    }

    /// Writes a safetensors file, replacing one that is there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), StorageError> {
        let none: Option<HashMap<String, String>> = None;
        let tensors = self.0.iter().map(|(name, array)| (name, Encoded::of(array)));
        let bytes = safetensors::serialize(tensors, none);
        let failed = |error: safetensors::SafeTensorError| std::io::Error::other(error.to_string());
        write_atomic(&path, bytes.map_err(failed).map_err(StorageError::io("write", path.as_ref()))?)
    }

    /// Adds an array.
    pub fn insert(&mut self, name: &str, array: Array) {
        self.0.insert(name.into(), array);
    }

    /// An array, if it is there.
    pub fn get(&self, name: &str) -> Option<&Array> {
        self.0.get(name)
    }

    /// The arrays in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.0.iter().map(|(name, array)| (name.as_str(), array))
    }

    /// Tokens of the first row that are no padding: those of `decoder_input_ids`, or of `input_ids` where `attention_mask` is 1.
    pub fn first_row_length(&self) -> usize {
        let flags = |array: &Array| match (&array.numbers, array.shape.last()) {
            (Numbers::Integers(flags), Some(&length)) => flags.iter().take(length).filter(|flag| **flag != 0).count(),
            _ => 0,
        };
        match (self.get("decoder_input_ids"), self.get("attention_mask"), self.get("input_ids")) {
            (Some(_), _, _) => 1,
            (_, Some(mask), _) => flags(mask),
            (_, _, Some(ids)) => ids.shape.last().copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// The whole numbers `[B, T]` of an argument, if it is there.
    ///
    /// # Errors
    /// If they are no whole numbers, or of another number of axes.
    pub(super) fn integers(&self, name: &str) -> Result<Option<Integers<'_>>, TaskError> {
        let Some(array) = self.get(name) else { return Ok(None) };
        match (&array.numbers, &array.shape[..]) {
            (Numbers::Integers(numbers), &[rows, columns]) => Ok(Some(([rows, columns], numbers))),
            (_, shape) => Err(unfit(name, &format!("is of shape {shape:?}"), "whole numbers of shape [batch, length]")),
        }
    }
}

/// The error of an argument.
pub(super) fn unfit(name: &str, problem: &str, expected: &str) -> TaskError {
    InputError::new(format!("the argument `{name}` {problem}: expected {expected}")).into()
}

fn array(view: &TensorView<'_>) -> Option<Array> {
    let bytes = view.data();
    let floats = |numbers| Some(Numbers::Floats(numbers));
    let integers = |numbers| Some(Numbers::Integers(numbers));
    let numbers = match view.dtype() {
        Dtype::F32 => floats(bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect()),
        Dtype::F64 => floats(bytes.as_chunks().0.iter().map(|&number| f64::from_le_bytes(number) as f32).collect()),
        Dtype::I64 => integers(bytes.as_chunks().0.iter().map(|&number| i64::from_le_bytes(number)).collect()),
        Dtype::I32 => integers(bytes.as_chunks().0.iter().map(|&number| i32::from_le_bytes(number).into()).collect()),
        Dtype::BOOL | Dtype::U8 => integers(bytes.iter().map(|&number| number.into()).collect()),
        _ => None,
    }?;
    Some(Array { shape: view.shape().to_vec(), numbers })
}

/// An array as the file holds it.
struct Encoded {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Encoded {
    fn of(array: &Array) -> Self {
        let (dtype, bytes) = match &array.numbers {
            Numbers::Floats(numbers) => (Dtype::F32, numbers.iter().flat_map(|number| number.to_le_bytes()).collect()),
            Numbers::Integers(numbers) => {
                (Dtype::I64, numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
            }
        };
        Self { dtype, shape: array.shape.clone(), bytes }
    }
}

impl safetensors::View for Encoded {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        (&self.bytes).into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
