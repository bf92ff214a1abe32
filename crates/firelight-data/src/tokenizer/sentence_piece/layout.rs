//! Which id a piece has, and what stands around texts: the families differ from their SentencePiece models, which know nothing of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use serde_json::{Value, json};

use super::model::{Algorithm, Kind, Model, Piece};
use crate::DataError;
use crate::tokenizer::settings::Settings;

/// A piece under the id that its place in a list gives it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) piece: String,
    pub(super) score: f32,
    pub(super) kind: Kind,
}

/// What the spelling of a piece begins with that the model lacks.
pub(super) const FOREIGN: char = '\0';

/// The conventions of a family.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Layout {
    /// Ids as in the file, and special tokens around a text by their spelling: T5, LLaMA, Gemma, Mistral.
    Plain { front: Option<String>, behind: Option<String>, more: Vec<String> },
    /// ALBERT's, which is plain with BERT's frame; texts lose case and accents where its configuration says so.
    Albert { lowercase: bool, keep_accents: bool },
    /// Four special tokens of fairseq in front, others behind: XLM-RoBERTa, mBART, CamemBERT.
    Fairseq { front: &'static [&'static str], behind: Vec<String>, is_mbart: bool },
    /// Those of a `vocab.json`, of the language that is read or of the one that is written: Marian.
    Ids { ids: BTreeMap<String, u32>, is_source: bool },
}

/// The languages of mBART-25, in the order of their ids.
const LANGUAGES: [&str; 25] = [
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX",
    "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN",
    "zh_CN",
];

const FAIRSEQ: [&str; 4] = ["<s>", "<pad>", "</s>", "<unk>"];
const CAMEMBERT: [&str; 5] = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"];

/// T5 has a hundred tokens more than its model, in falling order.
const EXTRA_IDS: u64 = 100;

impl Layout {
    /// What `tokenizer_config.json` and `config.json` say of a folder's family.
    pub(super) fn of_folder(folder: &Path) -> Result<Self, DataError> {
        Settings::of_folder(folder).map(|settings| Self::of(&settings))
    }

    fn of(settings: &Settings) -> Self {
        let adds = |key: &str, default: bool| settings.says(key, default);
        let plain = |front: Option<&str>, behind: Option<&str>, more| Self::Plain {
            front: front.map(Into::into),
            behind: behind.map(Into::into),
            more,
        };
        let mask = || vec!["<mask>".to_string()];
        match settings.family().as_str() {
            "t5" | "mt5" => {
                let count = settings.keys["extra_ids"].as_u64().unwrap_or(EXTRA_IDS).min(10_000);
                plain(None, Some("</s>"), (0..count).rev().map(|id| format!("<extra_id_{id}>")).collect())
            }
            "albert" => {
                Self::Albert { lowercase: adds("do_lower_case", true), keep_accents: adds("keep_accents", false) }
            }
            "xlmroberta" | "xlm-roberta" => Self::Fairseq { front: &FAIRSEQ, behind: mask(), is_mbart: false },
            "camembert" => Self::Fairseq { front: &CAMEMBERT, behind: mask(), is_mbart: false },
            "mbart" => {
                let behind = LANGUAGES.iter().map(ToString::to_string).chain(mask()).collect();
                Self::Fairseq { front: &FAIRSEQ, behind, is_mbart: true }
            }
            family => {
                let begin = if family.starts_with("gemma") { "<bos>" } else { "<s>" };
                let end = if family.starts_with("gemma") { "<eos>" } else { "</s>" };
                let is_decoder =
                    ["llama", "gemma", "mistral", "mixtral", "phi"].iter().any(|it| family.starts_with(it));
                let front = adds("add_bos_token", is_decoder).then_some(begin);
                plain(front, adds("add_eos_token", false).then_some(end), Vec::new())
            }
        }
    }

    /// The pieces by their ids.
    pub(super) fn entries(&self, model: &Model) -> Result<Vec<Entry>, String> {
        let pieces: Vec<Entry> = model
            .pieces
            .iter()
            .map(|it| Entry { piece: it.text().into(), score: it.merit(), kind: it.purpose() })
            .collect();
        let control = |piece: &str| {
            let kind = if piece == "<unk>" { Kind::Unknown } else { Kind::Control };
            Entry { piece: piece.into(), score: 0.0, kind }
        };
        let mut entries = match self {
            Self::Plain { more, .. } => pieces.into_iter().chain(more.iter().map(|piece| control(piece))).collect(),
            Self::Albert { .. } => pieces,
            Self::Fairseq { front, behind, .. } => {
                let (front, behind) = (front.iter().copied().map(control), behind.iter().map(|piece| control(piece)));
                front.chain(pieces.into_iter().skip(3)).chain(behind).collect()
            }
            Self::Ids { ids, is_source } => by_ids(&pieces, ids, *is_source)?,
        };
        sink(&mut entries);
        Ok(entries)
    }

