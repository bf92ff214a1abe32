//! Images become the numbers that the image processors of `transformers` and timm make of them.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use firelight_data::{Image, ImageShape};
use firelight_kernels::assert_close;
use firelight_pretrained::{PublishedModel, Structure, export};
use firelight_storage::Checkpoint;
use firelight_vision::VisionConfig;
use serde::Deserialize;
use serde_json::{Value, json};

use super::damaged::{copy, error};

#[derive(Deserialize)]
struct Golden {
    sizes: Vec<[usize; 2]>,
    processors: Vec<Case>,
    timm: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(alias = "processor", alias = "pretrained_cfg")]
    keys: Value,
    images: Vec<Numbers>,
}

#[derive(Deserialize)]
struct Numbers {
    shape: Vec<usize>,
    numbers: Vec<f32>,
}

fn golden() -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/image_processors.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The image of the generator.
fn image(size: [usize; 2]) -> Image {
    Image::from_fn(ImageShape::new(3, size), |c, y, x| {
        let [c, y, x] = [c, y, x].map(|place| place as f64);
        (127.0 + 70.0 * ((c + 2.0 * y + 3.0 * x) / 9.0).sin() + 50.0 * ((5.0 - c) * y - 2.0 * x).sin()) as u8
    })
}

fn config(folder: &Path) -> VisionConfig {
    match PublishedModel::open(folder).unwrap().structure() {
        Structure::Image(config) => config.clone(),
        other => panic!("{other:?}"),
    }
}

fn agrees(folder: &Path, sizes: &[[usize; 2]], case: &Case) {
    let processor = config(folder).processor();
    // Pillow rounds to a byte twice, between both directions too.
    let level = processor.normalization.std.iter().fold(0.0f64, |most, std| most.max(1.0 / 255.0 / f64::from(*std)));
    for (size, expected) in sizes.iter().zip(&case.images) {
        let found = processor.tensor(&[image(*size)], &Device::flex());
        assert_eq!(found.dims()[1..], expected.shape[..], "{}", case.keys);
        assert_close(&found, &expected.numbers, 1.01 * level);
    }
}

/// The folder as it is after an import and an export.
fn written_back(folder: &Path) -> PathBuf {
    let out = folder.join("exported");
    let _ = fs::remove_dir_all(&out);
    let home = tempfile::tempdir().unwrap();
    let run = home.path().join("run");
    PublishedModel::open(folder).unwrap().import(&run).unwrap();
    export(&run, &Checkpoint::Last, &out).unwrap();
    out
}

#[test]
fn a_processor_of_transformers() {
    let golden = golden();
    let home = copy("vit-classes");
    for case in &golden.processors {
        let path = home.path().join("preprocessor_config.json");
        fs::write(&path, case.keys.to_string()).unwrap();
        agrees(home.path(), &golden.sizes, case);
        assert_eq!(config(&written_back(home.path())), config(home.path()), "{}", case.keys);
    }
    assert_eq!(golden.processors.len(), 12);
}

#[test]
fn a_transform_of_timm() {
    let golden = golden();
    let home = copy("timm-classes");
    let path = home.path().join("config.json");
    let mut keys: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for case in &golden.timm {
        keys["pretrained_cfg"] = case.keys.clone();
        fs::write(&path, keys.to_string()).unwrap();
        agrees(home.path(), &golden.sizes, case);
    }
    assert_eq!(golden.timm.len(), 4);
}

#[test]
fn a_processor_that_nobody_here_knows_is_refused_by_its_key() {
    let home = copy("vit-classes");
    for (keys, expected) in [
        (json!({"size": {"shortest_edge": 14}}), "do_center_crop = nothing: expected true"),
        (json!({"size": {"shortest_edge": 14, "longest_edge": 20}}), "size.longest_edge = 20: expected null"),
        (json!({"size": {"max_height": 14, "max_width": 20}}), "lacks the key `size.height`"),
        (
            json!({"size": {"height": 14, "width": 12}}),
            "size = {\"height\":14,\"width\":12}: expected multiples of the 4",
        ),
        (json!({"size": 0}), "size = 0: expected multiples"),
        (json!({"size": 16, "do_center_crop": true, "crop_size": 10}), "crop_size = 10: expected multiples of the 4"),
        (json!({"size": 1_000_000_000, "do_center_crop": true}), "size = 1000000000: expected pixels above 0 that fit"),
        (json!({"size": 12, "do_resize": false, "do_center_crop": true}), "do_resize = false: expected true"),
        (json!({"size": "large"}), "size = \"large\": expected a number"),
        (json!({"resample": 5}), "resample = 5: expected 0 (nearest), 1 (Lanczos)"),
        (json!({"image_std": [0.5, 0.0, 0.5]}), "image_std = [0.5,0.0,0.5]: expected 3 numbers above 0"),
        (json!({"rescale_factor": 0.0}), "expected 3 numbers above 0"),
    ] {
        fs::write(home.path().join("preprocessor_config.json"), keys.to_string()).unwrap();
        let refused = error(home.path()).to_string();
        assert!(refused.contains(expected), "{keys}: {refused}");
    }
}
