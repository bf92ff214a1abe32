//! Files of published models: what somebody else wrote, and a network brought.

use std::fs;
use std::path::{Path, PathBuf};

use firelight::data::{ChatTemplate, Conversation, Tokenizer};
use firelight::generation::GenerationDefaults;
use firelight::pretrained::PublishedModel;
use firelight::storage::TaskError;

use super::{Names, Reader, text_of, written};

pub(super) fn readers() -> Vec<Reader> {
    let model = |name, file, valid, names| Reader { name, file, valid, read: open, names };
    vec![
        model("published-config", "config.json", |home| copied(home, "llama-plain"), Names::Anything),
        model("published-index", "model.safetensors.index.json", |home| copied(home, "llama-sharded"), Names::Anything),
        model("published-header", "model.safetensors", |home| copied(home, "bert-base"), Names::Anything),
        model("published-pickle", "pytorch_model.bin", |home| copied(home, "llama-pickled"), Names::Anything),
        model("published-timm", "config.json", |home| copied(home, "timm-distilled"), Names::Anything),
        model("published-pixels", "preprocessor_config.json", prepared_images, Names::Anything),
        model("published-modules", "modules.json", sentence_model, Names::Anything),
        Reader { name: "gguf", file: GGUF, valid: files_of_llama_cpp, read: open_file, names: Names::Anything },
        Reader {
            name: "sentence-piece",
            file: "spiece.model",
            valid: sentence_piece,
            read: tokenizer,
            names: Names::Anything,
        },
        Reader { name: "word-pieces", file: WORDS, valid: word_pieces, read: tokenizer, names: Names::File },
        // A token that the merges make and the vocabulary lacks is told of the merges.
        Reader { name: "byte-pair-vocab", file: VOCAB, valid: vocabularies, read: tokenizer, names: Names::Anything },
        Reader { name: "byte-pair-merges", file: MERGES, valid: merges, read: tokenizer, names: Names::File },
        Reader {
            name: "chat-template",
            file: "chat_template.jinja",
            valid: templates,
            read: |home| text_of(ChatTemplate::of_folder(home).and_then(|found| found.map_or(Ok(()), render))),
            names: Names::Anything,
        },
        Reader {
            name: "generation-config",
            file: "generation_config.json",
            valid: |home| {
                let all =
                    r#"{"eos_token_id": [1, 2], "bad_words_ids": [[3]], "forced_bos_token_id": 0, "temperature": 0.7}"#;
                written(home, "generation_config.json", &[all, r#"{"eos_token_id": 1}"#])
            },
            read: |home| text_of(GenerationDefaults::of_file(home.join("generation_config.json"))),
            names: Names::File,
        },
    ]
}

const GGUF: &str = "model.gguf";

/// The vocabularies from before `tokenizer.json`.
const WORDS: &str = "vocab.txt";
const VOCAB: &str = "vocab.json";
const MERGES: &str = "merges.txt";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// A classifier of images, with what its images go through.
fn prepared_images(home: &Path) -> Vec<Vec<u8>> {
    copied(home, "vit-classes");
    let [sides, shortest, number] = [r#"{"height": 16, "width": 14}"#, r#"{"shortest_edge": 14}"#, "13"].map(|size| {
        format!(
            r#"{{"image_processor_type": "BitImageProcessor", "do_resize": true, "size": {size}, "resample": 3,
            "do_center_crop": true, "crop_size": {{"height": 12, "width": 8}}, "do_rescale": true, "rescale_factor": 0.004,
            "do_normalize": true, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.5, 0.25]}}"#
        )
    });
    written(home, "preprocessor_config.json", &[&sides, &shortest, &number])
}

/// Copies a tiny model; the file that is damaged lies there.
fn copied(home: &Path, name: &str) -> Vec<Vec<u8>> {
    for entry in fs::read_dir(fixtures().join("pretrained").join(name)).expect("a fixture") {
        let path = entry.expect("a file").path();
        fs::copy(&path, home.join(path.file_name().expect("a name"))).expect("a file in a scratch folder");
    }
    Vec::new()
}

