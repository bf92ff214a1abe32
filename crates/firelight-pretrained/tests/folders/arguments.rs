//! What a pass is given beside ids and pixels: masks of targets, positions, and names that no model knows.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use firelight_pretrained::{Array, Arrays, AutoModel, ForwardOptions, Numbers, PublishedModel, compare_outputs};

/// With `more_inputs.safetensors` and `more_expected.safetensors`, by `tests/fixtures/pretrained.py more`.
const WITH_MORE: [&str; 11] = [
    "bart-plain",
    "clip-end",
    "clip-highest",
    "gpt2-inner",
    "gpt2-plain",
    "gpt_neox-parallel",
    "llama-plain",
    "marian-plain",
    "mbart-plain",
    "modernbert-base",
    "t5-gated",
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained").join(name)
}

fn read(name: &str, file: &str) -> Arrays {
    Arrays::read(folder(name).join(format!("{file}.safetensors"))).unwrap()
}

fn model(name: &str) -> AutoModel {
    let opened = PublishedModel::open(folder(name)).unwrap_or_else(|error| panic!("{name}: {:#?}", error.problems()));
    opened.load(&Device::default()).unwrap()
}

fn outputs(model: &AutoModel, inputs: &Arrays) -> Arrays {
    model.forward(inputs, ForwardOptions::default(), &Device::default()).unwrap()
}

fn refusal(model: &AutoModel, inputs: &Arrays, greedy: usize) -> String {
    let options = ForwardOptions { greedy, ..ForwardOptions::default() };
    model.forward(inputs, options, &Device::default()).unwrap_err().to_string()
}

fn integers(shape: [usize; 2], numbers: impl IntoIterator<Item = i64>) -> Array {
    Array { shape: shape.to_vec(), numbers: Numbers::Integers(numbers.into_iter().collect()) }
}

/// The arguments with another one, or another in its place.
fn with(inputs: &Arrays, name: &str, array: Array) -> Arrays {
    let mut inputs = inputs.clone();
    inputs.insert(name, array);
    inputs
}

fn agree(found: &Arrays, expected: &Arrays, inputs: &Arrays, tolerance: f64) -> bool {
    compare_outputs(found, expected, inputs, tolerance).iter().all(|output| output.agrees())
}

#[test]
fn masks_of_targets_and_positions_mean_what_transformers_means() {
    for name in WITH_MORE {
        let (model, inputs, expected) = (model(name), read(name, "more_inputs"), read(name, "more_expected"));
        let compared = compare_outputs(&outputs(&model, &inputs), &expected, &inputs, 1e-4);
        assert!(!compared.is_empty() && compared.iter().all(|output| output.agrees()), "{name}: {compared:#?}");
        let others = outputs(&model, &read(name, "inputs"));
        assert!(!agree(&others, &expected, &inputs, 1e-2), "{name}: the other arguments count");
    }
}

#[test]
fn what_an_argument_is_not_is_told_with_what_is_known() {
    for (name, strange, expected) in [
        (
            "gpt2-plain",
            "attention_masks",
            "the model has no argument `attention_masks` (did you mean `attention_mask`?); known are `input_ids`, \
             `attention_mask`, `position_ids`",
        ),
        (
            "bert-masked",
            "position_ids",
            "the model has no argument `position_ids`; known are `input_ids`, `attention_mask`, `token_type_ids`",
        ),
        (
            "t5-gated",
            "position_ids",
            "the model has no argument `position_ids`; known are `input_ids`, `attention_mask`, `decoder_input_ids`, \
             `decoder_attention_mask`",
        ),
        ("vit-classes", "labels", "the model has no argument `labels`; known are `pixel_values`"),
        (
            "clip-end",
            "pixels",
            "the model has no argument `pixels` (did you mean `pixel_values`?); known are `input_ids`, \
             `attention_mask`, `pixel_values`, `position_ids`",
        ),
    ] {
        let inputs = with(&read(name, "inputs"), strange, integers([1, 1], [0]));
        assert_eq!(refusal(&model(name), &inputs, 0), expected);
    }
    let two = with(&read("vit-classes", "inputs"), "labels", integers([1, 1], [0]));
    let said = refusal(&model("vit-classes"), &with(&two, "input_ids", integers([1, 1], [0])), 0);
    assert!(said.contains("no argument `input_ids`, `labels`;"), "{said}");
}

#[test]
fn what_stands_in_a_hidden_place_of_a_target_changes_nothing() {
    let (model, inputs) = (model("t5-gated"), read("t5-gated", "more_inputs"));
    let expected = outputs(&model, &inputs);
    let Numbers::Integers(ids) = &inputs.get("decoder_input_ids").unwrap().numbers else { panic!("ids") };
    let changed = |place: usize| {
        let ids = ids.iter().enumerate().map(|(index, id)| if index == place { (id + 1) % 48 } else { *id });
        outputs(&model, &with(&inputs, "decoder_input_ids", integers([2, 5], ids)))
    };
    // [1, 1, 0, 1, 1] and [0, 1, 1, 1, 0].
    for place in [2, 5, 9] {
        assert!(agree(&changed(place), &expected, &inputs, 1e-6), "{place}");
    }
    assert!(!agree(&changed(0), &expected, &inputs, 1e-3), "what is seen counts");

    let plain = read("t5-gated", "inputs");
    let shown = with(&plain, "decoder_attention_mask", integers([2, 5], [1; 10]));
    assert!(agree(&outputs(&model, &shown), &outputs(&model, &plain), &plain, 1e-6), "a mask of ones hides nothing");
}

#[test]
fn positions_as_a_model_counts_them_change_nothing() {
    for name in ["gpt2-plain", "llama-plain", "modernbert-base", "clip-end"] {
        let (model, inputs) = (model(name), read(name, "inputs"));
        let counted = with(&inputs, "position_ids", integers([1, 9], 0..9));
        assert!(agree(&outputs(&model, &counted), &outputs(&model, &inputs), &inputs, 1e-5), "{name}");
    }
}

#[test]
fn masks_and_positions_that_do_not_fit_are_refused() {
    let translator = (model("t5-gated"), read("t5-gated", "inputs"));
    let writer = (model("gpt2-plain"), read("gpt2-plain", "inputs"));
    let long = (model("phi3-long"), read("phi3-long", "inputs"));
    let (mask, positions) = ("decoder_attention_mask", "position_ids");
    for ((model, inputs), name, array, greedy, expected) in [
        (
            &translator,
            mask,
            integers([2, 4], [1; 8]),
            0,
            "is of shape [2, 4]: expected that of decoder_input_ids, [2, 5]",
        ),
        (&translator, mask, integers([2, 5], [2; 10]), 0, "holds 2: expected numbers from 0 to 1"),
        (
            &writer,
            positions,
            integers([2, 8], [0; 16]),
            0,
            "is of shape [2, 8]: expected [2, 9], as input_ids, or [1, 9]",
        ),
        (&writer, positions, integers([1, 9], 32..41), 0, "holds 40: expected numbers from 0 to 39"),
        (&writer, positions, integers([1, 9], -1..8), 0, "holds -1: expected numbers from 0 to 39"),
        (&writer, positions, integers([1, 9], 0..9), 4, "stands beside a greedy continuation: expected one of the two"),
        (&long, positions, integers([1, 9], 8..17), 0, "counts to 16 in rows of 9 tokens: expected positions with"),
    ] {
        let said = refusal(model, &with(inputs, name, array), greedy);
        assert!(said.starts_with(&format!("the argument `{name}` {expected}")), "{said}");
    }
}
