//! The tokenizer of a GGUF file: byte-level BPE out of tokens and merges, SentencePiece out of pieces and scores, or a whole
//! `tokenizer.json`.
//!
//! Source of the names and of the defaults: `llama-vocab.cpp` of llama.cpp.

use firelight_data::{ChatTemplate, PieceKind, PieceList, SpecialRole, Tokenizer};
use firelight_storage::{InputError, TaskError, listed};
use serde_json::{Map, Value as Json, json};

use super::metadata::Metadata;

pub(super) const MODEL: &str = "tokenizer.ggml.model";
pub(super) const PRE: &str = "tokenizer.ggml.pre";
pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
pub(super) const KINDS: &str = "tokenizer.ggml.token_type";
pub(super) const SCORES: &str = "tokenizer.ggml.scores";
pub(super) const MERGES: &str = "tokenizer.ggml.merges";
pub(super) const ADD_BEGIN: &str = "tokenizer.ggml.add_bos_token";
pub(super) const ADD_END: &str = "tokenizer.ggml.add_eos_token";
pub(super) const SPACE_IN_FRONT: &str = "tokenizer.ggml.add_space_prefix";
pub(super) const EXTRA_SPACES: &str = "tokenizer.ggml.remove_extra_whitespaces";
pub(super) const HUB_FILE: &str = "tokenizer.huggingface.json";
pub(super) const CHAT: &str = "tokenizer.chat_template";
pub(super) const TOOL_CHAT: &str = "tokenizer.chat_template.tool_use";

/// Special tokens by the keys of their ids.
pub(super) const ROLES: [(&str, SpecialRole); 4] = [
    ("tokenizer.ggml.bos_token_id", SpecialRole::Begin),
    ("tokenizer.ggml.eos_token_id", SpecialRole::End),
    ("tokenizer.ggml.padding_token_id", SpecialRole::Padding),
    ("tokenizer.ggml.unknown_token_id", SpecialRole::Unknown),
];

/// How a text is cut into words before pairs are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Gpt2,
    Llama3,
    Qwen2,
    /// Every digit for itself, then as GPT-2.
    Digits,
    /// What llama.cpp does where a converter knew no name.
    Default,
}

/// The names that files have for them, those of the same cut in one row.
pub(super) const CUTS: &[(Cut, &[&str])] = &[
    (Cut::Gpt2, &["gpt-2", "olmo", "mpt", "phi-2"]),
    (Cut::Llama3, &["llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"]),
    (Cut::Qwen2, &["qwen2", "deepseek-r1-qwen"]),
    (Cut::Digits, &["smollm", "starcoder", "refact"]),
    (Cut::Default, &["default"]),
];

const WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";

/// The tokenizer of a file; none where it has none.
///
/// # Errors
/// If it is of a kind that is not known, or damaged.
pub(crate) fn tokenizer_of(metadata: &Metadata) -> Result<Option<Tokenizer>, TaskError> {
    let tokenizer = match (metadata.text(HUB_FILE)?, metadata.text(MODEL)?) {
        (Some(file), _) => {
            let json = serde_json::from_str(file).map_err(|_| metadata.unfit(HUB_FILE, "a tokenizer.json"))?;
            Tokenizer::of_json(&json, metadata.file())?
        }
        (None, None | Some("none" | "no_vocab")) => return Ok(None),
        (None, Some("gpt2")) => Tokenizer::of_json(&byte_pairs(metadata)?, metadata.file())?,
        (None, Some("llama")) => Tokenizer::of_pieces(&pieces(metadata)?, metadata.file())?,
        (None, Some(_)) => return Err(metadata.unfit(MODEL, "gpt2 or llama, others are not read from GGUF").into()),
    };
    with_roles(tokenizer, metadata).map(Some)
}

fn with_roles(mut tokenizer: Tokenizer, metadata: &Metadata) -> Result<Tokenizer, TaskError> {
    for (key, role) in ROLES {
        let Some(id) = metadata.number(key)? else { continue };
        let known = u32::try_from(id).ok().filter(|id| tokenizer.token(*id).is_some());
        let id = known.ok_or_else(|| metadata.unfit(key, "the id of a token"))?;
        tokenizer = tokenizer.with_role(role, id)?;
    }
    Ok(tokenizer)
}

