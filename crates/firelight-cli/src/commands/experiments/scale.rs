//! `firelight scale`: how the loss falls with sizes.

use std::fmt::Write;

use anyhow::Result;
use firelight::training::experiments::{ComputeOptimum, Measured, Results, ScalingFit, ScalingRun, scaling_charts};
use serde_json::json;

use super::options::GridOptions;
use crate::output;

/// Budgets for which the best sizes are told, as multiples of the largest training.
const BUDGETS: [f64; 3] = [1.0, 10.0, 100.0];

const EXAMPLES: &str = "\
Examples:
  firelight scale recipe.toml --data input.txt --vary model.d_model=32..512:5 --fit --out sizes
  firelight scale recipe.toml --data a.txt --vary model.d_model=32..256:4 --vary training.steps=500..4000:4 --fit --out both

Every training is a point of loss against parameters, tokens and floating point operations, which are counted and not measured. --fit \
fits L = E + A / N^alpha, and B / D^beta in addition where the tokens D are varied too, with intervals that hold 95 % of a bootstrap. \
With both terms it tells the sizes of the lowest loss for a budget of operations (Hoffmann et al. 2022, Kaplan et al. 2020). It takes 4 \
different numbers of parameters or more, and for the tokens 3.

Everything else is as with `firelight ablate`. results.svg has loss against parameters, flops.svg loss against operations.";

/// Train models of several sizes and fit a scaling law to their losses
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Scale {
    #[command(flatten)]
    grid: GridOptions,
    /// Fit a power law to the losses, and tell the sizes that a budget is best spent on
    #[arg(long)]
    fit: bool,
    /// Count parameters without embeddings and learned positions
    #[arg(long)]
    non_embedding: bool,
}

impl Scale {
    pub(crate) fn run(self) -> Result<()> {
        let Some(finished) = self.grid.train(true)? else { return Ok(()) };
        let results = finished.results();
        let runs = self.runs(&results);
        let fit = self.fit.then(|| ScalingFit::of(&runs));
        let law = fit.as_ref().and_then(|fit| fit.as_ref().ok());
        let [by_size, by_flops] = scaling_charts(&runs, law);
        finished.write_picture(&by_size.to_svg_of_points())?;
        finished.write("flops.svg", &by_flops.to_svg_of_points())?;
        let optima = law.map(|law| optima(&runs, law)).unwrap_or_default();
        let told = law.map(|law| in_words(law, &optima)).unwrap_or_default();
        let more = [("fit", json!(law)), ("optima", json!(optima))];
        finished.print(true, &told, if law.is_some() { &more[..] } else { &[] })?;
        finished.end()?;
        fit.transpose()?; // told last, where the trainings are done and the law is not found
        Ok(())
    }

    /// The trainings that are done, as the law sees them.
    fn runs(&self, results: &Results) -> Vec<ScalingRun> {
        let measured = results.points.iter().filter_map(|point| results.measured(&point.name));
        let run = |measured: Measured| {
            let parameters = if self.non_embedding { measured.non_embedding_parameters } else { measured.parameters };
            let (tokens, flops, loss) = (measured.tokens, measured.flops, measured.value);
            ScalingRun { parameters: parameters as f64, tokens, flops, loss }
        };
        measured.map(run).collect()
    }
}

/// The best sizes for budgets from that of the largest training on.
fn optima(runs: &[ScalingRun], fit: &ScalingFit) -> Vec<ComputeOptimum> {
    let largest = runs.iter().map(|run| run.flops).fold(0.0, f64::max);
    BUDGETS.iter().filter_map(|times| fit.optimum(times * largest)).collect()
}

/// The law, its numbers with their intervals, and the best sizes.
fn in_words(fit: &ScalingFit, optima: &[ComputeOptimum]) -> String {
    let error = 100.0 * fit.relative_error;
    let mut text = format!("\n{} (N parameters, D tokens; relative error {error:.2} %)\n", fit.law);
    text.push_str("\n| number | value | 95 % interval |\n| --- | ---: | --- |\n");
    for number in &fit.estimates {
        let _ = writeln!(text, "| {} | {:.4} | {:.4} to {:.4} |", number.name, number.value, number.low, number.high);
    }
    match optima {
        [] => output::note(format_args!(
            "the sizes that a budget is best spent on need several numbers of tokens: --vary training.steps=FROM..TO:COUNT"
        )),
        _ => text.push_str("\n| FLOP | best parameters | best tokens | loss |\n| ---: | ---: | ---: | ---: |\n"),
    }
    for ComputeOptimum { flops, parameters, tokens, loss } in optima {
        let _ = writeln!(text, "| {flops:.2e} | {parameters:.3e} | {tokens:.3e} | {loss:.4} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_is_told_with_its_intervals_and_the_best_sizes() {
        let run = |index: usize| {
            let (parameters, tokens) = (1e4 * 10_f64.powi((index / 3) as i32), 1e5 * 10_f64.powi((index % 3) as i32));
            let loss = 1.5 + 30.0 * parameters.powf(-0.3) + 60.0 * tokens.powf(-0.3);
            ScalingRun { parameters, tokens, flops: 6.0 * parameters * tokens, loss }
        };
        let runs: Vec<ScalingRun> = (0..12).map(run).collect();
        let fit = ScalingFit::of(&runs).unwrap();
        let optima = optima(&runs, &fit);
        let text = in_words(&fit, &optima);
        assert!(text.starts_with("\nL = 1.") && text.contains("\n| alpha | 0."), "{text}");
        assert_eq!((optima.len(), text.lines().count()), (3, 16), "{text}");
        let value = json!({ "fit": fit });
        assert!(value["fit"]["law"]["tokens"]["exponent"].is_number(), "{value}");
    }
}
