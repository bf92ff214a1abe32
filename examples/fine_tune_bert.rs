//! Fine-tunes BERT, or another published encoder, to a classifier of texts of yours, and asks it.
//!
//! Command: cargo run --release -p firelight-examples --example fine_tune_bert -- bert-base-uncased DIR "the text to ask about"
//! (a folder as Hugging Face has it or a name on its hub; DIR with train.tsv and dev.tsv: the text, a tab, its label)
//! Time: for DistilBERT and a thousand short texts several minutes on two CPU cores; a GPU is the place for more.
//! Expect: which parameters are taken over and which are new, a validation loss far below the logarithm of the number of labels, and
//! the label of the text with its probability.

use std::path::{Path, PathBuf};

use anyhow::Result;
use burn::tensor::Device;
use firelight::classification::{Classifier, Interrupter, Run, RunRequest};
use firelight::pretrained::{import_cache, run_folder_of_floats};
use firelight::storage::Checkpoint;
use firelight::training::{Observer, ProgressBar};

/// The settings of the built-in recipe `texts` that differ: it trains encoders from nothing. Source: Devlin et al. 2019, appendix A.3
/// (<https://arxiv.org/abs/1810.04805>).
const SETTINGS: [(&str, &str); 6] = [
    ("optimizer.learning_rate", "2e-5"),
    ("schedule.min_learning_rate", "0"),
    ("schedule.warmup_steps", "10"),
    ("training.epochs", "3"),
    ("model.dropout", "0.1"),
    ("model.head_dropout", "0.1"),
];

/// The model to begin from as a run folder, and the texts.
struct Source<'a> {
    base: PathBuf,
    data: &'a Path,
}

impl Source<'_> {
    /// Trains in `out`, or in the next free folder, and returns the model.
    fn train(
        &self,
        out: Option<PathBuf>,
        settings: &[(&str, &str)],
        observers: Vec<Box<dyn Observer>>,
        device: &Device,
    ) -> Result<Classifier> {
        // Config and data: structure and tokenizer are those of the base; the texts are read before anything is written.
        let request = RunRequest { out, ..RunRequest::new(device).with_recipe("texts").with_data(self.data) };
        let request = request.with_override("init.from", format!("{:?}", self.base.display().to_string()));
        let request = settings.iter().fold(request, |request, (key, value)| request.with_override(key, value));
        let run = Run::prepare(&request)?;

        // Model.
        println!("training {} parameters in {}", run.cost().parameters, run.folder.path().display());
        run.init_report().iter().for_each(|report| println!("{report}"));

        // Fit: Burn's Learner under an observer; the folder fills on the way.
        let trained = run.fit_with(observers, Interrupter::new(), None)?;
        if let Some(best) = &trained.best {
            println!("validation loss {:.4} nats per text, at step {}", best.loss, best.step);
        }
        Ok(Classifier::load_from(trained.folder.path(), &Checkpoint::Best, device)?)
    }
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let [model, data, text] = firelight_examples::words("MODEL DIR TEXT")?;
    let device = firelight::device::select(None)?;
    let base = run_folder_of_floats(model, &import_cache(), |line| eprintln!("{line}"))?;
    let source = Source { base, data: Path::new(&data) };
    let classifier = source.train(None, &SETTINGS, vec![Box::new(ProgressBar::new())], &device)?;

    // Show.
    for prediction in classifier.classify(&[&text])? {
        prediction.named().for_each(|(label, probability)| println!("{text}: {label} ({probability:.3})"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a tiny encoder with random weights learns by.
    const TINY: [(&str, &str); 5] = [
        ("model.dropout", "0"),
        ("optimizer.learning_rate", "0.005"),
        ("training.steps", "120"),
        ("training.batch_size", "8"),
        ("schedule.warmup_steps", "5"),
    ];

    #[test]
    fn a_tiny_encoder_is_taken_over_and_tells_two_labels_apart() {
        let home = tempfile::tempdir().unwrap();
        let [model, data] = ["bert", "texts"].map(|name| home.path().join(name));
        firelight_examples::tiny_model("bert-masked", 40, &["[CLS]", "[SEP]", "[MASK]"], &model).unwrap();
        std::fs::create_dir(&data).unwrap();
        let lines =
            ["a warm day\tsun", "so hot here\tsun", "wet feet\train", "it pours\train"].map(|line| format!("{line}\n"));
        std::fs::write(data.join("train.tsv"), lines.concat().repeat(4)).unwrap();
        std::fs::write(data.join("dev.tsv"), lines.concat()).unwrap();

        let base = run_folder_of_floats(&model, &home.path().join("cache"), |_| ()).unwrap();
        let (out, device) = (home.path().join("run"), firelight::device::select(None).unwrap());
        let classifier = Source { base, data: &data }.train(Some(out.clone()), &TINY, Vec::new(), &device).unwrap();
        let found = classifier.classify(&["so hot here", "wet feet"]).unwrap();
        assert_eq!([found[0].labels(), found[1].labels()], [["sun"], ["rain"]]);
        let init = std::fs::read_to_string(out.join("init.json")).unwrap();
        assert!(init.contains("\"new\": [") && init.contains("head.output.weight"), "{init}");
    }
}
