//! Whole trainings that begin from another run.

mod pruned;

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Int, Tensor, TensorData};
use firelight_core::{BlockFormat, FeedForwardLayer, LossConfig, dequantize, weights_of};
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_generation::GenerationOptions;
use firelight_kernels::assert_close;
use firelight_storage::{Checkpoint, Existing, ModelFolder};
use firelight_training::{AskedData, Recompute, RunRequest, Task, assert_shared, evaluate_run, merge};
use tempfile::TempDir;

use super::{Language, Run};
use crate::model::LanguageModel;
use crate::quantized::BlockMix;
use crate::text_generator::TextGenerator;
use crate::training::LmTask;

const RECIPE: &str = "task = \"language\"\n\n[data]\nsplit.validation = 0.2\n\n[training]\nsteps = 3\nbatch_size = 3\n\n\
                      [optimizer]\nlearning_rate = 0.05\n";

const SIZES: [(&str, &str); 4] =
    [("model.d_model", "8"), ("model.n_heads", "2"), ("model.n_layers", "1"), ("model.max_seq_len", "16")];

/// A text and runs on it.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::write(home.path("recipe.toml"), RECIPE).unwrap();
        fs::write(home.path("text.txt"), "the quick brown fox jumps over the lazy dog ".repeat(20)).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn request(&self, out: &str, changes: &[(&str, &str)]) -> RunRequest {
        let request = RunRequest::new(&Device::default()).with_recipe(self.path("recipe.toml"));
        let request = request.with_data(self.path("text.txt")).with_out(self.path(out));
        changes.iter().fold(request, |request, (key, value)| request.with_override(key, value))
    }

    /// A run from which others begin.
    fn base(&self) -> String {
        Run::prepare(&self.request("base", &SIZES)).unwrap().fit().unwrap();
        format!("{:?}", self.path("base").display().to_string())
    }
}

fn numbers(data: TensorData) -> Vec<f32> {
    data.iter::<f32>().collect()
}

fn embedding(run: &Run) -> Vec<f32> {
    numbers(run.model().embedding.weight.val().into_data())
}

/// The logits of some tokens by a run.
fn logits(folder: &Path) -> Vec<f32> {
    let generator = TextGenerator::load_from(folder, &Checkpoint::Last, &Device::default()).unwrap();
    let tokens = Tensor::<2, Int>::from_ints([[1, 2, 3]], &Device::default());
    numbers(generator.model().forward(tokens).into_data())
}

#[test]
fn a_model_begins_from_another_one_with_its_structure_and_tokenizer() {
    let home = Home::new();
    let from = home.base();
    fs::write(home.path("text.txt"), "lazy dogs jump over brown foxes ".repeat(20)).unwrap();
    let run = Run::prepare(&home.request("begun", &[("init.from", &from)])).unwrap();
    let base = ModelFolder::open(home.path("base")).unwrap();
    assert_eq!(*run.config(), base.read_config(crate::TASK).unwrap());
    assert_eq!(fs::read(run.folder.tokenizer()).unwrap(), fs::read(base.tokenizer()).unwrap());
    assert_eq!(run.init_report().unwrap().new, Vec::<String>::new());
    let recipe = fs::read_to_string(run.folder.recipe()).unwrap();
    assert!(recipe.contains("d_model = 8") && recipe.contains("[init]"), "{recipe}");
    let learnt = TextGenerator::load_from(base.path(), &Checkpoint::Last, &Device::default()).unwrap();
    assert_eq!(embedding(&run), numbers(learnt.model().embedding.weight.val().into_data()));
    run.fit().unwrap();

    // The first command is repeated after the other run is gone.
    fs::remove_dir_all(base.path()).unwrap();
    let again = home.request("begun", &[("init.from", &from), ("training.steps", "4")]).with_existing(Existing::Resume);
    assert_eq!(Run::prepare(&again).unwrap().fit().unwrap().steps, 4);
}

