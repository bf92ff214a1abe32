//! Readers of texts: plain, in pairs, labelled, tagged, with questions; and of tokenizers.

use std::fs;
use std::path::Path;

use firelight::data::labelled::{self, Columns};
use firelight::data::tagged::{self, TagScheme};
use firelight::data::{PairColumns, PairFiles, SpecialRole, Tokenizer, TokenizerConfig, questions, read_text};

use super::{Names, Reader, text_of, written};

pub(super) fn readers() -> Vec<Reader> {
    vec![
        Reader {
            names: Names::File,
            name: "text",
            file: "input.txt",
            valid: texts,
            read: |home| text_of(read_text(home.join("input.txt"))),
        },
        Reader {
            names: Names::File,
            name: "parallel-lines",
            file: "train.de",
            valid: lines,
            read: |home| pairs(&lines_of(home)),
        },
        Reader {
            names: Names::File,
            name: "parallel-tsv",
            file: "pairs.tsv",
            valid: pair_tables,
            read: |home| pairs(&records_of(home, "pairs.tsv", ["de", "en"])),
        },
        Reader {
            names: Names::File,
            name: "parallel-jsonl",
            file: "pairs.jsonl",
            valid: pair_objects,
            read: |home| pairs(&records_of(home, "pairs.jsonl", ["source", "target"])),
        },
        Reader {
            names: Names::File,
            name: "labelled-tsv",
            file: "train.tsv",
            valid: tsv,
            read: |home| labels(home, "train.tsv"),
        },
        Reader {
            names: Names::File,
            name: "labelled-csv",
            file: "train.csv",
            valid: csv,
            read: |home| labels(home, "train.csv"),
        },
        Reader {
            names: Names::File,
            name: "labelled-jsonl",
            file: "train.jsonl",
            valid: json,
            read: |home| labels_of(&home.join("train.jsonl")),
        },
        Reader {
            names: Names::File,
            name: "parquet",
            file: "train.parquet",
            valid: parquet,
            read: |home| labels_of(&home.join("train.parquet")),
        },
        Reader {
            names: Names::File,
            name: "conll",
            file: "train.conll",
            valid: conll,
            read: |home| tags(home, "train.conll"),
        },
        Reader {
            names: Names::File,
            name: "tagged-jsonl",
            file: "tags.jsonl",
            valid: tag_objects,
            read: |home| tags(home, "tags.jsonl"),
        },
        Reader {
            names: Names::File,
            name: "squad",
            file: "squad.jsonl",
            valid: squad,
            read: |home| text_of(questions::read(&home.join("squad.jsonl"))),
        },
        Reader { names: Names::File, name: "tokenizer", file: "tokenizer.json", valid: tokenizers, read: encode },
        Reader { names: Names::File, name: "special-tokens", file: SPECIAL_TOKENS, valid: special_tokens, read: roles },
        Reader {
            names: Names::File,
            name: "tokenizer-config",
            file: TOKENIZER_CONFIG,
            valid: tokenizer_configs,
            read: roles,
        },
    ]
}

const SPECIAL_TOKENS: &str = "special_tokens_map.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

fn texts(home: &Path) -> Vec<Vec<u8>> {
    written(home, "input.txt", &["The cat sat.\n\nOn the m\u{e4}t, 12 times.\n", "\u{feff}one line"])
}

fn lines(home: &Path) -> Vec<Vec<u8>> {
    written(home, "train.en", &["a house\na dog\na cat\n"]);
    written(home, "train.de", &["ein Haus\nein Hund\neine Katze\n", "eins\r\n\r\ndrei\r\n"])
}

fn pair_tables(home: &Path) -> Vec<Vec<u8>> {
    written(home, "pairs.tsv", &["de\ten\nein Haus\ta house\nein Hund\ta dog\n", "en\tx\tde\na\tb\tc\n"])
}

fn pair_objects(home: &Path) -> Vec<Vec<u8>> {
    written(
        home,
        "pairs.jsonl",
        &["{\"source\": \"ein Haus\", \"target\": \"a house\"}\n{\"target\": \"a\", \"source\": \"\\u00e4\"}\n"],
    )
}

fn tsv(home: &Path) -> Vec<Vec<u8>> {
    written(home, "train.tsv", &["a fine film\t1\na dull one\t0\n", "text with \"quotes\"\tgood\n\nother\tbad\n"])
}

fn csv(home: &Path) -> Vec<Vec<u8>> {
    written(home, "train.csv", &["\"a fine, long film\",1\n\"a \"\"dull\"\" one\",0\n", "\"two\nlines\",x\nplain,y\n"])
}

/// What others write, in every codec.
fn parquet(home: &Path) -> Vec<Vec<u8>> {
    let files: [&[u8]; 5] = [
        include_bytes!("../../fixtures/records/snappy.parquet"),
        include_bytes!("../../fixtures/records/zstd.parquet"),
        include_bytes!("../../fixtures/records/gzip.parquet"),
        include_bytes!("../../fixtures/records/plain.parquet"),
        include_bytes!("../../fixtures/records/unmarked.parquet"),
    ];
    written(home, "train.parquet", &files)
}

