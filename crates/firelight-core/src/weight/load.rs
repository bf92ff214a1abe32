//! A model that is read from a file in which some of its matrices are in blocks.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::Device;
use firelight_kernels::{BlockFormat, supports_quantized_matmul};

use super::{dequantize, weights_of, with_blocks};
use crate::error::{Checks, ConfigError};

/// The model that `build` makes for a device, to be loaded from a file in which the matrices at these paths are in blocks of the formats of
/// these names. It is one of floats alone where there are no names. Flex multiplies blocks as they lie. For any other device the model is
/// built on flex, and [`onto_device`] brings it there once its weights are read.
///
/// # Errors
/// Lists names of no format, paths at which there is no weight, and weights whose rows are not of whole blocks.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use burn::tensor::Device;
/// use firelight_core::{LinearConfig, build_in_blocks, onto_device};
///
/// let names = BTreeMap::from([("weight".to_string(), "q8_0".to_string())]);
/// let device = Device::flex();
/// let layer = build_in_blocks(&names, &device, |device| LinearConfig::new(64, 3).init(device))?;
/// let layer = onto_device(layer, &device); // once its weights are read
/// assert!(layer.weight.format().is_some());
/// # Ok::<(), firelight_core::ConfigError>(())
/// ```
pub fn build_in_blocks<M: Module>(
    names: &BTreeMap<String, String>,
    device: &Device,
    build: impl FnOnce(&Device) -> M,
) -> Result<M, ConfigError> {
    if names.is_empty() {
        return Ok(build(device));
    }
    let formats = formats_of(names)?;
    let host = if supports_quantized_matmul(device) { device.clone() } else { Device::flex() };
    with_blocks(build(&host), &formats)
}

/// The model on its device after its weights are read: on any other than flex blocks become floats.
pub fn onto_device<M: Module>(model: M, device: &Device) -> M {
    let has_blocks = || weights_of(&model).iter().any(|weight| weight.format.is_some());
    if supports_quantized_matmul(device) || !has_blocks() { model } else { dequantize(model).fork(device) }
}

/// The formats of these names.
fn formats_of(names: &BTreeMap<String, String>) -> Result<BTreeMap<String, BlockFormat>, ConfigError> {
    let (mut formats, mut checks) = (BTreeMap::new(), Checks::default());
    for (path, name) in names {
        match BlockFormat::from_name(name) {
            Some(format) => {
                formats.insert(path.clone(), format);
            }
            None => checks = checks.require(false, || unknown(path, name)),
        }
    }
    checks.finish()?;
    Ok(formats)
}

fn unknown(path: &str, name: &str) -> String {
    let known = BlockFormat::ALL.map(BlockFormat::name).join(", ");
    format!("it names the unknown format `{name}` for `{path}`: expected one of {known}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinearConfig;

    fn names(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(path, name)| (path.to_string(), name.to_string())).collect()
    }

    #[test]
    fn a_model_is_built_as_the_names_say() {
        let build = |list: &[(&str, &str)]| {
            build_in_blocks(&names(list), &Device::flex(), |device| LinearConfig::new(64, 3).init(device))
        };
        assert_eq!(build(&[]).unwrap().weight.format(), None);
        let layer = onto_device(build(&[("weight", "q4_0")]).unwrap(), &Device::flex());
        assert_eq!(layer.weight.format(), Some(BlockFormat::Q4_0));
        let error = build(&[("bias", "q3"), ("weight", "q9_1")]).unwrap_err();
        assert_eq!(
            error.problems(),
            [
                "it names the unknown format `q3` for `bias`: expected one of q8_0, q4_0, q4_k, q6_k",
                "it names the unknown format `q9_1` for `weight`: expected one of q8_0, q4_0, q4_k, q6_k",
            ]
        );
        let error = build(&[("weight", "q4_k")]).unwrap_err();
        assert_eq!(error.problems(), ["`weight` has rows of 64 numbers: blocks of q4_k hold 256"]);
    }
}
