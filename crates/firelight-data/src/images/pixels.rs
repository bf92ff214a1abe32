//! One image as bytes, channel by channel.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Channels, height and width of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageShape {
    /// 1 for shades of grey, 3 for red, green and blue.
    pub channels: usize,
    /// Rows of pixels.
    pub height: usize,
    /// Columns of pixels.
    pub width: usize,
}

impl ImageShape {
    /// `channels` of `[height, width]` pixels.
    pub fn new(channels: usize, [height, width]: [usize; 2]) -> Self {
        Self { channels, height, width }
    }

    /// Height and width.
    pub fn size(&self) -> [usize; 2] {
        [self.height, self.width]
    }

    /// Pixels of one channel.
    pub fn plane(&self) -> usize {
        self.height * self.width
    }

    /// Numbers of all channels together.
    pub fn volume(&self) -> usize {
        self.channels * self.plane()
    }
}

impl fmt::Display for ImageShape {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} x {} x {}", self.channels, self.height, self.width)
    }
}

/// An image: pixels from 0 to 255, `[C, H, W]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    shape: ImageShape,
    pixels: Vec<u8>,
}

impl Image {
    /// An image of these pixels, channel by channel, row by row.
    ///
    /// # Panics
    /// Panics if there is another number of pixels than `shape` says.
    pub fn new(shape: ImageShape, pixels: Vec<u8>) -> Self {
        assert_eq!(pixels.len(), shape.volume(), "pixels of an image of {shape}");
        Self { shape, pixels }
    }

    /// The image whose pixels are those of a function of channel, row and column.
    ///
    /// ```
    /// use firelight_data::{Image, ImageShape};
    ///
    /// let ramp = Image::from_fn(ImageShape::new(1, [2, 3]), |_, row, column| (10 * row + column) as u8);
    /// assert_eq!(ramp.pixels(), [0, 1, 2, 10, 11, 12]);
    /// ```
    pub fn from_fn(shape: ImageShape, pixel: impl Fn(usize, usize, usize) -> u8) -> Self {
        let ImageShape { channels, height, width } = shape;
        let rows = (0..channels).flat_map(|c| (0..height).map(move |y| (c, y)));
        let pixels = rows.flat_map(|(c, y)| (0..width).map(move |x| (c, y, x))).map(|(c, y, x)| pixel(c, y, x));
        Self { shape, pixels: pixels.collect() }
    }

    /// Channels, height and width.
    pub fn shape(&self) -> ImageShape {
        self.shape
    }

    /// `[C, H, W]`.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The pixel of a channel at a place.
    ///
    /// # Panics
    /// Panics if it lies outside.
    pub fn at(&self, channel: usize, row: usize, column: usize) -> u8 {
        self.pixels[(channel * self.shape.height + row) * self.shape.width + column]
    }

    /// The pixel at a place that may lie outside, where it is black.
    pub(crate) fn at_or_black(&self, channel: usize, row: isize, column: isize) -> u8 {
        match (usize::try_from(row), usize::try_from(column)) {
            (Ok(row), Ok(column)) if row < self.shape.height && column < self.shape.width => {
                self.at(channel, row, column)
            }
            _ => 0,
        }
    }

    /// Every pixel changed alike.
    pub(crate) fn map(mut self, change: impl Fn(u8) -> u8) -> Self {
        self.pixels.iter_mut().for_each(|pixel| *pixel = change(*pixel));
        self
    }

    /// The same image with 1 or 3 channels: grey is repeated, and colours become their luma by ITU-R BT.601, as in Pillow.
    ///
    /// # Panics
    /// Panics if the image has or is to have another number of channels.
    pub fn with_channels(self, channels: usize) -> Self {
        let shape = ImageShape { channels, ..self.shape };
        match (self.shape.channels, channels) {
            (from, to) if from == to => self,
            (1, 3) => Self { shape, pixels: self.pixels.repeat(3) },
            (3, 1) => Self::from_fn(shape, |_, y, x| self.luma(y, x)),
            (from, to) => panic!("an image of {from} channels cannot have {to}: expected 1 or 3"),
        }
    }

    /// So many pixels around the middle, `[height, width]`; where the image has fewer, black surrounds it.
    pub fn center_crop(&self, [height, width]: [usize; 2]) -> Self {
        let shape = ImageShape { height, width, ..self.shape };
        if shape == self.shape {
            return self.clone();
        }
        let first = |old: usize, new: usize| (old as isize - new as isize) / 2;
        let [top, left] = [first(self.shape.height, height), first(self.shape.width, width)];
        Self::from_fn(shape, |channel, y, x| self.at_or_black(channel, top + y as isize, left + x as isize))
    }

    /// The middle of an image one of whose sides is longer than so many of the other, that long; any other as it is.
    pub(super) fn shortened(self, proportion: usize) -> Self {
        let [height, width] = self.shape.size();
        let most = proportion.saturating_mul(height.min(width));
        self.center_crop([height.min(most), width.min(most)])
    }

    /// How bright a pixel is, from 0 to 255.
    pub(crate) fn luma(&self, row: usize, column: usize) -> u8 {
        match self.shape.channels {
            3 => {
                let [red, green, blue] = [0, 1, 2].map(|channel| u32::from(self.at(channel, row, column)));
                ((19_595 * red + 38_470 * green + 7_471 * blue + 0x8000) >> 16) as u8
            }
            _ => self.at(0, row, column),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_run_over_channels_then_rows_then_columns() {
        let image = Image::from_fn(ImageShape::new(2, [2, 3]), |c, y, x| (100 * c + 10 * y + x) as u8);
        assert_eq!(image.pixels(), [0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112]);
        assert_eq!((image.at(1, 1, 2), image.at_or_black(1, 2, 0), image.at_or_black(0, 0, -1)), (112, 0, 0));
    }

    #[test]
    fn the_center_of_an_image_by_hand() {
        let image = Image::from_fn(ImageShape::new(1, [2, 5]), |_, y, x| (10 * y + x + 1) as u8);
        assert_eq!(image.center_crop([2, 2]).pixels(), [2, 3, 12, 13]);
        assert_eq!(image.center_crop([1, 3]).pixels(), [2, 3, 4]);
        assert_eq!(image.center_crop([3, 2]).pixels(), [2, 3, 12, 13, 0, 0]);
        assert_eq!(image.center_crop([2, 5]), image);
        assert_eq!((image.clone().shortened(2).shape().size(), image.clone().shortened(3)), ([2, 4], image));
    }

    #[test]
    fn colours_become_grey_as_in_pillow() {
        // Image.new("RGB", (1, 1), (255, 0, 0)).convert("L").getpixel((0, 0)), and so on: 76, 150, 29, 255.
        let grey = |rgb: [u8; 3]| Image::new(ImageShape::new(3, [1, 1]), rgb.to_vec()).with_channels(1).pixels()[0];
        assert_eq!([grey([255, 0, 0]), grey([0, 255, 0]), grey([0, 0, 255]), grey([255; 3])], [76, 150, 29, 255]);
        let repeated = Image::new(ImageShape::new(1, [1, 2]), vec![7, 9]).with_channels(3);
        assert_eq!(repeated.pixels(), [7, 9, 7, 9, 7, 9]);
    }

    #[test]
    #[should_panic(expected = "pixels of an image of 1 x 2 x 2")]
    fn other_pixels_than_the_shape_has_are_refused() {
        let _ = Image::new(ImageShape::new(1, [2, 2]), vec![0; 3]);
    }
}
