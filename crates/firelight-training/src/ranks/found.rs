//! What a rank finds of a batch that it evaluates, on its way to the others.

/// What an evaluation needs of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// The losses, summed, and how many there are.
    pub(crate) sums: [f64; 2],
    /// What scores are made of, where ranks share them.
    pub(crate) statistics: Vec<Vec<f64>>,
}

impl Found {
    /// Words of eight bytes: of each batch the sums, the number of rows, and of each row its length and its numbers. Numbers keep their bits,
    /// which JSON has none for where they are not finite.
    pub(crate) fn to_bytes(all: &[Self]) -> Vec<u8> {
        let mut words = Vec::new();
        for Self { sums, statistics } in all {
            words.extend(sums.map(f64::to_bits));
            words.push(statistics.len() as u64);
            for row in statistics {
                words.push(row.len() as u64);
                words.extend(row.iter().map(|number| number.to_bits()));
            }
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// How many [bytes](Self::to_bytes) it is.
    pub(crate) fn size(&self) -> usize {
        size_of::<u64>() * (3 + self.statistics.iter().map(|row| 1 + row.len()).sum::<usize>())
    }

    /// The batches, in their order.
    pub(crate) fn of_bytes(bytes: &[u8]) -> impl Iterator<Item = Self> {
        let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        std::iter::from_fn(move || {
            let sums = [words.next()?, words.next()?].map(f64::from_bits);
            let rows = words.next()?;
            let statistics = (0..rows).map(|_| row(&mut words)).collect();
            Some(Self { sums, statistics })
        })
    }
}

fn row(words: &mut impl Iterator<Item = u64>) -> Vec<f64> {
    let length = words.next().unwrap_or(0);
    words.take(length as usize).map(f64::from_bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn two_batches_are_so_many_words() {
        let statistics = vec![vec![], vec![f64::NAN, -0.0]];
        let bytes = Found::to_bytes(&[Found { sums: [1.0, 2.0], statistics }, Found::default()]);
        assert_eq!(bytes.len(), 8 * (3 + 1 + 3 + 3));
        assert_eq!(Found::of_bytes(&bytes).map(|found| found.size()).collect::<Vec<_>>(), [8 * 7, 8 * 3]);
        assert_eq!(bytes[..16], [1.0_f64.to_le_bytes(), 2.0_f64.to_le_bytes()].concat());
        assert_eq!(bytes[16..24], 2_u64.to_le_bytes());
        let rows: Vec<Vec<u64>> = Found::of_bytes(&bytes).flat_map(|found| found.statistics).map(bits).collect();
        assert_eq!(rows, [vec![], vec![f64::NAN.to_bits(), (-0.0_f64).to_bits()]]);
    }

    fn bits(row: Vec<f64>) -> Vec<u64> {
        row.into_iter().map(f64::to_bits).collect()
    }

    proptest! {
        #[test]
        fn what_arrives_is_what_was_sent(
            sent in vec((prop::array::uniform2(-1e9..1e9_f64), vec(vec(-9.0..9.0_f64, 0..4), 0..4)), 0..5)
        ) {
            let sent: Vec<Found> = sent.into_iter().map(|(sums, statistics)| Found { sums, statistics }).collect();
            prop_assert_eq!(Found::of_bytes(&Found::to_bytes(&sent)).collect::<Vec<_>>(), sent);
        }
    }
}
