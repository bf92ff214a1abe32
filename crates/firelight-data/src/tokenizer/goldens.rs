//! What Hugging Face's Python package makes of texts with tokenizers in the shapes of well-known models; `tests/fixtures/tokenizer_files.py`
//! wrote it down.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::{Cut, SpecialRole, TextWindow, Tokenizer, TokenizerKind, WindowOptions};

#[derive(Deserialize)]
struct Goldens {
    shapes: BTreeMap<String, Shape>,
}

#[derive(Deserialize)]
struct Shape {
    file: Value,
    size: usize,
    texts: Vec<Text>,
    windows: Vec<Windows>,
    decoded: Vec<(Vec<u32>, String)>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    plain: Encoded,
    framed: Encoded,
    special: Vec<u32>,
}

#[derive(Deserialize)]
struct Windows {
    pair: [String; 2],
    strategy: String,
    max_len: usize,
    overlap: usize,
    windows: Vec<Encoded>,
}

/// Its offsets are characters.
#[derive(Debug, Deserialize)]
struct Encoded {
    ids: Vec<u32>,
    offsets: Vec<(usize, usize)>,
    words: Vec<Option<u32>>,
    segments: Vec<u32>,
    texts: Vec<Option<usize>>,
}

fn shapes() -> BTreeMap<String, (Tokenizer, Shape)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizer_files.json");
    let goldens: Goldens = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tokenizer.json");
    let loaded = |shape: Shape| {
        std::fs::write(&path, shape.file.to_string()).unwrap();
        (Tokenizer::load(&path).unwrap(), shape)
    };
    goldens.shapes.into_iter().map(|(name, shape)| (name, loaded(shape))).collect()
}

/// The places as the crate has them: a space in front that is a token of its own stands for the first character.
fn places(window: &TextWindow, texts: &[&str]) -> Vec<(usize, usize)> {
    let place = |token: usize| window.texts[token].map_or(0..0, |text| window.characters(token, texts[text]));
    (0..window.ids.len()).map(place).map(|Range { start, end }| (start, end)).collect()
}

fn assert_same(window: &TextWindow, texts: &[&str], expected: &Encoded, what: &str) {
    assert_eq!(window.ids, expected.ids, "{what}");
    assert_eq!(window.words, expected.words, "{what}");
    assert_eq!(window.segments, expected.segments, "{what}");
    assert_eq!(window.texts, expected.texts, "{what}");
    for (token, (found, expected)) in places(window, texts).into_iter().zip(&expected.offsets).enumerate() {
        let is_space_in_front = found == (0, 0) && *expected == (0, 1);
        assert!(found == *expected || is_space_in_front, "{what}: token {token} at {found:?}, not {expected:?}");
    }
}

fn whole() -> WindowOptions {
    WindowOptions { max_len: 1000, overlap: 0, cut: Cut::Longest }
}

#[test]
fn texts_have_the_ids_and_places_of_hugging_face() {
    for (name, (tokenizer, shape)) in shapes() {
        assert_eq!(tokenizer.vocab_size(), shape.size, "{name}");
        for Text { text, plain, framed, special } in &shape.texts {
            let what = format!("{name} {text:?}");
            assert_eq!(tokenizer.encode(text).unwrap(), plain.ids, "{what}");
            let found: Vec<u32> = tokenizer.encode_with_offsets(text).unwrap().into_iter().map(|(id, _)| id).collect();
            assert_eq!(found, plain.ids, "{what}");
            assert_eq!(&tokenizer.encode_with_special(text).unwrap(), special, "{what}");
            let windows = tokenizer.windows(text, None, &whole()).unwrap();
            assert_eq!(windows.len(), 1);
            assert_same(&windows[0], &[text], framed, &what);
            let framed_by_ids = tokenizer.frame().map_or(plain.ids.clone(), |frame| frame.put(&plain.ids, None).0);
            assert_eq!(framed_by_ids, framed.ids, "{what}");
        }
    }
}

