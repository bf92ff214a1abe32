//! How well a trained model predicts and translates a split of parallel files.

use std::sync::Arc;

use firelight_data::Pair;
use firelight_storage::TaskError;
use firelight_training::metrics::text::{Bleu, TextMetric};
use firelight_training::{AskedData, ExampleDigest, MeasuredTask, Measurement, OpenedRun, TaskEvaluation};
use serde::Serialize;

use super::Seq2Seq;
use super::files::{VALIDATION, no_pairs, records_of, split};
use super::pairs::translations;
use super::pairs::{check_lengths, loader_of, read_all, stored};
use super::score::measurement;
use crate::translator::{TranslateOptions, Translator};

/// What a model is worth on a split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Mean loss in nats per token of the targets, the end included, without smoothing.
    pub loss: f64,
    /// `exp(loss)`.
    pub perplexity: f64,
    /// Corpus BLEU of the translations.
    pub bleu: f64,
    /// Corpus chrF2 of the translations.
    pub chrf: f64,
    /// Percentage of translations that are the target to the letter.
    pub exact_match: f64,
    /// ROUGE-1, the mean F1 of words as rouge-score computes it without stemming, from 0 to 100.
    pub rouge1: f64,
    /// ROUGE-2, that of pairs of words.
    pub rouge2: f64,
    /// ROUGE-L, that of the longest common subsequence.
    #[serde(rename = "rougeL")]
    pub rouge_l: f64,
    /// The share of the targets' tokens, the ends included, that are the likeliest after the true ones before them.
    pub token_accuracy: f64,
    /// How BLEU was computed.
    pub signature: String,
    /// Seconds from the data to the scores.
    pub seconds: f64,
}

/// A score that was not measured is NaN.
impl From<TaskEvaluation> for Evaluation {
    fn from(found: TaskEvaluation) -> Self {
        let of = |name: &str| found.score(name).unwrap_or(f64::NAN);
        let of_text = |metric: TextMetric| of(metric.name());
        Self {
            loss: found.loss,
            perplexity: found.loss.exp(),
            bleu: of_text(TextMetric::Bleu),
            chrf: of_text(TextMetric::Chrf),
            exact_match: of_text(TextMetric::ExactMatch),
            rouge1: of_text(TextMetric::Rouge1),
            rouge2: of_text(TextMetric::Rouge2),
            rouge_l: of_text(TextMetric::RougeL),
            token_accuracy: of("token_accuracy"),
            signature: Bleu::default().signature(),
            seconds: found.seconds,
        }
    }
}

impl MeasuredTask for Seq2Seq {
    type Options = TranslateOptions;
    type Report = Evaluation;

    /// The files `DIR/split.SOURCE` and `DIR/split.TARGET`, by default those of the split `val`, or a TSV or JSONL file in the place of
    /// `DIR`, or, without either, the pairs that the run validates on; names and tokenizers are those of its training.
    ///
    /// # Errors
    /// If the folder is no run of this task, keeps no pairs where no data is given, there is no such split, or a line cannot be read by the
    /// model.
    fn measured(
        run: &OpenedRun<'_, Self>,
        asked: AskedData<'_>,
        options: &TranslateOptions,
    ) -> Result<Measurement<Self>, TaskError> {
        let translator = Translator::load_from(run.folder.path(), run.checkpoint, run.device)?;
        let (vocabulary, pairs) = (translator.vocabulary().clone(), pairs_of(run, asked)?);
        let ids = vocabulary.encode_all(&pairs, 0)?;
        check_lengths(&run.recipe, &vocabulary, &ids, 0)?;
        let loader = loader_of(&vocabulary, ids.clone(), run.device)?;
        let written = translations(vocabulary, &pairs, options.clone(), TextMetric::ALL.to_vec());
        let examples = move |digest: &mut ExampleDigest| digest.extend(pairs.iter().zip(&ids));
        Ok(measurement::<Self, _>(translator.model(), Arc::new(loader), written, examples))
    }
}

