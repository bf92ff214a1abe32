//! The type of what `firelight bench` computes with: floats, or weights in blocks of few bits.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, ensure};
use firelight::device::{Backend, NamedDevice};
use firelight::language::{BlockMix, LanguageModel};
use firelight::nn::BlockFormat;
use firelight::training::Precision;

use crate::commands::precision;
use crate::failure::Mistake;
use crate::output;

/// What `--dtype` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dtype {
    /// Floats of one type.
    Floats(Precision),
    /// Matrices in these blocks, all else in single precision.
    Blocks(BlockFormat),
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Floats(precision) => write!(f, "{precision}"),
            Self::Blocks(format) => f.write_str(format.name()),
        }
    }
}

impl FromStr for Dtype {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let floats = precision::parse(name).ok().map(Self::Floats);
        let found = floats.or_else(|| BlockFormat::from_name(name).map(Self::Blocks));
        found.ok_or_else(|| {
            let blocks = BlockFormat::ALL.map(BlockFormat::name).join(", ");
            format!("expected f32, bf16x3, bf16, f16 or one of {blocks}")
        })
    }
}

impl Dtype {
    /// The type of the numbers that are in no block.
    pub(super) fn floats(self) -> Precision {
        match self {
            Self::Floats(precision) => precision,
            Self::Blocks(_) => Precision::F32,
        }
    }

    /// Whether weights are in blocks.
    pub(super) fn is_blocks(self) -> bool {
        matches!(self, Self::Blocks(_))
    }

    /// # Errors
    /// If the device cannot compute with it.
    pub(super) fn check(self, chosen: &NamedDevice) -> Result<()> {
        let multiplies = !self.is_blocks() || chosen.name == Backend::Flex.name();
        let refused = || {
            let name = &chosen.name;
            Mistake(format!(
                "blocks of {self} are multiplied as they lie on the device flex alone, not on {name}: add --device flex"
            ))
        };
        ensure!(multiplies, refused());
        Ok(self.floats().check(&chosen.device)?)
    }

    /// The model with its parameters in this type; says how many matrices no blocks fit.
    ///
    /// # Errors
    /// If blocks fit none.
    pub(super) fn convert(self, model: LanguageModel) -> Result<LanguageModel> {
        match self {
            Self::Floats(precision) => Ok(precision.dtype().into_iter().fold(model, LanguageModel::cast)),
            Self::Blocks(format) => in_blocks(model, format),
        }
    }
}

fn in_blocks(model: LanguageModel, format: BlockFormat) -> Result<LanguageModel> {
    let mix = BlockMix::new(format);
    let (told, name, numbers) = (mix.report(&model), format.name(), format.numbers());
    let nothing =
        || format!("no matrix of this shape has rows of whole blocks of {name}, which hold {numbers} numbers");
    ensure!(!told.formats.is_empty(), Mistake(format!("{}: take q8_0, or another --config", nothing())));
    if !told.kept.is_empty() {
        let (kept, all) = (told.kept.len(), told.kept.len() + told.formats.len());
        output::note(format_args!(
            "{kept} of {all} matrices stay floats: their rows are not of whole blocks of {name}"
        ));
    }
    Ok(mix.apply(model))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_the_name_that_it_prints() {
        for name in ["f32", "bf16x3", "bf16", "f16", "q8_0", "q4_0", "q4_k", "q6_k"] {
            let dtype: Dtype = name.parse().unwrap();
            assert_eq!((dtype.to_string(), dtype.is_blocks()), (name.to_string(), name.starts_with('q')));
        }
        assert_eq!("q4_k".parse::<Dtype>().map(Dtype::floats), Ok(Precision::F32));
        let error = "q5_k".parse::<Dtype>().unwrap_err();
        assert_eq!(error, "expected f32, bf16x3, bf16, f16 or one of q8_0, q4_0, q4_k, q6_k");
    }
}
