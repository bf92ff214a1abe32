//! The curves of a run, read from its `metrics.jsonl`.

use std::collections::BTreeMap;
use std::path::Path;

use firelight_storage::StorageError;
use serde_json::{Map, Value};

use crate::{Chart, Curve, TrainingError};

/// The weight of the newest loss in the smoothed curve.
const WEIGHT: f64 = 0.05;

/// All numbers of a run by name, each with the steps at which it was measured.
pub(super) struct Curves {
    values: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Curves {
    /// Reads the file at `path`. A last line that was cut short by a crash is left out.
    pub(super) fn read(path: &Path) -> Result<Self, TrainingError> {
        let text = std::fs::read_to_string(path).map_err(StorageError::io("read", path))?;
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

    /// The charts of the report, each with its heading; a loss is the mean over each `target`, in `loss_unit`.
    pub(super) fn charts(&self, target: &str, loss_unit: &str) -> Vec<(&'static str, Chart)> {
        let mean = |key: &str, name: &str| Curve { name: name.into(), points: smoothed(&self.curve(key, name).points) };
        let charged = self.values.contains_key("charged_loss");
        let charged = charged.then(|| mean("charged_loss", "as charged, smoothed"));
        let losses = [mean("loss", "batch, smoothed"), self.curve("validation_loss", "validation")];
        let losses = losses.into_iter().chain(charged).collect();
        let single = |name: &str, unit: &str| Chart {
            x_label: "step".into(),
            y_label: unit.into(),
            curves: vec![self.curve(name, unit)],
        };
        let mut charts = vec![
            ("Loss", Chart { x_label: "step".into(), y_label: loss_unit.into(), curves: losses }),
            ("Learning rate", single("learning_rate", "learning rate")),
            ("Norm of the gradients before clipping", single("gradient_norm", "norm")),
            ("Throughput", single("tokens_per_second", &format!("{target}s per second"))),
        ];
        let own = self.of_the_task();
        if !own.is_empty() {
            charts.insert(
                1,
                ("Metrics of the validation", Chart { x_label: "step".into(), y_label: "value".into(), curves: own }),
            );
        }
        charts
    }

    fn curve(&self, key: &str, name: &str) -> Curve {
        Curve { name: name.into(), points: self.values.get(key).cloned().unwrap_or_default() }
    }

    /// What the task measured beside the loss.
    fn of_the_task(&self) -> Vec<Curve> {
        let common = ["loss", "charged_loss", "validation_loss", "learning_rate", "gradient_norm", "tokens_per_second"];
        self.values.keys().filter(|key| !common.contains(&key.as_str())).map(|key| self.curve(key, key)).collect()
    }
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

    #[test]
    fn curves_are_smoothed_and_a_metric_of_the_task_has_a_chart() {
        assert_eq!(smoothed(&[(1.0, 4.0), (2.0, 2.0)]), [(1.0, 4.0), (2.0, 3.9)]);
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("metrics.jsonl");
        std::fs::write(&path, "{\"step\":5,\"validation_loss\":2.0,\"accuracy\":0.5}\n{\"step\":6,\"lo").unwrap();
        let charts = Curves::read(&path).unwrap().charts("text", "nats per text");
        assert_eq!(charts[1].0, "Metrics of the validation");
        assert_eq!(charts[1].1.curves, [Curve { name: "accuracy".into(), points: vec![(5.0, 0.5)] }]);
        assert_eq!((charts[0].1.curves.len(), charts[0].1.y_label.as_str()), (2, "nats per text"));
    }

    #[test]
    fn every_number_of_a_step_is_a_point_of_its_curve() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("metrics.jsonl");
        let step = "{\"step\":3,\"loss\":2.0,\"learning_rate\":0.1,\"gradient_norm\":0.5,\"tokens_per_second\":7.0}\n";
        std::fs::write(&path, step).unwrap();
        let charts = Curves::read(&path).unwrap().charts("text", "nats per text");
        let points: Vec<_> = charts.iter().map(|(_, chart)| chart.curves[0].points.clone()).collect();
        assert_eq!(points, [2.0, 0.1, 0.5, 7.0].map(|value| vec![(3.0, value)]));
    }

    #[test]
    fn what_a_step_charges_is_a_curve_beside_the_loss() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("metrics.jsonl");
        std::fs::write(&path, "{\"step\":1,\"loss\":2.0,\"charged_loss\":3.0}\n").unwrap();
        let charts = Curves::read(&path).unwrap().charts("text", "nats per text");
        assert_eq!((charts[0].1.curves[2].points.clone(), charts.len()), (vec![(1.0, 3.0)], 4));
    }
}
