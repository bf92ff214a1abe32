//! The progress of a run on the terminal: a bar with the loss, the throughput and the time left, and a line for every
//! evaluation. Where there is no terminal, only the lines are written, each with the time left.

use std::io::{self, Write};

use indicatif::{HumanDuration, ProgressDrawTarget, ProgressStyle};

use crate::{EvaluationReport, Observer, RunReport, StepReport, TrainingError};

const TEMPLATE: &str = "{bar:20} {pos}/{len}  {msg}  {eta} left";

/// The weight of the newest loss in the smoothed one.
const WEIGHT: f64 = 0.05;

/// An [`Observer`] that draws on the standard error, so that the standard output stays free for results.
pub struct ProgressBar {
    bar: indicatif::ProgressBar,
    /// Takes the lines where no bar can be drawn.
    plain: Box<dyn Write + Send>,
    /// What is counted by the second.
    target: &'static str,
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

    /// Says what the throughput counts, such as `text`; a `token` without a word.
    pub fn counting(mut self, target: &'static str) -> Self {
        self.target = target;
        self
    }

    fn on(target: ProgressDrawTarget, plain: Box<dyn Write + Send>) -> Self {
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = indicatif::ProgressBar::with_draw_target(None, target).with_style(style);
        Self { bar, plain, target: "token", steps: 0, smoothed: None, last: None }
    }

    /// What is worth knowing about the newest step.
    fn status(&self, report: &StepReport) -> String {
        let StepReport { loss, gradient_norm, learning_rate, tokens_per_second, .. } = report;
        let (smoothed, target) = (self.smoothed.unwrap_or(*loss), self.target);
        format!(
            "loss {loss:.4} (smoothed {smoothed:.4}), gradient {gradient_norm:.2}, rate {learning_rate:.1e}, \
             {tokens_per_second:.0} {target}s/s"
        )
    }

    /// Writes a line about a step that stays. Progress that cannot be shown is no reason to stop a training.
    fn line(&mut self, step: usize, text: &str) {
        let place = format!("step {step}/{}", self.steps);
        match self.bar.is_hidden() {
            true => drop(writeln!(self.plain, "{place}, {:#} left: {text}", HumanDuration(self.bar.eta()))),
            false => self.bar.println(format!("{place}: {text}")),
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
        let metrics = report.metrics.iter().map(|(name, value)| metric(name, *value)).collect::<String>();
        self.line(step, &format!("{status}validation loss {loss:.4}{metrics}{best}"));
        Ok(())
    }

    fn finished(&mut self) -> Result<(), TrainingError> {
        self.bar.finish_and_clear();
        Ok(())
    }
}

/// A metric with the digits that tell evaluations apart: a share has more of them than a number of per cent.
fn metric(name: &str, value: f64) -> String {
    if value.abs() <= 1.0 { format!(", {name} {value:.4}") } else { format!(", {name} {value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

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

    impl Shared {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn report(step: usize, loss: f64) -> StepReport {
        StepReport {
            step,
            loss,
            charged_loss: None,
            learning_rate: 1e-3,
            gradient_norm: 1.0,
            tokens_per_second: 1234.6,
        }
    }

    fn evaluation() -> EvaluationReport {
        EvaluationReport { step: 10, validation_loss: 2.0, is_best: true, ..Default::default() }
    }

    /// The time before a ` left`, in seconds.
    fn seconds_left(text: &str) -> u64 {
        let before = text.split_once("s left").expect("seconds are left").0;
        let digits = before.rsplit(|character: char| !character.is_ascii_digit()).next().unwrap();
        digits.parse().unwrap()
    }

    #[test]
    fn without_a_terminal_every_evaluation_is_a_plain_line_with_the_time_left() {
        let written = Shared::default();
        let mut progress = ProgressBar::on(ProgressDrawTarget::hidden(), Box::new(written.clone()));
        progress.started(&RunReport { done: 0, steps: 110 }).unwrap();
        thread::sleep(Duration::from_millis(500));
        progress.step(&report(10, 2.5)).unwrap();
        progress.evaluation(&evaluation()).unwrap();
        progress.finished().unwrap();
        let (place, rest) = written.text().split_once(" left: ").map(|(a, b)| (a.to_string(), b.to_string())).unwrap();
        assert_eq!(
            rest,
            "loss 2.5000 (smoothed 2.5000), gradient 1.00, rate 1.0e-3, 1235 tokens/s, validation loss 2.0000, the best so \
             far\n"
        );
        // Ten steps took half a second or more, so that 100 take 5 or more.
        assert!(place.starts_with("step 10/110, ") && seconds_left(&format!("{place} left")) >= 4, "{place}");
    }

    #[test]
    fn the_time_left_of_a_resumed_run_follows_from_its_own_steps() {
        let mut progress = ProgressBar::on(ProgressDrawTarget::hidden(), Box::new(Shared::default()));
        progress.started(&RunReport { done: 1000, steps: 2001 }).unwrap();
        thread::sleep(Duration::from_millis(50));
        progress.step(&report(1001, 2.5)).unwrap();
        // One step took a twentieth of a second or more, so that 1000 take 50 or more.
        assert!(progress.bar.eta().as_secs() >= 25, "{:?}", progress.bar.eta());
    }

    /// A terminal that only remembers.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            200
        }

        fn move_cursor_up(&self, _lines: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _lines: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _characters: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _characters: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(&format!("{text}\n"))
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.write_str("\n")
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_terminal_shows_the_smoothed_loss_and_the_time_left() {
        let terminal = Terminal::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let mut progress = ProgressBar::on(target, Box::new(Shared::default()));
        progress.started(&RunReport { done: 0, steps: 42 }).unwrap();
        progress.step(&report(1, 4.0)).unwrap();
        thread::sleep(Duration::from_millis(200));
        progress.step(&report(2, 2.0)).unwrap();
        let drawn = terminal.0.lock().unwrap().clone();
        let status = "loss 2.0000 (smoothed 3.9000), gradient 1.00, rate 1.0e-3, 1235 tokens/s"; // 4 + (2 - 4) / 20
        let (before, after) = drawn.rsplit_once(status).unwrap_or_else(|| panic!("{drawn}"));
        // Two steps took a fifth of a second or more, so that 40 take some seconds.
        assert!(before.ends_with("2/42  ") && seconds_left(after) >= 1, "{drawn}");
    }
}
