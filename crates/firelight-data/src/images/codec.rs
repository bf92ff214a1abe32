//! Images from and to files, and other sizes, by the `image` crate. Of the formats that it knows PNG and JPEG are built in.

use std::io::Cursor;
use std::path::Path;

use firelight_storage::{InputError, read_file, shortened_reason, write_atomic};
use image::imageops::{FilterType, resize};
use image::{DynamicImage, GrayImage, ImageFormat, ImageReader, RgbImage};

use super::{Image, ImageError, ImageShape, Resample};

/// No image has more pixels, 8192 x 8192: a file of some kilobytes can ask for as many as fill any memory.
pub(super) const MAX_PIXELS: usize = 1 << 26;

/// No file of an image is larger, in bytes.
const LIMIT: u64 = 1 << 30;

impl Image {
    /// Reads a PNG or JPEG file. Shades of grey have one channel, all others three; transparency is left out.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is neither PNG nor JPEG, is damaged or cut short, or has more than 8192 x 8192
    /// pixels.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ImageError> {
        let path = path.as_ref();
        let bytes = read_file(path, LIMIT)?;
        let name = path.display();
        let format = format_of(&bytes).ok_or_else(|| {
            unreadable(&format!(
                "`{name}` is no image: its bytes are of no known format; expected PNG or JPEG, so remove it"
            ))
        })?;
        let damaged = |reason: &str| {
            let reason = shortened_reason(reason);
            unreadable(&format!("the image `{name}` is damaged or cut short: {reason}; restore or remove it"))
        };
        let is_whole = if format == ImageFormat::Jpeg { jpeg_is_whole(&bytes) } else { png_is_whole(&bytes) };
        if !is_whole {
            return Err(damaged("the end of the image is missing"));
        }
        let size = ImageReader::with_format(Cursor::new(&bytes), format).into_dimensions();
        let (width, height) = size.map_err(|error| damaged(&error.to_string()))?;
        let (width, height) = (width as usize, height as usize);
        if height.saturating_mul(width) > MAX_PIXELS {
            return Err(unreadable(&format!(
                "the image `{name}` has {width} x {height} pixels, above the limit of {MAX_PIXELS}: make it smaller"
            )));
        }
        let decoded = ImageReader::with_format(Cursor::new(bytes), format).decode();
        Ok(Self::from_decoded(decoded.map_err(|error| damaged(&error.to_string()))?))
    }

    fn from_decoded(decoded: DynamicImage) -> Self {
        let size = [decoded.height() as usize, decoded.width() as usize];
        match decoded.color().has_color() {
            true => Self::from_interleaved(ImageShape::new(3, size), decoded.into_rgb8().as_raw()),
            false => Self::new(ImageShape::new(1, size), decoded.into_luma8().into_raw()),
        }
    }

    /// From `[H, W, C]`, as files have it.
    fn from_interleaved(shape: ImageShape, bytes: &[u8]) -> Self {
        Self::from_fn(shape, |c, y, x| bytes[(y * shape.width + x) * shape.channels + c])
    }

    fn to_interleaved(&self) -> Vec<u8> {
        let ImageShape { channels, height, width } = self.shape();
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
        places.flat_map(|(y, x)| (0..channels).map(move |c| self.at(c, y, x))).collect()
    }

    /// The same image with `[height, width]` pixels: bilinear, over as many pixels as one of the new ones covers, as Pillow
    /// does it. Its sides may change their proportion.
    ///
    /// # Panics
    /// Panics if the image has other than 1 or 3 channels.
    pub fn resized(&self, size: [usize; 2]) -> Self {
        self.resampled(size, Resample::Bilinear)
    }

    /// As [`resized`](Self::resized), with pixels that are made another way.
    ///
    /// # Panics
    /// Panics if the image has other than 1 or 3 channels.
    pub fn resampled(&self, [height, width]: [usize; 2], resample: Resample) -> Self {
        let shape = ImageShape { height, width, ..self.shape() };
        if shape == self.shape() {
            return self.clone();
        }
        let [old_height, old_width] = self.shape().size();
        // The crate makes the rows first, over the whole width of the old image.
        if height.saturating_mul(old_width) > MAX_PIXELS && width < old_width {
            return self.resampled([old_height, width], resample).resampled([height, width], resample);
        }
        let ([old_height, old_width], [rows, columns]) =
            ([old_height, old_width].map(to_u32), [height, width].map(to_u32));
        let (bytes, filter) = (self.to_interleaved(), filter(resample));
        let made = "as many bytes as pixels";
        match shape.channels {
            1 => {
                let old = GrayImage::from_raw(old_width, old_height, bytes).unwrap_or_else(|| unreachable!("{made}"));
                Self::new(shape, resize(&old, columns, rows, filter).into_raw())
            }
            3 => {
                let old = RgbImage::from_raw(old_width, old_height, bytes).unwrap_or_else(|| unreachable!("{made}"));
                Self::from_interleaved(shape, &resize(&old, columns, rows, filter).into_raw())
            }
            channels => panic!("an image of {channels} channels: expected 1 or 3"),
        }
    }

    /// Writes a PNG file, replacing one that is there.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    ///
    /// # Panics
    /// Panics if the image has other than 1 or 3 channels.
    pub fn write_png(&self, path: impl AsRef<Path>) -> Result<(), ImageError> {
        Ok(write_atomic(path, self.to_png())?)
    }

    /// The bytes of a PNG file.
    ///
    /// ```
    /// use firelight_data::{Image, ImageShape};
    ///
    /// let grey = Image::new(ImageShape::new(1, [1, 2]), vec![0, 255]);
    /// assert!(grey.to_png().starts_with(b"\x89PNG"));
    /// ```
    ///
    /// # Panics
    /// Panics if the image has other than 1 or 3 channels.
    pub fn to_png(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes, ImageFormat::Png);
        bytes
    }

    fn encode(&self, bytes: &mut Vec<u8>, format: ImageFormat) {
        let ImageShape { channels, height, width } = self.shape();
        let color = match channels {
            1 => image::ExtendedColorType::L8,
            3 => image::ExtendedColorType::Rgb8,
            channels => panic!("an image of {channels} channels: expected 1 or 3"),
        };
        let (pixels, [height, width]) = (self.to_interleaved(), [height, width].map(to_u32));
        let written = image::write_buffer_with_format(&mut Cursor::new(bytes), &pixels, width, height, color, format);
        written.unwrap_or_else(|error| unreachable!("memory takes every image: {error}"));
    }
}

