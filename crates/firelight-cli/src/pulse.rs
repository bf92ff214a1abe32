//! Signs of life: where a long stretch of work says nothing, a remark after every 15 seconds names what it is.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use firelight::training::{EvaluationReport, Observer, RunReport, StepReport, TrainingError};

use crate::output;

/// How long nothing is said.
const PERIOD: Duration = Duration::from_secs(15);

/// Work that may take long. The remarks end when all copies of it are dropped.
#[derive(Clone)]
pub(crate) struct Pulse(Sender<String>);

impl Pulse {
    /// Begins with `work`, which stands behind "still".
    pub(crate) fn of(work: &str) -> Self {
        Self::every(PERIOD, work, |remark| output::note(format_args!("{remark}")))
    }

    /// Other work begins, or the next part of it: the time counts anew.
    pub(crate) fn now(&self, work: &str) {
        let _ = self.0.send(work.into()); // without its thread there is nobody to remark anything
    }

    fn every(period: Duration, work: &str, tell: impl Fn(String) + Send + 'static) -> Self {
        let (begin, begun) = mpsc::channel::<String>();
        let mut work = work.to_owned();
        let watch = move || {
            let mut silent = Duration::ZERO;
            loop {
                match begun.recv_timeout(period) {
                    Ok(other) => (work, silent) = (other, Duration::ZERO),
                    Err(RecvTimeoutError::Timeout) => {
                        silent += period;
                        tell(format!("still {work}, for {} seconds", silent.as_secs()));
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        drop(thread::Builder::new().name("pulse".into()).spawn(watch)); // a training goes on without it
        Self(begin)
    }
}

/// The steps of a training, one by one.
pub(crate) struct StepPulse {
    pulse: Pulse,
    steps: usize,
}

impl StepPulse {
    pub(crate) fn new(pulse: Pulse) -> Self {
        Self { pulse, steps: 0 }
    }

    fn after(&self, step: usize) {
        self.pulse.now(&format!("at work after step {step}/{}", self.steps)); // on the next one, an evaluation or a checkpoint
    }
}

impl Observer for StepPulse {
    fn started(&mut self, run: &RunReport) -> Result<(), TrainingError> {
        self.steps = run.steps;
        self.after(run.done);
        Ok(())
    }

    fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
        self.after(report.step);
        Ok(())
    }

    fn evaluation(&mut self, report: &EvaluationReport) -> Result<(), TrainingError> {
        self.after(report.step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pulse of a short period, and its remarks.
    fn short_pulse(work: &str) -> (Pulse, mpsc::Receiver<String>) {
        let (sender, remarks) = mpsc::channel();
        (Pulse::every(Duration::from_millis(5), work, move |remark| drop(sender.send(remark))), remarks)
    }

    #[test]
    fn work_that_says_nothing_is_named_again_and_again_until_it_ends() {
        let (pulse, remarks) = short_pulse("preparing");
        assert_eq!(remarks.recv().unwrap(), "still preparing, for 0 seconds");
        assert_eq!(remarks.recv().unwrap(), "still preparing, for 0 seconds");
        drop(pulse);
        assert!(remarks.iter().count() < 1000, "the thread has ended, and with it the remarks");
    }

    #[test]
    fn seconds_are_those_since_the_work_was_named() {
        let (sender, remarks) = mpsc::channel();
        let tell = move |remark| drop(sender.send(remark));
        let pulse = Pulse::every(Duration::from_millis(600), "preparing", tell);
        assert_eq!(
            [(); 2].map(|()| remarks.recv().unwrap()),
            [0, 1].map(|n| format!("still preparing, for {n} seconds"))
        );
        pulse.now("checking");
        assert_eq!(remarks.recv().unwrap(), "still checking, for 0 seconds");
    }

    #[test]
    fn a_training_is_named_by_its_last_step() {
        let (pulse, remarks) = short_pulse("preparing");
        let mut steps = StepPulse::new(pulse);
        let named = |expected: &str| assert!(remarks.iter().any(|remark| remark.starts_with(expected)), "{expected}");
        steps.started(&RunReport { done: 3, steps: 5 }).unwrap();
        named("still at work after step 3/5, for ");
        steps.evaluation(&EvaluationReport { step: 4, ..EvaluationReport::default() }).unwrap();
        named("still at work after step 4/5, for ");
    }
}
