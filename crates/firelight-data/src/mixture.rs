//! Several data sets as one, of which each has its share of an epoch: whatever batches are drawn, by seed and step, is drawn of all.

use std::iter;

use burn::data::dataset::{Dataset, DatasetError};

use firelight_storage::InputError;

/// The least weight, as a part of the largest: an epoch becomes no longer than this times the data.
const LEAST: f64 = 1e-3;

/// Data sets one after the other. Without weights an epoch has every item once. With weights items are drawn in that ratio: an epoch
/// is the shortest in which no item is left out, so that the items of some data sets come several times.
///
/// ```
/// use burn::data::dataset::{Dataset, InMemDataset};
/// use firelight_data::Mixture;
///
/// let [books, web] = [vec![1, 2], vec![10, 20, 30, 40]].map(InMemDataset::new);
/// let mixture = Mixture::new(vec![books, web], &[1.0, 1.0]);
/// let items: Vec<i32> = (0..8).map(|index| mixture.get(index).unwrap()).collect();
/// assert_eq!(items, [1, 2, 1, 2, 10, 20, 30, 40]);
/// ```
#[derive(Clone, Debug)]
pub struct Mixture<D> {
    parts: Vec<D>,
    /// Behind the last item of each part, in an epoch.
    ends: Vec<usize>,
}

impl<D> Mixture<D> {
    /// How many items of each of some data sets, which have so many, an epoch has.
    ///
    /// ```
    /// assert_eq!(firelight_data::Mixture::<()>::shares(&[2, 4], &[3.0, 1.0]), [12, 4]);
    /// assert_eq!(firelight_data::Mixture::<()>::shares(&[2, 4], &[]), [2, 4]);
    /// ```
    ///
    /// # Panics
    /// Panics if there are weights, but not one for each data set.
    pub fn shares(lengths: &[usize], weights: &[f64]) -> Vec<usize> {
        if weights.is_empty() {
            return lengths.to_vec();
        }
        assert_eq!(weights.len(), lengths.len(), "a weight for each data set");
        let pairs = || lengths.iter().zip(weights);
        let unit = pairs().map(|(&length, weight)| length as f64 / weight).fold(0.0, f64::max);
        pairs().map(|(&length, weight)| ((unit * weight).ceil() as usize).max(length)).collect()
    }

    /// What is wrong with the weights of `parts` data sets, if anything is.
    ///
    /// # Errors
    /// If there are weights, but not one for each, or one is not finite or far below the others.
    pub fn check(weights: &[f64], parts: usize) -> Result<(), InputError> {
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let unfit =
            weights.iter().find(|weight| !(weight.is_finite() && **weight >= largest * LEAST && **weight > 0.0));
        match (weights.len(), unfit) {
            (0, _) => Ok(()),
            (found, _) if found != parts => {
                let problem = format!("data.weights has a length of {found}, but the number of sources is {parts}");
                Err(InputError::new(problem).advise("give one weight for each, in their order"))
            }
            (_, Some(weight)) => {
                let problem = format!(
                    "data.weights has {weight}: expected numbers above 0, the least at least a thousandth of the largest"
                );
                Err(InputError::new(problem))
            }
            (_, None) => Ok(()),
        }
    }

    /// The data sets in their order, with the weights of their items; none to have each item once.
    ///
    /// # Panics
    /// Panics if there are weights, but not one for each data set.
    pub fn new<I>(parts: Vec<D>, weights: &[f64]) -> Self
    where
        D: Dataset<I>,
    {
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let add = |end: &mut usize, share: usize| {
            *end += share;
            Some(*end)
        };
        let ends = Self::shares(&lengths, weights).into_iter().scan(0, add).collect();
        Self { parts, ends }
    }

    /// What `values` says of the items of each part, in the order of the items of an epoch.
    pub fn values<'a, V: Clone, I: Iterator<Item = V>>(&'a self, values: impl Fn(&'a D) -> I) -> Vec<V> {
        let starts = iter::once(0).chain(self.ends.iter().copied());
        let counts = starts.zip(&self.ends).map(|(start, end)| end - start);
        let repeated = |(part, count)| values(part).collect::<Vec<V>>().into_iter().cycle().take(count);
        self.parts.iter().zip(counts).flat_map(repeated).collect()
    }
}

impl<I, D: Dataset<I>> Dataset<I> for Mixture<D> {
    fn get(&self, index: usize) -> Result<I, DatasetError> {
        let part = self.ends.partition_point(|&end| end <= index);
        let start = part.checked_sub(1).map_or(0, |before| self.ends[before]);
        let data = &self.parts[part];
        data.get((index - start) % data.len())
    }

    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::data::dataset::InMemDataset;
    use proptest::prelude::*;

    fn mixture(lengths: &[usize], weights: &[f64]) -> Mixture<InMemDataset<(usize, usize)>> {
        let part = |(part, &length): (usize, &usize)| InMemDataset::new((0..length).map(|item| (part, item)).collect());
        Mixture::new(lengths.iter().enumerate().map(part).collect(), weights)
    }

    fn items(mixture: &Mixture<InMemDataset<(usize, usize)>>) -> Vec<(usize, usize)> {
        (0..mixture.len()).map(|index| mixture.get(index).unwrap()).collect()
    }

    #[test]
    fn without_weights_every_item_comes_once() {
        assert_eq!(items(&mixture(&[2, 1], &[])), [(0, 0), (0, 1), (1, 0)]);
    }

    #[test]
    fn what_is_said_of_the_items_comes_in_their_order() {
        let mixture = mixture(&[2, 3], &[3.0, 1.0]);
        let said = mixture.values(|part| (0..part.len()).map(|index| part.get(index).unwrap()));
        assert_eq!(said, items(&mixture));
        assert_eq!(said.len(), 12);
    }

    #[test]
    fn weights_are_one_for_each_and_of_one_size() {
        let check = |weights: &[f64]| Mixture::<()>::check(weights, 2).map_err(|error| error.to_string());
        assert_eq!((check(&[]), check(&[0.7, 0.3]), check(&[1000.0, 1.0])), (Ok(()), Ok(()), Ok(())));
        assert!(
            check(&[1.0])
                .unwrap_err()
                .starts_with("data.weights has a length of 1, but the number of sources is 2; give one")
        );
        for bad in [[0.0, 1.0], [-1.0, 1.0], [f64::NAN, 1.0], [f64::INFINITY, 1.0], [1e-4, 1.0]] {
            assert!(check(&bad).unwrap_err().contains("expected numbers above 0"), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn weights_are_the_ratio_of_the_items_and_none_is_left_out(
            parts in prop::collection::vec((1_usize..40, 0.05_f64..1.0), 1..5),
        ) {
            let (lengths, weights): (Vec<usize>, Vec<f64>) = parts.into_iter().unzip();
            let items = items(&mixture(&lengths, &weights));
            let total: f64 = weights.iter().sum();
            for (part, (&length, weight)) in lengths.iter().zip(&weights).enumerate() {
                let own: Vec<usize> = items.iter().filter(|item| item.0 == part).map(|item| item.1).collect();
                prop_assert!((0..length).all(|item| own.contains(&item)));
                let expected = items.len() as f64 * weight / total;
                prop_assert!((own.len() as f64 - expected).abs() <= lengths.len() as f64, "{} of {expected}", own.len());
            }
        }
    }
}