/// A file that is not decoded, for this reason, with what can be done about any of them.
fn unreadable(problem: &str) -> ImageError {
    let or_skip = "or leave out what cannot be read with data.skip_unreadable = true";
    ImageError::Unreadable(InputError::new(format!("{problem}, {or_skip}")))
}

fn filter(resample: Resample) -> FilterType {
    match resample {
        Resample::Nearest => FilterType::Nearest,
        Resample::Bilinear => FilterType::Triangle,
        Resample::Bicubic => FilterType::CatmullRom,
        Resample::Lanczos => FilterType::Lanczos3,
    }
}

fn to_u32(pixels: usize) -> u32 {
    u32::try_from(pixels).unwrap_or(u32::MAX)
}

/// The format that the first bytes tell, whatever the file is called.
fn format_of(bytes: &[u8]) -> Option<ImageFormat> {
    let format = image::guess_format(bytes).ok()?;
    matches!(format, ImageFormat::Png | ImageFormat::Jpeg).then_some(format)
}

/// Whether the chunk of the end comes. The decoder stops before it.
///
/// Source: W3C, Portable Network Graphics, §5.3 (<https://www.w3.org/TR/png/>): after 8 bytes come chunks of a length, a name of 4
/// bytes, as many bytes as the length says, and a checksum of 4.
fn png_is_whole(bytes: &[u8]) -> bool {
    let mut at = 8;
    while let Some(&[a, b, c, d, ref name @ ..]) = bytes.get(at..at + 8).and_then(|head| head.first_chunk::<8>()) {
        at += 12 + u32::from_be_bytes([a, b, c, d]) as usize;
        if name == b"IEND" {
            return at <= bytes.len();
        }
    }
    false
}