fn sentence_model(home: &Path) -> Vec<Vec<u8>> {
    copied(home, "bert-base");
    fs::create_dir_all(home.join("1_Pooling")).expect("a folder");
    fs::write(home.join("1_Pooling/config.json"), r#"{"pooling_mode_mean_tokens": true}"#).expect("a file");
    let module =
        |path: &str, kind: &str| format!(r#"{{"path": "{path}", "type": "sentence_transformers.models.{kind}"}}"#);
    let modules = [module("", "Transformer"), module("1_Pooling", "Pooling"), module("2_Normalize", "Normalize")];
    written(home, "modules.json", &[format!("[{}]", modules.join(", "))])
}

/// The headers, the plan and every number.
fn open(home: &Path) -> Result<(), String> {
    let load = |model: PublishedModel| model.load(&burn::tensor::Device::flex()).map(drop);
    text_of::<(), TaskError>(PublishedModel::open(home).and_then(load))
}

fn files_of_llama_cpp(home: &Path) -> Vec<Vec<u8>> {
    let of = |name: &str| fs::read(fixtures().join("gguf_files").join(name)).expect("a fixture");
    written(home, GGUF, &["llama-plain.gguf", "gpt2-plain.gguf", "qwen2-tied.gguf", "gpt_neox-parallel.gguf"].map(of))
}

/// The header, the tokenizer, the plan and every number.
fn open_file(home: &Path) -> Result<(), String> {
    let all = |model: PublishedModel| {
        model.tokenizer()?;
        model.load(&burn::tensor::Device::flex()).map(drop)
    };
    text_of::<(), TaskError>(PublishedModel::open(home.join(GGUF)).and_then(all))
}

fn sentence_piece(home: &Path) -> Vec<Vec<u8>> {
    let of = |name: &str| fs::read(fixtures().join("sentence_piece").join(name)).expect("a fixture");
    written(home, "spiece.model", &[of("albert/spiece.model"), of("llama/tokenizer.model")])
}

/// Vocabularies of BERT's kind, of which one has no mask and ends its lines as Windows does.
fn word_pieces(home: &Path) -> Vec<Vec<u8>> {
    let words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ntext\n,\nzur\n##ich\n##s\n🦊\n";
    written(home, WORDS, &[words, "[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\n##b\r\n"])
}

/// GPT-2's and RoBERTa's special tokens, then all bytes and what the merges make.
fn vocabularies(home: &Path) -> Vec<Vec<u8>> {
    written(home, MERGES, &[PAIRS]);
    let bytes: Vec<String> = byte_characters().into_iter().map(String::from).collect();
    // The quotes of Rust are those of JSON for all of these.
    let vocabulary = |special: &[&str]| {
        let tokens = special.iter().copied().chain(bytes.iter().map(String::as_str)).chain(["te", "tex", "Ġtex"]);
        let entries: Vec<String> = tokens.enumerate().map(|(id, token)| format!("{token:?}: {id}")).collect();
        format!("{{{}}}", entries.join(", "))
    };
    let roberta = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"];
    written(home, VOCAB, &[vocabulary(&["<|endoftext|>"]), vocabulary(&roberta)])
}

fn merges(home: &Path) -> Vec<Vec<u8>> {
    vocabularies(home);
    written(home, MERGES, &[PAIRS, "t e\n", "#version: 0.2\n"])
}

const PAIRS: &str = "#version: 0.2\nt e\nte x\nĠ tex\n";

/// The characters that stand for bytes: those that can be seen for themselves, the others for what follows Latin-1.
fn byte_characters() -> Vec<char> {
    let mut others = '\u{100}'..;
    let character = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        _ => others.next().expect("a character"),
    };
    (0..=u8::MAX).map(character).collect()
}

fn tokenizer(home: &Path) -> Result<(), String> {
    text_of(Tokenizer::of_folder(home).and_then(|found| found.map_or(Ok(()), encode)))
}

fn encode(tokenizer: Tokenizer) -> Result<(), firelight::data::DataError> {
    let ids = tokenizer.encode("A text, Zürich 🦊\n")?;
    assert!(tokenizer.decode(&ids).len() < 1 << 20);
    Ok(())
}

fn templates(home: &Path) -> Vec<Vec<u8>> {
    let names = ["lines", "thinking", "channels", "python"];
    let texts = names.map(|name| fs::read(fixtures().join(format!("chat/templates/{name}.jinja"))).expect("a fixture"));
    written(home, "chat_template.jinja", &texts)
}

fn render(template: ChatTemplate) -> Result<(), firelight::data::DataError> {
    let template = template.with_token("bos_token", "<s>").with_token("eos_token", "</s>");
    template.render(&Conversation::new([("user", "Hello"), ("assistant", "Hi")])).map(drop)
}
