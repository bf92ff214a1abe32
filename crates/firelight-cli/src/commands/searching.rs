//! How the most probable text is searched: options of `translate`, and of `generate` where it searches.

use firelight::generation::{BeamOptions, EarlyStopping, GenerationDefaults};

use super::sampling::{Makers, Penalties};
use crate::fields::option_of;

#[derive(clap::Args, Clone)]
pub(super) struct Search {
    /// Follow N texts at a time; 1 is greedy [translate: the model's own, or 5]
    #[arg(long, value_name = "N")]
    beams: Option<usize>,
    /// Exponent of the length in scores; larger favours longer texts [default: the model's own, or 1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    length_penalty: Option<f64>,
    /// When a search ends: full, heuristic or never [default: the model's own, or heuristic]
    #[arg(long, value_name = "WHEN", value_parser = early_stopping)]
    early_stopping: Option<EarlyStopping>,
    /// Divide the beams into N groups that avoid one another's tokens
    #[arg(long, value_name = "N", default_value_t = 1, requires = "beams")]
    beam_groups: usize,
    /// What a token costs that another group has chosen
    #[arg(long, value_name = "F", default_value_t = 1.0, requires = "beam_groups")]
    diversity_penalty: f64,
    /// Print the N best texts, best first
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) n_best: usize,
}

fn early_stopping(text: &str) -> Result<EarlyStopping, String> {
    match text {
        "full" => Ok(EarlyStopping::Full),
        "heuristic" => Ok(EarlyStopping::Heuristic),
        "never" => Ok(EarlyStopping::Never),
        _ => Err("expected full, heuristic or never".into()),
    }
}

impl Search {
    /// Whether one is asked for.
    pub(super) fn is_wanted(&self) -> bool {
        self.beams.is_some()
    }

    /// The name of the first option that only a search has, where one is given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.length_penalty.is_some(), "--length-penalty"),
            (self.early_stopping.is_some(), "--early-stopping"),
            (self.n_best != 1, "--n-best"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    /// The options of the search as they are given.
    pub(super) fn options(&self, usual: BeamOptions) -> BeamOptions {
        let BeamOptions { beams, length_penalty, early_stopping, .. } = usual;
        usual
            .with_beams(self.beams.unwrap_or(beams))
            .with_length_penalty(self.length_penalty.unwrap_or(length_penalty))
            .with_early_stopping(self.early_stopping.unwrap_or(early_stopping))
            .with_n_best(self.n_best)
            .with_groups(self.beam_groups, if self.beam_groups > 1 { self.diversity_penalty } else { 0.0 })
    }

    /// The same with penalties, and what the model's makers say where the user says nothing, which is told.
    pub(super) fn with_defaults(
        &self,
        usual: BeamOptions,
        penalties: &Penalties,
        defaults: &GenerationDefaults,
    ) -> BeamOptions {
        let (mut makers, mut penalties) = (Makers::new(defaults), penalties.clone());
        let beams = makers.or_count("num_beams", self.beams);
        let length_penalty = makers.or("length_penalty", self.length_penalty);
        let named = usual.clone().with_defaults(defaults).early_stopping;
        if self.early_stopping.is_none() && named != usual.early_stopping {
            makers.note(format!("{} {named:?}", option_of("early_stopping")).to_lowercase());
        }
        penalties.take(&mut makers);
        makers.tell();
        let early_stopping = self.early_stopping.or(Some(named));
        let search = Self { beams, length_penalty, early_stopping, ..self.clone() };
        search.options(usual.with_processing(penalties.processing()))
    }
}
