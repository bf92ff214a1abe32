//! What came of an experiment: statistics over the seeds, a table in Markdown, records in CSV.

use std::collections::BTreeMap;

use serde::Serialize;

use super::drawing::{draw_curves, draw_rows};
use super::markdown::{folded, table};
use super::{Choices, Grid, Measured, Outcome, Point};
use crate::words::{grouped, metric_in_words};

/// What stands where there is no number.
const NONE: &str = "-";

/// The outcomes of the points of a grid.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a> {
    /// What was varied.
    pub grid: &'a Grid,
    /// Every training.
    pub points: &'a [Point],
    /// How those ended that have.
    pub outcomes: &'a BTreeMap<String, Outcome>,
    /// The metric of the values, as recipes name it: `loss`.
    pub metric: &'a str,
}

/// The trainings of one combination of choices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The choices in words.
    pub name: String,
    /// What was chosen.
    pub choices: Choices,
    /// Trainings that belong to it.
    pub runs: usize,
    /// The values of those that are done, in the order of their seeds.
    pub values: Vec<f64>,
    /// Their mean.
    pub mean: Option<f64>,
    /// Their standard deviation, of a sample: the squares are divided by one less than their number.
    pub deviation: Option<f64>,
    /// What the first of them measured.
    pub first: Option<Measured>,
}

