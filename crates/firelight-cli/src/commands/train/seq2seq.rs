//! What an encoder-decoder shows after its training: translations of validation sources.

use anyhow::Result;
use firelight::device::NamedDevice;
use firelight::seq2seq::{Seq2Seq, TrainedRun, Translator};
use firelight::storage::Checkpoint;

use super::course::Shown;

/// How many sources are translated.
const SAMPLES: usize = 3;

impl Shown for Seq2Seq {
    const SHOWS: &'static str = "what it writes";

    fn next(folder: &str) -> String {
        format!("translate a text with: firelight translate {folder} --text TEXT")
    }

    fn samples(run: &TrainedRun, chosen: &NamedDevice) -> Result<Vec<(String, String)>> {
        let translator = Translator::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let sources: Vec<&str> =
            run.corpus.validation().iter().take(SAMPLES).map(|pair| pair.source.as_str()).collect();
        let found = translator.translate(&sources)?;
        let sample = |(source, found): (&&str, String)| (format!("\"{source}\" becomes"), found);
        Ok(sources.iter().zip(found).map(sample).collect())
    }
}
