//! Scores of a task at its evaluations: the model answers once for all of them.

use std::sync::{Arc, Mutex, PoisonError};

use firelight_training::{Objective, Trainee, TrainingError, ValidationMetric};

use crate::error::ClassificationError;

/// A number of a report `R`.
pub(crate) struct Score<R> {
    /// The name in recipes, `metrics.jsonl` and evaluations.
    pub(crate) name: &'static str,
    pub(crate) higher_is_better: bool,
    /// The number; none of a report of another kind, and where there is none, as of the area under a curve of one class.
    pub(crate) of: fn(&R) -> Option<f64>,
}

impl<R> Clone for Score<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Score<R> {}

impl<R> Score<R> {
    pub(crate) const fn higher(name: &'static str, of: fn(&R) -> Option<f64>) -> Self {
        Self { name, higher_is_better: true, of }
    }

    pub(crate) const fn lower(name: &'static str, of: fn(&R) -> Option<f64>) -> Self {
        Self { name, higher_is_better: false, of }
    }
}

/// The metrics of a run, in the order in which they are measured, of what `report` says of a model.
pub(crate) fn scored<M: Objective + 'static, R: Clone + Send + 'static>(
    scores: impl IntoIterator<Item = Score<R>>,
    report: impl Fn(&M) -> Result<R, ClassificationError> + Send + Sync + 'static,
) -> Vec<Box<dyn ValidationMetric<Trainee<M>>>> {
    let judge = Arc::new(Judge { report: Box::new(report), found: Mutex::default() });
    let metric = |(index, score)| {
        let judge = judge.clone();
        Box::new(Scored { score, is_first: index == 0, judge }) as Box<dyn ValidationMetric<Trainee<M>>>
    };
    scores.into_iter().enumerate().map(metric).collect()
}

/// What says a report of a model.
type Reporter<M, R> = Box<dyn Fn(&M) -> Result<R, ClassificationError> + Send + Sync>;

/// What is answered at every evaluation, once for all metrics.
struct Judge<M, R> {
    report: Reporter<M, R>,
    /// What the first metric of an evaluation has left for the others.
    found: Mutex<Option<R>>,
}

impl<M, R: Clone> Judge<M, R> {
    /// What is left of this evaluation; the first metric answers anew.
    fn report(&self, model: &M, is_first: bool) -> Result<R, ClassificationError> {
        let mut left = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match left.as_ref() {
            Some(found) if !is_first => Ok(found.clone()),
            _ => Ok(left.insert((self.report)(model)?).clone()),
        }
    }
}

/// A score of what is validated on.
struct Scored<M, R> {
    score: Score<R>,
    is_first: bool,
    judge: Arc<Judge<M, R>>,
}

impl<M: Objective, R: Clone + Send> ValidationMetric<Trainee<M>> for Scored<M, R> {
    fn name(&self) -> &str {
        self.score.name
    }

    fn higher_is_better(&self) -> bool {
        self.score.higher_is_better
    }

    fn measure(&mut self, task: &Trainee<M>) -> Result<f64, TrainingError> {
        let failed = |reason| TrainingError::Metric { name: self.score.name, reason };
        let found = self.judge.report(&task.model, self.is_first).map_err(|error| failed(error.to_string()))?;
        (self.score.of)(&found).ok_or_else(|| failed("the validation texts do not define it".into()))
    }
}
