use super::super::{Run, Seq2Seq};
use super::*;
use crate::vocabulary::tests::framed;
use burn::tensor::{Int, Tensor};
use firelight_data::{Noises, SpanCorruption, TokenizerConfig};
use firelight_storage::Existing;
use firelight_training::{RunRequest, read_recipe};

fn recipe(overrides: &[(&str, &str)]) -> Seq2SeqRecipe {
    let overrides: Vec<_> = overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let mut recipe = read_recipe::<Seq2Seq>(None, &overrides).unwrap();
    recipe.data.toy_pairs = 40;
    recipe
}

#[test]
fn generated_pairs_come_back_from_the_folder_with_one_tokenizer_or_two() {
    let home = tempfile::tempdir().unwrap();
    for joint in ["true", "false"] {
        let mut recipe = recipe(&[("data.joint", joint), ("model.tying", "\"target\"")]);
        let made = PairText::read(&mut recipe, Path::new("dates.toml"), &[]).unwrap();
        assert_eq!((made.training().len(), made.validation().len()), (38, 2));
        let folder = ModelFolder::create(home.path().join(joint), Existing::Refuse).unwrap();
        made.save(&folder).unwrap();
        let read = PairText::open(&recipe, &folder).unwrap();
        assert_eq!((read.training_ids(), read.validation()), (made.training_ids(), made.validation()));
        assert_eq!(read.vocabulary().is_joint(), joint == "true");
    }
}

#[test]
fn what_the_model_cannot_read_is_not_trained_on_but_must_not_be_validated_on() {
    let home = tempfile::tempdir().unwrap();
    let [source, target] = ["s", "t"].map(|name| home.path().join(name));
    std::fs::write(&source, format!("ab\n{}\n\nba\n", "ab".repeat(40))).unwrap();
    std::fs::write(&target, "b\nb\na\na\n").unwrap();
    let mut recipe = recipe(&[("data.split.validation", "0.25")]);
    let paths = [source.clone(), target.clone()];
    let pairs = PairText::read(&mut recipe, Path::new("x.toml"), &paths).unwrap();
    assert_eq!((pairs.training_ids().len(), pairs.training().len(), pairs.validation().len()), (1, 3, 1));
    assert!(pairs.sizes().starts_with("1 pairs to train on (dropped 2 of 3 pairs"), "{}", pairs.sizes());
    assert!(pairs.is_of(&recipe, &paths).unwrap());

    std::fs::write(&source, format!("ab\nb\na\n{}\n", "ab".repeat(40))).unwrap();
    assert!(!pairs.is_of(&recipe, &paths).unwrap());
    let error = PairText::read(&mut recipe, Path::new("x.toml"), &paths).unwrap_err();
    assert!(error.to_string().starts_with("line 4 has 81 tokens, special tokens of the source included"), "{error}");
}

#[test]
fn a_run_that_begins_in_an_empty_folder_has_the_built_in_recipe_that_is_named() {
    let home = tempfile::tempdir().unwrap();
    let request = RunRequest::new(&Device::default()).with_recipe("copy").with_out(home.path().join("run"));
    let request = request.with_override("data.toy_pairs", 40).with_override("training.batch_size", 4);
    let run = Run::prepare(&request.with_existing(Existing::Continue)).unwrap();
    assert!(run.corpus.training().iter().all(|pair| pair.source == pair.target), "these are copies, and no dates");
}

#[test]
fn a_run_reads_the_file_of_sources_and_the_one_of_targets() {
    let home = tempfile::tempdir().unwrap();
    let [source, target, short] = ["s", "t", "short"].map(|name| home.path().join(name));
    std::fs::write(&source, (0..20).map(|i| format!("source {i}\n")).collect::<String>()).unwrap();
    std::fs::write(&target, (0..20).map(|i| format!("target {i}\n")).collect::<String>()).unwrap();
    std::fs::write(&short, "one line\n").unwrap();
    let prepared = |one: &PathBuf, other: &PathBuf, out: &str| {
        let request = RunRequest::new(&Device::default()).with_out(home.path().join(out));
        Run::prepare(&request.with_parallel_data(one, other))
    };
    let run = prepared(&source, &target, "run").unwrap();
    let all = [run.corpus.training(), run.corpus.validation()].concat();
    assert_eq!(all.len(), 20);
    assert_eq!((&all[0], &all[19]), (&Pair::new("source 0", "target 0"), &Pair::new("source 19", "target 19")));
    let turned = prepared(&target, &source, "turned").unwrap();
    assert_eq!(turned.corpus.training()[0], Pair::new("target 0", "source 0"));
    let error = prepared(&source, &short, "none").unwrap_err();
    assert!(error.is_user_error() && !home.path().join("none").exists(), "{error}");
}

/// The sources and targets of the batches of a loader.
fn read(loader: &Loader) -> Vec<[Vec<i32>; 2]> {
    let ids = |tensor: Tensor<2, Int>| tensor.try_into_vec_as::<i32>().unwrap();
    loader.iter().map(Result::unwrap).map(|batch| [ids(batch.source), ids(batch.targets)]).collect()
}

