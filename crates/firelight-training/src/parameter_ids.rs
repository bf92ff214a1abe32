//! The ids of a model's parameters by path. Burn keys the optimiser's state by ids that are drawn anew for every model,
//! so a checkpoint keeps this map and a resumed run gives the parameters their old ids back.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;

/// From the path of a parameter, such as `blocks.0.norm.gamma`, to its id.
pub(crate) type ParameterIds = BTreeMap<String, u64>;

/// The ids of the float parameters of `model`.
pub(crate) fn ids_of<M: Module>(model: &M) -> ParameterIds {
    let mut collect = Collect::default();
    model.visit(&mut collect);
    collect.ids
}

/// Gives the float parameters of `model` the `ids` of their paths.
///
/// # Errors
/// Returns the first path that has no id.
pub(crate) fn restore_ids<M: Module>(model: M, ids: &ParameterIds) -> Result<M, String> {
    let mut restore = Restore { ids, path: Vec::new(), missing: None };
    let model = model.map(&mut restore);
    restore.missing.map_or(Ok(model), Err)
}

#[derive(Default)]
struct Collect {
    ids: ParameterIds,
    path: Vec<String>,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.ids.insert(self.path.join("."), param.id.val());
    }
}

struct Restore<'a> {
    ids: &'a ParameterIds,
    path: Vec<String>,
    missing: Option<String>,
}

impl ModuleMapper for Restore<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, mut param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.join(".");
        match self.ids.get(&path) {
            Some(&id) => param.id = ParamId::from(id),
            None => self.missing = self.missing.take().or(Some(path)),
        }
        param
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::LinearConfig;
    use burn::tensor::Device;

    #[test]
    fn another_model_of_the_same_shape_takes_the_ids() {
        let device = Device::default();
        let [first, second] = [LinearConfig::new(2, 3).init(&device), LinearConfig::new(2, 3).init(&device)];
        let ids = ids_of(&first);
        assert_eq!(ids.keys().collect::<Vec<_>>(), ["bias", "weight"]);
        assert_ne!(ids_of(&second), ids);
        assert_eq!(ids_of(&restore_ids(second, &ids).unwrap()), ids);
    }

    #[test]
    fn a_parameter_without_an_id_is_named() {
        let device = Device::default();
        let ids = ids_of(&LinearConfig::new(2, 3).with_bias(false).init(&device));
        assert_eq!(restore_ids(LinearConfig::new(2, 3).init(&device), &ids).unwrap_err(), "bias");
    }
}
