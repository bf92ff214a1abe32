//! From the metadata of a GGUF file to the `config.json` that a folder of Hugging Face would have.

use firelight_storage::InputError;
use serde_json::{Value as Json, json};

use super::architecture::{Architecture, Heads};
use super::metadata::Metadata;
use super::{Shapes, rope};

/// The rotations of Gemma 3's layers that look at a window.
const NEAR_THETA: f64 = 10_000.0;

/// A file, as its architecture's keys say it.
pub(super) struct Said<'a> {
    metadata: &'a Metadata,
    pub(super) architecture: &'static Architecture,
    pub(super) tensors: &'a Shapes,
}

impl Said<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<usize>, InputError> {
        self.metadata.number(&self.key(name))
    }

    pub(super) fn need(&self, name: &str) -> Result<usize, InputError> {
        self.metadata.need(&self.key(name))
    }

    pub(super) fn float(&self, name: &str) -> Result<Option<f64>, InputError> {
        self.metadata.float(&self.key(name))
    }

    fn need_float(&self, name: &str) -> Result<f64, InputError> {
        self.float(name)?.ok_or_else(|| self.unfit(name, "a number"))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, InputError> {
        self.metadata.text(&self.key(name))
    }

    pub(super) fn unfit(&self, name: &str, expected: &str) -> InputError {
        self.metadata.unfit(&self.key(name), expected)
    }

    fn has(&self, tensor: &str) -> bool {
        self.tensors.shapes.contains_key(tensor)
    }

    /// Tokens, by the rows of their embedding; what a key says of them may be without those that fill it up.
    fn vocab_size(&self) -> Result<usize, InputError> {
        let rows = self.tensors.shapes.get("token_embd.weight").and_then(|shape| shape.first().copied());
        let lacking = || InputError::in_file(self.metadata.file(), "lacks the tensor `token_embd.weight`");
        rows.ok_or_else(|| lacking().advise("convert the model again"))
    }

    /// The width of a window, where layers look at one.
    fn window(&self) -> Result<Option<usize>, InputError> {
        Ok(self.number("attention.sliding_window")?.filter(|window| *window > 0))
    }

    /// The width of a head, which is the same for queries, keys and values.
    fn d_head(&self) -> Result<usize, InputError> {
        let heads = Heads::of(self.architecture, self.metadata)?.queries;
        let width = self.number("attention.key_length")?;
        let width = width.unwrap_or(self.need("embedding_length")? / heads.max(1));
        match self.number("attention.value_length")? {
            Some(values) if values != width => {
                Err(self.unfit("attention.value_length", &format!("{width}, as keys have")))
            }
            _ => Ok(width),
        }
    }

    /// How many channels of each head turn.
    fn turned(&self, d_head: usize) -> Result<usize, InputError> {
        match self.number("rope.dimension_count")?.unwrap_or(d_head) {
            turned if turned <= d_head => Ok(turned),
            _ => Err(self.unfit("rope.dimension_count", &format!("at most {d_head}, the width of a head"))),
        }
    }
}

/// What `config.json` would say.
pub(super) fn config(metadata: &Metadata, tensors: &Shapes) -> Result<Json, InputError> {
    let said = Said { metadata, architecture: Architecture::of(metadata)?, tensors };
    if metadata.number("split.count")?.is_some_and(|files| files > 1) {
        return Err(metadata.unfit("split.count", "1: a model in several files has to be made one file first"));
    }
    if said.number("expert_count")?.is_some_and(|experts| experts > 0) {
        return Err(said.unfit("expert_count", "0: experts are not read from GGUF"));
    }
    let mut keys = match said.architecture.name {
        "gpt2" => gpt2(&said)?,
        "gptneox" => gpt_neox(&said)?,
        _ => llama(&said)?,
    };
    keys["vocab_size"] = json!(said.vocab_size()?);
    keys["tie_word_embeddings"] = json!(!said.has("output.weight"));
    add_special(metadata, &mut keys)?;
    Ok(keys)
}

/// The ids of special tokens, for decoding: a turn of a conversation may end in another way than a text.
fn add_special(metadata: &Metadata, keys: &mut Json) -> Result<(), InputError> {
    let id = |name: &str| metadata.number(&format!("tokenizer.ggml.{name}_token_id"));
    for (key, name) in [("bos_token_id", "bos"), ("pad_token_id", "padding")] {
        keys[key] = json!(id(name)?);
    }
    keys["eos_token_id"] = match (id("eos")?, id("eot")?) {
        (Some(text), Some(turn)) if text != turn => json!([text, turn]),
        (text, turn) => json!(text.or(turn)),
    };
    Ok(())
}

fn gpt2(said: &Said<'_>) -> Result<Json, InputError> {
    Ok(json!({
        "model_type": "gpt2",
        "n_embd": said.need("embedding_length")?,
        "n_layer": said.need("block_count")?,
        "n_head": Heads::of(said.architecture, said.metadata)?.queries,
        "n_inner": said.number("feed_forward_length")?,
        "n_positions": said.need("context_length")?,
        "layer_norm_epsilon": said.need_float("attention.layer_norm_epsilon")?,
        "activation_function": "gelu_new",
    }))
}

