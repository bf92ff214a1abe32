//! Images for people to look at: what a model looked at, and many images in one.

use super::{Image, ImageShape};

/// How much of the rest of the image shows through where the weight is least.
const DARK: f64 = 0.25;

impl Image {
    /// The image in colour, dark where the weights of its `grid` of rows and columns are least and reddish where they are most; of
    /// its own size.
    ///
    /// # Panics
    /// If there is not one weight for each cell of the grid.
    pub fn highlighted(&self, grid: [usize; 2], weights: &[f64]) -> Self {
        let most = weights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let heat = weights.iter().map(|weight| (255.0 * weight / most).round() as u8).collect();
        let heat = Self::new(ImageShape::new(1, grid), heat).resized(self.shape().size());
        let image = self.clone().with_channels(3);
        let blended = image.pixels().iter().enumerate().map(|(index, pixel)| {
            let (channel, place) = (index / image.shape().plane(), index % image.shape().plane());
            let heat = f64::from(heat.pixels()[place]) / 255.0;
            let light = f64::from(*pixel) * (DARK + (1.0 - DARK) * heat);
            let red = if channel == 0 { 255.0 } else { 0.0 };
            (light + 0.4 * heat * (red - light)).round() as u8
        });
        Self::new(image.shape(), blended.collect())
    }

    /// Enlarged or reduced until the longer side has `longest` pixels.
    pub fn scaled_to(&self, longest: usize) -> Self {
        let side = self.shape().size().into_iter().max().unwrap_or(1);
        self.resized(self.shape().size().map(|pixels| (pixels * longest).div_ceil(side)))
    }

    /// Images of one shape in rows of `columns`, one beside the other; the last row is filled up with black.
    ///
    /// # Panics
    /// If there is no image, `columns` is 0, or the shapes differ.
    pub fn tiled(images: &[Self], columns: usize) -> Self {
        let (shape, columns) = (images[0].shape(), columns.min(images.len()));
        assert!(images.iter().all(|image| image.shape() == shape), "images of one shape");
        let rows = images.len().div_ceil(columns);
        let whole = ImageShape::new(shape.channels, [rows * shape.height, columns * shape.width]);
        Self::from_fn(whole, |channel, row, column| {
            let tile = row / shape.height * columns + column / shape.width;
            images.get(tile).map_or(0, |image| image.at(channel, row % shape.height, column % shape.width))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_dark_but_for_the_cell_that_counts() {
        let image = Image::new(ImageShape::new(1, [1, 2]), vec![200, 100]);
        // By hand: 200 * .25 = 50 in every channel; 100 and 40 % of red: 100 + .4 * 155 and 100 - .4 * 100.
        assert_eq!(image.highlighted([1, 2], &[0.0, 0.5]).pixels(), [50, 162, 50, 60, 50, 60]);
    }

    #[test]
    fn tiles_stand_in_reading_order() {
        let of = |value| Image::new(ImageShape::new(1, [1, 2]), vec![value, value + 1]);
        let found = Image::tiled(&[of(1), of(3), of(5)], 2);
        assert_eq!((found.shape(), found.pixels()), (ImageShape::new(1, [2, 4]), &[1, 2, 3, 4, 5, 6, 0, 0][..]));
        assert_eq!(Image::tiled(&[of(1)], 4), of(1));
    }

    #[test]
    fn the_longer_side_is_the_one_that_is_asked_for() {
        let scaled =
            |size| Image::new(ImageShape::new(1, size), vec![7; size[0] * size[1]]).scaled_to(224).shape().size();
        assert_eq!([scaled([2, 3]), scaled([448, 300])], [[150, 224], [224, 150]]); // 2 * 224 / 3 = 149.3
    }
}