/// How conversations are written, where a file says so.
///
/// # Errors
/// If a template is no Jinja.
pub(crate) fn chat_template_of(metadata: &Metadata) -> Result<Option<ChatTemplate>, TaskError> {
    let Some(template) = metadata.text(CHAT)? else { return Ok(None) };
    let refused = |key: &str, error: firelight_data::DataError| {
        let problem = format!("has a template in `{key}` that cannot be used: {error}");
        InputError::in_file(metadata.file(), problem).advise("expected a Jinja template")
    };
    let mut found = ChatTemplate::new(template).map_err(|error| refused(CHAT, error))?;
    if let Some(tool_use) = metadata.text(TOOL_CHAT)? {
        found = found.with_tool_use(tool_use).map_err(|error| refused(TOOL_CHAT, error))?;
    }
    if let Some(tokenizer) = tokenizer_of(metadata)? {
        for (_, role) in ROLES {
            if let Some(token) = tokenizer.role(role).and_then(|id| tokenizer.token(id)) {
                found = found.with_token(role.key(), token);
            }
        }
    }
    Ok(Some(found))
}

impl Cut {
    fn named(name: &str) -> Option<Self> {
        CUTS.iter().find(|(_, names)| names.contains(&name)).map(|(cut, _)| *cut)
    }

    /// What is done to a text before, as the `tokenizers` crate writes it; null for nothing.
    pub(super) fn normalizer(self) -> Json {
        if self == Self::Qwen2 { json!({"type": "NFC"}) } else { Json::Null }
    }

    /// The pre-tokenizer, as the `tokenizers` crate writes it.
    pub(super) fn file(self) -> Json {
        let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let then_bytes = |first: Vec<Json>| {
            let bytes =
                json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
            let all: Vec<Json> = first.into_iter().chain([bytes]).collect();
            json!({"type": "Sequence", "pretokenizers": all})
        };
        match self {
            Self::Gpt2 => level(),
            Self::Llama3 => then_bytes(vec![split(&words_and_digits(r"\p{N}{1,3}"))]),
            Self::Qwen2 => then_bytes(vec![split(&words_and_digits(r"\p{N}"))]),
            Self::Digits => {
                json!({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, level()]})
            }
            Self::Default => {
                let patterns = [r"[\p{P}\$\+<=>\^~\|]+", WORDS, r"\p{N}+", "[0-9][0-9][0-9]"];
                then_bytes(patterns.map(split).to_vec())
            }
        }
    }
}

/// Bytes in printable characters, cut as GPT-2 does.
fn level() -> Json {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})
}

/// The expression of OpenAI's cl100k, with `digits` in a row.
fn words_and_digits(digits: &str) -> String {
    let begin = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|";
    format!(r"{begin}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
}

/// The `tokenizer.json` of byte-level BPE.
fn byte_pairs(metadata: &Metadata) -> Result<Json, InputError> {
    let pre = metadata.need_text(PRE)?;
    let cut = Cut::named(pre).ok_or_else(|| {
        let known: Vec<&str> = CUTS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        metadata.unfit(PRE, &format!("one of {}", known.join(", ")))
    })?;
    let (tokens, merges) = (metadata.need_texts(TOKENS)?, metadata.need_texts(MERGES)?);
    let kinds = kinds(metadata, tokens)?;
    let vocabulary: Map<String, Json> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    // Of those that are cut so, LLaMA 3 alone takes whole words that it has, and begins texts where no key says otherwise.
    let is_llama = pre.starts_with("llama");
    let front = around(metadata, tokens, ADD_BEGIN, "bos", is_llama)?;
    let behind = around(metadata, tokens, ADD_END, "eos", false)?;
    Ok(json!({
        "version": "1.0",
        "added_tokens": added(tokens, &kinds),
        "normalizer": cut.normalizer(),
        "pre_tokenizer": cut.file(),
        "post_processor": frame(front, behind),
        "decoder": level(),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": is_llama, "vocab": vocabulary, "merges": merges,
        },
    }))
}

