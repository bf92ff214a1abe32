//! Whether ranks that evaluate a model read the same examples: files of one name may differ from machine to machine.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::Ranks;
use crate::{Communicator, TrainingError};

/// Refuses ranks that are about to evaluate different examples, by number and checksum. Every rank calls it with all examples, before
/// [`measure_on`](crate::measure_on), which sees batches and cannot compare them. One process does not read the examples.
/// [`evaluate_run_on`](crate::evaluate_run_on) does it for every task.
///
/// Whatever decides the result belongs to an example: what the model reads, and what it is to answer. What is no [`Hash`], such as a number
/// with a fraction, may be compared by its bits or its debug text. The ranks must be the same program for machines of one kind.
///
/// ```
/// use std::sync::Arc;
/// use firelight_training::{Threads, ThreadsOptions, agree_on_examples};
///
/// std::thread::scope(|scope| {
///     for (rank, word) in Threads::ranks(2, ThreadsOptions::default()).into_iter().zip(["good", "fine"]) {
///         scope.spawn(move || {
///             let error = agree_on_examples(Arc::new(rank), [("a film", word)]).unwrap_err().to_string();
///             assert!(error.starts_with("rank 1 does not do what rank 0 does: its validation data is `1 examples with"));
///         });
///     }
/// });
/// ```
///
/// # Errors
/// If something differs, with the same error on every rank; and if a rank has failed or does not come in time.
pub fn agree_on_examples<E: Hash>(
    communicator: Arc<dyn Communicator>,
    examples: impl IntoIterator<Item = E>,
) -> Result<(), TrainingError> {
    agree_on(communicator, |digest| digest.extend(examples))
}

/// The same of examples that are given to a digest.
pub(crate) fn agree_on(
    communicator: Arc<dyn Communicator>,
    give: impl FnOnce(&mut ExampleDigest),
) -> Result<(), TrainingError> {
    let ranks = Ranks::new(communicator);
    if ranks.are_one() {
        return Ok(());
    }
    let mut digest = ExampleDigest::default();
    give(&mut digest);
    ranks.compare(vec![("validation data".into(), digest.to_string())])
}

/// The number of examples, and a checksum of them: `digest.extend(examples)`.
#[derive(Debug, Default)]
pub struct ExampleDigest {
    count: u64,
    checksum: Checksum,
}

impl<E: Hash> Extend<E> for ExampleDigest {
    fn extend<I: IntoIterator<Item = E>>(&mut self, examples: I) {
        for example in examples {
            self.count += 1;
            example.hash(&mut self.checksum);
        }
    }
}

impl fmt::Display for ExampleDigest {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} examples with the checksum {:08x}", self.count, self.checksum.0)
    }
}

/// CRC-32C. Unlike the hashers of the standard library it is the same in every process.
#[derive(Debug, Default)]
struct Checksum(u32);

impl Hasher for Checksum {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    fn finish(&self) -> u64 {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Alone, Threads, ThreadsOptions};
    use std::iter;
    use std::thread;

    fn described<E: Hash>(examples: impl IntoIterator<Item = E>) -> String {
        let mut digest = ExampleDigest::default();
        digest.extend(examples);
        digest.to_string()
    }

    #[test]
    fn the_checksum_is_that_of_the_bytes() {
        // The check value of CRC-32C: that of the digits from 1 to 9.
        assert_eq!(described(*b"123456789"), "9 examples with the checksum e3069283");
        assert_eq!(described(iter::empty::<u8>()), "0 examples with the checksum 00000000");
    }

    #[test]
    fn whatever_differs_changes_the_checksum() {
        let all: [&[&str]; 5] = [&["ab", "c"], &["a", "bc"], &["c", "ab"], &["ab", "d"], &["abc", ""]];
        let found = all.map(|examples| described(examples.iter()));
        for (place, one) in found.iter().enumerate() {
            assert!(found[..place].iter().all(|other| other != one), "{found:?}");
        }
        assert_eq!(described(["ab", "c"]), found[0]);
    }

    #[test]
    fn ranks_with_other_examples_of_the_same_number_are_told() {
        thread::scope(|scope| {
            for (number, rank) in Threads::ranks(3, ThreadsOptions::default()).into_iter().enumerate() {
                scope.spawn(move || {
                    let rank = Arc::new(rank);
                    agree_on_examples(rank.clone(), [[1, 2], [3, 4]]).unwrap();
                    let last = if number == 2 { 5 } else { 4 };
                    let error = agree_on_examples(rank, [[1, 2], [3, last]]).unwrap_err();
                    assert!(error.is_user_error(), "{error}");
                    let told =
                        "rank 2 does not do what rank 0 does: its validation data is `2 examples with the checksum ";
                    assert!(error.to_string().starts_with(told), "{error}");
                });
            }
        });
    }

    #[test]
    fn one_process_reads_no_example() {
        let unread = iter::once_with(|| -> u8 { panic!("an example is read") });
        agree_on_examples(Arc::new(Alone), unread).unwrap();
    }
}
