//! `firelight visualize`: pictures of what a recipe asks for, of how a run went, and of what a model is made of and does.

mod attention;
mod embeddings;
mod loss;
mod mask;
mod positions;
mod schedule;
mod tokens;

use anyhow::Result;
use clap::Subcommand;

/// Draw the schedule of a recipe, losses of runs, or the attention, positions, masks, tokens and vectors of a model
#[derive(clap::Args)]
pub(crate) struct Visualize {
    #[command(subcommand)]
    subject: Subject,
}

/// What can be drawn.
#[derive(Subcommand)]
enum Subject {
    Schedule(schedule::Schedule),
    Loss(loss::Loss),
    Attention(Box<attention::Attention>),
    Positions(positions::Positions),
    Mask(mask::Mask),
    Tokens(tokens::Tokens),
    Embeddings(embeddings::Embeddings),
}

impl Visualize {
    pub(crate) fn run(self) -> Result<()> {
        match self.subject {
            Subject::Schedule(schedule) => schedule.run(),
            Subject::Loss(loss) => loss.run(),
            Subject::Attention(attention) => attention.run(),
            Subject::Positions(positions) => positions.run(),
            Subject::Mask(mask) => mask.run(),
            Subject::Tokens(tokens) => tokens.run(),
            Subject::Embeddings(embeddings) => embeddings.run(),
        }
    }
}
