//! Digits drawn with a pen: strokes of straight lines, turned, stretched, slanted and of another thickness in every image.

use super::super::{Image, ImageSet, ImageShape};
use crate::dice::Dice;

/// Height and width of a digit in pixels, those of MNIST.
const SIDE: usize = 28;

/// The stream of chance of the digits.
const STREAM: u64 = 0xd1_91_75;

/// The points between which the pen moves, to the right and down from the upper left corner, from 0 to 1.
const STROKES: [&[[f64; 2]]; 10] = [
    &[
        [0.5, 0.06],
        [0.3, 0.16],
        [0.22, 0.5],
        [0.3, 0.84],
        [0.5, 0.94],
        [0.7, 0.84],
        [0.78, 0.5],
        [0.7, 0.16],
        [0.5, 0.06],
    ],
    &[[0.34, 0.26], [0.54, 0.06], [0.54, 0.94]],
    &[[0.24, 0.28], [0.32, 0.12], [0.5, 0.06], [0.7, 0.14], [0.74, 0.32], [0.6, 0.54], [0.22, 0.94], [0.8, 0.94]],
    &[
        [0.24, 0.14],
        [0.5, 0.06],
        [0.74, 0.18],
        [0.72, 0.36],
        [0.46, 0.48],
        [0.76, 0.62],
        [0.76, 0.82],
        [0.5, 0.94],
        [0.22, 0.86],
    ],
    &[[0.62, 0.94], [0.62, 0.06], [0.2, 0.66], [0.82, 0.66]],
    &[[0.76, 0.06], [0.3, 0.06], [0.26, 0.46], [0.54, 0.4], [0.76, 0.54], [0.76, 0.78], [0.52, 0.94], [0.22, 0.86]],
    &[
        [0.7, 0.08],
        [0.4, 0.24],
        [0.24, 0.56],
        [0.28, 0.84],
        [0.52, 0.94],
        [0.74, 0.82],
        [0.74, 0.64],
        [0.52, 0.52],
        [0.28, 0.66],
    ],
    &[[0.2, 0.08], [0.8, 0.08], [0.42, 0.94]],
    &[
        [0.5, 0.48],
        [0.28, 0.34],
        [0.3, 0.14],
        [0.5, 0.06],
        [0.7, 0.14],
        [0.72, 0.34],
        [0.5, 0.48],
        [0.24, 0.68],
        [0.28, 0.88],
        [0.5, 0.94],
        [0.72, 0.88],
        [0.76, 0.68],
        [0.5, 0.48],
    ],
    &[[0.72, 0.34], [0.52, 0.48], [0.28, 0.36], [0.3, 0.16], [0.52, 0.06], [0.72, 0.16], [0.72, 0.34], [0.64, 0.94]],
];

/// `count` images of 28 x 28 pixels, one channel, white on black; the class of each is its digit. Equal arguments give equal
/// images, and more images of a seed begin with the fewer.
pub fn drawn_digits(seed: u64, count: usize) -> ImageSet {
    let mut dice = Dice::of(&[seed, STREAM]);
    let (mut labels, mut pixels) = (Vec::with_capacity(count), Vec::new());
    for _ in 0..count {
        let digit = dice.below(STROKES.len());
        labels.push(digit as u32);
        pixels.extend_from_slice(drawn(digit, &mut dice).pixels());
    }
    let classes = (0..STROKES.len()).map(|digit| digit.to_string()).collect();
    ImageSet::new(ImageShape::new(1, [SIDE; 2]), classes, pixels, labels)
}

fn drawn(digit: usize, dice: &mut Dice) -> Image {
    let mut between = |low: f64, high: f64| low + (high - low) * dice.fraction();
    let (sine, cosine) = between(-0.2, 0.2).sin_cos();
    let [wide, high] = [between(0.5, 0.75), between(0.6, 0.8)];
    let (slant, pen) = (between(-0.2, 0.2), between(0.9, 1.6));
    let moved = |[x, y]: [f64; 2]| {
        let (x, y) = (wide * (x - 0.5) - slant * (y - 0.5), high * (y - 0.5));
        [cosine * x - sine * y, sine * x + cosine * y].map(|place| (place + 0.5) * SIDE as f64)
    };
    let points: Vec<[f64; 2]> = STROKES[digit].iter().copied().map(moved).collect();
    Image::from_fn(ImageShape::new(1, [SIDE; 2]), |_, y, x| {
        let centre = [x, y].map(|place| place as f64 + 0.5);
        let nearest = points.windows(2).map(|line| distance(centre, line[0], line[1])).fold(f64::INFINITY, f64::min);
        (255.0 * (pen + 0.5 - nearest).clamp(0.0, 1.0)).round() as u8
    })
}

/// The distance of a point from a line with two ends.
fn distance(point: [f64; 2], from: [f64; 2], to: [f64; 2]) -> f64 {
    let along = |other: [f64; 2]| [other[0] - from[0], other[1] - from[1]];
    let (line, way) = (along(to), along(point));
    let length = line[0] * line[0] + line[1] * line[1];
    let share = ((way[0] * line[0] + way[1] * line[1]) / length).clamp(0.0, 1.0);
    (way[0] - share * line[0]).hypot(way[1] - share * line[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_from_a_line_by_hand() {
        let line = |point| distance(point, [0.0, 0.0], [4.0, 0.0]);
        assert_eq!([line([2.0, 3.0]), line([7.0, 4.0]), line([-3.0, 0.0])], [3.0, 5.0, 3.0]);
    }

    #[test]
    fn every_digit_is_drawn_whole_and_no_two_alike() {
        let set = drawn_digits(1, 300);
        let found: std::collections::BTreeSet<u32> = set.labels().iter().copied().collect();
        assert_eq!(found.len(), 10);
        for index in 0..set.len() {
            let image = set.image(index);
            let lit = image.pixels().iter().filter(|pixel| **pixel > 127).count();
            assert!((20..250).contains(&lit), "{} pixels of {}", lit, set.labels()[index]);
            let edge = (0..SIDE).flat_map(|i| [(0, i), (SIDE - 1, i), (i, 0), (i, SIDE - 1)]);
            assert!(edge.map(|(row, column)| image.at(0, row, column)).all(|pixel| pixel == 0), "image {index}");
        }
        assert_ne!(set.image(0), set.image(1));
        assert!(drawn_digits(1, 20).pixels() == &set.pixels()[..20 * SIDE * SIDE], "the fewer begin the more");
    }
}
