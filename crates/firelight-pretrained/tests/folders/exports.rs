//! What an exported folder says of its tokenizers, beside what its model computes.

use std::fs;
use std::path::{Path, PathBuf};

use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_pretrained::{PublishedModel, export};
use firelight_storage::Checkpoint;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::damaged::copy;

/// The folder of a copy after an import and an export, beside the copy, and what is told of it.
fn written_back(home: &TempDir) -> (PathBuf, Vec<String>) {
    let [run, out] = ["run", "out"].map(|name| home.path().join(name));
    PublishedModel::open(home.path()).unwrap().import(&run).unwrap();
    let notes = export(&run, &Checkpoint::Last, &out).unwrap();
    (out, notes)
}

fn with_characters(name: &str, characters: &str) -> TempDir {
    let home = copy(name);
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, characters).unwrap();
    tokenizer.save(home.path().join("tokenizer.json")).unwrap();
    home
}

fn json_of(out: &Path, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(out.join(name)).unwrap()).unwrap()
}

fn settings(out: &Path) -> Value {
    json_of(out, "tokenizer_config.json")
}

/// Versions of `transformers` differ in what a tokenizer gives a model that does not say it.
#[test]
fn a_tokenizer_gives_what_its_model_reads() {
    let both = json!(["input_ids", "attention_mask"]);
    let segments = json!(["input_ids", "token_type_ids", "attention_mask"]);
    for (name, inputs, longest) in
        [("bert-texts", &segments, 20), ("roberta-texts", &both, 18), ("llama-plain", &both, 64)]
    {
        let home = with_characters(name, "abc");
        let (out, notes) = written_back(&home);
        let settings = settings(&out);
        assert_eq!(
            (&settings["model_input_names"], &settings["model_max_length"]),
            (inputs, &json!(longest)),
            "{name}"
        );
        assert!(notes.is_empty(), "{notes:?}");
    }
}

/// A run folder whose tokenizer was exchanged for a larger one: `transformers` would look up a vector that is not there.
#[test]
fn no_id_outside_of_the_vocabulary_is_written() {
    let home = with_characters("llama-plain", "abc");
    let (out, _) = written_back(&home);
    let size = json_of(&out, "config.json")["vocab_size"].as_u64().unwrap();
    let characters: String = ('\u{100}'..'\u{180}').collect();
    let larger =
        Tokenizer::train(&TokenizerConfig::Char, &characters).unwrap().with_special_tokens(&["<pad>"]).unwrap();
    assert!(u64::from(larger.special("<pad>").unwrap()) >= size);
    larger.save(home.path().join("run/tokenizer.json")).unwrap();
    let again = home.path().join("again");
    export(home.path().join("run"), &Checkpoint::Last, &again).unwrap();
    assert_eq!(json_of(&again, "config.json")["pad_token_id"], Value::Null);
}

/// `transformers` pads no batch without a padding token.
#[test]
fn without_a_padding_token_the_end_or_the_unknown_pads() {
    let cases: [(&str, &[&str], Value, Value); 5] = [
        ("llama-plain", &["<unk>", "</s>"], json!("</s>"), json!(4)),
        ("llama-plain", &["<unk>"], json!("<unk>"), Value::Null),
        ("llama-plain", &["</s>", "<pad>"], json!("<pad>"), json!(4)),
        ("llama-plain", &[], Value::Null, Value::Null),
        ("mpnet-texts", &["<unk>"], Value::Null, json!(1)), // the family's own
    ];
    for (name, special, token, id) in cases {
        let home = copy(name);
        let characters = Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap();
        characters.with_special_tokens(special).unwrap().save(home.path().join("tokenizer.json")).unwrap();
        let mut config = json_of(home.path(), "config.json");
        for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
            config.as_object_mut().unwrap().remove(key);
        }
        fs::write(home.path().join("config.json"), config.to_string()).unwrap();
        let (out, notes) = written_back(&home);
        let told = notes.iter().any(|note| note.contains("takes the token 1, `b`, for padding and does not count it"));
        assert_eq!(told, name == "mpnet-texts", "{notes:?}");
        assert_eq!(settings(&out)["pad_token"], token, "{name}: {special:?}");
        assert_eq!(json_of(&out, "config.json")["pad_token_id"], id, "{name}: {special:?}");
        let read = Tokenizer::load(out.join("tokenizer.json")).unwrap();
        assert_eq!(read.encode("cab").unwrap(), [2, 0, 1]);
    }
}

