//! Answers on their way between ranks, as CBOR. Unlike JSON it has every number with its bits, infinity and NaN too, and it names fields, so
//! that those that are left out or flattened come back. As in JSON, `Some(None)` comes back as `None`.

use std::io;

use ciborium::{de, ser};
use firelight_storage::TaskError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::dealing::OPERATION;

/// A value as bytes, of which there is at least one.
pub(super) fn to_bytes(value: &impl Serialize) -> Result<Vec<u8>, TaskError> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).map_err(|error: ser::Error<io::Error>| match error {
        ser::Error::Value(reason) => failure(&reason),
        ser::Error::Io(error) => failure(&error.to_string()),
    })?;
    Ok(bytes)
}

/// The value that [`to_bytes`] was given.
pub(super) fn of_bytes<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, TaskError> {
    let value: T = ciborium::from_reader(&mut bytes).map_err(|error: de::Error<io::Error>| match error {
        de::Error::Io(_) => failure("the bytes end within a value"),
        de::Error::Syntax(place) => failure(&format!("no value begins at byte {place}")),
        de::Error::Semantic(_, reason) => failure(&reason),
        de::Error::RecursionLimitExceeded => failure("a value is nested too deeply"),
    })?;
    match bytes.len() {
        0 => Ok(value),
        left => Err(failure(&format!("{left} bytes follow the value"))),
    }
}

fn failure(reason: &str) -> TaskError {
    TaskError::new(false, format!("{OPERATION}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    fn sent<T: Serialize + DeserializeOwned>(value: &T) -> T {
        of_bytes(&to_bytes(value).unwrap()).unwrap()
    }

    fn comes_back<T: Serialize + DeserializeOwned + Debug + PartialEq>(value: T) {
        assert_eq!(sent(&value), value);
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Named {
        place: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        #[serde(flatten)]
        scores: BTreeMap<String, f64>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Nothing,
        One(u8),
        Two(i8, char),
        Fields { from: i64, to: Option<u64> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(f32),
        Text(String),
    }

    #[test]
    fn numbers_keep_their_bits() {
        let odd = f64::from_bits(f64::NAN.to_bits() | 5);
        let numbers = [f64::NAN, odd, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE / 4.0, 0.1 + 0.2];
        assert_eq!(sent(&numbers).map(f64::to_bits), numbers.map(f64::to_bits));
        let numbers = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE / 4.0, 0.1];
        assert_eq!(sent(&numbers).map(f32::to_bits), numbers.map(f32::to_bits));
        comes_back((u64::MAX, i64::MIN, [f64::MAX, f64::EPSILON]));
    }

    #[test]
    fn whatever_an_answer_is_made_of_comes_back() {
        comes_back((None::<u8>, Some(3_u16), ((),)));
        comes_back([Kind::Nothing, Kind::One(9), Kind::Two(-3, 'ß')]);
        comes_back([Kind::Fields { from: -7, to: None }, Kind::Fields { from: 7, to: Some(1) }]);
        comes_back([Either::Number(0.5), Either::Text("0.5".into())]);
        comes_back(BTreeMap::from([(3_u8, vec!["c".to_string(), String::new()]), (4, Vec::new())]));
        comes_back([Ok::<_, String>(1.5_f32), Err("no words".into())]);
        let scores = BTreeMap::from([("bleu".to_string(), 12.5), ("loss".to_string(), f64::INFINITY)]);
        comes_back([Named::default(), Named { place: 3, note: Some("cut".into()), scores }]);
        comes_back(serde_json::json!({"a": [1, -2, 0.5, null, true], "b": {}}));
    }

    #[test]
    fn what_is_not_expected_is_an_error() {
        let bytes = to_bytes(&["ab", "c"]).unwrap();
        assert_eq!(of_bytes::<Vec<String>>(&bytes).unwrap(), ["ab", "c"]);
        let refused = |bytes: &[u8]| of_bytes::<Vec<String>>(bytes).unwrap_err().to_string();
        for length in 0..bytes.len() {
            assert_eq!(refused(&bytes[..length]), "exchange of answers: the bytes end within a value");
        }
        assert_eq!(refused(&[&bytes[..], &[0]].concat()), "exchange of answers: 1 bytes follow the value");
        assert!(of_bytes::<Vec<u8>>(&bytes).unwrap_err().to_string().contains("expected integer"));
    }

    proptest! {
        #[test]
        fn what_arrives_is_what_was_sent(
            texts in vec(".{0,9}", 0..4),
            numbers in btree_map(any::<u32>(), vec(any::<f64>(), 0..4), 0..4),
        ) {
            let bits = |numbers: &BTreeMap<u32, Vec<f64>>| -> Vec<(u32, Vec<u64>)> {
                numbers.iter().map(|(key, row)| (*key, row.iter().map(|number| number.to_bits()).collect())).collect()
            };
            let (found_texts, found_numbers) = sent(&(texts.clone(), numbers.clone()));
            prop_assert_eq!((found_texts, bits(&found_numbers)), (texts, bits(&numbers)));
        }
    }
}
