//! Vision transformers as timm publishes them: ViT and DeiT under shorter names, with a `config.json` that says the size by a name.
//!
//! Source: `timm/models/vision_transformer.py` and `deit.py` of timm 1.0.

use firelight_core::{Activation, ImagePooling, NormConfig, TransformerConfig, VisionTransformerConfig};
use firelight_data::{Normalization, Resample, ResizeTo, Resizing};
use firelight_storage::InputError;
use firelight_vision::{ImageEncoderConfig, VisionConfig};
use serde_json::json;

use crate::export::image_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys, Step, Structure, Table, WeightMapping};

/// Width, layers and heads of a size.
const SIZES: [(&str, [usize; 3]); 5] = [
    ("tiny", [192, 12, 3]),
    ("small", [384, 12, 6]),
    ("base", [768, 12, 12]),
    ("large", [1024, 24, 16]),
    ("huge", [1280, 32, 16]),
];

/// Mean and deviation of pixels where nobody says otherwise.
const HALF: f64 = 0.5;

/// `IMAGENET_DEFAULT_MEAN` and `IMAGENET_DEFAULT_STD` of timm, where nothing is said.
const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

pub(crate) const FAMILY: Family = Family { name: "timm", class: Class::Another, describe, keys: image_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let name: String = keys.need("architecture")?;
    let unknown =
        || keys.unfit("architecture", "a name such as vit_base_patch16_224 or deit_small_distilled_patch16_224");
    let parts: Vec<&str> = name.split('.').next().unwrap_or_default().split('_').collect();
    let [family @ ("vit" | "deit" | "deit3"), size, ..] = parts[..] else { return Err(unknown()) };
    let size = SIZES.iter().find(|(known, _)| *known == size).map(|(_, size)| *size).ok_or_else(unknown)?;
    let is_distilled = parts.contains(&"distilled");
    let known = |part: &&str| part.starts_with("patch") || part.parse::<usize>().is_ok() || *part == "distilled";
    if family == "deit3" || !parts[2..].iter().all(known) {
        return Err(unknown());
    }
    let vit = vit(keys, size, is_distilled, &parts)?;
    let table = Table { rows: rows(&vit), prefix: "", ignored: Vec::new() };
    Ok(Description { structure: structure(keys, vit)?, table })
}

fn structure(keys: &Keys<'_>, vit: VisionTransformerConfig) -> Result<Structure, InputError> {
    let published = keys.section("pretrained_cfg");
    let numbers = |key: &str, usual: [f32; 3]| {
        let usual = if vit.channels == 3 { usual.to_vec() } else { vec![HALF as f32; vit.channels] };
        published.as_ref().map_or(Ok(usual.clone()), |section| section.or(key, usual.clone()))
    };
    let normalization = Normalization { mean: numbers("mean", IMAGENET_MEAN)?, std: numbers("std", IMAGENET_STD)? };
    if !normalization.fits(vit.channels) {
        return Err(keys.unfit("pretrained_cfg", "mean and std with a number above 0 for each channel"));
    }
    let resizing = published.as_ref().map_or(Ok(Resizing::default()), |section| resizing(section, &vit))?;
    let structure = match keys.or("num_classes", 1000)? {
        0 => Structure::ImageEncoder(ImageEncoderConfig::new(vit)),
        count => {
            let classes = keys.names("label_names", count)?;
            let vit = vit.with_n_classes(classes.len());
            Structure::Image(VisionConfig::new(classes, vit))
        }
    };
    Ok(structure.with_pixels((resizing, normalization)))
}

/// How timm brings images to size when it evaluates: the shorter side is longer than that of the model by `crop_pct`.
/// Where 3, 7, 11 or so pixels are cut off, timm begins one pixel further on: it rounds halves to even numbers.
fn resizing(keys: &Keys<'_>, vit: &VisionTransformerConfig) -> Result<Resizing, InputError> {
    let name: String = keys.or("interpolation", "bicubic".into())?;
    let resample = match name.as_str() {
        "nearest" => Resample::Nearest,
        "bilinear" => Resample::Bilinear,
        "bicubic" => Resample::Bicubic,
        "lanczos" => Resample::Lanczos,
        _ => return Err(keys.unfit("interpolation", "nearest, bilinear, bicubic or lanczos")),
    };
    let share: f64 = keys.or("crop_pct", 0.875)?;
    if !(0.01..=1.0).contains(&share) {
        return Err(keys.unfit("crop_pct", "a share above 0 and at most 1"));
    }
    let before = vit.image_size.map(|side| (side as f64 / share) as usize);
    let mode: String = keys.or("crop_mode", "center".into())?;
    let size = match mode.as_str() {
        "center" => Some(ResizeTo::ShortestEdge(before[0].min(before[1]))),
        "squash" => Some(ResizeTo::Sides(before)).filter(|_| before != vit.image_size),
        _ => return Err(keys.unfit("crop_mode", "center or squash")),
    };
    Ok(Resizing { resample, size, crop: None })
}