#[test]
fn a_training_measures_what_evaluate_does_and_may_be_judged_by_it() {
    let home = Home::new();
    let changes = [&SIZES[..], &[("training.monitor", "bits_per_character")]].concat();
    let trained = Run::prepare(&home.request("run", &changes)).unwrap().fit().unwrap();
    let (run, device) = (trained.folder.path(), Device::default());
    let found = evaluate_run::<Language>(run, &Checkpoint::Last, None, &(), &device).unwrap();
    let metrics = fs::read_to_string(home.path("run/metrics.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    for (name, expected) in [
        ("validation_loss", found.loss),
        ("perplexity", found.perplexity),
        ("bits_per_character", found.bits_per_character),
    ] {
        let logged = last[name].as_f64().unwrap();
        assert!((logged - expected).abs() < 1e-9 * expected, "{name}: {logged} and {expected}");
    }
    assert!(found.bits_per_character > 0.0, "{found:?}");
}

#[test]
fn ranks_share_the_scores() {
    let home = Home::new();
    // A batch of the validation has 4,096 tokens: a fifth of this text is more than one.
    fs::write(home.path("text.txt"), "the quick brown fox jumps over the lazy dog ".repeat(500)).unwrap();
    let run = Run::prepare(&home.request("run", &SIZES)).unwrap();
    let (found, values) = assert_shared::<LmTask>(|| {
        let loader = run.corpus.parts[1].validation_loader(&run.recipe, &Device::default()).unwrap();
        let task = LmTask::new(run.model().clone(), LossConfig::default());
        (task, loader, Language::evaluator(&run.corpus, &run.recipe))
    });
    assert!(values.len() == 2 && (values[0] - found.perplexity()).abs() < 1e-9 * values[0], "{found:?} {values:?}");
}

#[test]
fn what_the_recipe_says_otherwise_is_named_with_both_values() {
    let home = Home::new();
    let from = home.base();
    let error = |changes: &[(&str, &str)]| {
        let changes = [&[("init.from", from.as_str())], changes].concat();
        let error = Run::prepare(&home.request("run", &changes)).unwrap_err();
        assert!(error.is_user_error() && !home.path("run").exists(), "{error}");
        error.to_string()
    };
    let found = error(&[("model.n_heads", "4"), ("model.tied", "false"), ("model.dropout", "0.5")]);
    for part in ["model.n_heads = 4, but 2 in the run", "`--set model.tied`: model.tied = false, but true"] {
        assert!(found.contains(part) && !found.contains("dropout"), "{found}");
    }
    let found = error(&[("model.n_layers", "2"), ("model.max_seq_len", "20")]);
    assert!(found.contains("`transformer.position.weight` is [16, 8] and must be [20, 8]"), "{found}");
    assert!(found.contains("set init.resize = true") && found.contains("init.allow_missing"), "{found}");
}

#[test]
fn positions_and_another_vocabulary_keep_the_rows_in_common() {
    let home = Home::new();
    let from = home.base();
    let text = fs::read_to_string(home.path("text.txt")).unwrap();
    let tokenizer = Tokenizer::load(home.path("base").join("tokenizer.json")).unwrap();
    let larger = Tokenizer::train(&TokenizerConfig::Char, &format!("{text}{{}}")).unwrap();
    assert_eq!(larger.vocab_size(), tokenizer.vocab_size() + 2);
    larger.save(home.path("larger.json")).unwrap();
    let file = format!("file:{}", home.path("larger.json").display());
    let changes = [("init.from", from.as_str()), ("data.tokenizer", &file), ("model.max_seq_len", "20")];
    let error = Run::prepare(&home.request("run", &changes)).unwrap_err().to_string();
    assert!(error.contains("`embedding.weight` is") && error.contains("init.resize = true"), "{error}");
    let begun = Run::prepare(&home.request("run", &[&changes[..], &[("init.resize", "true")]].concat())).unwrap();
    let learnt = TextGenerator::load_from(home.path("base"), &Checkpoint::Last, &Device::default()).unwrap();
    let learnt = numbers(learnt.model().embedding.weight.val().into_data());
    assert!(embedding(&begun).starts_with(&learnt) && embedding(&begun).len() == learnt.len() + 2 * 8);
    assert_eq!(begun.init_report().unwrap().resized, ["embedding.weight", "transformer.position.weight"]);
    begun.fit().unwrap();
}

#[test]
fn adapters_are_trained_alone_and_merged() {
    let home = Home::new();
    let from = home.base();
    let adapters =
        "{ rank = 2, alpha = 16, scaling = \"rank_stabilized\", targets = [\"query\", \"feed_forward.up\"] }";
    let alone =
        Run::prepare(&home.request("run", &[&SIZES[..], &[("model.adapters", adapters)]].concat())).unwrap_err();
    assert!(alone.to_string().contains("name its run as init.from, or by --from"), "{alone}");
    let changes = [("init.from", from.as_str()), ("model.adapters", adapters)];
    let run = Run::prepare(&home.request("run", &changes)).unwrap();
    let before = embedding(&run);
    assert!(run.cost().trained < run.cost().parameters);
    run.fit().unwrap();
    merge::<Language>(home.path("run"), &Checkpoint::Last, home.path("merged"), &Device::default()).unwrap();
    let [base, adapted, merged] = ["base", "run", "merged"].map(|name| logits(&home.path(name)));
    assert_ne!(base, adapted);
    assert_close(&adapted, &merged, 1e-3);
    let kept = TextGenerator::load_from(home.path("run"), &Checkpoint::Last, &Device::default()).unwrap();
    assert_eq!(numbers(kept.model().embedding.weight.val().into_data()), before);
    // Another run begins with them in its weights.
    let adapted = format!("{:?}", home.path("run").display().to_string());
    let further = Run::prepare(&home.request("further", &[("init.from", &adapted)])).unwrap();
    assert_eq!(further.init_report().unwrap().new, Vec::<String>::new());
    let wrong = Run::prepare(
        &home.request("wrong", &[changes[0], ("model.adapters.rank", "2"), ("model.adapters.targets", "[\"kernel\"]")]),
    );
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("`--set model.adapters.targets`: model.adapters.targets names `kernel`"), "{error}");
}

