//! The progress of a run on the terminal: a bar with the loss, the throughput and the time left, and a line for every
//! evaluation. Where there is no terminal, only the lines are written.

use std::io::{self, Write};

use indicatif::{ProgressDrawTarget, ProgressStyle};

use crate::{EvaluationReport, Observer, RunReport, StepReport, TrainingError};

const TEMPLATE: &str = "{bar:20} {pos}/{len}  {msg}  {eta} left";

/// The weight of the newest loss in the smoothed one.
const WEIGHT: f64 = 0.05;

/// An [`Observer`] that draws on the standard error, so that the standard output stays free for results.
pub struct ProgressBar {
    bar: indicatif::ProgressBar,
    /// Takes the lines where no bar can be drawn.
    plain: Box<dyn Write + Send>,
    steps: usize,
    smoothed: Option<f64>,
    last: Option<StepReport>,
}

impl Default for ProgressBar {
    fn default() -> Self {
        Self::new()
    }
}

impl ProgressBar {
    /// A bar on the standard error.
    pub fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr(), Box::new(io::stderr()))
    }

    fn on(target: ProgressDrawTarget, plain: Box<dyn Write + Send>) -> Self {
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = indicatif::ProgressBar::with_draw_target(None, target).with_style(style);
        Self { bar, plain, steps: 0, smoothed: None, last: None }
    }

    /// What is worth knowing about the newest step.
    fn status(&self, report: &StepReport) -> String {
        let StepReport { loss, gradient_norm, learning_rate, tokens_per_second, .. } = report;
        let smoothed = self.smoothed.unwrap_or(*loss);
        format!(
            "loss {loss:.4} (smoothed {smoothed:.4}), gradient {gradient_norm:.2}, rate {learning_rate:.1e}, \
             {tokens_per_second:.0} tokens/s"
        )
    }

    /// Writes a line that stays. Progress that cannot be shown is no reason to stop a training.
    fn line(&mut self, text: &str) {
        match self.bar.is_hidden() {
            true => drop(writeln!(self.plain, "{text}")),
            false => self.bar.println(text),
        }
    }
}

impl Observer for ProgressBar {
    fn started(&mut self, run: &RunReport) -> Result<(), TrainingError> {
        self.steps = run.steps;
        self.bar.set_length(run.steps as u64);
        self.bar.set_position(run.done as u64);
        // The steps of an earlier run took no time of this one.
        self.bar.reset_eta();
        Ok(())
    }

    fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
        let smoothed = self.smoothed.map_or(report.loss, |old| old + (report.loss - old) * WEIGHT);
        self.smoothed = Some(smoothed);
        self.bar.set_message(self.status(report));
        self.bar.set_position(report.step as u64);
        self.last = Some(*report);
        Ok(())
    }

    fn evaluation(&mut self, report: &EvaluationReport) -> Result<(), TrainingError> {
        let best = if report.is_best { ", the best so far" } else { "" };
        let status = self.last.map_or(String::new(), |last| format!("{}, ", self.status(&last)));
        let (step, loss) = (report.step, report.validation_loss);
        let metrics = report.metrics.iter().map(|(name, value)| format!(", {name} {value:.2}")).collect::<String>();
        self.line(&format!("step {step}/{}: {status}validation loss {loss:.4}{metrics}{best}", self.steps));
        Ok(())
    }

    fn finished(&mut self) -> Result<(), TrainingError> {
        self.bar.finish_and_clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn without_a_terminal_every_evaluation_is_a_plain_line() {
        let written = Shared::default();
        let mut progress = ProgressBar::on(ProgressDrawTarget::hidden(), Box::new(written.clone()));
        progress.started(&RunReport { done: 0, steps: 20 }).unwrap();
        let report = StepReport {
            step: 10,
            loss: 2.5,
            charged_loss: None,
            learning_rate: 1e-3,
            gradient_norm: 1.0,
            tokens_per_second: 1234.6,
        };
        progress.step(&report).unwrap();
        progress
            .evaluation(&EvaluationReport { step: 10, validation_loss: 2.0, is_best: true, ..Default::default() })
            .unwrap();
        progress.finished().unwrap();
        assert_eq!(
            String::from_utf8(written.0.lock().unwrap().clone()).unwrap(),
            "step 10/20: loss 2.5000 (smoothed 2.5000), gradient 1.00, rate 1.0e-3, 1235 tokens/s, validation loss 2.0000, \
             the best so far\n"
        );
    }
}
