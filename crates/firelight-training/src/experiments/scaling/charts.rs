//! Losses against sizes, with the fitted law.

use super::{ScalingFit, ScalingRun};
use crate::{Chart, Series};

/// Points of a drawn law: so many that the line shows none of them.
const SAMPLES: usize = 60;

/// Loss against parameters, a line for each number of tokens, and loss against operations, a line for each number of parameters. With a
/// law its curves are beside them; one with a term of tokens has the line of the compute-optimal sizes.
pub fn scaling_charts(runs: &[ScalingRun], fit: Option<&ScalingFit>) -> [Chart; 2] {
    let mut by_size = measured(runs, |run| run.tokens, |run| run.parameters, "tokens");
    let mut by_flops = measured(runs, |run| run.parameters, |run| run.flops, "parameters");
    if let Some(fit) = fit {
        let sizes = between(runs, |run| run.parameters);
        let law = |tokens: f64| {
            let points = sizes.iter().map(|size| (size.log10(), fit.law.loss(*size, tokens))).collect();
            Series { name: format!("law, {tokens:.2e} tokens"), points }
        };
        by_size.extend(different(runs, |run| run.tokens).into_iter().map(law));
        let optima = between(runs, |run| run.flops).into_iter().filter_map(|flops| fit.optimum(flops));
        let points: Vec<(f64, f64)> = optima.map(|optimum| (optimum.flops.log10(), optimum.loss)).collect();
        by_flops.extend((!points.is_empty()).then(|| Series { name: "compute-optimal".into(), points }));
    }
    let chart = |x_label: &str, series| Chart { x_label: x_label.into(), y_label: "validation loss".into(), series };
    [chart("log10 of parameters", by_size), chart("log10 of FLOP", by_flops)]
}

/// The runs by their losses over one size, a line for each value of another one.
fn measured(
    runs: &[ScalingRun],
    group: fn(&ScalingRun) -> f64,
    size: fn(&ScalingRun) -> f64,
    unit: &str,
) -> Vec<Series> {
    let curve = |value: f64| {
        let own = runs.iter().filter(|run| group(run) == value);
        let mut points: Vec<(f64, f64)> = own.map(|run| (size(run).log10(), run.loss)).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series { name: format!("{value:.2e} {unit}"), points }
    };
    different(runs, group).into_iter().map(curve).collect()
}

/// The values of a size, from the least on.
fn different(runs: &[ScalingRun], size: fn(&ScalingRun) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = runs.iter().map(size).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.dedup();
    values
}

/// Values from the least to the greatest of a size, with equal ratios.
fn between(runs: &[ScalingRun], size: fn(&ScalingRun) -> f64) -> Vec<f64> {
    let values = different(runs, size);
    let (Some(least), Some(greatest)) = (values.first(), values.last()) else { return Vec::new() };
    let share = |index: usize| index as f64 / (SAMPLES - 1) as f64;
    (0..SAMPLES).map(|index| least * (greatest / least).powf(share(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(chart: &Chart) -> Vec<&str> {
        chart.series.iter().map(|curve| curve.name.as_str()).collect()
    }

    #[test]
    fn runs_are_grouped_and_the_law_lies_beside_them() {
        let run = |index: usize| {
            let (parameters, tokens) = (10_f64.powi((index / 3) as i32 + 3), 10_f64.powi((index % 3) as i32 + 5));
            let loss = 1.0 + 5.0 * parameters.powf(-0.3) + 9.0 * tokens.powf(-0.3);
            ScalingRun { parameters, tokens, flops: 6.0 * parameters * tokens, loss }
        };
        let runs: Vec<ScalingRun> = (0..12).map(run).collect();
        let [sizes, flops] = scaling_charts(&runs, None);
        assert_eq!(names(&sizes), ["1.00e5 tokens", "1.00e6 tokens", "1.00e7 tokens"]);
        assert_eq!(names(&flops)[0], "1.00e3 parameters");
        let logarithms: Vec<f64> = sizes.series[0].points.iter().map(|point| point.0.round()).collect();
        assert_eq!(logarithms, [3.0, 4.0, 5.0, 6.0]);

        let fit = ScalingFit::of(&runs).unwrap();
        let [sizes, flops] = scaling_charts(&runs, Some(&fit));
        assert_eq!((sizes.series.len(), names(&flops).last().copied()), (6, Some("compute-optimal")));
        assert!(flops.to_svg_of_points().starts_with("<svg"));
        assert!(scaling_charts(&[], None)[0].series.is_empty());
    }
}