/// Rows of whole blocks.
const WIDE: [(&str, &str); 4] =
    [("model.d_model", "32"), ("model.n_heads", "2"), ("model.n_layers", "1"), ("model.max_seq_len", "16")];

const BESIDE: [(&str, &str); 5] = [
    ("model.adapters", "{ rank = 8, targets = [\"*\"] }"),
    ("training.steps", "20"),
    ("training.checkpoint_every", "10"),
    ("optimizer.learning_rate", "0.02"),
    ("schedule.warmup_steps", "0"),
];

impl Home {
    /// A training of adapters beside blocks, on the device that multiplies them.
    fn beside_blocks(&self, from: &str, out: &str, format: &str, more: &[(&str, &str)]) -> RunRequest {
        let changes = [&[("init.from", from), ("init.quantize", format)], &BESIDE[..], more].concat();
        RunRequest { device: Device::flex(), ..self.request(out, &changes) }
    }

    fn wide_base(&self) -> String {
        let learnt = [("training.steps", "10"), ("optimizer.learning_rate", "0.02"), ("schedule.warmup_steps", "0")];
        Run::prepare(&self.request("base", &[&WIDE[..], &learnt].concat())).unwrap().fit().unwrap();
        format!("{:?}", self.path("base").display().to_string())
    }

    fn bytes(&self, file: &str) -> Vec<u8> {
        fs::read(self.path(file)).unwrap()
    }
}

fn on_flex(folder: &Path) -> TextGenerator {
    TextGenerator::load_from(folder, &Checkpoint::Last, &Device::flex()).unwrap()
}

