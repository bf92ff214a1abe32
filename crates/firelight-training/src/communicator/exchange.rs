//! What numbers are rounded to on their way between ranks.

use std::fmt;

use burn::tensor::bf16;
use serde::{Deserialize, Serialize};

use super::{Communicator, CommunicatorError};

/// `training.exchange`: what gradients are rounded to on their way between ranks. Losses travel as they are, and one rank rounds nothing.
///
/// ```
/// use firelight_training::{Exchange, TrainingConfig};
///
/// let training = TrainingConfig { exchange: Exchange::Bf16, ..TrainingConfig::default() };
/// assert_eq!(training.exchange.to_string(), "bf16");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Exchange {
    /// Nothing: the result is that of one process, on a CPU to the byte.
    #[default]
    F32,
    /// 8 bits of precision: half the bytes. The result is not that of one process, and differs from world to world.
    Bf16,
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

impl Exchange {
    /// Replaces `values` by their sums over all `ranks`.
    pub(crate) fn sum(self, ranks: &dyn Communicator, values: &mut [f32]) -> Result<(), CommunicatorError> {
        match self {
            Self::F32 => ranks.sum_f32(values),
            Self::Bf16 => ranks.sum_bf16(values),
        }
    }
}

/// The bytes of the `bf16` that is nearest to a number, the even one of two, for a [`Communicator::sum_bf16`] of one's own.
///
/// ```
/// use firelight_training::{from_bf16_bytes, to_bf16_bytes};
///
/// assert_eq!(from_bf16_bytes(to_bf16_bytes(-1.5)), -1.5);
/// assert_eq!(from_bf16_bytes(to_bf16_bytes(1.001)), 1.0); // the next one is 1 + 2^-7
/// ```
pub fn to_bf16_bytes(number: f32) -> [u8; 2] {
    bf16::from_f32(number).to_le_bytes()
}

/// The number of which these are the bytes, as [`to_bf16_bytes`] gives them.
pub fn from_bf16_bytes(bytes: [u8; 2]) -> f32 {
    bf16::from_le_bytes(bytes).to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OrderedSum, Threads, ThreadsOptions};
    use proptest::prelude::*;
    use std::thread;

    #[test]
    fn numbers_are_rounded_to_the_nearest_and_halves_to_even() {
        let rounded = |number: f32| from_bf16_bytes(to_bf16_bytes(number));
        let step = 1.0 / 128.0; // of the numbers from 1 to 2
        for (number, expected) in [
            (1.0 + 0.49 * step, 1.0),
            (1.0 + 0.51 * step, 1.0 + step),
            (1.0 + 0.5 * step, 1.0),
            (1.0 + 1.5 * step, 1.0 + 2.0 * step),
        ] {
            assert_eq!(rounded(number), expected, "{number}");
        }
        assert_eq!(rounded(-0.0).to_bits(), (-0.0_f32).to_bits());
        assert!(rounded(f32::NAN).is_nan() && rounded(f32::INFINITY) == f32::INFINITY);
    }

    #[test]
    fn settings_are_words() {
        for (setting, word) in [(Exchange::F32, "f32"), (Exchange::Bf16, "bf16")] {
            assert_eq!(serde_json::to_string(&setting).unwrap(), format!("\"{word}\""));
            assert_eq!(setting.to_string(), word);
        }
    }

    /// The sums that each rank of a world finds, of which each has one row.
    fn sums(exchange: Exchange, rows: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let ranks = Threads::ranks(rows.len(), ThreadsOptions::default());
        thread::scope(|scope| {
            let rank = |(rank, row): (Threads, &Vec<f32>)| {
                let mut row = row.clone();
                scope.spawn(move || exchange.sum(&rank, &mut row).map(|()| row).unwrap())
            };
            let threads: Vec<_> = ranks.into_iter().zip(rows).map(rank).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_rounded_sum_is_off_by_no_more_than_its_roundings(
            rows in (1_usize..6).prop_flat_map(|width| {
                prop::collection::vec(prop::collection::vec(-1e3_f32..1e3, width), 2..5)
            }),
        ) {
            let [exact, rounded] = [Exchange::F32, Exchange::Bf16].map(|exchange| sums(exchange, &rows));
            prop_assert!(rounded.iter().all(|sums| *sums == rounded[0]), "every rank has the same");
            for (column, (exact, rounded)) in exact[0].iter().zip(&rounded[0]).enumerate() {
                // Each number is rounded by at most 2^-8 of itself, and their sum once more.
                let size: f32 = rows.iter().map(|row| row[column].abs()).sum();
                prop_assert!((exact - rounded).abs() <= 2.1 / 256.0 * size + 1e-30, "{rounded} is not {exact}");
            }
            let mut expected = OrderedSum::of(rows.len());
            rows.iter().for_each(|row| expected.add(from_bf16_bytes(to_bf16_bytes(row[0])), |one, other| one + other));
            let expected = expected.finish(|one, other| one + other).unwrap();
            prop_assert_eq!(rounded[0][0].to_bits(), from_bf16_bytes(to_bf16_bytes(expected)).to_bits());
        }
    }

    #[test]
    fn half_the_bytes_lose_what_is_below_their_precision() {
        let little = 1.0 / 1024.0;
        let rows = [vec![1.0, 256.0], vec![little, 1.0]];
        assert_eq!(sums(Exchange::F32, &rows)[0], [1.0 + little, 257.0]);
        assert_eq!(sums(Exchange::Bf16, &rows)[0], [1.0, 256.0]); // 257 is half-way between 256 and 258
    }
}
