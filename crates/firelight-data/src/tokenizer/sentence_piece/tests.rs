//! What the library of SentencePiece makes of hard strings; `tests/fixtures/sentence_piece.py` wrote it down.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::tokenizer::drawn::{digest, string};
use crate::{PieceKind, PieceList, SpecialRole, Tokenizer};

#[derive(Deserialize)]
struct Expected {
    pieces: Vec<String>,
    joints: Vec<String>,
    /// Hashes of the ids and of the text that they are decoded to, which is 0 where a piece is unknown.
    strings: BTreeMap<String, Vec<[u32; 2]>>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/sentence_piece")
}

fn tokenizer(name: &str) -> Tokenizer {
    let found = match name.split_once('.') {
        Some((folder, "source")) => Tokenizer::of_source(fixtures().join(folder)),
        Some((folder, _)) => Tokenizer::of_folder(fixtures().join(folder)),
        None => Tokenizer::of_folder(fixtures().join(name)),
    };
    found.unwrap().expect("a tokenizer")
}

#[test]
fn hard_strings_become_the_ids_of_the_library_and_its_texts_again() {
    let expected: Expected = serde_json::from_slice(&fs::read(fixtures().join("expected.json")).unwrap()).unwrap();
    assert_eq!(expected.strings.len(), 8);
    let mut wrong = Vec::new();
    for (name, hashes) in &expected.strings {
        let tokenizer = tokenizer(name);
        assert_eq!(hashes.len(), 2000);
        for (number, [ids, text]) in hashes.iter().enumerate() {
            let string = string(number, &expected.pieces, &expected.joints);
            let found = tokenizer.encode(&string).unwrap();
            let decoded = tokenizer.decode(&found);
            // What is unknown to the model of the target may be a piece of the source: a character is a token then.
            if name == "marian.target" && *text == 0 {
                continue;
            }
            if digest(serde_json::to_string(&found).unwrap().as_bytes()) != *ids {
                wrong.push(format!("{name} {number}: {string:?} is {found:?}"));
            } else if *text != 0 && digest(decoded.as_bytes()) != *text {
                wrong.push(format!("{name} {number}: {string:?} comes back as {decoded:?}"));
            }
        }
    }
    let of = |name: &String| (name.clone(), wrong.iter().filter(|wrong| wrong.starts_with(name.as_str())).count());
    let counts: Vec<_> = expected.strings.keys().map(of).filter(|(_, count)| *count > 0).collect();
    let shown: Vec<&str> = wrong.iter().step_by(wrong.len() / 40 + 1).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{counts:?} are wrong:\n{}", shown.join("\n"));
}

#[test]
fn what_stands_around_a_text_is_that_of_its_family() {
    let framed = |name: &str| {
        let tokenizer = tokenizer(name);
        let text = |ids: Vec<u32>| ids.into_iter().filter_map(|id| tokenizer.token(id)).collect::<Vec<_>>().join(" ");
        let frame = tokenizer.frame().expect("a frame");
        [text(frame.put(&[], None).0), text(frame.put(&[], Some(&[])).0)]
    };
    assert_eq!(framed("t5"), ["</s>", "</s> </s>"]);
    assert_eq!(framed("llama"), ["<s>", "<s> <s>"]);
    assert_eq!(framed("gemma"), ["<bos>", "<bos> <bos>"]);
    assert_eq!(framed("xlm_roberta"), ["<s> </s>", "<s> </s> </s> </s>"]);
    assert_eq!(framed("albert"), ["[CLS] [SEP]", "[CLS] [SEP] [SEP]"]);
    assert_eq!(framed("marian.target"), ["</s>", "</s>"]);
    assert_eq!(tokenizer("xlm_roberta").role(SpecialRole::Mask), Some(420 + 1));
    assert_eq!(tokenizer("t5").token(519).as_deref(), Some("<extra_id_0>"));
}

#[test]
fn a_language_in_front_of_a_text_to_translate_is_one_token() {
    let tokenizer = tokenizer("marian.source");
    let (with, without) = (tokenizer.encode(">>fra<< The model").unwrap(), tokenizer.encode("The model").unwrap());
    assert_eq!((with[0], &with[1..]), (2, &without[..]));
}

#[test]
fn a_character_that_only_the_other_language_has_is_its_piece() {
    let tokenizer = tokenizer("marian.source");
    let encoded = |text: &str| tokenizer.encode(text).unwrap();
    // As MarianTokenizer of transformers: 425 is the piece of the target, and two unknown neighbours are one unknown piece.
    assert_eq!(encoded("Müller"), [3, 84, 425, 15, 15, 29]);
    assert_eq!(encoded("Größe über ü"), [3, 185, 18, 1, 11, 3, 425, 42, 29, 3, 425]);
    assert_eq!((encoded("ü"), encoded("öß")), (vec![3, 425], vec![3, 1]));
    assert_eq!(tokenizer.decode(&encoded("Müller")), "Müller");
}

#[test]
fn what_is_no_model_is_told_with_its_file() {
    let home = tempfile::tempdir().unwrap();
    let error = |bytes: &[u8]| {
        fs::write(home.path().join("spiece.model"), bytes).unwrap();
        Tokenizer::of_folder(home.path()).unwrap_err()
    };
    let whole = fs::read(fixtures().join("albert/spiece.model")).unwrap();
    for bytes in [b"".as_slice(), b"{}", &whole[..100], &whole[1..]] {
        let found = error(bytes);
        assert!(found.is_user_error() && found.to_string().contains("spiece.model` makes no tokenizer"), "{found}");
    }
}

fn listed(pieces: &[(&str, PieceKind)]) -> PieceList {
    let pieces = pieces.iter().enumerate().map(|(id, (text, kind))| (text.to_string(), -(id as f32), *kind));
    PieceList { pieces: pieces.collect(), space_in_front: true, ..PieceList::default() }
}

#[test]
fn a_piece_of_its_own_is_found_within_a_word() {
    let normal = |text| (text, PieceKind::Normal);
    let pieces =
        [("<unk>", PieceKind::Unknown), normal("▁a"), normal("▁"), normal("a"), ("[X]", PieceKind::UserDefined)];
    let tokenizer = Tokenizer::of_pieces(&listed(&pieces), "a.gguf").unwrap();
    assert_eq!(tokenizer.encode("aa[X]a").unwrap(), [1, 3, 4, 1], "behind it a text begins anew");
    assert_eq!(tokenizer.encode("a [X]").unwrap(), [1, 2, 4]);
}

#[test]
fn a_piece_that_is_too_long_is_refused() {
    let found = |length: usize| {
        let long = "a".repeat(length);
        Tokenizer::of_pieces(&listed(&[("<unk>", PieceKind::Unknown), (long.as_str(), PieceKind::Normal)]), "a.gguf")
            .map(drop)
    };
    assert!(found(4096).is_ok());
    let error = found(4097).unwrap_err();
    let expected = "`a.gguf` makes no tokenizer: its piece 1 is 4097 bytes long: expected at most 4096";
    assert!(error.is_user_error() && error.to_string().contains(expected), "{error}");
}
