//! The arguments of models of images.

use burn::tensor::{Device, Tensor, TensorData};
use firelight_core::VisionTransformer;
use firelight_storage::TaskError;

use super::arrays::unfit;
use super::{Arrays, Numbers};

/// `pixel_values`, `[B, C, H, W]`, normalised, of a size that the model reads.
pub(super) fn pixels(inputs: &Arrays, vit: &VisionTransformer, device: &Device) -> Result<Tensor<4>, TaskError> {
    let Some(array) = inputs.get("pixel_values") else {
        return Err(unfit("pixel_values", "is missing", "the pixels of images"));
    };
    let channels = vit.patches.channels();
    match (&array.numbers, &array.shape[..]) {
        (Numbers::Floats(numbers), &[batch, found, height, width])
            if found == channels && batch > 0 && vit.patches.grid([height, width]).is_some() =>
        {
            Ok(Tensor::from_data(TensorData::new(numbers.clone(), [batch, found, height, width]), device))
        }
        (_, shape) => {
            let expected =
                format!("floats of shape [batch, {channels}, height, width], a whole number of patches each way");
            Err(unfit("pixel_values", &format!("is of shape {shape:?}"), &expected))
        }
    }
}