/// What each token is for; the special ones are so whatever their kind.
fn kinds(metadata: &Metadata, tokens: &[String]) -> Result<Vec<PieceKind>, InputError> {
    let mut names: Vec<&String> = tokens.iter().collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let problem = format!("has the token {} twice in `{TOKENS}`", listed([pair[0]]));
        return Err(InputError::in_file(metadata.file(), problem).advise("convert the model again"));
    }
    let mut kinds = match metadata.integers(KINDS)? {
        None => vec![PieceKind::Normal; tokens.len()],
        Some(numbers) if numbers.len() == tokens.len() => {
            let kind = |number: &i64| PieceKind::of(*number);
            let kinds: Option<Vec<PieceKind>> = numbers.iter().map(kind).collect();
            kinds.ok_or_else(|| metadata.unfit(KINDS, "a kind from 1 to 6 for each token"))?
        }
        Some(numbers) => {
            let expected = format!("{} of them, one for each token, found {}", tokens.len(), numbers.len());
            return Err(metadata.unfit(KINDS, &expected));
        }
    };
    for (key, role) in ROLES {
        if let Some(kind) = metadata.number(key)?.and_then(|id| kinds.get_mut(id)) {
            let special = if role == SpecialRole::Unknown { PieceKind::Unknown } else { PieceKind::Control };
            *kind = if *kind == PieceKind::Unknown { *kind } else { special };
        }
    }
    Ok(kinds)
}

/// A token that stands around every text.
fn around<'a>(
    metadata: &Metadata,
    tokens: &'a [String],
    flag: &str,
    name: &str,
    default: bool,
) -> Result<Option<(usize, &'a String)>, InputError> {
    if !metadata.flag(flag)?.unwrap_or(default) {
        return Ok(None);
    }
    let id = metadata.number(&format!("tokenizer.ggml.{name}_token_id"))?;
    Ok(id.and_then(|id| Some((id, tokens.get(id)?))))
}

/// Tokens that stand for no text, and those that are tokens wherever they stand.
fn added(tokens: &[String], kinds: &[PieceKind]) -> Json {
    let is_added = |kind: PieceKind| matches!(kind, PieceKind::Unknown | PieceKind::Control | PieceKind::UserDefined);
    let all = tokens.iter().zip(kinds).enumerate().filter(|(_, (_, kind))| is_added(**kind));
    let token = |(id, (token, kind)): (usize, (&String, &PieceKind))| {
        json!({"id": id, "content": token, "special": *kind != PieceKind::UserDefined, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false})
    };
    all.map(token).collect()
}

/// The post-processor that puts tokens around a text.
fn frame(front: Option<(usize, &String)>, behind: Option<(usize, &String)>) -> Json {
    if front.is_none() && behind.is_none() {
        return level();
    }
    let special =
        |found: Option<(usize, &String)>| found.map(|(_, token)| json!({"SpecialToken": {"id": token, "type_id": 0}}));
    let text = |name: &str, segment: usize| Some(json!({"Sequence": {"id": name, "type_id": segment}}));
    let around = |name: &str, segment: usize| -> Vec<Json> {
        [special(front), text(name, segment), special(behind)].into_iter().flatten().collect()
    };
    let tokens = [front, behind].into_iter().flatten();
    let tokens: Map<String, Json> =
        tokens.map(|(id, token)| (token.clone(), json!({"id": token, "ids": [id], "tokens": [token]}))).collect();
    let (single, pair) = (around("A", 0), [around("A", 0), around("B", 1)].concat());
    let template = json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens});
    json!({"type": "Sequence", "processors": [level(), template]})
}

/// The pieces of SentencePiece.
fn pieces(metadata: &Metadata) -> Result<PieceList, InputError> {
    let tokens = metadata.need_texts(TOKENS)?;
    let mut kinds = kinds(metadata, tokens)?;
    // There the first piece stands for what is unknown where no key says another one.
    if !kinds.contains(&PieceKind::Unknown) && !kinds.is_empty() {
        kinds[0] = PieceKind::Unknown;
    }
    let scores = metadata.floats(SCORES)?.filter(|scores| scores.len() == tokens.len());
    let scores =
        scores.ok_or_else(|| metadata.unfit(SCORES, &format!("{} numbers, one for each token", tokens.len())))?;
    let pieces = tokens.iter().zip(scores).zip(kinds).map(|((text, score), kind)| (text.clone(), *score, kind));
    Ok(PieceList {
        pieces: pieces.collect(),
        space_in_front: metadata.flag(SPACE_IN_FRONT)?.unwrap_or(true),
        without_extra_spaces: metadata.flag(EXTRA_SPACES)?.unwrap_or(false),
        front: around(metadata, tokens, ADD_BEGIN, "bos", true)?.map(|(_, token)| token.clone()),
        behind: around(metadata, tokens, ADD_END, "eos", false)?.map(|(_, token)| token.clone()),
    })
}
