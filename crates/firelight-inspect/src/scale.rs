//! The colours of weights: one hue, so that people who see colours differently read the same order, in nine steps of equal lightness.
//!
//! The steps are those of OKLCH (Ottosson 2020, <https://bottosson.github.io/posts/oklab/>) at hue 255, in sRGB. On light paper from
//! lightness 0.985 down to 0.27, on dark from 0.22 up to 0.96: what weighs most stands out most.

/// A colour in sRGB.
pub(crate) type Colour = [u8; 3];

/// From no weight to the whole of it, on light paper.
pub(crate) const LIGHT: [Colour; 9] = [
    [247, 250, 255],
    [199, 223, 254],
    [149, 195, 254],
    [96, 166, 253],
    [63, 137, 227],
    [40, 110, 192],
    [31, 85, 149],
    [29, 62, 102],
    [28, 39, 54],
];

/// From no weight to the whole of it, on a dark screen.
pub(crate) const DARK: [Colour; 9] = [
    [16, 27, 41],
    [16, 49, 89],
    [16, 72, 136],
    [26, 98, 179],
    [51, 125, 215],
    [86, 155, 241],
    [130, 185, 255],
    [183, 214, 254],
    [234, 243, 255],
];

/// The colour of a share from 0 to 1 on light paper.
pub(crate) fn colour(share: f32) -> Colour {
    let place = share.clamp(0.0, 1.0) * (LIGHT.len() - 1) as f32;
    let low = (place as usize).min(LIGHT.len() - 2);
    let part = place - low as f32;
    std::array::from_fn(|channel| {
        let [from, to] = [LIGHT[low], LIGHT[low + 1]].map(|colour| f32::from(colour[channel]));
        (from + part * (to - from)).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of sRGB (WCAG 2.1), which grows with lightness.
    fn luminance(colour: Colour) -> f64 {
        let linear = |channel: u8| match f64::from(channel) / 255.0 {
            value if value <= 0.04045 => value / 12.92,
            value => ((value + 0.055) / 1.055).powf(2.4),
        };
        0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
    }

    #[test]
    fn the_ends_and_the_middle_between_two_steps() {
        assert_eq!([colour(0.0), colour(1.0), colour(7.0)], [LIGHT[0], LIGHT[8], LIGHT[8]]);
        // By hand: (247 + 199) / 2, (250 + 223) / 2 and (255 + 254) / 2, halves away from 0.
        assert_eq!(colour(1.0 / 16.0), [223, 237, 255]);
    }

    #[test]
    fn lightness_alone_tells_the_order() {
        assert!(LIGHT.windows(2).all(|pair| luminance(pair[0]) > luminance(pair[1])));
        assert!(DARK.windows(2).all(|pair| luminance(pair[0]) < luminance(pair[1])));
        let contrast = |scale: [Colour; 9]| {
            let [a, b] = [scale[0], scale[8]].map(luminance);
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        assert!(contrast(LIGHT) > 7.0 && contrast(DARK) > 7.0);
    }
}
