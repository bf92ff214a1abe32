//! What a classifier shows after its training: the labels or numbers that it gives to validation texts.

use anyhow::Result;
use firelight::classification::{Classification, Classifier, Prediction, TrainedRun};
use firelight::device::NamedDevice;
use firelight::storage::Checkpoint;

use super::course::Shown;

/// How many texts are classified.
const SAMPLES: usize = 3;

impl Shown for Classification {
    const SHOWS: &'static str = "what it takes validation texts for";

    fn next(folder: &str) -> String {
        format!("classify a text with: firelight classify {folder} --text TEXT")
    }

    fn samples(run: &TrainedRun, chosen: &NamedDevice) -> Result<Vec<(String, String)>> {
        let classifier = Classifier::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let some: Vec<_> = run.corpus.validation_texts().iter().take(SAMPLES).collect();
        let texts: Vec<String> = some.iter().map(|text| classifier.line_of(&text.text, text.pair.as_deref())).collect();
        let found = classifier.classify(&texts)?;
        let sample = |(text, found): (&String, Prediction)| (format!("\"{text}\""), in_words(&found));
        Ok(texts.iter().zip(found).map(sample).collect())
    }
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