impl Results<'_> {
    /// The combinations in their order.
    pub fn summaries(&self) -> Vec<Summary> {
        let combinations = self.points.chunk_by(|one, other| one.choices == other.choices);
        combinations.map(|points| self.summary(points)).collect()
    }

    fn summary(&self, points: &[Point]) -> Summary {
        let measured: Vec<Measured> = points.iter().filter_map(|point| self.measured(&point.name)).collect();
        let values: Vec<f64> = measured.iter().map(|measured| measured.value).collect();
        let choices = points.first().map(|point| point.choices.clone()).unwrap_or_default();
        Summary {
            name: self.grid.label(&choices),
            choices,
            runs: points.len(),
            mean: mean(&values),
            deviation: deviation(&values),
            values,
            first: measured.first().copied(),
        }
    }

    /// What a point measured, if it is done.
    pub fn measured(&self, name: &str) -> Option<Measured> {
        match self.outcomes.get(name) {
            Some(Outcome::Done(measured)) => Some(*measured),
            _ => None,
        }
    }

    /// The points that failed, each with what was said.
    pub fn failures(&self) -> Vec<(&str, &str)> {
        let failure = |point: &Point| match self.outcomes.get_key_value(&point.name) {
            Some((name, Outcome::Failed { message })) => Some((name.as_str(), message.as_str())),
            _ => None,
        };
        self.points.iter().filter_map(failure).collect()
    }

    /// The combination of the best mean; of equal ones the first.
    pub fn best(&self) -> Option<Summary> {
        let badness = |summary: &Summary| match (summary.mean, summary.first) {
            (Some(mean), Some(first)) if first.higher_is_better => -mean,
            (Some(mean), _) => mean,
            _ => f64::INFINITY,
        };
        let measured = self.summaries().into_iter().filter(|summary| summary.mean.is_some());
        measured.min_by(|one, other| badness(one).total_cmp(&badness(other)))
    }

    /// The metric in words: `validation loss`.
    pub fn metric_in_words(&self) -> String {
        if self.metric == crate::config::LOSS { "validation loss".into() } else { metric_in_words(self.metric) }
    }

    /// A table of the combinations in Markdown; `with_costs` adds what their trainings cost.
    pub fn to_markdown(&self, with_costs: bool) -> String {
        table(&self.cells(with_costs))
    }

    /// The same for a terminal of `width` characters: columns that do not fit beside each other follow in tables below, whose rows have numbers.
    pub fn to_folded_markdown(&self, with_costs: bool, width: usize) -> String {
        folded(&self.cells(with_costs), width)
    }

    /// The header, the rule and the rows.
    fn cells(&self, with_costs: bool) -> Vec<Vec<String>> {
        let keys: Vec<&str> = self.grid.axes.iter().map(|axis| self.grid.short(&axis.key)).collect();
        let metric = self.metric_in_words();
        let costs: &[&str] = if with_costs { &["non-embedding", "tokens", "FLOP"] } else { &[] };
        let numbers = [metric.as_str(), "sd", "seeds", "parameters"].into_iter().chain(costs.iter().copied());
        let header: Vec<String> = keys.iter().copied().chain(numbers).map(cell).collect();
        let rule = (0..header.len()).map(|column| if column < keys.len() { "---" } else { "---:" }.to_string());
        let rule = rule.collect();
        let rows = self.summaries().into_iter().map(|summary| self.row(&summary, with_costs));
        [header, rule].into_iter().chain(rows).collect()
    }

    fn row(&self, summary: &Summary, with_costs: bool) -> Vec<String> {
        let chosen = |key: &str| summary.choices.iter().find(|(own, _)| own == key).map(|(_, value)| cell(value));
        let keys = self.grid.axes.iter().map(|axis| chosen(&axis.key).unwrap_or_else(|| "as it is".into()));
        let number = |number: Option<f64>| number.map_or(NONE.into(), |number| format!("{number:.4}"));
        let count = |of: fn(&Measured) -> usize| summary.first.as_ref().map_or(NONE.into(), |first| grouped(of(first)));
        let large =
            |of: fn(&Measured) -> f64| summary.first.as_ref().map_or(NONE.into(), |first| format!("{:.3e}", of(first)));
        let seeds = match summary.values.len() {
            done if done == summary.runs => done.to_string(),
            done => format!("{done} of {}", summary.runs),
        };
        let statistics = [number(summary.mean), number(summary.deviation), seeds, count(|first| first.parameters)];
        let costs =
            [count(|first| first.non_embedding_parameters), large(|first| first.tokens), large(|first| first.flops)];
        keys.chain(statistics).chain(costs.into_iter().filter(|_| with_costs)).collect()
    }

    /// A record of every training: its choices, how it ended, what it measured and cost.
    pub fn to_csv(&self) -> String {
        let axes = self.grid.axes.iter().map(|axis| axis.key.as_str());
        let own = [
            "status",
            self.metric,
            "best_step",
            "steps",
            "parameters",
            "non_embedding_parameters",
            "tokens",
            "flops",
            "message",
        ];
        let header: Vec<String> = ["point"].into_iter().chain(axes).chain(["seed"]).chain(own).map(field).collect();
        let records = self.points.iter().map(|point| self.record(point));
        [header].into_iter().chain(records).map(|fields| fields.join(",") + "\n").collect()
    }

    fn record(&self, point: &Point) -> Vec<String> {
        let chosen =
            |key: &str| point.choices.iter().find(|(own, _)| own == key).map_or("", |(_, value)| value.as_str());
        let choices: Vec<String> = self.grid.axes.iter().map(|axis| field(chosen(&axis.key))).collect();
        let known = [vec![field(&point.name)], choices, vec![point.seed.to_string()]].concat();
        let nothing = || vec![String::new(); 7];
        let end = match self.outcomes.get(&point.name) {
            Some(Outcome::Done(measured)) => {
                [vec!["done".to_string()], numbers(measured), vec![String::new()]].concat()
            }
            Some(Outcome::Failed { message }) => [vec!["failed".to_string()], nothing(), vec![field(message)]].concat(),
            None => [vec!["waiting".to_string()], nothing(), vec![String::new()]].concat(),
        };
        [known, end].concat()
    }

    /// The picture: a line over the axis of numbers that has the most of them, one for each combination of the others; without such an
    /// axis a row for each combination, with the mean, the standard deviation and every seed.
    pub fn to_svg(&self) -> String {
        let numeric = self.grid.axes.iter().filter(|axis| axis.numbers().is_some() && !self.grid.one_at_a_time);
        let metric = self.metric_in_words();
        match numeric.max_by_key(|axis| axis.values.len()) {
            Some(axis) => draw_curves(self.grid, axis, &self.summaries(), &metric),
            None => draw_rows(&self.summaries(), &metric),
        }
    }
}

