//! The frame of every drawing in SVG, and maps in it: one with its tokens, or a grid of small ones.
//!
//! Drawings have the colours of light paper in their attributes, and classes by which a style colours them for a dark screen. A reader that knows
//! no style sees light paper.

use std::fmt::Write;

use firelight_data::{Image, ImageShape};
use firelight_storage::palette::{Theme, hex, on_dark_screen};

use crate::labels::{escaped, shown};
use crate::maps::{AttentionMaps, Map};
use crate::page::base64;
use crate::scale::{STEPS, TOKENS, class, number_class, number_colour, signed_colour, step, step_colour};

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
    .to_file()
}

/// A drawing: its size in pixels, and what stands on the paper.
pub(crate) struct Drawing {
    pub(crate) size: [usize; 2],
    pub(crate) body: String,
}

impl Drawing {
    /// As a file, with its own style.
    pub(crate) fn to_file(&self) -> String {
        self.framed(&format!("<style>\n{}</style>\n", dark_style()))
    }

    /// As an element of a page, whose style colours it.
    pub(crate) fn to_element(&self) -> String {
        self.framed("")
    }

    fn framed(&self, style: &str) -> String {
        let ([width, height], body, palette) = (self.size, &self.body, Theme::Light.palette());
        let [ink, paper] = [palette.ink, palette.paper].map(hex);
        format!(
            "<svg class=\"drawing\" xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"{LETTERS}\" fill=\"{ink}\">\n{style}\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\" fill=\"{paper}\"/>\n{body}</svg>\n"
        )
    }
}

/// What colours all drawings on a dark screen, where they show the images that are made for it.
pub(crate) fn dark_style() -> String {
    let (theme, palette) = (Theme::Dark, Theme::Dark.palette());
    let numbers = [0, STEPS].map(|step| (number_class(step).to_string(), number_colour(step, theme)));
    let tokens = TOKENS.iter().enumerate().map(|(place, colours)| (format!("t{place}"), colours[theme as usize]));
    let fields = (-STEPS..=STEPS).map(|step| (class(step), step_colour(step, theme)));
    let paper = ("paper".to_string(), palette.paper);
    let mut rules = format!("  .drawing {{ fill: {}; }}\n", hex(palette.ink));
    for (class, colour) in std::iter::once(paper).chain(numbers).chain(tokens).chain(fields) {
        // Writing into a string cannot fail.
        let _ = writeln!(rules, "  .drawing .{class} {{ fill: {}; }}", hex(colour));
    }
    on_dark_screen(&format!("{rules}  .drawing .light {{ display: none; }}\n  .drawing .dark {{ display: inline; }}\n"))
}

/// A field of a step, with `tooltip` under the pointer.
pub(crate) fn field(body: &mut String, step: i32, [x, y]: [usize; 2], [width, height]: [usize; 2], tooltip: &str) {
    let (class, fill, tooltip) = (class(step), hex(step_colour(step, Theme::Light)), escaped(tooltip));
    // Writing into a string cannot fail.
    let _ = writeln!(
        body,
        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\">\
         <title>{tooltip}</title></rect>"
    );
}

/// A number that can be read on the field of its step, around `x`.
pub(crate) fn number(body: &mut String, step: i32, [x, y]: [usize; 2], number: &str) {
    let (class, fill) = (number_class(step), hex(number_colour(step, Theme::Light)));
    let place = format!("class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"{fill}\"");
    text(body, &format!("{place} pointer-events=\"none\""), number);
}

/// A pixel for each number, enlarged without smoothing: an image for light paper, and one that a dark screen shows instead.
pub(crate) fn images(
    body: &mut String,
    [x, y]: [usize; 2],
    [width, height]: [usize; 2],
    title: &str,
    pixels: impl Fn(Theme) -> Image,
) {
    for (theme, shown) in [(Theme::Light, "class=\"light\""), (Theme::Dark, "class=\"dark\" display=\"none\"")] {
        let (source, title) = (base64(&pixels(theme).to_png()), escaped(title));
        // Writing into a string cannot fail.
        let _ = writeln!(
            body,
            "<image {shown} x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
             style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{source}\"><title>{title}</title></image>"
        );
    }
}

pub(crate) fn text(body: &mut String, attributes: &str, label: &str) {
    // Writing into a string cannot fail.
    let _ = writeln!(body, "<text {attributes}>{}</text>", escaped(label));
}

/// One map with its tokens: those that read on the left, those that are read above.
fn one(of: &AttentionMaps, map: &Map) -> Drawing {
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
    Drawing { size: [width, top + rows.len() * CELL + GAP], body }
}

/// A square for each weight, which tells query, key and weight under the pointer.
fn cells(body: &mut String, (rows, columns): (&[String], &[String]), map: &Map, [left, top]: [usize; 2]) {
    let largest = map.largest();
    for (row, query) in rows.iter().enumerate() {
        for (column, key) in columns.iter().enumerate() {
            let weight = map.at(row, column);
            let place = [left + column * CELL, top + row * CELL];
            let tooltip = format!("{query} \u{2192} {key}: {weight:.3}");
            field(body, step(share(weight, largest)), place, [CELL; 2], &tooltip);
        }
    }
}

