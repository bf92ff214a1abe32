//! What a classifier of tokens shows after its training: the tags that it gives to the words of validation sentences.

use anyhow::Result;
use firelight::classification::{TaggedToken, Tagger, TokenClassification};
use firelight::device::NamedDevice;
use firelight::storage::Checkpoint;
use firelight::training::TrainedRun;

use super::course::Shown;

/// How many sentences are tagged.
const SAMPLES: usize = 3;

impl Shown for TokenClassification {
    const SHOWS: &'static str = "how it tags validation sentences";

    fn next(folder: &str) -> String {
        format!("tag a text with: firelight classify {folder} --text TEXT")
    }

    fn samples(run: &TrainedRun<Self>, chosen: &NamedDevice) -> Result<Vec<(String, String)>> {
        let tagger = Tagger::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let some = run.corpus.validation_sentences().iter().take(SAMPLES);
        let sentences: Vec<Vec<String>> = some.map(|sentence| sentence.tokens.clone()).collect();
        let found = tagger.tag_words(&sentences)?;
        let sample = |(words, found): (&Vec<String>, Vec<TaggedToken>)| {
            let tagged: Vec<_> = found.iter().map(|found| format!("{}/{}", found.token, found.tag)).collect();
            (format!("\"{}\"", words.join(" ")), tagged.join(" "))
        };
        Ok(sentences.iter().zip(found).map(sample).collect())
    }
}
