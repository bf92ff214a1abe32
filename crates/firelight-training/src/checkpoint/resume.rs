//! Finds where an interrupted run can go on: its newest checkpoint that is whole.

use firelight_storage::{Checkpoint, CheckpointFolder, ModelFolder, check_weights};

use super::start::{Resumed, StartPoint, load_record};
use super::{Notes, steps_in};
use crate::TrainingError;
use crate::parameter_ids::check_record;

/// The newest checkpoint of a run that is whole; none if the run has no checkpoints yet.
///
/// Every file is read before it counts as whole. A damaged checkpoint is passed over with a warning in the log.
///
/// # Errors
/// Fails if the folder cannot be read, or if there are checkpoints but none is whole.
pub fn resume_point(folder: &ModelFolder) -> Result<Option<StartPoint>, TrainingError> {
    let mut newest_error = None;
    for step in steps_in(folder)?.into_iter().rev() {
        match read(folder.checkpoint_folder(&Checkpoint::Step(step))) {
            Ok(start) => return Ok(Some(start)),
            Err(error) => {
                log::warn!("passing over the checkpoint of step {step}: {error}");
                newest_error.get_or_insert(error);
            }
        }
    }
    let unresumable = |cause| TrainingError::NoWholeCheckpoint { path: folder.path().into(), cause: Box::new(cause) };
    newest_error.map_or(Ok(None), |cause| Err(unresumable(cause)))
}

/// Reads a checkpoint through and makes sure that all of it is there.
fn read(folder: CheckpointFolder) -> Result<StartPoint, TrainingError> {
    let Notes { state, parameters, optimizer, optimizer_tensors, ema } =
        serde_json::from_slice(&folder.read_state()?).map_err(TrainingError::damaged(&folder.state()))?;
    check_weights(folder.weights())?;
    if ema {
        check_weights(folder.ema())?;
    }
    load_record(&folder.optimizer(), optimizer_tensors)?;
    check_record(&parameters, &folder.optimizer())?;
    Ok(StartPoint { state, resumed: Some(Resumed { folder, parameters, optimizer, optimizer_tensors, ema }) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{run_folder, save_trained};
    use super::*;

    #[test]
    fn a_damaged_checkpoint_is_passed_over_whichever_file_it_is() {
        let (_home, folder) = run_folder();
        save_trained(&folder, 5);
        let (_, newest) = save_trained(&folder, 10);
        for file in [newest.weights(), newest.ema(), newest.optimizer(), newest.state()] {
            let whole = fs::read(&file).unwrap();
            for length in [0, 10, whole.len() / 2, whole.len() - 3] {
                fs::write(&file, &whole[..length]).unwrap();
                assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 5, "{} of {length} bytes", file.display());
            }
            fs::remove_file(&file).unwrap();
            assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 5, "no {}", file.display());
            fs::write(&file, whole).unwrap();
        }
        assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 10);
    }

    #[test]
    fn ids_that_are_not_those_of_the_optimizers_state_are_damage() {
        let (_home, folder) = run_folder();
        let (_, only) = save_trained(&folder, 5);
        let text = fs::read_to_string(only.state()).unwrap();
        let notes: serde_json::Value = serde_json::from_str(&text).unwrap();
        let [slope, offset] = ["slope", "offset"].map(|path| notes["parameters"][path].as_u64().unwrap().to_string());
        let other = "4711".to_string();
        let swapped = text.replace(&slope, "?").replace(&offset, &slope).replace('?', &offset);
        for changed in [swapped, text.replace(&slope, &other), text.replace(&offset, &slope)] {
            fs::write(only.state(), changed).unwrap();
            let error = resume_point(&folder).unwrap_err().to_string();
            let expected = ["optimizer.bpk` is damaged: its parameter `", "` has the id ", ", and in state.json "];
            assert!(expected.iter().all(|part| error.contains(part)), "{error}");
        }
        fs::write(only.state(), text.replace("\"slope\"", "\"slop\"")).unwrap();
        let error = resume_point(&folder).unwrap_err().to_string();
        assert!(error.contains(&format!("parameter `slope` has the id {slope}, and in state.json none")), "{error}");
        fs::write(only.state(), text).unwrap();
        assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 5);
    }

    #[test]
    fn a_run_without_a_whole_checkpoint_does_not_silently_begin_anew() {
        let (_home, folder) = run_folder();
        let (_, only) = save_trained(&folder, 5);
        fs::write(only.state(), "{").unwrap();
        let error = resume_point(&folder).unwrap_err();
        assert!(error.to_string().contains("none of its checkpoints is whole: the file `"), "{error}");
        assert!(error.to_string().contains("state.json` is damaged: EOF") && error.is_user_error(), "{error}");
    }
}
