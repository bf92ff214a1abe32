//! Activation functions by the names of `transformers`.

use firelight_core::Activation;
use firelight_storage::InputError;

use crate::Keys;

/// That of a plain feed-forward network.
pub(super) fn plain(keys: &Keys<'_>, key: &str, default: &str) -> Result<Activation, InputError> {
    Ok(match keys.or(key, default.to_string())?.as_str() {
        "gelu" => Activation::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" | "gelu_accurate" => Activation::GeluTanh,
        "quick_gelu" => Activation::QuickGelu,
        "relu" => Activation::Relu,
        "relu2" => Activation::SquaredRelu,
        "silu" | "swish" => Activation::Silu,
        _ => return Err(keys.unfit(key, "gelu, gelu_new, quick_gelu, relu, relu2 or silu")),
    })
}

/// That of a gated one, by its gate.
pub(super) fn gated(keys: &Keys<'_>, key: &str, default: &str) -> Result<Activation, InputError> {
    Ok(match plain(keys, key, default)? {
        Activation::Gelu => Activation::GeGlu,
        Activation::GeluTanh => Activation::GeGluTanh,
        Activation::Relu => Activation::ReGlu,
        Activation::Silu => Activation::SwiGlu,
        _ => return Err(keys.unfit(key, "gelu, gelu_pytorch_tanh, relu or silu")),
    })
}
