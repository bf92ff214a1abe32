//! Experiments: many trainings by one recipe, in which some keys take several values, and what is said of their results.
//!
//! [`Axis`] is a key with its values, [`Grid`] their combinations and seeds, [`Journal`] what is finished, and [`Results`] the table, the
//! picture and the statistics. [`ScalingFit`] fits a power law to the losses of models of different sizes, [`PowerFit`] one without a floor to
//! what grows with a size, such as time. Nothing here trains: the commands `firelight ablate`, `sweep` and `scale` run the ordinary
//! [`Run`](crate::Run) of each [`Point`].

mod axis;
mod drawing;
mod grid;
mod journal;
mod markdown;
mod power;
mod results;
mod scaling;

pub use axis::Axis;
pub use grid::{Choices, Grid, Point};
pub use journal::{ExperimentPlan, Journal, Measured, Outcome};
pub use power::PowerFit;
pub use results::{Results, Summary};
pub use scaling::{ComputeOptimum, Estimated, PowerTerm, ScalingFit, ScalingLaw, ScalingRun, scaling_charts};
