//! Whole trainings of captions: on drawn digits, on labelled images, on images with captions of their own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use burn::tensor::{Device, Tensor};
use firelight_core::{PositionConfig, RotaryAxes, RotaryConfig, TransformerConfig, VisionTransformerConfig};
use firelight_data::{CaptionedImages, Image, ImageShape};
use firelight_kernels::assert_close;
use firelight_storage::{Checkpoint, Existing, ModelFolder};
use firelight_training::{
    Check, Estimate, Run, RunRequest, Task, TaskEvaluation, Threads, ThreadsOptions, evaluate_run, evaluate_run_on,
};

use super::*;
use crate::captioning::Caption;

const SMALL: [(&str, &str); 13] = [
    ("data.drawn_digits", "40"),
    ("data.scenes", "30"),
    ("data.split.validation", "6"),
    ("data.max_parts", "2"),
    ("data.described", "3"),
    ("model.d_model", "16"),
    ("model.n_heads", "2"),
    ("model.n_layers", "1"),
    ("model.d_ff", "16"),
    ("training.steps", "3"),
    ("training.batch_size", "4"),
    ("training.evaluate_every", "3"),
    ("schedule.warmup_steps", "1"),
];

fn request(home: &Path, more: &[(&str, &str)]) -> RunRequest {
    let request = RunRequest::new(&Device::default().autodiff()).with_out(home.join("run"));
    SMALL.iter().chain(more).fold(request, |request, (key, value)| request.with_override(key, value))
}

fn stripes(offset: usize) -> Image {
    let pixel = |place: usize| if ((place % 8 + offset) / 2).is_multiple_of(2) { 230 } else { 20 };
    Image::new(ImageShape::new(1, [8, 8]), (0..64).map(pixel).collect())
}

/// A folder of images with captions.
fn folder(path: &Path, images: usize) {
    fs::create_dir_all(path).unwrap();
    let line = |index: usize| {
        stripes(index).write_png(path.join(format!("{index}.png"))).unwrap();
        format!("{{\"image\": \"{index}.png\", \"caption\": \"stripes, {}\"}}\n", ["left", "right"][index / 2 % 2])
    };
    fs::write(path.join("captions.jsonl"), (0..images).map(line).collect::<String>()).unwrap();
}

#[test]
fn a_run_on_drawn_digits_is_measured_and_describes_images_as_it_did_in_the_training() {
    let home = tempfile::tempdir().unwrap();
    let run = Run::<Captioning>::prepare(&request(home.path(), &[])).unwrap();
    assert_eq!(
        firelight_training::DataModule::<Captioning>::sizes(&run.corpus),
        "30 images of 1 x 64 x 64 with captions to train on, 6 to validate on"
    );
    let trained = run.fit().unwrap();
    let (folder, device) = (home.path().join("run"), Device::default());
    let measured = |list: Option<&Path>, beams| {
        let asked = list.map(|list| (list, None));
        evaluate_run::<Captioning>(&folder, &Checkpoint::Last, asked, &CaptionOptions { beams }, &device)
    };
    let own = measured(None, 1).unwrap();
    assert_close(&[own.loss], &[trained.evaluation.unwrap().loss], 1e-5);
    let names: Vec<&str> = own.scores.iter().map(|(name, _)| *name).collect();
    assert_eq!((names, own.examples), (vec!["token_accuracy", "exact_match", "bleu"], 6));

    // The validation images again, as files of their own with a list.
    let validation = trained.corpus.validation();
    let line = |(index, caption): (usize, &String)| {
        validation.images.image(index).write_png(home.path().join(format!("{index}.png"))).unwrap();
        format!("{{\"image\": \"{index}.png\", \"caption\": \"{caption}\"}}\n")
    };
    let list = home.path().join("captions.jsonl");
    fs::write(&list, validation.captions.iter().enumerate().map(line).collect::<String>()).unwrap();
    let found = measured(Some(&list), 1).unwrap();
    assert_eq!((found.loss, &found.scores), (own.loss, &own.scores));
    assert_eq!(measured(Some(home.path()), 1).unwrap().loss, own.loss);
    let error = measured(Some(&home.path().join("run")), 1).unwrap_err();
    assert!(error.is_user_error() && error.to_string().contains("captions.jsonl"), "{error}");
    let (asked, options) = (Some((list.as_path(), Some("test"))), CaptionOptions::default());
    let error = evaluate_run::<Captioning>(&folder, &Checkpoint::Last, asked, &options, &device).unwrap_err();
    assert!(error.is_user_error() && error.to_string().contains("has no split `test`"), "{error}");
}

