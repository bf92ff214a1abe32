//! What Hugging Face's Python packages make of 2,000 hard strings with the pipelines of published families: emoji, right-to-left scripts,
//! combining marks, code, spaces and special tokens. `tests/fixtures/tokenizer_strings.py` wrote it down.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use serde::Deserialize;

use super::Tokenizer;
use super::drawn::{digest, string};

const STRINGS: usize = 2000;

#[derive(Deserialize)]
struct Expected {
    joints: Vec<String>,
    /// How many strings a hash stands for.
    group: usize,
    folders: BTreeMap<String, Folder>,
}

#[derive(Deserialize)]
struct Folder {
    files: BTreeMap<String, String>,
    pieces: Vec<String>,
    hashes: BTreeMap<String, Vec<u32>>,
}

fn expected() -> &'static Expected {
    static EXPECTED: OnceLock<Expected> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizer_strings.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    })
}

impl Folder {
    fn tokenizer(&self) -> Tokenizer {
        let home = tempfile::tempdir().unwrap();
        self.files.iter().for_each(|(name, text)| fs::write(home.path().join(name), text).unwrap());
        Tokenizer::of_folder(home.path()).unwrap().expect("a tokenizer")
    }

    /// Every four hundredth string is long enough to be read in parts.
    fn strings(&self) -> Vec<String> {
        let drawn = |number: usize| {
            string(number, &self.pieces, &expected().joints).repeat(if number % 400 == 399 { 100 } else { 1 })
        };
        (0..STRINGS).map(drawn).collect()
    }
}

/// Compares the hash of each group; the parts that it is of are shown where they differ.
fn assert_hashes<T: std::fmt::Debug>(folder: &Folder, what: &str, found: &[T], bytes: impl Fn(&[T]) -> Vec<u8>) {
    let groups = found.chunks(expected().group);
    let hashes = &folder.hashes[what];
    assert_eq!(groups.len(), hashes.len());
    for (place, (group, hash)) in groups.zip(hashes).enumerate() {
        assert_eq!(digest(&bytes(group)), *hash, "{what}: group {place} is {group:?}");
    }
}

fn assert_agrees(name: &str) {
    let folder = &expected().folders[name];
    let (tokenizer, strings) = (folder.tokenizer(), folder.strings());
    let frame = tokenizer.frame();
    let plain: Vec<Vec<u32>> = strings.iter().map(|text| tokenizer.encode(text).unwrap()).collect();
    let special: Vec<Vec<u32>> = strings.iter().map(|text| tokenizer.encode_with_special(text).unwrap()).collect();
    let framed: Vec<Vec<u32>> =
        plain.iter().map(|ids| frame.as_ref().map_or(ids.clone(), |frame| frame.put(ids, None).0)).collect();
    let decoded = |all: &[Vec<u32>]| -> Vec<String> { all.iter().map(|ids| tokenizer.decode(ids)).collect() };
    let json = |group: &[Vec<u32>]| serde_json::to_vec(group).unwrap();
    let lines = |group: &[String]| group.join("\n").into_bytes();
    assert_hashes(folder, "plain", &plain, json);
    assert_hashes(folder, "special", &special, json);
    assert_hashes(folder, "framed", &framed, json);
    assert_hashes(folder, "decoded", &decoded(&plain), lines);
    assert_hashes(folder, "decoded_special", &decoded(&special), lines);
}

macro_rules! folders {
    ($($folder:ident)+) => {
        $(
            #[test]
            fn $folder() {
                assert_agrees(stringify!($folder));
            }
        )+

        #[test]
        fn every_folder_is_compared() {
            let compared = [$(stringify!($folder)),+];
            let left: Vec<&String> =
                expected().folders.keys().filter(|name| !compared.contains(&name.as_str())).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    };
}

folders! {
    albert bert bert_cased clip deepseek_v3 gemma gpt2 gpt_neox gpt_oss llama llama3 modernbert mpnet olmo2 phi3 qwen3 roberta smollm t5 xlm_roberta
    legacy_bert legacy_bert_accents legacy_bert_cased legacy_clip legacy_gpt2 legacy_gpt_neox legacy_mpnet legacy_qwen2 legacy_roberta
    legacy_roberta_spaced
}
