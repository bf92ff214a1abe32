//! DeiT: ViT with a second token, which learns from a teacher.
//!
//! Source: Touvron et al. 2021, §4 (<https://arxiv.org/abs/2012.12877>), and `modeling_deit.py` of `transformers`.

use firelight_core::ImagePooling;
use firelight_storage::InputError;

use super::image::{self, vit_rows};
use crate::export::image_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "deit", class: Class::Begins("DeiT"), describe, keys: image_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let taught = keys.architecture().ends_with("WithTeacher");
    let pooling = if taught { ImagePooling::Distilled } else { ImagePooling::ClassOfDistilled };
    let (d_ff, epsilon) = (keys.or("intermediate_size", 3072)?, keys.or("layer_norm_eps", 1e-12)?);
    let vit = image::vit(keys, pooling, d_ff, epsilon)?;
    let heads = vec![
        WeightMapping::linear(if taught { "cls_classifier" } else { "classifier" }, "vit.head"),
        WeightMapping::linear("distillation_classifier", "vit.distillation.head"),
    ];
    let rows = [vit_rows("deit", &vit), heads].concat();
    let ignored = vec!["deit.embeddings.mask_token", "deit.pooler.dense.*"];
    image::describe(keys, vit, true, Table { rows, prefix: "deit.", ignored })
}
