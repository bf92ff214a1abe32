//! When a run was trained, for how long, where and by which command: `sessions.json` in the run folder has one entry for each
//! process that trained it. The report adds their wall times up.

use std::path::{Path, PathBuf};
use std::time::Duration;

use firelight_storage::read_text_file;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::checkpoint::write_json;
use crate::clock::Clock;
use crate::{EvaluationReport, Observer, RunReport, StepReport, TrainingError};

/// A process that is killed loses at most this much of its wall time.
const SAVE_EVERY: Duration = Duration::from_secs(15);

/// No file of sessions is larger, in bytes.
const LIMIT: u64 = 1 << 28;

/// One process that trained a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// When it began to train, in UTC: `2026-11-23 20:24:06 UTC`.
    pub(crate) began: String,
    /// Its wall time in seconds, evaluations and checkpoints included.
    pub(crate) seconds: f64,
    /// Steps done when it began.
    pub(crate) from_step: usize,
    /// Steps done when it last wrote this file.
    pub(crate) to_step: usize,
    /// The version of Firelight.
    pub(crate) version: String,
    /// The device in words; empty where nobody named it.
    #[serde(default)]
    pub(crate) device: String,
    /// The command line of the process.
    pub(crate) command: Vec<String>,
}

impl Session {
    /// The command line as a shell reads it.
    pub(crate) fn command_line(&self) -> String {
        self.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "-_./=:,+%@".contains(character);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The sessions of the run whose file is at `path`, in order; none where there is no such file, as in folders of older versions.
///
/// # Errors
/// Fails if the file cannot be read or is damaged.
pub(crate) fn read_sessions(path: &Path) -> Result<Vec<Session>, TrainingError> {
    match read_text_file(path, LIMIT) {
        Ok(text) => serde_json::from_str(&text).map_err(TrainingError::damaged(path)),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// An [`Observer`] that keeps the entry of this process.
pub(crate) struct SessionLog {
    path: PathBuf,
    earlier: Vec<Session>,
    session: Session,
    clock: Clock,
    saved: Duration,
}

impl SessionLog {
    /// Joins the sessions in the file at `path`; nothing is written before the run starts.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is damaged.
    pub(crate) fn open(path: PathBuf, device: &str) -> Result<Self, TrainingError> {
        let session = Session {
            began: in_words(OffsetDateTime::now_utc()),
            version: env!("CARGO_PKG_VERSION").into(),
            device: device.into(),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            ..Session::default()
        };
        Self::join(path, session, Clock::new())
    }

    fn join(path: PathBuf, session: Session, clock: Clock) -> Result<Self, TrainingError> {
        let earlier = read_sessions(&path)?;
        let saved = clock.elapsed();
        Ok(Self { path, earlier, session, clock, saved })
    }

    fn save_now_and_then(&mut self) -> Result<(), TrainingError> {
        let is_time = self.clock.elapsed() >= self.saved + SAVE_EVERY;
        if is_time { self.save() } else { Ok(()) }
    }

    fn save(&mut self) -> Result<(), TrainingError> {
        self.saved = self.clock.elapsed();
        self.session.seconds = (self.saved.as_secs_f64() * 1e3).round() / 1e3;
        let all: Vec<&Session> = self.earlier.iter().chain([&self.session]).collect();
        write_json(&self.path, &all)
    }
}

impl Observer for SessionLog {
    fn started(&mut self, run: &RunReport) -> Result<(), TrainingError> {
        (self.session.from_step, self.session.to_step) = (run.done, run.done);
        self.save()
    }

    fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
        self.session.to_step = report.step;
        self.save_now_and_then()
    }

    fn evaluation(&mut self, _report: &EvaluationReport) -> Result<(), TrainingError> {
        self.save_now_and_then()
    }

    fn finished(&mut self) -> Result<(), TrainingError> {
        self.save()
    }
}

/// A date and a time of day.
fn in_words(moment: OffsetDateTime) -> String {
    let (hour, minute, second) = moment.to_hms();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", moment.date())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::settable;
    use std::fs;
    use std::sync::atomic::Ordering;

    fn step(step: usize) -> StepReport {
        let (loss, training_loss) = (1.0, None);
        StepReport { step, loss, training_loss, learning_rate: 1e-3, gradient_norm: 0.5, tokens_per_second: 1.0 }
    }

    #[test]
    fn a_moment_is_a_date_and_a_time_of_day() {
        // By `date -u -d @N`.
        let moments = [951_782_400, 1_798_761_599].map(|seconds| OffsetDateTime::from_unix_timestamp(seconds).unwrap());
        assert_eq!(moments.map(in_words), ["2000-02-29 00:00:00 UTC", "2026-12-31 23:59:59 UTC"]);
    }

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let command = ["firelight", "train", "it's here.txt", "--set=model.d_ff=24", ""].map(str::to_string).to_vec();
        let session = Session { command, ..Session::default() };
        assert_eq!(session.command_line(), r"firelight train 'it'\''s here.txt' --set=model.d_ff=24 ''");
    }

    #[test]
    fn every_process_has_an_entry_and_the_wall_time_of_a_killed_one_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("sessions.json");
        let begin = |command: &str, done: usize| {
            let (clock, hand) = settable();
            let session = Session { command: vec![command.into()], ..Session::default() };
            let mut log = SessionLog::join(path.clone(), session, clock).unwrap();
            log.started(&RunReport { done, steps: 100 }).unwrap();
            (log, hand)
        };
        let kept = || {
            let sessions = read_sessions(&path).unwrap().into_iter();
            sessions
                .map(|kept| (kept.command[0].clone(), kept.from_step, kept.to_step, kept.seconds))
                .collect::<Vec<_>>()
        };
        let (mut killed, hand) = begin("first", 0);
        for (milliseconds, number) in [(14_999, 7), (15_001, 8), (20_000, 9)] {
            hand.store(milliseconds, Ordering::SeqCst);
            killed.step(&step(number)).unwrap();
        }
        drop(killed);
        assert_eq!(kept(), [("first".into(), 0, 8, 15.001)]);

        let (mut resumed, hand) = begin("second", 5);
        hand.store(2500, Ordering::SeqCst);
        resumed.step(&step(6)).unwrap();
        resumed.finished().unwrap();
        assert_eq!(kept(), [("first".into(), 0, 8, 15.001), ("second".into(), 5, 6, 2.5)]);
    }

    #[test]
    fn a_damaged_file_is_named_and_left_as_it_was() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("sessions.json");
        fs::write(&path, "[{\"began\":").unwrap();
        let error = SessionLog::open(path.clone(), "flex").err().unwrap();
        assert!(error.to_string().contains("sessions.json` is damaged: EOF") && error.is_user_error(), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "[{\"began\":");
        assert!(read_sessions(&home.path().join("none.json")).unwrap().is_empty());
    }
}
