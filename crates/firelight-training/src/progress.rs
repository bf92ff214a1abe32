//! The progress of a run on the standard error. On a terminal: a bar with the loss, the throughput and the time left, and a line for
//! every evaluation; a spinner turns while a step takes long. Elsewhere: the same as lines, one every 50 steps or 15 seconds and one
//! for every evaluation. Burn's own trainings are shown alike: a [`ProgressBar`] is a `MetricsRenderer`.

mod renderer;

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressDrawTarget, ProgressStyle};

use crate::clock::Clock;
use crate::words::{metric_in_words, wrapped};
use crate::{EvaluationReport, Observer, RunReport, StepReport, TrainingError};
use renderer::BurnProgress;

const TEMPLATE: &str = "{bar:20} {pos}/{len}{prefix} {spinner}\n{msg}";

/// How often the spinner turns.
const TICK: Duration = Duration::from_secs(1);

/// Without a terminal there is a line after every so many steps, and after a step that ends so long after the last line.
const LINE_EVERY: (usize, Duration) = (50, Duration::from_secs(15));

/// Characters in a line on a terminal.
const WIDTH: usize = 80;

/// The weight of the newest loss in the smoothed one.
const WEIGHT: f64 = 0.05;

/// An [`Observer`] that draws on the standard error, so that the standard output stays free for results. In a training by Burn's
/// `Learner` it is the renderer, which shows Burn's metrics:
///
/// ```
/// use burn::train::SupervisedTraining;
/// use firelight_training::{ProgressBar, Trainable};
///
/// fn watched<M: Trainable>(training: SupervisedTraining<M>) -> SupervisedTraining<M> {
///     training.renderer(Box::new(ProgressBar::new()))
/// }
/// ```
pub struct ProgressBar {
    bar: indicatif::ProgressBar,
    /// Takes the lines where no bar can be drawn.
    plain: Box<dyn Write + Send + Sync>,
    clock: Clock,
    /// What is counted by the second.
    target: &'static str,
    run: RunReport,
    began: Duration,
    smoothed: Option<f64>,
    last: Option<StepReport>,
    /// The time of the newest line, and the step that it was about.
    written: (Duration, usize),
    of_burn: BurnProgress,
}

impl Default for ProgressBar {
    fn default() -> Self {
        Self::new()
    }
}

impl ProgressBar {
    /// A bar on the standard error.
    pub fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr(), Box::new(io::stderr()), Clock::new())
    }

    /// Says what the throughput counts, such as `text`; a `token` without a word.
    pub fn counting(mut self, target: &'static str) -> Self {
        self.target = target;
        self
    }

    fn on(target: ProgressDrawTarget, plain: Box<dyn Write + Send + Sync>, clock: Clock) -> Self {
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = indicatif::ProgressBar::with_draw_target(None, target).with_style(style);
        let (run, began) = (RunReport { done: 0, steps: 0 }, Duration::ZERO);
        let (smoothed, last, written, of_burn) = (None, None, (began, 0), BurnProgress::default());
        Self { bar, plain, clock, target: "token", run, began, smoothed, last, written, of_burn }
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

    /// The time left in words, as the steps of this process have taken it; none before the first of them.
    fn left(&self, step: usize) -> String {
        let taken = step.saturating_sub(self.run.done);
        if taken == 0 {
            return String::new();
        }
        let seconds = (self.clock.elapsed() - self.began).as_secs_f64() / taken as f64;
        let left = Duration::try_from_secs_f64(seconds * self.run.steps.saturating_sub(step) as f64);
        format!(", {} left", HumanDuration(left.unwrap_or(Duration::MAX)))
    }

    /// Whether it is time for a line about a step.
    fn is_time(&self, step: usize) -> bool {
        let (steps, time) = LINE_EVERY;
        self.bar.is_hidden() && (step.is_multiple_of(steps) || self.clock.elapsed() >= self.written.0 + time)
    }

    /// Writes a line about a step that stays.
    fn line(&mut self, step: usize, text: &str) {
        let left = if self.bar.is_hidden() { self.left(step) } else { String::new() };
        self.write(&format!("step {step}/{}{left}: {text}", self.run.steps));
        self.written = (self.clock.elapsed(), step);
    }

    /// Writes a line that stays. Progress that cannot be shown is no reason to stop a training.
    fn write(&mut self, line: &str) {
        match self.bar.is_hidden() {
            true => drop(writeln!(self.plain, "{line}")),
            false => self.bar.println(wrapped(line, WIDTH)),
        }
    }
}