/// The translator puts the end behind a source; a reader of the folder knows of it by the tokenizer alone.
#[test]
fn a_translators_tokenizer_puts_the_end_behind_a_source() {
    let home = with_characters("bart-plain", "abc");
    let (out, notes) = written_back(&home);
    assert!(notes.is_empty(), "{notes:?}");
    let end = json_of(&out, "config.json")["eos_token_id"].as_u64();
    let frame = Tokenizer::load(out.join("tokenizer.json")).unwrap().frame().expect("an end");
    assert_eq!((frame.size(false), frame.end().map(u64::from)), (1, end));
}

/// Writes a tokenizer of Qwen's way, in the files that it is published in.
fn write_qwens(home: &TempDir) {
    let ids = json!({"a": 0, "b": 1, "ab": 2, "\u{120}": 3, "<|endoftext|>": 4});
    fs::write(home.path().join("vocab.json"), ids.to_string()).unwrap();
    fs::write(home.path().join("merges.txt"), "#version: 0.2\na b\n").unwrap();
    let class = json!({"tokenizer_class": "Qwen2Tokenizer"});
    fs::write(home.path().join("tokenizer_config.json"), class.to_string()).unwrap();
}

/// Version 5 replaces the steps of every tokenizer of a qwen2 by those of Qwen's.
#[test]
fn a_tokenizer_that_transformers_reads_in_another_way_is_told() {
    let own = copy("qwen2-tied");
    write_qwens(&own);
    let (out, notes) = written_back(&own);
    assert!(notes.is_empty(), "{notes:?}");
    // The same pairs of bytes, but texts are not composed before: `e` and an accent are other bytes than one letter.
    let mut other = Tokenizer::load(out.join("tokenizer.json")).unwrap().to_json().unwrap();
    other["normalizer"] = Value::Null;
    let home = copy("qwen2-tied");
    fs::write(home.path().join("tokenizer.json"), other.to_string()).unwrap();
    for home in [home, with_characters("qwen2-tied", "abc")] {
        let (_, notes) = written_back(&home);
        assert!(notes.len() == 1 && notes[0].contains("AutoTokenizer returns other ids"), "{notes:?}");
    }
}

const GENERATION: &str = "generation_config.json";

/// What the run folder and the export of a language model say of decoding, whose `config.json` says `of_config` of it and nothing else.
fn kept_and_published(of_config: Value, file: Option<&Value>) -> (Value, Option<Value>) {
    let home = with_characters("llama-plain", "abc");
    let mut config = json_of(home.path(), "config.json");
    let keys = config.as_object_mut().unwrap();
    keys.retain(|key, _| !key.ends_with("_token_id"));
    keys.extend(of_config.as_object().unwrap().clone());
    fs::write(home.path().join("config.json"), config.to_string()).unwrap();
    if let Some(file) = file {
        fs::write(home.path().join(GENERATION), file.to_string()).unwrap();
    }
    let (out, _) = written_back(&home);
    let published = out.join(GENERATION).is_file().then(|| json_of(&out, GENERATION));
    (json_of(&home.path().join("run"), GENERATION), published)
}

