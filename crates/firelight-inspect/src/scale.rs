//! The colours of weights: one hue, so that people who see colours differently read the same order, in nine steps of equal lightness.
//!
//! The steps are those of OKLCH (Ottosson 2020, <https://bottosson.github.io/posts/oklab/>) at hue 255, in sRGB. On light paper from
//! lightness 0.985 down to 0.27, on dark from 0.22 up to 0.96: what weighs most stands out most.
//!
//! Drawings have a step of [`STEPS`] for each field, by whose [`class`] a dark screen colours it anew.

use firelight_storage::palette::{Colour, Theme};

/// Steps of colour on either side of 0.
pub(crate) const STEPS: i32 = 16;

/// From these steps on a number is read better in white on light paper, and in black on a dark screen, where fields are the lighter the deeper
/// they are.
const WHITE_FROM: i32 = 10;
const BLACK_FROM: i32 = 8;

const WHITE: Colour = [255; 3];
const BLACK: Colour = [0; 3];

/// What tokens stand on in turns, on light paper and on a dark screen. They are the colours of Okabe and Ito 2008
/// (<https://jfly.uni-koeln.de/color/>), lightened and darkened: people with any form of colour blindness tell neighbours apart.
pub(crate) const TOKENS: [[Colour; 2]; 4] = [
    [[207, 232, 250], [29, 79, 115]],
    [[251, 224, 181], [110, 74, 18]],
    [[191, 232, 218], [13, 90, 69]],
    [[248, 242, 180], [92, 85, 20]],
];

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

/// The colour of a share from -1 to 1: blue above 0, orange below it.
pub(crate) fn signed_colour(share: f32, theme: Theme) -> Colour {
    let steps = match (theme, share < 0.0) {
        (Theme::Light, false) => &LIGHT,
        (Theme::Light, true) => &WARM_LIGHT,
        (Theme::Dark, false) => &DARK,
        (Theme::Dark, true) => &WARM_DARK,
    };
    between(steps, share.abs())
}

/// The step of a share from -1 to 1.
pub(crate) fn step(share: f32) -> i32 {
    (share.clamp(-1.0, 1.0) * STEPS as f32).round() as i32
}

/// The class of the fields of a step.
pub(crate) fn class(step: i32) -> String {
    if step < 0 { format!("b{}", -step) } else { format!("a{step}") }
}

pub(crate) fn step_colour(step: i32, theme: Theme) -> Colour {
    signed_colour(step as f32 / STEPS as f32, theme)
}

/// The class of the numbers on the fields of a step.
pub(crate) fn number_class(step: i32) -> &'static str {
    if step.abs() < BLACK_FROM { "off" } else { "on" }
}

/// The colour of the numbers on the fields of a step.
pub(crate) fn number_colour(step: i32, theme: Theme) -> Colour {
    match theme {
        Theme::Light if step.abs() < WHITE_FROM => BLACK,
        Theme::Light => WHITE,
        Theme::Dark if step.abs() < BLACK_FROM => WHITE,
        Theme::Dark => BLACK,
    }
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
mod tests {
    use super::*;
    use firelight_storage::palette::{contrast, luminance};

    const THEMES: [Theme; 2] = [Theme::Light, Theme::Dark];

    #[test]
    fn the_ends_and_the_middle_between_two_steps() {
        let colour = |share| signed_colour(share, Theme::Light);
        assert_eq!([colour(0.0), colour(1.0), colour(7.0)], [LIGHT[0], LIGHT[8], LIGHT[8]]);
        // By hand: (247 + 199) / 2, (250 + 223) / 2 and (255 + 254) / 2, halves away from 0.
        assert_eq!(colour(1.0 / 16.0), [223, 237, 255]);
        assert_eq!([-1.0, -0.04, 0.0, 0.5, 9.0].map(|share| class(step(share))), ["b16", "b1", "a0", "a8", "a16"]);
    }

    #[test]
    fn lightness_alone_tells_the_order() {
        assert!(LIGHT.windows(2).all(|pair| luminance(pair[0]) > luminance(pair[1])));
        assert!(DARK.windows(2).all(|pair| luminance(pair[0]) < luminance(pair[1])));
        assert!(contrast(LIGHT[0], LIGHT[8]) > 7.0 && contrast(DARK[0], DARK[8]) > 7.0);
    }

    #[test]
    fn numbers_below_0_are_as_light_as_those_above_and_warm_instead_of_cold() {
        for (cold, warm) in [(LIGHT, WARM_LIGHT), (DARK, WARM_DARK)] {
            for (cold, warm) in cold.into_iter().zip(warm) {
                assert!((luminance(cold) - luminance(warm)).abs() < 0.02, "{cold:?} {warm:?}");
                assert!(warm[0] > warm[2] && cold[2] > cold[0], "{cold:?} {warm:?}");
            }
        }
        assert_eq!(signed_colour(-1.0, Theme::Light), WARM_LIGHT[8]);
        assert_eq!(THEMES.map(|theme| signed_colour(0.5, theme)), [LIGHT[4], DARK[4]]);
    }

    /// WCAG 2.2 asks for 4.5 to 1.
    #[test]
    fn numbers_can_be_read_on_every_field() {
        let ratio = |step, theme| contrast(number_colour(step, theme), step_colour(step, theme));
        for theme in THEMES {
            assert!((-STEPS..=STEPS).all(|step| ratio(step, theme) > 4.5), "{theme:?}");
            // Nothing and the strongest colour, to a tenth.
            let ends = [0, STEPS].map(|step| (10.0 * ratio(step, theme)).round() / 10.0);
            assert_eq!(ends, if theme == Theme::Light { [20.1, 15.1] } else { [17.3, 18.8] });
        }
    }

    #[test]
    fn the_words_of_tokens_can_be_read() {
        for (place, theme) in THEMES.into_iter().enumerate() {
            let ink = theme.palette().ink;
            assert!(TOKENS.iter().all(|colours| contrast(ink, colours[place]) > 4.5), "{theme:?}");
        }
    }
}
