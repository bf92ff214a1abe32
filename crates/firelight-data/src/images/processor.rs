//! From an image of any size to the numbers that a model reads: its channels, its size, its mean and spread.

use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::codec::MAX_PIXELS;
use super::{Image, ImageShape, Normalization};

/// How a pixel is made where an image has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resample {
    /// The nearest pixel.
    Nearest,
    /// Linear between two pixels.
    #[default]
    Bilinear,
    /// Cubic over four pixels: Keys 1981 with `a = -1/2`.
    Bicubic,
    /// A windowed sinc over six pixels.
    Lanczos,
}

/// Where an image keeps its proportion and is longer than so many times its width only the middle is looked at, so that a strip one
/// pixel wide does not fill the memory.
const MAX_PROPORTION: usize = 8;

/// No side is brought to more pixels.
const MAX_SIDE: usize = 1 << 16;

/// The size that an image is brought to before its middle is cut out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResizeTo {
    /// Height and width, whatever the proportion of the image.
    Sides([usize; 2]),
    /// Pixels of the shorter side; the proportion is kept.
    ShortestEdge(usize),
}

impl ResizeTo {
    /// Height and width of the new image.
    fn of(self, [height, width]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Sides(sides) => sides,
            Self::ShortestEdge(edge) if height <= width => [edge, edge * width / height],
            Self::ShortestEdge(edge) => [edge * height / width, edge],
        }
    }

    /// Whether memory holds an image of this size.
    fn is_possible(self) -> bool {
        let [height, width] = match self {
            Self::Sides(sides) => sides,
            Self::ShortestEdge(edge) => [edge, edge.saturating_mul(MAX_PROPORTION)],
        };
        let is_side = |side: usize| (1..=MAX_SIDE).contains(&side);
        is_side(height) && is_side(width) && height * width <= MAX_PIXELS
    }
}

/// How an image of any size becomes one of the size that a model reads. By default both its sides are brought to those of the
/// model, linearly.
///
/// ```
/// use firelight_data::{Image, ImageShape, Resample, ResizeTo, Resizing};
///
/// let resizing = Resizing { resample: Resample::Bicubic, size: Some(ResizeTo::ShortestEdge(8)), crop: None };
/// let wide = Image::new(ImageShape::new(1, [4, 10]), vec![7; 40]);
/// let shape = ImageShape::new(3, [6, 6]);
/// assert_eq!(resizing.apply(&wide, shape).shape(), shape); // 8 x 20 pixels, of which the middle is left
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Resizing {
    /// How the new pixels are made.
    pub resample: Resample,
    /// The size before the middle is cut out; by default the size of what is cut out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<ResizeTo>,
    /// Height and width of the middle that is cut out, which black surrounds where the image is smaller; by default those that
    /// the model is made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crop: Option<[usize; 2]>,
}

impl Resizing {
    /// Whether it is the default.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether its images fit into memory.
    pub fn is_possible(&self) -> bool {
        self.size.is_none_or(ResizeTo::is_possible) && self.crop.is_none_or(|crop| ResizeTo::Sides(crop).is_possible())
    }

    /// The shape of its images, for a model that is made for this one.
    pub fn shape(&self, model: ImageShape) -> ImageShape {
        ImageShape::new(model.channels, self.crop.unwrap_or(model.size()))
    }

    /// An image, for a model that is made for this shape.
    ///
    /// # Panics
    /// Panics if one of them has other than 1 or 3 channels.
    pub fn apply(&self, image: &Image, model: ImageShape) -> Image {
        let cut = self.shape(model).size();
        let image = self.shortened(image.clone().with_channels(model.channels));
        let size = self.size.map_or(cut, |size| size.of(image.shape().size()));
        image.resampled(size, self.resample).center_crop(cut)
    }

    fn shortened(&self, image: Image) -> Image {
        let keeps_proportion = matches!(self.size, Some(ResizeTo::ShortestEdge(_)));
        if keeps_proportion { image.shortened(MAX_PROPORTION) } else { image }
    }

    /// The part of an image that a model sees, with the pixels that it has in its file.
    pub fn seen(&self, image: &Image, model: ImageShape) -> Image {
        let (cut, image) = (self.shape(model).size(), self.shortened(image.clone()));
        let Some(size) = self.size else { return image };
        let (old, new) = (image.shape().size(), size.of(image.shape().size()));
        image.center_crop([0, 1].map(|side| (cut[side] * old[side]).div_ceil(new[side])))
    }
}

/// What stands between image files and a model: [`Resizing`], then [`Normalization`].
#[derive(Clone, Debug, PartialEq)]
pub struct ImageProcessor {
    /// How images are brought to size.
    pub resizing: Resizing,
    /// How pixels become numbers.
    pub normalization: Normalization,
    /// The images that the model is made for.
    pub model: ImageShape,
}

impl ImageProcessor {
    /// The shape of what the model is given.
    pub fn shape(&self) -> ImageShape {
        self.resizing.shape(self.model)
    }

