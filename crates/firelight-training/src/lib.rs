//! Training recipes for Burn's Learner: optimiser groups, schedules, clipping, evaluation, checkpoints and metrics.
