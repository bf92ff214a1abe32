//! Rows of values in which any two values of any two choices meet: a covering array of strength two, built greedily. The
//! same sizes give the same rows.

/// Rows of one value per choice, of which choice `i` has `sizes[i]`. The first `crossed` choices are crossed in full, and
/// every pair of values of any two choices is in a row.
pub(crate) fn covering(sizes: &[usize], crossed: usize) -> Vec<Vec<usize>> {
    let mut pairs = Pairs::new(sizes);
    let product = sizes[..crossed].iter().fold(vec![vec![]], |rows: Vec<Vec<_>>, size| {
        rows.iter().flat_map(|row| (0..*size).map(|value| [row.as_slice(), &[Some(value)]].concat())).collect()
    });
    let open = vec![None; sizes.len() - crossed];
    let mut rows: Vec<_> = product.into_iter().map(|row| pairs.fill([row, open.clone()].concat())).collect();
    while let Some([(i, a), (j, b)]) = pairs.missing() {
        let mut row = vec![None; sizes.len()];
        (row[i], row[j]) = (Some(a), Some(b));
        rows.push(pairs.fill(row));
    }
    rows
}

/// Which pairs of values have met.
struct Pairs<'a> {
    sizes: &'a [usize],
    met: Vec<bool>,
}

impl<'a> Pairs<'a> {
    fn new(sizes: &'a [usize]) -> Self {
        let values: usize = sizes.iter().sum();
        Self { sizes, met: vec![false; values * values] }
    }

    /// Gives each open choice the value that meets the most new ones among the values that are there, of equals the one
    /// farthest round from where the row began.
    fn fill(&mut self, mut row: Vec<Option<usize>>) -> Vec<usize> {
        for i in (0..row.len()).filter(|i| row[*i].is_none()).collect::<Vec<_>>() {
            let turn: usize = row.iter().flatten().sum();
            let gain = |value: &usize| {
                let others = row.iter().enumerate().filter_map(|(j, other)| other.map(|other| (j, other)));
                others.filter(|other| !self.met[self.place((i, *value), *other)]).count()
            };
            let turned = (0..self.sizes[i]).map(|value| (value + turn) % self.sizes[i]);
            row[i] = turned.max_by_key(gain);
        }
        let row: Vec<usize> = row.into_iter().flatten().collect();
        let values: Vec<_> = row.iter().copied().enumerate().collect();
        for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b))) {
            let place = self.place(a, b);
            self.met[place] = true;
        }
        row
    }

    /// The first two values that have not met, each as choice and value.
    fn missing(&self) -> Option<[(usize, usize); 2]> {
        let values = || self.sizes.iter().enumerate().flat_map(|(i, size)| (0..*size).map(move |value| (i, value)));
        let pairs = values().flat_map(|a| values().filter(move |b| b.0 > a.0).map(move |b| [a, b]));
        pairs.into_iter().find(|[a, b]| !self.met[self.place(*a, *b)])
    }

    fn place(&self, (i, a): (usize, usize), (j, b): (usize, usize)) -> usize {
        let value = |choice: usize, value: usize| self.sizes[..choice].iter().sum::<usize>() + value;
        value(i, a) * self.sizes.iter().sum::<usize>() + value(j, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn assert_all_pairs_meet(sizes: &[usize], rows: &[Vec<usize>]) {
        for (i, j) in (0..sizes.len()).flat_map(|j| (0..j).map(move |i| (i, j))) {
            let pairs: BTreeSet<_> = rows.iter().map(|row| (row[i], row[j])).collect();
            assert_eq!(pairs.len(), sizes[i] * sizes[j], "choices {i} and {j}");
        }
    }

    #[test]
    fn every_two_values_meet_in_few_rows() {
        let sizes = [12, 7, 4, 3, 10, 4, 2, 3, 3, 2, 2, 3, 2, 2];
        let rows = covering(&sizes, 0);
        assert_all_pairs_meet(&sizes, &rows);
        // No less than the product of the two largest; greedy rows are a few more.
        assert!((120..=150).contains(&rows.len()), "{} rows", rows.len());
    }

    #[test]
    fn the_first_choices_are_crossed_in_full() {
        let sizes = [3, 4, 2, 5, 3];
        let rows = covering(&sizes, 3);
        assert_all_pairs_meet(&sizes, &rows);
        let product: BTreeSet<_> = rows.iter().map(|row| row[..3].to_vec()).collect();
        assert_eq!((product.len(), rows.len()), (24, 24));
    }
}
