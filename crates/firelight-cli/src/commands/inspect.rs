//! `firelight inspect`: the parts of a model with what each costs, before anything is trained or loaded.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use burn::tensor::Device;
use firelight::nn::Cost;
use firelight::storage::ModelFolder;
use firelight::training::{RecipeOf, Run, RunRequest, grouped, read_recipe, size_in_words, task_of};

use super::recipes;
use super::tasks::{Shown, with_task};
use super::train::parse_override;
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight inspect dates
  firelight inspect recipes/shakespeare-char-cpu.toml --data input.txt --set model.n_layers=12
  firelight inspect runs/stories-1 --length 1024
  firelight inspect runs/stories-1 --json

Nothing is drawn or loaded, so models that this machine cannot hold are counted, too. FLOP are those of matrix products and of \
attention, of one token, forward; a training step takes three times as many. `size` is what the parameters take, \
`kept` is how many numbers one token leaves for the backward pass. All sizes are in single precision.";

/// Print the parts of a model: parameters, arithmetic, memory
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Inspect {
    /// Run folder, recipe file (TOML) or the name of an embedded recipe
    model: PathBuf,
    /// With a recipe: file or folder that it would be trained on, which decides the size of the vocabulary
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// With a recipe: override a value of it, such as model.d_model=64; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<(String, String)>,
    /// Tokens of the context; by default as many as the model reads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    length: Option<u32>,
    /// Print the tree as JSON
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(self) -> Result<()> {
        let task = self.task()?;
        let unknown = || Mistake(format!("`{}` is of the unknown task `{task}`", self.model.display()));
        with_task!(task.as_str(), |T| self.print::<T>(), bail!(unknown()))
    }

    fn task(&self) -> Result<String> {
        if self.model.is_dir() {
            return Ok(task_of(&ModelFolder::open(&self.model)?.recipe())?);
        }
        match recipes::named(&self.model)? {
            Some(embedded) => Ok(embedded.task.to_string()),
            None => Ok(task_of(&self.model)?),
        }
    }

    fn print<T: Shown>(&self) -> Result<()> {
        let (recipe, config) = self.plan::<T>()?;
        let problems = T::problems(&config);
        let refused = || Mistake(format!("{}: {}", self.model.display(), problems.join("; ")));
        ensure!(problems.is_empty(), refused());
        let (cost, context) = T::cost(&recipe, &config, self.length.map(|length| length as usize));
        let cost = cost.named(T::NAME);
        let text = match self.json {
            true => json(&cost, context)?,
            false => table(&cost) + &totals(&cost, context) + &cache::<T>(&cost),
        };
        Ok(output::print(&text)?)
    }

    /// What a run was trained by, or what a recipe would make of its data.
    fn plan<T: Shown>(&self) -> Result<(RecipeOf<T>, T::Config)> {
        if self.model.is_dir() {
            let folder = ModelFolder::open(&self.model)?;
            return Ok((read_recipe::<T>(Some(&folder.recipe()), &[])?, folder.read_config(T::NAME)?));
        }
        let request = RunRequest {
            recipe: Some(self.model.clone()),
            overrides: self.overrides.clone(),
            data: self.data.iter().cloned().collect(),
            ..RunRequest::new(&Device::flex())
        };
        Ok(Run::<T>::plan(&request)?)
    }
}

/// The tree, with the context that it is for and the arithmetic of a training, forward and backward, at its root.
fn json(cost: &Cost, context: usize) -> Result<String> {
    let mut tree = serde_json::to_value(cost)?;
    add_bytes(&mut tree, cost);
    tree["context"] = context.into();
    tree["training_flops_per_token"] = cost.training_flops_per_token().into();
    Ok(serde_json::to_string_pretty(&tree)? + "\n")
}

/// Adds what the parameters of each part take.
fn add_bytes(tree: &mut serde_json::Value, cost: &Cost) {
    tree["parameter_bytes"] = bytes_of(cost).into();
    for (index, part) in cost.parts.iter().enumerate() {
        add_bytes(&mut tree["parts"][index], part);
    }
}

/// What the parameters take.
fn bytes_of(cost: &Cost) -> usize {
    cost.parameters.saturating_mul(4)
}

/// The tree, a part a line.
fn table(cost: &Cost) -> String {
    let mut rows = vec![["", "parameters", "share", "size", "MFLOP", "kept"].map(String::from)];
    add_rows(&mut rows, cost, cost.parameters, "", "");
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [first, others @ ..] = [0, 1, 2, 3, 4, 5].map(width);
    let line = |row: &[String; 6]| {
        let numbers = row[1..].iter().zip(others).map(|(text, width)| format!("  {text:>width$}"));
        format!("{:first$}{}\n", row[0], numbers.collect::<String>())
    };
    rows.iter().map(line).collect()
}