fn logits_of(model: &LanguageModel) -> Vec<f32> {
    numbers(model.forward(Tensor::<2, Int>::from_ints([[1, 2, 3]], &Device::flex())).into_data())
}

/// The matrices of a model in blocks, as floats.
fn base_of(model: &LanguageModel) -> Vec<Vec<f32>> {
    let block = &model.transformer.blocks[0];
    let FeedForwardLayer::Dense(network) = &block.feed_forward else { panic!("a dense network") };
    [&model.embedding.weight, &network.up.weight, &network.down.weight]
        .map(|weight| numbers(weight.val().into_data()))
        .into()
}

#[test]
fn adapters_learn_beside_blocks_that_stay_as_they_are() {
    let home = Home::new();
    let from = home.wide_base();
    for (format, blocks) in [("q8_0", BlockFormat::Q8_0), ("q4_0", BlockFormat::Q4_0)] {
        let request = home.beside_blocks(&from, format, format, &[]);
        let estimated = Run::estimate(&request).unwrap();
        let floats = home.beside_blocks(&from, "none", format, &[]);
        let floats = RunRequest {
            overrides: floats.overrides.into_iter().filter(|(key, _)| key != "init.quantize").collect(),
            ..floats
        };
        let run = Run::prepare(&request).unwrap();
        let entries = weights_of(run.model());
        assert!(entries.iter().all(|entry| entry.format == Some(blocks)), "{entries:?}");
        let saved: usize = entries.iter().map(|entry| 4 * entry.rows * entry.width - entry.bytes()).sum();
        assert_eq!(run.cost(), estimated);
        assert_eq!(Run::estimate(&floats).unwrap().state_bytes - estimated.state_bytes, saved);
        assert_eq!(run.parameters().iter().map(|(_, count)| count).sum::<usize>(), estimated.parameters);

        let expected = base_of(on_flex(&home.path("base")).quantize(&BlockMix::new(blocks)).model());
        assert_eq!(base_of(run.model()), expected, "the blocks of the run that it began from");
        let trained = run.fit().unwrap();
        assert_eq!(base_of(&trained.model), expected, "blocks are not trained");
        let found = |run: &str| evaluate_run::<Language>(home.path(run), &Checkpoint::Last, None, &(), &Device::flex());
        let loss = |run: &str| found(run).unwrap().loss;
        let [before, after] = ["base", format].map(loss);
        assert!(after < before, "{before} became {after}");
        on_flex(&home.path(format)).generate("the ", &GenerationOptions::new(4).greedy()).unwrap();

        let merged = home.path(&format!("{format}-merged"));
        merge::<Language>(home.path(format), &Checkpoint::Last, &merged, &Device::flex()).unwrap();
        let (adapted, merged) = (on_flex(&home.path(format)).model().clone(), on_flex(&merged));
        assert!(weights_of(merged.model()).iter().all(|entry| entry.format.is_none()));
        assert_close(&logits_of(merged.model()), &logits_of(&dequantize(adapted)), 1e-3);

        // Another run begins with both in its weights.
        let adapted = format!("{:?}", home.path(format).display().to_string());
        let further = home.request(&format!("{format}-further"), &[("init.from", &adapted)]);
        let further = Run::prepare(&RunRequest { device: Device::flex(), ..further }).unwrap();
        assert_eq!(logits_of(further.model()), logits_of(merged.model()));
    }
}