#[test]
fn long_pairs_have_the_windows_of_hugging_face() {
    for (name, (tokenizer, shape)) in shapes() {
        for Windows { pair: [first, second], strategy, max_len, overlap, windows } in &shape.windows {
            let cut = if strategy == "only_second" { Cut::Second } else { Cut::Longest };
            let options = WindowOptions { max_len: *max_len, overlap: *overlap, cut };
            let found = tokenizer.windows(first, Some(second), &options).unwrap();
            let what = format!("{name} {strategy} {second:?}");
            assert_eq!(found.len(), windows.len(), "{what}");
            for (found, expected) in found.iter().zip(windows) {
                assert_same(found, &[first, second], expected, &what);
            }
        }
        let [first, second] = ["who", "the gate"].map(|text| tokenizer.encode(text).unwrap());
        let whole = tokenizer.windows("who", Some("the gate"), &whole()).unwrap().remove(0);
        let by_ids = tokenizer.frame().map(|frame| frame.put(&first, Some(&second)));
        assert!(by_ids.is_none_or(|found| found == (whole.ids.clone(), whole.second_from())), "{name}");
    }
}

#[test]
fn ids_decode_to_the_text_of_hugging_face() {
    for (name, (tokenizer, shape)) in shapes() {
        for (ids, text) in &shape.decoded {
            assert_eq!(&tokenizer.decode(ids), text, "{name}");
            assert_eq!(&tokenizer.stream().read(ids), text, "{name}");
        }
    }
}

#[test]
fn roles_are_found_and_a_saved_file_is_the_same() {
    use SpecialRole::{Begin, Class, End, Mask, Padding, Separator, Unknown};
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tokenizer.json");
    for (name, (tokenizer, shape)) in shapes() {
        let known: Vec<SpecialRole> =
            SpecialRole::ALL.into_iter().filter(|&role| tokenizer.role(role).is_some()).collect();
        let expected: &[SpecialRole] = match name.as_str() {
            "gpt2" => &[Padding, Begin, End],
            "bert" => &[Class, Separator, Mask, Padding, Unknown],
            "roberta" => &[Class, Separator, Mask, Padding, Begin, End, Unknown],
            "t5" => &[Separator, Padding, End, Unknown],
            "llama" => &[Class, Separator, Padding, Begin, End, Unknown],
            _ => &[Class, Padding, Begin, End],
        };
        assert_eq!(known, expected, "{name}");
        let kind = match name.as_str() {
            "gpt2" | "roberta" => TokenizerKind::Bpe,
            "bert" => TokenizerKind::WordPiece,
            _ => TokenizerKind::Other,
        };
        assert_eq!(tokenizer.kind(), kind, "{name}");
        tokenizer.save(&path).unwrap();
        let again = Tokenizer::load(&path).unwrap();
        for role in SpecialRole::ALL {
            assert_eq!(again.role(role), tokenizer.role(role), "{name} {role}");
        }
        for Text { text, plain, .. } in &shape.texts {
            assert_eq!(again.encode(text).unwrap(), plain.ids, "{name}");
        }
        let _ = std::fs::remove_file(home.path().join("special_tokens_map.json"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_stream_gives_what_decoding_gives(
        ids in prop::collection::vec(0_u32..420, 0..40),
        bytes in prop::collection::vec(0_u32..256, 0..8),
    ) {
        thread_local!(static ALL: Vec<(String, Tokenizer)> =
            shapes().into_iter().map(|(name, (tokenizer, _))| (name, tokenizer)).collect());
        ALL.with(|all| for (name, tokenizer) in all {
            let fallback = bytes.iter().filter_map(|byte| tokenizer.inner.token_to_id(&format!("<0x{byte:02X}>")));
            let ids: Vec<u32> = ids.iter().copied().chain(fallback).collect();
            assert_eq!(tokenizer.stream().read(&ids), tokenizer.decode(&ids), "{name}");
        });
    }

    #[test]
    fn what_follows_a_prompt_is_the_rest_of_the_text(text in "[a-z\u{e9}\u{1f986} .\n]{1,30}") {
        thread_local!(static ALL: Vec<(String, Tokenizer)> =
            shapes().into_iter().map(|(name, (tokenizer, _))| (name, tokenizer)).collect());
        ALL.with(|all| for (name, tokenizer) in all {
            let ids = tokenizer.encode(&text).unwrap();
            let whole = tokenizer.decode(&ids);
            for cut in 0..ids.len() {
                let before = tokenizer.decode(&ids[..cut]);
                if whole.starts_with(&before) && !before.ends_with('\u{fffd}') {
                    assert_eq!(before + &tokenizer.stream_after(&ids[..cut]).read(&ids[cut..]), whole, "{name} {cut}");
                }
            }
        });
    }
}
