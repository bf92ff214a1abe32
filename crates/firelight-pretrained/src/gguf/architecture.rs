//! What `general.architecture` can be: for each the family of `transformers`, and the names of its tensors there and here.

use firelight_storage::{InputError, listed, shortened};

use super::Metadata;
use crate::plan::{Step, filled, numbers};

/// No model has more, by far.
const MOST_HEADS: usize = 1 << 16;

/// An architecture of llama.cpp.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// Its name in `general.architecture`, with which its keys begin.
    pub(crate) name: &'static str,
    /// The families of `transformers`, the usual one first.
    pub(crate) families: &'static [&'static str],
    /// The names of its tensors.
    names: &'static [&'static [Name]],
}

/// The name of a tensor in a GGUF file and in `transformers`, without its end; `{}` is the number of a layer.
#[derive(Debug)]
struct Name {
    gguf: &'static str,
    hub: &'static str,
    change: Change,
}

/// How the numbers in a GGUF file differ from those of `transformers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Not at all.
    None,
    /// The rows of each query head: both halves, which turn together, lie in turn.
    Queries,
    /// The rows of each head of keys, in the same way.
    Keys,
    /// All queries, all keys, all values, where the heads of `transformers` have the three in turn.
    Threes,
    /// Rows and columns are exchanged.
    Transposed,
    /// Each number is larger by one.
    PlusOne,
}

/// How many heads the rows belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub(crate) queries: usize,
    pub(crate) keys: usize,
}

const fn plain(gguf: &'static str, hub: &'static str) -> Name {
    Name { gguf, hub, change: Change::None }
}

const fn changed(gguf: &'static str, hub: &'static str, change: Change) -> Name {
    Name { gguf, hub, change }
}

