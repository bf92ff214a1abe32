//! What is said of the answers to some texts, and the scores that recipes, `metrics.jsonl` and evaluations take from it.

use firelight_training::metrics::classes::{
    ClassReport, MultiLabelReport, RegressionReport, class_report, multi_label_report, regression_report,
};

use super::judge::Score;
use crate::classifier::is_held;
use crate::data::Example;
use crate::loss::Outcome;

/// What is said of the answers to some texts.
#[derive(Clone, Debug)]
pub(super) enum Report {
    Class(ClassReport),
    Classes(MultiLabelReport),
    Number(RegressionReport),
}

/// All scores. A report has those of its kind.
const SCORES: [Score<Report>; 12] = [
    Score::higher("accuracy", |report| Some(report.class()?.accuracy)),
    Score::higher("macro_f1", |report| Some(report.class()?.macro_f1)),
    Score::higher("weighted_f1", |report| Some(report.class()?.weighted_f1)),
    Score::higher("matthews", |report| Some(report.class()?.matthews)),
    Score::lower("calibration_error", |report| Some(report.class()?.calibration_error)),
    Score::higher("auroc", |report| report.class().filter(|report| report.per_class.len() == 2)?.auroc),
    Score::higher("micro_f1", |report| Some(report.classes()?.micro_f1)),
    Score::higher("macro_f1", |report| Some(report.classes()?.macro_f1)),
    Score::higher("exact_match", |report| Some(report.classes()?.exact_match)),
    // Answers that are all the same correlate with nothing.
    Score::higher("pearson", |report| Some(report.number()?.pearson.unwrap_or(0.0))),
    Score::higher("spearman", |report| Some(report.number()?.spearman.unwrap_or(0.0))),
    Score::lower("mean_squared_error", |report| Some(report.number()?.mean_squared_error)),
];

impl Report {
    /// Compares rows of [`answers`](crate::classifier::answers) with what is true of the texts, and gives their mean loss, too.
    pub(super) fn of(outcome: Outcome, rows: &[Vec<f64>], examples: &[Example]) -> (Self, f64) {
        let truths: Vec<Vec<f64>> = examples.iter().map(|example| example.target.numbers()).collect();
        match outcome {
            Outcome::SingleLabel => one_of(rows, &truths),
            Outcome::MultiLabel => some_of(rows, &truths),
            Outcome::Regression => {
                let report = regression_report(&rows.concat(), &truths.concat());
                (Self::Number(report), report.mean_squared_error)
            }
        }
    }

    /// The scores of its kind, in their order.
    pub(super) fn scores(&self) -> Vec<(Score<Self>, f64)> {
        SCORES.iter().filter_map(|score| Some((*score, (score.of)(self)?))).collect()
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

/// Of logarithms of probabilities, with the mean cross-entropy.
fn one_of(rows: &[Vec<f64>], truths: &[Vec<f64>]) -> (Report, f64) {
    let targets: Vec<usize> = truths.iter().map(|truth| truth[0] as usize).collect();
    let loss = -rows.iter().zip(&targets).map(|(row, &class)| row[class]).sum::<f64>() / targets.len() as f64;
    let probabilities: Vec<Vec<f64>> = rows.iter().map(|row| row.iter().map(|value| value.exp()).collect()).collect();
    (Report::Class(class_report(&probabilities, &targets)), loss)
}

/// Of logits, with the mean binary cross-entropy of all labels.
fn some_of(rows: &[Vec<f64>], truths: &[Vec<f64>]) -> (Report, f64) {
    let flags = |rows: &[Vec<f64>], is_true: fn(f64) -> bool| -> Vec<Vec<bool>> {
        rows.iter().map(|row| row.iter().map(|&value| is_true(value)).collect()).collect()
    };
    let report = multi_label_report(&flags(rows, is_held), &flags(truths, |truth| truth > 0.0));
    let (logits, truths) = (rows.concat(), truths.concat());
    let losses = logits.iter().zip(&truths).map(|(&logit, &truth)| surprise(if truth > 0.0 { logit } else { -logit }));
    (Report::Classes(report), losses.sum::<f64>() / logits.len() as f64)
}

/// The negative logarithm of the sigmoid of a logit, without overflow.
fn surprise(logit: f64) -> f64 {
    (-logit).max(0.0) + (-logit.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{EncodedText, Target};

    fn examples(targets: impl IntoIterator<Item = Target>) -> Vec<Example> {
        let text = EncodedText { ids: vec![1], second_from: 1, is_cut: false };
        targets.into_iter().map(|target| Example { text: text.clone(), target }).collect()
    }

    fn scores(report: &Report) -> Vec<(&'static str, f64)> {
        report.scores().into_iter().map(|(score, value)| (score.name, value)).collect()
    }

    #[test]
    fn one_label_has_an_area_where_two_classes_occur() {
        let rows = [[0.75_f64, 0.25], [0.25, 0.75]].map(|row| row.map(f64::ln).to_vec());
        let (report, loss) = Report::of(Outcome::SingleLabel, &rows, &examples([0, 1].map(Target::Class)));
        assert!((loss + 0.75_f64.ln()).abs() < 1e-15);
        let names: Vec<&str> = scores(&report).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["accuracy", "macro_f1", "weighted_f1", "matthews", "calibration_error", "auroc"]);
        assert!(scores(&report).iter().all(|(name, value)| match *name {
            "calibration_error" => (value - 0.25).abs() < 1e-12,
            _ => *value == 1.0,
        }));
        let (report, _) = Report::of(Outcome::SingleLabel, &rows, &examples([0, 0].map(Target::Class)));
        assert_eq!(scores(&report).len(), 5, "one class has no area");
    }

    #[test]
    fn several_labels_hold_at_one_half() {
        let rows = [vec![0.0, -1e4], vec![-2.0, 3_f64.ln()]];
        let targets = [vec![true, false], vec![false, false]].map(Target::Classes);
        let (report, loss) = Report::of(Outcome::MultiLabel, &rows, &examples(targets));
        assert_eq!(scores(&report), [("micro_f1", 2.0 / 3.0), ("macro_f1", 0.5), ("exact_match", 0.5)]);
        // -ln 1/2, 0, -ln sigmoid(2), -ln 1/4.
        let expected = (2_f64.ln() + (-2_f64).exp().ln_1p() + 4_f64.ln()) / 4.0;
        assert!((loss - expected).abs() < 1e-15, "{loss} {expected}");
    }

    #[test]
    fn numbers_of_a_constant_correlate_with_nothing() {
        let examples = examples([1.0, 3.0].map(Target::Number));
        let (report, loss) = Report::of(Outcome::Regression, &[vec![2.0], vec![2.0]], &examples);
        assert_eq!(scores(&report), [("pearson", 0.0), ("spearman", 0.0), ("mean_squared_error", 1.0)]);
        assert_eq!(loss, 1.0);
    }
}