/// What a training measured, as CSV has it.
fn numbers(measured: &Measured) -> Vec<String> {
    let Measured { value, best_step, steps, parameters, non_embedding_parameters, tokens, flops, .. } = measured;
    let counts = [best_step, steps, parameters, non_embedding_parameters].map(ToString::to_string);
    // Six digits behind the point, so that a number that went through a file reads the same.
    let large = [format!("{tokens:.0}"), format!("{flops:.6e}")];
    [format!("{value:.6}")].into_iter().chain(counts).chain(large).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard deviation of a sample, which one value does not have.
fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// A text as a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A text as a field of CSV (RFC 4180).
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::super::Axis;
    use super::*;

    fn done(value: f64, parameters: usize) -> Outcome {
        Outcome::Done(Measured {
            value,
            higher_is_better: false,
            best_step: 2,
            steps: 3,
            parameters,
            non_embedding_parameters: 10,
            tokens: 6000.0,
            flops: 720.0,
        })
    }

    /// Two heads, of which the second one failed once, and the text of an axis with a comma and a bar.
    fn check(test: impl FnOnce(Results)) {
        let axes = ["model.n_heads=1,4", "model.x=[a|b, 2]"].map(|text| Axis::parse(text).unwrap()).to_vec();
        let grid = Grid::new(axes, false, 2).unwrap();
        let points = grid.points(1);
        let failed = Outcome::Failed { message: "step 1: it said \"no\"".into() };
        let outcomes = [done(1.0, 1200), done(2.0, 1200), failed];
        let outcomes = points.iter().map(|point| point.name.clone()).zip(outcomes).collect();
        test(Results { grid: &grid, points: &points, outcomes: &outcomes, metric: "loss" });
    }

    #[test]
    fn the_table_has_mean_deviation_seeds_and_parameters() {
        check(|results| {
            let expected = "| n_heads | x | validation loss | sd | seeds | parameters |\n\
                            | --- | --- | ---: | ---: | ---: | ---: |\n\
                            | 1 | [a\\|b, 2] | 1.5000 | 0.7071 | 2 | 1,200 |\n\
                            | 4 | [a\\|b, 2] | - | - | 0 of 2 | - |\n";
            assert_eq!(results.to_markdown(false), expected);
            assert!(results.to_markdown(true).contains("| 1,200 | 10 | 6.000e3 | 7.200e2 |\n"));
            let folded = results.to_folded_markdown(true, 80);
            assert!(results.to_markdown(true).lines().any(|line| line.chars().count() > 80));
            assert!(folded.lines().all(|line| line.chars().count() <= 80), "{folded}");
            assert!(folded.contains("| # | non-embedding | tokens | FLOP |\n"), "{folded}");
            assert_eq!(results.to_folded_markdown(false, 80), results.to_markdown(false));
            assert_eq!(results.best().unwrap().name, "n_heads=1,x=[a|b, 2]");
        });
    }

    #[test]
    fn every_training_has_a_record() {
        check(|results| {
            let csv = results.to_csv();
            let lines: Vec<&str> = csv.lines().collect();
            assert_eq!(
                lines[0],
                "point,model.n_heads,model.x,seed,status,loss,best_step,steps,parameters,non_embedding_parameters,tokens,flops,message"
            );
            let name = &results.points[0].name;
            assert_eq!(lines[1], format!("\"{name}\",1,\"[a|b, 2]\",1,done,1.000000,2,3,1200,10,6000,7.200000e2,"));
            assert!(lines[3].ends_with(",1,failed,,,,,,,,\"step 1: it said \"\"no\"\"\""), "{}", lines[3]);
            assert!(lines[4].ends_with(",2,waiting,,,,,,,,"), "{}", lines[4]);
            assert_eq!(results.failures(), [(results.points[2].name.as_str(), "step 1: it said \"no\"")]);
        });
    }

    #[test]
    fn the_best_point_follows_the_direction_of_the_metric() {
        let grid = Grid::new(vec![Axis::parse("a.b=1,2,3").unwrap()], false, 1).unwrap();
        let points = grid.points(1);
        let turned = |outcome: Outcome, higher_is_better: bool| match outcome {
            Outcome::Done(measured) => Outcome::Done(Measured { higher_is_better, ..measured }),
            failed => failed,
        };
        for (higher, expected) in [(false, "b=2"), (true, "b=3")] {
            let values = [0.5, 0.1, 0.9].map(|value| turned(done(value, 1), higher));
            let outcomes = points.iter().map(|point| point.name.clone()).zip(values).collect();
            let results = Results { grid: &grid, points: &points, outcomes: &outcomes, metric: "accuracy" };
            assert_eq!(results.best().unwrap().name, expected);
        }
    }
}
