//! `firelight visualize schedule`: the learning rate of a recipe by step.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use firelight::storage::write_atomic;
use firelight::training::{AnyRecipe, ScheduleConfig, ScheduleKind, TrainingError, draw_schedules, read_any_recipe};

use crate::commands::drawing::{Format, format_of};
use crate::commands::recipes;
use crate::commands::train::parse_override;
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight visualize schedule dates
  firelight visualize schedule recipes/sst2.toml --set schedule.steps=900 --kinds cosine,wsd,linear --out rates.svg";

/// The recipe that is drawn when none is named.
const DEFAULT: &str = "stories";

/// Draw the learning rate by step
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Schedule {
    /// Recipe file (TOML) or the name of an embedded one, by default stories
    recipe: Option<PathBuf>,
    /// Override a value of the recipe, such as schedule.warmup_steps=200; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<(String, String)>,
    /// Kinds to draw in one picture, separated by commas; by default the recipe's own
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kind())]
    kinds: Vec<ScheduleKind>,
    /// SVG file to write
    #[arg(long, value_name = "FILE", default_value = "schedule.svg")]
    out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

impl Schedule {
    pub(super) fn run(self) -> Result<()> {
        let recipe = self.recipe()?;
        let schedules = self.schedules(&recipe)?;
        format_of(&self.out, self.force, &[Format::Svg])?;
        let steps = recipe.training.steps.max(recipe.schedule.steps.unwrap_or_default());
        write_atomic(&self.out, draw_schedules(&schedules, recipe.optimizer.learning_rate, steps))?;
        output::note(format_args!("wrote {}", self.out.display()));
        Ok(())
    }

    fn recipe(&self) -> Result<AnyRecipe> {
        let path = self.recipe.as_deref().unwrap_or(Path::new(DEFAULT));
        Ok(match recipes::named(path)? {
            Some(found) => AnyRecipe::parse(found.recipe.text, found.recipe.name, &self.overrides)?,
            None => read_any_recipe(path, &self.overrides)?,
        })
    }

    /// The schedules by name: the recipe's own, or those that were asked for with its settings.
    fn schedules(&self, recipe: &AnyRecipe) -> Result<Vec<(String, ScheduleConfig)>> {
        let own = [recipe.schedule.kind];
        let kinds = if self.kinds.is_empty() { &own[..] } else { &self.kinds };
        let schedule = |&kind: &ScheduleKind| {
            let schedule = recipe.schedule.with_kind(kind);
            schedule.validate().map_err(TrainingError::from)?;
            let is_open = recipe.training.epochs > 0 && schedule.steps.is_none();
            ensure!(
                !is_open,
                Mistake(
                    "the recipe trains for epochs, whose steps the data decides: give --set schedule.steps=N".into()
                )
            );
            Ok((kind.name().to_string(), schedule.over(recipe.training.steps)))
        };
        kinds.iter().map(schedule).collect()
    }
}

/// Reads the name of a kind.
fn kind() -> impl TypedValueParser<Value = ScheduleKind> {
    let named = |name: String| ScheduleKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or_default();
    PossibleValuesParser::new(ScheduleKind::ALL.map(ScheduleKind::name)).map(named)
}
