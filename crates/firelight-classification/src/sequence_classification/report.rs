//! What is said of the answers to some texts, and the scores that recipes, `metrics.jsonl` and evaluations take from it.

use firelight_training::metrics::classes::{
    ClassReport, MultiLabelReport, RegressionReport, class_report, multi_label_report, regression_report,
};

use crate::classifier::is_held;
use crate::loss::ProblemType;
use crate::records::Judged;

/// What is said of the answers to some texts.
#[derive(Clone, Debug)]
pub(super) enum Report {
    Class(ClassReport),
    Classes(MultiLabelReport),
    Number(RegressionReport),
}

/// All scores. A report has those of its kind.
const SCORES: [Judged<Report>; 12] = [
    Judged::higher("accuracy", |report| Some(report.class()?.accuracy)),
    Judged::higher("macro_f1", |report| Some(report.class()?.macro_f1)),
    Judged::higher("weighted_f1", |report| Some(report.class()?.weighted_f1)),
    Judged::higher("matthews", |report| Some(report.class()?.matthews)),
    Judged::lower("calibration_error", |report| Some(report.class()?.calibration_error)),
    Judged::higher("auroc", |report| report.class().filter(|report| report.per_class.len() == 2)?.auroc),
    Judged::higher("micro_f1", |report| Some(report.classes()?.micro_f1)),
    Judged::higher("macro_f1", |report| Some(report.classes()?.macro_f1)),
    Judged::higher("exact_match", |report| Some(report.classes()?.exact_match)),
    // Answers that are all the same correlate with nothing.
    Judged::higher("pearson", |report| Some(report.number()?.pearson.unwrap_or(0.0))),
    Judged::higher("spearman", |report| Some(report.number()?.spearman.unwrap_or(0.0))),
    Judged::lower("mean_squared_error", |report| Some(report.number()?.mean_squared_error)),
];

impl Report {
    /// Compares rows of [`answers`](crate::classifier::answers) with what is true of the texts.
    pub(super) fn of(problem_type: ProblemType, rows: &[Vec<f64>], truths: &[Vec<f64>]) -> Self {
        match problem_type {
            ProblemType::SingleLabel => one_of(rows, truths),
            ProblemType::MultiLabel => some_of(rows, truths),
            ProblemType::Regression => Self::Number(regression_report(&rows.concat(), &truths.concat())),
        }
    }

    /// The scores that it has, in their order.
    pub(super) fn table(&self) -> Vec<Judged<Self>> {
        SCORES.iter().filter(|judged| (judged.of)(self).is_some()).copied().collect()
    }

    pub(super) fn class(&self) -> Option<&ClassReport> {
        if let Self::Class(report) = self { Some(report) } else { None }
    }

    fn classes(&self) -> Option<&MultiLabelReport> {
        if let Self::Classes(report) = self { Some(report) } else { None }
    }

    fn number(&self) -> Option<&RegressionReport> {
        if let Self::Number(report) = self { Some(report) } else { None }
    }
}

/// Of logarithms of probabilities.
fn one_of(rows: &[Vec<f64>], truths: &[Vec<f64>]) -> Report {
    let targets: Vec<usize> = truths.iter().map(|truth| truth[0] as usize).collect();
    let probabilities: Vec<Vec<f64>> = rows.iter().map(|row| row.iter().map(|value| value.exp()).collect()).collect();
    Report::Class(class_report(&probabilities, &targets))
}

/// Of logits.
fn some_of(rows: &[Vec<f64>], truths: &[Vec<f64>]) -> Report {
    let flags = |rows: &[Vec<f64>], is_true: fn(f64) -> bool| -> Vec<Vec<bool>> {
        rows.iter().map(|row| row.iter().map(|&value| is_true(value)).collect()).collect()
    };
    Report::Classes(multi_label_report(&flags(rows, is_held), &flags(truths, |truth| truth > 0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(report: &Report) -> Vec<(&'static str, f64)> {
        report.table().iter().map(|judged| (judged.score.name, (judged.of)(report).unwrap())).collect()
    }

    #[test]
    fn one_label_has_an_area_where_two_classes_occur() {
        let rows = [[0.75_f64, 0.25], [0.25, 0.75]].map(|row| row.map(f64::ln).to_vec());
        let report = Report::of(ProblemType::SingleLabel, &rows, &[vec![0.0], vec![1.0]]);
        let names: Vec<&str> = scores(&report).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["accuracy", "macro_f1", "weighted_f1", "matthews", "calibration_error", "auroc"]);
        assert!(scores(&report).iter().all(|(name, value)| match *name {
            "calibration_error" => (value - 0.25).abs() < 1e-12,
            _ => *value == 1.0,
        }));
        let report = Report::of(ProblemType::SingleLabel, &rows, &[vec![0.0], vec![0.0]]);
        assert_eq!(scores(&report).len(), 5, "one class has no area");
    }

    #[test]
    fn several_labels_hold_at_one_half() {
        let rows = [vec![0.0, -1e4], vec![-2.0, 3_f64.ln()]];
        let report = Report::of(ProblemType::MultiLabel, &rows, &[vec![1.0, 0.0], vec![0.0, 0.0]]);
        assert_eq!(scores(&report), [("micro_f1", 2.0 / 3.0), ("macro_f1", 0.5), ("exact_match", 0.5)]);
    }

    #[test]
    fn numbers_of_a_constant_correlate_with_nothing() {
        let report = Report::of(ProblemType::Regression, &[vec![2.0], vec![2.0]], &[vec![1.0], vec![3.0]]);
        assert_eq!(scores(&report), [("pearson", 0.0), ("spearman", 0.0), ("mean_squared_error", 1.0)]);
    }
}
