//! What an encoder-decoder shows after its training: translations of validation sources.

use anyhow::Result;
use firelight::data::Pair;
use firelight::device::NamedDevice;
use firelight::seq2seq::{Seq2Seq, TrainedRun, Translator};
use firelight::storage::Checkpoint;
use firelight::training::Sample;

use super::course::Shown;

/// How many sources are translated.
const SAMPLES: usize = 3;

impl Shown for Seq2Seq {
    const SHOWS: &'static str = "predictions for validation sources";

    fn next(folder: &str) -> String {
        format!("translate a text with: firelight translate {folder} --text TEXT")
    }

    fn samples(run: &TrainedRun, chosen: &NamedDevice) -> Result<Vec<Sample>> {
        let translator = Translator::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let pairs: Vec<_> = run.corpus.validation().iter().take(SAMPLES).collect();
        let sources: Vec<&str> = pairs.iter().map(|pair| pair.source.as_str()).collect();
        let found = translator.translate(&sources)?;
        let sample = |(pair, found): (&&Pair, String)| {
            Sample::new(format!("\"{}\"", pair.source), found).expecting(&pair.target)
        };
        Ok(pairs.iter().zip(found).map(sample).collect())
    }
}
