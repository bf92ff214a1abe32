//! One file for each family, which is a table: from `config.json` to the structure of a model and back, and from the names of tensors to
//! those of parameters.

mod activation;
mod encoder;
mod image;
mod layer_types;
mod rope;

mod albert;
mod bart;
mod bert;
mod clip;
mod deepseek;
mod deit;
mod dinov2;
mod distilbert;
mod electra;
mod gemma;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod llama;
mod mistral;
mod mixtral;
mod modernbert;
mod mpnet;
mod olmo2;
mod phi3;
mod qwen;
mod roberta;
mod smollm3;
mod starcoder2;
mod t5;
mod timm;
mod vit;

use crate::family::Family;

/// The families that are read, in the order in which an export tries them: of two that have a structure the first one writes it. A new
/// one stands behind those that it goes on from, and those whose positions depend on the id of the padding behind others.
pub(crate) const FAMILIES: &[Family] = &[
    gpt2::FAMILY,
    llama::FAMILY,
    mistral::FAMILY,
    qwen::QWEN_2,
    qwen::QWEN_3,
    gemma::GEMMA,
    gemma::GEMMA_2,
    gemma::GEMMA_3,
    smollm3::FAMILY,
    olmo2::FAMILY,
    phi3::FAMILY,
    gpt_neox::FAMILY,
    mixtral::FAMILY,
    qwen::QWEN_3_MOE,
    gpt_oss::FAMILY,
    deepseek::FAMILY,
    starcoder2::FAMILY,
    bert::FAMILY,
    distilbert::FAMILY,
    electra::FAMILY,
    roberta::ROBERTA,
    roberta::CAMEMBERT,
    roberta::XLM_ROBERTA,
    albert::FAMILY,
    mpnet::FAMILY,
    modernbert::FAMILY,
    vit::FAMILY,
    deit::FAMILY,
    dinov2::FAMILY,
    timm::FAMILY,
    clip::FAMILY,
    t5::FAMILY,
    bart::BART,
    bart::MBART,
    bart::MARIAN,
];

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::HubFolder;
    use crate::family::{describe, family_names};

    /// The models of a family that `tests/fixtures/pretrained.py` makes.
    pub(crate) fn folders_of(family: &Family) -> Vec<HubFolder> {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained");
        let begin = family.name.replace('-', "_") + "-";
        let paths = fs::read_dir(home).expect("the fixtures").map(|entry| entry.unwrap().path());
        let is_of_family = |path: &Path| path.file_name().unwrap().to_string_lossy().starts_with(&begin);
        paths.filter(|path| is_of_family(path)).map(|path| HubFolder::open(path).unwrap()).collect()
    }

    #[test]
    fn every_family_is_listed_once() {
        let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/families")).unwrap();
        // In two parts, so that this line is not counted.
        let declaration = [": Family", " ="].concat();
        let declared = |text: String| text.matches(&declaration).count();
        let count: usize = files.map(|file| declared(fs::read_to_string(file.unwrap().path()).unwrap())).sum();
        assert_eq!(FAMILIES.len(), count);
        let names = family_names();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
    }

    #[test]
    fn every_family_is_read_by_its_model_type() {
        for family in FAMILIES {
            let folders = folders_of(family);
            assert!(!folders.is_empty(), "{} has no case in tests/fixtures/pretrained.py", family.name);
            for folder in folders {
                assert_eq!(folder.model_type(), Some(family.name));
                describe(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.path().display()));
            }
        }
    }
}