/// The line of a part behind `branch`, and those of its parts behind `stem`.
fn add_rows(rows: &mut Vec<[String; 6]>, cost: &Cost, whole: usize, branch: &str, stem: &str) {
    let share = 100.0 * cost.parameters as f64 / whole.max(1) as f64;
    let flops = format!("{:.3}", cost.flops_per_token / 1e6);
    rows.push([
        format!("{branch}{}", cost.name),
        grouped(cost.parameters),
        format!("{share:.1} %"),
        size_in_words(bytes_of(cost)),
        flops,
        grouped(cost.activations_per_token),
    ]);
    // What has no parameters and computes nothing is no line.
    let parts: Vec<_> = cost.parts.iter().filter(|part| part.parameters > 0 || part.flops_per_token > 0.0).collect();
    for (index, part) in parts.iter().enumerate() {
        let (branch, below) = if index + 1 == parts.len() { ("└ ", "  ") } else { ("├ ", "│ ") };
        add_rows(rows, part, whole, &format!("{stem}{branch}"), &format!("{stem}{below}"));
    }
}

fn totals(cost: &Cost, context: usize) -> String {
    let mut text = format!("\nparameters: {}, {}", grouped(cost.parameters), size_in_words(bytes_of(cost)));
    if cost.active_parameters < cost.parameters {
        let _ = write!(text, "; a token is computed with {} of them", grouped(cost.active_parameters));
    }
    let (forward, training) = (cost.flops_per_token / 1e6, cost.training_flops_per_token() / 1e6);
    let _ = writeln!(text, "\nin a context of {} tokens:", grouped(context));
    let _ = writeln!(text, "  arithmetic: {forward:.3} MFLOP a token forward, {training:.3} MFLOP in training");
    let kept = cost.activations_per_token;
    let _ = writeln!(
        text,
        "  training keeps {} numbers of a token for the backward pass, {} of a sequence",
        grouped(kept),
        size_in_words(4 * kept * context)
    );
    if cost.score_bytes > 0 {
        let scores = size_in_words(cost.score_bytes);
        let _ = writeln!(
            text,
            "  scores of all queries and keys of a sequence would take {scores} if they were kept whole"
        );
    }
    text
}

/// What decoding remembers; encoders alone decode nothing.
fn cache<T: Shown>(cost: &Cost) -> String {
    match T::WRITES {
        true => format!("  a cache of one sequence takes {}\n", size_in_words(cost.cache_bytes)),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, parameters: usize, flops_per_token: f64, activations_per_token: usize) -> Cost {
        Cost { name: name.into(), modules: 1, parameters, flops_per_token, activations_per_token, ..Cost::default() }
    }

    #[test]
    fn a_tree_has_bytes_and_the_arithmetic_of_a_training() {
        let whole = Cost { parts: vec![part("block", 1000, 2e6, 8)], ..part("model", 1234, 2.5e6, 12) };
        let tree: serde_json::Value = serde_json::from_str(&json(&whole, 6).unwrap()).unwrap();
        assert_eq!((&tree["context"], &tree["training_flops_per_token"]), (&6.into(), &7.5e6.into()));
        let bytes = [&tree, &tree["parts"][0]].map(|part| part["parameter_bytes"].clone());
        assert_eq!(bytes, [4936, 4000].map(serde_json::Value::from), "{tree}");
        let kept = [&tree, &tree["parts"][0]].map(|part| part["activation_bytes_per_token"].clone());
        assert_eq!(kept, [48, 32].map(serde_json::Value::from), "{tree}");
    }

    #[test]
    fn scores_that_are_never_whole_are_told_where_there_are_some() {
        let told = |score_bytes| totals(&Cost { score_bytes, ..part("model", 1, 0.0, 0) }, 6);
        assert!(told(4936).contains("\n  scores of all queries and keys of a sequence would take 4.8 KiB if"));
        assert!(!told(0).contains("scores"));
    }

    #[test]
    fn the_table_is_literal() {
        let inner =
            Cost { parts: vec![part("up", 1000, 2e6, 0), part("nothing", 0, 0.0, 0)], ..part("block", 1000, 2e6, 8) };
        let whole = Cost { parts: vec![inner, part("head", 234, 0.5e6, 4)], ..part("model", 1234, 2.5e6, 12) };
        let expected = "         parameters    share     size  MFLOP  kept\n\
                        model         1,234  100.0 %  4.8 KiB  2.500    12\n\
                        ├ block       1,000   81.0 %  3.9 KiB  2.000     8\n\
                        │ └ up        1,000   81.0 %  3.9 KiB  2.000     0\n\
                        └ head          234   19.0 %    936 B  0.500     4\n";
        assert_eq!(table(&whole), expected);
    }
}
