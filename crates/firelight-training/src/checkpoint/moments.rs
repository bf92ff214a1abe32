//! The optimiser's states of several ranks as one file, and one rank's share out of it. Burn keeps the fields of its record to itself, so both
//! are made in its format.

use std::collections::BTreeMap;
use std::path::Path;

use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn_pack::{Bytes, Error, Reader, Scalar, Tensor, Writer};

use crate::TrainingError;
use crate::parameter_ids::ParameterIds;

/// The state of an optimiser, to be written.
pub(super) enum State {
    /// That of one process.
    Whole(OptimizerRecord),
    /// That of several ranks.
    Joined(Moments),
}

impl State {
    /// The state of the first rank and of `others`, in Burn's format, by the `ids` of the first one: each rank draws ids of its own.
    pub(super) fn of(optimizer: &ModuleOptimizer, others: Vec<Vec<u8>>, ids: &ParameterIds) -> Result<Self, String> {
        let own = optimizer.to_record();
        if others.is_empty() {
            return Ok(Self::Whole(own));
        }
        let mut joined = Moments::default();
        let own = own.into_bytes().map_err(|error| error.to_string())?;
        for bytes in [own].into_iter().chain(others.into_iter().map(Bytes::from_bytes_vec)) {
            let add = Reader::from_bytes(bytes).and_then(|reader| joined.add(reader, |id, path| known(ids, id, path)));
            add.map_err(|error| error.to_string())?;
        }
        Ok(Self::Joined(joined))
    }

    /// The number of its tensors.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Whole(record) => record.len(),
            Self::Joined(moments) => moments.tensors.len(),
        }
    }

    /// Writes it as Burn does.
    pub(super) fn save(self, path: &Path) -> Result<(), TrainingError> {
        match self {
            Self::Whole(record) => record.save(path).map_err(TrainingError::file("write", path)),
            Self::Joined(moments) => moments.writer().write_to_file(path).map_err(TrainingError::file("write", path)),
        }
    }
}

/// The id that a parameter of another rank has here, by its path, which a state notes with the first step.
fn known(ids: &ParameterIds, id: u64, path: Option<&str>) -> Option<u64> {
    path.map_or(Some(id), |path| ids.get(path).copied())
}

/// The states of the parameters that `keep` names, out of the file at `path`. Those of others are not read.
pub(super) fn share(path: &Path, keep: impl Fn(u64) -> bool) -> Result<OptimizerRecord, TrainingError> {
    let mut own = Moments::default();
    let read = Reader::from_file(path).and_then(|reader| own.add(reader, |id, _| keep(id).then_some(id)));
    read.map_err(TrainingError::damaged(path))?;
    let bytes = own.writer().into_bytes().map_err(TrainingError::damaged(path))?;
    OptimizerRecord::from_bytes(bytes).map_err(TrainingError::damaged(path))
}

/// What Burn's record of an optimiser consists of; names begin with the id of a parameter and a dot.
#[derive(Default)]
pub(super) struct Moments {
    tensors: Vec<Tensor>,
    scalars: BTreeMap<String, Scalar>,
    /// From ids to paths.
    paths: BTreeMap<String, String>,
}

impl Moments {
    /// Adds the states of the parameters to which `here` gives an id, by their ids and paths there.
    fn add(&mut self, reader: Reader, here: impl Fn(u64, Option<&str>) -> Option<u64>) -> Result<(), Error> {
        let paths = reader.metadata().clone();
        let here = |id: &str| here(id.parse().ok()?, paths.get(id).map(String::as_str));
        let place = |name: &str| name.split_once('.').and_then(|(id, field)| Some((here(id)?, field.to_string())));
        for (name, value) in reader.scalars() {
            if let Some((id, field)) = place(name) {
                self.scalars.insert(format!("{id}.{field}"), *value);
            }
        }
        for (id, path) in &paths {
            if let Some(id) = here(id) {
                self.paths.insert(id.to_string(), path.clone());
            }
        }
        for tensor in reader.into_tensors()? {
            let (name, dtype, shape, _, bytes) = tensor.into_parts()?;
            if let Some((id, field)) = place(&name) {
                self.tensors.push(Tensor::new(format!("{id}.{field}"), dtype, shape, Some(id), bytes));
            }
        }
        Ok(())
    }

    fn writer(self) -> Writer {
        let writer = Writer::new(self.tensors);
        let writer = self.scalars.iter().fold(writer, |writer, (name, value)| writer.with_scalar(name, *value));
        self.paths.iter().fold(writer, |writer, (id, path)| writer.with_metadata(id, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OptimizerConfig;
    use crate::parameter_ids::ids_of;
    use crate::toy::{Line, Points};
    use burn::tensor::Device;
    use burn::train::TrainStep;

    /// A model that has taken a step, with its optimiser.
    fn stepped() -> (Line, ModuleOptimizer) {
        let device = Device::default().autodiff();
        let model = Line::new(1.0, 0.0, &device);
        let mut optimizer = OptimizerConfig::default().init(&model);
        let output = TrainStep::step(&model, Points::new(vec![(1.0, 2.0)], &device));
        (optimizer.step(0.1, model, output.grads), optimizer)
    }

    /// Names and bytes of the tensors, names and numbers of the scalars, and the paths by id, in a file.
    fn content(path: &Path) -> (Vec<(String, Vec<u8>)>, String) {
        let reader = Reader::from_file(path).unwrap();
        let tensors = reader.tensor_names().into_iter().map(|name| (name.into(), reader.tensor_data(name).unwrap()));
        (tensors.collect(), format!("{:?} {:?}", reader.scalars(), reader.metadata()))
    }

    #[test]
    fn shares_of_a_file_make_it_again() {
        let home = tempfile::tempdir().unwrap();
        let [whole, again] = ["whole.bpk", "again.bpk"].map(|name| home.path().join(name));
        let (model, optimizer) = stepped();
        optimizer.save(&whole).unwrap();
        let slope = ids_of(&model)["slope"];
        let fresh = || OptimizerConfig::default().init(&model);
        let [first, second] = [true, false].map(|own| {
            let record = share(&whole, |id| (id == slope) == own).unwrap();
            assert_eq!(record.len(), 2);
            fresh().load_record(record)
        });
        let others = vec![second.into_bytes().unwrap().to_vec()];
        let state = State::of(&first, others, &ids_of(&model)).unwrap();
        assert_eq!(state.len(), 4);
        state.save(&again).unwrap();
        assert_eq!(content(&again), content(&whole));
    }

    #[test]
    fn parameters_of_another_rank_are_known_by_their_paths() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("joined.bpk");
        let [(model, _), (_, other)] = [stepped(), stepped()];
        let nothing = OptimizerConfig::default().init(&model);
        let others = vec![other.into_bytes().unwrap().to_vec()];
        State::of(&nothing, others, &ids_of(&model)).unwrap().save(&path).unwrap();
        crate::parameter_ids::check_record(&ids_of(&model), &path).unwrap();
        let (tensors, _) = content(&path);
        let slope = ids_of(&model)["slope"];
        assert_eq!(tensors.iter().filter(|(name, _)| name.starts_with(&format!("{slope}."))).count(), 2);
        assert_eq!(tensors.len(), 4);
    }

    #[test]
    fn a_damaged_file_has_no_shares() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("optimizer.bpk");
        std::fs::write(&path, "not a state").unwrap();
        let error = share(&path, |_| true).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("optimizer.bpk` is damaged: "), "{error}");
    }
}
