//! Images as a user meets them: trained from a folder, classified, evaluated, and every mistake in one line.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use firelight::data::{Image, ImageShape};
use serde_json::Value;

use crate::USER;
use crate::support::{Model, command, contents, finish, firelight, text};

const RECIPE: &str = "task = \"vision\"\nseed = 1\n\
    [data.augmentation]\ncrop_padding = 1\nerasing = 0.2\nmixup = 0.5\n\
    [model]\npatch_size = 4\nd_model = 16\nn_heads = 2\nn_layers = 2\nd_ff = 32\nstochastic_depth = 0.1\n\
    [training]\nsteps = 120\nbatch_size = 8\nevaluate_every = 60\ncheckpoint_every = 60\nmonitor = \"accuracy\"\n\
    [optimizer]\nlearning_rate = 0.005\n[schedule]\nwarmup_steps = 5\nsteps = 120\n";

/// A trained model, its images and its recipe.
pub(super) struct Images {
    pub(super) data: PathBuf,
    recipe: PathBuf,
    pub(super) run: PathBuf,
}

/// Bright above or bright below, 12 images each, which differ in how bright they are.
pub(super) fn write_images(folder: &Path) {
    for (class, name) in ["above", "below"].iter().enumerate() {
        fs::create_dir_all(folder.join(name)).unwrap();
        for i in 0..12 {
            let pixel = |place: usize| if (place / 32 == 0) == (class == 0) { 250 - 8 * i } else { 3 * i };
            let image = Image::new(ImageShape::new(1, [8, 8]), (0..64).map(|place| pixel(place) as u8).collect());
            image.write_png(folder.join(name).join(format!("{i:02}.png"))).unwrap();
        }
    }
}

pub(super) fn images() -> &'static Images {
    static IMAGES: LazyLock<Images> = LazyLock::new(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vision");
        let _ = fs::remove_dir_all(&home); // of an earlier run of the tests
        let [data, recipe, run] = ["data", "small.toml", "run"].map(|name| home.join(name));
        write_images(&data);
        fs::write(&recipe, RECIPE).unwrap();
        firelight(["train", &text(&recipe), "--data", &text(&data), "--out", &text(&run), "--self-check"]).succeeds();
        Images { data, recipe, run }
    });
    &IMAGES
}

#[test]
fn a_trained_model_names_its_images_and_says_where_it_looked() {
    let (files, scratch) = (["above/03.png", "below/07.png"].map(|name| images().data.join(name)), Model::scratch());
    let overlay = scratch.path().join("where.png");
    let run = text(&images().run);
    let [above, below] = files.map(|path| text(&path));
    let found = firelight(["classify", &run, "--image", &above, "--image", &below, "--json"]).succeeds();
    let lines: Vec<Value> = found.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["label"], &lines[1]["label"]), (&Value::from("above"), &Value::from("below")));
    let probabilities = lines[0]["probabilities"].as_object().unwrap();
    let sum: f64 = probabilities.values().map(|value| value.as_f64().unwrap()).sum();
    assert!(lines[0]["image"] == above && probabilities.len() == 2 && (sum - 1.0).abs() < 1e-9, "{}", lines[0]);
    assert!(found.stderr.contains("checkpoint: last"), "{}", found.stderr);

    let plain = firelight(["classify", &run, "--image", &above, "--rollout", &text(&overlay)]).succeeds().stdout;
    assert!(plain.starts_with(&format!("{above}\tabove\t")), "{plain}");
    assert_eq!(Image::open(&overlay).unwrap().shape(), ImageShape::new(3, [224, 448])); // the image and its overlay
    let before = contents(&images().data.join("above"));
    let onto_itself = images().data.join("above/../above/03.png");
    firelight(["classify", &run, "--image", &above, "--rollout", &text(&onto_itself)])
        .fails(USER, &["replace the image"]);
    assert!(contents(&images().data.join("above")) == before);
    let report = fs::read_to_string(images().run.join("report.html")).unwrap();
    assert!(report.contains("<figcaption>Confusion matrix") && report.contains("\nabove\n"), "{report}");
    firelight(["classify", &run, "--image", &above, "--image", &below, "--rollout", "x.png"])
        .fails(USER, &["one --image"]);
}