#[test]
fn a_budget_of_the_recipe_bounds_both_sides_of_every_batch() {
    let mut recipe = recipe(&[("data.batching", "{ kind = \"tokens\", max_tokens = 100 }")]);
    let pairs = PairText::read(&mut recipe, Path::new("dates.toml"), &[]).unwrap();
    let loader = pairs.training_loader(&recipe, 0..20, &Device::default()).unwrap();
    let sides = |batch: PairBatch| [batch.source.dims(), batch.targets.dims()];
    let sizes: Vec<[usize; 2]> = loader.iter().flat_map(|batch| sides(batch.unwrap())).collect();
    assert!(sizes.iter().all(|[rows, length]| rows * length <= 100), "{sizes:?}");
    assert!(sizes.iter().any(|[rows, _]| *rows > 1), "{sizes:?}");
}

#[test]
fn texts_become_pairs_by_noise_that_is_new_in_every_epoch_and_the_same_in_every_evaluation() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("text.txt");
    let lines = (0..40).map(|i| format!("text {i} is here. {}\n\n", "abc ".repeat(10 * (i % 5))));
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    let objectives = [Denoising::SpanCorruption(SpanCorruption::default()), Denoising::Bart(Noises::default())];
    for (number, objective) in objectives.into_iter().enumerate() {
        let mut recipe =
            recipe(&[("model.max_seq_len", "48"), ("data.batching", "fixed"), ("training.batch_size", "1")]);
        (recipe.data.toy, recipe.data.objective) = (None, Some(objective));
        let made = PairText::read(&mut recipe, Path::new("x.toml"), std::slice::from_ref(&path)).unwrap();
        assert_eq!((made.training().len(), made.validation().len()), (36, 4));
        assert!(made.training_ids().len() > 36, "texts of more than 47 characters are cut");
        let folder = ModelFolder::create(home.path().join(number.to_string()), Existing::Refuse).unwrap();
        made.save(&folder).unwrap();
        let opened = PairText::open(&recipe, &folder).unwrap();

        let device = Device::default();
        let epoch = made.training_plan(&recipe).unwrap().num_batches();
        let all = |text: &PairText, steps| read(&text.training_loader(&recipe, steps, &device).unwrap());
        let two = all(&made, 0..2 * epoch);
        assert_eq!(all(&opened, epoch..2 * epoch), two[epoch..], "a resumed run goes on with the same noise");
        let mut sorted = [&two[..epoch], &two[epoch..]].map(<[_]>::to_vec);
        sorted.iter_mut().for_each(|epoch| epoch.sort());
        assert_ne!(sorted[0], sorted[1], "without noise an epoch is another order of the same texts");
        let validate = |text: &PairText| read(&text.validation_loader(&recipe, &device).unwrap());
        assert_eq!(validate(&made), validate(&opened));
    }
}

#[test]
fn an_objective_without_a_text_is_refused_with_what_it_needs() {
    let mut recipe = recipe(&[]);
    (recipe.data.toy, recipe.data.objective) = (None, Some(Denoising::Bart(Noises::default())));
    let error = PairText::read(&mut recipe, Path::new("x.toml"), &[]).unwrap_err();
    assert!(error.is_user_error() && error.to_string().contains("give one text file with --data"), "{error}");
}

#[test]
fn what_stands_around_a_source_takes_places_of_it() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tokenizer.json");
    framed(&["<s>"], &["</s>", "de"]).save(&path).unwrap();
    let [source, target] = ["s", "t"].map(|name| home.path().join(name));
    // Of 8 tokens a source may have 5 and a target 7.
    std::fs::write(&source, "ababa\nababab\na\na\n").unwrap();
    std::fs::write(&target, "ab\nab\nabababa\nab\n").unwrap();
    let mut recipe = recipe(&[("data.split.validation", "0.25"), ("model.max_seq_len", "8")]);
    recipe.data.tokenizer = TokenizerConfig::File { path };
    let text = PairText::read(&mut recipe, Path::new("x.toml"), &[source.clone(), target.clone()]).unwrap();
    let lengths: Vec<usize> = text.training_ids().iter().map(|pair| length(pair, text.vocabulary())).collect();
    assert_eq!(lengths, [8, 8], "the second pair is dropped");
    std::fs::write(&source, "ababa\na\na\nababab\n").unwrap();
    let error = PairText::read(&mut recipe, Path::new("x.toml"), &[source, target]).unwrap_err();
    assert!(error.to_string().starts_with("line 4 has 9 tokens, special tokens of the source included"), "{error}");
}

#[test]
fn all_pairs_dropped_and_no_pairs_at_all_are_reported() {
    let mut filtered = recipe(&[]);
    filtered.data.filter.max_target = Some(3);
    let error = PairText::read(&mut filtered, Path::new("x.toml"), &[]).unwrap_err();
    assert!(error.to_string().starts_with("there is no pair to train on: dropped 38 of 38 pairs"), "{error}");
    let mut without = recipe(&[]);
    without.data.toy = None;
    let error = PairText::read(&mut without, Path::new("x.toml"), &[]).unwrap_err();
    assert!(error.is_user_error() && error.to_string().contains("`x.toml` needs pairs"), "{error}");
}
