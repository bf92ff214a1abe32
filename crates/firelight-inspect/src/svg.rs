//! Maps as SVG, on white: one with its tokens, or a grid of small ones.

use std::fmt::Write;

use firelight_data::{Image, ImageShape};

use crate::labels::{escaped, shown};
use crate::maps::{AttentionMaps, Map};
use crate::page::base64;
use crate::scale::{Colour, colour};

/// Pixels of the side of a weight, and of the letters beside it.
const CELL: usize = 16;
const LETTERS: usize = 12;

/// The longest label, in characters, and about how many pixels each of them is wide.
const LABEL: usize = 16;
const WIDE: usize = 8;

/// Pixels of the longer side of a small map, and of the room around it.
const SMALL: usize = 80;
const GAP: usize = 8;

/// Pixels of the room for a heading.
const HEADING: usize = 24;

/// The maps as a picture: where there is one map, each weight of it beside its tokens; else small maps, a row for each layer, of one kind
/// of attention below the other. Colours go up to each map's largest weight.
///
/// ```
/// use firelight_inspect::{AttentionKind, AttentionMaps, Map, svg};
///
/// let tokens = || vec!["a".to_string(), "b".to_string()];
/// let map = Map::new(0, 0, [2, 2], vec![1.0, 0.0, 0.5, 0.5]);
/// let maps = AttentionMaps::new(AttentionKind::SelfAttention, tokens(), tokens(), vec![vec![map]]);
/// assert_eq!(svg(&[maps]).matches("<rect").count(), 5); // the paper and four weights
/// ```
pub fn svg(maps: &[AttentionMaps]) -> String {
    let all: Vec<(&AttentionMaps, &Map)> = maps.iter().flat_map(|of| of.maps().map(move |map| (of, map))).collect();
    match all[..] {
        [(of, map)] => one(of, map),
        _ => grids(maps),
    }
}