fn pairs_of(run: &OpenedRun<'_, Seq2Seq>, asked: AskedData<'_>) -> Result<Vec<Pair>, TaskError> {
    let recipe = &run.recipe.data;
    match asked {
        Some((file, None)) if file.is_file() => Ok(records_of(recipe, file)?.read()?.pairs),
        Some((data, name)) => read_all(&split(recipe, data, name.unwrap_or(VALIDATION))?),
        None if recipe.objective.is_some() => Err(no_pairs(run.folder.path()).into()),
        None => stored(run.folder.validation_pairs()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Run;
    use super::super::score::TargetScores;
    use super::*;
    use crate::data::{PairBatch, PairBatcher};
    use crate::training::Seq2SeqTask;
    use burn::data::dataloader::DataLoader;
    use burn::data::dataset::InMemDataset;
    use burn::tensor::Device;
    use firelight_core::LossConfig;
    use firelight_data::StepLoader;
    use firelight_kernels::assert_close;
    use firelight_storage::{Checkpoint, ModelFolder};
    use firelight_training::{
        RunRequest, Shared, Threads, ThreadsOptions, assert_shared, evaluate_run, evaluate_run_on,
    };
    use std::path::Path;
    use std::thread;

    const SMALL: [(&str, &str); 9] = [
        ("data.toy_pairs", "60"),
        ("data.translated", "2"),
        ("model.d_model", "16"),
        ("model.n_heads", "2"),
        ("model.n_layers", "1"),
        ("model.d_ff", "16"),
        ("training.steps", "3"),
        ("schedule.steps", "3"),
        ("schedule.warmup_steps", "1"),
    ];

    /// The loss of a run on the pairs that it validates on.
    fn loss(folder: &Path, device: &Device) -> f64 {
        let options = TranslateOptions::default();
        evaluate_run::<Seq2Seq>(folder, &Checkpoint::Last, None, &options, device).unwrap().loss
    }

    #[test]
    fn a_model_begins_from_another_one_and_its_adapters_are_merged() {
        let home = tempfile::tempdir().unwrap();
        let request = |out: &str, changes: &[(&str, &str)]| {
            let request = RunRequest::new(&Device::default()).with_out(home.path().join(out));
            let all = SMALL.iter().chain(changes);
            all.fold(request, |request, (key, value)| request.with_override(key, value))
        };
        let base = Run::prepare(&request("base", &[])).unwrap().fit().unwrap();
        let from = format!("{:?}", home.path().join("base").display().to_string());
        let weight = |model: &crate::Seq2SeqModel| model.embedding.weight.val().into_data();
        let begun = [("init.from", from.as_str())];
        let run = Run::prepare(&request("begun", &begun)).unwrap();
        weight(run.model()).assert_eq(&weight(&base.model), true);
        let tokenizer = |folder: &ModelFolder| std::fs::read(folder.tokenizer()).unwrap();
        assert_eq!(tokenizer(&run.folder), tokenizer(&base.folder));
        let adapters = ("model.adapters", "{ rank = 2, alpha = 16 }");
        let run =
            Run::prepare(&request("adapted", &[&begun[..], &[adapters, ("optimizer.learning_rate", "0.1")]].concat()));
        let adapted = run.unwrap().fit().unwrap();
        weight(&adapted.model).assert_eq(&weight(&base.model), true);
        let merged = home.path().join("merged");
        firelight_training::merge::<Seq2Seq>(adapted.folder.path(), &Checkpoint::Last, &merged, &Device::default())
            .unwrap();
        let loss = |folder: &Path| loss(folder, &Device::default());
        assert_close(&[loss(&merged)], &[loss(adapted.folder.path())], 1e-5);
        let error = Run::prepare(&request("wrong", &[&begun[..], &[("model.d_model", "8")]].concat())).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("model.d_model = 8, but 16 in the run"), "{error}");
    }

    #[test]
    fn adapters_beside_blocks_are_merged() {
        let home = tempfile::tempdir().unwrap();
        let wide = [("model.d_model", "32"), ("model.d_ff", "32")];
        let request = |out: &str, changes: &[(&str, &str)]| {
            let request = RunRequest::new(&Device::flex()).with_out(home.path().join(out));
            let all = SMALL.iter().chain(&wide).chain(changes);
            all.fold(request, |request, (key, value)| request.with_override(key, value))
        };
        Run::prepare(&request("base", &[])).unwrap().fit().unwrap();
        let from = format!("{:?}", home.path().join("base").display().to_string());
        let changes = [("init.from", from.as_str()), ("model.adapters", "{ rank = 2 }"), ("init.quantize", "q8_0")];
        let adapted = Run::prepare(&request("adapted", &changes)).unwrap().fit().unwrap();
        let entries = firelight_core::weights_of(&adapted.model);
        assert!(entries.iter().all(|entry| entry.format.is_some()), "{entries:?}");
        let (run, merged) = (adapted.folder.path(), home.path().join("merged"));
        firelight_training::merge::<Seq2Seq>(run, &Checkpoint::Last, &merged, &Device::flex()).unwrap();
        let loss = |folder: &Path| loss(folder, &Device::flex());
        assert_close(&[loss(run)], &[loss(&merged)], 0.05); // Products with blocks round what they multiply.
    }

    #[test]
    fn ranks_share_the_scores_and_the_translations() {
        let home = tempfile::tempdir().unwrap();
        let request = RunRequest::new(&Device::default()).with_out(home.path().join("run"));
        let request = SMALL.iter().fold(request, |request, (key, value)| request.with_override(key, value));
        let run = Run::prepare(&request.with_override("data.toy_pairs", 100)).unwrap();
        let pairs = run.corpus.validation();
        let (_, scores) = assert_shared::<Seq2SeqTask>(|| {
            let vocabulary = run.corpus.vocabulary().clone();
            let ids = InMemDataset::new(vocabulary.encode_all(pairs, 0).unwrap());
            let loader: Arc<dyn DataLoader<PairBatch>> =
                Arc::new(StepLoader::new(ids, PairBatcher::of(&vocabulary), 1, &Device::default()));
            let options = TranslateOptions { batch: 1, ..TranslateOptions::greedy() };
            let written = translations(vocabulary, pairs, options, TextMetric::ALL.to_vec());
            let task = Seq2SeqTask::new(run.model().clone(), LossConfig::default());
            (task, loader, Box::new(Shared(TargetScores::new(Some(written)))))
        });
        assert!(pairs.len() > 3 && scores.len() == 1 + TextMetric::ALL.len(), "{} {scores:?}", pairs.len());
    }

    #[test]
    fn a_run_is_measured_on_its_own_pairs_and_on_others() {
        let home = tempfile::tempdir().unwrap();
        let request = RunRequest::new(&Device::default().autodiff()).with_out(home.path().join("run"));
        let request = SMALL.iter().fold(request, |request, (key, value)| request.with_override(key, value));
        let trained = Run::prepare(&request).unwrap().fit().unwrap();

        let options = TranslateOptions { beams: 2, ..TranslateOptions::default() };
        let (run, device) = (home.path().join("run"), Device::default());
        let measured = |data: AskedData<'_>| evaluate_run::<Seq2Seq>(&run, &Checkpoint::Last, data, &options, &device);
        let own = measured(None).unwrap();
        assert_close(&[own.loss, own.perplexity], &[trained.evaluation.unwrap().loss, own.loss.exp()], 1e-5);
        assert!((0.0..=1.0).contains(&own.token_accuracy) && (0.0..=100.0).contains(&own.bleu), "{own:?}");

        // The same pairs in a table, and in two files of a split.
        let pairs = trained.corpus.validation();
        assert_eq!(pairs.len(), 3);
        let table = home.path().join("pairs.tsv");
        let lines = pairs.iter().map(|pair| format!("{}\t{}\n", pair.source, pair.target));
        std::fs::write(&table, lines.collect::<String>()).unwrap();
        let found = measured(Some((&table, None))).unwrap();
        assert_eq!(Evaluation { seconds: own.seconds, ..found }, own);
        let error = measured(Some((home.path(), None))).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("set data.source and data.target"), "{error}");
        let error = measured(Some((&table, Some("val")))).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("is one file and has no split `val`"), "{error}");

        // Ranks whose files have the same pairs in another order are told.
        let turned = home.path().join("turned.tsv");
        let lines = pairs.iter().rev().map(|pair| format!("{}\t{}\n", pair.source, pair.target));
        std::fs::write(&turned, lines.collect::<String>()).unwrap();
        let options = &options;
        thread::scope(|scope| {
            for (rank, table) in Threads::ranks(2, ThreadsOptions::default()).into_iter().zip([&table, &turned]) {
                let run = &run;
                scope.spawn(move || {
                    let (asked, device) = (Some((table.as_path(), None)), Device::default());
                    let (last, rank) = (Checkpoint::Last, Arc::new(rank));
                    let error = evaluate_run_on::<Seq2Seq>(run, &last, asked, options, &device, rank).unwrap_err();
                    let told = "its validation data is `3 examples with the checksum ";
                    assert!(error.is_user_error() && error.to_string().contains(told), "{error}");
                });
            }
        });
    }
}