/// Whether the marker of the end comes. The decoder fills what is missing with grey.
///
/// Source: ITU-T T.81 (<https://www.w3.org/Graphics/JPEG/itu-t81.pdf>), B.1.1: segments begin with `FF` and a code, and have their
/// length behind it; in the data of a scan, `FF 00` is a byte and `FF D0` to `FF D7` are restarts.
fn jpeg_is_whole(bytes: &[u8]) -> bool {
    const END: u8 = 0xd9;
    const SCAN: u8 = 0xda;
    let mut at = 2; // the marker of the beginning
    let mut in_scan = false;
    while let Some(&[first, code]) = bytes.get(at..at + 2).and_then(|pair| pair.first_chunk::<2>()) {
        match (first, code) {
            (0xff, END) => return true,
            (0xff, 0xff) => at += 1,
            (0xff, 0x00 | 0x01 | 0xd0..=0xd7) => at += 2,
            (0xff, code) => {
                let Some(length) = bytes.get(at + 2..at + 4) else { return false };
                at += 2 + usize::from(u16::from_be_bytes([length[0], length[1]]));
                in_scan = code == SCAN;
            }
            _ if in_scan => at += 1,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;

    /// Waves of colour.
    fn image(channels: usize, size: [usize; 2]) -> Image {
        let wave = |c: usize, y: usize, x: usize| 128.0 + 100.0 * ((c + 2 * y + 3 * x) as f64 / 9.0).sin();
        Image::from_fn(ImageShape::new(channels, size), |c, y, x| wave(c, y, x) as u8)
    }

    fn bytes_of(image: &Image, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Vec::new();
        image.encode(&mut bytes, format);
        bytes
    }

    fn opened(bytes: &[u8]) -> Result<Image, ImageError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("image");
        fs::write(&path, bytes).unwrap();
        Image::open(&path)
    }

    #[test]
    fn a_png_comes_back_to_the_bit_and_a_jpeg_nearly() {
        let home = tempfile::tempdir().unwrap();
        for channels in [1, 3] {
            let image = image(channels, [12, 17]);
            let path = home.path().join("image.png");
            image.write_png(&path).unwrap();
            assert_eq!(Image::open(&path).unwrap(), image);
            let found = opened(&bytes_of(&image, ImageFormat::Jpeg)).unwrap();
            let differs = found.pixels().iter().zip(image.pixels()).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            assert!(found.shape() == image.shape() && differs < 40, "{differs}");
        }
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_refused() {
        for (format, channels) in [(ImageFormat::Png, 3), (ImageFormat::Jpeg, 3), (ImageFormat::Jpeg, 1)] {
            let bytes = bytes_of(&image(channels, [33, 40]), format);
            for length in [bytes.len() - 1, bytes.len() - 2, bytes.len() / 2, bytes.len() / 4, 20, 4] {
                let error = opened(&bytes[..length]).expect_err("it is cut");
                assert!(error.is_user_error() && error.to_string().contains("skip_unreadable"), "{length}: {error}");
            }
        }
    }

    /// The header of a PNG file with another size, and its checksum.
    pub(in crate::images) fn with_png_size(mut bytes: Vec<u8>, width: u32, height: u32) -> Vec<u8> {
        bytes[16..20].copy_from_slice(&width.to_be_bytes());
        bytes[20..24].copy_from_slice(&height.to_be_bytes());
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&crc.sum().to_be_bytes());
        bytes
    }

    #[test]
    fn an_image_that_takes_too_much_memory_is_refused_by_its_header() {
        let png = bytes_of(&image(3, [9, 9]), ImageFormat::Png);
        assert!(opened(&with_png_size(png.clone(), 9, 9)).is_ok());
        for (width, height) in [(8192, 8193), (1_000_000, 1_000_000)] {
            let error = opened(&with_png_size(png.clone(), width, height)).unwrap_err();
            assert!(matches!(error, ImageError::Unreadable(_)) && error.is_user_error(), "{error}");
            assert!(error.to_string().contains(&format!("has {width} x {height} pixels, above the limit of 67108864")));
        }
        let mut jpeg = bytes_of(&image(3, [9, 9]), ImageFormat::Jpeg);
        let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        jpeg[frame + 5..frame + 9].fill(0xff);
        let error = opened(&jpeg).unwrap_err();
        assert!(error.to_string().contains("has 65535 x 65535 pixels, above the limit"), "{error}");
    }

    #[test]
    fn what_follows_the_end_of_a_jpeg_does_not_matter() {
        let bytes = bytes_of(&image(3, [9, 9]), ImageFormat::Jpeg);
        assert!(opened(&[&bytes[..], b"a thumbnail of some camera"].concat()).is_ok());
    }

    #[test]
    fn a_text_is_no_image() {
        let error = opened(b"GIF89a is another format").unwrap_err();
        assert!(error.to_string().contains("is no image: its bytes are of no known format; expected PNG"), "{error}");
        assert!(opened(b"").is_err());
    }

    #[test]
    fn half_the_size_is_the_mean_of_four() {
        let image = Image::new(ImageShape::new(1, [2, 2]), vec![0, 100, 200, 100]);
        assert_eq!(image.resized([1, 1]).pixels(), [100]);
        // A step from 0 to 90 over three pixels: their centres lie at 1/6, 1/2 and 5/6 of the way over both.
        let step = Image::new(ImageShape::new(1, [1, 2]), vec![0, 90]).resized([1, 3]);
        assert_eq!(step.pixels(), [0, 45, 90]);
        assert_eq!(self::image(3, [8, 6]).resized([4, 9]).shape(), ImageShape::new(3, [4, 9]));
    }
}
