//! What a run folder notes of data that stays where it is: enough to find it again, and to tell whether it is the same.

use std::fmt::Debug;
use std::path::PathBuf;

use burn::data::dataset::Dataset;
use serde::{Deserialize, Serialize};

use super::unfit;
use crate::TrainingError;

/// So many items, evenly spaced, tell whether the data is the same.
const SAMPLED: usize = 100;

/// `datasets.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Noted {
    pub(super) paths: Vec<PathBuf>,
    pub(super) training: Contents,
    pub(super) validation: Contents,
}

/// What a dataset holds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    items: usize,
    /// CRC-32C of the debug text of some of them: Burn's loaders ask for `Debug`, and for no other form of an item.
    checksum: u32,
}

impl Contents {
    pub(super) fn of<I: Debug>(part: &'static str, dataset: &dyn Dataset<I>) -> Result<Self, TrainingError> {
        let items = dataset.len();
        let count = items.min(SAMPLED);
        let place = |number: usize| (number as u128 * items as u128 / count as u128) as usize;
        let mut checksum = 0;
        for number in 0..count {
            let item = dataset.get(place(number)).map_err(TrainingError::data(part))?;
            checksum = crc32c::crc32c_append(checksum, format!("{item:?}\n").as_bytes());
        }
        Ok(Self { items, checksum })
    }

    /// Makes sure that the data of a resumed run is what was `noted` when it began.
    pub(super) fn check(&self, part: &'static str, noted: &Self) -> Result<(), TrainingError> {
        let (found, began) = (self.items, noted.items);
        match (self == noted, found == began) {
            (true, _) => Ok(()),
            (false, true) => Err(unfit(part, "the items are other ones than the run began with: bring those back")),
            (false, false) => {
                let problem = format!("there are {found} items, but the run began with {began}: bring those back");
                Err(unfit(part, &problem))
            }
        }
    }
}
