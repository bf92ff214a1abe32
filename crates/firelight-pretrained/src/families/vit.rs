//! ViT: patches as tokens behind a class token.
//!
//! Source: Dosovitskiy et al. 2021, §3.1 (<https://arxiv.org/abs/2010.11929>), and `modeling_vit.py` of `transformers`.

use firelight_core::ImagePooling;
use firelight_storage::InputError;

use super::image::{self, vit_rows};
use crate::export::image_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "vit", class: Class::Begins("ViT"), describe, keys: image_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let (d_ff, epsilon) = (keys.or("intermediate_size", 3072)?, keys.or("layer_norm_eps", 1e-12)?);
    let vit = image::vit(keys, ImagePooling::ClassToken, d_ff, epsilon)?;
    let rows = [vit_rows("vit", &vit), vec![WeightMapping::linear("classifier", "vit.head")]].concat();
    let ignored = vec!["vit.embeddings.mask_token", "vit.pooler.dense.*"];
    image::describe(keys, vit, true, Table { rows, prefix: "vit.", ignored })
}
