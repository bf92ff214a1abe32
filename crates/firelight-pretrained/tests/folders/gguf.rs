//! GGUF files of the tiny models, written by the package of llama.cpp: `tests/fixtures/gguf.py`.

use std::fs;
use std::path::{Path, PathBuf};

use firelight_data::{Conversation, SpecialRole, Tokenizer};
use firelight_kernels::BlockFormat;
use firelight_pretrained::{HubFolder, PublishedModel, View, Weights, export_gguf, run_folder};
use firelight_storage::Checkpoint;

use super::golden::{agrees_with, imported};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

fn file(name: &str) -> PathBuf {
    fixtures().join("gguf_files").join(name).with_extension("gguf")
}

fn folder(name: &str) -> PathBuf {
    fixtures().join("pretrained").join(name)
}

const SINGLE: [&str; 8] = [
    "llama-stretched",
    "gpt2-plain",
    "qwen2-tied",
    "qwen3-wide",
    "gemma-one",
    "gemma2-caps",
    "phi3-long",
    "olmo2-plain",
];

/// Those with half precision and blocks, and how far a number may be from the one that it was made of, as a share of the largest.
const ROUNDED: [(&str, f32); 3] =
    [("llama-plain", 1e-3), ("gemma3_text-mixed", 1e-3), ("gpt_neox-parallel", 1.0 / 200.0)];

fn numbers(weights: &Weights, name: &str) -> Vec<f32> {
    let shape = weights.info(name).unwrap_or_else(|| panic!("no {name}")).shape.clone();
    weights.read(name, &View::whole(&shape), 0.0).unwrap()
}

/// Both have tensors of the same names and shapes, whose numbers differ by a share of the largest one at most.
fn are_close(found: &Weights, expected: &Weights, share: f32) {
    assert!(found.names().next().is_some());
    for name in found.names() {
        // GPT-2's folder has names without those of the head's model.
        let bare = name.strip_prefix("transformer.").filter(|bare| expected.info(bare).is_some());
        let theirs = bare.unwrap_or(name);
        assert_eq!(found.info(name).map(|info| &info.shape), expected.info(theirs).map(|info| &info.shape), "{name}");
        let (ours, theirs) = (numbers(found, name), numbers(expected, theirs));
        let largest = theirs.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        let differs = |(ours, theirs): &(&f32, &f32)| {
            let apart = (*ours - *theirs).abs();
            apart.is_nan() || apart > share * largest
        };
        assert_eq!(ours.iter().zip(&theirs).find(differs), None, "{name}, whose largest number is {largest}");
    }
}

#[test]
fn a_file_in_single_precision_computes_what_its_folder_computes() {
    for name in SINGLE {
        agrees_with(&file(name), &folder(name));
    }
}

#[test]
fn every_file_is_the_model_of_its_folder() {
    for (name, share) in SINGLE.map(|name| (name, 1e-6)).into_iter().chain(ROUNDED) {
        let [found, expected] = [file(name), folder(name)].map(|path| {
            let opened = PublishedModel::open(&path);
            opened.unwrap_or_else(|error| panic!("{}: {:#?}", path.display(), error.problems()))
        });
        assert_eq!(found.structure(), expected.structure(), "{name}");
        let [found, expected] =
            [file(name), folder(name)].map(|path| HubFolder::open(path).unwrap().weights().unwrap());
        are_close(&found, &expected, share);
    }
}

/// The bytes were drawn; what they are was computed by the package of llama.cpp.
#[test]
fn blocks_are_the_numbers_of_the_package() {
    let found = Weights::of_file(file("blocks")).unwrap();
    let expected = Weights::of_file(fixtures().join("gguf_files/blocks.safetensors")).unwrap();
    let names: Vec<&str> = found.names().collect();
    assert_eq!(names, ["bf16", "f16", "q4_0", "q4_k", "q6_k", "q8_0"]);
    are_close(&found, &expected, 1e-6);
    for name in names {
        let format = found.info(name).and_then(|info| info.blocks).map(BlockFormat::name);
        assert_eq!(format, Some(name).filter(|name| name.starts_with('q')));
        assert_eq!(found.blocks(name).unwrap().is_some(), format.is_some());
    }
}

