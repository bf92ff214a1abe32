//! Answers on their way between ranks, as bytes. Unlike JSON these have every number with its bits, NaN and infinity too. A value says what
//! it is, so that whatever Serde writes comes back, fields that are left out or flattened included.

mod read;
mod write;

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Serialize, de, ser};

use self::read::Reader;
use self::write::Writer;

/// What a value is: its first byte. Numbers follow in little endian, texts and bytes behind their length, and what has parts behind them all
/// has an end.
mod tag {
    pub(super) const UNIT: u8 = 0;
    pub(super) const NONE: u8 = 1;
    pub(super) const SOME: u8 = 2;
    pub(super) const FALSE: u8 = 3;
    pub(super) const TRUE: u8 = 4;
    pub(super) const SIGNED: u8 = 5;
    pub(super) const UNSIGNED: u8 = 6;
    pub(super) const SINGLE: u8 = 7;
    pub(super) const DOUBLE: u8 = 8;
    pub(super) const TEXT: u8 = 9;
    pub(super) const BYTES: u8 = 10;
    pub(super) const SEQUENCE: u8 = 11;
    pub(super) const MAP: u8 = 12;
    pub(super) const END: u8 = 13;
}

/// Why a value cannot be sent, or is not what was expected.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(super) struct WireError(String);

impl ser::Error for WireError {
    fn custom<T: Display>(reason: T) -> Self {
        Self(reason.to_string())
    }
}

impl de::Error for WireError {
    fn custom<T: Display>(reason: T) -> Self {
        Self(reason.to_string())
    }
}

/// A value as bytes, of which there is at least one.
pub(super) fn to_bytes(value: &impl Serialize) -> Result<Vec<u8>, WireError> {
    let mut writer = Writer::default();
    value.serialize(&mut writer)?;
    Ok(writer.into_bytes())
}

/// The value that [`to_bytes`] was given.
pub(super) fn of_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let mut reader = Reader::new(bytes);
    let value = T::deserialize(&mut reader)?;
    reader.finish()?;
    Ok(value)
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

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Wrapped(Vec<Kind>);

    #[test]
    fn a_value_is_so_many_bytes() {
        assert_eq!(to_bytes(&true).unwrap(), [4]);
        assert_eq!(to_bytes(&"ab").unwrap(), [9, 2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']);
        assert_eq!(to_bytes(&[1.0_f32]).unwrap(), [11, 7, 0, 0, 0x80, 0x3f, 13]);
        assert_eq!(to_bytes(&BTreeMap::from([(-1, ())])).unwrap(), [&[12, 5][..], &[255; 8], &[0, 13]].concat());
    }

    #[test]
    fn numbers_keep_their_bits() {
        let odd = f64::from_bits(f64::NAN.to_bits() | 5);
        let numbers = [f64::NAN, odd, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE / 4.0, 0.1 + 0.2];
        assert_eq!(sent(&numbers).map(f64::to_bits), numbers.map(f64::to_bits));
        let odd = f32::from_bits(f32::NAN.to_bits() | 5);
        let numbers = [f32::NAN, odd, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE / 4.0, 0.1];
        assert_eq!(sent(&numbers).map(f32::to_bits), numbers.map(f32::to_bits));
        comes_back((u64::MAX, i64::MIN, [f64::MAX, f64::EPSILON]));
    }

    #[test]
    fn whatever_serde_writes_comes_back() {
        comes_back((None::<u8>, Some(Some(3_u16)), Some(None::<bool>), Some(()), ((),)));
        comes_back(Wrapped(vec![Kind::Nothing, Kind::One(9), Kind::Two(-3, 'ß')]));
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
        for length in 0..bytes.len() {
            assert!(of_bytes::<Vec<String>>(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
        let told = |error: WireError| error.to_string();
        assert_eq!(told(of_bytes::<bool>(&[4, 4]).unwrap_err()), "1 bytes follow the value");
        assert_eq!(told(of_bytes::<bool>(&[99]).unwrap_err()), "no value begins with the byte 99");
        assert_eq!(told(of_bytes::<[bool; 1]>(&[11, 4, 4, 13]).unwrap_err()), "there are more parts than expected");
        assert!(told(of_bytes::<Vec<u8>>(&bytes).unwrap_err()).contains("expected u8"));
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
