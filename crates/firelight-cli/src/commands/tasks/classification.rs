//! What a classifier shows after its training: the labels or numbers that it gives to validation texts.

use anyhow::Result;
use firelight::classification::{Classification, Classifier, Prediction, TrainedRun};
use firelight::data::labelled::LabelledText;
use firelight::device::NamedDevice;
use firelight::nn::{Cost, ParamBuilder};
use firelight::storage::Checkpoint;
use firelight::training::{RecipeOf, Sample};

use super::{SAMPLES, Shown};

impl Shown for Classification {
    const DATA: &'static str =
        "a folder with a file of records (.tsv, .csv, .jsonl, .parquet) for each split; or one such file";
    const SHOWS: &'static str = "predictions for validation texts";
    const COMMANDS: &'static [&'static str] = &["classify", "embed"];

    fn next(folder: &str) -> String {
        format!("classify a text with: firelight classify {folder} --text TEXT")
    }

    fn samples(run: &TrainedRun, chosen: &NamedDevice) -> Result<Vec<Sample>> {
        let classifier = Classifier::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let some: Vec<_> = run.corpus.validation_records().iter().take(SAMPLES).collect();
        let texts: Vec<String> = some.iter().map(|text| classifier.line_of(&text.text, text.pair.as_deref())).collect();
        let found = classifier.classify(&texts)?;
        let sample = |((text, truth), found): ((&String, &&LabelledText), Prediction)| {
            Sample::new(format!("\"{text}\""), in_words(&found)).expecting(label_in_words(&truth.label))
        };
        Ok(texts.iter().zip(&some).zip(found).map(sample).collect())
    }

    fn cost(_: &RecipeOf<Self>, config: &Self::Config, length: Option<usize>) -> (Cost, usize) {
        let length = length.unwrap_or(config.encoder.transformer.max_seq_len);
        (config.init_with(&ParamBuilder::counting()).cost(length), length)
    }
}

/// The true label, of which a text may have none.
fn label_in_words(label: &str) -> &str {
    if label.is_empty() { "no label" } else { label }
}

/// The labels with their probabilities, or the number.
fn in_words(found: &Prediction) -> String {
    if let Prediction::Value(value) = found {
        return format!("{value:.4}");
    }
    let named: Vec<_> =
        found.named().map(|(label, probability)| format!("{label} ({:.1} %)", 100.0 * probability)).collect();
    if named.is_empty() { "no label".into() } else { named.join(", ") }
}