#[test]
fn evaluate_measures_what_was_validated_on_or_a_split() {
    let run = text(&images().run);
    let evaluate = |more: &[&str]| {
        let args = ["evaluate", &run, "--data", &text(&images().data), "--json"].map(str::to_string);
        firelight(args.into_iter().chain(more.iter().map(|arg| arg.to_string())))
    };
    let found: Value = serde_json::from_str(&evaluate(&[]).succeeds().stdout).unwrap();
    assert!(found["accuracy"] == 1.0 && found["macro_f1"] == 1.0 && found["examples"] == 3, "{found}");
    assert!(found["loss"].as_f64().unwrap() < 0.6 && found["seconds"].as_f64().unwrap() > 0.0, "{found}");
    let all: Value = serde_json::from_str(&evaluate(&["--split", "train"]).succeeds().stdout).unwrap();
    assert_eq!(all["examples"], 24);
    evaluate(&["--split", "test"]).fails(USER, &["no split `test`", "there is train"]);
    evaluate(&["--beams", "2"]).fails(USER, &["--beams", "pairs of texts"]);
}

#[test]
fn a_resumed_run_ends_with_the_bytes_of_an_uninterrupted_one_and_without_its_images() {
    let (scratch, run) = (Model::scratch(), Model::scratch());
    let data = scratch.path().join("data");
    write_images(&data);
    let (recipe, out) = (text(&images().recipe), text(run.path()));
    firelight(["train", &recipe, "--data", &text(&data), "--out", &out, "--steps", "60"]).succeeds();
    fs::remove_dir_all(&data).unwrap();
    firelight(["train", "--resume", "--out", &out, "--steps", "120"]).succeeds();
    let weights = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
    assert!(weights(run.path()) == weights(&images().run));
    // Other images are no continuation.
    write_images(&data);
    let bright = Image::new(ImageShape::new(1, [8, 8]), vec![255; 64]);
    bright.write_png(data.join("above/00.png")).unwrap();
    let other = ["train", &recipe, "--data", &text(&data), "--out", &out, "--resume", "--steps", "140"];
    firelight(other).fails(USER, &["--data"]);
}

#[test]
fn bad_images_are_named_before_anything_is_written() {
    let scratch = Model::scratch();
    let (data, out) = (scratch.path().join("data"), scratch.path().join("run"));
    write_images(&data);
    let train = |more: &[&str]| {
        let args = ["train", &text(&images().recipe), "--data", &text(&data), "--out", &text(&out)].map(str::to_string);
        firelight(args.into_iter().chain(more.iter().map(|arg| arg.to_string())))
    };
    fs::write(data.join("below/notes.txt"), "dark").unwrap();
    train(&[]).fails(USER, &["below/notes.txt` is no image", "data.skip_unreadable = true"]);
    let skipping = train(&["--set", "data.skip_unreadable=true", "--dry-run"]).succeeds();
    assert!(skipping.stdout.contains("parameters"), "{}", skipping.stdout);
    fs::remove_file(data.join("below/notes.txt")).unwrap();
    let whole = fs::read(data.join("above/00.png")).unwrap();
    fs::write(data.join("above/00.png"), &whole[..whole.len() / 2]).unwrap();
    train(&[]).fails(USER, &["above/00.png` is damaged or cut short"]);
    fs::write(data.join("above/00.png"), whole).unwrap();
    Image::new(ImageShape::new(3, [4, 8]), vec![0; 96]).write_png(data.join("above/00.png")).unwrap();
    train(&[]).fails(USER, &["3 x 4 x 8", "1 x 8 x 8", "data.image_size"]);
    fs::remove_file(data.join("above/00.png")).unwrap();
    fs::create_dir(data.join("beside")).unwrap();
    train(&[]).fails(USER, &["beside` holds no image"]);
    fs::remove_dir(data.join("beside")).unwrap();
    train(&["--set", "model.patch_size=3"]).fails(USER, &["must be multiples of patch_size = 3"]);
    train(&["--set", "data.augmentation.flip=2"]).fails(USER, &["data.augmentation.flip = 2 must be from 0 to 1"]);
    train(&["--set", "data.split.validation=99"]).fails(USER, &["data.split.validation", "below 23"]);
    assert!(!out.exists() || contents(&out).is_empty());
    firelight(["train", &text(&images().recipe)]).fails(USER, &["needs images", "--data DIR"]);
}