fn gpt_neox(said: &Said<'_>) -> Result<Json, InputError> {
    let d_head = said.d_head()?;
    let turned = said.turned(d_head)?;
    let mut rope = rope::parameters(said, turned)?;
    rope["partial_rotary_factor"] = json!(turned as f64 / d_head.max(1) as f64);
    Ok(json!({
        "model_type": "gpt_neox",
        "hidden_size": said.need("embedding_length")?,
        "num_hidden_layers": said.need("block_count")?,
        "num_attention_heads": said.need("attention.head_count")?,
        "intermediate_size": said.need("feed_forward_length")?,
        "max_position_embeddings": said.need("context_length")?,
        "layer_norm_eps": said.need_float("attention.layer_norm_epsilon")?,
        "use_parallel_residual": said.metadata.flag(&said.key("use_parallel_residual"))?.unwrap_or(true),
        "attention_bias": said.has("blk.0.attn_qkv.bias"),
        "hidden_act": "gelu",
        "rope_parameters": rope,
    }))
}

/// LLaMA and the families that follow it.
fn llama(said: &Said<'_>) -> Result<Json, InputError> {
    let heads = Heads::of(said.architecture, said.metadata)?;
    let d_head = said.d_head()?;
    let turned = said.turned(d_head)?;
    let mut rope = rope::parameters(said, turned)?;
    if turned < d_head {
        rope["partial_rotary_factor"] = json!(turned as f64 / d_head as f64);
    }
    let mut keys = json!({
        "model_type": said.architecture.families[0],
        "hidden_size": said.need("embedding_length")?,
        "num_hidden_layers": said.need("block_count")?,
        "num_attention_heads": heads.queries,
        "num_key_value_heads": heads.keys,
        "head_dim": d_head,
        "intermediate_size": said.need("feed_forward_length")?,
        "max_position_embeddings": said.need("context_length")?,
        "rms_norm_eps": said.need_float("attention.layer_norm_rms_epsilon")?,
        "attention_bias": said.has("blk.0.attn_q.bias"),
        "mlp_bias": said.has("blk.0.ffn_up.bias"),
        "hidden_act": "silu",
        "rope_parameters": rope,
    });
    match (said.architecture.name, said.window()?) {
        ("gemma" | "gemma2" | "gemma3", window) => gemma(said, window, d_head, &mut keys)?,
        ("phi3", window) => keys["sliding_window"] = json!(window),
        ("llama", Some(window)) => {
            keys["model_type"] = json!("mistral");
            keys["sliding_window"] = json!(window);
        }
        (_, None) => {}
        (_, Some(_)) => {
            return Err(said.unfit("attention.sliding_window", "0: windows of this architecture are not read"));
        }
    }
    Ok(keys)
}

/// What Gemma has more.
fn gemma(said: &Said<'_>, window: Option<usize>, d_head: usize, keys: &mut Json) -> Result<(), InputError> {
    keys["hidden_act"] = json!("gelu_pytorch_tanh");
    keys["hidden_activation"] = json!("gelu_pytorch_tanh");
    if said.architecture.name == "gemma" {
        return Ok(());
    }
    keys["sliding_window"] = json!(window);
    keys["attn_logit_softcapping"] = json!(said.float("attn_logit_softcapping")?);
    keys["final_logit_softcapping"] = json!(said.float("final_logit_softcapping")?);
    keys["query_pre_attn_scalar"] = query_scale(said, d_head)?;
    if let Some(flags) = said.metadata.flags(&said.key("attention.sliding_window_pattern")) {
        let kind = |flag: &bool| if *flag { "sliding_attention" } else { "full_attention" };
        keys["layer_types"] = flags.iter().map(kind).collect();
    } else if let Some(interval) = said.number("attention.sliding_window_pattern")? {
        keys["sliding_window_pattern"] = json!(interval);
    }
    if said.architecture.name == "gemma3" {
        let near = said.float("rope.freq_base_swa")?.unwrap_or(NEAR_THETA);
        let near = json!({"rope_type": "default", "rope_theta": near});
        keys["rope_parameters"] = json!({"full_attention": keys["rope_parameters"], "sliding_attention": near});
    }
    Ok(())
}

/// The square of what scores are divided by; files of llama.cpp leave it unsaid.
fn query_scale(said: &Said<'_>, d_head: usize) -> Result<Json, InputError> {
    if let Some(scale) = said.float("attention.scale")?.filter(|scale| *scale > 0.0) {
        // As exact as 32 bits have it.
        let scalar = (1e4 / (scale * scale)).round() / 1e4;
        return Ok(if scalar.fract() == 0.0 { json!(scalar as u64) } else { json!(scalar) });
    }
    let [layers, width] = [said.need("block_count")?, said.need("embedding_length")?];
    let heads = Heads::of(said.architecture, said.metadata)?.queries;
    Ok(json!(usual_scalar(said.architecture.name, [layers, width, heads, d_head])))
}

/// The square of what llama.cpp divides scores by: only the 27 billion parameters of Gemma 2 and 3, with their 46 and 62 layers, count the
/// width of the model in it and not that of a head. Source: `gemma2-iswa.cpp` and `gemma3.cpp` of llama.cpp.
pub(super) fn usual_scalar(architecture: &str, [layers, width, heads, d_head]: [usize; 4]) -> usize {
    match (architecture, layers) {
        ("gemma2", 46) | ("gemma3", 62) => width / heads.max(1),
        _ => d_head,
    }
}
