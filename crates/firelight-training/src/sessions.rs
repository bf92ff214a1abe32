//! When a run was trained, for how long, where and by which command: `sessions.json` in the run folder has one entry for each
//! process that trained it. The report adds their wall times up.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use firelight_storage::{read_text_file, write_atomic};
use serde::{Deserialize, Serialize};

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
            began: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())),
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
        let mut text = serde_json::to_string_pretty(&all).map_err(TrainingError::file("write", &self.path))?;
        text.push('\n');
        Ok(write_atomic(&self.path, text)?)
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

/// Seconds since 1970 as a date and a time of day.
///
/// Source: Hinnant 2013, chrono-compatible low-level date algorithms, `civil_from_days`, for days from 1970 on.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400); // days since the 1st of March of the year 0
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153; // 0 is March
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + 400 * era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
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
    fn dates_are_those_of_the_calendar() {
        // By `date -u -d @N`: the epoch, a leap day, the end of a year that is no leap year, and a year that ends a century.
        let dates = [0, 951_782_400, 1_798_761_599, 4_107_542_400].map(utc);
        let expected = [
            "1970-01-01 00:00:00 UTC",
            "2000-02-29 00:00:00 UTC",
            "2026-12-31 23:59:59 UTC",
            "2100-03-01 00:00:00 UTC",
        ];
        assert_eq!(dates, expected);
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