/// Rows of blocks come in the order of `transformers`, and are what is read as numbers.
#[test]
fn blocks_of_rearranged_rows_are_rearranged() {
    let weights = HubFolder::open(file("gpt_neox-parallel")).unwrap().weights().unwrap();
    let name = "gpt_neox.layers.0.attention.query_key_value.weight";
    let blocks = weights.blocks(name).unwrap().expect("blocks");
    let mut found = vec![0.0; 96 * 32];
    BlockFormat::Q8_0.dequantize(&blocks, &mut found);
    assert_eq!(found, numbers(&weights, name));
}

#[test]
fn tokenizers_of_lists_cut_and_merge() {
    let tokenizer = |name: &str| PublishedModel::open(file(name)).unwrap().tokenizer().unwrap().expect("a tokenizer");
    // Ids: 3 is the space, letters are from 4 on, digits from 30 on, merges from 33 on: _a th the _the an _an and _and.
    for name in ["gpt2-plain", "qwen2-tied", "llama-plain"] {
        let found = tokenizer(name);
        assert_eq!(found.encode("and the ant").unwrap(), [39, 36, 38, 23], "{name}");
        assert_eq!(found.decode(&[39, 36, 38, 23]), "and the ant");
        let roles = [SpecialRole::Begin, SpecialRole::End, SpecialRole::Unknown].map(|role| found.role(role));
        assert_eq!(roles, [1, 2, 0].map(Some), "{name}");
        // Of its characters the vocabulary has the letter alone.
        assert_eq!(found.encode("</s>").unwrap(), [22], "what a user types is text");
    }
    let pieces = tokenizer("llama-stretched");
    assert_eq!(pieces.encode("and the ant").unwrap(), [40, 36, 38, 23], "a space is put in front");
    assert_eq!(pieces.decode(&[40, 36, 38, 23]), "and the ant");
    assert_eq!(pieces.frame().map(|frame| frame.front().to_vec()), Some(vec![1]), "texts begin with <s>");
    assert!(tokenizer("gpt2-plain").frame().is_none());
    let chat = PublishedModel::open(file("gpt2-plain")).unwrap().chat_template().unwrap().expect("a template");
    assert_eq!(chat.render(&Conversation::new([("user", "the")])).unwrap(), "<s>the</s>");
}

#[test]
fn what_is_written_is_read_as_the_same_model() {
    for name in [
        "llama-plain",
        "llama-biases",
        "llama-stretched",
        "mistral-window",
        "gpt2-plain",
        "qwen2-tied",
        "qwen3-wide",
        "gemma-one",
        "gemma2-caps",
        "gemma3_text-mixed",
        "phi3-long",
        "phi3-plain",
        "olmo2-plain",
        "gpt_neox-parallel",
        "gpt_neox-serial",
    ] {
        let home = tempfile::tempdir().unwrap();
        let (run, out) = (imported(&folder(name), home.path()), home.path().join("out.gguf"));
        export_gguf(&run, &Checkpoint::Last, &out, "f32").unwrap_or_else(|error| panic!("{name}: {error}"));
        agrees_with(&out, &folder(name));
        let [ours, theirs] = [out, folder(name)].map(|path| HubFolder::open(path).unwrap().weights().unwrap());
        are_close(&ours, &theirs, 1e-6);
    }
}

#[test]
fn blocks_go_out_where_rows_are_whole_ones() {
    let home = tempfile::tempdir().unwrap();
    let (run, out) = (imported(&folder("gpt_neox-parallel"), home.path()), home.path().join("out.gguf"));
    let told = export_gguf(&run, &Checkpoint::Last, &out, "Q8_0").unwrap();
    assert!(told[0].starts_with("2 matrices are f16, for their rows are no multiple of the 32 numbers"), "{told:?}");
    assert!(told[0].ends_with("blk.0.ffn_down.weight, blk.1.ffn_down.weight"), "{told:?}");
    assert!(told[1].contains("llama.cpp has no tokenizer of this sort"), "{told:?}");
    let published = PublishedModel::open(&out).unwrap();
    let tokenizer = published.tokenizer().unwrap().expect("that of the run");
    let kept = Tokenizer::load(run.join("tokenizer.json")).unwrap();
    assert_eq!((tokenizer.kind(), tokenizer.vocab_size()), (kept.kind(), kept.vocab_size()));
    let [ours, theirs] =
        [out, folder("gpt_neox-parallel")].map(|path| HubFolder::open(path).unwrap().weights().unwrap());
    are_close(&ours, &theirs, 1.0 / 200.0);
}

