//! A plan is followed: into a model, or into a file of weights as run folders have it.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Element, FloatDType, Tensor, TensorData, bf16, f16};
use firelight_core::{WeightEntry, WeightLayout};
use firelight_kernels::BlockFormat;
use firelight_storage::{StorageError, replace_file};
use safetensors::Dtype;

use super::{Plan, Source, View};
use crate::folder::Weights;

impl Plan {
    /// Fills a model with the weights, as numbers of a type. No parameter is drawn first, and of each one its part of the file is read,
    /// once.
    ///
    /// # Errors
    /// If numbers of the file are NaN or infinite, or it cannot be read any more.
    pub fn load<M: Module>(&self, model: M, weights: &Weights, dtype: FloatDType) -> Result<M, StorageError> {
        let mut filler = Filler { plan: self, weights, dtype, path: Vec::new(), failure: None };
        let model = model.map(&mut filler);
        filler.failure.map_or(Ok(model), Err)
    }

    /// Writes the weights to `path` as a run folder has them, in the types of the checkpoint.
    ///
    /// # Errors
    /// If the file cannot be written, or as [`load`](Self::load).
    pub fn save(&self, weights: &Weights, path: &Path) -> Result<(), StorageError> {
        self.save_in_blocks(weights, path, &[]).map(drop)
    }

    /// The same, with the blocks of the checkpoint for those of the `matrices` of which each row lies whole in its file. Returns their formats
    /// by the paths of the parameters.
    pub(crate) fn save_in_blocks(
        &self,
        weights: &Weights,
        path: &Path,
        matrices: &[WeightEntry],
    ) -> Result<BTreeMap<String, BlockFormat>, StorageError> {
        // The writer below can only be given bytes: what fails on the way is kept here.
        let failure = Cell::new(None);
        let mut tensors = Vec::with_capacity(self.sources.len());
        for (path, source) in &self.sources {
            tensors.push((path, Copied::of(path, source, weights, matrices, &failure)));
        }
        let format = |(path, copied): &(&String, Copied<'_>)| Some((path.to_string(), copied.blocks.as_ref()?.format));
        let formats = tensors.iter().filter_map(format).collect();
        replace_file(path, |temporary| {
            let none: Option<HashMap<String, String>> = None;
            safetensors::serialize_to_file(tensors, none, temporary).map_err(|error| match error {
                safetensors::SafeTensorError::IoError(error) => StorageError::io("write", path)(error),
                other => StorageError::io("write", path)(io::Error::other(other.to_string())),
            })?;
            failure.take().map_or(Ok(()), Err)
        })?;
        Ok(formats)
    }

    /// Those of the `matrices` that such a file has as floats, by their paths.
    pub(crate) fn floats(&self, weights: &Weights, matrices: &[WeightEntry]) -> Vec<String> {
        let blocks = |matrix: &WeightEntry| self.sources.get(&matrix.path)?.blocks(matrix, weights);
        let has_blocks = |matrix: &WeightEntry| blocks(matrix).is_some();
        matrices.iter().filter(|matrix| !has_blocks(matrix)).map(|matrix| matrix.path.clone()).collect()
    }
}

struct Filler<'a> {
    plan: &'a Plan,
    weights: &'a Weights,
    dtype: FloatDType,
    path: Vec<String>,
    failure: Option<StorageError>,
}

impl Filler<'_> {
    fn read(&self, shape: &[usize]) -> Option<Result<TensorData, StorageError>> {
        let source = self.plan.sources.get(&self.path.join("."))?;
        Some(match self.dtype {
            FloatDType::F16 => self.numbers::<f16>(source, shape),
            FloatDType::BF16 => self.numbers::<bf16>(source, shape),
            _ => self.numbers::<f32>(source, shape),
        })
    }

    fn numbers<T: Element>(&self, source: &Source, shape: &[usize]) -> Result<TensorData, StorageError> {
        let numbers = self.weights.read_as::<T>(&source.tensor, &source.view, source.plus)?;
        Ok(TensorData::new(numbers, shape.to_vec()))
    }
}

