//! Metrics of classes, regressions and entities against scikit-learn, SciPy and seqeval, on made predictions.
//! `tests/fixtures/class_metrics.py` wrote them down.

use std::collections::BTreeMap;
use std::path::Path;

use firelight::training::metrics::classes::{PerClass, class_report, entity_report, pearson, spearman};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    classes: Vec<ClassCase>,
    regressions: Vec<RegressionCase>,
    entities: Vec<EntityCase>,
}

#[derive(Deserialize)]
struct ClassCase {
    name: String,
    targets: Vec<usize>,
    probabilities: Vec<Vec<f64>>,
    accuracy: f64,
    macro_f1: f64,
    weighted_f1: f64,
    matthews: f64,
    calibration_error: f64,
    auroc: Option<f64>,
    per_class: Vec<[f64; 4]>,
    confusion: Vec<Vec<usize>>,
}

#[derive(Deserialize)]
struct RegressionCase {
    predictions: Vec<f64>,
    targets: Vec<f64>,
    pearson: f64,
    spearman: f64,
}

#[derive(Deserialize)]
struct EntityCase {
    targets: Vec<Vec<String>>,
    predictions: Vec<Vec<String>>,
    all: [f64; 4],
    per_type: BTreeMap<String, [f64; 4]>,
}

impl Golden {
    fn load() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/class_metrics.json");
        serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("the fixture's fields")
    }
}

fn close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() < 1e-9, "{what}: {found}, expected {expected}");
}

/// Precision, recall, F1 and support, as scikit-learn orders them.
fn class_close(found: &PerClass, expected: [f64; 4], what: &str) {
    let found = [found.precision, found.recall, found.f1, found.support as f64];
    found.iter().zip(expected).for_each(|(found, expected)| close(*found, expected, what));
}

#[test]
fn class_reports_agree_with_scikit_learn() {
    let cases = Golden::load().classes;
    assert_eq!(cases.len(), 7);
    assert_eq!(cases.iter().filter(|case| case.auroc.is_some()).count(), 6);
    for case in cases {
        let found = class_report(&case.probabilities, &case.targets);
        close(found.accuracy, case.accuracy, &case.name);
        close(found.macro_f1, case.macro_f1, &case.name);
        close(found.weighted_f1, case.weighted_f1, &case.name);
        close(found.matthews, case.matthews, &case.name);
        close(found.calibration_error, case.calibration_error, &case.name);
        assert_eq!(found.auroc.is_some(), case.auroc.is_some(), "{}", case.name);
        found.auroc.iter().zip(case.auroc).for_each(|(found, expected)| close(*found, expected, &case.name));
        assert_eq!(found.per_class.len(), case.per_class.len(), "{}", case.name);
        found
            .per_class
            .iter()
            .zip(case.per_class)
            .for_each(|(found, expected)| class_close(found, expected, &case.name));
        assert_eq!(found.confusion, case.confusion, "{}", case.name);
    }
}

#[test]
fn correlations_agree_with_scipy() {
    let cases = Golden::load().regressions;
    assert_eq!(cases.len(), 3);
    for case in cases {
        close(pearson(&case.predictions, &case.targets).expect("different values"), case.pearson, "pearson");
        close(spearman(&case.predictions, &case.targets).expect("different values"), case.spearman, "spearman");
    }
}

#[test]
fn entities_agree_with_conlleval_as_seqeval_computes_it() {
    let cases = Golden::load().entities;
    assert_eq!(cases.len(), 5);
    for case in cases {
        let found = entity_report(&case.predictions, &case.targets).expect("tags");
        class_close(&found.all, case.all, "all");
        assert_eq!(found.per_type.len(), 3);
        assert_eq!(found.per_type.keys().collect::<Vec<_>>(), case.per_type.keys().collect::<Vec<_>>());
        found.per_type.iter().for_each(|(kind, found)| class_close(found, case.per_type[kind], kind));
    }
}