#[test]
fn a_training_beside_blocks_goes_on_to_the_bit_without_the_run_that_it_began_from() {
    let home = Home::new();
    let from = home.wide_base();
    let ema = [("training.ema_decay", "0.5"), ("schedule.steps", "20"), ("model.adapters.decomposed", "true")];
    Run::prepare(&home.beside_blocks(&from, "whole", "q4_0", &ema)).unwrap().fit().unwrap();
    let half = home.beside_blocks(&from, "half", "q4_0", &ema);
    Run::prepare(&half.clone().with_override("training.steps", 10)).unwrap().fit().unwrap();
    fs::remove_dir_all(home.path("base")).unwrap();
    let half = half.with_existing(Existing::Resume);
    assert_eq!(Run::prepare(&half).unwrap().done(), 10);
    Run::prepare(&half).unwrap().fit().unwrap();
    for file in ["model.safetensors", "adapters.safetensors", "quantization.json"] {
        assert!(home.bytes(&format!("half/{file}")) == home.bytes(&format!("whole/{file}")), "{file}");
    }
    let floats = half.with_override("init.quantize", "q8_0");
    let error = Run::prepare(&floats).unwrap_err().to_string();
    assert!(error.contains("init.quantize was \"q4_0\" and is \"q8_0\""), "{error}");
}

#[test]
fn recomputation_and_half_precision_train_beside_blocks() {
    let home = Home::new();
    let from = home.wide_base();
    let loss = |(key, value): (&str, &str)| {
        let request = home.beside_blocks(&from, value, "q8_0", &[("training.steps", "4"), (key, value)]);
        let trained = Run::prepare(&request).unwrap().fit().unwrap();
        trained.evaluation.unwrap().loss
    };
    let expected = loss(("training.recompute", "none"));
    assert_close(&[loss(("training.recompute", "burn"))], &[expected], 1e-4);
    // Where the kernels of the CPU are built in, as in a test of the whole workspace.
    if Recompute::Blocks.check(&Device::flex()).is_ok() {
        assert_close(&[loss(("training.recompute", "blocks"))], &[expected], 1e-4);
    }
    assert_close(&[loss(("training.precision", "bf16"))], &[expected], 0.3);
}

#[test]
#[allow(deprecated)] // Burn's older CPU backend multiplies no blocks.
fn blocks_without_adapters_on_another_device_or_of_no_matrix_are_refused() {
    let home = Home::new();
    let from = home.wide_base();
    let error = |request: &RunRequest| {
        let error = Run::prepare(request).unwrap_err();
        assert!(error.is_user_error() && !home.path("run").exists(), "{error}");
        error.to_string()
    };
    let request = |more: &[(&str, &str)]| home.beside_blocks(&from, "run", "q8_0", more);
    let bare = request(&[]);
    let overrides = bare.overrides.clone().into_iter().filter(|(key, _)| key != "model.adapters").collect();
    let found = error(&RunRequest { overrides, ..bare });
    let expected = "`--set init.quantize`: init.quantize = \"q8_0\" needs model.adapters: weights in blocks";
    assert!(found.contains(expected), "{found}");
    let found = error(&RunRequest { device: Device::ndarray(), ..request(&[]) });
    assert!(found.contains("init.quantize = \"q8_0\" needs the CPU backend flex"), "{found}");
    let found = error(&request(&[("init.quantize", "q4_k")]));
    assert!(
        found.contains("no matrix that stays as it is has rows of whole blocks, which hold 256 numbers"),
        "{found}"
    );
    let found = error(&request(&[("init.quantize", "nf4")]));
    assert!(found.contains("expected one of q8_0, q4_0, q4_k, q6_k"), "{found}");

    // What is trained after all stays floats.
    let run = Run::prepare(&request(&[("training.freeze", "[\"!embedding\"]")])).unwrap();
    let is_embedding = |path: &str| path == "embedding.weight";
    assert!(weights_of(run.model()).iter().all(|entry| entry.format.is_none() == is_embedding(&entry.path)));
}