#[test]
fn a_tokenizer_of_lists_goes_out_as_lists() {
    let home = tempfile::tempdir().unwrap();
    for name in ["gpt2-plain", "qwen2-tied", "llama-stretched"] {
        let [run, out] = ["", ".gguf"].map(|end| home.path().join(format!("{name}{end}")));
        PublishedModel::open(file(name)).unwrap().import(&run).unwrap();
        assert_eq!(export_gguf(&run, &Checkpoint::Last, &out, "f32").unwrap(), [""; 0], "{name}");
        assert!(stands(&out, "tokenizer.ggml.tokens").is_some(), "{name}");
        assert_eq!(stands(&out, "tokenizer.huggingface.json"), None, "{name} is said by its lists");
        let [ours, theirs] = [&out, &file(name)].map(|path| PublishedModel::open(path).unwrap());
        let ids = |model: &PublishedModel| model.tokenizer().unwrap().unwrap().encode("the ant and 12 cats").unwrap();
        assert_eq!(ids(&ours), ids(&theirs), "{name}");
        assert_eq!(ours.structure(), theirs.structure());
        assert_eq!(ours.generation().unwrap(), theirs.generation().unwrap());
        let text = theirs.chat_template().unwrap().map(|chat| chat.text().to_string());
        assert_eq!(ours.chat_template().unwrap().map(|chat| chat.text().to_string()), text);
    }
}

/// The bytes behind a key of a file: the number of the type, and the value.
fn stands(path: &Path, key: &str) -> Option<Vec<u8>> {
    let whole = fs::read(path).unwrap();
    let mark = [&(key.len() as u64).to_le_bytes()[..], key.as_bytes()].concat();
    let at = whole.windows(mark.len()).position(|window| window == mark)?;
    Some(whole[at + mark.len()..].to_vec())
}

fn word(path: &Path, key: &str, kind: u32) -> [u8; 4] {
    let found = stands(path, key).unwrap_or_else(|| panic!("no {key}"));
    assert_eq!(found[..4], kind.to_le_bytes(), "the type of {key}");
    found[4..8].try_into().unwrap()
}

/// The numbers of the types are those of the format: 4 of whole numbers of 32 bits, 6 of floats, 8 of texts.
#[test]
fn keys_are_those_of_llama_cpp() {
    let home = tempfile::tempdir().unwrap();
    let written = |name: &str| {
        let home = home.path().join(name);
        fs::create_dir(&home).unwrap();
        let (run, out) = (imported(&folder(name), &home), home.join("out.gguf"));
        let told = export_gguf(&run, &Checkpoint::Last, &out, "f32").unwrap();
        (out, told)
    };
    let float = |path: &Path, key: &str| f32::from_le_bytes(word(path, key, 6));
    let number = |path: &Path, key: &str| u32::from_le_bytes(word(path, key, 4));
    let (llama, _) = written("llama-stretched");
    assert_eq!(stands(&llama, "general.architecture").unwrap()[4..17], *b"\x05\0\0\0\0\0\0\0llama");
    for (key, expected) in [
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 4),
        ("attention.value_length", 4),
        ("block_count", 2),
        ("context_length", 64),
        ("embedding_length", 16),
        ("feed_forward_length", 24),
        ("rope.dimension_count", 4),
        ("rope.scaling.original_context_length", 16),
        ("vocab_size", 48),
    ] {
        assert_eq!(number(&llama, &format!("llama.{key}")), expected, "{key}");
    }
    assert_eq!(float(&llama, "llama.rope.freq_base"), 100.0);
    assert_eq!(float(&llama, "llama.attention.layer_norm_rms_epsilon"), 1e-6);
    assert_eq!(number(&llama, "general.file_type"), 0);
    let (phi, _) = written("phi3-long");
    let growth = float(&phi, "phi3.rope.scaling.attn_factor");
    assert!((growth - 1.5_f32.sqrt()).abs() < 1e-6, "1 + ln 4 / ln 16 under the root, found {growth}");
    assert_eq!(number(&phi, "phi3.rope.scaling.original_context_length"), 16);
    let (gemma, told) = written("gemma3_text-mixed");
    assert_eq!(number(&gemma, "gemma3.attention.sliding_window_pattern"), 6);
    assert_eq!(float(&gemma, "gemma3.attention.scale"), 1.0 / 3.0);
    assert!(told.iter().any(|line| line.contains("gemma3.attention.scale")), "{told:?}");
    let (mistral, told) = written("mistral-window");
    assert_eq!(number(&mistral, "llama.attention.sliding_window"), 3);
    assert!(told.iter().any(|line| line.contains("does not read the window of 3 tokens")), "{told:?}");
}

