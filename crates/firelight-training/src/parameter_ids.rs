//! The ids of a model's parameters by path. Burn keys the optimiser's state by ids that are drawn anew for every model,
//! so a checkpoint keeps this map and a resumed run gives the parameters their old ids back.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use burn_pack::Reader;

use crate::TrainingError;

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
/// Says where `ids` are those of another model: paths that only one of the two has, and parameters that share an id in only one.
pub(crate) fn restore_ids<M: Module>(model: M, ids: &ParameterIds) -> Result<M, String> {
    check(&ids_of(&model), ids)?;
    Ok(model.map(&mut Restore { ids, path: Vec::new() }))
}

fn check(own: &ParameterIds, ids: &ParameterIds) -> Result<(), String> {
    if let Some(path) = own.keys().find(|path| !ids.contains_key(*path)) {
        return Err(format!("it has no parameter `{path}`"));
    }
    if let Some(path) = ids.keys().find(|path| !own.contains_key(*path)) {
        return Err(format!("its parameter `{path}` is none of the model's"));
    }
    let (own, theirs) = (firsts(own), firsts(ids));
    match theirs.iter().find(|(path, first)| own[*path] != **first) {
        Some((path, first)) if path == first => {
            Err(format!("its parameter `{path}` has another id than `{}`, which are one in the model", own[path]))
        }
        Some((path, first)) => Err(format!("its parameters `{first}` and `{path}` have one id")),
        None => Ok(()),
    }
}

/// From every path to the first one with the same id.
fn firsts(ids: &ParameterIds) -> BTreeMap<&str, &str> {
    let mut first = BTreeMap::new();
    ids.iter().map(|(path, id)| (path.as_str(), *first.entry(id).or_insert(path.as_str()))).collect()
}

/// Makes sure that the optimiser's state in the file at `path` is that of these parameters: it holds the path of every id.
pub(crate) fn check_record(ids: &ParameterIds, path: &Path) -> Result<(), TrainingError> {
    let reader = Reader::from_file(path).map_err(TrainingError::damaged(path))?;
    let noted = reader.metadata().iter().filter_map(|(id, name)| Some((id.parse::<u64>().ok()?, name)));
    for (id, name) in noted {
        if ids.get(name) != Some(&id) {
            let found = ids.get(name).map_or("none".into(), u64::to_string);
            let reason = format!("its parameter `{name}` has the id {id}, and in state.json {found}");
            return Err(TrainingError::damaged(path)(reason));
        }
    }
    Ok(())
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
}

impl ModuleMapper for Restore<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, mut param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if let Some(&id) = self.ids.get(&self.path.join(".")) {
            param.id = ParamId::from(id);
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

    /// Two matrices, which may be one.
    #[derive(Module, Debug)]
    struct Pair {
        first: Param<Tensor<2>>,
        second: Param<Tensor<2>>,
    }

    fn pair(is_tied: bool) -> Pair {
        let parameter = || Param::from_tensor(Tensor::<2>::ones([2, 3], &Device::default()));
        let first = parameter();
        Pair { second: if is_tied { first.clone() } else { parameter() }, first }
    }

    #[test]
    fn paths_that_only_one_of_the_two_has_are_named() {
        let device = Device::default();
        let linear = |bias| LinearConfig::new(2, 3).with_bias(bias).init(&device);
        assert_eq!(restore_ids(linear(true), &ids_of(&linear(false))).unwrap_err(), "it has no parameter `bias`");
        let more = restore_ids(linear(false), &ids_of(&linear(true))).unwrap_err();
        assert_eq!(more, "its parameter `bias` is none of the model's");
    }

    #[test]
    fn ids_are_shared_by_the_parameters_that_the_model_shares() {
        let [tied, apart] = [true, false].map(|is_tied| ids_of(&pair(is_tied)));
        assert_eq!(ids_of(&restore_ids(pair(true), &tied).unwrap()), tied);
        assert_eq!(ids_of(&restore_ids(pair(false), &apart).unwrap()), apart);
        let error = restore_ids(pair(false), &tied).unwrap_err();
        assert_eq!(error, "its parameters `first` and `second` have one id");
        let error = restore_ids(pair(true), &apart).unwrap_err();
        assert_eq!(error, "its parameter `second` has another id than `first`, which are one in the model");
    }
}
