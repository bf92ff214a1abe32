//! Ranks, where equal values share the mean of theirs, and the area under the receiver operating characteristic, which is a
//! sum of ranks. Source: Hanley and McNeil 1982, The meaning and use of the area under a receiver operating characteristic
//! curve; one against the rest after Provost and Domingos 2000, without weights.

/// The rank of each value from 1. Equal values have the mean of their ranks.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&left, &right| values[left].total_cmp(&values[right]));
    let (mut ranks, mut first) = (vec![0.0; values.len()], 0);
    // `==` and not the bits, so that 0 and -0, which lie side by side, share a rank.
    for equal in order.chunk_by(|&left, &right| values[left] == values[right]) {
        let mean = first as f64 + (equal.len() + 1) as f64 / 2.0;
        equal.iter().for_each(|&item| ranks[item] = mean);
        first += equal.len();
    }
    ranks
}

/// The probability that a positive item has a higher score than a negative one, where a tie counts half; none if there is
/// no positive or no negative item.
pub fn auroc(scores: &[f64], is_positive: impl Fn(usize) -> bool) -> Option<f64> {
    let ranks = ranks(scores);
    let positive: Vec<usize> = (0..scores.len()).filter(|&item| is_positive(item)).collect();
    let (above, below) = (positive.len() as f64, (scores.len() - positive.len()) as f64);
    let sum: f64 = positive.iter().map(|&item| ranks[item]).sum();
    (above * below > 0.0).then(|| (sum - above * (above + 1.0) / 2.0) / (above * below))
}

/// The mean of [`auroc`] of each class against the rest. Classes without targets have no part in it, where scikit-learn
/// refuses to answer; none if there is but one class among the targets.
///
/// # Panics
/// Panics if there are fewer targets than rows of `probabilities`.
pub fn auroc_one_vs_rest(probabilities: &[Vec<f64>], targets: &[usize]) -> Option<f64> {
    let classes = probabilities.first().map_or(0, Vec::len);
    let against_rest = |class: usize| {
        let scores: Vec<f64> = probabilities.iter().map(|row| row[class]).collect();
        auroc(&scores, |item| targets[item] == class)
    };
    let areas: Vec<f64> = (0..classes).filter_map(against_rest).collect();
    (!areas.is_empty()).then(|| areas.iter().sum::<f64>() / areas.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_values_share_the_mean_of_their_ranks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0, 3.0]), [4.0, 1.0, 4.0, 2.0, 4.0]);
        assert_eq!(ranks(&[0.0, -0.0]), [1.5, 1.5]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }

    #[test]
    fn ties_count_half() {
        // Pairs of positive and negative: 0.8 > 0.3, 0.8 > 0.5, 0.5 > 0.3, 0.5 = 0.5.
        let scores = [0.8, 0.5, 0.3, 0.5];
        assert_eq!(auroc(&scores, |item| item < 2), Some(3.5 / 4.0));
        assert_eq!(auroc(&scores, |_| true), None);
        assert_eq!(auroc(&[], |_| true), None);
    }

    #[test]
    fn classes_without_targets_have_no_part_in_the_mean() {
        let rows = [vec![0.6, 0.3, 0.1], vec![0.5, 0.5, 0.0]];
        assert_eq!(auroc_one_vs_rest(&rows, &[0, 1]), Some(1.0));
        assert_eq!(auroc_one_vs_rest(&rows, &[0, 0]), None);
    }

    proptest! {
        #[test]
        fn the_area_is_the_share_of_pairs_in_the_right_order(
            items in prop::collection::vec((0_u8..6, any::<bool>()), 2..30)
        ) {
            let scores: Vec<f64> = items.iter().map(|(score, _)| f64::from(*score)).collect();
            let of = |wanted: bool| items.iter().filter(move |(_, positive)| *positive == wanted).map(|(score, _)| *score);
            let (mut won, mut pairs) = (0.0, 0.0);
            for (high, low) in of(true).flat_map(|high| of(false).map(move |low| (high, low))) {
                won += if high > low { 1.0 } else if high == low { 0.5 } else { 0.0 };
                pairs += 1.0;
            }
            let expected = (pairs > 0.0).then_some(won / pairs);
            prop_assert_eq!(auroc(&scores, |item| items[item].1), expected);
        }
    }
}