    /// Images as the model reads them, `[B, C, H, W]`.
    ///
    /// # Panics
    /// Panics if the model has more channels than there are statistics, or other than 1 or 3.
    pub fn tensor(&self, images: &[Image], device: &Device) -> Tensor<4> {
        let ImageShape { channels, height, width } = self.shape();
        let numbers = |image: &Image| self.normalization.apply(&self.resizing.apply(image, self.model));
        let pixels: Vec<f32> = images.iter().flat_map(numbers).collect();
        Tensor::from_data(TensorData::new(pixels, [images.len(), channels, height, width]), device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grey(size: [usize; 2]) -> Image {
        Image::from_fn(ImageShape::new(1, size), |_, y, x| (10 * y + x) as u8)
    }

    fn resizing(size: Option<ResizeTo>, crop: Option<[usize; 2]>) -> Resizing {
        Resizing { resample: Resample::Nearest, size, crop }
    }

    #[test]
    fn sizes_by_hand() {
        assert_eq!(ResizeTo::Sides([3, 4]).of([10, 20]), [3, 4]);
        assert_eq!(ResizeTo::ShortestEdge(5).of([10, 21]), [5, 10]);
        assert_eq!(ResizeTo::ShortestEdge(5).of([21, 10]), [10, 5]);
        assert_eq!(ResizeTo::ShortestEdge(5).of([7, 7]), [5, 5]);
    }

    #[test]
    fn the_middle_is_cut_out_or_surrounded() {
        let (image, model) = (grey([4, 5]), ImageShape::new(1, [2, 2]));
        let same = |crop| resizing(Some(ResizeTo::Sides([4, 5])), crop).apply(&image, model);
        assert_eq!(same(None).pixels(), [11, 12, 21, 22]);
        assert_eq!(same(Some([1, 3])), Image::new(ImageShape::new(1, [1, 3]), vec![11, 12, 13]));
        let wide = same(Some([2, 8]));
        assert_eq!(wide.pixels(), [0, 10, 11, 12, 13, 14, 0, 0, 0, 20, 21, 22, 23, 24, 0, 0]);
        assert_eq!(resizing(None, None).apply(&grey([2, 2]), model), grey([2, 2]));
    }

    #[test]
    fn what_is_seen_keeps_its_pixels() {
        let (image, model) = (grey([4, 12]), ImageShape::new(1, [2, 2]));
        let seen = |size| resizing(size, None).seen(&image, model);
        assert_eq!(seen(None), image);
        assert_eq!(seen(Some(ResizeTo::ShortestEdge(2))), image.center_crop([4, 4]));
        assert_eq!(seen(Some(ResizeTo::Sides([4, 4]))), image.center_crop([2, 6]));
    }

    #[test]
    fn a_strip_takes_no_memory() {
        let strip = Image::new(ImageShape::new(3, [1, 100_000]), vec![9; 300_000]);
        let found = resizing(Some(ResizeTo::ShortestEdge(1000)), None).apply(&strip, ImageShape::new(3, [4, 4]));
        assert_eq!(found, Image::new(ImageShape::new(3, [4, 4]), vec![9; 48]));
        // Squashed, all of it is seen. Half is black, half white; of the triangle around either half's middle 1/7 lies in the other.
        let strip = Image::from_fn(ImageShape::new(1, [1, 400_000]), |_, _, x| if x < 200_000 { 0 } else { 255 });
        let squashed = Resizing::default().apply(&strip, ImageShape::new(1, [256, 2]));
        let (dark, bright) = (squashed.pixels()[0], squashed.pixels()[1]);
        assert!(dark.abs_diff(36) < 5 && bright.abs_diff(219) < 5, "{dark} {bright}");
        assert!(squashed.pixels().chunks(2).all(|row| row == [dark, bright]));
    }

    #[test]
    fn a_strip_that_has_its_size_stays_as_it_is() {
        let strip = Image::from_fn(ImageShape::new(1, [2, 40]), |_, y, x| (y + 3 * x) as u8);
        assert_eq!(Resizing::default().apply(&strip, strip.shape()), strip);
    }

    #[test]
    fn what_no_memory_holds_is_told() {
        assert!(Resizing::default().is_possible() && Resizing::default().is_plain());
        assert!(!resizing(Some(ResizeTo::ShortestEdge(0)), None).is_possible());
        assert!(!resizing(Some(ResizeTo::Sides([1 << 15, 1 << 15])), None).is_possible());
        assert!(!resizing(Some(ResizeTo::Sides([1 << 26, 1])), None).is_possible());
        assert!(!resizing(None, Some([usize::MAX, 2])).is_possible());
    }

    #[test]
    fn a_model_of_grey_images_is_given_numbers() {
        let normalization = Normalization { mean: vec![0.5], std: vec![0.5] };
        let processor =
            ImageProcessor { resizing: Resizing::default(), normalization, model: ImageShape::new(1, [1, 2]) };
        let image = Image::new(ImageShape::new(3, [1, 2]), vec![0, 255, 0, 255, 0, 255]);
        let found = processor.tensor(&[image.clone(), image], &Device::default());
        assert_eq!(found.dims(), [2, 1, 1, 2]);
        assert_eq!(found.try_into_vec_as::<f32>().unwrap(), [-1.0, 1.0, -1.0, 1.0]);
    }
}
