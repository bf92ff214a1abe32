//! What a classifier of tokens shows after its training: the tags that it gives to the words of validation sentences.

use anyhow::Result;
use firelight::classification::{TaggedToken, Tagger, TokenClassification};
use firelight::data::tagged::TaggedSentence;
use firelight::device::NamedDevice;
use firelight::nn::{Cost, ParamBuilder};
use firelight::storage::Checkpoint;
use firelight::training::{RecipeOf, Sample, TrainedRun};

use super::super::classify::Classify;
use super::{SAMPLES, Shown};

impl Shown for TokenClassification {
    const DATA: &'static str =
        "a folder with a .conll, .txt, .tsv, .jsonl or .parquet file for each split; or one such file";
    const SHOWS: &'static str = "predictions for validation sentences";
    const COMMANDS: &'static [&'static str] = &["classify", "embed"];

    fn next(folder: &str) -> String {
        format!("tag a text with: firelight classify {folder} --text TEXT")
    }

    fn samples(run: &TrainedRun<Self>, chosen: &NamedDevice) -> Result<Vec<Sample>> {
        let tagger = Tagger::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let some: Vec<_> = run.corpus.validation_records().iter().take(SAMPLES).collect();
        let sentences: Vec<Vec<String>> = some.iter().map(|sentence| sentence.tokens.clone()).collect();
        let found = tagger.tag_words(&sentences)?;
        let sample = |(sentence, found): (&&TaggedSentence, Vec<TaggedToken>)| {
            let (words, tags) = (&sentence.tokens, &sentence.tags);
            let tagged: Vec<_> = found.iter().map(|found| format!("{}/{}", found.token, found.tag)).collect();
            let truth: Vec<_> = words.iter().zip(tags).map(|(word, tag)| format!("{word}/{tag}")).collect();
            Sample::new(format!("\"{}\"", words.join(" ")), tagged.join(" ")).expecting(truth.join(" "))
        };
        Ok(some.iter().zip(found).map(sample).collect())
    }

    fn cost(_: &RecipeOf<Self>, config: &Self::Config, length: Option<usize>) -> (Cost, usize) {
        let length = length.unwrap_or(config.encoder.transformer.max_seq_len);
        (config.init_with(&ParamBuilder::counting()).cost(length), length)
    }

    fn classify(asked: &Classify) -> Result<()> {
        asked.words()
    }
}
