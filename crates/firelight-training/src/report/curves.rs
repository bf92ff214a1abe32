//! The curves of a run, read from its `metrics.jsonl`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::scale::Scale;
use crate::metrics_log::read_metrics;
use crate::words::metric_in_words;
use crate::{Chart, Series, TrainingError};

/// The weight of the newest value in a smoothed curve.
const WEIGHT: f64 = 0.05;

/// What every task writes; `charged_loss` is what older versions called the training loss.
const COMMON: [&str; 7] =
    ["loss", "training_loss", "charged_loss", "validation_loss", "learning_rate", "gradient_norm", "tokens_per_second"];

/// All numbers of a run by name, each with the steps at which it was measured.
pub(super) struct Curves {
    values: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Curves {
    /// Reads the file at `path`. A last line that was cut short by a crash is left out.
    pub(super) fn read(path: &Path) -> Result<Self, TrainingError> {
        let text = read_metrics(path)?;
        let mut values = BTreeMap::<String, Vec<(f64, f64)>>::new();
        for (number, line) in text.split_inclusive('\n').enumerate().filter(|(_, line)| line.ends_with('\n')) {
            let fields: Map<String, Value> = serde_json::from_str(line)
                .map_err(|error| TrainingError::damaged(path)(format!("line {}: {error}", number + 1)))?;
            let Some(step) = fields.get("step").and_then(Value::as_f64) else { continue };
            for (name, value) in fields.iter().filter(|(name, _)| *name != "step") {
                values.entry(name.clone()).or_default().extend(value.as_f64().map(|value| (step, value)));
            }
        }
        Ok(Self { values })
    }

    /// The last step.
    pub(super) fn last_step(&self) -> Option<usize> {
        self.values.get("loss")?.last().map(|(step, _)| *step as usize)
    }

    /// The newest validation loss, and the step after which it was measured.
    pub(super) fn validation(&self) -> Option<(usize, f64)> {
        self.values.get("validation_loss")?.last().map(|(step, loss)| (*step as usize, *loss))
    }

    /// The charts of the report, each with its heading; a loss is the mean over each `target`, in `loss_unit`.
    pub(super) fn charts(&self, target: &str, loss_unit: &str) -> Vec<(String, Chart)> {
        let single = |heading: &str, curve: Series, unit: &str| (heading.to_string(), chart(unit, vec![curve]));
        let rate = format!("{target}s per second");
        let mut charts = vec![("Loss".to_string(), chart(loss_unit, self.losses()))];
        charts.extend(self.of_the_task());
        charts.extend([
            single("Learning rate", self.curve("learning_rate", "learning rate"), "learning rate"),
            single("Gradient norm before clipping", self.curve("gradient_norm", "norm"), "norm"),
            single("Throughput", self.smoothed("tokens_per_second", "smoothed"), &rate),
        ]);
        charts
    }

    /// The losses of the training and of the validation, which have one scale.
    pub(super) fn losses(&self) -> Vec<Series> {
        let minimised = ["training_loss", "charged_loss"].into_iter().filter(|key| self.values.contains_key(*key));
        let minimised = minimised.map(|key| self.smoothed(key, "minimised, smoothed"));
        let common = [self.smoothed("loss", "training, smoothed"), self.curve("validation_loss", "validation")];
        common.into_iter().chain(minimised).collect()
    }

    /// What the task measured beside the loss: a chart for each scale.
    fn of_the_task(&self) -> Vec<(String, Chart)> {
        let own: Vec<&str> = self.values.keys().map(String::as_str).filter(|key| !COMMON.contains(key)).collect();
        let mut charts = BTreeMap::<Scale, Vec<Series>>::new();
        for name in &own {
            charts.entry(Scale::of(name, &own)).or_default().push(self.curve(name, &metric_in_words(name)));
        }
        charts.into_iter().map(|(scale, curves)| (scale.heading(), chart(&scale.label(), curves))).collect()
    }

    fn smoothed(&self, key: &str, name: &str) -> Series {
        Series { name: name.into(), points: smoothed(&self.curve(key, name).points) }
    }

    fn curve(&self, key: &str, name: &str) -> Series {
        Series { name: name.into(), points: self.values.get(key).cloned().unwrap_or_default() }
    }
}

/// A chart by step.
pub(super) fn chart(unit: &str, curves: Vec<Series>) -> Chart {
    Chart { x_label: "step".into(), y_label: unit.into(), series: curves }
}

/// The exponential moving average of a curve.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let follow = |mean: &mut Option<f64>, &(step, value): &(f64, f64)| {
        let next = mean.map_or(value, |old| old + (value - old) * WEIGHT);
        *mean = Some(next);
        Some((step, next))
    };
    points.iter().scan(None, follow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(lines: &str) -> Curves {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("metrics.jsonl");
        std::fs::write(&path, lines).unwrap();
        Curves::read(&path).unwrap()
    }

    /// The headings of the charts with the names of their curves.
    fn named(charts: &[(String, Chart)]) -> Vec<(&str, Vec<String>)> {
        let names = |chart: &Chart| chart.series.iter().map(|curve| curve.name.clone()).collect::<Vec<_>>();
        charts.iter().map(|(heading, chart)| (heading.as_str(), names(chart))).collect()
    }

    #[test]
    fn curves_are_smoothed_and_a_metric_of_the_task_has_a_chart() {
        assert_eq!(smoothed(&[(1.0, 4.0), (2.0, 2.0)]), [(1.0, 4.0), (2.0, 3.9)]);
        let curves = curves("{\"step\":5,\"validation_loss\":2.0,\"accuracy\":0.5}\n{\"step\":6,\"lo");
        let charts = curves.charts("text", "nats per text");
        assert_eq!(charts[1].0, "Validation metrics");
        assert_eq!(charts[1].1.series, [Series { name: "accuracy".into(), points: vec![(5.0, 0.5)] }]);
        assert_eq!((charts[0].1.series.len(), charts[0].1.y_label.as_str()), (2, "nats per text"));
        assert_eq!((curves.validation(), curves.last_step()), (Some((5, 2.0)), None));
    }

    #[test]
    fn metrics_of_different_scales_have_charts_of_their_own() {
        let line = "{\"step\":5,\"bleu\":0.4,\"exact_match\":0.0,\"token_accuracy\":0.3,\"next_sentence_loss\":0.7}\n";
        let charts = curves(line).charts("token", "nats per token");
        let expected = [
            ("Validation metrics", vec!["token accuracy".to_string()]),
            ("Validation metrics, 0 to 100", vec!["BLEU".to_string(), "exact match".into()]),
            ("Validation metric: next sentence loss", vec!["next sentence loss".into()]),
        ];
        assert_eq!(named(&charts[1..4]), expected);
        assert_eq!(charts.len(), 7);

        let line = "{\"step\":5,\"exact_match\":0.5,\"f1\":0.6,\"pace\":3.0}\n";
        let charts = curves(line).charts("question", "nats per question");
        let expected = [
            ("Validation metrics", vec!["exact match".to_string(), "F1".into()]),
            ("Validation metric: pace", vec!["pace".into()]),
        ];
        assert_eq!(named(&charts[1..3]), expected);

        let line = "{\"step\":5,\"accuracy\":0.5,\"matthews\":-0.1,\"pearson\":0.2,\"spearman\":0.3}\n";
        let charts = curves(line).charts("text", "nats per text");
        let expected = [
            ("Validation metrics", vec!["accuracy".to_string()]),
            ("Validation metrics, -1 to 1", ["matthews", "pearson", "spearman"].map(metric_in_words).to_vec()),
        ];
        assert_eq!(named(&charts[1..3]), expected);
        assert_eq!([&charts[1], &charts[2]].map(|(_, chart)| chart.y_label.as_str()), ["share", "correlation"]);
    }

    #[test]
    fn every_number_of_a_step_is_a_point_of_its_curve() {
        let step = "{\"step\":3,\"loss\":2.0,\"learning_rate\":0.1,\"gradient_norm\":0.5,\"tokens_per_second\":7.0}\n";
        let charts = curves(step).charts("text", "nats per text");
        let points: Vec<_> = charts.iter().map(|(_, chart)| chart.series[0].points.clone()).collect();
        assert_eq!(points, [2.0, 0.1, 0.5, 7.0].map(|value| vec![(3.0, value)]));
        assert_eq!(curves(step).last_step(), Some(3));
    }

    #[test]
    fn the_loss_that_a_step_minimises_is_a_curve_beside_the_loss() {
        for name in ["training_loss", "charged_loss"] {
            let charts =
                curves(&format!("{{\"step\":1,\"loss\":2.0,\"{name}\":3.0}}\n")).charts("text", "nats per text");
            assert_eq!((charts[0].1.series[2].points.clone(), charts.len()), (vec![(1.0, 3.0)], 4));
        }
    }
}
