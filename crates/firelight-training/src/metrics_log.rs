//! The numbers of a run as one JSON object per line, in `metrics.jsonl`. Steps carry `step`, `loss`, `training_loss` where that is
//! another quantity, `learning_rate`, `gradient_norm` and `tokens_per_second` (of what the loss is the mean over, tokens or whole
//! texts and images), evaluations `step` and `validation_loss`; losses are printed to the last bit.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use firelight_storage::{StorageError, read_text_file, write_atomic};
use serde::Serialize;

use crate::{EvaluationReport, Observer, StepReport, TrainingError};

/// No file of metrics is larger, in bytes: a step takes some 200.
const LIMIT: u64 = 16 << 30;

/// An [`Observer`] that writes the metrics file. Every line is handed to the system at once, so a crash loses none.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    file: File,
}

impl MetricsLog {
    /// Begins an empty file at `path`.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, TrainingError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(StorageError::io("create", path))?;
        Ok(Self { path: path.into(), file })
    }

    /// Continues the file at `path` after `done` steps; what an interrupted run wrote about later steps is dropped, and a last
    /// line that was cut short. The training does not need the file: missing lines are only a warning in the log.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written, or another line is none of ours; then nothing is changed.
    pub fn resume(path: impl AsRef<Path>, done: usize) -> Result<Self, TrainingError> {
        let path = path.as_ref();
        let text = match read_metrics(path) {
            Err(error) if error.is_not_found() => String::new(),
            text => text?,
        };
        let kept = up_to(done, &text).map_err(TrainingError::damaged(path))?;
        if let Some(warning) = lost(done, &kept) {
            log::warn!("`{}` {warning}", path.display());
        }
        write_atomic(path, kept)?;
        let file = OpenOptions::new().append(true).open(path).map_err(StorageError::io("write", path))?;
        Ok(Self { path: path.into(), file })
    }

    fn append(&mut self, report: &impl Serialize) -> Result<(), TrainingError> {
        let mut line = serde_json::to_string(report).map_err(TrainingError::file("write", &self.path))?;
        line.push('\n');
        Ok(self.file.write_all(line.as_bytes()).map_err(StorageError::io("write", &self.path))?)
    }
}

impl Observer for MetricsLog {
    fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
        self.append(report)
    }

    fn evaluation(&mut self, report: &EvaluationReport) -> Result<(), TrainingError> {
        self.append(report)
    }
}

/// The text of a metrics file.
pub(crate) fn read_metrics(path: &Path) -> Result<String, StorageError> {
    read_text_file(path, LIMIT)
}

/// The lines about the first `done` steps, or what is wrong with a line.
fn up_to(done: usize, text: &str) -> Result<String, String> {
    let mut kept = String::new();
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        match step_of(line) {
            Some(step) if step <= done => kept.extend([line.trim_end_matches('\n'), "\n"]),
            Some(_) => {}
            None if !line.ends_with('\n') => {} // The last line: a kill or a power cut in the midst of it.
            None => return Err(format!("line {number} is no JSON object with a `step`; mend or remove the line")),
        }
    }
    Ok(kept)
}

/// A warning if lines of the first `done` steps are missing.
fn lost(done: usize, kept: &str) -> Option<String> {
    let steps: BTreeSet<usize> = kept.lines().filter_map(step_of).collect();
    let there = steps.iter().filter(|step| (1..=done).contains(*step)).count();
    let newest = steps.last().copied().unwrap_or(0);
    (there < done).then(|| {
        format!(
            "has {there} of the {done} steps of the run, the newest is {newest}: the others will be missing in the curves of its report"
        )
    })
}