#[test]
fn a_structure_that_cannot_be_built_is_told_and_not_built() {
    let home = Home::new();
    let from = home.base();
    let changes = [("init.from", from.as_str()), ("model.adapters.rank", "2")];
    Run::prepare(&home.request("run", &changes)).unwrap().fit().unwrap();
    let path = home.path("run/config.json");
    let damaged = fs::read_to_string(&path).unwrap().replace("\"n_heads\": 2", "\"n_heads\": 3");
    fs::write(&path, damaged).unwrap();
    let merged = merge::<Language>(home.path("run"), &Checkpoint::Last, home.path("merged"), &Device::default());
    let adapted = format!("{:?}", home.path("run").display().to_string());
    let begun = Run::prepare(&home.request("further", &[("init.from", &adapted)]));
    for error in [merged.unwrap_err(), begun.unwrap_err()] {
        let text = error.to_string();
        assert!(error.is_user_error() && text.contains("config.json") && text.contains("n_heads"), "{text}");
    }
    assert!(!home.path("merged").exists() && !home.path("further").exists());
}

#[test]
fn several_sources_are_drawn_in_their_ratio_and_resumed_to_the_bit() {
    let home = Home::new();
    fs::write(home.path("recipe.toml"), RECIPE.replace("split.validation = 0.2", "")).unwrap();
    let record = |text: &str| format!("{{\"body\": \"{}\"}}\n", text.repeat(12));
    fs::create_dir(home.path("tales")).unwrap();
    fs::write(home.path("tales/train-00000-of-00002.jsonl"), record("the lazy dog ")).unwrap();
    fs::write(home.path("tales/train-00001-of-00002.jsonl"), record("a quick fox ")).unwrap();
    fs::write(home.path("tales/valid.txt"), "the brown dog jumps ".repeat(3)).unwrap();
    let train = |out: &str, steps: &str, more: &[(&str, &str)], existing| {
        let changes = [&SIZES[..], &[("data.column", "body"), ("training.steps", steps)], more].concat();
        let mut request = home.request(out, &changes).with_existing(existing);
        request.data.push(home.path("tales"));
        Run::prepare(&request).and_then(|run| run.fit())
    };
    let weights = [("data.weights", "[1, 3]")];
    let bytes = |out: &str| fs::read(home.path(out).join("model.safetensors")).unwrap();
    let whole = train("whole", "4", &weights, Existing::Refuse).unwrap();
    train("parts", "2", &weights, Existing::Refuse).unwrap();
    train("parts", "4", &weights, Existing::Resume).unwrap();
    assert_eq!(bytes("whole"), bytes("parts"));
    train("plain", "4", &[], Existing::Refuse).unwrap();
    assert_ne!(bytes("whole"), bytes("plain"), "the ratio decides what is drawn");

    // The last tenth of the text and the whole of valid.txt; of both sources the first token has no one before it.
    let text = fs::read_to_string(home.path("text.txt")).unwrap().len();
    let held_out =
        text - ((1.0 - 0.1) * text as f64) as usize + fs::read_to_string(home.path("tales/valid.txt")).unwrap().len();
    let (run, device) = (whole.folder.path(), Device::default());
    let measured = |asked: AskedData<'_>| evaluate_run::<Language>(run, &Checkpoint::Last, asked, &(), &device);
    assert_eq!(measured(None).unwrap().tokens as usize, held_out - 2);
    let tales = home.path("tales");
    assert_eq!(measured(Some((&tales, Some("dev")))).unwrap().tokens, 3 * 20 - 1);
    let error = measured(Some((&tales, Some("test")))).unwrap_err().to_string();
    assert!(error.contains("has no split `test`") && error.ends_with("there is train, valid"), "{error}");

    let error = train("other", "1", &[("data.weights", "[1, 2, 3]")], Existing::Refuse).unwrap_err().to_string();
    assert!(error.contains("data.weights has a length of 3, but the number of sources is 2"), "{error}");
    let sources = home.path("whole/data.sources.json");
    let damaged = fs::read_to_string(&sources).unwrap().replace("\"validation\":60", "\"validation\":61");
    fs::write(&sources, damaged).unwrap();
    let error = measured(None).unwrap_err().to_string();
    assert!(error.contains("data.sources.json` does not fit the run: its sources have"), "{error}");
}
