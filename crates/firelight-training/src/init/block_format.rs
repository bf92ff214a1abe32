//! A format of blocks as a recipe names it: `quantize = "q4_k"`.

use firelight_kernels::BlockFormat;
use firelight_storage::shortened;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn serialize<S: Serializer>(format: &Option<BlockFormat>, serializer: S) -> Result<S::Ok, S::Error> {
    format.map(BlockFormat::name).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BlockFormat>, D::Error> {
    let Some(name) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let known = || BlockFormat::ALL.map(BlockFormat::name).join(", ");
    let unknown = || D::Error::custom(format!("`{}`: expected one of {}", shortened(&name), known()));
    BlockFormat::from_name(&name).map(Some).ok_or_else(unknown)
}