/// The step that a line is about; none if the line is cut short or not ours.
fn step_of(line: &str) -> Option<usize> {
    serde_json::from_str::<serde_json::Value>(line).ok()?["step"].as_u64()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn report(step: usize) -> StepReport {
        let (loss, training_loss) = (0.1 + 0.2, None);
        StepReport { step, loss, training_loss, learning_rate: 1e-3, gradient_norm: 0.5, tokens_per_second: 768.0 }
    }

    #[test]
    fn one_object_per_line_with_every_digit() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("metrics.jsonl");
        let mut log = MetricsLog::create(&path).unwrap();
        log.step(&report(1)).unwrap();
        log.step(&StepReport { training_loss: Some(0.75), ..report(1) }).unwrap();
        log.evaluation(&EvaluationReport { step: 1, validation_loss: 1.5, is_best: true, ..Default::default() })
            .unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "{\"step\":1,\"loss\":0.30000000000000004,\"learning_rate\":0.001,\"gradient_norm\":0.5,\
             \"tokens_per_second\":768.0}\n{\"step\":1,\"loss\":0.30000000000000004,\"training_loss\":0.75,\
             \"learning_rate\":0.001,\"gradient_norm\":0.5,\"tokens_per_second\":768.0}\n\
             {\"step\":1,\"validation_loss\":1.5}\n"
        );
    }

    #[test]
    fn resuming_drops_later_steps_and_a_torn_line() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("metrics.jsonl");
        let mut log = MetricsLog::create(&path).unwrap();
        (1..=3).for_each(|step| log.step(&report(step)).unwrap());
        log.file.write_all(b"{\"step\":4,\"lo").unwrap();

        MetricsLog::resume(&path, 2).unwrap().step(&report(3)).unwrap();
        let steps: Vec<_> = fs::read_to_string(&path).unwrap().lines().map(step_of).collect();
        assert_eq!(steps, [Some(1), Some(2), Some(3)]);
        MetricsLog::resume(home.path().join("new.jsonl"), 2).unwrap();
    }

    #[test]
    fn lines_that_are_gone_are_counted() {
        let line = |step: usize| format!("{{\"step\":{step}}}\n");
        let all: String = [1, 2, 2, 3].into_iter().map(line).collect();
        assert_eq!(lost(3, &all), None, "two lines tell of step 2, its evaluation is one of them");
        let said = |done, text: &str| lost(done, text).unwrap();
        assert!(said(46, "").starts_with("has 0 of the 46 steps of the run, the newest is 0: "), "{}", said(46, ""));
        assert!(said(4, &all).starts_with("has 3 of the 4 steps of the run, the newest is 3: "));
        assert!(said(3, &line(3)).starts_with("has 1 of the 3 steps of the run, the newest is 3: "));
    }

    #[test]
    fn a_line_that_is_not_ours_is_named_and_nothing_is_changed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("metrics.jsonl");
        for bad in ["not JSON", "{\"loss\":1.0}", "", "{\"step\":2,\"lo"] {
            let text = format!("{{\"step\":1}}\n{bad}\n{{\"step\":3}}\n");
            fs::write(&path, &text).unwrap();
            let error = MetricsLog::resume(&path, 1).unwrap_err();
            let expected = format!("the file `{}` is damaged: line 2 is no JSON object with a `step`", path.display());
            assert!(error.to_string().starts_with(&expected) && error.is_user_error(), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::write(&path, "{\"step\":1}\n{\"step\":2}").unwrap();
        MetricsLog::resume(&path, 2).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":1}\n{\"step\":2}\n");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let home = tempfile::tempdir().unwrap();
        let error = MetricsLog::resume(home.path(), 1).unwrap_err(); // a folder in its place
        assert!(error.to_string().starts_with(&format!("`{}` is a folder, but", home.path().display())), "{error}");
        let path = home.path().join("metrics.jsonl");
        fs::write(&path, b"{\"step\":1}\n\xFF\n").unwrap();
        let error = MetricsLog::resume(&path, 1).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot read `{}`: ", path.display())), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"{\"step\":1}\n\xFF\n");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = MetricsLog::create("/no/such/folder/metrics.jsonl").unwrap_err();
        assert!(error.to_string().starts_with("cannot create `/no/such/folder/metrics.jsonl`: "), "{error}");
    }
}
