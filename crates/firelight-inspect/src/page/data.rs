//! The data of the page: tokens, places and packed weights as JSON that can stand within HTML.

use std::io::Write;

use firelight_storage::palette::{Colour, DARK_SCREEN};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;

use crate::labels::shown;
use crate::maps::{AttentionMaps, Picture};
use crate::scale::{DARK, LIGHT};

/// The longer side of an image on the page, in pixels: twice that of its figure.
const SIDE: usize = 672;

/// What the script reads.
#[derive(Serialize)]
struct Data {
    /// The media query of a dark screen.
    screen: &'static str,
    light: [Colour; 9],
    dark: [Colour; 9],
    kinds: Vec<Kind>,
}

/// The maps of one kind.
#[derive(Serialize)]
struct Kind {
    title: &'static str,
    queries: Vec<String>,
    keys: Vec<String>,
    /// Layer and head of each map.
    maps: Vec<[usize; 2]>,
    /// The square roots of the weights of all maps, a byte each: zlib in base64.
    weights: String,
    picture: Option<Shown>,
}

/// An image and its patches.
#[derive(Serialize)]
struct Shown {
    source: String,
    grid: [usize; 2],
    first: usize,
    rollout: Option<Vec<f64>>,
}

/// The data as JSON without `<`, so that no token ends the element that they stand in.
pub(super) fn json(maps: &[AttentionMaps]) -> String {
    let kinds = maps.iter().map(kind).collect();
    let data = Data { screen: DARK_SCREEN, light: LIGHT, dark: DARK, kinds };
    json_in_html(&data)
}

/// Names and numbers as JSON without `<`.
pub(crate) fn json_in_html(data: &impl Serialize) -> String {
    let text = serde_json::to_string(data).unwrap_or_else(|error| unreachable!("names and numbers are JSON: {error}"));
    text.replace('<', "\\u003c")
}

fn kind(maps: &AttentionMaps) -> Kind {
    let labels = |tokens: &[String]| tokens.iter().map(|token| shown(token)).collect();
    let bytes: Vec<u8> = maps.maps().flat_map(|map| map.bytes()).collect();
    Kind {
        title: maps.kind.title(),
        queries: labels(&maps.queries),
        keys: labels(&maps.keys),
        maps: maps.maps().map(|map| [map.layer, map.head]).collect(),
        weights: base64(&packed(&bytes)),
        picture: maps.picture.as_ref().map(on_image),
    }
}

fn on_image(picture: &Picture) -> Shown {
    let image = &picture.image;
    let is_large = image.shape().size().into_iter().max() > Some(SIDE);
    let small = is_large.then(|| image.scaled_to(SIDE));
    Shown {
        source: format!("data:image/png;base64,{}", base64(&small.as_ref().unwrap_or(image).to_png())),
        grid: picture.grid,
        first: picture.first,
        rollout: picture.rollout.clone(),
    }
}

/// The bytes by zlib, which browsers unpack as `deflate`.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.unwrap_or_else(|error| unreachable!("memory takes every byte: {error}"))
}

/// Bytes as text: RFC 4648, §4.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        let digit = |place: usize| match place <= three.len() {
            true => char::from(DIGITS[((bits >> (18 - 6 * place)) & 63) as usize]),
            false => '=',
        };
        text.extend((0..4).map(digit));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::maps::{AttentionKind, Map};
    use flate2::read::ZlibDecoder;
    use serde_json::Value;

    /// The inverse of [`base64`].
    fn bytes_of(text: &str) -> Vec<u8> {
        let value = |digit: u8| match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        let four = |four: &[u8]| {
            let bits = four.iter().fold(0u32, |bits, &digit| (bits << 6) | u32::from(value(digit)));
            bits.to_be_bytes()[1..4 - four.iter().filter(|digit| **digit == b'=').count()].to_vec()
        };
        text.as_bytes().chunks(4).flat_map(four).collect()
    }

    fn unpacked(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        ZlibDecoder::new(&bytes_of(text)[..]).read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// A number from 0 to 1 for each place, as good as drawn (Knuth 1998, §6.4, multiplicative hashing).
    fn drawn(place: usize) -> f32 {
        (place as u32).wrapping_mul(2_654_435_769) as f32 / u32::MAX as f32
    }

    /// Rows of weights that sum to 1, some large and most small.
    fn map(layer: usize, head: usize, tokens: usize) -> Map {
        let from = (layer * 12 + head) * tokens * tokens;
        let powers: Vec<f32> = (0..tokens * tokens).map(|place| (6.0 * drawn(from + place)).exp()).collect();
        let weights = powers.chunks(tokens).flat_map(|row| {
            let sum: f32 = row.iter().sum();
            row.iter().map(move |power| power / sum)
        });
        Map::new(layer, head, [tokens, tokens], weights.collect())
    }

    fn maps(layers: usize, heads: usize, tokens: usize) -> AttentionMaps {
        let labels: Vec<String> = (0..tokens).map(|token| format!("token{token}")).collect();
        let layers = (0..layers).map(|layer| (0..heads).map(|head| map(layer, head, tokens)).collect());
        AttentionMaps::new(AttentionKind::SelfAttention, labels.clone(), labels, layers.collect())
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648, §10: the beginnings of one word.
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, expected) in vectors.into_iter().enumerate() {
            let bytes = &b"foobar"[..length];
            assert_eq!((base64(bytes).as_str(), bytes_of(expected).as_slice()), (expected, bytes));
        }
    }

    #[test]
    fn the_weights_come_back_within_a_step() {
        let maps = maps(2, 3, 7);
        let found: Value = serde_json::from_str(&json(std::slice::from_ref(&maps))).unwrap();
        let kind = &found["kinds"][0];
        assert_eq!((&kind["title"], &kind["queries"][6]), (&Value::from("self-attention"), &Value::from("token6")));
        assert_eq!(kind["maps"][4], serde_json::json!([1, 1]));
        let bytes = unpacked(kind["weights"].as_str().unwrap());
        let weights: Vec<f32> = maps.maps().flat_map(|map| map.weights().to_vec()).collect();
        assert_eq!(bytes.len(), weights.len());
        for (byte, weight) in bytes.iter().zip(&weights) {
            assert!(((f32::from(*byte) / 255.0).powi(2) - weight).abs() <= 1.0 / 255.0, "{byte} of {weight}");
        }
        for row in maps.maps().flat_map(|map| map.weights().chunks(7)) {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn no_token_ends_the_element_of_the_data() {
        let tokens = || vec!["</script><!--".to_string(), "\u{1}\"\\".to_string()];
        let map = Map::new(0, 0, [2, 2], vec![0.5; 4]);
        let text = json(&[AttentionMaps::new(AttentionKind::Cross, tokens(), tokens(), vec![vec![map]])]);
        assert!(!text.contains('<'), "{text}");
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["kinds"][0]["keys"], serde_json::json!(["</script><!--", "\u{2401}\"\\"]));
    }

    #[test]
    fn twelve_layers_of_twelve_heads_over_128_tokens_stay_small() {
        let size = crate::page("many weights", &[maps(12, 12, 128)]).len();
        assert!(size < 3_000_000, "{size} bytes");
    }
}
