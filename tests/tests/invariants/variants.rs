//! The grid holds every variant that there is, each in its own field.

use std::collections::{BTreeMap, BTreeSet};

use firelight::nn::{
    Activation, AttentionMechanism, AttentionPattern, MixerConfig, NormConfig, NormPlacement, NormSpan, PositionConfig,
    ProjectionKind, ProjectionPlacement, RotaryAxes, RotaryLayout, RotaryScaling, RouterScores, ScoreScale,
    TransformerConfig,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::grid::{all_pairs, decoders, parts_of_pairs};

/// The fields that the grid does not vary: sizes, initial weights, and what acts in training alone.
const FIXED: [&str; 21] = [
    "attention_dropout",
    "attention_norm",
    "d_ff",
    "d_model",
    "dropout",
    "embedding_dropout",
    "experts.capacity",
    "feed_forward_dropout",
    "init",
    "init.scale_residual",
    "layers.attention_mechanism",
    "layers.attention_norm", // what a layer has of its own is varied for all layers together
    "layers.mixer",
    "layers.mixer.affine",
    "layers.norm",
    "layers.position",
    "max_seq_len",
    "n_heads",
    "n_layers",
    "position.axes.frequencies", // axes.rs tests both
    "stochastic_depth",
];

/// The names of the variants of `T`, which its reader lists when it meets an unknown one.
fn variants<T: DeserializeOwned>(tagged: bool) -> Vec<String> {
    let unknown = if tagged { json!({"kind": "?"}) } else { json!("?") };
    let error = serde_json::from_value::<T>(unknown).err().expect("no such variant").to_string();
    let names = error.split('`').skip(3).step_by(2).map(String::from).collect::<Vec<_>>();
    assert!(names.len() > 1, "{error}");
    names
}

/// The values of each field, by its path: texts, numbers, booleans and `null` as they are written, of a table its keys.
type Fields = BTreeMap<String, BTreeSet<String>>;

fn fields(configs: &[TransformerConfig]) -> Fields {
    let mut found = Fields::new();
    for config in configs {
        let Value::Object(fields) = serde_json::to_value(config).unwrap() else { panic!("a table") };
        fields.iter().for_each(|(name, value)| collect(name, value, &mut found));
    }
    found
}

fn collect(path: &str, value: &Value, found: &mut Fields) {
    let mut add = |text: &str| {
        found.entry(path.into()).or_default().insert(text.into());
    };
    match value {
        Value::String(text) => add(text),
        Value::Array(values) => values.iter().for_each(|value| collect(path, value, found)),
        Value::Object(fields) => {
            fields.keys().for_each(|name| {
                add(name);
            });
            fields.iter().for_each(|(name, value)| collect(&format!("{path}.{name}"), value, found));
        }
        other => add(&other.to_string()),
    }
}

/// What `found` lacks of the variants and booleans, and which of its fields always have one value.
fn forgotten(found: &Fields) -> Vec<String> {
    let enums = [
        ("activation", variants::<Activation>(false)),
        ("attention_mechanism.kind", variants::<AttentionMechanism>(true)),
        ("attention_scale", variants::<ScoreScale>(false)),
        ("embedding_projection.placement", variants::<ProjectionPlacement>(false)),
        ("experts.scores", variants::<RouterScores>(false)),
        ("final_norm", ["false", "true"].map(String::from).to_vec()), // Without a value it is not written.
        ("mixer.kind", variants::<MixerConfig>(true)),
        ("norm.kind", variants::<NormConfig>(true)),
        ("norm_placement", variants::<NormPlacement>(false)),
        ("patterns.kind", variants::<AttentionPattern>(true)),
        ("position.kind", variants::<PositionConfig>(true)),
        ("position.axes.kind", variants::<RotaryAxes>(true)),
        ("position.layout", variants::<RotaryLayout>(false)),
        ("position.scaling.kind", variants::<RotaryScaling>(true)),
        ("projection", variants::<ProjectionKind>(false)),
        ("query_key_norm_span", variants::<NormSpan>(false)),
        ("query_key_norm.kind", ["layer", "rms"].map(String::from).to_vec()), // The third is that there is none.
    ];
    let is_boolean = |values: &BTreeSet<String>| ["true", "false"].iter().any(|value| values.contains(*value));
    let booleans = found.iter().filter(|(_, values)| is_boolean(values));
    let booleans = booleans.map(|(path, _)| (path.as_str(), ["false", "true"].map(String::from).to_vec()));
    let wanted = enums.into_iter().chain(booleans).filter(|(path, _)| !FIXED.contains(path));
    let lacks = |path: &str, value: &String| !found.get(path).is_some_and(|values| values.contains(value));
    let missing = wanted.flat_map(|(path, values)| {
        let values = values.into_iter().filter(move |value| lacks(path, value));
        values.map(move |value| format!("{path} = {value}"))
    });
    // Numbers within a part, such as the size of a window, stand for all.
    let is_word = |values: &BTreeSet<String>| values.iter().any(|value| value.parse::<f64>().is_err());
    let constant = found.iter().filter(|(path, values)| values.len() == 1 && (!path.contains('.') || is_word(values)));
    let is_fixed = |path: &str| {
        FIXED.iter().any(|fixed| path.strip_prefix(fixed).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    let constant = constant.filter(|(path, _)| !is_fixed(path));
    missing.chain(constant.map(|(path, values)| format!("{path} beside {values:?}"))).collect()
}

#[test]
fn no_variant_is_forgotten() {
    for [decoders, encoders, with_memory] in [all_pairs(), parts_of_pairs()] {
        let forgotten = forgotten(&fields(&[decoders, encoders, with_memory].concat()));
        assert!(forgotten.is_empty(), "add them to tests/support/grid.rs: {forgotten:?}");
    }
}

#[test]
fn what_decoders_and_encoders_share_is_in_both() {
    // Their patterns differ, and a bias by buckets looks both ways in encoders; a memory and recurrences are for decoders.
    let differs = |problem: &String| {
        ["patterns.", "layers.pattern.", "position.bidirectional", "cross_attention", "mixer.kind = gated_delta"]
            .iter()
            .any(|path| problem.starts_with(path))
    };
    let [decoders, encoders, _] = all_pairs();
    for configs in [decoders, encoders] {
        let forgotten: Vec<_> = forgotten(&fields(&configs)).into_iter().filter(|problem| !differs(problem)).collect();
        assert!(forgotten.is_empty(), "{forgotten:?}");
    }
}

#[test]
fn a_variant_of_another_field_does_not_count() {
    // Each of these names is a variant of another enum, too.
    for (path, name) in [
        ("norm.kind", "none"),
        ("position.kind", "none"),
        ("attention_scale", "none"),
        ("position.scaling.kind", "linear"),
        ("attention_mechanism.kind", "linear"),
        ("bias", "true"),
        ("norm.bias", "false"),
        ("qkv_bias", "true"),
        ("final_norm", "true"),
    ] {
        let mut found = fields(&all_pairs().concat());
        assert!(found.get_mut(path).expect("a field of the grid").remove(name));
        assert!(forgotten(&found).contains(&format!("{path} = {name}")), "{path} = {name}");
    }
}

#[test]
fn all_configurations_are_valid_and_different() {
    let [decoder_pairs, encoder_pairs, with_memory] = all_pairs();
    for configs in [decoders(), decoder_pairs, encoder_pairs, with_memory] {
        configs.iter().for_each(|config| config.validate().unwrap_or_else(|error| panic!("{error}: {config:?}")));
        let different: BTreeSet<_> = configs.iter().map(|config| format!("{config:?}")).collect();
        assert_eq!(different.len(), configs.len());
    }
}
