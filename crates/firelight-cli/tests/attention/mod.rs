//! Attention maps as a user asks for them: pages that a real browser opens, pictures, text, and every mistake in one line.

use std::fs;
use std::path::Path;

use firelight::data::{Image, ImageShape};
use firelight::device::choose;
use firelight::inspect::{Asked, AttentionKind, AttentionMaps, Map, open, page};
use firelight::storage::Checkpoint;

use crate::USER;
use crate::browser;
use crate::support::{Finished, Model, firelight, model, text};
use crate::translation::pairs;
use crate::vision::images;

/// Asks a model for its maps.
fn attention(model: &Path, more: &[&str]) -> Finished {
    let common = ["visualize", "attention", &text(model)].map(String::from);
    firelight(common.into_iter().chain(more.iter().map(|word| word.to_string())))
}

/// What the command shows, by the library.
pub(super) fn maps(model: &Path, about: &str) -> Vec<AttentionMaps> {
    let device = choose(None).unwrap().device;
    open(model, &Checkpoint::Last, &device).unwrap().attention(&Asked::about(about)).unwrap()
}

/// Reads weights of two heads, by a click, the pointer and keys.
const WEIGHTS: &str = r##"
  const read = () => {
    const { query, key, weight } = document.getElementById("readout").dataset;
    found.push(`${query},${key},${weight}`);
  };
  read();
  document.querySelectorAll("#grid button")[1].click();
  read();
  const cells = document.getElementById("cells");
  const { left, top, width } = cells.firstElementChild.getBoundingClientRect();
  const side = width / TOKENS;
  const place = { clientX: left + 1.5 * side, clientY: top + 3.5 * side };
  cells.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, ...place }));
  read();
  const press = (key) => document.getElementById("map").dispatchEvent(new KeyboardEvent("keydown", { key }));
  press("ArrowRight");
  press("ArrowDown");
  read();
  found.push(document.getElementById("map-title").textContent);
  found.push(document.querySelectorAll("#lines text").length);
"##;

/// Shows each kind of attention by its button.
const KINDS: &str = r##"
  for (const place of element("kinds").querySelectorAll("button").keys()) {
    element("kinds").children[place].click();
    const labels = ["rows", "columns"].map((id) => element(id).children.length);
    const pressed = element("kinds").children[place].getAttribute("aria-pressed");
    found.push([element("map-title").textContent, pressed, ...labels, element("readout").dataset.weight].join(";"));
  }
"##;

/// Measures the boxes of all labels. Those of the map stand beside their cells.
const LABELS: &str = r##"
  const boxes = (selector) => [...document.querySelectorAll(selector)].map((node) => node.getBoundingClientRect());
  const apart = (boxes, from, to) => boxes.slice(1).every((box, place) => box[from] >= boxes[place][to] - 0.5);
  const size = (selector) => parseFloat(getComputedStyle(document.querySelector(selector)).fontSize);
  const [rows, columns, lines] = ["#rows div", "#columns div", "#lines text"].map(boxes);
  const [cells, svg] = [boxes("#cells canvas")[0], boxes("#lines svg")[0]];
  const side = cells.height / rows.length;
  const [left, right] = [lines.slice(0, rows.length), lines.slice(rows.length)];
  const checks = {
    "rows overlap": apart(rows, "top", "bottom"),
    "columns overlap": apart(columns, "left", "right"),
    "a row is not beside its cells": rows.every((box, place) => Math.abs(box.top - cells.top - place * side) < 1.5),
    "a column is not above its cells": columns.every((box, place) => Math.abs(box.left - cells.left - place * side) < 1.5),
    "a label covers cells": rows.every((box) => box.right < cells.left + 1) && columns.every((box) => box.bottom < cells.top + 1),
    "labels of lines overlap": [left, right].every((side) => apart(side, "top", "bottom")),
    "a label of the lines is cut": left.every((box) => box.left >= svg.left) && right.every((box) => box.right <= svg.right),
    "letters are too small": ["#rows div", "#columns div", "#lines text"].every((each) => size(each) >= 10),
  };
  found.push(`${rows.length},${columns.length},${lines.length}`);
  found.push(...Object.keys(checks).filter((name) => !checks[name]));