impl ModuleMapper for Filler<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.failure.is_some() {
            return param;
        }
        match self.read(&param.lazy_shape()) {
            Some(Ok(data)) => {
                let (id, device): (_, Device) = (param.id, param.lazy_device());
                param.transform_for_load(Tensor::from_data(data, (&device, DType::from(self.dtype))), id)
            }
            Some(Err(error)) => {
                self.failure = Some(error);
                param
            }
            // A parameter that is shared stands in the plan once, under its first path.
            None => param,
        }
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        if !container.starts_with("Enum:") {
            self.path.push(name.to_string());
        }
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        if !container.starts_with("Enum:") {
            self.path.pop();
        }
    }
}

impl Source {
    /// Makes sure that it can be read.
    fn check(&self, weights: &Weights) -> Result<(), StorageError> {
        weights.read(&self.tensor, &self.view, self.plus).map(drop)
    }

    /// Its rows of blocks, where it is a matrix that can have the blocks of the file.
    fn blocks(&self, matrix: &WeightEntry, weights: &Weights) -> Option<Blocks> {
        let view = match matrix.layout {
            WeightLayout::Rows => self.view.clone(),
            WeightLayout::Columns => self.view.clone().transposed(),
        };
        let (format, rows) = weights.rows_in_blocks(&self.tensor, &view).filter(|_| self.plus == 0.0)?;
        Some(Blocks { format, shape: rows.shape(), rows })
    }
}

/// A parameter, whose bytes are put in order when they are asked for.
struct Copied<'a> {
    source: &'a Source,
    weights: &'a Weights,
    blocks: Option<Blocks>,
    failure: &'a Cell<Option<StorageError>>,
}

/// Rows of blocks, `[rows, row_bytes]`, and where they lie among the bytes of the file.
struct Blocks {
    format: BlockFormat,
    shape: Vec<usize>,
    rows: View,
}

impl<'a> Copied<'a> {
    fn of(
        path: &str,
        source: &'a Source,
        weights: &'a Weights,
        matrices: &[WeightEntry],
        failure: &'a Cell<Option<StorageError>>,
    ) -> Self {
        let matrix = matrices.iter().find(|matrix| matrix.path == path);
        Self { source, weights, blocks: matrix.and_then(|matrix| source.blocks(matrix, weights)), failure }
    }

    /// Of a type that is kept.
    fn is_kept(&self) -> Option<Dtype> {
        let dtype = self.weights.info(&self.source.tensor)?.dtype;
        let plus = self.source.plus + self.weights.addend(&self.source.tensor);
        // What is added to half a number may not fit into half a number.
        (plus == 0.0 && dtype != Dtype::F64).then_some(dtype)
    }
}

impl safetensors::View for Copied<'_> {
    fn dtype(&self) -> Dtype {
        match &self.blocks {
            Some(_) => Dtype::U8,
            None => self.is_kept().unwrap_or(Dtype::F32),
        }
    }

    fn shape(&self) -> &[usize] {
        match &self.blocks {
            Some(blocks) => &blocks.shape,
            None => &self.source.shape,
        }
    }

    /// Numbers are checked just before they are copied, while their pages are in memory: the file is read once. Nothing is copied behind a
    /// failure, because the new file is thrown away.
    fn data(&self) -> Cow<'_, [u8]> {
        let failure = self.failure.take().or_else(|| self.source.check(self.weights).err());
        let has_failed = failure.is_some();
        self.failure.set(failure);
        if has_failed {
            return Cow::Borrowed(&[]);
        }
        let Source { tensor, view, plus, .. } = self.source;
        if let Some(blocks) = &self.blocks {
            return Cow::Owned(blocks.rows.reordered::<1>(&self.weights.stored(tensor).unwrap_or_default()));
        }
        let bytes = self.weights.bytes(tensor).unwrap_or_default();
        Cow::Owned(match self.is_kept() {
            Some(dtype) if dtype.bitsize() == 16 => view.reordered::<2>(&bytes),
            Some(_) => view.reordered::<4>(&bytes),
            None => {
                let numbers = self.weights.read(tensor, view, *plus).unwrap_or_default();
                numbers.into_iter().flat_map(f32::to_le_bytes).collect()
            }
        })
    }

    fn data_len(&self) -> usize {
        safetensors::View::shape(self).iter().product::<usize>() * (safetensors::View::dtype(self).bitsize() / 8)
    }
}