fn json(home: &Path) -> Vec<Vec<u8>> {
    let plain = "{\"text\": \"a fine film\", \"label\": \"good\"}\n{\"text\": \"dull\", \"label\": 0}\n";
    let more = "{\"label\": \"a\", \"text\": \"x\", \"more\": {\"deep\": [1, 2.5, null]}}\n";
    written(home, "train.jsonl", &[plain, more])
}

fn conll(home: &Path) -> Vec<Vec<u8>> {
    let english = "-DOCSTART- -X- O O\n\nAda NNP B-PER\nwrote VBD O\nin IN O\nLondon NNP B-LOC\n\nHello UH O\n";
    written(home, "train.conll", &[english, "Ada\tB-PER\nLovelace\tI-PER\n"])
}

fn tag_objects(home: &Path) -> Vec<Vec<u8>> {
    written(home, "tags.jsonl", &["{\"tokens\": [\"Ada\", \"wrote\"], \"tags\": [\"B-PER\", \"O\"]}\n"])
}

fn squad(home: &Path) -> Vec<Vec<u8>> {
    let answerable =
        r#"{"question": "Who wrote?", "context": "Ada wrote.", "answers": {"text": ["Ada"], "answer_start": [0]}}"#;
    let unanswerable =
        r#"{"question": "Who read?", "context": "\u00c4da wrote.", "answers": {"text": [], "answer_start": []}}"#;
    written(home, "squad.jsonl", &[format!("{answerable}\n{unanswerable}\n")])
}

fn tokenizers(home: &Path) -> Vec<Vec<u8>> {
    let path = home.join("tokenizer.json");
    let configs = [
        TokenizerConfig::Bpe { vocab_size: 270 },
        TokenizerConfig::Char,
        TokenizerConfig::Word { min_frequency: 1 },
        TokenizerConfig::Unigram { vocab_size: 280 },
    ];
    let files = configs.map(|config| {
        let tokenizer = Tokenizer::train(&config, "the cat sat on the m\u{e4}t, the cat ran").expect("a tokenizer");
        tokenizer.save(&path).expect("a file in a scratch folder");
        fs::read(&path).expect("the file")
    });
    written(home, "tokenizer.json", &files)
}

fn special_tokens(home: &Path) -> Vec<Vec<u8>> {
    special_tokenizer(home);
    let objects = r#"{"eos_token": {"content": "<fin>", "lstrip": false}, "pad_token": "a"}"#;
    written(home, SPECIAL_TOKENS, &[r#"{"bos_token": "<s>", "unk_token": "<lacking>"}"#, objects])
}

fn tokenizer_configs(home: &Path) -> Vec<Vec<u8>> {
    special_tokenizer(home);
    let config = r#"{"eos_token": "<fin>", "cls_token": null, "model_max_length": 512, "tokenizer_class": "Bert"}"#;
    written(home, TOKENIZER_CONFIG, &[config])
}

/// A tokenizer beside which files name special tokens.
fn special_tokenizer(home: &Path) {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").expect("a tokenizer");
    let tokenizer = tokenizer.with_special_tokens(&["<s>", "<fin>"]).expect("two more tokens");
    tokenizer.save(home.join("tokenizer.json")).expect("a file in a scratch folder");
}

fn lines_of(home: &Path) -> PairFiles {
    PairFiles::Lines { source: home.join("train.de"), target: home.join("train.en") }
}

fn records_of(home: &Path, file: &str, [source, target]: [&str; 2]) -> PairFiles {
    let columns = PairColumns { source: source.into(), target: target.into() };
    PairFiles::Records { path: home.join(file), columns }
}

fn pairs(files: &PairFiles) -> Result<(), String> {
    text_of(files.read())
}

fn labels(home: &Path, file: &str) -> Result<(), String> {
    text_of(labelled::read(&home.join(file), &Columns::default()))
}

fn labels_of(file: &Path) -> Result<(), String> {
    let columns = Columns { text: vec!["text".into()], pair: None, label: "label".into() };
    text_of(labelled::read(file, &columns))
}

fn tags(home: &Path, file: &str) -> Result<(), String> {
    text_of(tagged::read(&home.join(file), TagScheme::Iob2))
}

/// Reads the file and uses what it says: a vocabulary with holes shows there.
fn encode(home: &Path) -> Result<(), String> {
    let path = home.join("tokenizer.json");
    let tokenizer = Tokenizer::load(&path).map_err(|error| error.to_string())?;
    if let Ok(ids) = tokenizer.encode("the cat sat on the m\u{e4}t") {
        tokenizer.decode(&ids);
    }
    Ok(())
}

/// Reads the file beside the tokenizer and uses what it says.
fn roles(home: &Path) -> Result<(), String> {
    let tokenizer = Tokenizer::load(home.join("tokenizer.json")).map_err(|error| error.to_string())?;
    let named: Vec<u32> = SpecialRole::ALL.into_iter().filter_map(|role| tokenizer.role(role)).collect();
    tokenizer.decode(&named);
    encode(home)
}
