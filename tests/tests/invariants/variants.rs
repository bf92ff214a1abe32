//! The grid holds every variant that there is.

use std::collections::BTreeSet;

use firelight::core::{
    Activation, AttentionMechanism, AttentionPattern, NormConfig, NormPlacement, PositionConfig, ProjectionKind,
    RotaryLayout, RotaryScaling, ScoreScale,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::grid::{all_pairs, decoders};

/// The names of the variants of `T`, which its reader lists when it meets an unknown one.
fn variants<T: DeserializeOwned>(tagged: bool) -> Vec<String> {
    let unknown = if tagged { json!({"kind": "?"}) } else { json!("?") };
    let error = serde_json::from_value::<T>(unknown).err().expect("no such variant").to_string();
    let names = error.split('`').skip(3).step_by(2).map(String::from).collect::<Vec<_>>();
    assert!(names.len() > 1, "{error}");
    names
}

/// Every text and every key in `value`.
fn words(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => drop(found.insert(text.clone())),
        Value::Array(values) => values.iter().for_each(|value| words(value, found)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            words(value, found);
        }),
        _ => {}
    }
}

#[test]
fn no_variant_is_forgotten() {
    let mut found = BTreeSet::new();
    for config in all_pairs() {
        words(&serde_json::to_value(&config).unwrap(), &mut found);
    }
    let all = [
        variants::<Activation>(false),
        variants::<AttentionMechanism>(false),
        variants::<AttentionPattern>(true),
        variants::<NormConfig>(true),
        variants::<NormPlacement>(false),
        variants::<PositionConfig>(true),
        variants::<ProjectionKind>(false),
        variants::<RotaryLayout>(false),
        variants::<RotaryScaling>(true),
        variants::<ScoreScale>(false),
    ];
    let forgotten: Vec<_> = all.iter().flatten().filter(|name| !found.contains(*name)).collect();
    assert!(forgotten.is_empty(), "add them to tests/support/grid.rs: {forgotten:?}");
}

#[test]
fn all_configurations_are_valid_and_different() {
    for configs in [decoders(), all_pairs()] {
        configs.iter().for_each(|config| config.validate().unwrap_or_else(|error| panic!("{error}: {config:?}")));
        let different: BTreeSet<_> = configs.iter().map(|config| format!("{config:?}")).collect();
        assert_eq!(different.len(), configs.len());
    }
}
