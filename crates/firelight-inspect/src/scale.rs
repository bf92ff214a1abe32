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

/// Below 0 on light paper: the same steps of lightness at hue 60. People with any form of colour blindness tell blue from orange.
const WARM_LIGHT: [Colour; 9] = [
    [254, 249, 245],
    [246, 214, 188],
    [239, 177, 127],
    [229, 139, 53],
    [199, 111, 2],
    [161, 89, 1],
    [126, 68, 0],
    [91, 49, 6],
    [50, 35, 22],
];

/// Below 0 on a dark screen.
const WARM_DARK: [Colour; 9] = [
    [37, 23, 10],
    [75, 38, 0],
    [109, 58, 0],
    [146, 80, 0],
    [183, 102, 1],
    [217, 128, 39],
    [236, 164, 102],
    [244, 202, 169],
    [252, 239, 230],
];

/// What colours stand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paper {
    Light,
    Dark,
}

/// The colour of a share from -1 to 1: blue above 0, orange below it.
pub(crate) fn signed_colour(share: f32, paper: Paper) -> Colour {
    let steps = match (paper, share < 0.0) {
        (Paper::Light, false) => &LIGHT,
        (Paper::Light, true) => &WARM_LIGHT,
        (Paper::Dark, false) => &DARK,
        (Paper::Dark, true) => &WARM_DARK,
    };
    between(steps, share.abs())
}

/// The colour of a share from 0 to 1 on light paper.
pub(crate) fn colour(share: f32) -> Colour {
    between(&LIGHT, share)
}

fn between(steps: &[Colour; 9], share: f32) -> Colour {
    let place = share.clamp(0.0, 1.0) * (steps.len() - 1) as f32;
    let low = (place as usize).min(steps.len() - 2);
    let part = place - low as f32;
    std::array::from_fn(|channel| {
        let [from, to] = [steps[low], steps[low + 1]].map(|colour| f32::from(colour[channel]));
        (from + part * (to - from)).round() as u8
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The relative luminance of sRGB (WCAG 2.1), which grows with lightness.
    pub(crate) fn luminance(colour: Colour) -> f64 {
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

    #[test]
    fn numbers_below_0_are_as_light_as_those_above_and_warm_instead_of_cold() {
        for (cold, warm) in [(LIGHT, WARM_LIGHT), (DARK, WARM_DARK)] {
            for (cold, warm) in cold.into_iter().zip(warm) {
                assert!((luminance(cold) - luminance(warm)).abs() < 0.02, "{cold:?} {warm:?}");
                assert!(warm[0] > warm[2] && cold[2] > cold[0], "{cold:?} {warm:?}");
            }
        }
        assert_eq!(signed_colour(-1.0, Paper::Light), WARM_LIGHT[8]);
        assert_eq!([signed_colour(0.5, Paper::Light), signed_colour(0.5, Paper::Dark)], [LIGHT[4], DARK[4]]);
    }
}