#[test]
fn a_model_without_classes_and_a_head_for_others_are_refused() {
    let run = text(&images().run);
    firelight(["classify", &run]).fails(USER, &["--image FILE"]);
    let copy = Model::scratch();
    let config = fs::read_to_string(images().run.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["classes"] = serde_json::json!(["above", "below", "beside"]);
    config["vit"]["n_classes"] = 3.into();
    fs::copy(images().run.join("recipe.toml"), copy.path().join("recipe.toml")).unwrap();
    fs::copy(images().run.join("model.safetensors"), copy.path().join("model.safetensors")).unwrap();
    fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
    let image = text(&images().data.join("above/00.png"));
    let head = ["than the 3 that config.json names", "with_new_head"];
    firelight(["classify", &text(copy.path()), "--image", &image]).fails(USER, &head);
}

#[test]
fn a_classifier_of_images_goes_out_and_comes_back_and_begins_one_of_larger_images() {
    let home = Model::scratch();
    let [out, cache, larger] = ["exported", "cache", "larger"].map(|name| text(&home.path().join(name)));
    let (image, run) = (text(&images().data.join("above/03.png")), text(&images().run));
    firelight(["export", &run, "--to", &out]).succeeds();
    let with_cache = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("FIRELIGHT_CACHE", &cache);
        finish(command).succeeds()
    };
    let classify = |model: &str| with_cache(&["classify", model, "--image", &image, "--json"]).stdout;
    assert_eq!(classify(&out), classify(&run));
    let train = ["train", "--data", &text(&images().data), "--from", &out, "--out", &larger, "--steps", "3"];
    let sizes =
        ["--set", "data.image_size=[16, 16]", "--set", "init.resize=true", "--set", "training.evaluate_every=3"];
    with_cache(&[&train[..], &sizes].concat());
    let config: Value =
        serde_json::from_str(&fs::read_to_string(Path::new(&larger).join("config.json")).unwrap()).unwrap();
    assert_eq!((&config["vit"]["image_size"][0], &config["vit"]["transformer"]["d_model"]), (&16.into(), &16.into()));
}

#[test]
fn a_classifier_of_images_makes_vectors_of_them() {
    let [above, below] = ["above/03.png", "below/07.png"].map(|name| text(&images().data.join(name)));
    let run = text(&images().run);
    let found = firelight(["embed", &run, "--image", &above, "--image", &below, "--json"]).succeeds();
    let vectors: Vec<Vec<f64>> = found
        .stdout
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            assert!(line["image"].is_string());
            line["embedding"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
        })
        .collect();
    let product = |a: usize, b: usize| vectors[a].iter().zip(&vectors[b]).map(|(a, b)| a * b).sum::<f64>();
    assert!((product(0, 0) - 1.0).abs() < 1e-4 && product(0, 1) < 0.9, "{vectors:?}");
    firelight(["embed", &run, "--image", &above, "--similarity", "a"]).fails(USER, &["reads images alone"]);
    firelight(["embed", &run, "--text", "a"]).fails(USER, &["reads images: give --image"]);
}