/// What LLaMA and the families that follow it have in common. No architecture has all of it, the files say what is there.
const COMMON: &[Name] = &[
    plain("token_embd", "model.embed_tokens"),
    plain("output", "lm_head"),
    plain("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    plain("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    plain("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    plain("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    plain("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    plain("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    plain("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
];

const NORMS: &[Name] = &[
    plain("output_norm", "model.norm"),
    plain("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    plain("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
    plain("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    plain("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
];

const PERMUTED: &[Name] = &[
    changed("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", Change::Queries),
    changed("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", Change::Keys),
];

const GEMMA_NORMS: &[Name] = &[
    changed("output_norm", "model.norm", Change::PlusOne),
    changed("blk.{}.attn_norm", "model.layers.{}.input_layernorm", Change::PlusOne),
    changed("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", Change::PlusOne),
];

const SANDWICH_NORMS: &[Name] = &[
    changed("output_norm", "model.norm", Change::PlusOne),
    changed("blk.{}.attn_norm", "model.layers.{}.input_layernorm", Change::PlusOne),
    changed("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm", Change::PlusOne),
    changed("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm", Change::PlusOne),
    changed("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm", Change::PlusOne),
    changed("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", Change::PlusOne),
    changed("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", Change::PlusOne),
];

const OLMO_NORMS: &[Name] = &[
    plain("output_norm", "model.norm"),
    plain("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    plain("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
    plain("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    plain("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
];

const PHI: &[Name] = &[
    plain("blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"),
    plain("blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj"),
];

const GPT2: &[Name] = &[
    plain("token_embd", "transformer.wte"),
    plain("position_embd", "transformer.wpe"),
    plain("output_norm", "transformer.ln_f"),
    plain("output", "lm_head"),
    plain("blk.{}.attn_norm", "transformer.h.{}.ln_1"),
    changed("blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn", Change::Transposed),
    changed("blk.{}.attn_output", "transformer.h.{}.attn.c_proj", Change::Transposed),
    plain("blk.{}.ffn_norm", "transformer.h.{}.ln_2"),
    changed("blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc", Change::Transposed),
    changed("blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj", Change::Transposed),
];

const GPT_NEOX: &[Name] = &[
    plain("token_embd", "gpt_neox.embed_in"),
    plain("output_norm", "gpt_neox.final_layer_norm"),
    plain("output", "embed_out"),
    plain("blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm"),
    changed("blk.{}.attn_qkv", "gpt_neox.layers.{}.attention.query_key_value", Change::Threes),
    plain("blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense"),
    plain("blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"),
    plain("blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"),
    plain("blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"),
];

/// Those that are read and written.
const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "llama", families: &["llama", "mistral"], names: &[PERMUTED, COMMON, NORMS] },
    Architecture { name: "gpt2", families: &["gpt2"], names: &[GPT2] },
    Architecture { name: "qwen2", families: &["qwen2"], names: &[COMMON, NORMS] },
    Architecture { name: "qwen3", families: &["qwen3"], names: &[COMMON, NORMS] },
    Architecture { name: "gemma", families: &["gemma"], names: &[COMMON, GEMMA_NORMS] },
    Architecture { name: "gemma2", families: &["gemma2"], names: &[COMMON, SANDWICH_NORMS] },
    Architecture { name: "gemma3", families: &["gemma3_text"], names: &[COMMON, SANDWICH_NORMS] },
    Architecture { name: "phi3", families: &["phi3"], names: &[PHI, COMMON, NORMS] },
    Architecture { name: "olmo2", families: &["olmo2"], names: &[COMMON, OLMO_NORMS] },
    Architecture { name: "gptneox", families: &["gpt_neox"], names: &[GPT_NEOX] },
];

impl Architecture {
    /// The one that a file says it is of.
    pub(crate) fn of(metadata: &Metadata) -> Result<&'static Self, InputError> {
        let name = metadata.need_text("general.architecture")?;
        ARCHITECTURES.iter().find(|known| known.name == name).ok_or_else(|| {
            let problem = format!("is of the architecture \"{}\", which is not read from GGUF", shortened(name));
            InputError::in_file(metadata.file(), problem).advise(format!("known are {}", Self::all()))
        })
    }

    /// The one that a family is written as.
    pub(crate) fn of_family(family: &str) -> Option<&'static Self> {
        ARCHITECTURES.iter().find(|known| known.families.contains(&family))
    }

    /// The names of all.
    pub(crate) fn all() -> String {
        listed(ARCHITECTURES.iter().map(|known| known.name))
    }

    /// What `transformers` calls a tensor of a file.
    pub(crate) fn hub_name(&self, gguf: &str) -> Option<(String, Change)> {
        self.renamed(gguf, |name| (name.gguf, name.hub))
    }

    /// What a file calls a tensor of `transformers`.
    pub(crate) fn gguf_name(&self, hub: &str) -> Option<(String, Change)> {
        self.renamed(hub, |name| (name.hub, name.gguf))
    }

    fn renamed(&self, whole: &str, ends: impl Fn(&Name) -> (&'static str, &'static str)) -> Option<(String, Change)> {
        let (stem, end) = whole.rsplit_once('.')?;
        self.names.iter().copied().flatten().find_map(|name| {
            let (from, to) = ends(name);
            let found = numbers(from, stem)?;
            Some((format!("{}.{end}", filled(to, &found)), name.change))
        })
    }
}

impl Change {
    /// From a tensor of the file to one of `transformers`, as far as the places of numbers are concerned.
    pub(crate) fn step(self, heads: Heads) -> Option<Step> {
        let halves = |heads| Step::Regrouped { lens: vec![heads, 0, 2], order: vec![0, 2, 1] };
        match self {
            Self::None | Self::PlusOne => None,
            Self::Queries => Some(halves(heads.queries)),
            Self::Keys => Some(halves(heads.keys)),
            Self::Threes => Some(Step::Regrouped { lens: vec![3, heads.queries, 0], order: vec![1, 0, 2] }),
            Self::Transposed => Some(Step::Transposed),
        }
    }

    /// What is added to each number of the file.
    pub(crate) fn plus(self) -> f32 {
        if self == Self::PlusOne { -1.0 } else { 0.0 }
    }
}

impl Heads {
    pub(crate) fn of(architecture: &Architecture, metadata: &Metadata) -> Result<Self, InputError> {
        let [queries, keys] =
            ["head_count", "head_count_kv"].map(|key| format!("{}.attention.{key}", architecture.name));
        let all = metadata.need(&queries)?;
        let heads = Self { queries: all, keys: metadata.number(&keys)?.unwrap_or(all) };
        let is_known = |count: usize| (1..=MOST_HEADS).contains(&count);
        match [(heads.queries, queries), (heads.keys, keys)].into_iter().find(|(count, _)| !is_known(*count)) {
            Some((_, key)) => Err(metadata.unfit(&key, &format!("1 to {MOST_HEADS} heads"))),
            None => Ok(heads),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::View;

    fn named(name: &str) -> &'static Architecture {
        ARCHITECTURES.iter().find(|known| known.name == name).unwrap()
    }

    #[test]
    fn names_go_there_and_back() {
        let there = |architecture: &str, name: &str| named(architecture).hub_name(name);
        let query = Some(("model.layers.7.self_attn.q_proj.weight".into(), Change::Queries));
        assert_eq!(there("llama", "blk.7.attn_q.weight"), query);
        assert_eq!(
            there("qwen2", "blk.7.attn_q.bias"),
            Some(("model.layers.7.self_attn.q_proj.bias".into(), Change::None))
        );
        let norm = |name: &str| Some((format!("model.layers.0.{name}_layernorm.weight"), Change::PlusOne));
        assert_eq!(there("gemma", "blk.0.ffn_norm.weight"), norm("post_attention"));
        assert_eq!(there("gemma2", "blk.0.ffn_norm.weight"), norm("pre_feedforward"));
        assert_eq!(there("llama", "blk.x.attn_q.weight"), None);
        for architecture in ARCHITECTURES {
            for name in architecture.names.iter().copied().flatten() {
                let gguf = filled(name.gguf, &["12"]) + ".weight";
                let (hub, change) = architecture.hub_name(&gguf).unwrap();
                assert_eq!(architecture.gguf_name(&hub), Some((gguf, change)), "{hub}");
            }
        }
    }

    /// `reshape(heads, 2, half).swapaxes(1, 2)` of rows 0 to 7 of two heads is 0 2 1 3, 4 6 5 7.
    #[test]
    fn the_halves_of_a_head_are_put_back() {
        let stored = [0, 2, 1, 3, 4, 6, 5, 7];
        let step = Change::Queries.step(Heads { queries: 2, keys: 1 }).unwrap();
        let view = step.apply(View::whole(&[8]), None).unwrap();
        let mut found = [0; 8];
        view.read(&stored, &mut found, |number| number);
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7]);
        let of_keys = Change::Keys.step(Heads { queries: 2, keys: 3 }).unwrap();
        assert_eq!(of_keys.apply(View::whole(&[8]), None), None, "eight rows are no three heads");
    }
}