/// Small maps of all kinds, one kind below the other.
fn grids(maps: &[AttentionMaps]) -> Drawing {
    let (mut body, mut top, mut width) = (String::new(), 0, 0);
    for of in maps {
        text(&mut body, &format!("x=\"{GAP}\" y=\"{}\"", top + HEADING - GAP), of.kind.title());
        top += HEADING;
        let [height, wide] = small([of.queries.len(), of.keys.len()]);
        for heads in of.layers.iter().filter(|heads| !heads.is_empty()) {
            for (place, map) in heads.iter().enumerate() {
                let title = format!("layer {}, head {}", map.layer, map.head);
                let left = GAP + place * (wide + GAP);
                images(&mut body, [left, top], [wide, height], &title, |theme| pixels(map, theme));
            }
            top += height + GAP;
            width = width.max(GAP + heads.len() * (wide + GAP));
        }
    }
    Drawing { size: [width.max(240), top + GAP], body }
}

/// Height and width of a small map, in the proportion of its queries and keys.
fn small([queries, keys]: [usize; 2]) -> [usize; 2] {
    let longer = queries.max(keys).max(1);
    [queries, keys].map(|tokens| (tokens * SMALL / longer).max(4))
}

/// A map as an image of a pixel for each weight.
pub(crate) fn pixels(map: &Map, theme: Theme) -> Image {
    let (shape, largest) = (ImageShape::new(3, map.shape()), map.largest());
    Image::from_fn(shape, |channel, row, column| signed_colour(share(map.at(row, column), largest), theme)[channel])
}

/// A weight as a share of the largest one of its map.
fn share(weight: f32, largest: f32) -> f32 {
    if largest > 0.0 { weight / largest } else { 0.0 }
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
        let counts = ["class=\"light\"", "class=\"dark\" display=\"none\"", "decoder self-attention"];
        assert_eq!(counts.map(|text| found.matches(text).count()), [4, 4, 2]);
        assert!(found.contains("layer 1, head 1") && found.starts_with("<svg") && found.ends_with("</svg>\n"));
    }

    #[test]
    fn a_map_of_nothing_is_as_light_as_the_scale_begins() {
        let map = Map::new(0, 0, [1, 2], vec![0.0, 0.0]);
        assert_eq!(pixels(&map, Theme::Light).pixels(), [247, 247, 250, 250, 255, 255]);
        assert_eq!(shortened("a very long token indeed"), "a very long tok\u{2026}");
    }

    /// All colours that are written in a page or a picture.
    fn colours_in(drawn: &str) -> Vec<String> {
        let digits = |part: &str| part.chars().take_while(char::is_ascii_alphanumeric).collect::<String>();
        let is_colour = |name: &String| [3, 6].contains(&name.len()) && name.chars().all(|c| c.is_ascii_hexdigit());
        drawn.split('#').skip(1).map(digits).filter(is_colour).map(|name| format!("#{name}")).collect()
    }

    /// All colours that there are.
    fn known() -> Vec<String> {
        let mut all: Vec<_> = TOKENS.concat();
        for theme in [Theme::Light, Theme::Dark] {
            let palette = theme.palette();
            all.extend([palette.paper, palette.ink, palette.soft, palette.line, palette.block, palette.mark]);
            all.extend((-STEPS..=STEPS).flat_map(|step| [step_colour(step, theme), number_colour(step, theme)]));
        }
        all.into_iter().map(hex).collect()
    }

    #[test]
    fn every_colour_is_of_the_palette_and_a_page_has_one() {
        let (several, figure, grid) = ([three_tokens(2)], crate::figure::tests::three(), crate::patch::tests::grid(3));
        let tokenizer = firelight_data::Tokenizer::train(&firelight_data::TokenizerConfig::Byte, "").unwrap();
        let split = crate::SplitText::new(&tokenizer, "a b").unwrap();
        let explanation = crate::Explanation { title: "none".into(), steps: Vec::new() };
        let pictures = [svg(&[three_tokens(1)]), svg(&several), figure.to_svg(), grid.to_svg(), split.to_svg()];
        let pages = [
            crate::page("maps", &several),
            figure.to_page(),
            grid.to_page("patch"),
            split.to_page("tokens"),
            explanation.to_page(),
        ];
        let known = known();
        for drawn in pictures.iter().chain(&pages) {
            // Images are not made of words.
            let words: String =
                drawn.split("base64,").map(|part| part.split_once('"').map_or(part, |rest| rest.1)).collect();
            let found = colours_in(&words);
            assert!(found.len() > STEPS as usize && found.iter().all(|colour| known.contains(colour)), "{found:?}");
            assert!(!drawn.contains("rgb(") || drawn.contains("rgb(${colour})"), "a colour of its own");
            assert_eq!(drawn.matches("<style>").count(), 1);
        }
        for page in &pages {
            let counts = [":root {", "--paper: #", "--ink: #", "--t3: #", "  .drawing .b16 {"];
            assert_eq!(counts.map(|text| page.matches(text).count()), [2, 2, 2, 2, 1]);
        }
        assert_eq!(colours_in("a #grid, #fff; #12161c }"), ["#fff", "#12161c"]);
    }
}