impl Observer for ProgressBar {
    fn started(&mut self, run: &RunReport) -> Result<(), TrainingError> {
        (self.run, self.began) = (*run, self.clock.elapsed());
        self.written = (self.began, run.done);
        self.bar.set_length(run.steps as u64);
        self.bar.set_position(run.done as u64);
        if !self.bar.is_hidden() {
            self.bar.enable_steady_tick(TICK);
        }
        Ok(())
    }

    fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
        let smoothed = self.smoothed.map_or(report.loss, |old| old + (report.loss - old) * WEIGHT);
        self.smoothed = Some(smoothed);
        self.last = Some(*report);
        if self.is_time(report.step) {
            self.line(report.step, &self.status(report));
        }
        self.bar.set_position(report.step as u64);
        self.bar.set_prefix(self.left(report.step));
        self.bar.set_message(self.status(report));
        Ok(())
    }

    fn evaluation(&mut self, report: &EvaluationReport) -> Result<(), TrainingError> {
        let best = if report.is_best { ", the best so far" } else { "" };
        let unwritten = self.last.filter(|last| self.written.1 != last.step);
        let status = unwritten.map_or(String::new(), |last| format!("{}, ", self.status(&last)));
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
    let name = metric_in_words(name);
    if value.abs() <= 1.0 { format!(", {name} {value:.4}") } else { format!(", {name} {value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::settable;
    use indicatif::TermLike;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    pub(super) struct Shared(Arc<Mutex<Vec<u8>>>);

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
        pub(super) fn lines(&self) -> Vec<String> {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_string).collect()
        }
    }

    fn report(step: usize, loss: f64) -> StepReport {
        StepReport {
            step,
            loss,
            training_loss: None,
            learning_rate: 1e-3,
            gradient_norm: 1.0,
            tokens_per_second: 1234.6,
        }
    }

    fn evaluation(step: usize) -> EvaluationReport {
        EvaluationReport { step, validation_loss: 2.0, is_best: true, ..Default::default() }
    }

    /// Progress without a terminal, what it writes, and the hand of its clock.
    pub(super) fn without_a_terminal(run: RunReport) -> (ProgressBar, Shared, Arc<AtomicU64>) {
        let (written, (clock, hand)) = (Shared::default(), settable());
        let mut progress = ProgressBar::on(ProgressDrawTarget::hidden(), Box::new(written.clone()), clock);
        progress.started(&run).unwrap();
        (progress, written, hand)
    }

    const STATUS: &str = "loss 2.5000 (smoothed 2.5000), gradient 1.00, rate 1.0e-3, 1235 tokens/s";

    #[test]
    fn without_a_terminal_every_evaluation_is_a_plain_line_with_the_time_left() {
        let (mut progress, written, hand) = without_a_terminal(RunReport { done: 0, steps: 110 });
        hand.store(1000, Ordering::SeqCst);
        progress.step(&report(10, 2.5)).unwrap();
        progress.evaluation(&evaluation(10)).unwrap();
        progress.finished().unwrap();
        // Ten steps took a second, so that 100 take ten.
        let expected = format!("step 10/110, 10 seconds left: {STATUS}, validation loss 2.0000, the best so far");
        assert_eq!(written.lines(), [expected]);
    }

    #[test]
    fn without_a_terminal_there_is_a_line_every_fifty_steps() {
        let (mut progress, written, _) = without_a_terminal(RunReport { done: 0, steps: 1000 });
        for step in 1..=149 {
            progress.step(&report(step, 2.5)).unwrap();
        }
        let expected = [50, 100].map(|step| format!("step {step}/1000, 0 seconds left: {STATUS}"));
        assert_eq!(written.lines(), expected);
        progress.step(&report(150, 2.5)).unwrap();
        progress.evaluation(&evaluation(150)).unwrap(); // its step has been written
        assert_eq!(written.lines()[3], "step 150/1000, 0 seconds left: validation loss 2.0000, the best so far");
    }

    #[test]
    fn without_a_terminal_slow_steps_have_a_line_every_fifteen_seconds() {
        let (mut progress, written, hand) = without_a_terminal(RunReport { done: 100, steps: 200 });
        for (step, seconds) in [(101, 14), (102, 15), (103, 29), (104, 30), (105, 60), (106, 61)] {
            hand.store(1000 * seconds, Ordering::SeqCst);
            progress.step(&report(step, 2.5)).unwrap();
        }
        // Two steps took 15 seconds, so that 98 take 735; four took 30; five took 60.
        let lines = [(102, "12 minutes"), (104, "12 minutes"), (105, "19 minutes")];
        assert_eq!(written.lines(), lines.map(|(step, left)| format!("step {step}/200, {left} left: {STATUS}")));
    }

    #[test]
    fn metrics_are_named_in_words_with_the_digits_that_tell_them_apart() {
        let (mut progress, written, _) = without_a_terminal(RunReport { done: 0, steps: 10 });
        let metrics = [("bleu", 41.907), ("token_accuracy", 0.45678)].map(|(name, value)| (name.to_string(), value));
        progress.evaluation(&EvaluationReport { metrics: metrics.into(), ..evaluation(0) }).unwrap();
        let expected = "step 0/10: validation loss 2.0000, BLEU 41.91, token accuracy 0.4568, the best so far";
        assert_eq!(written.lines(), [expected]);
    }

    /// A terminal that only remembers.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
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
    fn a_terminal_shows_the_smoothed_loss_and_the_time_left_in_lines_that_fit() {
        let (terminal, (clock, hand)) = (Terminal::default(), settable());
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(terminal.clone()), 255);
        let mut progress = ProgressBar::on(target, Box::new(Shared::default()), clock);
        progress.started(&RunReport { done: 0, steps: 42 }).unwrap();
        progress.step(&report(1, 4.0)).unwrap();
        hand.store(2000, Ordering::SeqCst);
        progress.step(&report(2, 2.0)).unwrap();
        let metrics = ["accuracy", "macro_f1", "weighted_f1"].map(|name| (name.to_string(), 0.5)).into();
        progress.evaluation(&EvaluationReport { metrics, ..evaluation(2) }).unwrap();
        let drawn = terminal.0.lock().unwrap().clone();
        let characters: Vec<Vec<char>> = drawn.lines().map(|line| line.chars().collect()).collect();
        let rows = characters.iter().flat_map(|line| line.chunks(80)).map(|row| row.iter().collect::<String>());
        let rows: Vec<String> = rows.map(|row| row.trim_end().to_string()).collect();
        let bar = "░░░░░░░░░░░░░░░░░░░░ 2/42, 40 seconds left "; // two steps took two seconds
        assert!(rows.iter().any(|row| row.starts_with(bar)), "{rows:#?}");
        for row in [
            "loss 2.0000 (smoothed 3.9000), gradient 1.00, rate 1.0e-3, 1235 tokens/s", // 4 + (2 - 4) / 20
            "step 2/42: loss 2.0000 (smoothed 3.9000), gradient 1.00, rate 1.0e-3, 1235",
            "  tokens/s, validation loss 2.0000, accuracy 0.5000, macro F1 0.5000, weighted",
            "  F1 0.5000, the best so far",
        ] {
            assert!(rows.iter().any(|found| found == row), "`{row}` is not in {rows:#?}");
        }
    }
}
