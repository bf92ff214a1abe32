//! The numbers of the weights put into a model.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use firelight_storage::{Parameters, StorageError};

use super::matching::{Change, Match};
use super::{Regrid, resize};
use crate::path::ModulePath;

/// Gives `model` what was matched. Its other parameters stay as they are, and all keep their ids and whether they are trained.
///
/// # Errors
/// If the weights cannot be read any more.
pub(crate) fn take<M: Module>(
    model: M,
    taken: &[Match],
    found: &Parameters,
    regrid: Option<&Regrid>,
) -> Result<M, StorageError> {
    let mut take = Take { taken, found, regrid, path: ModulePath::default(), failed: None };
    let model = model.map(&mut take);
    take.failed.map_or(Ok(model), Err)
}

struct Take<'a> {
    taken: &'a [Match],
    found: &'a Parameters,
    regrid: Option<&'a Regrid>,
    path: ModulePath,
    failed: Option<StorageError>,
}

impl Take<'_> {
    /// The numbers of a parameter whose own are read by `own`.
    fn numbers(
        &self,
        found: &Match,
        device: &Device,
        own: impl FnOnce() -> TensorData,
    ) -> Result<TensorData, StorageError> {
        let data = self.found.read(&found.source)?;
        Ok(match (found.change, self.regrid) {
            (Change::Grid, Some(regrid)) => regrid.apply(data, device),
            (Change::Rows(axis), _) => resize::rows(&own(), &data, axis),
            _ => data,
        })
    }
}

impl ModuleMapper for Take<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.joined();
        let Some(found) = self.taken.iter().find(|found| found.path == path) else { return param };
        let device = param.lazy_device();
        match self.numbers(found, &device, || param.val().into_data()) {
            Ok(data) => {
                let tensor = Tensor::from_data(data, &device);
                let id = param.id;
                param.transform_for_load(tensor, id)
            }
            Err(error) => {
                self.failed.get_or_insert(error);
                param
            }
        }
    }
}