"##;

#[test]
fn a_page_answers_clicks_pointer_and_keys_with_the_weights_of_the_model() {
    let scratch = Model::scratch();
    let page = scratch.path().join("maps.html");
    let finished = attention(&model().dir, &["--text", "The fox", "--out", &text(&page)]).succeeds();
    assert!(finished.stdout.is_empty() && finished.stderr.contains(&format!("wrote {}", page.display())));
    let written = fs::read_to_string(&page).unwrap();
    assert!(!written.contains("src=\"") && !written.contains("href="), "the page would load something");

    let Some(found) = browser::by_hand(&page, &WEIGHTS.replace("TOKENS", "7")) else { return };
    let lines: Vec<&str> = found.lines().collect();
    let heads = &maps(&model().dir, "The fox")[0].layers[0];
    // The first weight of both heads; of the second head what the space reads, and, a step to the right and one down, what the f does.
    let expected = [(0, 0, 0, "T,T"), (1, 0, 0, "T,T"), (1, 3, 1, "\u{2423},h"), (1, 4, 2, "f,e")];
    for (line, (head, query, key, tokens)) in lines.iter().zip(expected) {
        let (named, weight) = line.rsplit_once(',').unwrap();
        let weight: f32 = weight.parse().unwrap();
        assert_eq!(named, tokens, "{found}");
        assert!((weight - heads[head].at(query, key)).abs() <= 1.0 / 255.0, "{line} of {}", heads[head].at(query, key));
    }
    assert_eq!(lines[4..], ["self-attention, layer 0, head 1", "14"], "{found}");
}

#[test]
fn the_buttons_of_a_page_show_each_kind_of_attention() {
    let scratch = Model::scratch();
    let page = scratch.path().join("kinds.html");
    attention(&pairs().run, &["--text", "abdc", "--out", &text(&page)]).succeeds();
    let Some(found) = browser::by_hand(&page, KINDS) else { return };
    let kinds = maps(&pairs().run, "abdc");
    assert!(kinds.len() == 3 && found.lines().count() == 3, "{found}");
    for (line, kind) in found.lines().zip(&kinds) {
        let (shown, weight) = line.rsplit_once(';').unwrap();
        let title = format!("{}, layer 0, head 0", kind.kind.title());
        assert_eq!(shown, format!("{title};true;{};{}", kind.queries.len(), kind.keys.len()), "{found}");
        let (weight, expected) = (weight.parse::<f32>().unwrap(), kind.layers[0][0].at(0, 0));
        assert!((weight - expected).abs() <= 1.0 / 255.0, "{line} of {expected}");
    }
}

#[test]
fn labels_do_not_overlap_at_7_and_at_60_tokens() {
    let scratch = Model::scratch();
    for count in [7, 60] {
        let tokens: Vec<String> = (0..count).map(|place| format!("token {place}")).collect();
        let map = Map::new(0, 0, [count, count], vec![1.0 / count as f32; count * count]);
        let maps = AttentionMaps::new(AttentionKind::SelfAttention, tokens.clone(), tokens, vec![vec![map]]);
        let file = scratch.path().join(format!("{count}.html"));
        fs::write(&file, page("labels", &[maps])).unwrap();
        let Some(found) = browser::by_hand(&file, LABELS) else { return };
        assert_eq!(found, format!("{count},{count},{}", 2 * count));
    }
}

