//! Training recipes for Burn's Learner.
//!
//! A task crate computes the loss of its model ([`Objective`]), which makes it a [`TrainingModule`], and calls [`fit()`]:
//!
//! 1. [`Recipe`] reads the settings of a run from TOML, with overrides from the command line.
//! 2. [`fit()`] takes the steps: loss and gradients by the model, [`clip_global_norm`], the learning rate of
//!    [`ScheduleConfig`], the update of [`OptimizerConfig`].
//! 3. [`evaluate`] measures the loss over the whole validation data every so many steps; the best weights are kept, and
//!    checkpoints from which [`resume_point`] continues to the bit.
//! 4. [`Observer`]s receive reports: [`ProgressBar`] draws, [`MetricsLog`] writes `metrics.jsonl`, [`TensorBoard`] event files,
//!    also as a metric logger of Burn's; the bar is a renderer of Burn's too. Burn's own metrics and renderers join through
//!    [`FitInput::extension`]; the [`metrics`] here are made for [`LossOutput`], and [`metrics::text`] scores generated text
//!    (BLEU, chrF, exact match), [`metrics::classes`] predicted classes.
//! 5. Several ranks train one model together through a [`Communicator`], such as [`Threads`]: the same bytes as one process. Whole runs do so by
//!    [`Run::prepare_on`]. A trained model is evaluated by several ranks with [`evaluate_run_on`], and answers lines with [`deal`].
//!
//! A task crate that says with [`Task`] what its sections of a recipe mean gets whole runs with it: a [`Run`] reads and checks
//! everything, makes or resumes the run folder, and trains. Three methods are enough where Burn's datasets feed it: [`Datasets`].
//! [`evaluate_run`] measures a run of a [`MeasuredTask`].
//!
//! [`experiments`] compares many runs of one recipe: grids, statistics over seeds, scaling laws. [`scaling`] predicts what more ranks bring.
//!
//! The parts work alone too: [`OptimizerConfig::init`] and [`ScheduleConfig::init`] fit a plain Burn `Learner`.
//!
//! ```
//! use firelight_training::ScheduleConfig;
//!
//! let schedule = ScheduleConfig { warmup_steps: 10, steps: Some(100), min_learning_rate: 1e-4, ..Default::default() };
//! assert_eq!(schedule.learning_rate(1e-3, 9), 1e-3); // the peak at the end of the warm-up
//! assert_eq!(schedule.learning_rate(1e-3, 500), 1e-4); // the floor for ever after
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod accumulate;
mod checkpoint;
mod clip;
mod clock;
mod communicator;
mod config;
mod culprit;
mod ema;
mod error;
mod evaluate;
mod evaluator;
mod events;
pub mod experiments;
mod fit;
mod freeze;
mod gradients;
mod init;
mod loss;
pub mod metrics;
mod metrics_log;
mod observer;
mod optimizer;
mod output;
mod parameter_ids;
mod path;
mod plot;
mod precision;
mod progress;
mod ranks;
mod recipe;
mod recompute;
mod report;
pub mod scaling;
mod schedule;
mod sessions;
mod spare;
mod task;
mod tensorboard;
mod theme;
#[cfg(test)]
mod toy;
mod trainer;
mod training_loop;
mod training_module;
mod words;
mod writer;

pub use checkpoint::{StartPoint, ValidationLoss, resume_point};
pub use clip::{clip_global_norm, global_norm};
pub use communicator::{
    Alone, Collective, Communicator, CommunicatorError, DeviceCollective, Exchange, OrderedSum, Threads,
    ThreadsOptions, from_bf16_bytes, to_bf16_bytes,
};
pub use config::{Problem, SettingsError, TrainingConfig};
pub use error::TrainingError;
pub use evaluate::{Evaluation, evaluate, evaluate_on, measure, measure_on};
pub use evaluator::{Evaluator, Score, Shared, SharedEvaluator, assert_shared};
pub use fit::{Extension, FitInput, Fitted, Trainable, fit};
pub use freeze::freeze;
pub use init::{InitConfig, InitReport, PositionGrid, Resize, ResizeGrid};
pub use loss::LossOutput;
pub use metrics_log::MetricsLog;
pub use observer::{EvaluationReport, Observer, RunReport, StepReport};
pub use optimizer::{
    AdafactorConfig, AdamConfig, LionConfig, MuonConfig, OptimizerConfig, OptimizerKind, ParameterGroup, StepSize,
    UpdateRule, UpdateScale,
};
pub use output::{StepOutput, ValidOutput};
pub use plot::{Chart, Series, draw_charts, draw_schedules};
pub use precision::{LossScale, Precision};
pub use progress::ProgressBar;
pub use ranks::{ExampleDigest, agree, agree_on_examples, deal, deal_partial, deal_to_all, lead, telling};
pub use recipe::{AnyRecipe, Apart, Fields, Recipe, RecipeError, fields_of};
pub use recompute::Recompute;
pub use report::{Report, Sample, draw_losses};
pub use schedule::{DecayShape, Schedule, ScheduleConfig, ScheduleKind};
pub use task::{
    AskedData, BatchCost, BuiltIn, Check, DataModule, DatasetTask, Datasets, DryRun, Estimate, MeasuredTask,
    Measurement, NoKeys, OpenedRun, Pace, ROWS, RecipeOf, Run, RunRequest, Section, StackPath, Task, TaskEvaluation,
    TrainedRun, built_in, evaluate_run, evaluate_run_on, merge, read_any_recipe, read_new_recipe, read_recipe, task_of,
};
pub use tensorboard::TensorBoard;
pub use trainer::Trainer;
pub use training_module::{Objective, Switches, TrainLoss, TrainingModule};
pub use words::{grouped, metric_in_words, size_in_words, wrapped};