/// Models from before `generation_config.json` have its keys in `config.json`, which `transformers` asks where there is no such file.
#[test]
fn how_a_model_is_decoded_is_kept_and_published_again() {
    let older = json!({
        "bad_words_ids": [[7, 8], [9]], "begin_suppress_tokens": [8], "bos_token_id": 1, "decoder_start_token_id": 3,
        "diversity_penalty": 0.5, "do_sample": true, "early_stopping": true, "encoder_no_repeat_ngram_size": 2,
        "eos_token_id": 2, "forced_bos_token_id": 4, "forced_eos_token_id": [2, 5], "length_penalty": 0.75, "max_length": 30,
        "min_length": 2, "no_repeat_ngram_size": 3, "num_beam_groups": 1, "num_beams": 4, "num_return_sequences": 1,
        "pad_token_id": 0, "repetition_penalty": 1.25, "suppress_tokens": [10], "temperature": 0.5, "top_k": 20, "top_p": 0.25,
        "typical_p": 0.5, "max_new_tokens": 12
    });
    assert_eq!(kept_and_published(older.clone(), None), (older.clone(), Some(older.clone())));
    let file = json!({"eos_token_id": [2, 6], "temperature": 0.625, "min_p": 0.125, "_from_model_config": true});
    assert_eq!(kept_and_published(older, Some(&file)), (file.clone(), Some(file)), "the file alone is asked");
    assert_eq!(kept_and_published(json!({"eos_token_id": null}), None), (json!({}), None));
}

/// A model with the two tokenizers of Marian.
fn marian() -> TempDir {
    let home = copy("marian-plain");
    let pieces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/sentence_piece/marian");
    for name in ["source.spm", "target.spm"] {
        fs::copy(pieces.join(name), home.path().join(name)).unwrap();
    }
    // As many tokens as the model has vectors.
    let ids: serde_json::Map<String, Value> =
        serde_json::from_str(&fs::read_to_string(pieces.join("vocab.json")).unwrap()).unwrap();
    let mut ids: serde_json::Map<String, Value> =
        ids.into_iter().filter(|(_, id)| id.as_u64().is_some_and(|id| id < 47)).collect();
    ids.insert("<pad>".into(), json!(47));
    fs::write(home.path().join("vocab.json"), Value::Object(ids).to_string()).unwrap();
    home
}

/// `transformers` has no place for a second tokenizer but Marian's own files.
#[test]
fn the_two_tokenizers_of_marian_are_published_as_they_came() {
    let home = marian();
    let (out, notes) = written_back(&home);
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(settings(&out)["tokenizer_class"], "MarianTokenizer");
    assert!(!out.join("tokenizer.json").exists() && !out.join("source_tokenizer.json").exists());
    let text = "the cat sees a tree";
    let encoded = |folder: &Path| {
        let both = [Tokenizer::of_source(folder).unwrap(), Tokenizer::of_folder(folder).unwrap()];
        both.map(|tokenizer| tokenizer.expect("a tokenizer").encode(text).unwrap())
    };
    assert_eq!(encoded(&out), encoded(home.path()));
    assert!(encoded(&out).iter().all(|ids| ids.len() > 5));
    // Two tokenizers of another origin have no such files.
    fs::remove_file(home.path().join("run/source.spm")).unwrap();
    let notes = export(home.path().join("run"), &Checkpoint::Last, home.path().join("again")).unwrap();
    assert!(notes[0].starts_with("source_tokenizer.json is read by Firelight alone"), "{notes:?}");
}

/// The ids of the run are those that its model has learned, whatever stands beside them.
#[test]
fn the_pair_of_a_run_whose_tokenizer_was_exchanged_is_left_out() {
    for name in ["tokenizer.json", "source_tokenizer.json"] {
        let home = marian();
        written_back(&home);
        let (run, again) = (home.path().join("run"), home.path().join("again"));
        let exchanged = Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap();
        exchanged.save(run.join(name)).unwrap();
        let notes = export(&run, &Checkpoint::Last, &again).unwrap();
        let told = "source.spm, target.spm, vocab.json are left out: they give other ids than";
        assert!(notes.iter().any(|note| note.starts_with(told)), "{name}: {notes:?}");
        assert!(["source.spm", "target.spm", "vocab.json"].iter().all(|name| !again.join(name).exists()));
        assert_eq!(settings(&again)["tokenizer_class"], "PreTrainedTokenizerFast");
        assert_eq!(Tokenizer::load(again.join(name)).unwrap().encode("cab").unwrap(), [2, 0, 1], "{name}");
    }
}