#[test]
fn pictures_and_text_are_made_of_the_same_maps() {
    let scratch = Model::scratch();
    let [svg, png] = ["one.svg", "all.png"].map(|name| text(&scratch.path().join(name)));
    attention(&model().dir, &["--text", "The fox", "--layer", "0", "--head", "1", "--out", &svg]).succeeds();
    let drawn = fs::read_to_string(&svg).unwrap();
    let told = drawn.split_once("<title>x \u{2192} f: ").unwrap().1.split_once('<').unwrap().0;
    let weight = maps(&model().dir, "The fox")[0].layers[0][1].at(6, 4);
    assert!((told.parse::<f32>().unwrap() - weight).abs() <= 0.001, "{told} of {weight}");
    assert_eq!(drawn.matches("<rect").count(), 1 + 49);
    attention(&model().dir, &["--text", "The fox", "--out", &png]).succeeds();
    assert_eq!(Image::open(&png).unwrap().shape(), ImageShape::new(3, [6 + 102, 6 + 2 * 102]));

    let printed = attention(&model().dir, &["--text", "The fox"]).succeeds().stdout;
    assert!(printed.starts_with("self-attention, layer 0, mean of 2 heads\n"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80) && !printed.contains('\u{1b}'), "{printed}");
    let written = attention(&model().dir, &["--text", "The", "--generate", "2", "--head", "0"]).succeeds().stdout;
    assert!(written.contains("head 0") && written.lines().filter(|line| line.contains('\u{2588}')).count() <= 2);
}

#[test]
fn encoder_decoders_and_models_of_images_have_maps_of_their_own() {
    let all = attention(&pairs().run, &["--text", "abdc"]).succeeds().stdout;
    for title in ["encoder self-attention", "decoder self-attention", "cross-attention"] {
        assert_eq!(all.lines().filter(|line| line.starts_with(title)).count(), 1, "{all}");
    }
    let cross = attention(&pairs().run, &["--text", "abdc", "--target", "cdba", "--kind", "cross"]).succeeds().stdout;
    assert!(cross.starts_with("cross-attention, layer 0"), "{cross}");

    let scratch = Model::scratch();
    let [page, png] = ["where.html", "where.png"].map(|name| text(&scratch.path().join(name)));
    let image = text(&images().data.join("above/03.png"));
    attention(&images().run, &["--image", &image, "--out", &page]).succeeds();
    let written = fs::read_to_string(&page).unwrap();
    assert!(written.contains("data:image/png;base64,") && written.contains("\"rollout\":["), "no image in the page");
    attention(&images().run, &["--image", &image, "--out", &png]).succeeds();
    // The image, what is read of it, and rollout.
    assert_eq!(Image::open(&png).unwrap().shape(), ImageShape::new(3, [224, 3 * 224]));
}

#[test]
fn every_mistake_is_one_line() {
    let scratch = Model::scratch();
    let run = &model().dir;
    let out = |name: &str| text(&scratch.path().join(name));
    let fails = |more: &[&str], texts: &[&str]| attention(run, more).fails(USER, texts);
    fails(&["--text", "The fox met"], &["11 tokens, but the model reads 8"]);
    fails(&["--text", "The fox", "--layer", "1"], &["no layer 1 in the self-attention", "from 0 to 0"]);
    fails(&["--text", "The fox", "--head", "2"], &["no head 2 in the self-attention", "from 0 to 1"]);
    fails(&["--text", "The fox", "--kind", "cross"], &["no cross-attention", "the kinds self"]);
    fails(&["--text", "The fox", "--target", "a hen"], &["--target", "no cross-attention"]);
    fails(&["--text", "The fox", "--kind", "sideways"], &["sideways", "cross"]);
    fails(&[], &["a language model needs --text"]);
    fails(&["--text", "The fox", "--out", "maps.gif"], &["`maps.gif`", ".html, .svg or .png"]);
    fails(&["--text", "The fox", "--out", &out("no/such/maps.html")], &["maps.html"]);
    fs::write(out("maps.svg"), "mine").unwrap();
    fails(&["--text", "The fox", "--out", &out("maps.svg")], &["exists", "--force"]);
    assert_eq!(fs::read_to_string(out("maps.svg")).unwrap(), "mine");
    attention(run, &["--text", "The fox", "--out", &out("maps.svg"), "--force"]).succeeds();
    assert!(fs::read_to_string(out("maps.svg")).unwrap().starts_with("<svg"));

    let image = text(&images().data.join("above/03.png"));
    attention(&images().run, &["--image", &image, "--force", "--out", &image]).fails(USER, &["replace the image"]);
    attention(&images().run, &["--text", "a"]).fails(USER, &["--text is not for a model of images"]);
}