fn vit(
    keys: &Keys<'_>,
    [d_model, layers, heads]: [usize; 3],
    is_distilled: bool,
    parts: &[&str],
) -> Result<VisionTransformerConfig, InputError> {
    keys.only("global_pool", &json!("token"))?;
    let named = |prefix: &str| parts.iter().find_map(|part| part.strip_prefix(prefix)?.parse().ok());
    let (patch, image) =
        (named("patch").unwrap_or(16), parts[2..].iter().find_map(|part| part.parse().ok()).unwrap_or(224));
    // What differs from the size that the name says.
    let own = keys.section("model_args");
    let number = |key: &str, usual: usize| own.as_ref().map_or(Ok(usual), |own| own.or(key, usual));
    for (key, known) in [
        ("class_token", json!(true)),
        ("reg_tokens", json!(0)),
        ("pre_norm", json!(false)),
        ("qk_norm", json!(false)),
        ("init_values", json!(null)),
        ("global_pool", json!("token")),
        ("no_embed_class", json!(false)),
        ("final_norm", json!(true)),
    ] {
        own.as_ref().map_or(Ok(()), |own| own.only(key, &known))?;
    }
    let d_model = number("embed_dim", d_model)?;
    let ratio: f64 = own.as_ref().map_or(Ok(4.0), |own| own.or("mlp_ratio", 4.0))?;
    let qkv_bias = own.as_ref().map_or(Ok(true), |own| own.or("qkv_bias", true))?;
    let stack = TransformerConfig::encoder(d_model, number("num_heads", heads)?, number("depth", layers)?)
        .with_d_ff((d_model as f64 * ratio) as usize)
        .with_activation(Activation::Gelu)
        .with_norm(NormConfig::Layer { epsilon: 1e-6, bias: true })
        .with_qkv_bias(qkv_bias);
    let pooling = if is_distilled { ImagePooling::Distilled } else { ImagePooling::ClassToken };
    let vit = VisionTransformerConfig::new(number("img_size", image)?, number("patch_size", patch)?, 0, stack);
    Ok(vit.with_channels(number("in_chans", 3)?).with_pooling(pooling))
}

fn rows(vit: &VisionTransformerConfig) -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("blocks.{{}}.{name}");
    let ours = |name: &str| format!("vit.transformer.blocks.{{}}.{name}");
    let lens = vec![vit.channels, vit.patch_size, vit.patch_size];
    let part = |(index, name): (usize, &str)| {
        WeightMapping::linear(theirs("attn.qkv"), ours(&format!("attention.projection.{name}"))).step(Step::Part {
            axis: 0,
            index,
            of: 3,
        })
    };
    let rest = [
        WeightMapping::tensor("cls_token", "vit.class_token"),
        WeightMapping::tensor("dist_token", "vit.distillation.token"),
        WeightMapping::tensor("pos_embed", "vit.position").step(Step::Alone),
        WeightMapping::linear("patch_embed.proj", "vit.patches.projection").step(Step::Merged { first: 1, lens }),
        WeightMapping::norm(theirs("norm1"), ours("attention_norm")),
        WeightMapping::linear(theirs("attn.proj"), ours("attention.output")),
        WeightMapping::norm(theirs("norm2"), ours("feed_forward_norm")),
        WeightMapping::linear(theirs("mlp.fc1"), ours("feed_forward.up")),
        WeightMapping::linear(theirs("mlp.fc2"), ours("feed_forward.down")),
        WeightMapping::norm("norm", "vit.transformer.norm"),
        WeightMapping::linear("head", "vit.head"),
        WeightMapping::linear("head_dist", "vit.distillation.head"),
    ];
    ["query", "key", "value"].into_iter().enumerate().map(part).chain(rest).collect()
}