#[test]
fn what_cannot_be_written_is_told_and_nothing_is_left() {
    let home = tempfile::tempdir().unwrap();
    let (run, out) = (imported(&folder("gpt2-inner"), home.path()), home.path().join("out.gguf"));
    let refused = |dtype: &str| export_gguf(&run, &Checkpoint::Last, &out, dtype).unwrap_err().to_string();
    assert!(refused("f32").contains("that GGUF cannot say in every detail"), "its activation is ReLU");
    let unknown = refused("q5_k");
    assert!(
        unknown.contains("no type `q5_k`") && unknown.ends_with("f32, f16, bf16, q8_0, q4_0, q4_k, q6_k"),
        "{unknown}"
    );
    assert!(!out.exists());
    fs::write(&out, "").unwrap();
    assert!(refused("f32").contains("out.gguf` is there already"));
    assert_eq!(fs::read(&out).unwrap(), b"");
}

/// A copy with other bytes behind the first place where `mark` stands, so many bytes further on.
fn edited(name: &str, mark: &str, skipped: usize, bytes: &[u8]) -> String {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.gguf");
    let mut whole = fs::read(file(name)).unwrap();
    let at = whole.windows(mark.len()).position(|window| window == mark.as_bytes()).expect("the mark");
    let begin = at + mark.len() + skipped;
    whole[begin..begin + bytes.len()].copy_from_slice(bytes);
    fs::write(&path, whole).unwrap();
    let error = PublishedModel::open(&path).and_then(|model| model.tokenizer().map(drop)).unwrap_err();
    assert!(error.is_user_error(), "{error}");
    error.to_string()
}

#[test]
fn what_is_not_known_is_told_by_name() {
    // Behind a key come the number of the type, and the length of a text.
    let other = edited("llama-stretched", "general.architecture", 12, b"bloom");
    assert!(
        other.contains("is of the architecture \"bloom\", which is not read from GGUF; known are llama, gpt2"),
        "{other}"
    );
    let pre = edited("gpt2-plain", "tokenizer.ggml.pre", 12, b"gpt-9");
    assert!(pre.contains("has tokenizer.ggml.pre = \"gpt-9\": expected one of gpt-2"), "{pre}");
    let sort = edited("gpt2-plain", "tokenizer.ggml.model", 12, b"bert");
    assert!(sort.contains("has tokenizer.ggml.model = \"bert\": expected gpt2 or llama"), "{sort}");
    let heads = edited("llama-stretched", "llama.attention.head_count", 4, &7_u32.to_le_bytes());
    assert!(heads.contains("whose rows are not those of all heads"), "{heads}");
    let none = edited("llama-stretched", "llama.attention.head_count", 4, &0_u32.to_le_bytes());
    assert!(none.contains("has llama.attention.head_count = 0: expected 1 to 65536 heads"), "{none}");
    let layers = edited("qwen2-tied", "qwen2.block_count", 4, &3_u32.to_le_bytes());
    assert!(layers.contains("that do not fit its metadata: 12 missing (model.layers.2."), "{layers}");
    let id = edited("gpt2-plain", "tokenizer.ggml.eos_token_id", 4, &48_u32.to_le_bytes());
    assert!(id.contains("has tokenizer.ggml.eos_token_id = 48: expected the id of a token"), "{id}");
}

#[test]
fn a_file_is_converted_once_where_a_command_needs_a_run_folder() {
    let home = tempfile::tempdir().unwrap();
    let told = |path: PathBuf| {
        let mut told = Vec::new();
        let run = run_folder(path, home.path(), |line| told.push(line.to_string())).unwrap();
        (run, told)
    };
    let (run, first) = told(file("qwen2-tied"));
    assert!(first[0].starts_with("converting `") && run.join("tokenizer.json").is_file(), "{first:?}");
    assert_eq!(told(file("qwen2-tied")), (run, Vec::new()));
    let missing = run_folder("no/such.gguf", home.path(), |_| ()).unwrap_err().to_string();
    assert!(missing.starts_with("there is no file `no/such.gguf`"), "{missing}");
}