/// A drawing of this size; `body` is what stands on the paper.
pub(crate) fn document(width: usize, height: usize, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"{LETTERS}\" fill=\"#222222\">\n<rect width=\"{width}\" height=\"{height}\" \
         fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

pub(crate) fn text(body: &mut String, attributes: &str, label: &str) {
    // Writing into a string cannot fail.
    let _ = writeln!(body, "<text {attributes}>{}</text>", escaped(label));
}

/// One map with its tokens: those that read on the left, those that are read above.
fn one(of: &AttentionMaps, map: &Map) -> String {
    let [rows, columns] = [&of.queries, &of.keys].map(|tokens| labels(tokens));
    let [left, above] = [&rows, &columns].map(|labels| GAP + WIDE * longest(labels));
    let top = HEADING + above;
    let mut body = String::new();
    let title =
        format!("{}, layer {}, head {}, largest weight {:.3}", of.kind.title(), map.layer, map.head, map.largest());
    text(&mut body, &format!("x=\"{GAP}\" y=\"{}\"", HEADING - GAP), &title);
    for (row, label) in rows.iter().enumerate() {
        let y = top + row * CELL + CELL - 4;
        text(&mut body, &format!("x=\"{}\" y=\"{y}\" text-anchor=\"end\"", left - 4), label);
    }
    for (column, label) in columns.iter().enumerate() {
        let (x, y) = (left + column * CELL + CELL - 4, top - 4);
        text(&mut body, &format!("transform=\"translate({x} {y}) rotate(-90)\""), label);
    }
    cells(&mut body, (rows.as_slice(), columns.as_slice()), map, [left, top]);
    let width = (left + columns.len() * CELL + GAP).max(GAP + WIDE * title.chars().count());
    document(width, top + rows.len() * CELL + GAP, &body)
}

/// A square for each weight, which tells query, key and weight under the pointer.
fn cells(body: &mut String, (rows, columns): (&[String], &[String]), map: &Map, [left, top]: [usize; 2]) {
    let largest = map.largest();
    for (row, query) in rows.iter().enumerate() {
        for (column, key) in columns.iter().enumerate() {
            let weight = map.at(row, column);
            let (x, y, fill) = (left + column * CELL, top + row * CELL, hex(shade(weight, largest)));
            let told = escaped(&format!("{query} \u{2192} {key}: {weight:.3}"));
            let _ = writeln!(
                body,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"{fill}\"><title>{told}</title></rect>"
            );
        }
    }
}

/// Small maps of all kinds, one kind below the other.
fn grids(maps: &[AttentionMaps]) -> String {
    let (mut body, mut top, mut width) = (String::new(), 0, 0);
    for of in maps {
        text(&mut body, &format!("x=\"{GAP}\" y=\"{}\"", top + HEADING - GAP), of.kind.title());
        top += HEADING;
        let [height, wide] = small([of.queries.len(), of.keys.len()]);
        for heads in of.layers.iter().filter(|heads| !heads.is_empty()) {
            for (place, map) in heads.iter().enumerate() {
                small_map(&mut body, map, [GAP + place * (wide + GAP), top], [height, wide]);
            }
            top += height + GAP;
            width = width.max(GAP + heads.len() * (wide + GAP));
        }
    }
    document(width.max(240), top + GAP, &body)
}

/// Height and width of a small map, in the proportion of its queries and keys.
fn small([queries, keys]: [usize; 2]) -> [usize; 2] {
    let longer = queries.max(keys).max(1);
    [queries, keys].map(|tokens| (tokens * SMALL / longer).max(4))
}

/// A pixel for each weight, enlarged without smoothing.
fn small_map(body: &mut String, map: &Map, [x, y]: [usize; 2], [height, width]: [usize; 2]) {
    let source = base64(&pixels(map).to_png());
    let (layer, head) = (map.layer, map.head);
    let _ = writeln!(
        body,
        "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
         style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{source}\"><title>layer {layer}, head {head}</title></image>"
    );
}

/// A map as an image of a pixel for each weight.
pub(crate) fn pixels(map: &Map) -> Image {
    let (shape, largest) = (ImageShape::new(3, map.shape()), map.largest());
    Image::from_fn(shape, |channel, row, column| shade(map.at(row, column), largest)[channel])
}

/// The colour of a weight in a map of this largest one.
fn shade(weight: f32, largest: f32) -> Colour {
    colour(if largest > 0.0 { weight / largest } else { 0.0 })
}

pub(crate) fn hex([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Tokens that can be seen, none of them too long.
fn labels(tokens: &[String]) -> Vec<String> {
    tokens.iter().map(|token| shortened(&shown(token))).collect()
}

pub(crate) fn shortened(label: &str) -> String {
    match label.chars().count() <= LABEL {
        true => label.into(),
        false => label.chars().take(LABEL - 1).chain(['\u{2026}']).collect(),
    }
}

pub(crate) fn longest(labels: &[String]) -> usize {
    labels.iter().map(|label| label.chars().count()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::AttentionKind;

    fn three_tokens(heads: usize) -> AttentionMaps {
        let tokens = || ["<s>", "a & b", "\u{5e9}"].map(String::from).to_vec();
        let weights = vec![1.0, 0.0, 0.0, 0.25, 0.75, 0.0, 0.125, 0.5, 0.375];
        let maps = (0..heads).map(|head| Map::new(1, head, [3, 3], weights.clone())).collect();
        AttentionMaps::new(AttentionKind::Decoder, tokens(), tokens(), vec![Vec::new(), maps])
    }

    #[test]
    fn a_map_of_three_tokens_is_drawn_as_it_was() {
        let expected = include_str!("../tests/fixtures/three_tokens.svg");
        assert_eq!(svg(&[three_tokens(1)]), expected.replace('\r', ""));
    }

    #[test]
    fn several_maps_are_small_ones_in_rows() {
        let found = svg(&[three_tokens(2), three_tokens(2)]);
        assert_eq!((found.matches("<image").count(), found.matches("decoder self-attention").count()), (4, 2));
        assert!(found.contains("layer 1, head 1") && found.starts_with("<svg") && found.ends_with("</svg>\n"));
    }

    #[test]
    fn a_map_of_nothing_is_as_light_as_the_scale_begins() {
        let map = Map::new(0, 0, [1, 2], vec![0.0, 0.0]);
        assert_eq!(pixels(&map).pixels(), [247, 247, 250, 250, 255, 255]);
        assert_eq!(shortened("a very long token indeed"), "a very long tok\u{2026}");
    }
}