#[test]
fn ranks_share_the_batches_of_captions_and_are_told_of_other_images() {
    let home = tempfile::tempdir().unwrap();
    let [list, other] = ["list", "other"].map(|name| home.path().join(name));
    let images = 2 * data::VALIDATION_BATCH - 1;
    for list in [&list, &other] {
        folder(list, images);
    }
    let request = request(home.path(), &[]).with_data(&list);
    let trained = Run::<Captioning>::prepare(&request).unwrap().fit().unwrap();
    let run = trained.folder.path();
    let on_ranks = |lists: &[&PathBuf]| -> Vec<Result<TaskEvaluation, TaskError>> {
        thread::scope(|scope| {
            let start = |(rank, list): (Threads, PathBuf)| {
                scope.spawn(move || {
                    let (asked, options) = (Some((list.as_path(), None)), CaptionOptions::default());
                    let (last, device, rank) = (Checkpoint::Last, Device::default(), Arc::new(rank));
                    evaluate_run_on::<Captioning>(run, &last, asked, &options, &device, rank)
                })
            };
            let ranks = Threads::ranks(lists.len(), ThreadsOptions::default()).into_iter();
            let ranks: Vec<_> = ranks.zip(lists.iter().copied().cloned()).map(start).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    };
    let alone = on_ranks(&[&list]).remove(0).unwrap();
    assert_eq!(alone.examples, images);
    assert!(alone.examples > 2 * Captioner::BATCH, "several batches, of the losses as of the captions");
    for found in on_ranks(&[&list, &list]) {
        let found = found.unwrap();
        assert_eq!((found.loss.to_bits(), &found.scores), (alone.loss.to_bits(), &alone.scores));
    }

    fs::copy(other.join("1.png"), other.join(format!("{}.png", images - 1))).unwrap();
    for found in on_ranks(&[&list, &other]) {
        let error = found.unwrap_err();
        let told = format!("its validation data is `{images} examples with the checksum ");
        assert!(error.is_user_error() && error.to_string().contains(&told), "{error}");
    }
}

#[test]
fn validation_pictures_are_composed_of_images_that_are_not_trained_on() {
    let home = tempfile::tempdir().unwrap();
    for (split, value) in [("train", 200), ("val", 100)] {
        fs::create_dir_all(home.path().join("data").join(split).join("7")).unwrap();
        let image = Image::new(ImageShape::new(1, [8, 8]), vec![value; 64]);
        image.write_png(home.path().join("data").join(split).join("7/1.png")).unwrap();
    }
    let request = request(home.path(), &[("model.patch_size", "6")]).with_data(home.path().join("data"));
    let data = Run::<Captioning>::prepare(&request).unwrap().corpus;
    let brightest = |images: &CaptionedImages| images.images.pixels().iter().copied().max();
    assert_eq!([brightest(data.training()), brightest(data.validation())], [Some(200), Some(100)]);
}

#[test]
fn a_run_begins_from_another_one_at_another_image_size_and_with_adapters() {
    let home = tempfile::tempdir().unwrap();
    let first = request(home.path(), &[("model.patch_size", "8")]).with_out(home.path().join("first"));
    let first = Run::<Captioning>::prepare(&first).unwrap().fit().unwrap();
    let from = format!("{:?}", home.path().join("first").display().to_string());
    // Digits of 21 pixels: 48 of a picture, six patches in the place of eight.
    let parts = home.path().join("parts/7");
    fs::create_dir_all(&parts).unwrap();
    (0..20).for_each(|i| stripes(i).resized([21, 21]).write_png(parts.join(format!("{i}.png"))).unwrap());
    let adapters = "{ rank = 2, alpha = 4.0, targets = [\"query\"] }";
    let changes = [("init.from", from.as_str()), ("init.resize", "true"), ("model.adapters", adapters)];
    let small = request(home.path(), &changes).with_data(home.path().join("parts"));
    let run = Run::<Captioning>::prepare(&small).unwrap();
    let report = run.init_report().unwrap();
    assert_eq!(report.resized, ["vit.position"], "{report}");
    assert_eq!(run.config().vit.image_size, [48, 48]);
    let begun = run.model().vit.position.as_ref().unwrap().val();
    assert_eq!((begun.dims(), first.model.vit.position.as_ref().unwrap().dims()), ([36, 16], [64, 16]));
    let trained = run.fit().unwrap();
    let out = home.path().join("merged");
    firelight_training::merge::<Captioning>(home.path().join("run"), &Checkpoint::Last, &out, &Device::default())
        .unwrap();
    let image = trained.corpus.validation().images.image(0);
    let score =
        |folder: &Path| Captioner::load(folder).unwrap().caption(std::slice::from_ref(&image), 1).unwrap()[0].score;
    assert_close(&[score(&out)], &[score(&home.path().join("run"))], 1e-4);
}

/// A folder that looks as a run of another task does.
fn other_run(path: &Path, task: &str, position: PositionConfig) {
    let folder = ModelFolder::create(path, Existing::Refuse).unwrap();
    let stack = TransformerConfig::encoder(16, 2, 1).with_position(position);
    let vit = VisionTransformerConfig::new(8, 4, 0, stack);
    folder.write_config(task, &BTreeMap::from([("vit", vit)])).unwrap();
    fs::write(path.join("model.safetensors"), "weights").unwrap();
}

#[test]
fn of_a_model_of_another_task_only_its_encoder_of_images_is_taken_over() {
    let home = tempfile::tempdir().unwrap();
    let rotary = PositionConfig::Rotary(RotaryConfig::default().with_axes(RotaryAxes::axial()));
    for (name, task, position) in [
        ("plain", "vision", PositionConfig::None),
        ("turning", "vision", rotary),
        ("own", CAPTIONING_TASK, PositionConfig::None),
    ] {
        other_run(&home.path().join(name), task, position);
    }
    let keys = |name: &str, include: &str| {
        let from = format!("{:?}", home.path().join(name).display().to_string());
        let overrides = [("init.from", from.as_str()), ("init.include", include)];
        let overrides = overrides.map(|(key, value)| (key.to_string(), value.to_string()));
        let recipe = CaptionRecipe::parse(Captioning::BUILT_IN[0].text, "captions.toml", &overrides).unwrap();
        Captioning::judge(&recipe).into_iter().map(|problem| problem.key).collect::<Vec<_>>()
    };
    for include in ["[\"vit\"]", "[\"vit.patches\", \"vit.position\"]"] {
        assert!(keys("plain", include).is_empty(), "{include}");
    }
    for include in ["[]", "[\"vit\", \"decoder\"]", "[\"*\"]"] {
        assert_eq!(keys("plain", include), ["init.include"], "{include}");
        assert!(keys("own", include).is_empty(), "{include}");
    }
    assert_eq!(keys("turning", "[\"vit\"]"), ["init.from"]);
}

#[test]
fn adapters_beside_blocks_are_merged() {
    let home = tempfile::tempdir().unwrap();
    let wide = [("model.d_model", "32"), ("model.d_ff", "32"), ("model.patch_size", "8")];
    let of_run = |out: &str, more: &[(&str, &str)]| {
        let request = request(home.path(), &[&wide[..], more].concat()).with_out(home.path().join(out));
        RunRequest { device: Device::flex().autodiff(), ..request }
    };
    Run::<Captioning>::prepare(&of_run("base", &[])).unwrap().fit().unwrap();
    let from = format!("{:?}", home.path().join("base").display().to_string());
    let adapters = "{ rank = 2, targets = [\"query\"] }";
    let changes = [("init.from", from.as_str()), ("model.adapters", adapters), ("init.quantize", "q8_0")];
    let trained = Run::<Captioning>::prepare(&of_run("run", &changes)).unwrap().fit().unwrap();
    let entries = firelight_core::weights_of(&trained.model);
    assert!(entries.iter().any(|entry| entry.path.contains(".blocks.")));
    assert!(entries.iter().filter(|entry| entry.path.contains(".blocks.")).all(|entry| entry.format.is_some()));
    let (run, out) = (home.path().join("run"), home.path().join("merged"));
    firelight_training::merge::<Captioning>(&run, &Checkpoint::Last, &out, &Device::flex()).unwrap();
    let image = trained.corpus.validation().images.image(0);
    let score = |folder: &Path| {
        let captioner = Captioner::load_from(folder, &Checkpoint::Last, &Device::flex()).unwrap();
        captioner.caption(std::slice::from_ref(&image), 1).unwrap()[0].score
    };
    assert_close(&[score(&run)], &[score(&out)], 0.05); // Products with blocks round what they multiply.
}

#[test]
fn tokens_of_one_word_share_its_picture() {
    let home = tempfile::tempdir().unwrap();
    let bytes = [("data.tokenizer", "byte"), ("training.monitor", "loss"), ("model.max_seq_len", "256")];
    let trained = Run::<Captioning>::prepare(&request(home.path(), &bytes)).unwrap().fit().unwrap();
    let captioner = Captioner::load(home.path().join("run")).unwrap();
    let caption = Caption { text: String::new(), ids: b"a seven, at".map(u32::from).to_vec(), score: 0.0 };
    let words = captioner.words(&trained.corpus.validation().images.image(0), &caption).unwrap();
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    assert_eq!(texts, ["a", "seven,", "at"]);
    assert_close(&words.iter().map(|word| word.shares.iter().sum::<f64>()).collect::<Vec<_>>(), &[1.0; 3], 1e-5);
}

#[test]
fn a_trained_model_tells_where_every_word_looked() {
    let home = tempfile::tempdir().unwrap();
    let trained = Run::<Captioning>::prepare(&request(home.path(), &[])).unwrap().fit().unwrap();
    let captioner = Captioner::load(home.path().join("run")).unwrap();
    let image = trained.corpus.validation().images.image(0);
    let ids = captioner.tokenizer().encode("a seven at the top left").unwrap();
    let caption = Caption { text: String::new(), ids, score: 0.0 };
    let words = captioner.words(&image, &caption).unwrap();
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    assert_eq!(texts, ["a", "seven", "at", "the", "top", "left"]);
    for word in &words {
        assert_eq!(word.shares.len(), 64);
        assert_close(&[word.shares.iter().sum::<f64>()], &[1.0], 1e-5); // Patches alone: there is no class token.
    }
    // The image and six words in rows of six.
    assert_eq!(captioner.picture(&image, &words).shape(), ImageShape::new(3, [2 * 160, 6 * 160]));

    let both = captioner.caption(&[image.clone(), trained.corpus.validation().images.image(1)], 2).unwrap();
    let alone = captioner.caption(std::slice::from_ref(&image), 2).unwrap();
    assert_eq!(both[0].text, alone[0].text);
    assert_close(&[both[0].score], &[alone[0].score], 1e-5);
}

#[test]
fn an_interrupted_run_comes_back_with_its_images_and_goes_on_to_the_same_weights() {
    let home = tempfile::tempdir().unwrap();
    let weights = |name: &str| fs::read(home.path().join(name).join("model.safetensors")).unwrap();
    let whole =
        request(home.path(), &[("schedule.steps", "6"), ("training.steps", "6")]).with_out(home.path().join("whole"));
    Run::<Captioning>::prepare(&whole).unwrap().fit().unwrap();
    let part = |steps: &str, existing| {
        let request = request(home.path(), &[("schedule.steps", "6"), ("training.steps", steps)]);
        let request = request.with_existing(existing).with_out(home.path().join("parts"));
        Run::<Captioning>::prepare(&request).unwrap().fit().unwrap()
    };
    part("3", Existing::Refuse);
    let last = part("6", Existing::Resume);
    assert!(last.corpus.validation().captions[0].contains(" at the "), "{:?}", last.corpus.validation().captions);
    assert_eq!(weights("whole"), weights("parts"));
}

#[test]
fn images_with_captions_and_labelled_images_are_trained_on() {
    let home = tempfile::tempdir().unwrap();
    folder(&home.path().join("own"), 20);
    let sizes = |data: &str, more: &[(&str, &str)]| {
        let request = request(home.path(), more).with_data(home.path().join(data));
        Run::<Captioning>::prepare(&request.with_out(home.path().join(format!("run-{data}"))))
    };
    let own = sizes("own", &[]).unwrap();
    assert_eq!(own.corpus.training().captions[..3], ["stripes, left", "stripes, left", "stripes, right"]);
    assert_eq!((own.corpus.training().captions.len(), own.corpus.validation().captions.len()), (14, 6));
    assert_eq!(own.recipe.data.drawn_digits, 0);

    for class in ["3", "cow"] {
        fs::create_dir_all(home.path().join("labelled").join(class)).unwrap();
        (0..10).for_each(|i| stripes(i).write_png(home.path().join(format!("labelled/{class}/{i}.png"))).unwrap());
    }
    let labelled = sizes("labelled", &[("model.patch_size", "6")]).unwrap();
    assert_eq!(labelled.corpus.training().images.shape(), ImageShape::new(1, [18, 18]));
    let error = |data: &str, more: &[(&str, &str)]| {
        let error = sizes(data, more).err().unwrap();
        assert!(error.is_user_error());
        error.to_string()
    };
    let patches = error("labelled", &[("model.patch_size", "5")]);
    assert!(patches.contains("image_size = [18, 18] must be multiples of patch_size = 5"), "{patches}");
    let long = error("own", &[("model.max_seq_len", "3")]);
    assert!(
        long.contains("captions.jsonl` cannot be used: line 1 has 4 tokens, special tokens of the caption"),
        "{long}"
    );
    fs::remove_file(home.path().join("own/4.png")).unwrap();
    let missing = error("own", &[]);
    assert!(missing.contains("captions.jsonl` cannot be used: ") && missing.contains("4.png"), "{missing}");
    assert!(error("nowhere", &[]).contains("nowhere"));
    let none = Run::<Captioning>::prepare(&request(home.path(), &[("data.drawn_digits", "0")])).err().unwrap();
    assert!(none.to_string().contains("needs images to train on"), "{none}");
}

#[test]
fn a_sound_model_passes_the_self_check_and_the_recipe_comes_back_from_its_text() {
    let home = tempfile::tempdir().unwrap();
    let run = Run::<Captioning>::prepare(&request(home.path(), &[])).unwrap();
    let checks = run.self_check().unwrap();
    assert!(checks.len() == 4 && checks.iter().all(Check::holds), "{checks:?}");

    let text = Captioning::BUILT_IN[0].text;
    let recipe = CaptionRecipe::parse(text, "captions.toml", &[]).unwrap();
    assert!(Captioning::judge(&recipe).is_empty());
    assert_eq!(CaptionRecipe::parse(&recipe.to_toml().unwrap(), "recipe.toml", &[]).unwrap(), recipe);
    let wrong = [("data.max_parts", "5"), ("data.scenes", "0"), ("data.channels", "2"), ("data.split.validation", "0")];
    let wrong = wrong.map(|(key, value)| (key.to_string(), value.to_string()));
    let recipe = CaptionRecipe::parse(text, "captions.toml", &wrong).unwrap();
    assert_eq!(Captioning::judge(&recipe).len(), 4);
}

#[test]
fn an_estimate_counts_all_patches_of_an_image_and_all_tokens_of_its_caption() {
    let config = crate::captioning::model::tests::config();
    let recipe = CaptionRecipe::parse(Captioning::BUILT_IN[0].text, "captions.toml", &[]).unwrap();
    let found = Estimate::of::<Captioning>(&recipe, &config, &Device::default());
    let model = config.init(&Device::default());
    let [image, both] = [model.vit.cost(), model.cost(8)].map(|cost| cost.training_flops_per_token());
    // Four patches with their class token, and eight tokens, which share the cost of all.
    let expected = (5.0 * image + 8.0 * (both - image)) / 8.0;
    assert_close(&[found.flops_per_token], &[expected], 1e-9);
    assert_eq!((found.parameters, found.tokens_per_step), (model.cost(8).parameters, 64 * 8));
    assert_eq!(
        model.forward(Tensor::zeros([1, 1, 8, 8], &Device::default()), Tensor::ones([1, 2], &Device::default())).dims(),
        [1, 2, 11]
    );
}