    /// What is done to a text before the model's own table.
    pub(super) fn normalizers(&self) -> Vec<Value> {
        let Self::Albert { lowercase, keep_accents } = self else { return Vec::new() };
        let replace = |pattern: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": "\""});
        let mut steps = vec![replace("``"), replace("''")];
        if !keep_accents {
            steps.extend([json!({"type": "NFKD"}), json!({"type": "StripAccents"})]);
        }
        if *lowercase {
            steps.push(json!({"type": "Lowercase"}));
        }
        steps
    }

    /// What is done to a text last: a character that the model lacks and the vocabulary has is marked, if no other such character stands beside it.
    /// Marian looks the text up that its model leaves unknown, and neighbours that are unknown are one text. None where there is no such character.
    ///
    /// Longer texts that are unknown as a whole are not looked up.
    pub(super) fn marks(&self, model: &Model) -> Option<Value> {
        let Self::Ids { ids, is_source: true } = self else { return None };
        let is_text = |piece: &&Piece| matches!(piece.purpose(), Kind::Normal | Kind::UserDefined);
        let own: BTreeSet<char> = model.pieces.iter().filter(is_text).flat_map(|piece| piece.text().chars()).collect();
        let foreign = ids.keys().filter_map(|piece| only(piece)).filter(|character| !own.contains(character)).collect();
        if model.algorithm() != Some(Algorithm::Unigram) || model.has_bytes() || own.is_empty() {
            return None;
        }
        let [own, foreign] = [own, foreign].map(class_of);
        let pattern = format!("(?<![^{own}])(?=[{foreign}](?![^{own}]))");
        let mark = json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": FOREIGN});
        (!foreign.is_empty()).then_some(mark)
    }

    /// The special tokens around a text and around a pair, as the crate writes it; null for none.
    pub(super) fn frame(&self, entries: &[Entry]) -> Value {
        let (single, pair): (Vec<&str>, Vec<&str>) = match self {
            Self::Plain { front, behind, .. } => {
                let around = |text| front.as_deref().into_iter().chain([text]).chain(behind.as_deref());
                (around("$A").collect(), around("$A").chain(around("$B")).collect())
            }
            Self::Albert { .. } => (vec!["[CLS]", "$A", "[SEP]"], vec!["[CLS]", "$A", "[SEP]", "$B", "[SEP]"]),
            Self::Fairseq { is_mbart: false, .. } => {
                (vec!["<s>", "$A", "</s>"], vec!["<s>", "$A", "</s>", "</s>", "$B", "</s>"])
            }
            Self::Fairseq { is_mbart: true, .. } => (vec!["$A", "</s>", "en_XX"], vec!["$A", "$B", "</s>", "en_XX"]),
            Self::Ids { .. } => (vec!["$A", "</s>"], vec!["$A", "$B", "</s>"]),
        };
        template(&single, &pair, matches!(self, Self::Albert { .. }), entries)
    }
}

/// The character of a piece that has one.
fn only(piece: &str) -> Option<char> {
    let mut characters = piece.chars();
    characters.next().filter(|_| characters.as_str().is_empty())
}

/// Characters as a class of a regular expression lists them.
fn class_of(characters: BTreeSet<char>) -> String {
    characters.into_iter().map(|character| format!("\\x{{{:x}}}", u32::from(character))).collect()
}

/// A template of the crate's; null where a token of it is lacking, or it adds nothing.
fn template(single: &[&str], pair: &[&str], has_segments: bool, entries: &[Entry]) -> Value {
    let ids: HashMap<&str, usize> = entries.iter().enumerate().map(|(id, entry)| (entry.piece.as_str(), id)).collect();
    let mut tokens = json!({});
    for token in single.iter().filter(|token| !token.starts_with('$')) {
        let Some(id) = ids.get(token) else { return Value::Null };
        tokens[token] = json!({"id": token, "ids": [id], "tokens": [token]});
    }
    if tokens == json!({}) {
        return Value::Null;
    }
    let parts = |parts: &[&str]| -> Value {
        let mut segment = 0;
        let part = |part: &&str| {
            let is_second = has_segments && *part == "$B";
            segment = if is_second { 1 } else { segment };
            match part.strip_prefix('$') {
                Some(text) => json!({"Sequence": {"id": text, "type_id": segment}}),
                None => json!({"SpecialToken": {"id": part, "type_id": segment}}),
            }
        };
        parts.iter().map(part).collect()
    };
    json!({"type": "TemplateProcessing", "single": parts(single), "pair": parts(pair), "special_tokens": tokens})
}

/// What no text is to give is never the likeliest.
fn sink(entries: &mut [Entry]) {
    let lowest = entries.iter().map(|entry| entry.score).fold(0.0, f32::min);
    let is_text = |entry: &Entry| matches!(entry.kind, Kind::Normal | Kind::UserDefined);
    entries.iter_mut().filter(|entry| !is_text(entry)).for_each(|entry| entry.score = lowest - 100.0);
}

/// The pieces under the ids of a vocabulary of two languages. Those of the other one are no pieces of this one's texts: of the one that is
/// read they have spellings that no text has, of the one that is written they may be decoded.
fn by_ids(pieces: &[Entry], ids: &BTreeMap<String, u32>, is_source: bool) -> Result<Vec<Entry>, String> {
    let own: HashMap<&str, &Entry> = pieces.iter().map(|entry| (entry.piece.as_str(), entry)).collect();
    let mut found: Vec<Option<Entry>> = vec![None; ids.len()];
    for (piece, &id) in ids {
        let place =
            found.get_mut(id as usize).ok_or_else(|| format!("the id of {piece:?}, {id}, is beyond its size"))?;
        let kind = match piece.as_str() {
            "<unk>" => Kind::Unknown,
            "</s>" | "<pad>" => Kind::Control,
            // The language to translate into, which stands in front of a text.
            piece if piece.starts_with(">>") && piece.ends_with("<<") => Kind::UserDefined,
            piece => own.get(piece).map_or(Kind::Unused, |entry| entry.kind),
        };
        let score = own.get(piece.as_str()).map_or(0.0, |entry| entry.score);
        let spelling = if kind == Kind::Unused && is_source { format!("{FOREIGN}{piece}") } else { piece.clone() };
        *place = Some(Entry { piece: spelling, score, kind });
    }
    found.into_iter().collect::<Option<_>>().ok_or_else(|| "two pieces of its vocabulary have one id".into())
}
