//! What follows from the counts of targets and predictions alone.

use serde::Serialize;

/// How often each class was predicted where each was true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfusionMatrix {
    /// Counts by target (row) and prediction (column).
    pub counts: Vec<Vec<usize>>,
}

/// How well one class is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PerClass {
    /// The share of its predictions that are right.
    pub precision: f64,
    /// The share of its targets that are found.
    pub recall: f64,
    /// The harmonic mean of the two.
    pub f1: f64,
    /// Number of its targets.
    pub support: usize,
}

impl PerClass {
    /// From `correct` predictions out of `predicted`, where there are `support` targets.
    pub(super) fn of(correct: usize, predicted: usize, support: usize) -> Self {
        Self {
            precision: share(correct, predicted),
            recall: share(correct, support),
            f1: share(2 * correct, predicted + support),
            support,
        }
    }
}

impl ConfusionMatrix {
    /// Counts the `predictions`.
    ///
    /// # Panics
    /// Panics if the lengths differ or if a number is not below `classes`.
    pub fn of(predictions: &[usize], targets: &[usize], classes: usize) -> Self {
        assert_eq!(predictions.len(), targets.len(), "as many predictions as targets");
        let mut counts = vec![vec![0; classes]; classes];
        for (&prediction, &target) in predictions.iter().zip(targets) {
            assert!(prediction.max(target) < classes, "classes are below {classes}: {prediction} for {target}");
            counts[target][prediction] += 1;
        }
        Self { counts }
    }

    /// The share of right predictions.
    pub fn accuracy(&self) -> f64 {
        share(self.correct(), self.total())
    }

    /// Precision, recall and F1 of each class.
    pub fn per_class(&self) -> Vec<PerClass> {
        let class = |class: usize| PerClass::of(self.counts[class][class], self.predicted(class), self.support(class));
        (0..self.counts.len()).map(class).collect()
    }

    /// The mean F1 of the classes that occur as target or prediction, as scikit-learn has it.
    pub fn macro_f1(&self) -> f64 {
        let occurs = |class: &usize| self.support(*class) + self.predicted(*class) > 0;
        let per_class = self.per_class();
        let scores: Vec<f64> = (0..per_class.len()).filter(occurs).map(|class| per_class[class].f1).collect();
        scores.iter().sum::<f64>() / scores.len().max(1) as f64
    }

    /// The mean F1 of the classes, each with the weight of its targets.
    pub fn weighted_f1(&self) -> f64 {
        let weighted = self.per_class().iter().map(|class| class.f1 * class.support as f64).sum::<f64>();
        weighted / self.total().max(1) as f64
    }

    /// The correlation of targets and predictions: Matthews' coefficient for two classes; for more Gorodkin 2004, Comparing
    /// two K-category assignments by a K-category correlation coefficient, eq. 8, in its form with totals.
    pub fn matthews(&self) -> f64 {
        let total = self.total() as f64;
        let sum =
            |product: &dyn Fn(usize) -> usize| (0..self.counts.len()).map(|class| product(class) as f64).sum::<f64>();
        let both = sum(&|class| self.support(class) * self.predicted(class));
        let targets = total * total - sum(&|class| self.support(class).pow(2));
        let predictions = total * total - sum(&|class| self.predicted(class).pow(2));
        match (targets * predictions).sqrt() {
            0.0 => 0.0,
            root => (self.correct() as f64 * total - both) / root,
        }
    }

    fn correct(&self) -> usize {
        (0..self.counts.len()).map(|class| self.counts[class][class]).sum()
    }

    fn total(&self) -> usize {
        self.counts.iter().flatten().sum()
    }

    /// How often a class is true.
    fn support(&self, class: usize) -> usize {
        self.counts[class].iter().sum()
    }

    /// How often a class is predicted.
    fn predicted(&self, class: usize) -> usize {
        self.counts.iter().map(|row| row[class]).sum()
    }
}

/// A quotient of counts, 0 where there is nothing to divide by.
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_classes_by_hand() {
        // Three true negatives, one false positive, two false negatives, four true positives.
        let matrix = ConfusionMatrix { counts: vec![vec![3, 1], vec![2, 4]] };
        assert_eq!(matrix.accuracy(), 0.7);
        let [negative, positive] = matrix.per_class()[..] else { panic!("two classes") };
        assert_eq!(negative, PerClass { precision: 0.6, recall: 0.75, f1: 6.0 / 9.0, support: 4 });
        assert_eq!(positive, PerClass { precision: 0.8, recall: 4.0 / 6.0, f1: 8.0 / 11.0, support: 6 });
        assert_eq!(matrix.macro_f1(), (6.0 / 9.0 + 8.0 / 11.0) / 2.0);
        assert_eq!(matrix.weighted_f1(), (4.0 * (6.0 / 9.0) + 6.0 * (8.0 / 11.0)) / 10.0);
        // (TP TN - FP FN) / sqrt((TP+FP)(TP+FN)(TN+FP)(TN+FN))
        assert!((matrix.matthews() - 10.0 / (5.0 * 6.0 * 4.0 * 5.0_f64).sqrt()).abs() < 1e-15);
    }

    #[test]
    fn classes_that_do_not_occur_have_no_part_in_the_mean() {
        let matrix = ConfusionMatrix::of(&[0, 2], &[0, 0], 4);
        assert_eq!(matrix.per_class()[1], PerClass::default());
        assert_eq!(matrix.macro_f1(), (2.0 / 3.0 + 0.0) / 2.0);
        assert_eq!(matrix.matthews(), 0.0, "one class among the targets");
    }

    #[test]
    #[should_panic(expected = "classes are below 2: 2 for 0")]
    fn a_number_that_is_no_class_is_refused() {
        ConfusionMatrix::of(&[2], &[0], 2);
    }
}
